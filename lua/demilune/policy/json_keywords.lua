--- json_keywords.lua - the keywords of JSON Schema 2020-12's validation vocabulary, one function each.
--
-- It takes the compiler, the keyword's value, the path of it and the whole schema, and returns a node: a function that says
-- where a value does not fit, and what would. What is wrong with the keyword itself it notes as a fault.
local json_values = require "demilune.policy.json_values"
local nearest = require "demilune.nearest"

local apply, characters, count_of, has_type = json_values.apply, json_values.characters, json_values.count_of, json_values.has_type
local is_same, kind_of, matches, names_in_order = json_values.is_same, json_values.kind_of, json_values.matches,
  json_values.names_in_order

local json_keywords = {}

local KEYWORDS = {}

local function under(path, key)
  local out = table.move(path, 1, #path, 1, {})
  out[#out + 1] = key
  return out
end

--- What one keyword takes of numbers: a node that compares what `measure` says of a value.
local function bound(measure, is_within, words)
  return function(compiler, most, path)
    if not math.type(most) then return compiler:fault(path, "it takes a number; write one") end
    return function(value, _, at)
      local size = measure(value)
      if size ~= nil and not is_within(size, most) then return at, words:format(("%.14g"):format(most)) end
    end
  end
end

local function number_of(value) return math.type(value) and value or nil end
local function length_of(value) return type(value) == "string" and characters(value) or nil end
local function items_of(value) return kind_of(value) == "array" and #value or nil end
local function properties_of(value) return kind_of(value) == "object" and count_of(value) or nil end

local function at_most(size, most) return size <= most end
local function at_least(size, least) return size >= least end

KEYWORDS.maximum = bound(number_of, at_most, "at most %s")
KEYWORDS.minimum = bound(number_of, at_least, "at least %s")
KEYWORDS.exclusiveMaximum = bound(number_of, function(size, most) return size < most end, "less than %s")
KEYWORDS.exclusiveMinimum = bound(number_of, function(size, least) return size > least end, "more than %s")
KEYWORDS.maxLength = bound(length_of, at_most, "at most %s characters")
KEYWORDS.minLength = bound(length_of, at_least, "at least %s characters")
KEYWORDS.maxItems = bound(items_of, at_most, "at most %s entries")
KEYWORDS.minItems = bound(items_of, at_least, "at least %s entries")
KEYWORDS.maxProperties = bound(properties_of, at_most, "at most %s entries")
KEYWORDS.minProperties = bound(properties_of, at_least, "at least %s entries")

function KEYWORDS.multipleOf(compiler, factor, path)
  if not math.type(factor) or factor <= 0 then return compiler:fault(path, "it takes a number above 0; write one") end
  return function(value, _, at)
    if not math.type(value) then return nil end
    local is_whole = math.type(value) == "integer" and math.type(factor) == "integer" and value % factor == 0
      or math.type(value / factor) and math.tointeger(value / factor) ~= nil
    if not is_whole then return at, ("a multiple of %.14g"):format(factor) end
  end
end

local TYPES = { "string", "integer", "number", "boolean", "object", "array", "null" }
local IS_TYPE = {}
for _, name in ipairs(TYPES) do IS_TYPE[name] = true end

function KEYWORDS.type(compiler, names, path)
  if type(names) == "string" then names = { names } end
  if type(names) ~= "table" or #names == 0 then return compiler:fault(path, "it takes the name of a type; write one") end
  for _, name in ipairs(names) do
    if not IS_TYPE[name] then
      local near = type(name) == "string" and nearest.of(name, TYPES)
      return compiler:fault(path, near and ("there is no such type; did you mean %q?"):format(near)
        or "there is no such type; write one of " .. table.concat(TYPES, ", "))
    end
  end
  local words = table.concat(names, " or ")
  return function(value, _, at)
    for i = 1, #names do
      if has_type(value, names[i]) then return nil end
    end
    return at, words
  end
end

function KEYWORDS.enum(compiler, list, path)
  if type(list) ~= "table" or #list == 0 then return compiler:fault(path, "it takes a list of values; write one") end
  return function(value, _, at)
    for i = 1, #list do
      if is_same(value, list[i]) then return nil end
    end
    return at, "one of those that the rule lists"
  end
end

function KEYWORDS.const(_, wanted)
  return function(value, _, at)
    if not is_same(value, wanted) then return at, "the one value that the rule names" end
  end
end

function KEYWORDS.pattern(compiler, text, path)
  local regex = compiler:regex_of(text, path)
  return regex and function(value, state, at)
    if type(value) == "string" and not matches(regex, value, state) then return at, "a text that fits the rule's pattern" end
  end
end

function KEYWORDS.items(compiler, schema, path, whole)
  local node = compiler:node(schema, path)
  local first = type(whole.prefixItems) == "table" and #whole.prefixItems + 1 or 1
  return function(value, state, at)
    if kind_of(value) ~= "array" then return nil end
    for i = first, #value do
      local bad, expected = apply(node, value[i], state, at .. "/" .. i)
      if bad then return bad, expected end
    end
  end
end

function KEYWORDS.prefixItems(compiler, list, path)
  local nodes = compiler:nodes(list, path)
  return nodes and function(value, state, at)
    if kind_of(value) ~= "array" then return nil end
    for i = 1, math.min(#nodes, #value) do
      local bad, expected = apply(nodes[i], value[i], state, at .. "/" .. i)
      if bad then return bad, expected end
    end
  end
end

function KEYWORDS.contains(compiler, schema, path, whole)
  local node = compiler:node(schema, path)
  local least, most = whole.minContains or 1, whole.maxContains or math.huge
  if not math.type(least) or not math.type(most) then return nil end
  return function(value, state, at)
    if kind_of(value) ~= "array" then return nil end
    local count = 0
    for i = 1, #value do
      if not apply(node, value[i], state, at) then count = count + 1 end
    end
    if count < least or count > most then return at, "as many fitting entries as the rule says" end
  end
end

--- Read by `contains`.
local function count_beside_contains(compiler, count, path, whole)
  if not math.type(count) then return compiler:fault(path, "it takes a number; write one") end
  if whole.contains == nil then compiler:fault(path, "it stands beside `contains`; add that, or leave it out") end
end

KEYWORDS.minContains = count_beside_contains
KEYWORDS.maxContains = count_beside_contains

function KEYWORDS.uniqueItems(compiler, is_unique, path)
  if type(is_unique) ~= "boolean" then return compiler:fault(path, "it takes true; write that") end
  return is_unique and function(value, state, at)
    if kind_of(value) ~= "array" then return nil end
    for i = 2, #value do
      for k = 1, i - 1 do
        if not json_values.may_go_on(state) or is_same(value[i], value[k]) then return at, "no entry twice" end
      end
    end
  end or nil
end

function KEYWORDS.properties(compiler, map, path)
  local nodes = compiler:named(map, path)
  local names = nodes and names_in_order(nodes)
  return nodes and function(value, state, at)
    if kind_of(value) ~= "object" then return nil end
    for i = 1, #names do
      local part = value[names[i]]
      if part ~= nil then
        local bad, expected = apply(nodes[names[i]], part, state, at .. "/" .. names[i])
        if bad then return bad, expected end
      end
    end
  end
end

function KEYWORDS.patternProperties(compiler, map, path)
  local list = compiler:patterns(map, path)
  return function(value, state, at)
    if kind_of(value) ~= "object" then return nil end
    for _, name in ipairs(names_in_order(value)) do
      for _, entry in ipairs(list) do
        local bad, expected
        if matches(entry.regex, name, state) then bad, expected = apply(entry.node, value[name], state, at .. "/" .. name) end
        if bad then return bad, expected end
      end
    end
  end
end

function KEYWORDS.additionalProperties(compiler, schema, path, whole)
  local node = compiler:node(schema, path)
  local known = type(whole.properties) == "table" and whole.properties or {}
  local list = compiler:quietly_patterns(whole.patternProperties, path)
  local function is_additional(name, state)
    if known[name] ~= nil then return false end
    for _, entry in ipairs(list) do
      if matches(entry.regex, name, state) then return false end
    end
    return true
  end
  return function(value, state, at)
    if kind_of(value) ~= "object" then return nil end
    for _, name in ipairs(names_in_order(value)) do
      if is_additional(name, state) then
        local bad, expected = apply(node, value[name], state, at .. "/" .. name)
        if bad then return bad, expected end
      end
    end
  end
end

function KEYWORDS.propertyNames(compiler, schema, path)
  local node = compiler:node(schema, path)
  return function(value, state, at)
    if kind_of(value) ~= "object" then return nil end
    for _, name in ipairs(names_in_order(value)) do
      local bad, expected = apply(node, name, state, at)
      if bad then return at, expected and "names: " .. expected or "other names" end
    end
  end
end

local function is_list_of_names(value)
  if type(value) ~= "table" then return false end
  for key, name in pairs(value) do
    if math.type(key) ~= "integer" or type(name) ~= "string" then return false end
  end
  return true
end

function KEYWORDS.required(compiler, names, path)
  if not is_list_of_names(names) then return compiler:fault(path, "it takes a list of names; write one") end
  return function(value, _, at)
    if kind_of(value) ~= "object" then return nil end
    for i = 1, #names do
      if value[names[i]] == nil then return at .. "/" .. names[i], "given" end
    end
  end
end

function KEYWORDS.dependentRequired(compiler, map, path)
  if type(map) ~= "table" then return compiler:fault(path, "it takes lists of names by name; write them") end
  for name, names in pairs(map) do
    if not is_list_of_names(names) then return compiler:fault(under(path, name), "it takes a list of names; write one") end
  end
  return function(value, _, at)
    if kind_of(value) ~= "object" then return nil end
    for _, name in ipairs(names_in_order(map)) do
      for _, needed in ipairs(value[name] ~= nil and map[name] or {}) do
        if value[needed] == nil then return at .. "/" .. needed, "given beside " .. name end
      end
    end
  end
end

function KEYWORDS.dependentSchemas(compiler, map, path)
  local nodes = compiler:named(map, path)
  return nodes and function(value, state, at)
    if kind_of(value) ~= "object" then return nil end
    for _, name in ipairs(names_in_order(nodes)) do
      local bad, expected
      if value[name] ~= nil then bad, expected = apply(nodes[name], value, state, at) end
      if bad then return bad, expected end
    end
  end
end

function KEYWORDS.allOf(compiler, list, path)
  local nodes = compiler:nodes(list, path)
  return nodes and function(value, state, at)
    for i = 1, #nodes do
      local bad, expected = apply(nodes[i], value, state, at)
      if bad then return bad, expected end
    end
  end
end

local function fitting_count(nodes, value, state, at, enough)
  local count = 0
  for i = 1, #nodes do
    if not apply(nodes[i], value, state, at) then count = count + 1 end
    if count >= enough then return count end
  end
  return count
end

function KEYWORDS.anyOf(compiler, list, path)
  local nodes = compiler:nodes(list, path)
  return nodes and function(value, state, at)
    if fitting_count(nodes, value, state, at, 1) < 1 then return at, "one of the forms that the rule names" end
  end
end

function KEYWORDS.oneOf(compiler, list, path)
  local nodes = compiler:nodes(list, path)
  return nodes and function(value, state, at)
    if fitting_count(nodes, value, state, at, 2) ~= 1 then return at, "exactly one of the forms that the rule names" end
  end
end

KEYWORDS["not"] = function(compiler, schema, path)
  local node = compiler:node(schema, path)
  return function(value, state, at)
    if not apply(node, value, state, at) then return at, "another form" end
  end
end

KEYWORDS["if"] = function(compiler, schema, path, whole)
  local test = compiler:node(schema, path)
  local base = table.move(path, 1, #path - 1, 1, {})
  local yes = whole["then"] ~= nil and compiler:node(whole["then"], under(base, "then"))
  local no = whole["else"] ~= nil and compiler:node(whole["else"], under(base, "else"))
  if not yes and not no then return compiler:fault(path, "it stands beside `then` or `else`; add one, or leave it out") end
  return function(value, state, at)
    local chosen = no
    if not apply(test, value, state, at) then chosen = yes end
    if chosen then return apply(chosen, value, state, at) end
  end
end

local function branch_of_if(compiler, _, path, whole)
  if whole["if"] == nil then compiler:fault(path, "it stands beside `if`; add that, or leave it out") end
end

KEYWORDS["then"] = branch_of_if
KEYWORDS["else"] = branch_of_if

KEYWORDS["$defs"] = function(compiler, map, path)
  if #path ~= 1 then return compiler:fault(path, "definitions stand in the outermost table; move them there") end
  compiler:named(map, path)
end

KEYWORDS["$ref"] = function(compiler, target, path)
  local name = type(target) == "string" and target:match "^#/%$defs/([^/~%%]+)$"
  if target ~= "#" and not name then return compiler:fault(path, 'only "#" and "#/$defs/NAME" are followed; write one of them') end
  if name and not (type(compiler.root["$defs"]) == "table" and compiler.root["$defs"][name] ~= nil) then
    return compiler:fault(path, "there is no such definition in $defs; add it")
  end
  local nodes, key = compiler.targets, name or "#"
  return function(value, state, at) return apply(nodes[key], value, state, at) end
end

KEYWORDS["$schema"] = function(compiler, url, path)
  if url ~= "https://json-schema.org/draft/2020-12/schema" then
    compiler:fault(path, "only draft 2020-12 is held; leave it out")
  end
end

local function passed_over() end

for _, name in ipairs { "title", "description", "$comment", "examples" } do KEYWORDS[name] = passed_over end

---@type table<string, fun(compiler: table, value: any, path: (string|integer)[], whole: table): demilune.policy.Node?>
json_keywords.BY_NAME = KEYWORDS

return json_keywords
