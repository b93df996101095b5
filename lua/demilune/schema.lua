--- schema.lua - the arguments of tools: checked before anything happens, named but never repeated.
--
-- The tools use a small part of JSON Schema (2020-12; draft-07 where it is a service's own): objects of strings, integers,
-- enums and string maps; an operator's tools also numbers, booleans and lists of one of these. Beside the standard keys a
-- property may hold ours, which are not published: `bytes` (largest length of a string in bytes), `is_filled` (an empty string
-- is refused) and `check` (a function that returns what was expected instead). What a service answers is checked with `prune`
-- and `fault`, which know a little more: nested objects, lists of types, anyOf.
local connect = require "demilune.connect"
local errors = require "demilune.errors"
local json = require("demilune.core").json
local text = require "demilune.text"

local schema = {}

local NAME_SHOWN_CHARACTERS = 64
local PRIVATE = { bytes = true, check = true, is_filled = true, is_sealed = true, nulls = true }

local LISTS = { enum = true, required = true, type = true }
--- Lists whose entries are schemas.
local CHOICES = { anyOf = true }

local function public_each(nodes)
  local out = {}
  for key, node in pairs(nodes) do out[key] = schema.public(node) end
  return out
end

--- The schema as clients see it: without our private keys. Names of properties are names, whatever they are.
---@param node table
---@return table
function schema.public(node)
  local out = {}
  for key, value in pairs(node) do
    if key == "properties" then
      out[key] = public_each(value)
    elseif CHOICES[key] then
      out[key] = json.array(public_each(value))
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
  -- "a UUID", as it is said.
  return (noun:find "^[aeiou]" and "an " or "a ") .. noun
end

--- The least integer that a property takes, nil for none.
local function least_of(property)
  if not property.exclusiveMinimum then return property.minimum end
  return math.max(property.exclusiveMinimum + 1, property.minimum or math.mininteger)
end

--- Whether an integer is within the bounds of a property.
local function is_within(property, value)
  local least, most = least_of(property), property.maximum
  return not (least and value < least) and not (most and value > most)
end

--- Whether a string is a UUID in its usual form, of whatever version (RFC 9562, section 4).
---@param value string
---@return boolean
function schema.is_uuid(value)
  local first, last = value:match "^(%x+)%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-(%x+)$"
  return first ~= nil and #first == 8 and #last == 12
end

--- Formats that are checked; others say nothing.
local FORMATS = { uuid = schema.is_uuid }

--- "integer from 1 to 86400".
local function expected_number(noun, least, most)
  if least and most then return ("%s from %s to %s"):format(noun, least, most) end
  if least then return ("%s of at least %s"):format(noun, least) end
  return most and ("%s of at most %s"):format(noun, most) or noun
end

--- "list of at most 8 strings".
local function expected_list(property)
  local items, most = property.items, property.maxItems
  local of = items.enum and "values, each " .. schema.expected(items) or (items.type .. "s")
  local bounds = property.minItems and ("%d%s "):format(property.minItems, most and " to " .. most or " or more")
    or most and ("at most %d "):format(most) or ""
  return "list of " .. bounds .. of
end

--- What a property takes, in words: "integer from 1 to 86400".
---@param property table
---@return string
function schema.expected(property)
  if property.enum then return "one of " .. table.concat(property.enum, ", ") end
  if property.type == "integer" then
    return expected_number("integer", least_of(property), property.maximum)
  elseif property.type == "number" then
    return expected_number("number", property.minimum, property.maximum)
  elseif property.type == "boolean" then
    return "boolean, true or false"
  elseif property.type == "array" then
    return expected_list(property)
  elseif property.format == "uuid" then
    return "UUID"
  elseif property.type == "string" then
    local most = property.bytes and ("of at most %d bytes"):format(property.bytes)
      or property.maxLength and ("of at most %d characters"):format(property.maxLength)
    if (property.minLength or 0) > 1 then
      return ("string of at least %d characters%s"):format(property.minLength, most and " and" .. most:sub(3) or "")
    end
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

--- Whether a string's length in characters is within the bounds of a property.
local function has_characters(property, value)
  if not (property.minLength or property.maxLength) then return true end
  local count = utf8.len(value) or #value
  return count >= (property.minLength or 0) and count <= (property.maxLength or count)
end

local function check_string(name, property, value)
  if type(value) ~= "string" then refuse(name, property) end
  if value == "" and (property.minLength or property.is_filled) then refuse(name, property) end
  if property.bytes and #value > property.bytes then refuse(name, property) end
  if not has_characters(property, value) then refuse(name, property) end
  if value:find("\0", 1, true) then
    refuse(name, property, { expected = "string without NUL", message = name .. " must not contain NUL." })
  end
  if FORMATS[property.format] and not FORMATS[property.format](value) then refuse(name, property) end
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
  if math.type(whole) ~= "integer" or not is_within(property, whole) then refuse(name, property) end
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

local function check_number(name, property, value)
  if not math.type(value) or not is_within(property, value) then refuse(name, property) end
  return value
end

local function check_boolean(name, property, value)
  if type(value) ~= "boolean" then refuse(name, property) end
  return value
end

local CHECKS = {
  string = check_string, integer = check_integer, number = check_number, boolean = check_boolean, object = check_object,
}

--- A list's entries are checked as a property of that name would be.
local function check_array(name, property, value)
  if not connect.is_array(value) then refuse(name, property) end
  if #value < (property.minItems or 0) or #value > (property.maxItems or math.huge) then refuse(name, property) end
  local items, out = property.items, json.array {}
  local check = items.enum and check_enum or CHECKS[items.type]
  for i, item in ipairs(value) do out[i] = check(("%s[%d]"):format(name, i - 1), items, item) end
  return out
end

CHECKS.array = check_array

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

-- ---- answers of services ----

--- The names of JSON's types that a decoded value has.
local function types_of(value)
  if value == json.null then return { null = true } end
  if connect.is_array(value) then return { array = true } end
  if type(value) == "number" then return { number = true, integer = math.tointeger(value) ~= nil } end
  if type(value) == "table" then return { object = true } end
  return { [type(value)] = true }
end

local function has_type(node, value)
  if not node.type then return true end
  local types = types_of(value)
  if type(node.type) == "string" then return types[node.type] == true end
  for _, name in ipairs(node.type) do
    if types[name] then return true end
  end
  return false
end

local function is_listed(list, value)
  for _, one in ipairs(list) do
    if one == value then return true end
  end
  return false
end

local function fits_string(node, value)
  if node.bytes and #value > node.bytes then return false end
  if node.minLength and utf8.len(value) < node.minLength then return false end
  return not (FORMATS[node.format] and not FORMATS[node.format](value))
end

local function number_fault(node, value, path)
  local least, most, beyond = node.minimum, node.maximum, node.exclusiveMinimum
  if (least and value < least) or (most and value > most) or (beyond and value <= beyond) then return path end
end

local function object_fault(node, value, path)
  for _, name in ipairs(node.required or {}) do
    if value[name] == nil then return path .. "/" .. name end
  end
  local properties = node.properties or {}
  for _, name in ipairs(names_of(value)) do
    local property = properties[name]
    if not property and node.additionalProperties == false then return path .. "/?" end
    local fault = property and schema.fault(property, value[name], path .. "/" .. name)
    if fault then return fault end
  end
end

local function array_fault(node, value, path)
  for i, item in ipairs(value) do
    local fault = node.items and schema.fault(node.items, item, path .. "/" .. i)
    if fault then return fault end
  end
end

--- Where a decoded value does not satisfy a schema, as a path of the schema's own names ("/id"; "/?" for a name it lacks);
--- nil where it does.
---@param node table
---@param value any
---@param path? string
---@return string?
function schema.fault(node, value, path)
  path = path or ""
  if not has_type(node, value) or (node.enum and not is_listed(node.enum, value)) then return path end
  if node.anyOf then
    local fits = false
    for _, choice in ipairs(node.anyOf) do fits = fits or not schema.fault(choice, value, path) end
    if not fits then return path end
  end
  if type(value) == "string" then return not fits_string(node, value) and path or nil end
  if type(value) == "number" then return number_fault(node, value, path) end
  if connect.is_array(value) then return array_fault(node, value, path) end
  if type(value) == "table" then return object_fault(node, value, path) end
end

--- A copy of a decoded value without what a schema does not name, at every level; an optional property that is null where
--- the schema takes none is left out too, and integral floats become integers. What does not fit stays, for `fault`.
---@param node table
---@param value any
---@return any
function schema.prune(node, value)
  if type(value) == "number" then return math.tointeger(value) or value end
  if not connect.is_object(value) or not node.properties then return value end
  local required, out = {}, {}
  for _, name in ipairs(node.required or {}) do required[name] = true end
  for name, property in pairs(node.properties) do
    local part = value[name]
    local is_absent = part == nil or (part == json.null and not required[name] and schema.fault(property, part) ~= nil)
    if not is_absent then out[name] = schema.prune(property, part) end
  end
  return out
end

return schema
