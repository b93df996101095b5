--- JSON Schema's keywords one by one, what is refused of them, and the limits of a check.

local json_schema = require "demilune.json_schema"
local json = require("demilune.core").json

local function compile(schema, options)
  options = options or {}
  options.is_strict = options.is_strict ~= false
  return json_schema.compile(json.decode(schema), options)
end

--- Where a value does not fit and what would, nil where it does.
local function check(validator, value)
  local fits, misfit = validator:check(value)
  assert.are.equal(fits == nil, misfit ~= nil)
  if not misfit then return nil end
  return json_schema.pointer(misfit), misfit.expected
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
  { '{"title":"x","description":"y","$comment":"z","examples":[1],"default":"a","x-mine":1,"type":"integer"}', "1", '"a"' },
  { '{"$schema":"https://json-schema.org/draft/2020-12/schema"}', "1", "" },
  { '{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"integer"}],"additionalItems":false}', "[1]|[]",
    '["a"]|[1,2]' },
  { '{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":["b"],"c":{"maxProperties":1}}}',
    '{"a":1,"b":1}|{"c":1}|{}', '{"a":1}|{"c":1,"d":1}' },
  { '{"properties":{"a":{}},"unevaluatedProperties":false}', '{"a":1}|{}|[1]', '{"a":1,"b":1}' },
  { '{"anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":{}}}],"unevaluatedProperties":false}',
    '{"a":1}|{"a":1,"b":2}|{"b":2}', '{"a":2}|{"c":1}' },
  { '{"prefixItems":[{}],"contains":{"type":"string"},"unevaluatedItems":false}', '["a"]|[1,"a"]', '[1,"a",2]|[1]' },
  { '{"$ref":"#a","$defs":{"x":{"$anchor":"a","type":"integer"}}}', "1", '"a"' },
  { '{"$id":"https://a.example/root","$ref":"part#/$defs/n","$defs":{"x":{"$id":"part","$defs":{"n":{"type":"integer"}}}}}',
    "1", '"a"' },
  { '{"$id":"t","$dynamicAnchor":"n","properties":{"n":{"$dynamicRef":"#n"}},"required":["v"]}', '{"v":1,"n":{"v":1}}',
    '{"v":1,"n":{}}' },
  { '{"$ref":"#/properties/a%25b~1c","properties":{"a%b/c":{"type":["object","integer"]}}}', '1|{"a%b/c":1}',
    '"a"|{"a%b/c":"a"}' },
  { '{"properties":{"a":{"properties":{"b":{"maximum":1}}}}}', '{"a":{"b":1}}|{"a":{}}', '{"a":{"b":2}}' },
}

--- Schemas that are refused, and where.
local REFUSED = {
  { '{"format":"uri"}', "format" }, { '{"typo":1}', "typo" }, { '{"unevaluatedProperties":7}', "unevaluatedProperties" },
  { '{"unevaluatedItems":"x"}', "unevaluatedItems" }, { '{"$anchor":"a b"}', "$anchor" }, { '{"$id":7}', "$id" },
  { '{"$id":"a#b"}', "$id" }, { '{"$dynamicRef":"#a"}', "$dynamicRef" }, { '{"$dynamicAnchor":7}', "$dynamicAnchor" },
  { '{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}', "$defs.b.$anchor" },
  { '{"$defs":{"a":{"$id":"x"},"b":{"$id":"x"}}}', "$defs.b.$id" },
  { '{"definitions":{}}', "definitions" }, { '{"dependencies":{}}', "dependencies" }, { '{"additionalItems":false}',
    "additionalItems" },
  { '{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","definitions":{"a":{}},"minLength":1}',
    "minLength" },
  { '{"$schema":"http://json-schema.org/draft-07/schema#","prefixItems":[{}]}', "prefixItems" },
  { '{"$schema":"http://json-schema.org/draft-07/schema#","additionalItems":false}', "additionalItems" },
  { '{"minLength":-1}', "minLength" }, { '{"minimum":2,"maximum":1}', "minimum" }, { '{"minItems":2,"maxItems":1}', "minItems" },
   { '{"maxItems":1.5}', "maxItems" },
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
  { '{"$ref":"#/properties/b","properties":{"a":{}}}', "$ref" }, { '{"$ref":"#/required","required":["a"]}', "$ref" },
  { '{"$ref":"#b"}', "$ref" }, { '{"$ref":7}', "$ref" },
  { '{"$schema":"https://json-schema.org/draft/2019-09/schema"}', "$schema" },
  { '{"properties":{"a":{"$schema":"http://json-schema.org/draft-07/schema#"}}}', "properties.a.$schema" },
  { '{"$ref":"#"}', "$ref" }, { '{"not":{"$ref":"#"}}', "not.$ref" },
  { '{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{},{"$ref":"#/$defs/a"}]}},"items":{"$ref":"#/$defs/a"}}',
    "$defs.b.anyOf.2.$ref" },
}

