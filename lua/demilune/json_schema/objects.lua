--- json_schema/objects.lua - keywords about the entries of objects.
--
-- Of several entries that do not fit, the first by name is named, so that a fault is always the same; all are looked at
-- for that.
local values = require "demilune.json_schema.values"

local KEYWORDS = {}

local charge, matches, push = values.charge, values.matches, values.push

local function is_known() return true end

--- How the parts of a schema ask for an object: where its `type` has, which comes first, they need not.
local function map_test(schema) return schema.type == "object" and is_known or values.is_map end

local function constant(keyword, schema, expected) return { keyword = keyword, schema = schema, expected = expected } end

function KEYWORDS.properties(compiler, map, place, schema, node)
  local is_map = map_test(schema)
  local nodes, weight = compiler:named(map, place, node)
  if not nodes then return nil end
  local names, fns = values.names(nodes), {}
  for i, name in ipairs(names) do fns[i] = nodes[name].fn end
  return function(value, state, seen)
    if not is_map(value) then return nil end
    for i = 1, #names do
      local name = names[i]
      local part = value[name]
      if part ~= nil then
        local fault = fns[i](part, state)
        if fault then
          push(state, name)
          return fault
        end
        if seen then seen.names[name] = true end
      end
    end
  end, weight
end

--- Holds every entry for which `choose(name, state)` says a node against that, and finds the first by name that does
--- not fit.
local function each_entry(value, state, seen, choose)
  local worst, worst_fault, worst_path
  for key, part in next, value do
    local name = type(key) == "string" and key or tostring(key)
    local node = choose(name, state)
    if node and (not worst or name < worst) then
      charge(state, 1 + node.weight)
      local before, foreign = state.count, state.foreign
      local fault = node.fn(part, state)
      if fault and state.quiet > 0 then return fault end
      if fault then
        worst, worst_fault = name, fault
        worst_path = { table.unpack(state.path, before + 1, state.count) }
        state.count, state.foreign = before, foreign
      end
    end
    if node and seen then seen.names[name] = true end
  end
  if not worst then return nil end
  for _, key in ipairs(worst_path) do push(state, key) end
  push(state, worst, true)
  return worst_fault
end

