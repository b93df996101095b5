--- The schemas of operators' tools: what they may be, what is refused of them, and what a caller is told.

local contract = require "demilune.own.contract"
local core = require "demilune.core"
local errors = require "demilune.errors"
local schema = require "demilune.schema"

local array = core.json.array

--- The mistakes of a tool with these schemas, as texts.
local function faults(input, output)
  local texts = {}
  local found = contract.faults {
    name = "mine", description = "Does a thing.", effect = "read", input = input, output = output, handler = function() end,
  }
  for i, one in ipairs(found) do texts[i] = one.text end
  return texts
end

--- The error of arguments.
local function refused(input, arguments)
  local ok, err = pcall(schema.check, input, arguments)
  assert.is_false(ok)
  assert.is_true(errors.is(err), tostring(err))
  return err
end

--- An input as own/tools.lua makes it.
local function input(properties, more)
  local made = { type = "object", properties = properties, additionalProperties = false }
  for key, value in pairs(more or {}) do made[key] = value end
  return made
end

describe("the schemas of an operator's tool", function()
  it("may be all of JSON Schema", function()
    local tree = {
      properties = { root = { ["$ref"] = "#/$defs/node" }, mode = { enum = { "a", "b" } }, code = { pattern = "^[A-Z]+$" } },
      required = { "root" }, dependentRequired = { code = { "mode" } },
      ["$defs"] = { node = {
        type = "object", required = { "name" }, unevaluatedProperties = false,
        properties = { name = { type = "string", maxLength = 5 }, nodes = { items = { ["$ref"] = "#/$defs/node" } } },
      } },
      ["x-ours"] = { anything = true },
    }
    assert.are.same({}, faults(tree, { properties = { n = { type = { "integer", "null" } } }, ["not"] = { required = { "m" } } }))
    local made = input(tree.properties, tree)
    local value = { root = { name = "a", nodes = array { { name = "b" } } }, code = "X", mode = "a" }
    assert.are.same(value, schema.check(made, value))
    assert.are.same({ "root.nodes[1].name", "string of at most 5 characters" }, (function()
      local err = refused(made, { root = { name = "a", nodes = array { { name = "b" }, { name = "abcdef" } } } })
      return { err.field, err.expected }
    end)())
    assert.are.equal("mode must be given beside code.", refused(made, { root = { name = "a" }, code = "X" }).message)
    assert.are.equal("root.name is required.", refused(made, { root = {} }).message)
  end)

  it("may be of draft-07", function()
    assert.are.same({}, faults {
      ["$schema"] = "http://json-schema.org/draft-07/schema#", definitions = { n = { type = "integer" } },
      properties = { pair = { items = { { ["$ref"] = "#/definitions/n" }, { type = "string" } }, additionalItems = false } },
    })
  end)

  it("are refused with the keyword's name and the way out", function()
    local cases = {
      { { properties = { x = { tipe = "string" } } },
        "input.properties.x.tipe: `tipe` of a JSON Schema is not known; did you mean `type`?" },
      { { properties = { x = { format = "date" } } },
        "input.properties.x.format: this format is not checked; write uuid, or a `pattern`" },
      { { properties = { x = { ["$ref"] = "https://a.example/x.json" } } },
        "input.properties.x.$ref: it leads out of the schema, and nothing is fetched; put the definition into `$defs`" },
      { { properties = { x = { type = "string", default = 1 } } },
        "input.properties.x.default: it does not satisfy its own schema; write string" },
      { { properties = { x = { items = { default = 1 } } } }, "input.properties.x.items.default: `default` of a JSON Schema is "
        .. "refused: it is filled in for an argument alone; put it in where the handler reads the value" },
      { { properties = { x = { type = "array", default = {} } } }, "input.properties.x.default: `default` of a JSON Schema is "
        .. "refused: it is a table; put it in where the handler reads the argument" },
      { { properties = { x = { type = "string", check = true } } },
        "input.properties.x.check: it is no function; write one that returns what was expected, or nil" },
      { { properties = { x = { type = "string", bytes = 5 } } },
        "input.properties.x.bytes: `bytes` of a JSON Schema is not held here; leave it out" },
      { { properties = { x = { minimum = 2, maximum = 1 } } },
        "input.properties.x.minimum: it is more than its maximum; turn them round" },
      { { properties = { ["1x"] = {} } },
        "input.properties.1x: it is no name of an argument; write a letter, then letters, digits, _ and -" },
      { { properties = { x = true } }, 'input.properties.x: it is no schema; write { type = "string" }' },
      { { patternProperties = {} }, "input.patternProperties: it is not served here; name every argument in `properties`" },
      { { additionalProperties = true }, "input.additionalProperties: it is not served; name every argument in `properties`" },
      { { required = { "y" } }, "input.required.1: it is y, which is none of the properties; name it there" },
      { { type = "array" }, 'input.type: it is not "object"; write that, or leave it out' },
      { 7, "input: it is no schema; write { properties = { … } }" },
    }
    for _, case in ipairs(cases) do assert.are.same({ case[2] }, faults(case[1])) end
    assert.are.same({ "output.properties.x.default: `default` of a JSON Schema is refused: a result has what its handler "
      .. "returns; put it in there" }, faults(nil, { properties = { x = { default = 1 } } }))
    assert.are.same({ "output.properties.x.check: `check` of a JSON Schema is not held here; leave it out" },
      faults(nil, { properties = { x = { check = print } } }))
  end)

  it("have at most 64 arguments", function()
    local properties = {}
    for i = 1, 65 do properties["a" .. i] = {} end
    assert.are.same({ "input.properties: it has more than 64 names; leave some out" }, faults { properties = properties })
  end)
end)

