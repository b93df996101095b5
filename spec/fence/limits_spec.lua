-- timeout: 120
--- The fence attacked: whatever policy code does, that call alone is denied, and the next one is right.

local core = require "demilune.core"
local fences = require "spec.fence.fences"

--- A policy with the attack as `bad` and a function that is right.
local function policy(attack, before)
  return (before or "") .. "\nlocal policy, kept = {}, {}\nfunction policy.bad(call)\n" .. attack
    .. "\nend\nfunction policy.good(call) return call.n + 1 end\nreturn policy\n"
end

--- Time enough for every other limit to come first, also on a busy machine.
local ROOMY = { limits = { cpu_ms = 5000, wall_ms = 20000 } }

--- Runs the attack twice; both faults must be the same, and the calls between and after right.
local function fault_of(attack, options)
  options = options or ROOMY
  local first, second
  fences.with(policy(attack, options and options.before), function(fence)
    first = select(2, assert.is_nil(fence:call("bad", { n = 1 }))) or select(2, fence:call("bad", { n = 1 }))
    assert.are.equal(3, assert(fence:call("good", { n = 2 })).value)
    second = select(2, fence:call("bad", { n = 1 }))
    for n = 1, 3 do assert.are.equal(n + 1, assert(fence:call("good", { n = n })).value) end
  end, options)
  assert.is_table(first, "the attack was no fault")
  assert.are.equal(first.kind, second.kind)
  assert.are.equal(first.limit, second.limit)
  return first
end

local function limit_of(attack, options)
  local fault = fault_of(attack, options)
  assert.are.equal("limit", fault.kind, attack .. ": " .. fault.text)
  return fault.limit
end

describe("an endless loop", function()
  it("ends at its instructions", function()
    for _, attack in ipairs {
      "while true do end", "repeat until false", "for i = 1, math.huge do end", "::again:: goto again",
      "local function f() return f() end f()", "while true do pcall(error) end", "while true do pcall(pcall, pcall) end",
      "local n = 0 for _ in function() n = n + 1 return n end do end", "while true do (function() end)() end",
    } do
      assert.are.equal("instructions", limit_of(attack, { limits = { cpu_ms = 5000, wall_ms = 20000 } }), attack)
    end
  end)

  it("says where it was", function()
    local fault = fault_of "\n\nwhile true do end"
    assert.are.same({ "policy.lua", 6, "it ran too many instructions" }, { fault.file, fault.line, fault.text })
  end)

  it("is not ended by pcall around it", function()
    for _, attack in ipairs {
      "while true do pcall(function() while true do end end) end return 'escaped'",
      "local function deep(n) pcall(deep, n + 1) while true do end end deep(1) return 'escaped'",
      "pcall(pcall, function() while true do end end) return 'escaped'",
      "return select(2, pcall(('x').gsub, ('x'):rep(100), '.', function() while true do end end))",
      "table.sort({ 3, 2, 1 }, function() while true do end end)",
    } do
      assert.are.equal("instructions", limit_of(attack), attack)
    end
  end)

  it("while it loads ends too, and is the fault of loading", function()
    local fault = fences.load_fault("x = 1\nwhile true do end", { limits = { instructions = 1000, cpu_ms = 1000 } })
    assert.are.same({ "limit", "instructions", "policy.lua", 2 }, { fault.kind, fault.limit, fault.file, fault.line })
    fault = fences.load_fault("require 'm'", { find = function() return "\nwhile true do end" end })
    assert.are.same({ "limit", "instructions", "m.lua", 2 }, { fault.kind, fault.limit, fault.file, fault.line })
  end)
end)

