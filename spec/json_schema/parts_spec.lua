--- The parts of the validator that are right or wrong by themselves: references, decimals, patterns, equality.

local core = require "demilune.core"
local decimal = require "demilune.json_schema.decimal"
local patterns = require "demilune.json_schema.patterns"
local uri = require "demilune.json_schema.uri"
local values = require "demilune.json_schema.values"

local json = core.json

describe("a reference", function()
  it("is resolved as RFC 3986, section 5.4, has it", function()
    local base = "http://a/b/c/d;p?q"
    for reference, wanted in pairs {
      ["g:h"] = "g:h", g = "http://a/b/c/g", ["./g"] = "http://a/b/c/g", ["g/"] = "http://a/b/c/g/", ["/g"] = "http://a/g",
      ["//g"] = "http://g", ["?y"] = "http://a/b/c/d;p?y", ["g?y"] = "http://a/b/c/g?y", [";x"] = "http://a/b/c/;x",
      [""] = "http://a/b/c/d;p?q", ["."] = "http://a/b/c/", ["./"] = "http://a/b/c/", [".."] = "http://a/b/",
      ["../"] = "http://a/b/", ["../g"] = "http://a/b/g", ["../.."] = "http://a/", ["../../g"] = "http://a/g",
      ["../../../g"] = "http://a/g", ["/./g"] = "http://a/g", ["/../g"] = "http://a/g", ["g."] = "http://a/b/c/g.",
      ["..g"] = "http://a/b/c/..g", ["./../g"] = "http://a/b/g", ["g/./h"] = "http://a/b/c/g/h", ["g/../h"] = "http://a/b/c/h",
    } do
      assert.are.equal(wanted, (uri.resolve(base, reference)), reference)
    end
  end)

  it("has a fragment, which is a JSON pointer or a name", function()
    assert.are.same({ "http://a/b", "x" }, { uri.resolve("http://a/b", "#x") })
    assert.are.same({ "urn:x:y", "/a" }, { uri.resolve("urn:x:y#old", "#/a") })
    assert.are.same({ "b", "" }, { uri.resolve("", "b#") })
    assert.are.same({ "a/b", "~", "", "%" }, uri.pointer "/a~1b/~0//%25")
    assert.are.same({}, uri.pointer "")
    assert.is_nil(uri.pointer "name")
    assert.is_nil(uri.pointer "/a~2")
  end)
end)

describe("a multiple", function()
  it("is one of the numbers as they are written", function()
    for _, pair in ipairs {
      { 0.3, 0.1 }, { 4.02, 0.01 }, { 0.0075, 0.0001 }, { 1e308, 0.5 }, { 12391239123, 1e-8 }, { 0, 3.5 }, { -7.5, 2.5 },
      { 9007199254740993, 3 }, { 9007199254740993 * 2, 2.0 }, { 1e22, 5 }, { 1e300, 1e299 }, { 3.0, 1.5 }, { 10, 2.5 },
      { 123456789012.5, 0.5 }, { 1e20, 100000000000 },
    } do
      assert.is_true(decimal.is_multiple(pair[1], pair[2]), ("%s of %s"):format(pair[1], pair[2]))
    end
    for _, pair in ipairs {
      { 0.35, 0.1 }, { 0.00751, 0.0001 }, { 1e308, 0.123456789 }, { 4.5, 2 }, { 1, 1.5 }, { 9007199254740993, 2 },
      { 5e-324, 1 }, { 1e22, 7 }, { 1, math.maxinteger }, { 1e300, 9007199254740993 },
    } do
      assert.is_false(decimal.is_multiple(pair[1], pair[2]), ("%s of %s"):format(pair[1], pair[2]))
    end
    assert.is_false(decimal.is_multiple(math.huge, 2))
  end)
end)

describe("a pattern", function()
  local function matches(pattern, text) return (assert(core.regex.new(patterns.translate(pattern))):matches(text)) end

  it("means what it means in ECMA-262", function()
    for _, row in ipairs {
      { "^a$", "a", "a\n" }, { "^\\u0041\\u{1F600}\\uD83D\\uDE00$", "A😀😀", "A" }, { "^\\s$", "\u{FEFF}", "a" },
      { "^\\S$", "a", "\u{2028}" }, { "^[\\s]$", "\u{A0}", "a" }, { "^\\p{Letter}$", "é", "1" }, { "^\\P{digit}$", "x", "1" },
      { "^.$", "a", "\u{2029}" }, { "^[.$]$", "$", "a" }, { "^[[:]$", "[", "x" }, { "^\\$\\.$", "$.", "$a" }, { "^\\d$", "1", "߀" },
      { "^[^]$", "\n", "" }, { "^(a|[])$", "a", "" }, { "^\\cC$", "\3", "C" },
    } do
      assert.is_true(matches(row[1], row[2]), row[1])
      assert.is_false(matches(row[1], row[3]), row[1])
    end
  end)
end)

describe("equality", function()
  local state = { steps = 0 }

  it("is that of JSON's values", function()
    for _, pair in ipairs {
      { "1", "1.0" }, { '{"a":[1,{"b":null}]}', '{"a":[1.0,{"b":null}]}' }, { "[]", "[]" }, { "{}", "{}" }, { '""', '""' },
    } do
      local a, b = json.decode(pair[1]), json.decode(pair[2])
      assert.is_true(values.is_same(a, b, state), pair[1])
      assert.are.equal(values.key(a, state), values.key(b, state))
    end
    local all = {
      "1", "true", "false", "0", "null", '"1"', '"true"', '"null"', "[]", "{}", "[1]", '{"1":1}', '[[1]]', "[1,1]", '["1"]', "1.5",
      '"1:1"', '["a","b"]', '["a,b"]', '{"a":1}', '{"a":1,"b":1}', "9007199254740993", "9007199254740992",
    }
    for i, one in ipairs(all) do
      for k, other in ipairs(all) do
        local a, b = json.decode(one), json.decode(other)
        assert.are.equal(i == k, values.is_same(a, b, state), one .. " and " .. other)
        assert.are.equal(i == k, values.key(a, state) == values.key(b, state), one .. " and " .. other)
      end
    end
  end)

  it("of whole numbers takes floats of any size", function()
    for _, text in ipairs { "1", "1.0", "1e300", "-0.0" } do assert.is_true(values.is_whole(json.decode(text)), text) end
    for _, value in ipairs { 1.5, math.huge, "1", true } do assert.is_false(values.is_whole(value)) end
  end)
end)
