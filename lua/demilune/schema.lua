--- schema.lua - schemas of tools: what clients see of them, arguments made ready for a handler, values that services
--- answer.
--
-- What fits is json_schema's to say. Beside its keywords ours may stand, which are not published: `bytes` (largest
-- length of a text in bytes), `is_filled` (an empty text is refused), `check` (a function that gets a text or an object
-- and returns what was expected instead), `nulls` and `is_sealed` (of tools/shape.lua). Each schema is compiled when it
-- is first needed: most servers need few, and each starts faster for it.
local connect = require "demilune.connect"
local errors = require "demilune.errors"
local formats = require "demilune.json_schema.formats"
local json = require("demilune.core").json
local nearest = require "demilune.nearest"
local schema_words = require "demilune.schema_words"
local text = require "demilune.text"

local schema = {}

local NAME_SHOWN_CHARACTERS = 64
--- Levels of an argument. A message has fewer.
local LEVELS_MAX = 256

schema.expected = schema_words.expected
schema.is_uuid = formats.uuid

-- ---- keywords of our own ----

local function silent() end

local function bytes(_, most, _, node)
  local fault = { keyword = "bytes", schema = node, expected = ("at most %d bytes"):format(most) }
  return function(value)
    if type(value) == "string" and #value > most then return fault end
  end
end

local function is_filled(_, is_wanted, _, node)
  local fault = { keyword = "is_filled", schema = node, expected = "a text that is not empty" }
  return is_wanted and function(value)
    if value == "" then return fault end
  end or nil
end

local function check(compiler, judge, place, node)
  if type(judge) ~= "function" then
    return compiler:fault(place, "it is no function; write one that returns what was expected, or nil")
  end
  return function(value)
    if type(value) ~= "string" and type(value) ~= "table" then return nil end
    local expected = judge(value)
    return expected and { keyword = "check", schema = node, expected = expected } or nil
  end
end

--- Keywords that are not published, as json_schema takes them.
---@type table<string, function>
schema.PRIVATE = { bytes = bytes, is_filled = is_filled, check = check, nulls = silent, is_sealed = silent }

--- How the program compiles schemas; `more` beside that.
---@param more? demilune.json_schema.Options
---@return demilune.json_schema.Options
function schema.options(more)
  local options = { extensions = schema.PRIVATE, formats = formats, is_int64 = true }
  for key, value in pairs(more or {}) do options[key] = value end
  return options
end

--- Validators by their schemas, as long as these live. A schema is not changed once it is in use.
local COMPILED = setmetatable({}, { __mode = "k" })

local function compile(node)
  local validator, faults = require("demilune.json_schema").compile(node, schema.options())
  if not validator then
    error(("a schema of the server: %s: %s"):format(table.concat(faults[1].path, "."), faults[1].text), 0)
  end
  COMPILED[node] = validator
  return validator
end

local function validator_of(node) return COMPILED[node] or compile(node) end

-- ---- the published form ----

local LISTS = { enum = true, required = true, type = true, examples = true }
local SCHEMA_LISTS = { allOf = true, anyOf = true, oneOf = true, prefixItems = true }
local SCHEMA_MAPS = {
  properties = true, patternProperties = true, ["$defs"] = true, definitions = true, dependentSchemas = true,
}
local SCHEMAS = {
  additionalProperties = true, additionalItems = true, propertyNames = true, contains = true, ["not"] = true,
  ["if"] = true, ["then"] = true, ["else"] = true, unevaluatedItems = true, unevaluatedProperties = true,
  contentSchema = true,
}

