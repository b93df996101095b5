-- timeout: 120
--- `demilune repl`: a Lua prompt with the server's parts at hand.

local demilune = require "spec.support.demilune"
local lfs = require "lfs"

local home

local POLICY = 'return { default = "allow", rules = { { name = "no-kill", match = "kill_sandbox", deny = "no" } } }'

local function repl(args, input, config)
  return demilune.run({ "repl", table.unpack(args) }, {
    home = home, config = config or "return {}", input = input, timeout_ms = 20000,
  })
end

--- With a policy in force.
local function repl_with_policy(args)
  local file = assert(io.open(home .. "/policy.lua", "wb"))
  file:write(POLICY)
  file:close()
  return repl(args, nil, 'return { policy = "policy.lua" }')
end

local function eval(code, run)
  local result = (run or repl) { "-e", code }
  assert.are.equal(0, result.code, code .. result.stderr)
  assert.are.equal("", result.stderr)
  return result.stdout
end

describe("demilune repl", function()
  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  it("prints expressions, and nothing for statements", function()
    assert.are.equal("3\n", eval "1 + 2")
    assert.are.equal('"a\\nb"\t2\n', eval '"a\\nb", 2')
    assert.are.equal("nil\n", eval "nil")
    assert.are.equal("", eval "x = 1")
    assert.are.equal("{}\n", eval "{}")
    assert.are.equal('{\n  1,\n  "two",\n  a = true,\n  ["b c"] = <function>,\n}\n', eval '{ 1, "two", a = true, ["b c"] = print }')
    assert.are.equal("a\t{\n  1,\n}\n", eval 'print("a", { 1 })')
  end)

  it("shows tables to a depth of three, and loops and metatables harmlessly", function()
    assert.are.equal("{\n  {\n    {\n      { … },\n    },\n  },\n}\n", eval "{ { { { 1 } } } }")
    assert.are.equal("{\n  { … },\n}\n", eval "(function() local t = {} t[1] = t return t end)()")
    assert.are.equal("{}\n", eval "setmetatable({}, { __tostring = error, __index = error, __pairs = error })")
  end)

  it("has the server's parts", function()
    assert.are.equal('"local"\n', eval "providers['local'].id")
    assert.are.equal('"run_command"\n', eval "tools.run_command.name")
    assert.are.equal('"no-kill"\n', eval("policy.rules[1].name", repl_with_policy))
    assert.are.equal("nil\n", eval "policy")
    assert.are.equal("true\n", eval "app.config ~= nil")
  end)

  it("calls tools by the call path, with the policy", function()
    local result = repl_with_policy { "-e", 'call("kill_sandbox")' }
    assert.are.equal(1, result.code)
    assert.is_truthy(result.stderr:find "demilune: [^\n]+\n$", result.stderr)
    result = repl { "-e", 'call("kill_sandbx")' }
    assert.is_truthy(result.stderr:find "there is no tool kill_sandbx", result.stderr)
    result = repl { "-e", 'call("run_command", { comand = "ls" })' }
    assert.is_truthy(result.stderr:find "argument", result.stderr)
  end)

  it("ends what it made", function()
    local result = repl({}, 'x = call("run_command", { command = "echo hi" })\nx.stdout\n')
    assert.are.equal('"hi\\n"\n', result.stdout, result.stderr)
    assert.are.equal(0, result.code)
    local listed = demilune.run({ "ls", "--json" }, { home = home })
    assert.are.equal(0, select(2, listed.stdout:gsub("sandbox_id", "")), listed.stdout)
  end)

  it("explains", function()
    local text = eval('explain { tool = "kill_sandbox" }', repl_with_policy)
    assert.are.equal("denied by no-kill: no", text:match "([^\n]*)\n$", text)
    text = eval('explain { tool = "run_command", args = { command = "ls" }, time = "2026-11-30T09:00:00Z" }', repl_with_policy)
    assert.are.equal("allowed", text:match "([^\n]*)\n$", text)
    assert.is_truthy(eval('explain { tool = "kill_sandbox" }'):find "No policy is configured")
  end)

  it("runs lines of a pipe, goes on after failures, and says so at the end", function()
    local result = repl({}, "x = 20\nx + 1\nfor i = 1, 2 do\n  print(i)\nend\nnosuch.x\n=\nx + 2")
    assert.are.equal("21\n1\n2\n22\n", result.stdout)
    assert.are.equal(1, result.code)
    local count = select(2, result.stderr:gsub("demilune: [^\n]+\n", ""))
    assert.are.equal(2, count, result.stderr)
    assert.is_nil(result.stderr:find("traceback", 1, true))
    result = repl({}, "1\n")
    assert.are.same({ 0, "1\n", "" }, { result.code, result.stdout, result.stderr })
  end)

  it("complains about an input that ends in the middle", function()
    local result = repl({}, "function f()\n")
    assert.are.equal(1, result.code)
    assert.is_truthy(result.stderr:find "ends in the middle", result.stderr)
  end)

  it("reads a file as well as a pipe", function()
    local file = assert(io.open(home .. "/lines", "wb"))
    file:write "1 + 1\n'é'\n"
    file:close()
    local build = require "spec.support.build"
    local result = demilune.run({}, { home = home, argv = { "/bin/sh", "-c", build.program .. " repl < '" .. home .. "/lines'" } })
    assert.are.equal('2\n"é"\n', result.stdout, result.stderr)
  end)

  it("starts nothing by itself", function()
    eval "1"
    assert.is_nil(lfs.attributes(demilune.state_dir(home) .. "/engine.sock"))
  end)

  it("says what was raised in one line", function()
    local rows = { ['error "a\\nb"'] = "a b", ["error {}"] = "a table was raised", ["error()"] = "a nil was raised",
      ["local t = nil; t.x = 1"] = "index a nil" }
    for code, words in pairs(rows) do
      local result = repl { "-e", code }
      assert.are.equal(1, result.code)
      assert.is_truthy(result.stderr:find "^demilune: [^\n]+\n$", result.stderr)
      assert.is_truthy(result.stderr:find(words, 1, true), result.stderr)
    end
  end)
end)