describe("an argument that does not fit", function()
  it("is said in words of its schema", function()
    for _, case in ipairs {
      { { type = "integer", multipleOf = 5 }, 7, "integer, a multiple of 5" },
      { { type = "integer", exclusiveMinimum = 1, exclusiveMaximum = 5 }, 5, "integer from 2 to 4" },
      { { type = "string", pattern = "^a" }, "b", "string, a text that fits the schema's pattern" },
      { { type = { "string", "null" } }, 1, "string or null" },
      { { enum = { "a", 1 } }, "b", "one of a, 1" },
      { { const = 3 }, 4, "the one value that the schema names" },
      { { type = "array", items = { type = "object" }, uniqueItems = true }, array { {}, {} }, "list of objects, no entry twice" },
      { { type = "array", items = {}, minItems = 2 }, array { 1 }, "list of 2 or more entries" },
      { { type = "object", maxProperties = 1 }, { a = 1, b = 2 }, "object, at most 1 entries" },
      { { anyOf = { { type = "string" }, { type = "null" } } }, 1, "one of the forms that the schema names" },
      { { ["not"] = { type = "integer" } }, 1, "another form" },
    } do
      local err = refused({ properties = { x = case[1] } }, { x = case[2] })
      assert.are.equal(case[3], err.expected)
      assert.are.equal("x", err.field)
    end
  end)

  it("does not have its own names repeated", function()
    local err = refused(input { m = { type = "object", additionalProperties = { type = "string" } } }, { m = { secret = 1 } })
    assert.are.same({ "m", "object of strings", "m must be an object of strings." }, { err.field, err.expected, err.message })
    err = refused(input { m = { type = "object", patternProperties = { ["^a"] = { items = { type = "integer" } } } } },
      { m = { abc = array { "x" } } })
    assert.are.equal("m must be an object, each entry as its schema says.", err.message)
    err = refused(input { m = { type = "object" } }, { m = { secret = "a\0" } })
    assert.are.equal("m must not contain NUL.", err.message)
  end)

  it("may concern all of them", function()
    local err = refused(input({ a = {}, b = {} }, { anyOf = { { required = { "a" } }, { required = { "b" } } } }), {})
    assert.is_nil(err.field)
    assert.are.equal("The arguments must be one of the forms that the schema names.", err.message)
  end)
end)

describe("arguments", function()
  it("keep a null that their schema takes, and lose another", function()
    local made = input { a = { type = { "string", "null" } }, b = { type = "string" }, c = {} }
    assert.are.same({ a = core.json.null, c = core.json.null },
      schema.check(made, { a = core.json.null, b = core.json.null, c = core.json.null }))
  end)

  it("have whole numbers at every depth, without a change of what was given", function()
    local given = { l = array { 1.0, array { 2.0, 0.5 } }, m = { k = 3.0, s = "x" } }
    local made = schema.check(input { l = { type = "array" }, m = { type = "object" } }, given)
    assert.are.same({ "integer", "integer", "float", "integer" },
      { math.type(made.l[1]), math.type(made.l[2][1]), math.type(made.l[2][2]), math.type(made.m.k) })
    assert.are.equal("[1,[2,0.5]]", core.json.encode(made.l))
    assert.are.equal("float", math.type(given.l[1]))
  end)
end)

describe("what clients see of a schema", function()
  it("is the whole of it, with its lists as lists, but for keywords of ours at places of schemas", function()
    local node = {
      properties = { check = { check = print, items = { { bytes = 1 }, {} } } }, required = {},
      ["$defs"] = { bytes = { prefixItems = { { is_filled = true, type = "string" } }, ["not"] = { enum = { "a" }, bytes = 1 } } },
      dependentRequired = { a = { "b" } }, dependentSchemas = { a = { bytes = 1, const = { bytes = 1 } } },
      additionalProperties = false, ["if"] = true, examples = {},
    }
    assert.are.equal('{"$defs":{"bytes":{"not":{"enum":["a"]},"prefixItems":[{"type":"string"}]}},"additionalProperties":false,'
      .. '"dependentRequired":{"a":["b"]},"dependentSchemas":{"a":{"const":{"bytes":1}}},"examples":[],"if":true,'
      .. '"properties":{"check":{"items":[{},{}]}},"required":[]}', core.json.encode(schema.public(node)))
  end)
end)