local function each(values, fn)
  for value in values:gmatch "[^|]+" do fn(value, json.decode(value)) end
end

describe("a JSON Schema", function()
  for _, row in ipairs(ROWS) do
    it(row[1], function()
      local validator, faults = compile(row[1])
      assert(validator, faults and faults[1] and faults[1].text)
      each(row[2], function(text, value) assert.is_nil((check(validator, value)), text .. " fits") end)
      each(row[3], function(text, value)
        local at, expected = check(validator, value)
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
    assert.are.same({ "/a/2", "at most 3" }, { check(validator, json.decode '{"a":[1,4],"b":1}') })
    assert.are.same({ "/b", "given" }, { check(validator, json.decode '{"a":[1]}') })
    local _, misfit = validator:check(json.decode '{"a":[1,4],"b":1}')
    assert.are.same({ "maximum", "/a/2 must be at most 3", 2 }, { misfit.keyword, misfit.message, misfit.known })
  end)

  it("says no name of a value that the schema has not", function()
    local validator = compile [[{"properties":{"a":{"additionalProperties":{"items":{"type":"integer"}}}},
      "patternProperties":{"^k":false}}]]
    local _, misfit = validator:check(json.decode '{"a":{"z":[1],"secret":[1,"x"],"y":["x"]}}')
    assert.are.same({ { "a", "secret", 2 }, 1, "/a/?/? must be integer" }, { misfit.path, misfit.known, misfit.message })
    _, misfit = validator:check(json.decode '{"k2":1,"k1":1}')
    assert.are.same({ { "k1" }, 0, "/? must be left out" }, { misfit.path, misfit.known, misfit.message })
  end)

  it("leaves no path of a branch behind that was only tried", function()
    local validator = compile [[{"anyOf":[{"properties":{"a":{"items":{"type":"integer"}}}},{"required":["b"]}],
      "contains":{"x-n":0},"oneOf":[{"properties":{"a":{"additionalProperties":false}}}],"properties":{"c":{"type":"null"}}}]]
    assert.are.same({ "" }, { (check(validator, json.decode '{"a":["x"]}')) })
    assert.are.same({ "/c" }, { (check(validator, json.decode '{"a":[1],"c":1}')) })
  end)

  it("takes an empty table of Lua for both, an object and a list, where values are of Lua", function()
    local of_lua = { is_of_lua = true }
    assert.is_nil((check(compile('{"type":"object"}', of_lua), {})))
    assert.is_nil((check(compile('{"type":"array"}', of_lua), {})))
    assert.is_string((check(compile('{"type":"array"}'), {})))
    assert.is_string((check(compile('{"type":"object"}', of_lua), json.array {})))
  end)

  it("passes over what it does not know where nobody is strict", function()
    local loose = { is_strict = false }
    for _, text in ipairs { '{"typo":1}', '{"then":false}', '{"minContains":2}', '{"format":"uuid"}', '{"enum":[]}' } do
      assert(compile(text, loose))
    end
    assert.is_nil((check(compile('{"typo":false,"then":false,"format":"uuid"}', loose), "x")))
    assert.is_string((check(compile('{"enum":[]}', loose), "x")))
  end)

  it("takes 1e300 for an integer, as JSON Schema does, but for who wants 64 bits", function()
    assert.is_nil((check(compile '{"type":"integer"}', 1e300)))
    assert.are.same({ "", "integer" }, { check(compile('{"type":"integer"}', { is_int64 = true }), 1e300) })
    assert.is_nil((check(compile('{"type":["integer","null"]}', { is_int64 = true }), 3.0)))
  end)

  it("checks the formats that it is given, and no other", function()
    local validator = compile('{"format":"even"}', { formats = { even = function(text) return #text % 2 == 0 end } })
    assert.are.same({ "", "a text of the format even" }, { check(validator, "abc") })
    assert.is_nil((check(validator, "ab")))
    assert.is_nil((check(validator, 7)))
  end)

  it("names the keyword that was probably meant", function()
    local _, faults = compile '{"minlength":1}'
    assert.are.equal("`minlength` of a JSON Schema is not known; did you mean `minLength`?", faults[1].text)
    _, faults = compile '{"properties":{"x":{"dependencies":{}}}}'
    assert.are.equal("`dependencies` of a JSON Schema is refused: write dependentRequired or dependentSchemas", faults[1].text)
  end)

  it("holds nothing that JSON lacks", function()
    for _, schema in ipairs { { enum = { print } }, { const = 0 / 0 }, { maximum = math.huge }, { const = { [2] = 1 } },
      { enum = { { a = print } } } } do
      assert.is_nil((json_schema.compile(schema)))
    end
  end)

  it("refuses a table that holds itself, and takes one that stands twice", function()
    local part = { type = "integer" }
    assert(json_schema.compile({ properties = { a = part, b = part } }))
    part.items = part
    local _, faults = json_schema.compile(part)
    assert.are.equal("the schema holds itself; write a `$ref`", faults[1].text)
  end)
end)

describe("a check", function()
  it("goes so deep and no deeper", function()
    local validator = compile '{"properties":{"a":{"$ref":"#"}}}'
    local value = {}
    for _ = 1, 120 do value = { a = value } end
    assert.is_nil((check(validator, value)))
    for _ = 1, 1000 do value = { a = value } end
    assert.are.same({ "", "nested less deeply" }, { check(validator, value) })
    assert.is_string((check(compile('{"not":{"properties":{"a":{"$ref":"#"}}}}'), value)))
    local _, expected = check(compile '{"uniqueItems":true}', json.array { value })
    assert.are.equal("nested less deeply", expected)
    assert.is_nil((json_schema.compile { const = value }))
  end)

  it("ends, whatever schema and value are", function()
    local branches = {}
    for i = 1, 30 do branches[i] = '{"items":{"$ref":"#"},"minItems":1,"type":"array"}' end
    local nested = json.decode(("["):rep(30) .. "[]" .. ("]"):rep(30))
    local _, expected = check(compile('{"anyOf":[' .. table.concat(branches, ",") .. "]}"), nested)
    assert.are.equal("smaller: it takes too long to check", expected)
    -- Each of 60 definitions asks the next one twice.
    local defs = {}
    for i = 1, 60 do defs[i] = ('"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]}'):format(i, i + 1, i + 1) end
    local doubling = compile('{"$ref":"#/$defs/1","$defs":{' .. table.concat(defs, ",") .. ',"61":{"type":"integer"}}}')
    assert.is_string((check(doubling, 1)))
    local part = { type = "integer" }
    for _ = 1, 40 do part = { allOf = { part, part } } end
    assert.is_string((check(json_schema.compile(part), 1)))
  end)

  it("finds an entry that is twice among very many, at a cost that grows with them alone", function()
    local list = json.array {}
    for i = 1, 20000 do list[i] = { id = i, at = json.array { i } } end
    local validator = compile '{"uniqueItems":true}'
    assert.is_nil((check(validator, list)))
    list[20001] = { at = json.array { 7.0 }, id = 7 }
    assert.are.same({ "", "no entry twice" }, { check(validator, list) })
    assert.is_nil((check(validator, json.decode '[1,true,"1",[1],["1"],{"1":1},null,"[1,]",0,false]')))
  end)

  it("does not take an undecided pattern for a yes, nor its negation", function()
    local function regex() return { matches = function() return nil, "limit" end } end
    for _, schema in ipairs { { pattern = "x" }, { ["not"] = { pattern = "x" } }, { patternProperties = { x = {} } },
      { ["if"] = { pattern = "x" }, ["then"] = {} }, { additionalProperties = true, patternProperties = { x = true } },
      { oneOf = { { pattern = "x" }, {} } }, { contains = { pattern = "x" } }, { propertyNames = { pattern = "x" } } } do
      local validator = assert(json_schema.compile(schema, { regex = regex }))
      local value = "text"
      if schema.patternProperties or schema.propertyNames then value = { a = 1 } end
      if schema.contains then value = json.array { "a" } end
      assert.are.same({ "", "a text that its pattern can be held against within the limits" }, { check(validator, value) })
    end
  end)

  it("passes on what a function of an extension raises", function()
    local validator = json_schema.compile({ mine = true }, { extensions = { mine = function()
      return function() error("broken", 0) end
    end } })
    assert.has_error(function() validator:check(1) end, "broken")
  end)
end)

describe("a schema", function()
  it("is bounded in depth, in size, in lists and in regular expressions", function()
    local function refused(schema)
      local validator, faults = json_schema.compile(schema)
      assert.is_nil(validator)
      return faults[1].text
    end
    local too_large = "the schema is too large or too deep; make it smaller"
    assert.are.equal(too_large, refused(json.decode(('{"not":'):rep(100) .. "{}" .. ("}"):rep(100))))
    local wide, patterns, list = {}, {}, json.array {}
    for i = 1, 2001 do wide["p" .. i] = { type = "string" } end
    assert.are.equal(too_large, refused { properties = wide })
    for i = 1, 257 do patterns["p" .. i] = true end
    assert.are.equal("there are more than 256 regular expressions; leave some out", refused { patternProperties = patterns })
    for i = 1, 10001 do list[i] = i end
    assert.are.equal("it takes a list of values, at most 10000; write one", refused { enum = list })
    assert.truthy(refused { pattern = ("a"):rep(5000) }:find("the regular expression is none", 1, true))
  end)

  it("has its faults named, as many as there are up to a hundred, in the order of their places", function()
    local properties = {}
    for i = 1, 200 do properties[("p%03d"):format(i)] = { type = "strin" } end
    local _, faults = json_schema.compile { properties = properties }
    assert.are.equal(100, #faults)
    assert.are.same({ "properties", "p001", "type" }, faults[1].path)
  end)
end)
