--- JSON Schema 2020-12's validation vocabulary, as rules use it for arguments.

local core = require "demilune.core"
local json_schema = require "demilune.policy.json_schema"
local support = require "spec.policy.support"

local json = support.json

local function compile(schema)
  local validator, faults = json_schema.compile(json.decode(schema), core.regex.new)
  return validator, faults
end

--- Schemas, values that fit, values that do not; all as JSON.
local ROWS = {
  { "{}", '1|"a"|null|[]|{}|true', "" },
  { '{"type":"string"}', '"a"|""', "1|null|[]|{}" },
  { '{"type":"integer"}', "1|-1|2.0", '1.5|"1"|null' },
  { '{"type":"number"}', "1|1.5", '"1"|true' },
  { '{"type":"boolean"}', "true|false", '1|"true"|null' },
  { '{"type":"null"}', "null", "0|false" },
  { '{"type":"array"}', "[]|[1]", '{"a":1}|1' },
  { '{"type":"object"}', '{"a":1}|{}', "[1]|1" },
  { '{"type":["string","null"]}', '"a"|null', "1" },
  { '{"enum":["a",1,null,[1],{"a":2}]}', '"a"|1|1.0|null|[1]|{"a":2}', '"b"|2|[2]|{"a":1}|{"a":2,"b":1}|[1,1]' },
  { '{"const":{"a":[1,{"b":true}]}}', '{"a":[1,{"b":true}]}', '{"a":[1,{"b":false}]}|{}' },
  { '{"minimum":1,"maximum":3}', '1|2.5|3|"x"', "0|3.1" },
  { '{"exclusiveMinimum":1,"exclusiveMaximum":3}', "2|1.1", "1|3" },
  { '{"multipleOf":5}', '0|10|-5|5.0|"x"', "3|7.5" },
  { '{"multipleOf":0.5}', "1|1.5", "0.3" },
  { '{"minLength":2,"maxLength":3}', '"ab"|"äöü"|1', '"a"|"abcd"|""' },
  { '{"pattern":"^a+$"}', '"a"|"aa"|1', '"b"|"ab"|""' },
  { '{"pattern":"b"}', '"abc"', '"ac"' },
  { '{"items":{"type":"integer"}}', '[]|[1,2]|"x"', '["a"]|[1,"a"]' },
  { '{"prefixItems":[{"type":"string"},{"type":"integer"}]}', '["a"]|["a",1]|["a",1,true]|[]', '[1]|["a","b"]' },
  { '{"prefixItems":[{"type":"string"}],"items":{"type":"integer"}}', '["a",1,2]', '["a","b"]' },
  { '{"prefixItems":[{"type":"string"}],"items":false}', '["a"]|[]', '["a",1]' },
  { '{"contains":{"type":"integer"}}', '[1]|["a",1]|"x"', '[]|["a"]' },
  { '{"contains":{"type":"integer"},"minContains":2,"maxContains":3}', "[1,2]|[1,2,3]", "[1]|[1,2,3,4]" },
  { '{"contains":{"type":"integer"},"minContains":0}', '[]|["a"]', "" },
  { '{"uniqueItems":true}', '[]|[1,2]|[[1],[2]]|"aa"', '[1,1]|[{"a":1},{"a":1}]|[1,1.0]' },
  { '{"uniqueItems":false}', "[1,1]", "" },
  { '{"minItems":1,"maxItems":2}', '[1]|[1,2]|{"a":1}', "[]|[1,2,3]" },
  { '{"minProperties":1,"maxProperties":2}', '{"a":1}|{"a":1,"b":2}|[1]', '{"a":1,"b":2,"c":3}' },
  { '{"properties":{"a":{"type":"integer"},"b":false}}', '{}|{"a":1}|{"c":"x"}|[1]', '{"a":"x"}|{"b":1}' },
  { '{"patternProperties":{"^x-":{"type":"string"}}}', '{"x-a":"b"}|{"y":1}', '{"x-a":1}' },
  { '{"additionalProperties":false,"properties":{"a":{}},"patternProperties":{"^x":{}}}', '{"a":1}|{"xy":1}',
    '{"b":1}|{"a":1,"b":1}' },
  { '{"additionalProperties":{"type":"string"}}', '{"a":"b"}', '{"a":1}' },
  { '{"propertyNames":{"maxLength":2}}', '{"ab":1}', '{"abc":1}' },
  { '{"required":["a","b"]}', '{"a":1,"b":null}|[1]', '{"a":1}|{}' },
  { '{"dependentRequired":{"a":["b"]}}', '{"a":1,"b":1}|{"b":1}|{}', '{"a":1}' },
  { '{"dependentSchemas":{"a":{"required":["b"]}}}', '{"a":1,"b":1}|{}', '{"a":1}' },
  { '{"allOf":[{"minimum":1},{"maximum":3}]}', "2", "0|4" },
  { '{"anyOf":[{"type":"string"},{"minimum":3}]}', '"a"|3', "2" },
  { '{"oneOf":[{"type":"integer"},{"minimum":3}]}', "1|3.5", "4|1.5" },
  { '{"not":{"type":"string"}}', "1", '"a"' },
  { '{"not":{}}', "", "1|null" },
  { '{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}', '{"a":1,"b":1}|{"c":1}',
    '{"a":1}|{"d":1}' },
  { '{"if":{"type":"string"},"then":{"minLength":2}}', '1|"ab"', '"a"' },
  { '{"if":{"type":"string"},"else":{"minimum":2}}', '"a"|2', "1" },
  { '{"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}}}', "1", '"a"' },
  { '{"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"required":["v"]}},"$ref":"#/$defs/n"}',
    '{"v":1}|{"v":1,"next":{"v":2}}', '{"v":1,"next":{}}' },
  { '{"properties":{"a":{"$ref":"#"}},"additionalProperties":false}', '{"a":{"a":{}}}', '{"a":{"b":1}}' },
  { '{"title":"x","description":"y","$comment":"z","examples":[1],"type":"integer"}', "1", '"a"' },
  { '{"$schema":"https://json-schema.org/draft/2020-12/schema"}', "1", "" },
  { '{"properties":{"a":{"properties":{"b":{"maximum":1}}}}}', '{"a":{"b":1}}|{"a":{}}', '{"a":{"b":2}}' },
}

