--- The steps of a decision one after another: `before`, counting, hiding, failures, and the words for people who ask why.

local core = require "demilune.core"
local rules = require "demilune.policy.rules"
local support = require "spec.policy.support"

local function before(verdict) return { before = function() return verdict end } end

local function words(list, call, default)
  return support.words(support.decide(support.rules(list, default), call[1], call[2], call[3], call[4]))
end

describe("before", function()
  local ROWS = {
    { "goes on to the default", {}, before { verdict = "go" }, "allow" },
    { "goes on to the default that denies", {}, before { verdict = "go" }, "deny by default", default = "deny" },
    { "denies", {}, before { verdict = "deny", reason = "x" }, "deny by before" },
    { "denies whatever allows", { { match = "@all", allow = true } }, before { verdict = "deny" }, "deny by before" },
    { "fails", {}, before { verdict = "deny", rule = "policy-error" }, "deny by policy-error" },
    { "gives no verdict", {}, before(nil), "deny by policy-error" },
    { "gives a strange one", {}, before { verdict = "yes" }, "deny by before" },
    { "gives what is no table", {}, before "go", "deny by policy-error" },
    { "raises", {}, { before = function() error "x" end }, "deny by policy-error" },
    { "asks", {}, before { verdict = "ask", reason = "?" }, "ask by before" },
    { "asks although a rule allows", { { match = "@all", allow = true } }, before { verdict = "ask" }, "ask by before" },
    { "asks although the default denies", {}, before { verdict = "ask" }, "ask by before", default = "deny" },
    { "asks, but a check denies", { { match = "@all", deny = "no" } }, before { verdict = "ask" }, "deny by r1" },
    { "does not decide in place of a question", { { match = "@all", ask = "?" } }, before { verdict = "go" }, "ask by r1" },
    { "rewrites into what a check denies", { { match = "@all", limit = { timeout = 60 } } },
      before { verdict = "go", args = { command = "ls", timeout = 61 } }, "deny by r1" },
    { "rewrites into what a check lets pass", { { match = "@all", limit = { timeout = 30 } } },
      before { verdict = "go", args = { command = "ls", timeout = 30 } }, "allow" },
    { "rewrites into what the tool refuses", {}, before { verdict = "go", args = { command = "ls", timeout = -1 } },
      "deny by policy-error" },
    { "takes a needed argument away", {}, before { verdict = "go", args = {} }, "deny by policy-error" },
    { "leaves no arguments", {}, before { verdict = "go", args = "none" }, "deny by policy-error" },
  }
  for _, row in ipairs(ROWS) do
    it(row[1], function()
      assert.are.equal(row[4], words(row[2], { "run_command", nil, nil, row[3] }, row.default))
    end)
  end

  it("sees what set and force left, on a view of its own", function()
    local seen
    local compiled = support.rules { { match = "run_command", force = { timeout = 7 } } }
    local view = support.view("run_command")
    local decision = rules.decide(compiled, view, support.world { before = function(shown)
      seen = shown
      shown.counts = {}
      return { verdict = "go", args = { command = "pwd", timeout = 8 } }
    end })
    assert.are.equal(7, seen.args.timeout)
    assert.are.equal(50, view.args.timeout)
    assert.is_nil(view.counts)
    assert.are.same({ command = "pwd", timeout = 8 }, decision.args)
  end)

  it("is asked once, and only after matching", function()
    local count = 0
    local world = { before = function() count = count + 1; return { verdict = "go" } end }
    words({ { match = "@all", allow = true }, { match = "run_*", allow = true } }, { "run_code", nil, nil, world })
    assert.are.equal(1, count)
  end)
end)

