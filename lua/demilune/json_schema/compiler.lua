--- json_schema/compiler.lua - schemas made into functions, once; keywords are in assertions,
--- objects, lists, branches and references.
--
-- A part is what one keyword became: fn(value, state, seen) that returns nil, or a constant that says what would fit.
-- Where that is in the value is pushed to state.path on the way out, so that a value that fits costs no path. `seen`
-- gathers what of a value was evaluated, and is there only below a schema with unevaluatedItems or
-- unevaluatedProperties.
local assertions = require "demilune.json_schema.assertions"
local branches = require "demilune.json_schema.branches"
local dialects = require "demilune.json_schema.dialects"
local evaluated = require "demilune.json_schema.evaluated"
local lists = require "demilune.json_schema.lists"
local objects = require "demilune.json_schema.objects"
local patterns = require "demilune.json_schema.patterns"
local references = require "demilune.json_schema.references"
local resources = require "demilune.json_schema.resources"
local strict = require "demilune.json_schema.strict"
local values = require "demilune.json_schema.values"

---@alias demilune.json_schema.Part fun(value: any, state: demilune.json_schema.State,
---  seen?: demilune.json_schema.Seen): table?

--- Makes the part of a keyword, nil where it checks nothing or is wrong, and the weight of the subschemas in it.
---@alias demilune.json_schema.Maker fun(compiler: demilune.json_schema.Compiler, value: any, place: table, schema: table,
---  node: demilune.json_schema.Node): demilune.json_schema.Part?, integer?

--- A compiled schema. `fn` is set when all of it is compiled.
---@class demilune.json_schema.Node
---@field fn demilune.json_schema.Part
---@field is_leaf? boolean  it has neither subschemas nor references, so that looking twice costs no more than twice
---@field weight integer  keywords that one look runs through, loops and references aside
---@field within { node: demilune.json_schema.Node, reference: table? }[]  nodes that look at the same value
---@field resource demilune.json_schema.Resource

---@class demilune.json_schema.Compiler
---@field faults demilune.json_schema.Fault[]
---@field options demilune.json_schema.Options
---@field resources demilune.json_schema.Resources
---@field is_list fun(value: any): boolean
---@field tests table<string, fun(value: any): boolean>  of types that the options decide
---@field nodes demilune.json_schema.Node[]  as they were begun
---@field dynamic table<string, table>  see references.lua
---@field patterned table<table, table>  see objects.lua
---@field finally function[]  what is left to do when every schema is compiled
local Compiler = {}
Compiler.__index = Compiler

--- Levels, subschemas and faults of one schema; entries of its lists of names and values.
local LEVELS_MAX = 64
local NODES_MAX = 2000
local FAULTS_MAX = 100
local LIST_MAX = 10000
--- How each keyword becomes a part.
---@type table<string, demilune.json_schema.Maker>
local KEYWORDS = {}
for _, family in ipairs { assertions, branches, lists, objects, references } do
  for name, make in pairs(family.KEYWORDS) do KEYWORDS[name] = make end
end

local RANK = {}
for rank, name in ipairs(dialects.ORDER) do RANK[name] = rank end

--- Keywords whose parts look at one value alone, and cheaply.
local LEAF = {}
for _, name in ipairs { "type", "minimum", "maximum", "minLength", "maxLength", "bytes", "is_filled", "format" } do
  LEAF[name] = true
end

local function path_of(place)
  local path = {}
  while place do
    table.insert(path, 1, place.key)
    place = place.up
  end
  return path
end

