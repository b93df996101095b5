--- Schemas: what is published of them, what arguments they take, what answers satisfy them.

local core = require "demilune.core"
local errors = require "demilune.errors"
local schema = require "demilune.schema"

local json = core.json
local UUID = "00000000-0000-4000-8000-000000000000"

local function input(properties, required)
  return { type = "object", properties = properties, required = required, additionalProperties = false }
end

local function fault_of(node, arguments)
  local ok, err = pcall(schema.check, node, arguments)
  assert.is_false(ok)
  assert.is_true(errors.is(err), tostring(err))
  return err
end

describe("arguments", function()
  it("of format uuid are UUIDs of any version, in either case", function()
    local node = input { id = { type = "string", format = "uuid" } }
    for _, good in ipairs { UUID, "ABCDEF01-2345-6789-abcd-ef0123456789" } do
      assert.are.equal(good, schema.check(node, { id = good }).id)
    end
    for _, bad in ipairs {
      "", "x", UUID .. "0", UUID:sub(2), "{" .. UUID .. "}", UUID:gsub("%-", ""), "0000000-00000-4000-8000-000000000000",
      "g0000000-0000-4000-8000-000000000000", "000000000-000-4000-8000-000000000000", UUID .. "\n",
      "00000000-0000-4000-8000-00000000000\0",
    } do
      local err = fault_of(node, { id = bad })
      assert.are.equal("id", err.field)
      if not bad:find "\0" then assert.are.same({ "UUID", "id must be a UUID." }, { err.expected, err.message }) end
    end
  end)

  it("are integers within bounds, whichever of them there are", function()
    local node = input {
      a = { type = "integer", exclusiveMinimum = 0, maximum = 24 }, b = { type = "integer" },
      c = { type = "integer", maximum = 5 }, d = { type = "integer", exclusiveMinimum = 3 },
    }
    assert.are.same({ a = 1, b = -7, c = 5, d = 4 }, schema.check(node, { a = 1.0, b = -7, c = 5, d = 4 }))
    assert.are.equal("integer from 1 to 24", fault_of(node, { a = 0 }).expected)
    assert.are.equal("integer from 1 to 24", fault_of(node, { a = 25 }).expected)
    assert.are.equal("integer", fault_of(node, { b = 1.5 }).expected)
    assert.are.equal("integer of at most 5", fault_of(node, { c = 6 }).expected)
    assert.are.equal("integer of at least 4", fault_of(node, { d = 3 }).expected)
    assert.are.equal("a", fault_of(node, { a = true }).field)
  end)

  it("that are null count as absent, and unknown ones are refused by name", function()
    local node = input({ id = { type = "string", format = "uuid" } }, { "id" })
    assert.are.equal("id is required.", fault_of(node, { id = json.null }).message)
    assert.are.equal("_meta", fault_of(node, { id = UUID, _meta = {} }).field)
  end)
end)

describe("the published form", function()
  it("keeps keywords of either draft and drops ours at every level", function()
    local node = {
      ["$schema"] = "http://json-schema.org/draft-07/schema#", description = "d", type = "object", is_sealed = true, nulls = {},
      properties = {
        a = {
          anyOf = { { type = "string", format = "uuid", bytes = 9 }, { type = "null", description = "n" } }, description = "e",
        },
        b = { type = { "string", "null" }, bytes = 5 }, c = { type = "integer", exclusiveMinimum = 0 },
        bytes = { type = "object", properties = { d = { type = "string", check = print } }, required = { "d" } },
      },
    }
    local shown = json.decode(json.encode(schema.public(node)))
    assert.are.same({
      ["$schema"] = "http://json-schema.org/draft-07/schema#", description = "d", type = "object",
      properties = {
        a = { anyOf = { { type = "string", format = "uuid" }, { type = "null", description = "n" } }, description = "e" },
        b = { type = { "string", "null" } }, c = { type = "integer", exclusiveMinimum = 0 },
        bytes = { type = "object", properties = { d = { type = "string" } }, required = { "d" } },
      },
    }, shown)
    assert.truthy(json.encode(schema.public(node)):find('"anyOf":[', 1, true))
  end)
end)

