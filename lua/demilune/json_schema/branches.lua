--- json_schema/branches.lua - keywords that hold a value against several schemas: allOf, anyOf, oneOf, not, if.
local evaluated = require "demilune.json_schema.evaluated"

local KEYWORDS = {}

local function constant(keyword, schema, expected) return { keyword = keyword, schema = schema, expected = expected } end

--- Whether a value fits a node, whose fault nobody will read; what it evaluated counts when it fits.
local function fits(node, value, state, seen)
  local count, foreign = state.count, state.foreign
  local own = seen and evaluated.new()
  state.quiet = state.quiet + 1
  local fault = node.fn(value, state, own)
  state.quiet = state.quiet - 1
  state.count, state.foreign = count, foreign
  if not fault and own then evaluated.add(seen, own) end
  return not fault
end

function KEYWORDS.allOf(compiler, list, place, _, node)
  local nodes, weight = compiler:listed(list, place, node, true)
  return nodes and function(value, state, seen)
    for i = 1, #nodes do
      local fault = nodes[i].fn(value, state, seen)
      if fault then return fault end
    end
  end, weight
end

--- How many nodes a value fits, up to `enough`; all are asked where somebody wants to know what they evaluated.
local function fitting_count(nodes, value, state, seen, enough)
  local count = 0
  for i = 1, #nodes do
    if fits(nodes[i], value, state, seen) then count = count + 1 end
    if count >= enough and not seen then return count end
  end
  return count
end

function KEYWORDS.anyOf(compiler, list, place, schema, node)
  local nodes, weight = compiler:listed(list, place, node, true)
  local fault = constant("anyOf", schema, "one of the forms that the schema names")
  return nodes and function(value, state, seen)
    if fitting_count(nodes, value, state, seen, 1) < 1 then return fault end
  end, weight
end

function KEYWORDS.oneOf(compiler, list, place, schema, node)
  local nodes, weight = compiler:listed(list, place, node, true)
  local fault = constant("oneOf", schema, "exactly one of the forms that the schema names")
  return nodes and function(value, state, seen)
    if fitting_count(nodes, value, state, seen, 2) ~= 1 then return fault end
  end, weight
end

KEYWORDS["not"] = function(compiler, schema, place, whole, node)
  local below = compiler:within(schema, place, node)
  local fault = constant("not", whole, "another form")
  return function(value, state)
    if fits(below, value, state) then return fault end
  end, below.weight
end

--- The node of a keyword beside `if`, and its weight.
local function branch(compiler, whole, keyword, place, node)
  if whole[keyword] == nil then return nil, 0 end
  local below = compiler:within(whole[keyword], compiler.under(place.up, keyword), node)
  return below, below.weight
end

KEYWORDS["if"] = function(compiler, schema, place, whole, node)
  local test = compiler:within(schema, place, node)
  local yes, yes_weight = branch(compiler, whole, "then", place, node)
  local no, no_weight = branch(compiler, whole, "else", place, node)
  if not yes and not no and compiler.options.is_strict then
    return compiler:fault(place, "it stands beside `then` or `else`; add one, or leave it out")
  end
  return function(value, state, seen)
    local chosen = no
    if fits(test, value, state, seen) then chosen = yes end
    return chosen and chosen.fn(value, state, seen)
  end, test.weight + yes_weight + no_weight
end

--- Compiled by `if`; without it they say nothing (core, section 10.2.2), but have to be schemas.
local function beside_if(compiler, schema, place, whole, node)
  if whole["if"] ~= nil then return nil end
  if compiler.options.is_strict then return compiler:fault(place, "it stands beside `if`; add that, or leave it out") end
  compiler:node(schema, place, node.resource)
end

KEYWORDS["then"] = beside_if
KEYWORDS["else"] = beside_if

--- Definitions check nothing where they stand, but what is wrong in them is found.
local function definitions(compiler, map, place, _, node) compiler:named(map, place, node) end

KEYWORDS["$defs"] = definitions
KEYWORDS.definitions = definitions

--- Describes what a text holds, which is not looked into.
function KEYWORDS.contentSchema(compiler, schema, place, _, node) compiler:node(schema, place, node.resource) end

---@type { KEYWORDS: table<string, demilune.json_schema.Maker> }
return { KEYWORDS = KEYWORDS }
