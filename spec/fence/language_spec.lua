--- The language behind the fence: what policy code finds there, and what it does not.

local core = require "demilune.core"
local fences = require "spec.fence.fences"

local function text_of(body) return select(2, fences.run(body)).text end

describe("policy code", function()
  it("has the functions that the contract names", function()
    local names = {}
    local functions = "select ipairs pairs next type tostring tonumber assert error pcall deny ask allow glob log require"
    for name in functions:gmatch "%a+" do
      names[#names + 1] = ("type(%s) == 'function'"):format(name)
    end
    for _, library in ipairs { "string", "table", "math", "utf8", "os", "path" } do
      names[#names + 1] = ("type(%s) == 'table'"):format(library)
    end
    assert.is_true(fences.value("return " .. table.concat(names, " and ")))
    assert.are.equal("ABC-3-1,2-3-2", fences.value
      [[return ("abc"):upper() .. "-" .. #"abc" .. "-" .. table.concat({ 1, 2 }, ",")
        .. "-" .. math.max(1, 3) .. "-" .. utf8.len("äb")]])
  end)

  it("has nothing that leaves the fence", function()
    for _, name in ipairs {
      "load", "loadstring", "loadfile", "dofile", "coroutine", "setmetatable", "getmetatable", "rawset", "rawget", "rawequal",
        "rawlen",
      "collectgarbage", "print", "io", "debug", "package", "xpcall", "warn", "_G", "_VERSION",
    } do
      assert.are.equal(("there is no global %s; is it misspelt, or was local left out?"):format(name), text_of("return " .. name))
    end
    for _, expression in ipairs {
      "string.dump", "('').dump", "os.execute", "os.getenv", "os.exit", "os.remove", "os.tmpname", "os.clock", "os.setlocale",
      "os.difftime", "table.__index", "string.__index", "_ENV._G",
    } do
      local outcome, fault = fences.run("return " .. expression)
      assert.is_true(outcome and outcome.is_nothing or fault.text:find("no global", 1, true) ~= nil, expression)
    end
  end)

  it("cannot write to libraries, nor to globals once it is loaded", function()
    assert.are.equal("the libraries are read-only: upper cannot be set", text_of "string.upper = nil")
    assert.are.equal("the libraries are read-only: number cannot be set", text_of "table.insert(table, 1)")
    local text = text_of "counter = 1"
    assert.are.equal("globals are read-only once the policy is loaded: counter cannot be set; declare it with local", text)
    assert.are.equal("globals are read-only once the policy is loaded: pcall cannot be set; declare it with local",
      text_of "function pcall() end")
    assert.is_true(fences.value "return pcall(function() string.find = 1 end) == false and string.find('ab', 'b') == 2")
  end)

  it("may set globals while it loads, and read them ever after", function()
    fences.with("limit = 3\nlocal p = {}\nfunction p.f() return limit end\nreturn p", function(fence)
      assert.are.equal(3, fence:call("f").value)
    end)
  end)

  it("tells the time in UTC", function()
    assert.are.equal("1970-01-02 00:00:00 GMT", fences.value "return os.date('%Y-%m-%d %H:%M:%S %Z', 86400)")
    assert.are.equal("1970", fences.value "return os.date('!%Y', 0)")
    assert.are.equal(12, fences.value "return os.date('*t', 43200).hour")
    assert.are.equal(86400, fences.value "return os.time { year = 1970, month = 1, day = 2, hour = 0 }")
    assert.is_true(math.abs(fences.value "return os.time()" - os.time()) < 5)
    for _, format in ipairs { "%", "%E", "%Ez", "%Q", "*x%" } do
      assert.is_truthy(text_of(("return os.date(%q)"):format(format)):find("invalid conversion specifier", 1, true), format)
    end
    assert.is_truthy(text_of "return os.date('%Y', 1 << 62)":find("date result cannot be represented", 1, true))
  end)

  it("never sees an address", function()
    assert.are.equal("table function table null|view",
      fences.value("return tostring({}) .. ' ' .. tostring(pcall) .. ' ' .. ('%s'):format({}) .. ' null|' .. tostring(call.long)",
        { long = ("x"):rep(70000) }))
    assert.are.equal("decision", fences.value "return tostring(allow())")
    assert.are.equal("5 function 7%", fences.value "return ('%d %s %d%%'):format(5, tostring, 7)")
    assert.are.equal("format has no %p here", text_of "return ('%p'):format({})")
    assert.are.equal("format has no %p here", text_of "return string.format('%-10p', 'x')")
    assert.is_truthy(text_of "math.randomseed()":find("number expected", 1, true))
    assert.is_nil(fences.run("return math.randomseed(1)").value)
    for _, body in ipairs { "return {} < {}", "return {} .. ''", "return #pcall", "table.concat { {} }", "return 1 + {}",
      "error {}",
      "return ('x'):rep({})", "error(pcall)", "return deny({})" } do
      assert.is_nil(text_of(body):find("0x", 1, true), body)
    end
  end)

  it("looks at globs and paths as the rules do", function()
    local cases = {
      { "run_*", "run_code", true }, { "run_*", "read_file", false }, { "/home/*/x", "/home/a/x", true },
      { "/home/*/x", "/home/a/b/x", false }, { "**/*.pem", "/x.pem", true }, { "org/*", "org/a/b", true },
    }
    for _, case in ipairs(cases) do
      assert.are.equal(case[3], fences.value("return glob(call.glob, call.text)", { glob = case[1], text = case[2] }))
    end
    assert.is_truthy(text_of "glob('[a', 'a')":find("^the glob is none: "))
    local paths = {
      ["/a/../b"] = "/b", ["/../.."] = "/", ["a/./b//c/"] = "/home/user/a/b/c", [""] = "/home/user", ["/"] = "/",
        ["../x"] = "/home/x",
      ["../../../x"] = "/x", ["//a//"] = "/a", ["/..a/..."] = "/..a/...",
    }
    for path, normal in pairs(paths) do
      assert.are.equal(normal, fences.value("return path.normalize(call)", path))
    end
    assert.is_truthy(text_of "path.normalize(('x'):rep(5000))":find("at most 4096 bytes", 1, true))
  end)
end)

describe("what a policy decides", function()
  local function outcome_of(body)
    local outcome = assert(fences.run(body))
    return { outcome.decision, outcome.reason, outcome.value, outcome.is_nothing }
  end

  it("is known by the functions that made it", function()
    assert.are.same({ "deny", "no" }, outcome_of "return deny 'no'")
    assert.are.same({ "deny" }, outcome_of "return deny()")
    assert.are.same({ "allow" }, outcome_of "return allow()")
    assert.are.same({ "ask", "sure?" }, outcome_of "return ask 'sure?'")
    assert.are.same({ [4] = true }, outcome_of "return")
    assert.are.same({ [4] = true }, outcome_of "return nil")
    assert.are.same({ [3] = false }, outcome_of "return false, allow()")
    assert.are.same({ [3] = "text" }, outcome_of "return 'text'")
    assert.are.same({ [3] = { decision = "allow" } }, outcome_of "return { decision = 'allow' }")
  end)

  it("has a question, and a reason that is a string of a length", function()
    assert.is_truthy(text_of "return ask()":find("string expected", 1, true))
    assert.is_truthy(text_of "return deny {}":find("string expected", 1, true))
    assert.are.equal(("ä"):rep(1024), fences.run("return deny(('ä'):rep(3000))").reason)
    assert.are.equal("x" .. ("ä"):rep(1023), fences.run("return deny('x' .. ('ä'):rep(3000))").reason)
  end)

  it("is no data", function()
    assert.is_truthy(text_of "return { allow() }":find("^result%[1%] is a value that only allow"))
  end)
end)

describe("a decision that is made and not returned", function()
  it("is an error, since whoever wrote it believes that it denies", function()
    for _, name in ipairs { "deny", "ask" } do
      assert.are.equal(("%s(...) was called and not returned; write `return %s(...)`"):format(name, name),
        text_of(name .. '("no")'))
      assert.are.equal("error", select(2, fences.run(name .. '("no") return true')).kind)
    end
    assert.is_true((assert(fences.run 'local no = deny("x") return allow()')).decision == "allow")
    assert.is_true(fences.value "return true")
  end)
end)

describe("loading", function()
  it("gives the table as data, with functions as FUNCTION", function()
    fences.with("return { default = 'deny', rules = { { name = 'a', n = 1.5, on = true } }, before = function() end, empty = {} }",
      function(_, data)
        assert.are.equal(core.fence.FUNCTION, data.before)
        data.before = nil
        assert.are.same({ default = "deny", rules = { { name = "a", n = 1.5, on = true } }, empty = {} }, data)
      end)
    assert.has_error(core.fence.FUNCTION)
  end)

  it("finds modules by `find`, once each, and never after", function()
    local asked = {}
    local function find(name)
      asked[#asked + 1] = name
      return ({ ["a"] = "return { n = require('b.c').n + 1 }", ["b.c"] = "return { n = 1 }", ["silent"] = "x = 5" })[name]
    end
    local source = [[
      local a, silent = require "a", require "silent"
      assert(require "a" == a)
      local p = {}
      function p.f() return { a.n, require("a").n, silent, x } end
      function p.late() return require "late" end
      return p]]
    fences.with(source, function(fence)
      assert.are.same({ "a", "b.c", "silent" }, asked)
      assert.are.same({ 2, 2, true, 5 }, fence:call("f").value)
      assert.are.equal("module late must be required while the policy loads, not in a call", select(2, fence:call "late").text)
      assert.are.same({ "a", "b.c", "silent" }, asked)
    end, { find = find })
  end)

  it("says where a module is wrong", function()
    local modules = { broken = "local x =\n=", raising = "\nerror 'no'", me = "require 'me'" }
    local function fault_of(name)
      return fences.load_fault(("require %q return {}"):format(name), { find = function(wanted) return modules[wanted] end })
    end
    assert.are.same({ kind = "syntax", file = "broken.lua", line = 2, text = "unexpected symbol near '='" }, fault_of "broken")
    assert.are.same({ kind = "error", file = "raising.lua", line = 2, text = "no" }, fault_of "raising")
    assert.are.equal("module me requires itself", fault_of("me").text)
    assert.are.same({ kind = "error", file = "policy.lua", line = 1, text = "there is no module other beside the policy" },
      fault_of "other")
    for _, name in ipairs { "", ".", "a..b", "../x", "a/b", "a.", ("x"):rep(49), "a\0" } do
      assert.is_truthy(fault_of(name).text:find("^a module's name is"), name)
    end
  end)

  it("survives a find that raises or returns no text", function()
    for _, find in ipairs { function() error "x" end, function() return 5 end,
      function() return ("-"):rep(1024 * 1024 + 1) end } do
      assert.are.equal("there is no module m beside the policy", fences.load_fault("require 'm'", { find = find }).text)
    end
    assert.are.equal("a policy requires at most 64 modules",
      fences.load_fault("for i = 1, 65 do require('m' .. i) end", { find = function() return "return 1" end }).text)
  end)

  it("keeps Lua's own words for what is no Lua", function()
    assert.are.same({ kind = "syntax", file = "policy.lua", line = 2, text = "<eof> expected near '}'" },
      fences.load_fault "return { a = 1 }, x\n}")
    assert.are.same({ kind = "syntax", file = "policy.lua", line = 3, text = "'}' expected (to close '{' at line 1) near 'b'" },
      fences.load_fault "return {\n  a = 1\n  b = 2\n}")
  end)

  it("refuses bytecode", function()
    local fault = fences.load_fault(string.dump(function() return {} end))
    assert.are.equal("attempt to load a binary chunk (mode is 't')", fault.text)
    assert.are.equal("there is no module m beside the policy", fences.load_fault("require 'm'", { find = function() end }).text)
    fault = fences.load_fault("require 'm'", { find = function() return string.dump(function() end) end })
    assert.are.equal("attempt to load a binary chunk (mode is 't')", fault.text)
  end)

  it("wants a table of data", function()
    local function fault_of(source)
      local fault = fences.load_fault(source)
      assert.are.equal("value", fault.kind)
      assert.are.equal("policy.lua", fault.file)
      return fault.text
    end
    assert.are.equal("the policy must return a table", fault_of "return 5")
    assert.are.equal("the policy must return a table", fault_of "local x = 1")
    assert.are.equal("rules[2].limit.cpu is NaN or infinite, which is no data",
      fault_of "return { rules = { {}, { limit = { cpu = 0/0 } } } }")
    assert.are.equal("rules has keys that are neither all strings nor 1 to n", fault_of "return { rules = { 1, nil, 3, x = 1 } }")
    assert.are.equal("rules has keys that are neither all strings nor 1 to n", fault_of "return { rules = { [1.5] = 1 } }")
    assert.are.equal("the policy has keys that are neither all strings nor 1 to n", fault_of "return { [true] = 1 }")
    assert.is_truthy(fault_of "return { x = deny 'a' }":find("^x is a value that only allow"))
    assert.is_truthy(fault_of "local t = {} t.t = t return t":find("is nested too deeply, or holds itself", 1, true))
    assert.is_truthy(fault_of "local t = {} for i = 1, 300000 do t[i] = i end return t":find("has too many values", 1, true))
  end)

  it("refuses what is too large", function()
    assert.are.equal("the policy is larger than 1 MiB", fences.load_fault(("-"):rep(1024 * 1024 + 1)).text)
    local name = ("n"):rep(100) .. ".lua"
    core.task.run(function()
      local fence = assert(core.fence.start())
      local _, fault = fence:load("error 'x'", name, function() end)
      assert.are.same({ kind = "error", file = name:sub(-59), line = 1, text = "x" }, fault)
      assert.has_error(function() fence:load("return {}", "again", function() end) end)
      assert.has_error(function() fence:call "f" end)
      fence:stop()
    end)
  end)
end)

describe("log", function()
  it("takes four lines of 256 bytes a call", function()
    assert.are.equal(1, fences.value "for i = 1, 100 do log('line', i, nil, {}, ('x'):rep(1000)) end return 1")
  end)
end)