describe("answers", function()
  local NODE = {
    type = "object", required = { "id", "n", "maybe" }, additionalProperties = false,
    properties = {
      id = { type = "string", format = "uuid" }, n = { type = "integer", minimum = 0, maximum = 9 },
      maybe = { anyOf = { { type = "integer", exclusiveMinimum = 0 }, { type = "null" } } },
      word = { type = "string", enum = { "a", "b" }, bytes = 3 }, either = { type = { "string", "null" }, bytes = 3 },
      list = { type = "array", items = { type = "integer" } },
      inner = {
        type = "object", properties = { x = { type = "integer", minimum = 0 } }, required = { "x" }, additionalProperties = false,
      },
    },
  }

  local function fault(text) return schema.fault(NODE, json.decode(text)) end

  local function with(more) return ('{"id":"%s","n":1,"maybe":null%s}'):format(UUID, more and "," .. more or "") end

  it("that satisfy a schema have no fault", function()
    for _, more in ipairs {
      '"word":"a"', '"either":null', '"either":"abc"', '"list":[]', '"list":[1,2]', '"inner":{"x":0}',
    } do
      assert.is_nil(fault(with(more)), more)
    end
    assert.is_nil(fault(with()))
    assert.is_nil(fault(('{"id":"%s","n":9,"maybe":3}'):format(UUID)))
  end)

  it("that do not are named by the path of what is wrong, never by its value", function()
    for text, path in pairs {
      ["[]"] = "", ['"x"'] = "", ["null"] = "", ["{}"] = "/id", [with '"word":"c"'] = "/word", [with '"word":null'] = "/word",
      [with '"either":"abcd"'] = "/either", [with '"either":1'] = "/either", [with '"list":{}'] = "/list",
      [with '"list":[1,"x"]'] = "/list/2", [with '"inner":[]'] = "/inner", [with '"inner":{}'] = "/inner/x",
      [with '"inner":{"x":-1}'] = "/inner/x", [with '"inner":{"x":1,"secret":2}'] = "/inner/?", [with '"secret":1'] = "/?",
      [('{"id":"%s","n":1.5,"maybe":null}'):format(UUID)] = "/n", [('{"id":"%s","n":10,"maybe":null}'):format(UUID)] = "/n",
      [('{"id":"%s","n":1,"maybe":0}'):format(UUID)] = "/maybe", [('{"id":"%s","n":1,"maybe":"1"}'):format(UUID)] = "/maybe",
      ['{"id":"no","n":1,"maybe":null}'] = "/id", ['{"id":true,"n":1,"maybe":null}'] = "/id",
      [('{"id":"%s","n":1}'):format(UUID)] = "/maybe",
    } do
      assert.are.equal(path, fault(text), text)
    end
  end)

  it("are pruned of what a schema does not name, at every level, and of optional nulls that it does not take", function()
    local value = json.decode(('{"id":"%s","n":2.0,"maybe":null,"secret":{"a":1},"word":null,"either":null,"list":null,'
      .. '"inner":{"x":1,"key":"k"}}'):format(UUID))
    local pruned = schema.prune(NODE, value)
    assert.are.same({ id = UUID, n = 2, maybe = json.null, either = json.null, inner = { x = 1 } }, pruned)
    assert.are.equal("integer", math.type(pruned.n))
    assert.is_nil(schema.fault(NODE, pruned))
  end)

  it("keep what does not fit, so that it is found", function()
    assert.are.equal("/id", schema.fault(NODE, schema.prune(NODE, json.decode '{"id":null,"n":1,"maybe":1}')))
    assert.are.equal("", schema.fault(NODE, schema.prune(NODE, json.decode "[1]")))
    assert.are.equal("/inner", schema.fault(NODE, schema.prune(NODE, json.decode(with '"inner":[]'))))
  end)
end)
