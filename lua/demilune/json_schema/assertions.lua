--- json_schema/assertions.lua - keywords that hold no subschema: types, values, numbers, texts.
local decimal = require "demilune.json_schema.decimal"
local nearest = require "demilune.nearest"
local values = require "demilune.json_schema.values"

local KEYWORDS = {}

local characters, charge, is_map, is_same = values.characters, values.charge, values.is_map, values.is_same
local matches = values.matches

--- What a part returns where a value does not fit: always the same table, so that a failure costs nothing.
local function constant(keyword, schema, expected, ...)
  return { keyword = keyword, schema = schema, expected = expected:format(...) }
end

local function is_finite(value) return math.type(value) ~= nil and value - value == 0 end

--- Pairs of which the first must not be above the second: nothing would fit.
local ABOVE = {
  minimum = "maximum", minLength = "maxLength", minItems = "maxItems", minProperties = "maxProperties",
}

--- To who is strict, bounds that nothing fits are a slip.
local function check_order(compiler, keyword, least, place, schema)
  local most = compiler.options.is_strict and ABOVE[keyword] and schema[ABOVE[keyword]]
  if math.type(most) and least > most then
    compiler:fault(place, ("it is more than its %s; turn them round"):format(ABOVE[keyword]))
  end
end

local function shown(number) return ("%.14g"):format(number) end

-- ---- numbers, and what is counted ----

--- A keyword that compares numbers.
local function bound(keyword, fits, words)
  KEYWORDS[keyword] = function(compiler, most, place, schema)
    if not is_finite(most) then return compiler:fault(place, "it takes a number; write one") end
    check_order(compiler, keyword, most, place, schema)
    local fault = constant(keyword, schema, words, shown(most))
    return function(value)
      if type(value) == "number" and not fits(value, most) then return fault end
    end
  end
end

bound("maximum", function(value, most) return value <= most end, "at most %s")
bound("minimum", function(value, least) return value >= least end, "at least %s")
bound("exclusiveMaximum", function(value, most) return value < most end, "less than %s")
bound("exclusiveMinimum", function(value, least) return value > least end, "more than %s")

function KEYWORDS.multipleOf(compiler, factor, place, schema)
  if not is_finite(factor) or factor <= 0 then return compiler:fault(place, "it takes a number above 0; write one") end
  local fault, steps = constant("multipleOf", schema, "a multiple of %s", shown(factor)), decimal.steps(factor)
  return function(value, state)
    if type(value) ~= "number" then return nil end
    charge(state, steps)
    if not decimal.is_multiple(value, factor) then return fault end
  end
end

--- The number of a keyword that counts, nil after a fault.
local function count_of(compiler, number, place)
  if values.is_whole(number) and number >= 0 then return number end
  return compiler:fault(place, "it takes a number of at least 0 without a fraction; write one")
end

local function counting(keyword, words, part)
  KEYWORDS[keyword] = function(compiler, given, place, schema)
    local number = count_of(compiler, given, place)
    if number then check_order(compiler, keyword, number, place, schema) end
    return number and part(number, constant(keyword, schema, words, shown(number)), compiler)
  end
end

-- A character has one byte to four, so most texts need no counting.
counting("maxLength", "at most %s characters", function(most, fault)
  return function(value, state)
    if type(value) ~= "string" or #value <= most then return nil end
    if #value > most * 4 or characters(value, state) > most then return fault end
  end
end)

counting("minLength", "at least %s characters", function(least, fault)
  return function(value, state)
    if type(value) ~= "string" or #value >= least * 4 then return nil end
    if #value < least or characters(value, state) < least then return fault end
  end
end)

counting("maxItems", "at most %s entries", function(most, fault, compiler)
  local is_list = compiler.is_list
  return function(value)
    if is_list(value) and #value > most then return fault end
  end
end)

counting("minItems", "at least %s entries", function(least, fault, compiler)
  local is_list = compiler.is_list
  return function(value)
    if is_list(value) and #value < least then return fault end
  end
end)

--- How many entries an object has, as far as `enough`.
local function entries_of(value, enough, state)
  local count = 0
  for _ in next, value do
    count = count + 1
    if count >= enough then break end
  end
  charge(state, count)
  return count
end

counting("maxProperties", "at most %s entries", function(most, fault)
  return function(value, state)
    if is_map(value) and entries_of(value, most + 1, state) > most then return fault end
  end
end)

