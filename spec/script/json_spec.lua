--- core.json: what comes in, what goes out, and what survives the way in and out.

local core = require "demilune.core"
local json = core.json
local cjson = require "cjson"

local function deep(depth, open, close)
  return open:rep(depth) .. close:rep(depth)
end

describe("json.decode", function()
  it("keeps every kind of value apart", function()
    local value = json.decode '{"n":null,"t":true,"f":false,"i":1,"r":1.5,"one":1.0,"s":"x","a":[],"o":{}}'
    assert.are.equal(json.null, value.n)
    assert.are.equal(cjson.null, value.n)
    assert.is_true(value.t)
    assert.is_false(value.f)
    assert.are.equal("integer", math.type(value.i))
    assert.are.equal(1.5, value.r)
    assert.are.equal("float", math.type(value.one))
    assert.are.equal("[]", json.encode(value.a))
    assert.are.equal("{}", json.encode(value.o))
  end)

  it("takes a value of any kind at the top", function()
    for text, expected in pairs { ["1"] = 1, ['"a"'] = "a", ["true"] = true, [" null "] = json.null } do
      assert.are.equal(expected, json.decode(text))
    end
  end)

  local FAULTS = {
    { "", "syntax" }, { " ", "syntax" }, { "{", "syntax" }, { "}", "syntax" }, { "[1,]", "syntax" },
    { '{"a":1,}', "syntax" }, { "[1 2]", "syntax" }, { "01", "syntax" }, { "1.", "syntax" }, { ".5", "syntax" },
    { "+1", "syntax" }, { "NaN", "syntax" }, { "Infinity", "syntax" }, { "nul", "syntax" }, { "True", "syntax" },
    { "'a'", "syntax" }, { '"\t"', "syntax" }, { '"\\x"', "syntax" }, { '"\\u12"', "syntax" }, { "1 1", "syntax" },
    { "[}", "syntax" }, { "{]", "syntax" }, { '{1:2}', "syntax" }, { '{"a"}', "syntax" }, { "// c\n1", "syntax" },
    { '"\\ud83d"', "syntax" }, { '"\\ude00"', "syntax" }, { '"\\ud83dx"', "syntax" }, { '"\\ud83d\\ud83d"', "syntax" },
    { '"\xFF"', "syntax" }, { '"\xC0\x80"', "syntax" }, { '"\xED\xA0\x80"', "syntax" }, { '"\xF4\x90\x80\x80"', "syntax" },
    { '"\xE2\x82"', "syntax" }, { "1\0", "syntax" }, { "[1\0]", "syntax" }, { '{"a":1\0}', "syntax" }, { '{"a\\u0000b":1}',
      "syntax" }, { "\xEF\xBB\xBF1", "syntax" },
    { "9223372036854775808", "out_of_range" }, { "-9223372036854775809", "out_of_range" }, { "1e999", "out_of_range" },
    { '{"a":[123456789012345678901234567890]}', "out_of_range" },
  }
  for _, case in ipairs(FAULTS) do
    it(("refuses %q as %s"):format(case[1], case[2]), function()
      local value, fault = json.decode(case[1])
      assert.is_nil(value)
      assert.are.equal(case[2], fault)
    end)
  end

  it("keeps the ends of int64", function()
    assert.are.equal(math.maxinteger, json.decode "9223372036854775807")
    assert.are.equal(math.mininteger, json.decode "-9223372036854775808")
    assert.are.equal("[9223372036854775807,-9223372036854775808]", json.encode { math.maxinteger, math.mininteger })
  end)

  it("takes 128 levels of nesting and not 129", function()
    for _, kind in ipairs { { "[", "]" }, { '{"a":', "}" } } do
      local inner = kind[1] == "[" and "" or "1"
      for depth, fits in pairs { [127] = true, [128] = true, [129] = false, [100000] = false } do
        local value, fault = json.decode(kind[1]:rep(depth) .. inner .. kind[2]:rep(depth))
        assert.are.equal(fits, value ~= nil)
        if not fits then assert.are.equal("over_limit", fault) end
      end
    end
    assert.are.equal("over_limit", select(2, json.decode(deep(129, "[", "]"))))
  end)

  it("takes 200,000 values, keys among them, and not one more", function()
    assert.are.equal(199999, #json.decode("[" .. ("1,"):rep(199998) .. "1]"))
    assert.are.equal("over_limit", select(2, json.decode("[" .. ("1,"):rep(199999) .. "1]")))
    local members = {}
    for i = 1, 100000 do members[i] = ('"%d":1'):format(i) end
    assert.are.equal("over_limit", select(2, json.decode("{" .. table.concat(members, ",") .. "}")))
  end)

  it("refuses 16 MiB of [], without taking memory for it", function()
    local text = "[" .. ("[],"):rep(16 * 1024 * 1024 // 3) .. "[]]"
    local function resident_kb()
      for line in io.lines "/proc/self/status" do
        local kb = line:match "^VmRSS:%s*(%d+)"
        if kb then return tonumber(kb) end
      end
    end
    local before = resident_kb()
    assert.are.equal("over_limit", select(2, json.decode(text)))
    assert.is_true(resident_kb() - before < 16384)
  end)

  it("takes the last of two members with one name", function()
    assert.are.equal(2, json.decode('{"a":1,"a":2}').a)
  end)
end)

describe("json.encode", function()
  local VALUES = {
    { "an empty table", {}, "{}" }, { "an empty array", json.array(), "[]" }, { "null", json.null, "null" }, { "nil", nil, "null" },
    { "an integral float", 1.0, "1" }, { "a negative zero", -0.0, "0" }, { "2^53", 2.0 ^ 53, "9007199254740992.0" },
    { "a fraction", 0.5, "0.5" }, { "1e300", 1e300, "1.0000000000000001e300" },
    { "sorted keys", { b = 1, a = 2 }, '{"a":2,"b":1}' }, { "a list", { 1, "x", false }, '[1,"x",false]' },
    { "an array with holes", json.array { 1, nil, 3 }, "[1,null,3]" },
    { "control characters", "\0\1\n\r\t\127", '"\\u0000\\u0001\\n\\r\\t\127"' },
    { "what ends lines for some readers", "a\u{2028}b\u{2029}c", '"a\\u2028b\\u2029c"' },
    { "neighbours of these", "\u{2027}\u{202A}", '"\u{2027}\u{202A}"' }, { "a key with one", { ["\u{2028}"] = 1 },
      '{"\\u2028":1}' },
    { "text beyond ASCII", "äß😀", '"äß😀"' }, { "bytes that are no text", "a\xFFb\xE2\x82", '"a\u{FFFD}b\u{FFFD}"' },
    { "a key that is no text", { ["\xFF"] = 1 }, '{"\u{FFFD}":1}' }, { "a slash", "</script>", '"</script>"' },
  }
  for _, case in ipairs(VALUES) do
    it("writes " .. case[1], function()
      local text = json.encode(case[2])
      if case[1] == "1e300" then assert.are.equal(1e300, json.decode(text)) else assert.are.equal(case[3], text) end
    end)
  end

  local cycle = {}
  cycle[1] = cycle
  local REFUSED = {
    { "a function", print }, { "a userdata", io.stdout }, { "a task's handle", core.task.spawn(function() end) },
    { "NaN", 0 / 0 }, { "infinity", math.huge }, { "a table that holds itself", cycle }, { "a key that is a number",
      { [1.5] = 1 } },
    { "a list with a name in it", { 1, 2, x = 3 } }, { "a boolean key", { [true] = 1 } }, { "a coroutine",
      coroutine.create(print) },
  }
  for _, case in ipairs(REFUSED) do
    it("raises for " .. case[1], function()
      assert.has_error(function() json.encode(case[2]) end)
      assert.has_error(function() json.encode { a = { case[2] } } end)
    end)
  end

  it("writes 128 levels and not 129", function()
    local function nested(depth)
      local value = json.array()
      for _ = 2, depth do value = json.array { value } end
      return value
    end
    assert.are.equal(deep(128, "[", "]"), json.encode(nested(128)))
    assert.has_error(function() json.encode(nested(129)) end)
  end)

  it("writes what an independent reader reads alike, from a thousand random values", function()
    math.randomseed(7)
    local function value(depth)
      local kind = math.random(depth > 4 and 5 or 7)
      if kind == 1 then return math.random(0) end
      if kind == 2 then return math.random() * 1e6 end
      if kind == 3 then return math.random() < 0.5 end
      if kind == 4 then return json.null end
      if kind == 5 then
        local bytes = {}
        for i = 1, math.random(0, 12) do bytes[i] = utf8.char(math.random(0, 0xD7FF)) end
        return table.concat(bytes)
      end
      local out = kind == 6 and json.array() or {}
      for i = 1, math.random(0, 5) do out[kind == 6 and i or "k" .. i] = value(depth + 1) end
      return out
    end
    for _ = 1, 1000 do
      local one = { v = value(1) }
      local text = json.encode(one)
      assert.are.same(one, json.decode(text))
      assert.are.equal(text, json.encode(json.decode(text)))
      assert.is_table(cjson.decode(text))
      assert.is_nil(text:find "[\n\r]")
    end
  end)
end)
