--- arguments.lua - rules about arguments held against the tools that they match: which tool has the argument, and whether it
-- can be what the rule says.
--
-- A rule may match tools that lack an argument, as `limit.cpu` on @create does; it is wrong only where none has it.
local nearest = require "demilune.nearest"
local schema = require "demilune.schema"

local arguments = {}

local NUMBERS = { integer = true, number = true }

--- Names as "a, b or c".
---@param names string[]
---@return string
function arguments.any_of(names)
  if #names < 2 then return names[1] or "" end
  return table.concat(names, ", ", 1, #names - 1) .. " or " .. names[#names]
end

local function names_of(tools)
  local names = {}
  for i, tool in ipairs(tools) do names[i] = tool.name end
  return names
end

local function known_arguments(tools)
  local seen, names = {}, {}
  for _, tool in ipairs(tools) do
    for name in pairs(tool.input.properties or {}) do
      if not seen[name] then names[#names + 1] = name end
      seen[name] = true
    end
  end
  table.sort(names)
  return names
end

--- The way out of an argument that no tool of the rule has.
local function elsewhere(build, name, tools)
  local near = nearest.of(name, known_arguments(tools))
  if near then return ("did you mean `%s`?"):format(near) end
  local others = {}
  for _, tool in ipairs(build.env.tools) do
    if tool.input.properties and tool.input.properties[name] then others[#others + 1] = tool.name end
  end
  if #others > 0 then return ("%s has it; match that, or leave it out"):format(arguments.any_of(others)) end
  local known = known_arguments(tools)
  if #known == 0 then return "it takes none; leave it out" end
  return "leave it out, or write one of " .. table.concat(known, ", ")
end

--- The tools of a rule that have an argument. Notes a fault where none has it.
---@param build demilune.policy.Build
---@param rule table  of the build: `tools`
---@param name string
---@param path (string|integer)[]
---@return table[] tools
function arguments.having(build, rule, name, path)
  local found = {}
  for _, tool in ipairs(rule.tools) do
    if tool.input.properties and tool.input.properties[name] then found[#found + 1] = tool end
  end
  if #found == 0 and #rule.tools > 0 then
    build:fault(path, ("`%s` is no argument of %s; %s"):format(name, arguments.any_of(names_of(rule.tools)),
      elsewhere(build, name, rule.tools)))
  end
  return found
end

local function types_of(property)
  if type(property.type) == "table" then
    local set = {}
    for _, name in ipairs(property.type) do set[name] = true end
    return set
  end
  if property.type then return { [property.type] = true } end
  return property.enum and { [type(property.enum[1])] = true } or {}
end

--- Whether an argument may be a number.
---@param property table
---@return boolean
function arguments.is_number(property)
  local types = types_of(property)
  return next(types) == nil or types.integer == true or types.number == true
end

--- Whether an argument may be a text.
---@param property table
---@return boolean
function arguments.is_text(property)
  local types = types_of(property)
  return next(types) == nil or types.string == true
end

--- What is wrong with a value for an argument, and the value as the tool takes it.
---@param input table  schema of the tool's arguments
---@param name string
---@param value any
---@return string? expected
---@return any value
function arguments.value_fault(input, name, value)
  local ok, out = pcall(schema.argument, input, name, value)
  if ok then return nil, out end
  return type(out) == "table" and out.expected or "another value", value
end

local function is_shown(value)
  return type(value) == "number" or type(value) == "boolean"
end

--- Notes a fault where a tool does not take a value. Returns the value as it does.
---@param build demilune.policy.Build
---@param tool table
---@param name string
---@param value any
---@param path (string|integer)[]
---@return any
function arguments.check_value(build, tool, name, value, path)
  local expected, taken = arguments.value_fault(tool.input, name, value)
  if expected then
    local quoted = NUMBERS[tool.input.properties[name].type] and type(value) == "string" and tonumber(value)
    build:fault(path, ("%s takes as `%s` only: %s; %s"):format(tool.name, name, expected,
      quoted and "take away the quotes" or is_shown(value) and ("write that in place of %s"):format(value) or "write that"))
  end
  return taken
end

return arguments