counting("minProperties", "at least %s entries", function(least, fault)
  return function(value, state)
    if is_map(value) and entries_of(value, least, state) < least then return fault end
  end
end)

-- ---- types and values ----

local TYPES = { "string", "integer", "number", "boolean", "object", "array", "null" }

local IS = {
  string = function(value) return type(value) == "string" end,
  number = function(value) return type(value) == "number" end,
  boolean = function(value) return type(value) == "boolean" end,
  null = function(value) return type(value) == "userdata" end,
  object = is_map,
}

local function check_types(compiler, names, place)
  for _, name in ipairs(names) do
    if not compiler.tests[name] and not IS[name] then
      local near = type(name) == "string" and nearest.of(name, TYPES)
      compiler:fault(place, near and ("there is no such type; did you mean %q?"):format(near)
        or "there is no such type; write one of " .. table.concat(TYPES, ", "))
      return false
    end
  end
  return true
end

local function type_part(tests, fault)
  local first, second = tests[1], tests[2]
  if not second then
    return function(value)
      if not first(value) then return fault end
    end
  end
  return function(value)
    for i = 1, #tests do
      if tests[i](value) then return nil end
    end
    return fault
  end
end

--- One test for each of Lua's types that costs no call.
local function plain_type_part(name, fault)
  return function(value)
    if type(value) ~= name then return fault end
  end
end

local PLAIN = { string = true, number = true, boolean = true }

function KEYWORDS.type(compiler, names, place, schema)
  if type(names) == "string" then names = { names } end
  if type(names) ~= "table" or #names == 0 then return compiler:fault(place, "it takes the name of a type; write one") end
  if not check_types(compiler, names, place) then return nil end
  local fault = constant("type", schema, "%s", table.concat(names, " or "))
  if #names == 1 and PLAIN[names[1]] then return plain_type_part(names[1], fault) end
  local tests = {}
  for i, name in ipairs(names) do tests[i] = compiler.tests[name] or IS[name] end
  return type_part(tests, fault)
end

local function is_listed(tables, value, state)
  charge(state, #tables)
  for i = 1, #tables do
    if is_same(value, tables[i], state) then return true end
  end
  return false
end

--- Lua's keys are equal as JSON's values are: 1 and 1.0 are one key, 1 and true are two.
function KEYWORDS.enum(compiler, list, place, schema)
  if not compiler:has_list(list, place, "a list of values", values.is_json) then return nil end
  if #list == 0 and compiler.options.is_strict then return compiler:fault(place, "its list is empty; write a value") end
  local plain, tables = {}, {}
  for _, one in ipairs(list) do
    if type(one) == "table" then tables[#tables + 1] = one else plain[one] = true end
  end
  local fault = constant("enum", schema, "one of those that the schema lists")
  return function(value, state)
    if type(value) == "table" and is_listed(tables, value, state) then return nil end
    if not plain[value] then return fault end
  end
end

function KEYWORDS.const(compiler, wanted, place, schema)
  if not values.is_json(wanted) then return compiler:fault(place, "it takes a value that JSON has; write one") end
  local fault = constant("const", schema, "the one value that the schema names")
  return function(value, state)
    if not is_same(value, wanted, state) then return fault end
  end
end

-- ---- texts ----

function KEYWORDS.pattern(compiler, text, place, schema)
  local regex = compiler:regex(text, place)
  local fault = constant("pattern", schema, "a text that fits the schema's pattern")
  return regex and function(value, state)
    if type(value) == "string" and not matches(regex, value, state) then return fault end
  end
end

--- An annotation, but for the formats that the options hold.
function KEYWORDS.format(compiler, name, place, schema)
  local is_right = compiler.options.formats[name]
  if not is_right and compiler.options.is_strict then
    local known = table.concat(values.names(compiler.options.formats), ", ")
    known = known ~= "" and known .. ", or " or ""
    return compiler:fault(place, ("this format is not checked; write %sa `pattern`"):format(known))
  end
  local fault = constant("format", schema, "a text of the format %s", tostring(name))
  return is_right and function(value)
    if type(value) == "string" and not is_right(value) then return fault end
  end
end

---@type { KEYWORDS: table<string, demilune.json_schema.Maker> }
return { KEYWORDS = KEYWORDS }