--- Regular expressions with their nodes, in order; nil after a fault.
local function patterned(compiler, map, place, node)
  local nodes = compiler:named(map, place, node)
  if not nodes then return nil end
  local list = {}
  for _, text in ipairs(values.names(nodes)) do
    local regex = compiler:regex(text, compiler.under(place, text))
    if regex then list[#list + 1] = { regex = regex, node = nodes[text] } end
  end
  return list
end

function KEYWORDS.patternProperties(compiler, map, place, schema, node)
  local list = patterned(compiler, map, place, node)
  if not list then return nil end
  -- For `additionalProperties` beside it.
  compiler.patterned[schema] = list
  local is_map = map_test(schema)
  return function(value, state, seen)
    if not is_map(value) then return nil end
    for i = 1, #list do
      local one = list[i]
      local fault = each_entry(value, state, seen, function(name)
        return matches(one.regex, name, state) and one.node or nil
      end)
      if fault then return fault end
    end
  end
end

--- Whether one of the regular expressions matches a name.
local function has_match(list, name, state)
  for i = 1, #list do
    if matches(list[i].regex, name, state) then return true end
  end
  return false
end

--- `additionalProperties` without `patternProperties`; mostly all are known.
local function unknown_part(is_map, known, below)
  local function choose(name) return known[name] == nil and below or nil end
  return function(value, state, seen)
    if not is_map(value) then return nil end
    for name in next, value do
      if known[name] == nil then return each_entry(value, state, seen, choose) end
    end
  end
end

local function each(below) return function() return below end end

--- `additionalProperties` alone: every entry is held against it. One that holds no subschema may as well be asked
--- twice.
local function leaf_part(is_map, below)
  local fn, choose = below.fn, each(below)
  return function(value, state, seen)
    if not is_map(value) then return nil end
    local count = 0
    for _, part in next, value do
      if fn(part, state) then return each_entry(value, state, seen, choose) end
      count = count + 1
    end
    charge(state, count * below.weight)
    if seen then seen.all_names = true end
  end
end

local function additional_part(is_map, known, list, below)
  local function choose(name, state)
    if known[name] ~= nil or has_match(list, name, state) then return nil end
    return below
  end
  return function(value, state, seen)
    if is_map(value) then return each_entry(value, state, seen, choose) end
  end
end

function KEYWORDS.additionalProperties(compiler, schema, place, whole, node)
  local below = compiler:node(schema, place, node.resource)
  local known = type(whole.properties) == "table" and whole.properties or {}
  local is_map = map_test(whole)
  if whole.patternProperties == nil then
    if below.is_leaf and next(known) == nil then return leaf_part(is_map, below) end
    return unknown_part(is_map, known, below)
  end
  local part
  -- `patternProperties` is compiled after this one.
  compiler.finally[#compiler.finally + 1] = function()
    part = additional_part(is_map, known, compiler.patterned[whole] or {}, below)
  end
  return function(value, state, seen) return part(value, state, seen) end
end

function KEYWORDS.unevaluatedProperties(compiler, schema, place, whole, node)
  local is_map = map_test(whole)
  local below = compiler:node(schema, place, node.resource)
  return function(value, state, seen)
    if not is_map(value) then return nil end
    local fault
    if not seen.all_names then
      local names = seen.names
      fault = each_entry(value, state, nil, function(name) return not names[name] and below or nil end)
    end
    seen.all_names = true
    return fault
  end
end

function KEYWORDS.propertyNames(compiler, schema, place, whole, node)
  local below = compiler:node(schema, place, node.resource)
  local is_map = map_test(whole)
  local fault = constant("propertyNames", whole, "an object whose names the schema takes")
  return function(value, state)
    if not is_map(value) then return nil end
    for name in next, value do
      charge(state, 1 + below.weight)
      local before = state.count
      local bad = below.fn(type(name) == "string" and name or tostring(name), state)
      state.count = before
      if bad then return fault end
    end
  end
end

local function is_name(value) return type(value) == "string" end

--- The first name of a list that an object lacks; its fault is noted.
local function lacking(value, names, state, fault)
  for i = 1, #names do
    if value[names[i]] == nil then
      push(state, names[i])
      return fault
    end
  end
end

function KEYWORDS.required(compiler, names, place, schema)
  if not compiler:has_list(names, place, "a list of names", is_name) then return nil end
  local is_map, fault = map_test(schema), constant("required", schema, "given")
  return function(value, state)
    if is_map(value) then return lacking(value, names, state, fault) end
  end, #names
end

function KEYWORDS.dependentRequired(compiler, map, place, schema)
  if type(map) ~= "table" or values.is_list(map) then
    return compiler:fault(place, "it takes lists of names by name; write them")
  end
  local is_map, triggers, lists, faults, weight = map_test(schema), values.names(map), {}, {}, 0
  for i, name in ipairs(triggers) do
    if not compiler:has_list(map[name], compiler.under(place, name), "a list of names", is_name) then return nil end
    lists[i], faults[i] = map[name], constant("dependentRequired", schema, "given beside " .. tostring(name))
    weight = weight + #map[name]
  end
  return function(value, state)
    if not is_map(value) then return nil end
    for i = 1, #triggers do
      local fault = value[triggers[i]] ~= nil and lacking(value, lists[i], state, faults[i])
      if fault then return fault end
    end
  end, weight
end

function KEYWORDS.dependentSchemas(compiler, map, place, schema, node)
  local is_map = map_test(schema)
  local nodes, weight = compiler:named(map, place, node, true)
  if not nodes then return nil end
  local triggers = values.names(nodes)
  return function(value, state, seen)
    if not is_map(value) then return nil end
    for i = 1, #triggers do
      local fault = value[triggers[i]] ~= nil and nodes[triggers[i]].fn(value, state, seen)
      if fault then return fault end
    end
  end, weight
end

--- draft-07: lists of names and schemas in one map.
function KEYWORDS.dependencies(compiler, map, place, schema, node)
  if type(map) ~= "table" or values.is_list(map) then
    return compiler:fault(place, "it takes lists of names and schemas by name; write them")
  end
  local lists, schemas = {}, {}
  for name, one in pairs(map) do
    if values.is_list(one) then lists[name] = one else schemas[name] = one end
  end
  local names_part, names_weight = KEYWORDS.dependentRequired(compiler, lists, place, schema)
  local schemas_part, schemas_weight = KEYWORDS.dependentSchemas(compiler, schemas, place, schema, node)
  return names_part and schemas_part and function(value, state, seen)
    return names_part(value, state) or schemas_part(value, state, seen)
  end or nil, (names_weight or 0) + (schemas_weight or 0)
end

---@type { KEYWORDS: table<string, demilune.json_schema.Maker> }
return { KEYWORDS = KEYWORDS }
