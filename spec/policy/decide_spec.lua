--- Rules and calls: what each key does, in which order, and that whatever is missing or undecided denies.

local core = require "demilune.core"
local rules = require "demilune.policy.rules"
local support = require "spec.policy.support"

local function row_words(row) return ("%s -> %s"):format(row[1], row[#row]) end

--- Rows of { name, rules, call, expected }; a call is { tool, arguments, fields of the view, parts of the world }.
local function table_of(rows, default)
  for _, row in ipairs(rows) do
    it(row_words(row), function()
      local compiled = support.rules(row[2], row.default or default)
      local call = type(row[3]) == "string" and { row[3] } or row[3]
      assert.are.equal(row[4], support.words(support.decide(compiled, call[1], call[2], call[3], call[4])))
    end)
  end
end

local function when(conditions, rule)
  rule = rule or { deny = "x" }
  rule.match, rule.when = rule.match or "@all", conditions
  return { rule }
end

local CI = { principal = "ci-1" }
local NEW = { sandbox = { owned = true } }
local FOREIGN = { sandbox = { id = "sb", owned = false, created_at = 0 } }

describe("the default", function()
  for _, default in ipairs { "allow", "deny", "ask" } do
    it("is what happens to a call that no rule decides: " .. default, function()
      local decision = support.decide(support.rules({}, default), "run_command")
      assert.are.equal(default, decision.verdict)
      assert.are.equal("default", decision.rule)
      assert.are.equal(default == "ask", decision.question ~= nil)
      assert.are.equal(default == "deny", decision.reason ~= nil)
    end)
  end

  it("is no rule for a tool that is not there", function()
    local decision = rules.decide(support.rules {}, support.view("no_such_tool", {}), support.world())
    assert.are.equal("deny by policy-error", support.words(decision))
  end)
end)

describe("when", function()
  table_of {
    { "a principal that fits", when { principal = "ci-*" }, { "kill_sandbox", nil, CI }, "deny by r1" },
    { "one that does not", when { principal = "ci-*" }, "kill_sandbox", "allow" },
    { "upper case", when { principal = "CI-*" }, { "kill_sandbox", nil, CI }, "allow" },
    { "the whole name", when { principal = "ci" }, { "kill_sandbox", nil, CI }, "allow" },
    { "one of a list", when { principal = { "a", "local:*" } }, "kill_sandbox", "deny by r1" },
    { "a star crosses a slash in names", when { principal = "a*" }, { "kill_sandbox", nil, { principal = "a/b/c" } },
      "deny by r1" },
    { "a provider", when { provider = "local" }, "run_command", "deny by r1" },
    { "another provider", when { provider = "cloud" }, "run_command", "allow" },
    { "a transport", when { transport = "http" }, { "run_command", nil, { transport = "http" } }, "deny by r1" },
    { "another transport", when { transport = { "http", "cli" } }, "run_command", "allow" },
    { "a client", when { client = "spec" }, "run_command", "deny by r1" },
    { "another client", when { client = "other*" }, "run_command", "allow" },
    { "a tool", when { tool = "run_*" }, "run_command", "deny by r1" },
    { "another tool", when { tool = "run_*" }, "start_background_task", "allow" },
    { "a template", when({ template = "b*" }, { match = "@create", deny = "x" }), "create_sandbox", "deny by r1" },
    { "another template", when({ template = "c" }, { match = "@create", deny = "x" }), "create_sandbox", "allow" },
    { "an own sandbox", when { owned = true }, "run_command", "deny by r1" },
    { "not a foreign one", when { owned = true }, { "run_command", nil, FOREIGN }, "allow" },
    { "a foreign sandbox", when { owned = false }, { "run_command", nil, FOREIGN }, "deny by r1" },
    { "one that is to be made is owned", when { owned = false }, { "run_command", nil, NEW }, "allow" },
    { "a creation is of an own one", when { owned = false }, "create_sandbox", "allow" },
    { "a creation is of an own one, too", when { owned = true }, "create_sandbox", "deny by r1" },
    { "all of several", when { principal = "ci-*", provider = "local" }, { "run_command", nil, CI }, "deny by r1" },
    { "but not one of several", when { principal = "ci-*", provider = "cloud" }, { "run_command", nil, CI }, "allow" },
    { "nothing at all", when {}, "run_command", "deny by r1" },
  }
end)

describe("a field that the call lacks", function()
  local fields = {
    { "principal", { principal = "*" } }, { "provider", { provider = "*" } }, { "transport", { transport = "*" } },
    { "client", { client = "*" }, deny_only = true }, { "template", { template = "*" } }, { "sandbox", { owned = true } },
    { "sandbox", { owned = false } },
  }
  for _, row in ipairs(fields) do
    local lacking = { [row[1]] = false }
    it(("%s makes a rule that denies match"):format(row[1]), function()
      assert.are.equal("deny by r1", support.words(support.decide(support.rules(when(row[2])), "run_command", nil, lacking)))
    end)
    it(("%s makes a rule that asks match"):format(row[1]), function()
      local compiled = support.rules(when(row[2], { ask = "sure?" }))
      assert.are.equal("ask by r1", support.words(support.decide(compiled, "run_command", nil, lacking)))
    end)
    if not row.deny_only then it(("%s makes a rule that allows not match"):format(row[1]), function()
      local compiled = support.rules(when(row[2], { allow = true }), "deny")
      assert.are.equal("deny by default", support.words(support.decide(compiled, "run_command", nil, lacking)))
    end) end
  end

  table_of {
    { "is no field of the wrong type", when { client = "*" }, { "run_command", nil, { client = { name = 7 } } }, "deny by r1" },
    { "is an owner that nobody knows", when { owned = false }, { "run_command", nil, { sandbox = { id = "a" } } },
      "deny by r1" },
    { "does not matter beside one that differs", when { owned = false, principal = "x" },
      { "run_command", nil, { sandbox = false } }, "allow" },
    { "is checked by its rule all the same", when({ owned = true }, { limit = { timeout = 10 } }),
      { "run_command", nil, { sandbox = false } }, "deny by r1" },
  }

  it("is what a glob at its limit counts as", function()
    local env = support.env { glob = function() return { matches = function() return nil, "limit" end } end }
    local list = { { match = "run_command", when = { principal = "a*" }, deny = "x" } }
    assert.are.equal("deny by r1", support.words(support.decide(support.rules(list, "allow", env), "run_command")))
    for _, rule in ipairs { { match = "zz*" }, { match = "run_command", when = { tool = "zz*" } } } do
      rule.deny = "x"
      assert.are.equal("deny by r1", support.words(support.decide(support.rules({ rule }, "allow", env), "run_command")))
      rule.deny, rule.allow = nil, true
      assert.are.equal("deny by default", support.words(support.decide(support.rules({ rule }, "deny", env), "run_command")))
    end
    list = { { match = "run_command", when = { principal = "a*" }, allow = true } }
    assert.are.equal("deny by default", support.words(support.decide(support.rules(list, "deny", env), "run_command")))
  end)
end)

describe("deny", function()
  table_of {
    { "denies", { { match = "kill_sandbox", deny = "no" } }, "kill_sandbox", "deny by r1" },
    { "denies its tools alone", { { match = "kill_sandbox", deny = "no" } }, "run_command", "allow" },
    { "is no weaker after an allow", { { match = "@all", allow = true }, { match = "@all", deny = "no" } }, "run_code",
      "deny by r2" },
    { "is no weaker before an allow", { { match = "@all", deny = "no" }, { match = "@all", allow = true } }, "run_code",
      "deny by r1" },
    { "comes before a question", { { match = "@all", ask = "?" }, { match = "@all", deny = "no" } }, "run_code", "deny by r2" },
    { "the first in the file is named", { { match = "run_*", deny = "a" }, { match = "@all", deny = "b" } }, "run_code",
      "deny by r1" },
  }

  it("gives its reason", function()
    local decision = support.decide(support.rules { { match = "@all", deny = "not on Fridays" } }, "run_code")
    assert.are.equal("not on Fridays", decision.reason)
    assert.are.same({ "r1" }, decision.matched)
    assert.is_nil(decision.ticket)
  end)
end)

describe("allow and ask", function()
  local allow, ask = { match = "@all", allow = true }, { match = "@all", ask = "sure?" }
  local function pair(a, b) return { { match = a.match, allow = a.allow, ask = a.ask }, { match = b.match, allow = b.allow,
    ask = b.ask } } end
  table_of({
    { "allow decides", { { match = "@all", allow = true } }, "run_code", "allow" },
    { "ask decides", { { match = "@all", ask = "sure?" } }, "run_code", "ask by r1" },
    { "the first decides", pair(allow, ask), "run_code", "allow" },
    { "the first decides, too", pair(ask, allow), "run_code", "ask by r1" },
    { "allow does not reach further", { { match = "run_code", allow = true } }, "run_command", "deny by default" },
    { "a rule that only checks decides nothing", { { match = "@all", limit = { timeout = 9999 } } }, "run_code",
      "deny by default" },
    { "allow beside a check that passes", { { match = "@all", allow = true, limit = { timeout = 9999 } } }, "run_code",
      "allow" },
    { "allow beside a check that fails", { { match = "@all", allow = true, limit = { timeout = 9 } } }, "run_code",
      "deny by r1" },
    { "allow skips no check of another", { { match = "@all", allow = true }, { match = "@all", limit = { timeout = 9 } } },
      "run_code", "deny by r2" },
  }, "deny")

  it("a question is the rule's, and what is masked stays so", function()
    local compiled = support.rules { { match = "@all", ask = "Really?" }, { match = "@all", redact = { "a", "b" } } }
    local decision = support.decide(compiled, "run_code")
    assert.are.equal("Really?", decision.question)
    assert.are.equal(2, #decision.redact)
  end)
end)

describe("limit", function()
  local function limited(limit) return { { match = "@create", limit = limit } } end
  table_of {
    { "at the limit", limited { cpu = 4 }, { "create_sandbox", { cpu = 4 } }, "allow" },
    { "beyond it", limited { cpu = 4 }, { "create_sandbox", { cpu = 5 } }, "deny by r1" },
    { "without the argument", limited { cpu = 4 }, "create_sandbox", "allow" },
    { "max in a table", limited { cpu = { max = 4 } }, { "create_sandbox", { cpu = 5 } }, "deny by r1" },
    { "at the least", limited { cpu = { min = 2 } }, { "create_sandbox", { cpu = 2 } }, "allow" },
    { "below it", limited { cpu = { min = 2 } }, { "create_sandbox", { cpu = 1 } }, "deny by r1" },
    { "between both", limited { cpu = { min = 2, max = 4 } }, { "create_sandbox", { cpu = 3 } }, "allow" },
    { "a default that is within", limited { memory = { max = 8, default = 8 } }, "create_sandbox", "allow" },
    { "the lifetime that a provider gives without saying", limited { timeout = 3600 }, "create_sandbox", "allow" },
    { "one that is too long", limited { timeout = 3599 }, "create_sandbox", "deny by r1" },
    { "one that nobody knows", limited { timeout = 5 }, { "create_sandbox", nil, { lifetime_s = false } }, "allow" },
    { "a tool that lacks the argument", limited { cpu = 4 }, "veryfront__create_sandbox", "allow" },
    { "the first that fails", { { match = "@all", limit = { timeout = 99 } }, { match = "@all", limit = { timeout = 9 } } },
      "run_code", "deny by r2" },
    { "a default of the schema counts", { { match = "@all", limit = { timeout = 49 } } }, "run_command", "deny by r1" },
  }

  it("says what would be right", function()
    local decision = support.decide(support.rules(limited { cpu = { min = 2, max = 4 } }), "create_sandbox", { cpu = 9 })
    assert.are.equal("cpu", decision.field)
    assert.are.equal("from 2 to 4", decision.expected)
    assert.are.equal("policy_denied", decision.category)
  end)

  it("refuses what is no number", function()
    local compiled = support.rules(limited { cpu = 4 })
    for _, cpu in ipairs { "1", 0 / 0, true, {} } do
      local view = support.view("create_sandbox")
      view.args = { cpu = cpu }
      assert.are.equal("deny by r1", support.words(rules.decide(compiled, view, support.world())))
    end
  end)

  it("holds what a creation gave", function()
    local compiled = support.rules { { match = "@create", limit = { cpu = 2, memory = { max = 1024 }, timeout = 60 } } }
    local decision = support.decide(compiled, "create_sandbox", { timeout = 60 })
    assert.is_nil(rules.after_creation(decision, { cpu_count = 2, memory_mb = 1024 }))
    assert.is_nil(rules.after_creation(decision, { cpu_count = core.json.null }))
    assert.is_nil(rules.after_creation(decision, {}))
    assert.is_nil(rules.after_creation(decision, { started_at = "2026-11-30T09:00:00Z", end_at = "2026-11-30T09:01:05Z" }))
    for _, info in ipairs { { cpu_count = 2.5 }, { started_at = "2026-11-30T09:00:00Z", end_at = "2026-11-30T09:02:00.5Z" },
      { memory_mb = 1025 }, { cpu_count = 1, memory_mb = 4096 },
      { cpu_count = 0 / 0 } } do
      local refusal = rules.after_creation(decision, info)
      assert.are.equal("deny by r1", support.words(refusal))
    end
    assert.is_nil(rules.after_creation(support.decide(compiled, "run_code"), { cpu_count = 99 }))
  end)
end)

describe("only and never", function()
  local function only(patterns, name) return { { match = "@create", only = { [name or "region"] = patterns } } } end
  local function never(patterns, name) return { { match = "@create", never = { [name or "region"] = patterns } } } end
  table_of {
    { "one of those", only { "eu", "eu-*" }, { "create_sandbox", { region = "eu-west" } }, "allow" },
    { "none of those", only { "eu", "eu-*" }, { "create_sandbox", { region = "us" } }, "deny by r1" },
    { "only a part", only { "eu" }, { "create_sandbox", { region = "eu-west" } }, "deny by r1" },
    { "nothing given, and the default unknown", only "eu", "create_sandbox", "deny by r1" },
    { "a template that is known without being given", only("b*", "template"), "create_sandbox", "allow" },
    { "a template that differs without being given", only("c*", "template"), "create_sandbox", "deny by r1" },
    { "a template that nobody knows", only("b*", "template"), { "create_sandbox", nil, { template = false } }, "deny by r1" },
    { "a provider that is known", only("local", "provider"), "create_sandbox", "allow" },
    { "a provider that differs", only("cloud", "provider"), "create_sandbox", "deny by r1" },
    { "a tool without the argument", only "eu", "veryfront__create_sandbox", "allow" },
    { "never one of those", never { "us*" }, { "create_sandbox", { region = "us-1" } }, "deny by r1" },
    { "never another", never { "us*" }, { "create_sandbox", { region = "eu" } }, "allow" },
    { "never, and nothing given", never "us*", "create_sandbox", "allow" },
    { "never the provider that is taken without saying", never("local", "provider"), "create_sandbox", "deny by r1" },
    { "never the template that is taken without saying", never("base", "template"), "create_sandbox", "deny by r1" },
    { "a slash is crossed", only "a*", { "create_sandbox", { region = "a/b/c" } }, "allow" },
    { "an id of a sandbox, as it is shown", { { match = "kill_sandbox", never = { sandbox_id = "cloud:x" } } },
      { "kill_sandbox", { sandbox_id = "x" }, { sandbox = { id = "cloud:x", owned = true } } }, "deny by r1" },
    { "an id of a sandbox, as it is given", { { match = "kill_sandbox", never = { sandbox_id = "x" } } },
      { "kill_sandbox", { sandbox_id = "x" }, { sandbox = { id = "cloud:x", owned = true } } }, "deny by r1" },
    { "the sandbox of a call without an id", { { match = "kill_sandbox", only = { sandbox_id = "sb" } } }, "kill_sandbox",
      "allow" },
    { "a template of a provider that a rule chose",
      { { match = "create_sandbox", force = { provider = "cloud" }, never = { template = "big" } } }, "create_sandbox",
        "deny by r1" },
    { "nor only such a one",
      { { match = "create_sandbox", force = { provider = "cloud" }, only = { template = "base" } } }, "create_sandbox",
        "deny by r1" },
  }

  it("says what would be right", function()
    local decision = support.decide(support.rules(only { "eu", "eu-*" }), "create_sandbox", { region = "us" })
    assert.are.same({ "eu", "eu-*" }, decision.allowed)
    assert.are.equal("region", decision.field)
  end)

  it("refuse what a glob at its limit leaves open", function()
    local env = support.env { glob = function(pattern)
      return { matches = function() if pattern ~= "x*" then return true end end }
    end }
    for _, list in ipairs { only "x*", never "x*" } do
      local compiled = support.rules(list, "allow", env)
      assert.are.equal("deny by r1", support.words(support.decide(compiled, "create_sandbox", { region = "a" })))
    end
  end)
end)

describe("args", function()
  local function held(schema) return { { match = "@all", args = schema } } end
  table_of {
    { "a schema that fits", held { properties = { command = { maxLength = 5 } } }, { "run_command", { command = "ls" } },
      "allow" },
    { "one that does not", held { properties = { command = { maxLength = 5 } } }, { "run_command", { command = "ls -la" } },
      "deny by r1" },
    { "an argument that must be there", held { required = { "cwd" } }, "run_command", "deny by r1" },
    { "the whole of it", held { maxProperties = 1 }, "run_command", "deny by r1" },
  }

  it("names the argument", function()
    local compiled = support.rules(held { properties = { command = { pattern = "^git " } } })
    local decision = support.decide(compiled, "run_command", { command = "rm -rf /" })
    assert.are.equal("command", decision.field)
    assert.truthy(decision.expected:find "pattern")
  end)
end)

describe("set and force", function()
  local function args_of(list, call, default)
    local compiled = support.rules(list, default)
    local decision = support.decide(compiled, call[1], call[2], call[3], call[4])
    return decision.args, decision
  end

  local ROWS = {
    { "set fills in", { { match = "@create", set = { cpu = 2 } } }, { "create_sandbox" }, "cpu", 2 },
    { "set leaves what is given", { { match = "@create", set = { cpu = 2 } } }, { "create_sandbox", { cpu = 1 } }, "cpu", 1 },
    { "force does not", { { match = "@create", force = { cpu = 2 } } }, { "create_sandbox", { cpu = 1 } }, "cpu", 2 },
    { "a later set wins", { { match = "@create", set = { cpu = 2 } }, { match = "@create", set = { cpu = 3 } } },
      { "create_sandbox" }, "cpu", 3 },
    { "a later force wins", { { match = "@create", force = { cpu = 2 } }, { match = "@create", force = { cpu = 3 } } },
      { "create_sandbox" }, "cpu", 3 },
    { "force wins over a later set", { { match = "@create", force = { cpu = 2 } }, { match = "@create", set = { cpu = 3 } } },
      { "create_sandbox" }, "cpu", 2 },
    { "limit.default fills in", { { match = "@create", limit = { memory = { max = 64, default = 32 } } } },
      { "create_sandbox" }, "memory", 32 },
    { "limit.default leaves what is given", { { match = "@create", limit = { memory = { max = 64, default = 32 } } } },
      { "create_sandbox", { memory = 64 } }, "memory", 64 },
    { "set is stronger than the schema's default", { { match = "@execute", set = { timeout = 20 } } }, { "run_command" },
      "timeout", 20 },
    { "but not than the caller", { { match = "@execute", set = { timeout = 20 } } }, { "run_command", { command = "a",
      timeout = 30 } }, "timeout", 30 },
    { "nor where it gave the default", { { match = "@execute", set = { timeout = 20 } } },
      { "run_command", { command = "a", timeout = 50 }, { given = { command = true, timeout = true } } }, "timeout", 50 },
    { "a default that was not given is replaced", { { match = "@execute", set = { timeout = 20 } } },
      { "run_command", nil, { given = { command = true } } }, "timeout", 20 },
    { "a rule that does not match sets nothing", { { match = "@create", when = { provider = "x" }, set = { cpu = 2 } } },
      { "create_sandbox" }, "cpu", nil },
    { "a tool without the argument gets none", { { match = "@create", set = { cpu = 2 } } }, { "veryfront__create_sandbox" },
      "cpu", nil },
    { "a provider that has no such thing", { { match = "@create", set = { region = "eu" } } },
      { "create_sandbox", nil, nil, { honours = function(_, name) return name ~= "region" end } }, "region", nil },
    { "force is passed on all the same", { { match = "@create", force = { region = "eu" } } },
      { "create_sandbox", nil, nil, { honours = function() return false end } }, "region", "eu" },
  }
  for _, row in ipairs(ROWS) do
    it(row[1], function()
      local args, decision = args_of(row[2], row[3])
      assert.are.equal("allow", support.words(decision))
      assert.are.equal(row[5], args[row[4]])
    end)
  end

  table_of {
    { "checks see what was set", { { match = "@create", set = { cpu = 8 } }, { match = "@create", limit = { cpu = 4 } } },
      "create_sandbox", "deny by r2" },
    { "checks see what was forced", { { match = "@create", limit = { cpu = 4 } }, { match = "@create", force = { cpu = 2 } } },
      { "create_sandbox", { cpu = 64 } }, "allow" },
    { "set satisfies only", { { match = "@create", set = { region = "eu" }, only = { region = "eu*" } } }, "create_sandbox",
      "allow" },
    { "when sees the call as it came", { { match = "@create", force = { provider = "cloud" } },
      { match = "@create", when = { provider = "cloud" }, deny = "x" } }, "create_sandbox", "allow" },
  }

  it("that choose another sandbox leave open what is known of the first one", function()
    local world = { before = function() return { verdict = "go", args = { path = "a", sandbox_id = "other" } } end }
    for _, rule in ipairs { { path = { deny = "/x" } }, { only = { sandbox_id = "sb" } }, { never = { sandbox_id = "o*" } } } do
      rule.match = "read_file"
      assert.are.equal("deny by r1", support.words(support.decide(support.rules { rule }, "read_file", nil, nil, world)))
    end
    local compiled = support.rules { { match = "@lifetime", quota = { lifetime = 7200 } } }
    world = { before = function() return { verdict = "go", args = { timeout = 1, sandbox_id = "other" } } end }
    assert.are.equal("deny by r1, quota_exceeded",
      support.words(support.decide(compiled, "set_sandbox_timeout", nil, nil, world)))
  end)

  it("leave the call that came as it was, and share nothing with the policy", function()
    local compiled = support.rules { { match = "@create", force = { envs = { A = "1" } }, set = { cpu = 2 } } }
    local view = support.view("create_sandbox", { memory = 5 })
    local decision = rules.decide(compiled, view, support.world { validate = function(_, args) return args end })
    assert.are.same({ memory = 5 }, view.args)
    decision.args.envs.A = "2"
    assert.are.equal("1", rules.decide(compiled, view, support.world()).args.envs.A)
  end)

  it("must leave what the tool takes", function()
    local compiled = support.rules { { match = "@create", set = { cpu = 2 } } }
    local decision = support.decide(compiled, "create_sandbox", nil, nil, { validate = function() error { field = "cpu" } end })
    assert.are.equal("deny by policy-error", support.words(decision))
    assert.are.equal("cpu", decision.field)
  end)

  it("are not looked at again where nothing was changed", function()
    local function never() error "looked" end
    assert.are.equal("allow", support.decide(support.rules {}, "run_code", nil, nil, { validate = never }).verdict)
  end)
end)
