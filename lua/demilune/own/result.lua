--- own/result.lua - what the handler of an operator's tool returned, made into a result: plain, bounded, as its schema says.
--
-- A fault is raised as a plain message, so that call.lua makes `internal` of it and the log has the words.
local core = require "demilune.core"
local schema = require "demilune.schema"

local json = core.json
local result = {}

local LEVELS_MAX = 32
local VALUES_MAX = 100000
local BYTES_MAX = 16 * 1024 * 1024
local ARRAY = getmetatable(json.array())

local function wrong(path, format, ...)
  error(("%s: the result %s"):format(path, format:format(...)), 0)
end

local function has_type(node, name)
  for _, one in ipairs(type(node.type) == "table" and node.type or { node.type }) do
    if one == name then return true end
  end
  return false
end

--- What a schema says of a part of the value: true, false and nothing say little.
local function part_of(node) return type(node) == "table" and node or {} end

--- Whether a table is to be an array: marked, or a list; an empty one where its schema says so.
local function is_list(value, node)
  if getmetatable(value) == ARRAY then return true end
  if next(value) == nil then return has_type(node, "array") end
  return #value > 0
end

local plain

local function plain_list(state, value, node, level)
  local out, count = json.array {}, 0
  for key in pairs(value) do
    count = count + 1
    if math.type(key) ~= "integer" then wrong(state.path, "has a table with both a list and the key %s in it", tostring(key)) end
  end
  if count ~= #value then wrong(state.path, "has a list with holes; put call.json.null there") end
  for i, item in ipairs(value) do out[i] = plain(state, item, part_of(node.items), level + 1) end
  return out
end

local function plain_map(state, value, node, level)
  local out, properties = {}, node.properties or {}
  for key, item in pairs(value) do
    if type(key) ~= "string" then wrong(state.path, "has a key that is a %s", type(key)) end
    out[core.text.mend(key)] = plain(state, item, part_of(properties[key]), level + 1)
  end
  return out
end

local function count_bytes(state, text)
  state.bytes = state.bytes + #text
  if state.bytes > BYTES_MAX then wrong(state.path, "has more than 16 MiB of text; return less") end
  return core.text.mend(text)
end

--- A copy with nothing but what JSON has.
function plain(state, value, node, level)
  state.count = state.count + 1
  if state.count > VALUES_MAX then wrong(state.path, "has more than %d values; return less", VALUES_MAX) end
  if level > LEVELS_MAX then wrong(state.path, "is more than %d levels deep, or holds itself", LEVELS_MAX) end
  local kind = type(value)
  if kind == "string" then return count_bytes(state, value) end
  if kind == "number" then
    if value ~= value or value == math.huge or value == -math.huge then wrong(state.path, "has a number that JSON lacks") end
    return math.tointeger(value) or value
  end
  if kind == "boolean" or value == json.null then return value end
  if kind ~= "table" then wrong(state.path, "has a %s in it", kind) end
  return (is_list(value, node) and plain_list or plain_map)(state, value, node, level)
end

--- The result of a handler. A text alone becomes { text = … } where the tool has no schema for results. Raises a message
--- where it is no table, cannot be JSON or is not as the schema says.
---@param value any
---@param output table  schema, with `nulls`
---@param path string   the tool's file
---@return table
function result.of(value, output, path)
  if type(value) == "string" and not output.properties then value = { text = value } end
  if type(value) ~= "table" then wrong(path, "is a %s; return a table", type(value)) end
  local state = { path = path, count = 0, bytes = 0 }
  local out = plain_map(state, value, output, 1)
  for _, name in ipairs(output.nulls) do
    if out[name] == nil then out[name] = json.null end
  end
  local place = schema.fault(output, out)
  if place then wrong(path, "is not as `output` says, at %s", place == "" and "its top" or place) end
  return out
end

return result
