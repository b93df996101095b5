--- schema.lua - the arguments of tools: checked before anything happens, named but never repeated.
--
-- The tools use a small part of JSON Schema (2020-12): objects of strings, integers, enums and string maps. Beside the
-- standard keys a property may hold ours, which are not published: `bytes` (largest length of a string in bytes),
-- `is_filled` (an empty string is refused) and `check` (a function that returns what was expected instead).
local connect = require "demilune.connect"
local errors = require "demilune.errors"
local json = require("demilune.core").json
local text = require "demilune.text"

local schema = {}

local NAME_SHOWN_CHARACTERS = 64
local PRIVATE = { bytes = true, check = true, is_filled = true, nulls = true }

local LISTS = { enum = true, required = true, type = true }

local function public_properties(properties)
  local out = {}
  for name, property in pairs(properties) do out[name] = schema.public(property) end
  return out
end

--- The schema as clients see it: without our private keys. Names of properties are names, whatever they are.
---@param node table
---@return table
function schema.public(node)
  local out = {}
  for key, value in pairs(node) do
    if key == "properties" then
      out[key] = public_properties(value)
    elseif type(value) ~= "table" then
      if not PRIVATE[key] then out[key] = value end
    elseif LISTS[key] then
      out[key] = json.array(table.move(value, 1, #value, 1, {}))
    elseif not PRIVATE[key] then
      out[key] = schema.public(value)
    end
  end
  return out
end

--- "one of a, b" stands by itself, every other expectation begins with a noun.
local function article(noun)
  if noun:find "^one of " then return noun end
  return (noun:find "^[aeiou]" and "an " or "a ") .. noun
end

--- What a property takes, in words: "integer from 1 to 86400".
---@param property table
---@return string
function schema.expected(property)
  if property.enum then return "one of " .. table.concat(property.enum, ", ") end
  if property.type == "integer" then
    if property.maximum then return ("integer from %d to %d"):format(property.minimum, property.maximum) end
    return ("integer of at least %d"):format(property.minimum)
  elseif property.type == "string" then
    local most = property.bytes and ("of at most %d bytes"):format(property.bytes)
    if property.minLength or property.is_filled then return "string that is not empty" .. (most and ", " .. most or "") end
    return "string" .. (most and " " .. most or "")
  elseif property.type == "object" then
    return "object of strings"
  end
  return property.type
end

local function refuse(name, property, fields)
  local expected = schema.expected(property)
  local out = {
    field = name, expected = expected, allowed = property.enum,
    message = ("%s must be %s."):format(name, article(expected)),
  }
  for key, value in pairs(fields or {}) do out[key] = value end
  errors.raise("invalid_argument", out)
end

local function check_string(name, property, value)
  if type(value) ~= "string" then refuse(name, property) end
  if value == "" and (property.minLength or property.is_filled) then refuse(name, property) end
  if property.bytes and #value > property.bytes then refuse(name, property) end
  if value:find("\0", 1, true) then
    refuse(name, property, { expected = "string without NUL", message = name .. " must not contain NUL." })
  end
  if property.check then
    local expected = property.check(value)
    if expected then
      refuse(name, property, { expected = expected, message = ("%s must be %s."):format(name, article(expected)) })
    end
  end
  return value
end

local function check_integer(name, property, value)
  local whole = math.type(value) == "float" and math.tointeger(value) or value
  if math.type(whole) ~= "integer" then refuse(name, property) end
  if whole < property.minimum or (property.maximum and whole > property.maximum) then refuse(name, property) end
  return whole
end

local function check_enum(name, property, value)
  for _, allowed in ipairs(property.enum) do
    if value == allowed then return value end
  end
  refuse(name, property)
end

local function check_object(name, property, value)
  if not connect.is_object(value) then refuse(name, property) end
  if property.check then
    local expected = property.check(value)
    if expected then
      refuse(name, property, { expected = expected, message = ("%s must be %s."):format(name, article(expected)) })
    end
  end
  return value
end

local CHECKS = { string = check_string, integer = check_integer, object = check_object }

--- The keys in order, so that of several faults always the same one is named.
local function names_of(fields)
  local names = {}
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function refuse_unknown(name, properties)
  local names = names_of(properties)
  errors.raise("invalid_argument", {
    field = text.first(name, NAME_SHOWN_CHARACTERS), allowed = json.array(names),
    message = #names > 0 and "There is no such argument; `allowed` lists those of this tool."
      or "This tool takes no arguments.",
  })
end

--- Checks arguments against an input schema and returns a fresh table of them, defaults filled in, nulls dropped,
--- integral floats turned into integers. Raises `invalid_argument`.
---@param input table   {properties, required, additionalProperties = false}
---@param arguments table
---@return table
function schema.check(input, arguments)
  local out = {}
  local properties = input.properties
  for _, name in ipairs(names_of(arguments)) do
    if not properties[name] then refuse_unknown(name, properties) end
  end
  for _, name in ipairs(names_of(arguments)) do
    local property, value = properties[name], arguments[name]
    if value ~= json.null then
      local check = property.enum and check_enum or CHECKS[property.type]
      out[name] = check(name, property, value)
    end
  end
  for _, name in ipairs(input.required or {}) do
    if out[name] == nil then
      refuse(name, properties[name], { message = name .. " is required." })
    end
  end
  for name, property in pairs(properties) do
    if out[name] == nil then out[name] = property.default end
  end
  return out
end

return schema
