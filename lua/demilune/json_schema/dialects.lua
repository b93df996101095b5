--- json_schema/dialects.lua - the two drafts that are held: which keywords each has, and where its subschemas are.
--
-- 2020-12: json-schema.org/draft/2020-12, core and validation; draft-07: draft-handrews-json-schema-01 and
-- -validation-01.
local values = require "demilune.json_schema.values"

local dialects = {}

---@class demilune.json_schema.Dialect
---@field name string
---@field keywords table<string, string>  each keyword's kind: see below
---@field ref_is_alone boolean  what stands beside a `$ref` is passed over

-- Kinds: "schema", "list" and "map" hold subschemas, "items" and "dependencies" are draft-07's mixtures; "value" holds
-- none; "core" is read when the schema is looked over; "words" annotates and checks nothing.
local COMMON = {
  ["$schema"] = "core", ["$id"] = "core", ["$ref"] = "value", ["$comment"] = "words",
  title = "words", description = "words", default = "words", examples = "words", format = "value",
  readOnly = "words", writeOnly = "words", contentEncoding = "words", contentMediaType = "words",
  type = "value", enum = "value", const = "value", multipleOf = "value", maximum = "value", minimum = "value",
  exclusiveMaximum = "value", exclusiveMinimum = "value", maxLength = "value", minLength = "value", pattern = "value",
  maxItems = "value", minItems = "value", uniqueItems = "value", maxProperties = "value", minProperties = "value",
  required = "value", properties = "map", patternProperties = "map", additionalProperties = "schema",
  propertyNames = "schema", contains = "schema", allOf = "list", anyOf = "list", oneOf = "list", ["not"] = "schema",
  ["if"] = "schema", ["then"] = "schema", ["else"] = "schema",
}

local NEW = {
  ["$defs"] = "map", ["$anchor"] = "core", ["$dynamicAnchor"] = "core", ["$dynamicRef"] = "value",
  ["$vocabulary"] = "words", deprecated = "words", contentSchema = "schema", items = "schema", prefixItems = "list",
  minContains = "value", maxContains = "value", dependentRequired = "value", dependentSchemas = "map",
  unevaluatedItems = "schema", unevaluatedProperties = "schema",
}

local OLD = { definitions = "map", items = "items", additionalItems = "schema", dependencies = "dependencies" }

-- Cheap ones first. What is unevaluated is known when all others have looked.
local ORDER = {
  "$ref", "$dynamicRef", "type", "const", "enum", "bytes", "is_filled", "multipleOf", "minimum", "exclusiveMinimum",
  "maximum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "minProperties",
  "maxProperties", "properties", "patternProperties", "additionalProperties", "propertyNames", "required",
  "dependentRequired", "dependencies", "prefixItems", "items", "additionalItems", "contains", "minContains",
  "maxContains", "uniqueItems", "dependentSchemas", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
  "check", "unevaluatedItems", "unevaluatedProperties",
}

local function dialect(name, more, ref_is_alone)
  local keywords = {}
  for _, part in ipairs { COMMON, more } do
    for keyword, kind in pairs(part) do keywords[keyword] = kind end
  end
  return { name = name, keywords = keywords, ref_is_alone = ref_is_alone }
end

---@type table<string, demilune.json_schema.Dialect>
dialects.BY_NAME = { ["2020-12"] = dialect("2020-12", NEW, false), ["draft-07"] = dialect("draft-07", OLD, true) }

local BY_URL = {
  ["https://json-schema.org/draft/2020-12/schema"] = dialects.BY_NAME["2020-12"],
  ["http://json-schema.org/draft-07/schema"] = dialects.BY_NAME["draft-07"],
}

--- The dialect that a `$schema` names; nil for one that is not held.
---@param url any
---@return demilune.json_schema.Dialect?
function dialects.of(url)
  if type(url) ~= "string" then return nil end
  return BY_URL[url:gsub("#$", ""):gsub("^https(://json%-schema%.org/draft%-07/)", "http%1")]
end

--- Where a keyword stands among those that check.
---@type string[]
dialects.ORDER = ORDER

--- Calls `visit(subschema, keyword, key)` for everything in a schema that a dialect takes for a subschema, in order.
---@param of demilune.json_schema.Dialect
---@param schema table
---@param visit fun(subschema: any, keyword: string, key?: string|integer)
function dialects.each_subschema(of, schema, visit)
  for _, keyword in ipairs(values.names(schema)) do
    local value, kind = schema[keyword], of.keywords[keyword]
    local is_table = type(value) == "table"
    if kind == "schema" or kind == "items" and not values.is_list(value) then
      visit(value, keyword)
    elseif is_table and (kind == "list" or kind == "map" or kind == "items" or kind == "dependencies") then
      for _, key in ipairs(values.names(value)) do
        local part = value[key]
        if kind ~= "dependencies" or not values.is_list(part) then visit(part, keyword, key) end
      end
    end
  end
end

return dialects
