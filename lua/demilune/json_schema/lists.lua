--- json_schema/lists.lua - keywords about the entries of arrays. Entries are counted from 1 in paths, as Lua does.
local values = require "demilune.json_schema.values"

local KEYWORDS = {}

local charge, push = values.charge, values.push

local function constant(keyword, schema, expected) return { keyword = keyword, schema = schema, expected = expected } end

--- Holds all entries from one on against a node.
local function rest_part(compiler, first, node)
  local is_list, fn = compiler.is_list, node.fn
  return function(value, state, seen)
    if not is_list(value) then return nil end
    local count = #value
    if count >= first then charge(state, (count - first + 1) * (1 + node.weight)) end
    for i = first, count do
      local fault = fn(value[i], state)
      if fault then
        push(state, i)
        return fault
      end
    end
    if seen then seen.all_places = true end
  end
end

--- Holds the first entries each against a node of its own.
local function prefix_part(compiler, list, place, node)
  local nodes, weight = compiler:listed(list, place, node)
  local is_list, most = compiler.is_list, #list
  return nodes and function(value, state, seen)
    if not is_list(value) then return nil end
    local count = math.min(most, #value)
    for i = 1, count do
      local fault = nodes[i].fn(value[i], state)
      if fault then
        push(state, i)
        return fault
      end
    end
    if seen then seen.upto = math.max(seen.upto, count) end
  end, weight
end

function KEYWORDS.prefixItems(compiler, list, place, _, node) return prefix_part(compiler, list, place, node) end

--- draft-07 has the prefix here, as a list.
function KEYWORDS.items(compiler, schema, place, whole, node)
  local is_old = node.resource.dialect.ref_is_alone
  if is_old and values.is_list(schema) then
    if #schema == 0 then return nil end
    return prefix_part(compiler, schema, place, node)
  end
  if values.is_list(schema) then return compiler:fault(place, "it takes one schema; write a list in prefixItems") end
  local prefix = not is_old and type(whole.prefixItems) == "table" and #whole.prefixItems or 0
  return rest_part(compiler, prefix + 1, compiler:node(schema, place, node.resource))
end

function KEYWORDS.additionalItems(compiler, schema, place, whole, node)
  local below = compiler:node(schema, place, node.resource)
  if not values.is_list(whole.items) then
    local is_slip = compiler.options.is_strict
    if is_slip then compiler:fault(place, "it stands beside a list in `items`; write `items` alone") end
    return nil
  end
  return rest_part(compiler, #whole.items + 1, below)
end

--- The bound that stands beside `contains`; draft-07 has none.
local function bound_of(whole, keyword, node, otherwise)
  local number = whole[keyword]
  if number == nil or node.resource.dialect.ref_is_alone then return otherwise end
  return values.is_whole(number) and number >= 0 and number or otherwise
end

function KEYWORDS.contains(compiler, schema, place, whole, node)
  local below = compiler:node(schema, place, node.resource)
  local least, most = bound_of(whole, "minContains", node, 1), bound_of(whole, "maxContains", node, math.huge)
  local is_list, fault = compiler.is_list, constant("contains", whole, "as many fitting entries as the schema says")
  return function(value, state, seen)
    if not is_list(value) then return nil end
    local count, before, foreign = 0, state.count, state.foreign
    charge(state, #value * (1 + below.weight))
    state.quiet = state.quiet + 1
    for i = 1, #value do
      if not below.fn(value[i], state) then
        count = count + 1
        if seen then seen.places[i] = true end
      end
      state.count, state.foreign = before, foreign
    end
    state.quiet = state.quiet - 1
    if count < least or count > most then return fault end
  end
end

--- Read by `contains`.
local function beside_contains(compiler, number, place, whole)
  if not (values.is_whole(number) and number >= 0) then
    return compiler:fault(place, "it takes a number of at least 0 without a fraction; write one")
  end
  if compiler.options.is_strict and whole.contains == nil then
    compiler:fault(place, "it stands beside `contains`; add that, or leave it out")
  end
end

KEYWORDS.minContains = beside_contains
KEYWORDS.maxContains = beside_contains

function KEYWORDS.unevaluatedItems(compiler, schema, place, _, node)
  local below = compiler:node(schema, place, node.resource)
  local is_list = compiler.is_list
  return function(value, state, seen)
    if not is_list(value) then return nil end
    local count = seen.all_places and 0 or #value
    charge(state, math.max(0, count - seen.upto) * (1 + below.weight))
    for i = seen.upto + 1, count do
      local fault = not seen.places[i] and below.fn(value[i], state)
      if fault then
        push(state, i)
        return fault
      end
    end
    seen.all_places = true
  end
end

function KEYWORDS.uniqueItems(compiler, is_unique, place, schema)
  if type(is_unique) ~= "boolean" then return compiler:fault(place, "it takes true or false; write one") end
  local is_list, fault = compiler.is_list, constant("uniqueItems", schema, "no entry twice")
  return is_unique and function(value, state)
    if not is_list(value) then return nil end
    local found, tables = {}, {}
    charge(state, #value)
    for i = 1, #value do
      local key, among = value[i], found
      if type(key) == "table" then key, among = values.key(key, state), tables end
      if among[key] then return fault end
      among[key] = true
    end
  end or nil
end

---@type { KEYWORDS: table<string, demilune.json_schema.Maker> }
return { KEYWORDS = KEYWORDS }