--- Schemas that are refused, and where.
local REFUSED = {
  { '{"format":"uri"}', "format" }, { '{"default":1}', "default" }, { '{"typo":1}', "typo" },
    { '{"unevaluatedProperties":false}', "unevaluatedProperties" },
  { '{"unevaluatedItems":false}', "unevaluatedItems" }, { '{"$anchor":"a"}', "$anchor" }, { '{"$id":"a"}', "$id" },
    { '{"$dynamicRef":"#a"}', "$dynamicRef" },
  { '{"definitions":{}}', "definitions" }, { '{"dependencies":{}}', "dependencies" }, { '{"additionalItems":false}',
    "additionalItems" },
  { '{"contentEncoding":"base64"}', "contentEncoding" }, { '{"readOnly":true}', "readOnly" },
  { '{"type":"str"}', "type" }, { '{"type":[]}', "type" }, { '{"type":7}', "type" }, { '{"enum":[]}', "enum" },
    { '{"enum":"a"}', "enum" },
  { '{"minimum":"1"}', "minimum" }, { '{"maxLength":true}', "maxLength" }, { '{"multipleOf":0}', "multipleOf" },
    { '{"multipleOf":"2"}', "multipleOf" },
  { '{"pattern":"("}', "pattern" }, { '{"pattern":7}', "pattern" }, { '{"patternProperties":{"(":{}}}', "patternProperties.(" },
  { '{"items":[{}]}', "items" }, { '{"items":"x"}', "items" }, { '{"prefixItems":{}}', "prefixItems" }, { '{"minContains":1}',
    "minContains" },
  { '{"contains":{},"maxContains":"1"}', "maxContains" }, { '{"uniqueItems":1}', "uniqueItems" }, { '{"properties":[{}]}',
    "properties" },
  { '{"properties":{"a":{"properties":{"b":{"tipe":1}}}}}', "properties.a.properties.b.tipe" }, { '{"required":"a"}',
    "required" },
  { '{"required":[1]}', "required" }, { '{"dependentRequired":{"a":"b"}}', "dependentRequired.a" }, { '{"dependentRequired":7}',
    "dependentRequired" },
  { '{"allOf":[]}', "allOf" }, { '{"anyOf":{}}', "anyOf" }, { '{"oneOf":[7]}', "oneOf.1" }, { '{"not":7}', "not" },
    { '{"if":{}}', "if" },
  { '{"then":{}}', "then" }, { '{"else":{}}', "else" }, { '{"$ref":"other.json"}', "$ref" }, { '{"$ref":"#/$defs/x"}', "$ref" },
  { '{"$ref":"#/properties/a","properties":{"a":{}}}', "$ref" }, { '{"properties":{"a":{"$defs":{}}}}', "properties.a.$defs" },
  { '{"$schema":"http://json-schema.org/draft-07/schema#"}', "$schema" },
}

