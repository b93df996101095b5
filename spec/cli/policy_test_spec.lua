-- timeout: 120
--- `demilune policy-test`: the operator's cases, counted like our own.

local build = require "spec.support.build"
local demilune = require "spec.support.demilune"
local lfs = require "lfs"

local home

local function write(name, text)
  local path = home .. "/" .. name
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

local function policy_test(args, config)
  return demilune.run({ "policy-test", table.unpack(args) }, { home = home, config = config or "return {}" })
end

local POLICY = [[
return {
  default = "allow",
  rules = {
    { name = "no-kill", match = "kill_sandbox", deny = "sandboxes end by themselves" },
    { name = "small", match = "create_sandbox", limit = { timeout = { max = 2048, default = 1024 } } },
    { name = "paced", match = "@execute", rate = { calls = 2, per = 60 } },
    { name = "few", match = "@create", quota = { sandboxes = 2 } },
    { name = "ask-ci", match = "@write", when = { principal = "ci-*" }, ask = "Write?" },
  },
}
]]

local function assert_counts(passed, failed, result)
  local last = result.stdout:match "([^\n]*)\n$"
  assert.are.equal(("%d passed, %d failed"):format(passed, failed), last, result.stdout .. result.stderr)
  assert.are.equal(failed > 0 and 1 or 0, result.code)
end

