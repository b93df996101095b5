-- timeout: 120
--- `demilune explain`: the five steps of a call, in words, with the answer in the last line.

local cjson = require "cjson"
local demilune = require "spec.support.demilune"
local lfs = require "lfs"

local home

local POLICY = [[
local policy = {
  default = "allow",
  version = "v7",
  rules = {
    { name = "small", match = "create_sandbox", limit = { cpu = 4, timeout = { max = 3600, default = 900 } } },
    { name = "no-keys", match = { "@read", "@write" }, path = { deny = { "**/*.pem" } } },
    { name = "paced", match = "@execute", rate = { calls = 60, per = 60 } },
    { name = "own-only", match = { "@execute", "@read" }, when = { owned = false }, deny = "not yours" },
    { name = "office", match = "@create", when = { outside = "mon-fri 08:00-18:00" }, deny = "office hours only" },
    { name = "careful", match = "kill_sandbox", when = { principal = "ci-*" }, ask = "Kill this sandbox?" },
    { name = "guests", match = "set_sandbox_timeout", when = { principal = "guest" }, hide = true },
  },
}
function policy.before(call)
  if call.tool == "run_command" then
    if call.args.command:find("curl", 1, true) then return deny "no downloads" end
    if call.args.command:find("boom", 1, true) then return nil + 1 end
    call.args.timeout = 7
  end
end
return policy
]]

local MONDAY, SUNDAY = "2026-11-30T09:00:00Z", "2026-11-29T09:00:00Z"

local function explain(args, policy)
  local file = assert(io.open(home .. "/policy.lua", "wb"))
  file:write(policy or POLICY)
  file:close()
  return demilune.run({ "explain", table.unpack(args) }, { home = home, config = 'return { policy = "policy.lua" }' })
end

local function last_line(result) return result.stdout:match "([^\n]*)\n$" end

local function assert_last(expected, args, policy)
  local result = explain(args, policy)
  assert.are.equal(0, result.code, result.stderr .. result.stdout)
  assert.are.equal("", result.stderr)
  local found = last_line(result)
  assert.is_truthy(found == expected or (expected:find "^%^" and found:find(expected)), result.stdout)
  return result.stdout
end

