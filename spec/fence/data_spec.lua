--- What goes to policy code and comes back: plain data, nulls, lists, and long strings as views.

local core = require "demilune.core"
local fences = require "spec.fence.fences"
local json = core.json

local function args_after(body, ...)
  local outcome
  local arguments = table.pack(...)
  fences.with("local p = {} function p.f(a, b)\n" .. body .. "\nend return p", function(fence)
    outcome = assert(fence:call("f", table.unpack(arguments, 1, arguments.n)))
  end)
  return outcome.args, outcome
end

describe("arguments", function()
  it("come back as they are after the call", function()
    local view = { tool = "x", args = { n = 1, big = math.maxinteger, half = 0.5, on = false, list = { 1, { "a" } },
      text = "ä\0\xff" } }
    assert.are.same({ view, { stdout = "ok" } }, (args_after("", view, { stdout = "ok" })))
    assert.are.same({ { n = 2 }, {} }, (args_after("a.n = a.n + 1 b.gone = nil", { n = 1 }, { gone = true })))
    assert.are.same({}, (args_after ""))
    assert.are.same({ "text" }, (args_after("a = 5", "text")))
  end)

  it("do not share what the caller has", function()
    local own = { inner = { n = 1 } }
    args_after("a.inner.n = 2", own)
    assert.are.equal(1, own.inner.n)
  end)

  it("keep integers, and make integers of floats that are some", function()
    local args = args_after("a.t = 900 / 2 a.h = 1 / 2 a.s = a.s * 1.0", { s = 3, big = 2^60 })
    assert.are.equal("integer", math.type(args[1].t))
    assert.are.equal("float", math.type(args[1].h))
    assert.are.equal("integer", math.type(args[1].s))
    assert.are.equal("float", math.type(args[1].big))
  end)

  it("have nil where null was, and null where nil is left", function()
    local body = "if a.none ~= nil or a.list[2] == nil then error 'seen' end a.was = 1 a.new = nil return next(a) ~= nil"
    local args, outcome = args_after(body,
      { none = json.null, was = json.null, there = 1, list = { 1, json.null } })
    assert.is_true(outcome.value)
    assert.are.same({ none = json.null, was = 1, there = 1, list = { 1, json.null } }, args[1])
  end)

  it("keep empty lists and empty objects apart", function()
    local args = args_after("a.l[1] = nil a.new = {} a.filled[#a.filled + 1] = 'x'",
      { l = json.array { 1 }, filled = json.array {}, o = {}, empty = json.array {} })
    assert.are.equal('{"empty":[],"filled":["x"],"l":[],"new":{},"o":{}}', json.encode(args[1]))
  end)

  it("must be data", function()
    fences.with("return { f = function() end }", function(fence)
      local own = {}
      own.own = own
      for _, bad in ipairs { print, 0 / 0, { [1.5] = 1 }, { 1, nil, 3 }, own, coroutine.create(print), io.stdout } do
        assert.has_error(function() fence:call("f", bad) end)
      end
      assert.has_error(function() fence:call("f", 1, 2, 3) end)
      assert.has_error(function() fence:call(nil) end)
      assert.is_true(fence:call("f").is_nothing)
    end)
  end)

  it("that are too large are a fault of the call", function()
    fences.with("return { f = function() end }", function(fence)
      local outcome, fault = fence:call("f", ("x"):rep(33 * 1024 * 1024))
      assert.is_nil(outcome)
      assert.are.equal("value", fault.kind)
      assert.is_truthy(fence:call "f")
      assert.is_truthy(fence:call("f", ("x"):rep(31 * 1024 * 1024)))
    end)
  end)

  it("for a function that is not there are a fault", function()
    fences.with("return { f = function() end, x = 1 }", function(fence)
      assert.are.equal("the policy has no function g", select(2, fence:call "g").text)
      assert.are.equal("the policy has no function x", select(2, fence:call("x", {})).text)
      assert.is_truthy(fence:call "f")
    end)
  end)
end)

