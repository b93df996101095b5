--- json_schema.lua - the `args` of a rule: JSON Schema 2020-12's validation vocabulary, compiled to functions.
--
-- A keyword that would be ignored (`format`, `default`, a misspelt one) is a fault, since its writer thinks that it holds.
-- Only what annotates and promises nothing (title, description, $comment, examples) is passed over. A value that is nested
-- deeper than references may go does not fit.
local KEYWORDS = require("demilune.policy.json_keywords").BY_NAME
local json_values = require "demilune.policy.json_values"
local nearest = require "demilune.nearest"

local json_schema = {}

--- Levels and subschemas of one schema.
local DEPTH_MAX = 64
local NODES_MAX = 2000

--- Keywords that people expect something of.
local REFUSED = {
  default = "it fills in nothing; write `set` in the rule",
  format = "it is not held; write `pattern`",
  definitions = "write $defs",
  dependencies = "write dependentRequired or dependentSchemas",
  additionalItems = "write items beside prefixItems",
}

local Compiler = {}
Compiler.__index = Compiler

function Compiler:fault(path, text) self.faults[#self.faults + 1] = { path = path, text = text } end

local function under(path, key)
  local out = table.move(path, 1, #path, 1, {})
  out[#out + 1] = key
  return out
end

function Compiler:regex_of(text, path)
  if type(text) ~= "string" then return self:fault(path, "it takes a regular expression; write one in quotes") end
  local regex, why = self.regex(text)
  if not regex then return self:fault(path, ("the regular expression is none: %s; mend it"):format(why or "?")) end
  return regex
end

function Compiler:nodes(list, path)
  if type(list) ~= "table" or #list == 0 then return self:fault(path, "it takes a list of schemas; write one") end
  local nodes = {}
  for i, schema in ipairs(list) do nodes[i] = self:node(schema, under(path, i)) end
  return nodes
end

function Compiler:named(map, path)
  if type(map) ~= "table" then return self:fault(path, "it takes schemas by name; write them") end
  local nodes = {}
  for _, name in ipairs(json_values.names_in_order(map)) do
    if type(name) ~= "string" then return self:fault(path, "it takes schemas by name; write name = { … }") end
    nodes[name] = self:node(map[name], under(path, name))
    if #path == 1 and path[1] == "$defs" then self.targets[name] = nodes[name] end
  end
  return nodes
end

--- Regular expressions and their subschemas, in order.
function Compiler:patterns(map, path)
  local nodes, list = self:named(map, path), {}
  for _, text in ipairs(nodes and json_values.names_in_order(nodes) or {}) do
    local regex = self:regex_of(text, under(path, text))
    if regex then list[#list + 1] = { regex = regex, node = nodes[text] } end
  end
  return list
end

--- The same for who only wants to know which names they are about: `patternProperties` itself notes what is wrong.
function Compiler:quietly_patterns(map, path)
  local quiet = setmetatable({ faults = {}, regex = self.regex, root = self.root, targets = {}, count = 0 }, Compiler)
  return type(map) == "table" and quiet:patterns(map, path) or {}
end

local function fits_all() end
local function fits_none(_, _, path) return path, "left out" end

local function known_keywords()
  local names = {}
  for name in pairs(KEYWORDS) do names[#names + 1] = name end
  return names
end

function Compiler:unknown(keyword, path)
  local why = REFUSED[keyword]
  local near = not why and nearest.of(tostring(keyword), known_keywords())
  self:fault(under(path, keyword), ("`%s` of a JSON Schema %s"):format(tostring(keyword),
    why and "is refused: " .. why or near and ("is not known; did you mean `%s`?"):format(near)
    or "is not held here; leave it out"))
end

--- The node of a schema; what is wrong is noted, and then it fits nothing.
function Compiler:node(schema, path)
  self.count = self.count + 1
  if self.count > NODES_MAX or #path > DEPTH_MAX then
    self:fault(path, "the schema is too large or too deep; make it smaller")
    return fits_none
  end
  if schema == true then return fits_all end
  if schema == false then return fits_none end
  if type(schema) ~= "table" or schema[1] ~= nil then
    self:fault(path, "a JSON Schema is a table of keywords; write { type = … }")
    return fits_none
  end
  local parts = {}
  for _, keyword in ipairs(json_values.names_in_order(schema)) do
    local make = KEYWORDS[keyword]
    if make then
      parts[#parts + 1] = make(self, schema[keyword], under(path, keyword), schema)
    else
      self:unknown(keyword, path)
    end
  end
  return function(value, state, at)
    for i = 1, #parts do
      local bad, expected = parts[i](value, state, at)
      if bad then return bad, expected end
    end
  end
end

--- Compiles a schema.
---@param schema table
---@param regex fun(pattern: string): table?, string?  as core.regex.new
---@return (fun(value: any): string?, string?)? validator  where a value does not fit ("/envs/A", "" for itself) and what would
---@return { path: (string|integer)[], text: string }[]? faults  paths within the schema
function json_schema.compile(schema, regex)
  local compiler = setmetatable({ faults = {}, regex = regex, root = schema, targets = {}, count = 0 }, Compiler)
  local root = compiler:node(schema, {})
  compiler.targets["#"] = root
  if #compiler.faults > 0 then return nil, compiler.faults end
  return function(value)
    local state = json_values.state()
    local at, expected = json_values.apply(root, value, state, "")
    if at then return at, expected end
    -- A limit inside of `not` or `if` must not turn into a fit.
    if state.is_spent then return "", "smaller" end
  end
end

return json_schema