describe("demilune explain", function()
  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  it("answers in its last line", function()
    assert_last("allowed", { "run_command", '{"command":"ls"}' })
    assert_last("denied by own-only: not yours", { "run_command", '{"command":"ls"}', "--sandbox", "foreign" })
    assert_last("allowed", { "run_command", '{"command":"ls"}', "--sandbox", "owned" })
    assert_last("asks: Kill this sandbox?", { "kill_sandbox", "{}", "--as", "ci-7" })
    assert_last("allowed", { "kill_sandbox" })
    assert_last("^denied by small: ", { "create_sandbox", '{"cpu":8}', "--at", MONDAY })
    assert_last("denied by office: office hours only", { "create_sandbox", "{}", "--at", SUNDAY })
    assert_last("^denied by no%-keys: ", { "read_file", '{"path":"a/b.pem"}' })
    assert_last("^denied by policy%-error: ", { "run_command", '{"command":"boom"}' })
    assert_last("^denied by guests: ", { "set_sandbox_timeout", '{"timeout":5}', "--as", "guest" })
    assert_last("^denied by default: ", { "get_sandbox" }, 'return { default = "deny", rules = {} }')
  end)

  it("shows what matched, what did not, what was rewritten and what the counters are", function()
    local text = assert_last("allowed", { "run_command", '{"command":"ls"}', "--at", MONDAY })
    assert.is_truthy(text:find("run_command by local:", 1, true), text)
    assert.is_truthy(text:find("2026-11-30T09:00:00Z", 1, true), text)
    assert.is_truthy(text:find("version v7", 1, true), text)
    for _, step in ipairs { "1 match", "2 rewrite", "4 decide", "5 count" } do
      assert.is_truthy(text:find("\n" .. step, 1, true), step .. " is not in " .. text)
    end
    assert.is_truthy(text:find "before +`before` lets the call go on; it sets timeout = 7 %(%d+ instructions, %d+ µs%)", text)
    assert.is_truthy(text:find('arguments, rewritten  {"command":"ls","timeout":7}', 1, true), text)
    assert.is_truthy(text:find "paced +at most 60 calls in 60 s; 0 so far", text)
    assert.is_truthy(text:find("careful", 1, true), "a rule that does not match is not named: " .. text)
    assert.is_truthy(text:find("create_sandbox, which is decided by itself", 1, true), text)
  end)

  it("names the line where before failed", function()
    local text = assert_last("^denied by policy%-error: ", { "run_command", '{"command":"boom"}' })
    assert.is_truthy(text:find("policy.lua:17:", 1, true), text)
  end)

  it("gives the same as JSON", function()
    local result = explain { "create_sandbox", "{}", "--json", "--at", MONDAY }
    assert.are.equal(0, result.code, result.stderr)
    local data = cjson.decode(result.stdout)
    assert.are.equal("allow", data.verdict)
    assert.are.equal(900, data.args.timeout)
    assert.are.equal("v7", data.version)
    assert.is_true(#data.steps > 5)
    for _, step in ipairs(data.steps) do
      assert.are.equal("string", type(step.step))
      assert.are.equal("string", type(step.text))
    end
    data = cjson.decode(explain({ "run_command", '{"command":"curl x"}', "--json" }).stdout)
    assert.are.same({ "deny", "no downloads" }, { data.verdict, data.reason })
    assert.are.equal("deny", data.before.verdict)
    assert.is_true(data.before.instructions >= 0)
  end)

  it("shows what the counters are now", function()
    local core = require "demilune.core"
    local name = core.crypto.sha256(home .. "/demilune.lua"):sub(1, 24)
    for _, folder in ipairs { demilune.state_dir(home), demilune.state_dir(home) .. "/ledger" } do
      assert(core.fs.make_dir(folder))
    end
    local path, principal = demilune.state_dir(home) .. "/ledger/" .. name .. ".json", "local:" .. core.sys.user()
    core.task.run(function()
      local ledger = require("demilune.ledger").open(path)
      local item = { kind = "rate", rule = "paced", most = 60, per_s = 60, scope = "principal" }
      for _ = 1, 60 do
        local ticket = assert(ledger:reserve({ item }, { principal = principal }))
        ticket:keep()
      end
    end)
    local text = assert_last("^denied by paced: at most 60 calls in 60 s", { "run_command", '{"command":"ls"}' })
    assert.is_truthy(text:find("; 60 so far", 1, true), text)
    text = assert_last("allowed", { "run_command", '{"command":"ls"}', "--at", MONDAY })
    assert.is_truthy(text:find("; 0 so far", 1, true), text)
    assert_last("allowed", { "run_command", '{"command":"ls"}', "--as", "other" })
  end)

  it("spends nothing and starts nothing", function()
    for _ = 1, 3 do
      local text = assert_last("allowed", { "run_command", '{"command":"ls"}' })
      assert.is_truthy(text:find("; 0 so far", 1, true), text)
    end
    assert.is_nil(lfs.attributes(demilune.state_dir(home) .. "/engine.sock"))
  end)

  it("ends with 1 where the policy is wrong, and says where", function()
    local result = explain({ "kill_sandbox" }, "return {\n  default = 5,\n}")
    assert.are.equal(1, result.code)
    assert.is_truthy(result.stdout:find "policy%.lua:2: default", result.stdout)
  end)

  it("ends with 2 where it is misused", function()
    local rows = {
      { {}, "name of a tool" }, { { "kill_sandbx" }, "kill_sandbox" }, { { "kill_sandbox", "{" }, "no JSON object" },
      { { "kill_sandbox", "[]" }, "no JSON object" }, { { "kill_sandbox", "{}", "--sandbox", "mine" }, "owned, foreign, none" },
      { { "kill_sandbox", "{}", "--at", "noon" }, "2026" }, { { "kill_sandbox", "{}", "--provider", "lokal" }, "local" },
      { { "kill_sandbox", '{"nosuch":1}' }, "argument" }, { { "run_command" }, "command is required" },
      { { "a", "{}", "c" }, "one tool" },
    }
    for _, row in ipairs(rows) do
      local result = explain(row[1])
      assert.are.equal(2, result.code, table.concat(row[1], " ") .. result.stdout)
      assert.is_truthy(result.stderr:find(row[2], 1, true), result.stderr)
      assert.is_truthy(result.stderr:find "^demilune: [^\n]+\n$", result.stderr)
    end
  end)

  it("says that there is no policy", function()
    local result = demilune.run({ "explain", "kill_sandbox" }, { home = home, config = "return {}" })
    assert.are.equal(0, result.code)
    assert.is_truthy(result.stdout:find "No policy is configured")
    assert.are.equal("allowed", last_line(result))
  end)
end)