local function as_list(value) return json.array(table.move(value, 1, #value, 1, {})) end

local function public_each(nodes)
  local out = {}
  for key, node in pairs(nodes) do out[key] = schema.public(node) end
  return out
end

--- draft-07's `dependencies` and our `dependentRequired`: lists of names, and schemas.
local function public_dependencies(map)
  local out = {}
  for name, one in pairs(map) do
    out[name] = type(one) == "table" and one[1] ~= nil and as_list(one) or schema.public(one)
  end
  return out
end

local function public_value(key, value)
  if type(value) ~= "table" then return value end
  if LISTS[key] then return as_list(value) end
  if SCHEMA_LISTS[key] or key == "items" and value[1] ~= nil then return json.array(public_each(value)) end
  if SCHEMA_MAPS[key] then return public_each(value) end
  if key == "items" or SCHEMAS[key] then return schema.public(value) end
  if key == "dependencies" or key == "dependentRequired" then return public_dependencies(value) end
  return value
end

--- The schema as clients see it: without our private keys. Names of properties are names, whatever they are.
---@generic T: table|boolean
---@param node T
---@return T
function schema.public(node)
  if type(node) ~= "table" then return node end
  local out = {}
  for key, value in pairs(node) do
    if not schema.PRIVATE[key] then out[key] = public_value(key, value) end
  end
  return out
end

-- ---- arguments ----

--- The keys in order, so that of several faults always the same one is named.
local function names_of(fields)
  local names = {}
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function refuse_unknown(arguments, properties)
  local unknown
  for _, name in ipairs(names_of(arguments)) do unknown = unknown or not properties[name] and name or nil end
  local names = names_of(properties)
  local near = nearest.of(unknown, names)
  errors.raise("invalid_argument", {
    field = text.first(unknown, NAME_SHOWN_CHARACTERS), allowed = json.array(names),
    message = near and ("There is no such argument; did you mean %s?"):format(near)
      or #names > 0 and "There is no such argument; `allowed` lists those of this tool."
      or "This tool takes no arguments.",
  })
end

local function table_copy(value)
  local out = {}
  for key, part in next, value do out[key] = part end
  return out
end

--- A table with integral floats turned into integers, copied where there are some; and whether a text in it has NUL.
local function whole(value, level)
  if level > LEVELS_MAX then return value, false end
  local out, has_nul = value, false
  for key, part in next, value do
    local kind, made, is_bad = type(part), part, false
    if kind == "string" then
      is_bad = part:find("\0", 1, true) ~= nil
    elseif kind == "table" then
      made, is_bad = whole(part, level + 1)
    elseif math.type(part) == "float" then
      made = math.tointeger(part) or part
    end
    has_nul = has_nul or is_bad
    if made ~= part or kind == "number" and math.type(made) ~= math.type(part) then
      if out == value then out = setmetatable(table_copy(value), getmetatable(value)) end
      out[key] = made
    end
  end
  return out, has_nul
end

--- The path to a text with NUL in a value, in places of lists; names within are the value's own, and not said.
local function nul_in(value, level)
  if type(value) == "string" then return value:find("\0", 1, true) and {} or nil end
  if type(value) ~= "table" or level > LEVELS_MAX then return nil end
  for key, part in next, value do
    local kind = type(part)
    local below = (kind == "string" or kind == "table") and nul_in(part, level + 1)
    if below then
      if math.type(key) then table.insert(below, 1, key) else below = {} end
      return below
    end
  end
end

local function refuse_nul(arguments)
  for _, name in ipairs(names_of(arguments)) do
    local path = nul_in(arguments[name], 1)
    if path then
      table.insert(path, 1, name)
      schema_words.refuse_nul(path)
    end
  end
end

--- An input schema of which only what it says of single arguments is left.
local function singly(input)
  local out = {}
  for _, key in ipairs { "$schema", "$id", "$defs", "definitions", "properties" } do out[key] = input[key] end
  return out
end

--- Whether a property may be null as far as its type says; nil where that does not tell.
local function may_be_null(node)
  if type(node) == "table" and type(node.type) == "string" then return node.type == "null" end
  if type(node) == "table" and node.enum and not node.type then
    for _, value in ipairs(node.enum) do
      if value == json.null then return nil end
    end
    return false
  end
end

--- Which arguments an input schema takes null for.
local function nullable(input)
  local found, judge = {}, nil
  for name, node in pairs(input.properties) do
    found[name] = may_be_null(node)
    if found[name] == nil then
      judge = judge or require("demilune.json_schema").compile(singly(input), schema.options())
      found[name] = judge ~= nil and judge:check { [name] = json.null } == true
    end
  end
  return found
end

--- What is known of the arguments of an input schema: which default, and which take null.
local function form_of(input)
  local form = { validator = validator_of(input), defaults = {}, takes_null = nullable(input) }
  for name, node in pairs(input.properties) do
    if type(node) == "table" and node.default ~= nil then form.defaults[#form.defaults + 1] = name end
  end
  return form
end

local FORMS = setmetatable({}, { __mode = "k" })

--- Checks arguments against an input schema and returns a fresh table of them: defaults filled in, what is null where
--- the schema takes no null left out, integral floats turned into integers. Raises `invalid_argument`.
---@param input table   {properties, required, additionalProperties = false, …}
---@param arguments table
---@return table
function schema.check(input, arguments)
  local form = FORMS[input]
  if not form then
    form = form_of(input)
    FORMS[input] = form
  end
  local properties, out, has_nul = input.properties, {}, false
  for name, value in next, arguments do
    if not properties[name] then refuse_unknown(arguments, properties) end
    local kind = type(value)
    if kind == "string" then
      has_nul = has_nul or value:find("\0", 1, true)
      out[name] = value
    elseif kind == "table" then
      local made, is_bad = whole(value, 1)
      out[name], has_nul = made, has_nul or is_bad
    elseif value ~= json.null or form.takes_null[name] then
      out[name] = kind == "number" and math.tointeger(value) or value
    end
  end
  if has_nul then refuse_nul(out) end
  local fits, misfit = form.validator:check(out)
  if not fits then schema_words.refuse(input, misfit) end
  for _, name in ipairs(form.defaults) do
    if out[name] == nil then out[name] = properties[name].default end
  end
  return out
end

--- One argument by itself, as its handler would get it. Raises `invalid_argument`.
---@param input table
---@param name string  of a property
---@param value any
---@return any
function schema.argument(input, name, value)
  return schema.check(singly(input), { [name] = value })[name]
end

-- ---- answers of services ----

--- Where a decoded value does not satisfy a schema, as a path of the schema's own names ("/id"; "/?" for a name it
--- lacks); nil where it does.
---@param node table
---@param value any
---@return string?
function schema.fault(node, value)
  local fits, misfit = validator_of(node):check(value)
  return not fits and require("demilune.json_schema").pointer(misfit, "?") or nil
end

--- A copy of a decoded value without what a schema does not name, at every level; an optional property that is null
--- where the schema takes none is left out too, and integral floats become integers. What does not fit stays, for
--- `fault`.
---@param node table
---@param value any
---@return any
function schema.prune(node, value)
  if type(value) == "number" then return math.tointeger(value) or value end
  if not connect.is_object(value) or not node.properties then return value end
  local required, out = {}, {}
  for _, name in ipairs(node.required or {}) do required[name] = true end
  for name, property in pairs(node.properties) do
    local part = value[name]
    local is_absent = part == nil or (part == json.null and not required[name] and schema.fault(property, part) ~= nil)
    if not is_absent then out[name] = schema.prune(property, part) end
  end
  return out
end

return schema