describe("demilune policy-test", function()
  before_each(function()
    home = demilune.home()
    write("policy.lua", POLICY)
  end)
  after_each(function() demilune.remove_home(home) end)

  it("passes what is as expected", function()
    local path = write("cases.lua", [[
return {
  policy = "policy.lua",
  { call = { tool = "kill_sandbox" }, expect = "deny", rule = "no-kill", reason = "sandboxes end by themselves" },
  { name = "filled in", call = { tool = "create_sandbox" }, expect = "allow", args = { timeout = 1024 } },
  { call = { tool = "write_file", args = { path = "a", content = "b" }, principal = "ci-1" }, expect = "ask", reason = "Write?" },
  function(t)
    local decision = t.decide { tool = "kill_sandbox", sandbox = "foreign" }
    assert(decision.verdict == "deny" and decision.rule == "no-kill")
  end,
  ["with a name"] = function(t) assert(t.decide({ tool = "list_sandboxes" }).verdict == "allow") end,
}]])
    local result = policy_test { path }
    assert.are.equal("5 passed, 0 failed\n", result.stdout)
    assert_counts(5, 0, result)
  end)

  it("says of each failure where it stands, what was expected and what came", function()
    local path = write("cases.lua", [[
return {
  policy = "policy.lua",
  { call = { tool = "kill_sandbox" }, expect = "allow" },
  { name = "other rule", call = { tool = "kill_sandbox" }, expect = "deny", rule = "small" },
  { call = { tool = "kill_sandbox" }, expect = "deny", reason = "because" },
  { call = { tool = "create_sandbox" }, expect = "allow", args = { timeout = 5 } },
  function(t)
    assert(t.decide({ tool = "kill_sandbox" }).verdict == "allow", "killing is allowed")
  end,
}]])
    local result = policy_test { path }
    assert_counts(0, 5, result)
    local lines = {}
    for line in result.stdout:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.are.equal(("FAIL %s:3: kill_sandbox: expected allow; got denied by no-kill: sandboxes end by themselves"):format(path),
      lines[1])
    assert.is_truthy(lines[2]:find(":4: other rule: expected deny by small; got denied by no-kill", 1, true), lines[2])
    assert.is_truthy(lines[3]:find(":5: kill_sandbox: expected deny: because; got", 1, true), lines[3])
    assert.is_truthy(lines[4]:find("args.timeout = 1024", 1, true), lines[4])
    assert.is_truthy(lines[5]:find("killing is allowed", 1, true), lines[5])
  end)

  it("says that it was given a policy and no cases", function()
    local path = write("some.lua", 'return { default = "allow", rules = {} }')
    local result = policy_test { path }
    assert_counts(0, 1, result)
    assert.is_truthy(result.stdout:find("it is a policy; name a file of cases", 1, true), result.stdout)
  end)

  it("counts rates and quotas within a file, and anew in the next", function()
    local text = [[
local run = { tool = "run_command", args = { command = "ls" }, sandbox = "owned", time = "2026-11-30T09:00:00Z" }
local later = { tool = "run_command", args = { command = "ls" }, sandbox = "owned", time = "2026-11-30T09:01:01Z" }
local other = { tool = "run_command", args = { command = "ls" }, sandbox = "owned", time = "2026-11-30T09:00:00Z", principal = "x" }
local make = { tool = "create_sandbox", args = { timeout = 100 }, time = "2026-11-30T09:00:00Z" }
local make_later = { tool = "create_sandbox", time = "2026-11-30T09:02:00Z" }
return {
  policy = "policy.lua",
  { call = run, expect = "allow" }, { call = run, expect = "allow" }, { call = run, expect = "deny", rule = "paced" },
  { call = other, expect = "allow" }, { call = later, expect = "allow" },
  { call = make, expect = "allow" }, { call = make, expect = "allow" }, { call = make, expect = "deny", rule = "few" },
  { call = make_later, expect = "allow" },
}]]
    assert_counts(18, 0, policy_test { write("a.lua", text), write("b.lua", text) })
  end)

  it("takes the policy of the command line, of the file, or of the configuration", function()
    local cases = write("cases.lua", 'return { { call = { tool = "kill_sandbox" }, expect = "deny" } }')
    assert_counts(1, 0, policy_test({ cases, "--policy", home .. "/policy.lua" }))
    assert_counts(1, 0, policy_test({ cases }, 'return { policy = "policy.lua" }'))
    local result = policy_test { cases }
    assert_counts(0, 1, result)
    assert.is_truthy(result.stdout:find "no policy is named; write policy = ", result.stdout)
  end)

  it("fails files that are no cases, and says why", function()
    local rows = {
      { "return {}", "there is no case in it" }, { "", "the file must return one table" }, { "return 5", "must return one table" },
      { 'return { policy = "policy.lua" }', "there is no case in it" }, { "return {", "mend the syntax" },
      { 'return { policy = 5, {} }', "policy is the path" },
      { 'return { policy = "policy.lua", { call = { tool = "kill_sandbox" } } }', "expect" },
      { 'return { policy = "policy.lua", { call = { tool = "kill_sandbox" }, expect = "alow" } }',
        'did you mean expect = "allow"?' },
      { 'return { policy = "policy.lua", { call = { tool = "kill_sandbox" }, expct = "deny" } }', "did you mean expect?" },
      { 'return { policy = "policy.lua", { call = { tol = "kill_sandbox" }, expect = "deny" } }', "did you mean tool?" },
      { 'return { policy = "policy.lua", { call = { tool = "kill_sandbx" }, expect = "deny" } }', "did you mean kill_sandbox?" },
      { 'return { policy = "policy.lua", { call = { tool = "kill_sandbox", args = { x = 1 } }, expect = "deny" } }', "argument" },
      { 'return { policy = "policy.lua", { call = { tool = "kill_sandbox", time = "noon" }, expect = "deny" } }', "2026" },
      { 'return { policy = "policy.lua", 5 }', "a table or a function" },
      { 'return { policy = "none.lua", { call = { tool = "kill_sandbox" }, expect = "deny" } }', "there is no such file" },
    }
    for _, row in ipairs(rows) do
      local result = policy_test { write("cases.lua", row[1]) }
      assert_counts(0, 1, result)
      assert.is_truthy(result.stdout:find(row[2], 1, true), row[1] .. "\n" .. result.stdout)
      assert.is_nil(result.stdout:find("traceback", 1, true))
    end
    assert_counts(0, 1, policy_test { home .. "/none.lua" })
    assert.are.equal(2, policy_test({}).code)
  end)

  it("passes the cases of the examples", function()
    local files, folder = {}, build.root .. "/examples/policies"
    for name in lfs.dir(folder) do
      if name:find "_test%.lua$" then files[#files + 1] = folder .. "/" .. name end
    end
    table.sort(files)
    assert.is_true(#files >= 8)
    local result = policy_test(files)
    assert.are.equal(0, result.code, result.stdout .. result.stderr)
  end)
end)
