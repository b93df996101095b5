--- json_schema/references.lua - $ref and $dynamicRef: one schema held against a value in place of another.
local values = require "demilune.json_schema.values"

local KEYWORDS = {}

--- Follows a reference to a node, within the limits.
local function follow(node, value, state, seen)
  local depth = state.depth + 1
  if depth > values.DEPTH_MAX then error(values.TOO_DEEP, 0) end
  values.charge(state, node.weight)
  state.depth = depth
  local fault = node.fn(value, state, seen)
  state.depth = depth - 1
  return fault
end

local function found(compiler, reference, place, node)
  if type(reference) ~= "string" then return compiler:fault(place, "it takes a reference; write one in quotes") end
  local schema, owner, dynamic = compiler.resources:find(reference, node.resource)
  if schema == nil then return compiler:fault(place, owner) end
  return schema, owner, dynamic
end

--- Follows into another resource, for `$dynamicRef` behind it.
local function follow_into(target, value, state, seen)
  local entered = state.entered + 1
  state.scope[entered], state.entered = target.resource, entered
  local fault = follow(target, value, state, seen)
  state.entered = entered - 1
  return fault
end

KEYWORDS["$ref"] = function(compiler, reference, place, _, node)
  local schema, owner = found(compiler, reference, place, node)
  if schema == nil then return nil end
  local target
  compiler:later(schema, owner, place, function(made)
    target = made
    node.within[#node.within + 1] = { node = made, reference = place }
  end)
  local step = compiler.resources.has_dynamic and follow_into or follow
  return function(value, state, seen) return step(target, value, state, seen) end
end

--- The nodes of all schemas with a `$dynamicAnchor` of that name, by their resources; one table for all that ask.
local function dynamic_nodes(compiler, name, place)
  local nodes = compiler.dynamic[name]
  if nodes then return nodes end
  nodes = {}
  compiler.dynamic[name] = nodes
  for _, resource in ipairs(compiler.resources.list) do
    local schema = resource.dynamic[name]
    if schema then compiler:later(schema, resource, place, function(made) nodes[resource] = made end) end
  end
  return nodes
end

--- The outermost resource that was entered and has the anchor decides (core, section 8.2.3.2).
KEYWORDS["$dynamicRef"] = function(compiler, reference, place, schema, node)
  local anchored, _, name = found(compiler, reference, place, node)
  if anchored == nil then return nil end
  if not name then return KEYWORDS["$ref"](compiler, reference, place, schema, node) end
  local target = KEYWORDS["$ref"](compiler, reference, place, schema, node)
  local nodes = dynamic_nodes(compiler, name, place)
  return function(value, state, seen)
    for i = 1, state.entered do
      local outer = nodes[state.scope[i]]
      if outer then return follow_into(outer, value, state, seen) end
    end
    return target(value, state, seen)
  end
end

---@type { KEYWORDS: table<string, demilune.json_schema.Maker> }
return { KEYWORDS = KEYWORDS }
