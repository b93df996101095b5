--- json_values.lua - decoded JSON as schemas see it: kinds, equality, and one bounded look at a value.
local connect = require "demilune.connect"
local json = require("demilune.core").json

local json_values = {}

--- Levels of subschemas and references in one look at a value.
local DEPTH_MAX = 64
--- Subschemas that one value may be held against; beyond it does not fit.
local STEPS_MAX = 20000

---@alias demilune.policy.Node fun(value: any, state: table, path: string): string?, string?

local function is_list(value)
  return connect.is_array(value) or (type(value) == "table" and value[1] ~= nil)
end

--- The name of JSON's type that a value has; a table without a mark is an array when it has a first entry.
---@param value any
---@return string
function json_values.kind_of(value)
  if value == json.null then return "null" end
  if type(value) ~= "table" then return type(value) end
  return is_list(value) and "array" or "object"
end

local function is_integer(value) return math.type(value) ~= nil and math.tointeger(value) ~= nil end

--- Whether a value has a type; an empty table without a mark may be an object and an array.
---@param value any
---@param name string
---@return boolean
function json_values.has_type(value, name)
  if type(value) == "table" and next(value) == nil and not connect.is_array(value) then
    return name == "object" or name == "array"
  end
  if name == "integer" then return is_integer(value) end
  return json_values.kind_of(value) == name
end

--- Whether two values are equal; what is nested too deep is not.
---@param a any
---@param b any
---@param depth? integer
---@return boolean
function json_values.is_same(a, b, depth)
  depth = depth or 1
  if a == b then return true end
  if depth > DEPTH_MAX or type(a) ~= "table" or type(b) ~= "table" then return false end
  if is_list(a) ~= is_list(b) and (next(a) ~= nil or next(b) ~= nil) then return false end
  for key, value in pairs(a) do
    if not json_values.is_same(value, b[key], depth + 1) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

--- How many entries a table has.
---@param value table
---@return integer
function json_values.count_of(value)
  local count = 0
  for _ in pairs(value) do count = count + 1 end
  return count
end

--- The keys of a table, in order.
---@param value table
---@return any[]
function json_values.names_in_order(value)
  local names = {}
  for name in pairs(value) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  return names
end

--- Holds a value against a subschema, within the limits of the whole look.
---@param node demilune.policy.Node
---@param value any
---@param state table
---@param path string  of the value
---@return string? at        where it does not fit
---@return string? expected
function json_values.apply(node, value, state, path)
  state.steps = state.steps + 1
  if state.depth >= DEPTH_MAX or state.steps > STEPS_MAX then
    state.is_spent = true
    return path, "smaller"
  end
  state.depth = state.depth + 1
  local at, expected = node(value, state, path)
  state.depth = state.depth - 1
  return at, expected
end

--- Whether a text matches; what a limit leaves undecided makes the whole look fail, since `not` would turn a no into a yes.
---@param regex table
---@param text string
---@param state table
---@return boolean?
function json_values.matches(regex, text, state)
  local hit = regex:matches(text)
  if hit == nil then state.is_spent = true end
  return hit
end

--- How many characters a text has; bytes where it is no UTF-8.
---@param text string
---@return integer
function json_values.characters(text) return utf8.len(text) or #text end

--- What one look at a value counts.
---@return table
function json_values.state() return { depth = 0, steps = 0, is_spent = false } end

--- Counts a step that is no subschema; whether there are any left.
---@param state table
---@return boolean
function json_values.may_go_on(state)
  state.steps = state.steps + 1
  if state.steps > STEPS_MAX then state.is_spent = true end
  return not state.is_spent
end

return json_values
