--- schema_words.lua - what a schema takes, in words, and the error of an argument that does not fit: named, but never
--- repeated.
local errors = require "demilune.errors"

local schema_words = {}

--- "one of a, b" and "boolean" stand by themselves, every other expectation begins with a noun that takes an article.
local function article(noun)
  if noun:find "^one of " or noun:find "^any " then return noun end
  -- "a UUID", as it is said.
  return (noun:find "^[aeiou]" and "an " or "a ") .. noun
end

--- The least integer that a schema takes, nil for none.
local function least_of(node)
  if not node.exclusiveMinimum then return node.minimum end
  local least = math.floor(node.exclusiveMinimum) + 1
  return node.minimum and math.max(least, node.minimum) or least
end

local function most_of(node)
  if not node.exclusiveMaximum then return node.maximum end
  local most = math.ceil(node.exclusiveMaximum) - 1
  return node.maximum and math.min(most, node.maximum) or most
end

--- "integer from 1 to 86400".
local function number_words(noun, least, most)
  if least and most then return ("%s from %s to %s"):format(noun, least, most) end
  if least then return ("%s of at least %s"):format(noun, least) end
  return most and ("%s of at most %s"):format(noun, most) or noun
end

local PLURALS = {
  string = "strings", integer = "integers", number = "numbers", boolean = "booleans", object = "objects", array = "lists",
  null = "nulls",
}

--- "list of at most 8 strings".
local function list_words(node)
  local items, least, most = type(node.items) == "table" and node.items or {}, node.minItems, node.maxItems
  local of = items.enum and "values, each " .. schema_words.expected(items) or PLURALS[items.type] or "entries"
  local bounds = least and ("%d%s "):format(least, most and " to " .. most or " or more")
    or most and ("at most %d "):format(most) or ""
  return "list of " .. bounds .. of
end

local function text_words(node)
  if node.format == "uuid" then return "UUID" end
  local most = node.bytes and ("of at most %d bytes"):format(node.bytes)
    or node.maxLength and ("of at most %d characters"):format(node.maxLength)
  if (node.minLength or 0) > 1 then
    return ("string of at least %d characters%s"):format(node.minLength, most and " and" .. most:sub(3) or "")
  end
  if node.minLength or node.is_filled then return "string that is not empty" .. (most and ", " .. most or "") end
  return "string" .. (most and " " .. most or "")
end

local BY_TYPE = {
  integer = function(node) return number_words("integer", least_of(node), most_of(node)) end,
  number = function(node) return number_words("number", node.minimum, node.maximum) end,
  boolean = function() return "boolean, true or false" end,
  array = list_words, string = text_words,
  object = function(node)
    local values = node.additionalProperties
    return type(values) == "table" and values.type == "string" and not node.properties and "object of strings" or "object"
  end,
}

--- What a schema takes, in words: "integer from 1 to 86400".
---@param node table|boolean
---@return string
function schema_words.expected(node)
  if type(node) ~= "table" then return "any value" end
  if node.enum then
    local shown = {}
    for i, value in ipairs(node.enum) do shown[i] = type(value) == "table" and "…" or tostring(value) end
    return "one of " .. table.concat(shown, ", ")
  end
  if type(node.type) == "table" then return table.concat(node.type, " or ") end
  local words = BY_TYPE[node.type]
  return words and words(node) or node.type or "any value"
end

--- Keywords that the words of a schema with a type tell; the others stand behind these.
local TOLD = {
  type = true, enum = true, bytes = true, is_filled = true, minLength = true, maxLength = true, minItems = true,
  maxItems = true, minimum = true, maximum = true, format = true,
}
--- These only of integers.
local TOLD_OF_INTEGERS = { exclusiveMinimum = true, exclusiveMaximum = true }

local function misfit_words(misfit)
  local node, keyword = misfit.schema, misfit.keyword
  if not node or keyword == "check" or #misfit.path == 0 then return misfit.expected, keyword == "check" end
  local is_told = TOLD[keyword] and (node.type or node.enum) or TOLD_OF_INTEGERS[keyword] and node.type == "integer"
  if is_told then return schema_words.expected(node), true end
  if type(node.type) == "string" then return schema_words.expected(node) .. ", " .. misfit.expected, true end
  return misfit.expected, false
end

--- Where a misfit is, in names of the schema: "files[2].name"; nil for the whole. Entries count from 0, as clients do.
local function field_of(misfit)
  local field
  for i = 1, misfit.known do
    local key = misfit.path[i]
    if math.type(key) then
      field = ("%s[%d]"):format(field or "", key - 1)
    else
      field = field and field .. "." .. key or key
    end
  end
  return field
end

--- The schema of the outermost part of a path, as far as `properties` and `items` lead there.
local function node_at(input, misfit)
  local node = input
  for i = 1, misfit.known do
    local key = misfit.path[i]
    node = type(node) == "table" and (math.type(key) and node.items or node.properties and node.properties[key])
  end
  return node or nil
end

local function raise(field, expected, node, message)
  errors.raise("invalid_argument", {
    field = field, expected = expected, allowed = type(node) == "table" and node.enum or nil, message = message,
  })
end

--- Raises `invalid_argument` for arguments that do not fit.
---@param input table  their schema
---@param misfit demilune.json_schema.Misfit
function schema_words.refuse(input, misfit)
  local field, node = field_of(misfit), misfit.schema
  if misfit.keyword == "required" or misfit.keyword == "dependentRequired" then
    local of = node.properties and node.properties[misfit.path[#misfit.path]]
    local message = misfit.keyword == "required" and ("%s is required."):format(field)
      or ("%s must be %s."):format(field, misfit.expected)
    return raise(field, of and schema_words.expected(of) or misfit.expected, of, message)
  end
  local expected, is_noun = misfit_words(misfit)
  -- What the value itself named is not repeated: the error is about the nearest part that the schema names.
  if misfit.known < #misfit.path then
    node = node_at(input, misfit)
    local of = node and schema_words.expected(node)
    expected, is_noun = of and of ~= "object" and of or "object, each entry as its schema says", true
  end
  local words = is_noun and article(expected) or expected
  raise(field, expected, node, ("%s must be %s."):format(field or "The arguments", words))
end

--- Raises `invalid_argument` for a text with NUL in it.
---@param path (string|integer)[]
function schema_words.refuse_nul(path)
  local field = field_of { path = path, known = #path }
  raise(field, "string without NUL", nil, field .. " must not contain NUL.")
end

return schema_words