describe("counting", function()
  local function reserved(list, call)
    local got
    local world = { reserve = function(items)
      got = items
      return { is_ticket = true }
    end }
    local decision = support.decide(support.rules(list, call.default), call[1], call[2], call[3], world)
    local texts = {}
    for i, item in ipairs(got or {}) do
      texts[i] = ("%s %s %d%s %s"):format(item.rule, item.kind, item.most, item.per_s and "/" .. item.per_s or "", item.scope)
    end
    return table.concat(texts, ", "), decision
  end

  local ALL = { sandboxes = 2, tasks = 3, sandbox_seconds = 100, lifetime = 99999 }
  local ROWS = {
    { "nothing", {}, { "run_code" }, "" },
    { "a rate", { { match = "@all", rate = { calls = 6, per = 60 } } }, { "run_code" }, "r1 rate 6/60 principal" },
    { "for all principals", { { match = "@all", rate = { calls = 6, per = 60 }, scope = "server" } }, { "run_code" },
      "r1 rate 6/60 server" },
    { "two rates", { { match = "@all", rate = { calls = 6, per = 60 } }, { match = "run_*", rate = { calls = 1, per = 1 } } },
      { "run_code" }, "r1 rate 6/60 principal, r2 rate 1/1 principal" },
    { "not what does not match", { { match = "@all", when = { principal = "x" }, rate = { calls = 6, per = 60 } } },
      { "run_code" }, "" },
    { "what is lacking counts", { { match = "@all", when = { template = "x" }, rate = { calls = 6, per = 60 } } },
      { "run_code" }, "r1 rate 6/60 principal" },
    { "a creation", { { match = "@all", quota = ALL } }, { "create_sandbox" },
      "r1 sandboxes 2 principal, r1 sandbox_seconds 100 principal" },
    { "a creation of the account", { { match = "@all", quota = { sandboxes = 2 } } }, { "veryfront__create_sandbox" },
      "r1 sandboxes 2 principal" },
    { "a task", { { match = "@all", quota = ALL } }, { "start_background_task" }, "r1 tasks 3 principal" },
    { "no creation, no task", { { match = "@all", quota = ALL } }, { "run_code" }, "" },
    { "rate and quota", { { match = "@create", quota = { sandboxes = 1 }, rate = { calls = 2, per = 3 }, scope = "server" } },
      { "create_sandbox" }, "r1 rate 2/3 server, r1 sandboxes 1 server" },
    { "not for a denied call", { { match = "@all", rate = { calls = 6, per = 60 } }, { match = "@all", deny = "x" } },
      { "run_code" }, "" },
    { "nor for one that no rule allows", { { match = "@all", rate = { calls = 6, per = 60 } } }, { "run_code",
      default = "deny" }, "" },
    { "nor for one that is asked about", { { match = "@all", ask = "?", rate = { calls = 6, per = 60 } } }, { "run_code" },
      "" },
  }
  for _, row in ipairs(ROWS) do
    it(row[1], function()
      local texts, decision = reserved(row[2], row[3])
      assert.are.equal(row[4], texts)
      assert.are.equal(row[4] ~= "", decision.ticket ~= nil)
    end)
  end

  local function refusing(refusal) return { reserve = function() return nil, refusal end } end

  it("refuses as the counters do", function()
    local list = { { match = "@all", rate = { calls = 6, per = 60 } } }
    local refusal = { rule = "r1", kind = "rate", category = "rate_limited", retry_after = 12, most = 6 }
    local decision = support.decide(support.rules(list), "run_code", nil, nil, refusing(refusal))
    assert.are.equal("deny by r1, rate_limited", support.words(decision))
    assert.are.equal(12, decision.retry_after)
    assert.are.equal("at most 6 calls in 60 s", decision.reason)
    list = { { match = "@create", quota = { sandboxes = 2 }, scope = "server" } }
    decision = support.decide(support.rules(list), "create_sandbox", nil, nil, refusing { rule = "r1", kind = "sandboxes" })
    assert.are.equal("deny by r1, quota_exceeded", support.words(decision))
    assert.are.equal("at most 2 sandboxes at a time, for all principals together", decision.reason)
  end)

  it("refuses when there is nobody who counts, or who counts fails", function()
    local list = { { match = "@all", rate = { calls = 6, per = 60 } } }
    for _, world in ipairs { { reserve = false }, refusing(nil), { reserve = function() error "disk" end } } do
      assert.are.equal("deny", support.decide(support.rules(list), "run_code", nil, nil, world).verdict)
    end
  end)

  it("is done after a question was answered", function()
    local compiled = support.rules { { match = "@all", ask = "?", rate = { calls = 6, per = 60 }, redact = "a" } }
    local view, world = support.view("run_code"), support.world()
    local decision = rules.decide(compiled, view, world)
    rules.count(compiled, view, decision, world)
    assert.are.equal("allow", decision.verdict)
    assert.is_true(decision.ticket.is_ticket)
    assert.are.equal(1, #decision.redact)
    decision = rules.decide(compiled, view, world)
    rules.count(compiled, view, decision, support.world(refusing { rule = "r1", kind = "rate", retry_after = 3 }))
    assert.are.equal("deny by r1, rate_limited", support.words(decision))
    decision = rules.decide(compiled, view, world)
    rules.count(compiled, view, decision, support.world { reserve = function() error "disk" end })
    assert.are.equal("deny by policy-error", support.words(decision))
  end)
end)

describe("a quota of lifetime", function()
  local AT = { sandbox = { id = "sb", owned = true, created_at = 1000 }, time = 1000 }
  local function at(time, sandbox) return { time = time, sandbox = sandbox or AT.sandbox } end
  local ROWS = {
    { "a creation within", { "create_sandbox", { timeout = 7200 } }, "allow" },
    { "a creation beyond", { "create_sandbox", { timeout = 7201 } }, "deny by r1, quota_exceeded" },
    { "a creation with the default", { "create_sandbox" }, "allow" },
    { "a default beyond", { "create_sandbox", nil, { lifetime_s = 7201 } }, "deny by r1, quota_exceeded" },
    { "a default that nobody knows", { "create_sandbox", nil, { lifetime_s = false } }, "deny by r1, quota_exceeded" },
    { "an extension at once", { "set_sandbox_timeout", { timeout = 7200 }, AT }, "allow" },
    { "an extension beyond", { "set_sandbox_timeout", { timeout = 7201 }, AT }, "deny by r1, quota_exceeded" },
    { "an extension later", { "set_sandbox_timeout", { timeout = 3600 }, at(4600) }, "allow" },
    { "an extension too late", { "set_sandbox_timeout", { timeout = 3601 }, at(4600) }, "deny by r1, quota_exceeded" },
    { "no time left", { "set_sandbox_timeout", { timeout = 1 }, at(9000) }, "deny by r1, quota_exceeded" },
    { "a sandbox of which nobody knows the age", { "set_sandbox_timeout", { timeout = 1 }, at(9000, { id = "a",
      owned = true }) },
      "deny by r1, quota_exceeded" },
    { "a clock that went back", { "set_sandbox_timeout", { timeout = 7200 }, at(0) }, "allow" },
    { "hours of a service", { "veryfront__create_sandbox", { access_scope = "private", ttl_mode = "duration", ttl_hours = 2 } },
      "allow" },
    { "too many of them", { "veryfront__create_sandbox", { access_scope = "private", ttl_mode = "duration", ttl_hours = 3 } },
      "deny by r1, quota_exceeded" },
    { "a service's own lifetime", { "veryfront__create_sandbox", { access_scope = "private" } }, "deny by r1, quota_exceeded" },
    { "always on", { "veryfront__create_sandbox", { access_scope = "private", ttl_mode = "always_on" } },
      "deny by r1, quota_exceeded" },
    { "other tools", { "run_command", { command = "a", timeout = 86400 } }, "allow" },
  }
  for _, row in ipairs(ROWS) do
    it(row[1], function() assert.are.equal(row[3], words({ { match = "@all", quota = { lifetime = 7200 } } }, row[2])) end)
  end

  it("says how much is left, and what holds for later", function()
    local compiled = support.rules { { match = "@lifetime", quota = { lifetime = 7200 } }, { match = "@lifetime",
      quota = { lifetime = 9000 } } }
    local decision = support.decide(compiled, "set_sandbox_timeout", { timeout = 7000 }, at(4600))
    assert.are.equal("timeout", decision.field)
    assert.are.equal("integer from 1 to 3600", decision.expected)
    assert.are.equal(7200, support.decide(compiled, "create_sandbox", { timeout = 60 }).lifetime_s)
    assert.is_nil(support.decide(compiled, "run_code").lifetime_s)
  end)

  it("spends nothing when it refuses", function()
    local list = { { match = "@create", rate = { calls = 1, per = 1 } }, { match = "@create", quota = { lifetime = 60 } } }
    local decision = support.decide(support.rules(list), "create_sandbox", { timeout = 61 }, nil,
      { reserve = function() error "spent" end })
    assert.are.equal("deny by r2, quota_exceeded", support.words(decision))
  end)
end)

describe("hide", function()
  local compiled = support.rules({
    { match = "kill_sandbox", when = { principal = { "guest", "g-*" } }, hide = true },
    { match = "@write", hide = true }, { match = "@all", allow = true },
  }, "deny")

  it("takes a tool away from those whom it names", function()
    for principal, is_shown in pairs { guest = false, ["g-1"] = false, ["local:me"] = true, [""] = true } do
      assert.are.equal(is_shown, (rules.shows(compiled, "kill_sandbox", { principal = principal })))
    end
    assert.are.same({ false, "r2" }, { rules.shows(compiled, "write_file", { principal = "x" }) })
    assert.are.same({ true }, { rules.shows(compiled, "read_file", { principal = "guest" }) })
  end)

  it("fails closed", function()
    assert.is_false((rules.shows(compiled, "kill_sandbox", {})))
    assert.is_false((rules.shows(compiled, "no_such_tool", { principal = "x" })))
    assert.is_false((rules.shows(compiled, "kill_sandbox", nil)))
  end)

  it("denies a call that comes all the same", function()
    local decision = support.decide(compiled, "kill_sandbox", nil, { principal = "guest" })
    assert.are.equal("deny by r1", support.words(decision))
    assert.is_true(decision.is_hidden)
    assert.are.equal("allow", support.decide(compiled, "kill_sandbox").verdict)
  end)
end)

describe("list", function()
  it("shows everything without a rule, and only the own with one", function()
    local view = support.view("list_sandboxes")
    assert.is_false(rules.lists_own(support.rules {}, view))
    local compiled = support.rules { { match = "list_sandboxes", when = { principal = "local:*" }, list = "own" } }
    assert.is_true(rules.lists_own(compiled, view))
    view.principal = "admin"
    assert.is_false(rules.lists_own(compiled, view))
    view.principal = nil
    assert.is_true(rules.lists_own(compiled, view))
  end)
end)

describe("redact", function()
  it("gathers the expressions of all matching rules", function()
    local compiled = support.rules {
      { match = "@execute", redact = { "AKIA\\w+", "ghp_\\w+" } }, { match = "run_code", redact = "x+" },
      { match = "run_code", when = { principal = "x" }, redact = "y+" },
    }
    local decision = support.decide(compiled, "run_code")
    assert.are.equal(3, #decision.redact)
    assert.are.equal("a [m]", (decision.redact[1]:mask("a AKIA12", "[m]")))
    assert.are.equal(2, #support.decide(compiled, "run_command").redact)
    assert.is_nil(support.decide(compiled, "read_file").redact)
  end)
end)

describe("a failure in here", function()
  it("denies, and the cancel of a task goes on", function()
    local compiled = support.rules { { match = "@all", set = { timeout = 7 } } }
    for _, part in ipairs { "before", "validate", "honours" } do
      local function fail() error "x" end
      assert.are.equal("deny by policy-error", support.words(support.decide(compiled, "run_command", nil, nil,
        { [part] = fail })), part)
      local function cancel() error(core.task.CANCELLED, 0) end
      local ok, err = pcall(support.decide, compiled, "run_command", nil, nil, { [part] = cancel })
      assert.is_false(ok)
      assert.are.equal(core.task.CANCELLED, err)
    end
  end)

  it("denies views that are none", function()
    local compiled = support.rules { { match = "@all", when = { client = "x" }, deny = "x" } }
    for _, view in ipairs {
      {}, { tool = "run_code" }, { tool = 7, args = {} }, { tool = "run_code", args = 7 }, { tool = "run_code", args = {},
        client = 7 },
      { tool = "run_code", args = {}, client = {} }, { tool = "run_code", args = {} },
    } do
      assert.are.equal("deny", rules.decide(compiled, view, support.world()).verdict)
    end
  end)
end)

describe("a trace", function()
  local function traced(list, call, all)
    local trace = { all = all }
    call[4] = call[4] or {}
    call[4].trace = trace
    support.decide(support.rules(list), call[1], call[2], call[3], call[4])
    local lines = {}
    for i, step in ipairs(trace) do lines[i] = ("%s %s: %s"):format(step.step, step.rule or "-", step.text) end
    return lines
  end

  it("tells all five steps", function()
    local world = { before = function() return { verdict = "go", args = { template = "base", cpu = 1, memory = 1024 } } end }
    assert.are.same({
      "match r1: matches create_sandbox", "match r2: matches create_sandbox, and all of `when` holds",
      "match r3: matches create_sandbox",
      "rewrite r1: set memory = 1024", "rewrite r3: force cpu = 2",
      "rewrite -: `before` lets the call go on; it sets cpu = 1, template = \"base\"",
      "check r1: `limit.memory` passes", "check r3: `only.template` passes",
      "decide r2: allows", "count r3: at most 9 calls in 60 s", "count r3: at most 2 sandboxes at a time",
    }, traced({
      { match = "@create", limit = { memory = { max = 2048, default = 1024 } } },
      { match = "create_sandbox", when = { principal = "local:*" }, allow = true },
      { match = "create_sandbox", force = { cpu = 2 }, only = { template = "b*" }, quota = { sandboxes = 2 },
        rate = { calls = 9, per = 60 } },
      { match = "kill_sandbox", deny = "x" },
    }, { "create_sandbox", nil, nil, world }))
  end)

  it("tells what did not match, where it is to", function()
    assert.are.same({
      "match r1: does not match: `match` does not name run_code",
        "match r4: does not match: `match` with `when.tool` does not name run_code",
      "match r5: does not hide the tool from this principal",
      "match r2: does not match: when.principal is ci-*, x, and here it is \"local:me\"",
      "match r3: matches: it cannot be told whether when.template holds, and a rule that does not allow matches then",
      "match r6: does not match: it cannot be told whether when.template holds, and a rule that allows does not match then",
      "check r3: `deny` denies: c",
    }, traced({
      { match = "kill_sandbox", deny = "a" }, { match = "@all", when = { principal = { "ci-*", "x" } }, deny = "b" },
      { match = "@all", when = { template = "x" }, deny = "c" }, { match = "@all", when = { tool = "kill_*" }, deny = "d" },
      { match = "@all", when = { principal = "z" }, hide = true }, { match = "@all", when = { template = "x" }, allow = true },
    }, { "run_code" }, true))
  end)

  it("tells of refusals, questions, skipped and needless rewriting", function()
    local honours = { honours = function() return false end }
    assert.are.same({ "match r1: matches create_sandbox", "rewrite r1: set cpu: not needed, the caller gave it",
      "rewrite r1: set region: skipped, the provider local has no such thing",
        'decide default: no rule decides, and default = "allow"' },
      traced({ { match = "create_sandbox", set = { region = "eu", cpu = 1 } } }, { "create_sandbox", { cpu = 2 }, nil,
        honours }))
    assert.are.same({ "match r1: matches run_code", "decide r1: asks: sure?",
      "count -: nothing is counted before the question is answered" }, traced({ { match = "@all", ask = "sure?" } },
        { "run_code" }))
    assert.are.same({ "match r1: matches run_code", 'decide default: no rule decides, and default = "allow"',
      "count r1: at most 1 call in 2 s", "count r1: denies: at most 1 call in 2 s" },
      traced({ { match = "@all", rate = { calls = 1, per = 2 } } },
        { "run_code", nil, nil, { reserve = function() return nil, { rule = "r1", kind = "rate" } end } }))
    assert.are.same({ "match r1: hides run_code: for this principal there is no such tool" },
      traced({ { match = "run_code", hide = true } }, { "run_code" }))
  end)

  it("changes nothing of the decision", function()
    local list = { { match = "@all", limit = { timeout = 60 } }, { match = "run_*", ask = "?" } }
    for _, tool in ipairs(support.tools()) do
      local plain = support.decide(support.rules(list), tool.name)
      local asked = support.decide(support.rules(list), tool.name, nil, nil, { trace = { all = true } })
      assert.are.equal(support.words(plain), support.words(asked))
    end
  end)
end)