describe("a string over 64 KiB", function()
  local long = ("0123456789"):rep(7000) .. "needle" .. ("x"):rep(1000)

  local function value(body, text) return fences.value("local v = call.text " .. body, { text = text or long }) end

  it("is a view, one of 64 KiB is a string", function()
    assert.are.equal("string", value("return type(v)", ("x"):rep(65536)))
    assert.are.equal("userdata", value("return type(v)", ("x"):rep(65537)))
    assert.are.equal(#long, value "return #v")
  end)

  it("is cut as string.sub cuts, up to 64 KiB", function()
    for _, range in ipairs { { 1, 10 }, { -5, -1 }, { -5 }, { 0, 3 }, { 5, 4 }, { #long, #long + 99 }, { #long + 1, #long + 2 },
      { -#long - 5, 3 },
      { 2, 65537 }, { math.maxinteger, math.maxinteger }, { math.mininteger + 1, 2 }, { 70001, 70006 } } do
      local numbers = ("%d"):format(range[1]) .. (range[2] and (", %d"):format(range[2]) or "")
      assert.are.equal(long:sub(range[1], range[2] or -1), value(("return v:sub(%s)"):format(numbers)), numbers)
    end
    assert.are.equal("sub takes at most 64 KiB of a view at a time", select(2,
      fences.run("return call.text:sub(1, 65537)", { text = long })).text)
  end)

  it("is searched, and hashed", function()
    assert.are.same({ 70001, 70006 }, value "return { v:find_plain 'needle' }")
    assert.are.same({ 11, 12 }, value "return { v:find_plain('01', 2) }")
    assert.are.same({ 4, 3 }, value "return { v:find_plain('', 4) }")
    assert.is_nil(value "return v:find_plain 'absent'")
    assert.is_nil(value "return v:find_plain('x', #v + 2)")
    assert.are.same({ #long, #long }, value "return { v:find_plain('x', -1) }")
    assert.are.equal(core.crypto.sha256(long), value "return v:sha256()")
  end)

  it("has nothing else, and says so", function()
    local function text_of(body) return select(2, fences.run("local v = call.text " .. body, { text = long })).text end
    assert.are.equal("a text over 64 KiB is a view; it has #, sub, find_plain and sha256, and no gsub",
      text_of "v:gsub('a', 'b')")
    assert.is_truthy(text_of "v.x = 1":find("view", 1, true))
    assert.is_truthy(text_of "return v .. ''":find("attempt to concatenate a view value", 1, true))
    assert.is_truthy(text_of "return v.sub('text', 1)":find("view expected, got string", 1, true))
    assert.is_truthy(text_of "return v.sub(deny 'x', 1)":find("view expected, got decision", 1, true))
    assert.is_truthy(text_of "return ('x').find(v, 'x')":find("string expected, got view", 1, true))
  end)

  it("comes back as it was, wherever it is put", function()
    local other = ("y"):rep(100000)
    local args, outcome = args_after("a.b, a.a = a.a, a.b return { a.b, a.b }", { a = long, b = other })
    assert.are.same({ { a = other, b = long } }, args)
    assert.are.same({ long, long }, outcome.value)
    assert.are.equal(long, (select(2, args_after("return a", long)).value))
    assert.are.equal(("z"):rep(100000), (select(2, args_after("return ('z'):rep(100000)")).value))
  end)

  it("is dead after its call", function()
    fences.with("local p, kept = {} function p.f(a) local old = kept kept = a.text return old and old:sub(1, 1) end"
      .. " function p.g(a) return kept end return p", function(fence)
      assert.is_true(fence:call("f", { text = long }).is_nothing)
      assert.are.equal("this view is of an earlier call, and its text is gone", select(2, fence:call("f", { text = long })).text)
      assert.are.equal("the result is a view of an earlier call", select(2, fence:call("g", { text = long })).text)
      assert.are.equal(0, fence:status().restarts)
    end)
  end)
end)

describe("a policy's own state", function()
  it("stays between calls, through errors, and not through a limit", function()
    fences.with([[
      local p, n = {}, 0
      function p.count() n = n + 1 return n end
      function p.fail() error "x" end
      function p.loop() while true do end end
      return p]], function(fence)
      assert.are.equal(1, fence:call("count").value)
      assert.are.equal(2, fence:call("count").value)
      assert.is_nil(fence:call "fail")
      assert.are.equal(3, fence:call("count").value)
      assert.is_nil(fence:call "loop")
      assert.are.equal(1, fence:call("count").value)
      assert.are.equal(1, fence:status().restarts)
    end)
  end)
end)