--- Notes what is wrong with the schema.
---@param place table?  of the keyword or entry
---@param text string   "what is so; the way out"
function Compiler:fault(place, text)
  if #self.faults >= FAULTS_MAX then return end
  local path, names = path_of(place), {}
  for i, key in ipairs(path) do names[i] = tostring(key) end
  self.faults[#self.faults + 1] = { path = path, text = text, order = table.concat(names, "\0") }
end

--- The place of an entry of what is at a place.
---@param place table
---@param key string|integer
---@return table
function Compiler.under(place, key) return { up = place, key = key } end

--- Whether a keyword's value is a list that is not too long; else a fault that says what it takes.
---@param list any
---@param place table
---@param what string  "a list of names"
---@param is_entry? fun(entry: any): boolean
---@return boolean
function Compiler:has_list(list, place, what, is_entry)
  local is_fine = type(list) == "table" and (values.is_list(list) or next(list) == nil) and #list <= LIST_MAX
  for i = 1, is_fine and is_entry and #list or 0 do is_fine = is_fine and is_entry(list[i]) end
  if not is_fine then self:fault(place, ("it takes %s, at most %d; write one"):format(what, LIST_MAX)) end
  return is_fine
end

--- A compiled regular expression; nil after a fault.
---@param text any
---@param place table
---@return demilune.core.regex.Regex?
function Compiler:regex(text, place)
  if type(text) ~= "string" then return self:fault(place, "it takes a regular expression; write one in quotes") end
  self.pattern_count = self.pattern_count + 1
  if self.pattern_count > patterns.COUNT_MAX then
    return self:fault(place, ("there are more than %d regular expressions; leave some out"):format(patterns.COUNT_MAX))
  end
  local regex, why = self.options.regex(patterns.translate(text))
  if not regex then return self:fault(place, ("the regular expression is none: %s; mend it"):format(why or "?")) end
  return regex
end

--- The node of a subschema that looks at the same value.
---@param schema any
---@param place table
---@param node demilune.json_schema.Node  its schema's
---@return demilune.json_schema.Node
function Compiler:within(schema, place, node)
  local below = self:node(schema, place, node.resource)
  node.within[#node.within + 1] = { node = below }
  return below
end

--- The nodes of a list or map of subschemas by their keys, and the weight of all. nil after a fault.
---@param map any
---@param place table
---@param node demilune.json_schema.Node  their schema's
---@param is_within? boolean  they look at the same value
---@return table<any, demilune.json_schema.Node>?
---@return integer weight
function Compiler:named(map, place, node, is_within)
  if type(map) ~= "table" or values.is_list(map) then
    return self:fault(place, "it takes schemas by name; write them"), 0
  end
  local nodes, weight = {}, 0
  for _, name in ipairs(values.names(map)) do
    if type(name) ~= "string" then return self:fault(place, "it takes schemas by name; write name = { … }"), 0 end
    local below = self.under(place, name)
    nodes[name] = is_within and self:within(map[name], below, node) or self:node(map[name], below, node.resource)
    weight = weight + nodes[name].weight
  end
  return nodes, weight
end

--- The same for a list.
---@param list any
---@param place table
---@param node demilune.json_schema.Node
---@param is_within? boolean
---@return demilune.json_schema.Node[]?
---@return integer weight
function Compiler:listed(list, place, node, is_within)
  if type(list) ~= "table" or #list == 0 then return self:fault(place, "it takes a list of schemas; write one"), 0 end
  local nodes, weight = {}, 0
  for i = 1, #list do
    local below = self.under(place, i)
    nodes[i] = is_within and self:within(list[i], below, node) or self:node(list[i], below, node.resource)
    weight = weight + nodes[i].weight
  end
  return nodes, weight
end

--- Asks for the node of what a reference leads to, which may not be compiled yet: the function gets it later.
---@param schema table|boolean
---@param resource demilune.json_schema.Resource
---@param place table  of the reference
---@param take fun(node: demilune.json_schema.Node)
function Compiler:later(schema, resource, place, take)
  self.waiting[#self.waiting + 1] = { schema = schema, resource = resource, place = place, take = take }
end

local NONE = { keyword = "false", expected = "left out" }
local function fits_all() end
local function fits_none() return NONE end

local function node_of(fn, resource) return { fn = fn, resource = resource, weight = 1, within = {} } end

--- The part of one keyword, and the weight of what is in it; nothing for what checks nothing.
local function part_of(self, keyword, schema, place, node)
  local dialect, below = node.resource.dialect, self.under(place, keyword)
  local value, extension = schema[keyword], self.options.extensions[keyword]
  if extension then return extension(self, value, below, schema, node) end
  if not dialect.keywords[keyword] then return strict.unknown(self, keyword, place, dialect) end
  local why = self.options.refuse and self.options.refuse(keyword, value, path_of(below))
  if why then return self:fault(below, ("`%s` of a JSON Schema is refused: %s"):format(keyword, why)) end
  local make = KEYWORDS[keyword]
  if make then return make(self, value, below, schema, node) end
end

--- One function of the parts in their order.
local function together(parts)
  local a, b, c, count = parts[1], parts[2], parts[3], #parts
  if count == 0 then return fits_all end
  if count == 1 then return a end
  if count == 2 then
    return function(value, state, seen) return a(value, state, seen) or b(value, state, seen) end
  end
  if count == 3 then
    return function(value, state, seen)
      return a(value, state, seen) or b(value, state, seen) or c(value, state, seen)
    end
  end
  return function(value, state, seen)
    for i = 1, count do
      local fault = parts[i](value, state, seen)
      if fault then return fault end
    end
  end
end

--- The whole of it where some keyword asks what the others evaluated: they share a table of its own.
local function gathering(fn)
  return function(value, state, outer)
    local seen = evaluated.new()
    local fault = fn(value, state, seen)
    if not fault and outer then evaluated.add(outer, seen) end
    return fault
  end
end

--- Notes that a resource is entered, for `$dynamicRef`.
local function entering(resource, fn)
  return function(value, state, seen)
    local entered = state.entered + 1
    state.scope[entered], state.entered = resource, entered
    local fault = fn(value, state, seen)
    state.entered = entered - 1
    return fault
  end
end

local function by_rank(a, b) return a.rank < b.rank end

local function fill(self, node, schema, place)
  local found, weight, dialect, is_leaf = {}, 1, node.resource.dialect, true
  local own = schema
  if dialect.ref_is_alone and schema["$ref"] ~= nil then
    strict.beside_ref(self, schema, place, dialect)
    own = { ["$ref"] = schema["$ref"], definitions = schema.definitions }
  end
  for _, keyword in ipairs(values.names(own)) do
    local part, more = part_of(self, keyword, own, place, node)
    if part then
      found[#found + 1] = { part = part, rank = RANK[keyword] }
      weight = weight + 1 + (more or 0)
      is_leaf = is_leaf and LEAF[keyword]
    end
  end
  table.sort(found, by_rank)
  local parts = {}
  for i, one in ipairs(found) do parts[i] = one.part end
  local fn = together(parts)
  if own.unevaluatedProperties ~= nil or own.unevaluatedItems ~= nil then fn = gathering(fn) end
  if self.resources.has_dynamic and node.resource.root == schema then fn = entering(node.resource, fn) end
  -- A weight that no check could pay is as good as any greater one.
  node.fn, node.is_leaf, node.weight = fn, is_leaf, math.min(weight, values.STEPS_MAX + 1)
end

--- The node of a schema. What is wrong is noted, and then it fits nothing.
---@param schema any
---@param place table?
---@param resource demilune.json_schema.Resource  that it stands in
---@return demilune.json_schema.Node
function Compiler:node(schema, place, resource)
  if schema == true then return node_of(fits_all, resource) end
  if schema == false then return node_of(fits_none, resource) end
  if type(schema) ~= "table" or values.is_list(schema) then
    self:fault(place, "a JSON Schema is a table of keywords, true or false; write { type = … }")
    return node_of(fits_none, resource)
  end
  resource = self.resources.owner[schema] or resource
  local node = resource.nodes[schema]
  if node then
    if not node.fn then self:fault(place, "the schema holds itself; write a `$ref`") end
    return node.fn and node or node_of(fits_none, resource)
  end
  self.level = self.level + 1
  if #self.nodes >= NODES_MAX or self.level > LEVELS_MAX then
    if not self.is_too_large then self:fault(place, "the schema is too large or too deep; make it smaller") end
    self.is_too_large, self.level = true, self.level - 1
    return node_of(fits_none, resource)
  end
  node = node_of(nil, resource)
  resource.nodes[schema], self.nodes[#self.nodes + 1] = node, node
  fill(self, node, schema, place)
  self.level = self.level - 1
  return node
end

--- Compiles what references led to, and what that refers to.
local function finish(self)
  local at = 1
  while self.waiting[at] and not self.is_too_large do
    local one = self.waiting[at]
    one.take(self:node(one.schema, one.place, one.resource))
    at = at + 1
  end
  for _, make in ipairs(self.finally) do make() end
end

--- Notes references that come back to themselves without going into the value: a check of them would not end. Every
--- circle has a reference in it, since subschemas alone are a tree.
local function find_circles(self)
  local state = {}
  local function visit(node, reference)
    if state[node] == "done" then return end
    if state[node] == "open" then
      return self:fault(reference, "it leads back to itself without going into the value; take it out of the circle")
    end
    state[node] = "open"
    for _, one in ipairs(node.within) do visit(one.node, one.reference or reference) end
    state[node] = "done"
  end
  for _, node in ipairs(self.nodes) do visit(node) end
end

local compiler = {}

--- Compiles a schema.
---@param schema any
---@param options demilune.json_schema.Options  with every field
---@return demilune.json_schema.Node? root
---@return demilune.json_schema.Compiler self  with its faults
function compiler.run(schema, options)
  local self = setmetatable({
    faults = {}, options = options, waiting = {}, finally = {}, patterned = {}, dynamic = {}, nodes = {},
    pattern_count = 0, level = 0, is_list = options.is_of_lua and values.may_be_list or values.is_list,
  }, Compiler)
  self.tests = { array = self.is_list, integer = options.is_int64 and values.is_int64 or values.is_whole }
  self.resources = resources.of(schema, dialects.BY_NAME[options.dialect], LEVELS_MAX, function(place, keyword, text)
    self:fault(self.under(place, keyword), text)
  end)
  local root = self:node(schema, nil, self.resources.root)
  finish(self)
  if #self.faults == 0 then find_circles(self) end
  table.sort(self.faults, function(a, b) return a.order < b.order end)
  return #self.faults == 0 and root or nil, self
end

return compiler
