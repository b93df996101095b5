--- The types of arguments that only operators' tools have: numbers, booleans, lists; and lengths in characters.

local core = require "demilune.core"
local schema = require "demilune.schema"

local array = core.json.array

--- What a property makes of a value, or the error.
local function check(property, value)
  local ok, out = pcall(schema.check, { properties = { x = property } }, { x = value })
  if ok then return out.x end
  return nil, out
end

local function refused(property, value, field)
  local out, err = check(property, value)
  assert.is_nil(out)
  assert.are.equal("invalid_argument", err.category)
  assert.are.equal(field or "x", err.field)
  return err.expected
end

describe("an argument", function()
  it("may be a number within bounds", function()
    local half = { type = "number", minimum = 0, maximum = 0.5 }
    assert.are.equal(0.25, check(half, 0.25))
    assert.are.equal("number from 0 to 0.5", refused(half, 0.75))
    assert.are.equal("number of at least 0", refused({ type = "number", minimum = 0 }, -1))
    assert.are.equal("number", refused({ type = "number" }, "1"))
  end)

  it("may be a boolean, false too", function()
    assert.are.equal(false, check({ type = "boolean", default = true }, false))
    assert.are.equal("boolean, true or false", refused({ type = "boolean" }, 0))
  end)

  it("may be a list of one type", function()
    local list = { type = "array", items = { type = "string", maxLength = 2 }, minItems = 1, maxItems = 2 }
    assert.are.same({ "a", "bc" }, check(list, array { "a", "bc" }))
    assert.are.equal("list of 1 to 2 strings", refused(list, array {}))
    assert.are.equal("list of 1 to 2 strings", refused(list, array { "a", "b", "c" }))
    assert.are.equal("list of 1 to 2 strings", refused(list, { a = "b" }))
    assert.are.equal("string of at most 2 characters", refused(list, array { "a", "bcd" }, "x[1]"))
    refused({ type = "array", items = { type = "integer" } }, array { core.json.null }, "x[0]")
    local choices = { type = "array", items = { type = "string", enum = { "a", "b" } } }
    assert.are.equal("one of a, b", refused(choices, array { "c" }, "x[0]"))
  end)

  it("has its length counted in characters", function()
    local pair = { type = "string", minLength = 2, maxLength = 2 }
    assert.are.equal("äö", check(pair, "äö"))
    assert.are.equal("string of at least 2 characters and at most 2 characters", refused(pair, "ä"))
    refused(pair, "abc")
  end)
end)