describe("recursion", function()
  it("ends without a crash", function()
    for _, attack in ipairs {
      "local function f() return 1 + f() end return f()",
      "local function f() return (f()) end return (pcall(f))",
      "local function f() pcall(f) pcall(f) end f() error 'x'",
      "local function f(s) return (s:gsub('.', f)) end return f 'xx'",
      "local function f(a, b) table.sort({ 1, 2, 3 }, f) end return f()",
      "return ('('):rep(100) == 1 or error(('x'):rep(10))",
      "local t = {} for i = 1, 1e5 do t = { t } end return t",
      "return string.find(('a'):rep(1000), ('(a)'):rep(40))",
      "return ('x'):find(('%f[x]'):rep(5e5) .. ('('):rep(50))",
    } do
      assert.is_table(fault_of(attack), attack)
    end
  end)

  it("in the text of a policy is a fault of syntax", function()
    for _, text in ipairs {
      "return " .. ("("):rep(5000) .. "1", "return " .. ("{"):rep(100000), ("do "):rep(100000), "return " .. ("not "):rep(1e5),
      "x = " .. ("a."):rep(1e5), "return " .. ("f"):rep(1e6), ("local a = 1 "):rep(300), "return '" .. ("\\"):rep(1001),
    } do
      local fault = fences.load_fault(text)
      assert.is_true(fault.kind == "syntax" or fault.kind == "limit" or fault.kind == "error", fault.kind)
    end
  end)
end)

