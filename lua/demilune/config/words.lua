--- words.lua - how keys, shapes and ways out are put in a message.
--
-- A key comes from an operator's file and may be any Lua value; it is shown without running its
-- metamethods, on one line, and cut. Values are never shown.
local nearest = require "demilune.nearest"

local words = {}

local SHOWN_BYTES_MAX = 64

--- A key as it may stand in a message.
---@param key any
---@return string
function words.key(key)
  if type(key) == "number" then return ("[%s]"):format(key) end
  if type(key) ~= "string" then return ("[a %s]"):format(type(key)) end
  if key:find "^[%a_][%w_-]*$" and #key <= SHOWN_BYTES_MAX then return key end
  return ("[%q]"):format(key:sub(1, SHOWN_BYTES_MAX):gsub("[^\32-\126]", "?"))
end

--- The path of a key, as a person would write it: `providers[1].templates.base.disk`.
---@param path (string|integer)[]
---@return string
function words.path(path)
  local parts = {}
  for i, key in ipairs(path) do
    local part = words.key(key)
    parts[i] = (i > 1 and part:sub(1, 1) ~= "[") and "." .. part or part
  end
  return #parts > 0 and table.concat(parts) or "the table"
end

--- `"a", "b" or "c"`.
---@param list string[]
---@return string
function words.choices(list)
  local out = {}
  for i, word in ipairs(list) do out[i] = '"' .. word .. '"' end
  local last = #out > 1 and " or " .. table.remove(out) or ""
  return table.concat(out, ", ") .. last
end

local function number_text(number) return ("%.14g"):format(number) end

local EXPECTED = {
  integer = function(shape)
    if shape.words then return shape.words end
    return ("an integer from %s to %s"):format(number_text(shape.min), number_text(shape.max))
  end,
  number = function(shape)
    return ("a number from %s to %s"):format(number_text(shape.min), number_text(shape.max))
  end,
  string = function(shape)
    local text = shape.words or "a string of valid UTF-8 without NUL"
    return ("%s, at most %d bytes"):format(text, shape.max)
  end,
  boolean = function() return "true or false" end,
  choice = function(shape) return words.choices(shape.choices) end,
  url = function(shape)
    return ("a URL%s, at most %d bytes"):format(shape.is_proxy and " of a proxy" or "", shape.max)
  end,
  source = function(shape)
    return ("env:NAME, file:PATH, cred:NAME or cmd:PROGRAM, at most %d bytes"):format(shape.max)
  end,
  record = function(shape) return shape.words or "a table of keys" end,
  map = function() return "a table by name" end,
  list = function(shape)
    local one = shape.takes_one and shape.of.words
    return one and one .. ", or a list of them" or "a list"
  end,
  yes = function() return "true" end,
  data = function(shape) return shape.is_table and "a table" or "data" end,
  ["function"] = function() return "a function" end,
}

--- What may stand at a key, in words.
---@param shape demilune.config.Shape
---@return string
function words.expected(shape) return EXPECTED[shape.kind](shape) end

--- The way out of a wrong value.
---@param shape demilune.config.Shape
---@param value any
---@return string
function words.way_out(shape, value)
  if shape.way_out then return shape.way_out end
  if shape.kind == "yes" then return "leave it out for no" end
  if shape.kind == "choice" then
    local near = type(value) == "string" and nearest.of(value, shape.choices)
    if near then return ('did you mean "%s"?'):format(near) end
    if shape.later then return "this version does not serve anything else yet" end
  end
  if shape.kind == "string" and type(value) == "number" then return "put it in quotes" end
  if shape.default == nil then return "write one" end
  if type(shape.default) == "table" then return "or leave it out" end
  local default = shape.default
  if type(default) == "string" then return ('leave it out for "%s"'):format(default) end
  return "leave it out for " .. (type(default) == "number" and number_text or tostring)(default)
end

return words
