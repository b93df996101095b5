--- json_schema/resources.lua - the names in a schema ($id, $anchor, $dynamicAnchor, JSON pointers), and what a
--- reference means.
--
-- A schema may hold others with names of their own (resources). Only places that the dialect takes for subschemas
-- count: an `$id` within `enum` or an unknown keyword names nothing.
local dialects = require "demilune.json_schema.dialects"
local uri = require "demilune.json_schema.uri"
local values = require "demilune.json_schema.values"

---@class demilune.json_schema.Resource
---@field name string     absolute, without fragment
---@field root any
---@field dialect demilune.json_schema.Dialect
---@field anchors table<string, table>
---@field dynamic table<string, table>  those of `$dynamicAnchor`
---@field nodes table     compiled schemas by their tables, see compiler.lua

---@class demilune.json_schema.Resources
---@field by_name table<string, demilune.json_schema.Resource>
---@field owner table<table, demilune.json_schema.Resource>  of each subschema
---@field list demilune.json_schema.Resource[]
---@field has_dynamic boolean
local Resources = {}
Resources.__index = Resources

local ANCHOR = "^[%a_][%w._-]*$"
--- draft-07: also a colon, since it is the whole fragment of an `$id`.
local OLD_ANCHOR = "^[%a_][%w._:-]*$"

local function add(self, name, root, dialect)
  local resource = { name = name, root = root, dialect = dialect, anchors = {}, dynamic = {}, nodes = {} }
  self.list[#self.list + 1], self.by_name[name] = resource, resource
  return resource
end

local function add_anchor(self, resource, name, schema, place, keyword, pattern)
  if type(name) ~= "string" or not name:find(pattern or ANCHOR) then
    return self.note(place, keyword, "it takes a name of letters, digits, `_`, `-` and `.`; write one")
  end
  if resource.anchors[name] and resource.anchors[name] ~= schema then
    return self.note(place, keyword, "another part of the schema has this anchor too; give each its own")
  end
  resource.anchors[name] = schema
end

--- The resource of a schema with an `$id`; its own parent's without one.
local function resource_of(self, schema, parent, place)
  local id = schema["$id"]
  if id == nil or parent.dialect.ref_is_alone and schema["$ref"] ~= nil then return parent end
  if type(id) ~= "string" then return parent, self.note(place, "$id", "it takes a reference; write one in quotes") end
  local name, anchor = uri.resolve(parent.name, id)
  local own = parent
  if name ~= parent.name or parent.root ~= schema and not id:find "^#" then
    if self.by_name[name] and self.by_name[name].root ~= schema then
      return parent, self.note(place, "$id", "another part of the schema has this name too; give each its own")
    end
    own = add(self, name, schema, parent.dialect)
  end
  if anchor ~= "" then
    if not parent.dialect.ref_is_alone then return own, self.note(place, "$id", "it has a fragment; write $anchor") end
    add_anchor(self, own, anchor, schema, place, "$id", OLD_ANCHOR)
  end
  return own
end

--- The dialect of a resource: that of its `$schema`, where there is one.
local function read_dialect(self, resource, schema, place)
  if schema["$schema"] == nil then return end
  local dialect = dialects.of(schema["$schema"])
  if not dialect then
    return self.note(place, "$schema", "only drafts 2020-12 and 07 are held; write one of their URLs, or leave it out")
  end
  if resource.root ~= schema and dialect ~= resource.dialect then
    return self.note(place, "$schema", "it stands where no `$id` begins a schema of its own; leave it out")
  end
  resource.dialect = dialect
end

--- Looks over a schema and everything in it.
local function index(self, schema, parent, place, level)
  if type(schema) ~= "table" or values.is_list(schema) or self.owner[schema] then return end
  -- What is too deep is named when it is compiled.
  if level > self.levels_max then return end
  local resource = resource_of(self, schema, parent, place)
  self.owner[schema] = resource
  read_dialect(self, resource, schema, place)
  local keywords = resource.dialect.keywords
  local anchor = keywords["$anchor"] and schema["$anchor"]
  local dynamic = keywords["$dynamicAnchor"] and schema["$dynamicAnchor"]
  if anchor ~= nil then add_anchor(self, resource, anchor, schema, place, "$anchor") end
  if dynamic ~= nil then
    add_anchor(self, resource, dynamic, schema, place, "$dynamicAnchor")
    if type(dynamic) == "string" then resource.dynamic[dynamic], self.has_dynamic = schema, true end
  end
  dialects.each_subschema(resource.dialect, schema, function(part, keyword, key)
    local below = { up = place, key = keyword }
    index(self, part, resource, key == nil and below or { up = below, key = key }, level + 1)
  end)
end

--- Where a JSON pointer leads from the root of a resource.
local function walk(self, resource, tokens)
  local at, owner = resource.root, resource
  for _, token in ipairs(tokens) do
    if type(at) ~= "table" then return nil end
    local place = values.is_list(at) and token:find "^%d+$" and math.tointeger(tonumber(token))
    at = at[place and place + 1 or token]
    owner = type(at) == "table" and self.owner[at] or owner
  end
  return at, owner
end

--- What a reference in a resource means.
---@param reference string
---@param from demilune.json_schema.Resource
---@return table|boolean|nil schema  nil where it leads to none
---@return demilune.json_schema.Resource|string owner  or why it does not
---@return string? dynamic  the name of the `$dynamicAnchor` that it names
function Resources:find(reference, from)
  local name, fragment = uri.resolve(from.name, reference)
  local resource = self.by_name[name]
  if not resource then
    return nil, "it leads out of the schema, and nothing is fetched; put the definition into `$defs`"
  end
  local tokens = uri.pointer(fragment)
  if tokens then
    local schema, owner = walk(self, resource, tokens)
    local is_schema = type(schema) == "boolean" or type(schema) == "table" and not values.is_list(schema)
    if not is_schema then return nil, "there is no such place in the schema; add the definition" end
    return schema, owner
  end
  local schema = resource.anchors[fragment]
  if not schema then return nil, "there is no such anchor in the schema; add it, or write a JSON pointer" end
  return schema, resource, resource.dynamic[fragment] == schema and fragment or nil
end

local resources = {}

--- Looks over a schema.
---@param schema table|boolean
---@param dialect demilune.json_schema.Dialect  where the schema says nothing
---@param levels_max integer
---@param note fun(place: table?, keyword: string, text: string)  takes faults
---@return demilune.json_schema.Resources
function resources.of(schema, dialect, levels_max, note)
  local self = setmetatable({
    by_name = {}, owner = {}, list = {}, has_dynamic = false, levels_max = levels_max, note = note,
  }, Resources)
  local root = add(self, "", schema, dialect)
  if type(schema) == "table" and dialects.of(schema["$schema"]) then root.dialect = dialects.of(schema["$schema"]) end
  self.root = root
  local id = type(schema) == "table" and schema["$id"]
  if type(id) == "string" and not (root.dialect.ref_is_alone and schema["$ref"] ~= nil) then
    root.name = uri.resolve("", id)
    self.by_name[root.name] = root
  end
  index(self, schema, root, nil, 1)
  return self
end

return resources
