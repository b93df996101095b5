--- json_schema/strict.lua - keywords that check nothing: to who is strict they are slips, and the right one is named.
local nearest = require "demilune.nearest"
local values = require "demilune.json_schema.values"

local strict = {}

local function known_keywords(compiler, dialect)
  local names = {}
  for name in pairs(dialect.keywords) do names[#names + 1] = name end
  for name in pairs(compiler.options.extensions) do names[#names + 1] = name end
  return names
end

--- What is said of keywords of the other draft.
local MOVED = {
  ["2020-12"] = {
    definitions = "write `$defs`", dependencies = "write dependentRequired or dependentSchemas",
    additionalItems = "write items beside prefixItems", id = "write `$id`", ["$recursiveRef"] = "write `$dynamicRef`",
    ["$recursiveAnchor"] = "write `$dynamicAnchor`",
  },
  ["draft-07"] = {
    ["$defs"] = "write `definitions`", ["$anchor"] = 'write `$id` = "#name"', prefixItems = "write a list in `items`",
    dependentRequired = "write `dependencies`", dependentSchemas = "write `dependencies`",
  },
}

--- A keyword that the dialect lacks: an annotation by the specification, but for slips.
---@param compiler demilune.json_schema.Compiler
---@param keyword any
---@param place table  of the schema
---@param dialect demilune.json_schema.Dialect
function strict.unknown(compiler, keyword, place, dialect)
  if not compiler.options.is_strict or type(keyword) == "string" and keyword:find "^x%-" then return end
  local name, moved = tostring(keyword), MOVED[dialect.name][keyword]
  local near = not moved and nearest.of(name, known_keywords(compiler, dialect))
  compiler:fault(compiler.under(place, keyword), ("`%s` of a JSON Schema %s"):format(name, moved and "is refused: " .. moved
    or near and ("is not known; did you mean `%s`?"):format(near) or "is not held here; leave it out"))
end

--- What is passed over beside a `$ref` (draft-07, section 8.3).
---@param compiler demilune.json_schema.Compiler
---@param schema table
---@param place table
---@param dialect demilune.json_schema.Dialect
function strict.beside_ref(compiler, schema, place, dialect)
  if not compiler.options.is_strict then return end
  for _, keyword in ipairs(values.names(schema)) do
    local kind = dialect.keywords[keyword]
    if keyword ~= "$ref" and keyword ~= "definitions" and keyword ~= "$schema" and kind ~= "words" then
      local text = "`%s` is passed over beside a `$ref` in draft-07; put both into `allOf`"
      compiler:fault(compiler.under(place, keyword), text:format(tostring(keyword)))
    end
  end
end

return strict
