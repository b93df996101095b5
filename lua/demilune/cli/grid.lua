--- cli/grid.lua - rows in columns.
local style = require "demilune.cli.style"

local grid = {}

local GAP = "  "
local WIDTH = 80
--- A last column narrower than this is not wrapped: the result would be a ribbon.
local WRAP_MIN = 24

local function width_of(text)
  return utf8.len(text) or #text
end

--- The text in lines of at most `columns`, broken at spaces.
---@param text string
---@param columns integer
---@return string[]
function grid.wrap(text, columns)
  local lines, line = {}, ""
  for word in text:gmatch "%S+" do
    if line ~= "" and width_of(line) + 1 + width_of(word) > columns then
      lines[#lines + 1], line = line, ""
    end
    line = line == "" and word or line .. " " .. word
  end
  lines[#lines + 1] = line
  return lines
end

local function widths_of(rows)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, width_of(cell)) end
  end
  return widths
end

local function pad(cell, width)
  return cell .. (" "):rep(width - width_of(cell))
end

--- The rows as text, each line ended. With `opts.header` the first row is painted; with `opts.wraps` the last column is
--- broken at spaces, so that a line has at most 80 columns.
---@param rows string[][]
---@param opts? {header?: boolean, wraps?: boolean, indent?: string}
---@return string
function grid.render(rows, opts)
  opts = opts or {}
  local widths, indent, out = widths_of(rows), opts.indent or "", {}
  for number, row in ipairs(rows) do
    local cells, used = {}, #indent
    for i = 1, #row - 1 do
      cells[i] = pad(row[i], widths[i]) .. GAP
      used = used + widths[i] + #GAP
    end
    local room = WIDTH - used
    local last = row[#row]
    local lines = opts.wraps and room >= WRAP_MIN and grid.wrap(last, room) or { last }
    for i, line in ipairs(lines) do
      local text = (i == 1 and table.concat(cells) or (" "):rep(used - #indent)) .. line
      text = (indent .. text):gsub("%s+$", "")
      out[#out + 1] = opts.header and number == 1 and style.paint("dim", text) or text
    end
  end
  return #out > 0 and table.concat(out, "\n") .. "\n" or ""
end

return grid