describe("memory", function()
  it("ends at its limit, in one piece and in many", function()
    for _, attack in ipairs {
      "return #('x'):rep(1e9)", "return #('x'):rep(1e8, 'yy')", "local t = {} for i = 1, 1e7 do t[i] = i end",
      "local s = 'x' while true do s = s .. s end", "local t = {} for i = 1, 1e6 do t[i] = 'k' .. i end",
      "local t = {} for i = 1, 1e6 do t[i] = function() return i end end", "local t = {} for i = 1, 1e6 do t[i] = {} end",
      "return #table.concat({ ('x'):rep(1e6), ('x'):rep(1e6) }, ('y'):rep(3e6), 1, 2), ('z'):rep(2e6)",
      "return ('x'):rep(1e4):gsub('.', ('y'):rep(1e4))", "return select('#', table.unpack({}, 1, 4e5)), ('x'):rep(9e6)",
      "table.move({ 1 }, 1, 1, 1, kept) return #string.format('%99.99f', 1):rep(1e6)",
        "return utf8.char(table.unpack({ 65 })):rep(1e8)",
      "return string.pack('s', ('x'):rep(1e7))", "local s = ('x'):rep(5e6) return s:upper() .. s:lower()",
    } do
      assert.are.equal("memory", limit_of(attack, { limits = { instructions = 100000000, cpu_ms = 5000, wall_ms = 20000 } }),
        attack)
    end
  end)

  it("cannot be had by pcall around its end", function()
    for _, attack in ipairs {
      "while true do pcall(string.rep, 'x', 1e9) end", "pcall(string.rep, 'x', 1e9) return 'escaped'",
      "local t = {} while true do pcall(function() for i = 1, 1e7 do t[#t + 1] = {} end end) end",
      "pcall(function() local t = {} for i = 1, 1e7 do t[i] = {} end end) return 'escaped'",
      "pcall(pcall, pcall, string.rep, 'x', 1e9) return 'escaped'",
    } do
      assert.are.equal("memory", limit_of(attack, { limits = { cpu_ms = 5000, wall_ms = 20000 } }), attack)
    end
  end)

  it("says where it ran out", function()
    local fault = fault_of("\nlocal t = {}\nfor i = 1, 1e7 do\nt[i] = {} end",
      { limits = { instructions = 100000000, cpu_ms = 5000, wall_ms = 20000 } })
    assert.are.equal("policy.lua", fault.file)
    -- In the loop: the table grows, or its next entry does not fit.
    assert.is_true(fault.line == 6 or fault.line == 7, fault.line)
  end)

  it("just below the limit is fine, in many pieces, again and again", function()
    fences.with([[
      local p = {}
      function p.much() local t = {} for i = 1, 700 do t[i] = ("x"):rep(10000) .. i end return #t end
      function p.garbage() local n = 0 for i = 1, 2000 do n = n + #(("x"):rep(50000) .. i) end return n end
      return p]], function(fence)
      for _ = 1, 5 do
        assert.are.equal(700, assert(fence:call "much").value)
        assert.is_true(assert(fence:call "garbage").value > 1e8)
      end
      assert.are.equal(0, fence:status().restarts)
    end, { limits = { cpu_ms = 5000, wall_ms = 20000 } })
  end)

  it("is counted anew for every call, and what the policy keeps has an end all the same", function()
    fences.with([[
      local p, kept = {}, {}
      function p.keep() kept[#kept + 1] = ("x"):rep(4e6) .. #kept return #kept end
      return p]], function(fence)
      local most, calls_after_restart = 0, nil
      for _ = 1, 120 do
        local outcome, fault = fence:call "keep"
        if outcome then
          most = math.max(most, outcome.value)
        else
          assert.are.equal("memory", fault.limit)
          calls_after_restart = fence:call("keep").value
          break
        end
      end
      assert.is_true(most > 20, "it was not counted anew")
      assert.are.equal(1, calls_after_restart)
    end, { limits = { cpu_ms = 5000, wall_ms = 20000 } })
  end)

  it("that the arguments need is not the policy's", function()
    local list = {}
    for i = 1, 100000 do list[i] = { i } end
    fences.with(fences.policy "return #call", function(fence)
      for _ = 1, 3 do assert.are.equal(100000, assert(fence:call("f", list)).value) end
    end, { limits = { memory_bytes = 1024 * 1024, cpu_ms = 5000, wall_ms = 20000 } })
  end)
end)

describe("a C function that runs on", function()
  it("ends at its CPU time", function()
    for _, attack in ipairs {
      "return ('a'):rep(40000):find '.-.-.-.-b'", "return ('a'):rep(3e4):find(('a*'):rep(20) .. 'b')",
      "return ('x'):rep(1e5):gsub('.-.-y', '')", "return ('a'):rep(1e5):match '(.-)%1%1b'",
      "return table.move({}, 1, 1e9, 2, {})", "return table.concat({}, '', 1, -1) .. #table.move({}, 1, 5e8, 1)",
      "pcall(string.find, ('a'):rep(40000), '.-.-.-.-b') return 'escaped'",
    } do
      assert.are.equal("cpu", limit_of(attack, {}), attack)
    end
  end)

  it("ends at one limit or another when it calls back or builds", function()
    for _, attack in ipairs {
      "local t = {} for i = 1, 2e5 do t[i] = 0 end while true do pcall(table.sort, t, function() return true end) end",
      "local t = {} for i = 1, 2e5 do t[i] = i % 7 end while true do table.sort(t) end",
      "for i = 1, 1e6 do local s = ('x'):rep(1e6) end", "while true do ('x'):rep(1e6):upper() end",
      "for w in ('a'):rep(1e6):gmatch '.-b' do end", "while true do utf8.len(('ä'):rep(1e6)) end",
      "while true do pcall(glob, ('*a'):rep(100) .. 'b', ('a'):rep(10000)) end",
    } do
      assert.are.equal("limit", fault_of(attack, {}).kind, attack)
    end
    assert.are.equal("the glob would take too long", fault_of("glob(('*a'):rep(100) .. 'b', ('a'):rep(1e5))").text)
  end)
end)

describe("the other ways out", function()
  it("do not exist", function()
    for _, attack in ipairs {
      "coroutine.wrap(function() while true do end end)()", "setmetatable({}, { __gc = function() end })",
      "getmetatable('').__index = {}", "local t <close> = {}", "return load('return 1')()", "return string.dump(function() end)",
      "error({ code = 1 })", "error(nil)", "error(deny 'x')", "error(function() end)", "return nil + 1",
      "local s = '' return s.x.y", "return call.sub.sub", "deny.x = 1", "call = nil return call.n", "_ENV.string = nil",
    } do
      assert.are.equal("error", fault_of(attack).kind, attack)
    end
  end)

  it("through raised values lead nowhere", function()
    local cases = {
      ["error({ __tostring = 1 })"] = "a table was raised", ["error()"] = "nil was raised", ["error(5)"] = "5 was raised",
      ["error(deny 'x')"] = "a value of the fence was raised", ["error(print or pcall)"] = nil,
        ["error(pcall)"] = "a function was raised",
      ["error(true)"] = "a boolean was raised", ["error('plain', 0)"] = "plain", ["error('policy.lua:77: moved', 0)"] = "moved",
      ["error('policy.lua:x: odd', 0)"] = "policy.lua:x: odd", ["assert(false)"] = "assertion failed!",
        ["assert(nil, {})"] = "a table was raised",
    }
    for attack, text in pairs(cases) do assert.are.equal(text, fault_of(attack).text) end
    assert.are.equal("ab   c", fault_of("error('a\\0b\\r\\n\\27c', 0)").text:gsub("a ", "a"))
    assert.are.equal(2048, #fault_of("error(('x'):rep(5000), 0)").text)
  end)

  it("through what is returned lead nowhere", function()
    local cases = {
      ["return { f = pcall }"] = "result.f is a function, which is no data",
      ["return 0/0"] = "the result is NaN or infinite, which is no data",
      ["call.x = { -math.huge }"] = "argument 1: .x[1] is NaN or infinite, which is no data",
      ["call.self = call"] = nil,
      ["local t = {} for i = 1, 500000 do t[i] = true end return t"] = "the result has too many values",
      ["local s = ('x'):rep(1e6) local t = {} for i = 1, 40 do t[i] = s end return t"] = "result[34] is too large",
    }
    for attack, text in pairs(cases) do
      local fault = fault_of(attack, { limits = { memory_bytes = 64 * 1024 * 1024, cpu_ms = 5000, wall_ms = 20000,
        instructions = 10000000 } })
      assert.are.equal("value", fault.kind)
      assert.are.equal(text, fault.text)
    end
    local deep = fault_of "call.self = call"
    assert.are.equal("value", deep.kind)
    assert.is_truthy(deep.text:find("is nested too deeply, or holds itself$"))
    assert.are.equal("limit", fault_of([[
      local t = { 1 } for i = 1, 30 do t = { t, t } end
      local u = {} for i = 1, 100 do u[i] = t end return u]], { limits = { cpu_ms = 1 } }).kind)
  end)
end)

describe("limits", function()
  it("are counted anew for every call", function()
    fences.with(fences.policy "for i = 1, 4e5 do end return 'done'", function(fence)
      for _ = 1, 20 do
        local outcome = assert(fence:call("f", {}))
        assert.are.equal("done", outcome.value)
        assert.is_true(outcome.instructions >= 400000 and outcome.instructions <= 400200)
        assert.is_true(outcome.cpu_us > 0)
      end
      assert.are.equal(0, fence:status().restarts)
    end)
  end)

  it("can be set, and are held against what makes sense", function()
    local loop = fences.policy "for i = 1, call do end return call"
    fences.with(loop, function(fence)
      assert.are.equal(500, fence:call("f", 500).value)
      assert.are.equal("instructions", select(2, fence:call("f", 1500)).limit)
    end, { limits = { instructions = 1000 } })
    for name, values in pairs {
      instructions = { 0, 999, 1000000001, -1 }, memory_bytes = { 0, 65535, 268435457 }, cpu_ms = { 0, 10001 }, wall_ms = { 9,
        60001 },
    } do
      for _, value in ipairs(values) do
        assert.has_error(function() core.fence.start { limits = { [name] = value } } end)
      end
    end
    assert.has_error(function() core.fence.start { limits = 5 } end)
    assert.has_error(function() core.fence.start(5) end)
  end)
end)