local function each(values, fn)
  for value in values:gmatch "[^|]+" do fn(value, json.decode(value)) end
end

describe("a JSON Schema", function()
  for _, row in ipairs(ROWS) do
    it(row[1], function()
      local validator, faults = compile(row[1])
      assert(validator, faults and faults[1] and faults[1].text)
      each(row[2], function(text, value) assert.is_nil((validator(value)), text .. " fits") end)
      each(row[3], function(text, value)
        local at, expected = validator(value)
        assert.are.equal("string", type(at), text .. " does not fit")
        assert.are.equal("string", type(expected))
      end)
    end)
  end

  for _, row in ipairs(REFUSED) do
    it(("%s is refused"):format(row[1]), function()
      local validator, faults = compile(row[1])
      assert.is_nil(validator)
      local names = {}
      for i, key in ipairs(faults[1].path) do names[i] = tostring(key) end
      assert.are.equal(row[2], table.concat(names, "."))
      assert.truthy(faults[1].text:find "[;:]")
    end)
  end

  it("says where and what", function()
    local validator = compile '{"properties":{"a":{"items":{"maximum":3}}},"required":["b"]}'
    assert.are.same({ "/a/2", "at most 3" }, { validator(json.decode '{"a":[1,4],"b":1}') })
    assert.are.same({ "/b", "given" }, { validator(json.decode '{"a":[1]}') })
  end)

  it("takes an empty table of Lua for both, an object and a list", function()
    assert.is_nil((compile '{"type":"object"}'({})))
    assert.is_nil((compile '{"type":"array"}'({})))
    assert.is_string((compile '{"type":"object"}'(json.array {})))
  end)

  it("goes so deep and no deeper", function()
    local validator = compile '{"properties":{"a":{"$ref":"#"}}}'
    local value = {}
    for _ = 1, 20 do value = { a = value } end
    assert.is_nil((validator(value)))
    for _ = 1, 200 do value = { a = value } end
    assert.is_string((validator(value)))
    assert.is_string((compile '{"$ref":"#"}'(1)))
    assert.is_string((compile '{"not":{"$ref":"#"}}'(1)))
    assert.is_string((compile '{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"not":{"$ref":"#/$defs/a"}}'(1)))
  end)

  it("does not blow up", function()
    local list = json.array {}
    for i = 1, 5000 do list[i] = "x" .. i end
    local started = os.clock()
    assert.is_string((compile '{"uniqueItems":true}'(list)))
    local branches = {}
    for i = 1, 30 do branches[i] = '{"items":{"$ref":"#"},"minItems":1,"type":"array"}' end
    local nested = json.decode(("["):rep(30) .. "[]" .. ("]"):rep(30))
    assert.is_string((compile('{"anyOf":[' .. table.concat(branches, ",") .. "]}")(nested)))
    assert.is_true(os.clock() - started < 2)
    local deep = ('{"not":'):rep(100) .. "{}" .. ("}"):rep(100)
    assert.is_nil((compile(deep)))
  end)

  it("does not take an undecided pattern for a yes, nor its negation", function()
    local function regex() return { matches = function() return nil, "limit" end } end
    for _, schema in ipairs { { pattern = "x" }, { ["not"] = { pattern = "x" } }, { patternProperties = { x = {} } },
      { ["if"] = { pattern = "x" }, ["then"] = {} }, { additionalProperties = true, patternProperties = { x = true } },
      { oneOf = { { pattern = "x" }, {} } } } do
      local validator = assert(json_schema.compile(schema, regex))
      assert.is_string((validator(schema.patternProperties and { a = 1 } or "text")))
    end
  end)
end)
