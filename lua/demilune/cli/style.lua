--- cli/style.lua - colours for people, and no surprises for their terminals.
--
-- Colours only where stdout is a terminal that knows them, and never with NO_COLOR (https://no-color.org). What comes out
-- of a sandbox is foreign: a terminal never gets its control characters, which can set titles and fill clipboards.
local core = require "demilune.core"

local style = {}

local STDOUT = 1
local CODES = { bold = "1", dim = "2", red = "31", green = "32", yellow = "33", cyan = "36" }

--- Whether a person looks at stdout.
---@return boolean
function style.is_terminal()
  return core.sys.isatty(STDOUT)
end

local function has_colours()
  local no_color, term = core.sys.env "NO_COLOR", core.sys.env "TERM"
  return style.is_terminal() and (no_color == nil or no_color == "") and term ~= nil and term ~= "" and term ~= "dumb"
end

--- Text in a colour, where there are colours.
---@param name string  bold, dim, red, green, yellow or cyan
---@param text string
---@return string
function style.paint(name, text)
  if text == "" or not has_colours() then return text end
  return "\27[" .. CODES[name] .. "m" .. text .. "\27[0m"
end

--- Foreign text without control characters, but for line breaks and tabs; of any bytes, UTF-8.
---@param text string
---@return string
function style.plain(text)
  text = core.text.mend(text):gsub("\r\n?", "\n")
  text = text:gsub("\194[\128-\159]", "?")
  return (text:gsub("[%c]", function(c)
    return (c == "\n" or c == "\t") and c or "?"
  end))
end

--- Foreign text on one line of at most `columns` characters.
---@param text string
---@param columns integer
---@return string
function style.short(text, columns)
  text = style.plain(text):gsub("%s+", " ")
  if utf8.len(text) <= columns then return text end
  return text:sub(1, utf8.offset(text, columns) - 1) .. "…"
end

return style
