--- What a policy may hold, and what each mistake is answered with.

local support = require "spec.policy.support"

--- Faults of a policy with one rule that is named and matches, and has `fields`.
local function of_rule(fields, env)
  local rule = { name = "a", match = "create_sandbox" }
  for key, value in pairs(fields) do
    if value == "absent" then rule[key] = nil else rule[key] = value end
  end
  local compiled, faults = support.compile({ default = "allow", rules = { rule } }, env)
  assert(compiled == nil or #faults == 0)
  return faults, compiled
end

local function assert_faults(expected, faults)
  assert.are.equal(#expected, #faults, table.concat(faults, "\n"))
  for i, text in ipairs(expected) do
    assert.are.equal(text, faults[i]:sub(1, #text), faults[i])
  end
end

describe("a policy", function()
  it("may use every key", function()
    local compiled, faults = support.compile {
      default = "ask", version = "7", before = function() end, after = function() end, list = function() end,
      rules = {
        { name = "a", match = { "@create", "run_*" }, when = { principal = "a", provider = { "local" }, transport = "cli",
          client = "x",
          tool = "*", template = "*", owned = true, within = "mon 08:00-09:00", outside = "tue 08:00-09:00", tz = "UTC" },
          set = { cpu = 1 }, force = { memory = 5 }, limit = { cpu = 2, memory = { max = 5, min = 1, default = 3 } },
          only = { template = "a" }, never = { template = { "b" } }, args = { type = "object" }, ask = "?",
          rate = { calls = 1, per = 1 }, quota = { sandboxes = 1, lifetime = 60, sandbox_seconds = 5, per = "day" },
            scope = "server",
          redact = "a+" },
        { name = "b", match = "@read", path = { allow = "/a/**", deny = { "/a/b" } }, allow = true },
        { name = "c", match = "run_code", when = { principal = "x" }, hide = true },
        { name = "d", match = "list_sandboxes", list = "own" },
        { name = "e", match = "start_background_task", quota = { tasks = 0 }, deny = "x" },
      },
    }
    assert.are.same({}, faults)
    assert.is_true(compiled.counts)
  end)

  it("needs no rule", function()
    local compiled = assert(support.compile { default = "deny" })
    assert.is_false(compiled.counts)
    assert.are.same({}, compiled.warnings)
  end)

  it("that is wrong outside of its rules", function()
    local WRONG = {
      { {}, ": the table has no `default`" },
      { 7, ": the table must be a table, { default" },
      { { default = "yes" }, 'default: default must be "allow", "deny" or "ask"; write one' },
      { { default = "denny" }, 'default: default must be "allow", "deny" or "ask"; did you mean "deny"?' },
      { { default = "deny", rule = {} }, "rule: rule is not a key; did you mean `rules`?" },
      { { default = "deny", match = "x" }, "match: match does not stand here; it belongs in a rule" },
      { { default = "deny", principal = "x" }, "principal: principal does not stand here; it belongs in `when` of a rule" },
      { { default = "deny", rules = "x" }, "rules: rules must be a list, not a string" },
      { { default = "deny", rules = { name = "a" } }, "rules.name: rules.name is a key in a list; put each entry in braces" },
      { { default = "deny", rules = { "x" } }, "rules.1: rules[1] must be a table of keys in braces of its own, not a string" },
      { { default = "deny", before = "x" }, "before: before must be a function, not a string" },
      { { default = "deny", version = 7 },
        "version: version must be a text that is not empty, at most 64 bytes, not a number; put it in quotes" },
      { { default = "deny", { name = "a" } }, '1: [1] has no name; write a table, { default = "deny"' },
    }
    for _, row in ipairs(WRONG) do
      local _, faults = support.compile(row[1])
      assert_faults({ row[2] }, faults)
    end
  end)
end)

describe("a rule", function()
  local RULES = {
    -- shapes
    { { name = "absent", deny = "x" }, "rules.1: rules[1] has no `name`" },
    { { match = "absent", deny = "x" }, "rules.1: rules[1] has no `match`" },
    { { name = "", deny = "x" }, "rules.1.name: " }, { { name = ("x"):rep(65), deny = "x" }, "rules.1.name: " },
    { { name = 7, deny = "x" }, "rules.1.name: " }, { { match = {}, deny = "x" }, "rules.1.match: rules[1].match is empty" },
    { { deny = true }, "rules.1.deny: rules[1].deny must be the reason in quotes, at most 1024 bytes, not a boolean" },
    { { deny = "" }, "rules.1.deny: " }, { { ask = true }, "rules.1.ask: rules[1].ask must be the question in quotes" },
    { { allow = false }, "rules.1.allow: rules[1].allow must be true; leave it out for no" },
    { { allow = "yes" }, "rules.1.allow: rules[1].allow must be true" }, { { alow = true },
      "rules.1.alow: rules[1].alow is not a key; did you mean `allow`?" },
    { { principal = "x", deny = "x" },
      "rules.1.principal: rules[1].principal does not stand here; it belongs in `when` of a rule" },
    { { calls = 5, deny = "x" }, "rules.1.calls: rules[1].calls does not stand here; it belongs in `rate` of a rule" },
    { { when = "now", deny = "x" }, "rules.1.when: rules[1].when must be a table of conditions" },
    { { when = { user = "x" }, deny = "x" }, "rules.1.when.user: " }, { { when = { owned = "yes" }, deny = "x" },
      "rules.1.when.owned: " },
    { { rate = { calls = 5 } }, "rules.1.rate: rules[1].rate has no `per`" }, { { rate = 5 }, "rules.1.rate: " },
    { { rate = { calls = 0, per = 1 } }, "rules.1.rate.calls: " }, { { rate = { calls = 1.5, per = 1 } },
      "rules.1.rate.calls: " },
    { { quota = { sandboxes = -1 } }, "rules.1.quota.sandboxes: " }, { { quota = { sandbox_seconds = 5, per = "week" } },
      "rules.1.quota.per: " },
    { { scope = "all", rate = { calls = 1, per = 1 } }, "rules.1.scope: " }, { { list = "all", match = "list_sandboxes" },
      "rules.1.list: " },
    { { limit = { cpu = "4" } },
      "rules.1.limit.cpu: rules[1].limit.cpu must be a number, or a table { max = 4, min = 1, default = 2 }, not a string" },
    { { limit = { cpu = { most = 4 } } }, "rules.1.limit.cpu.most: " }, { { limit = {} },
      "rules.1.limit: rules[1].limit is empty" },
    { { set = {} }, "rules.1.set: " }, { { only = { region = {} } }, "rules.1.only.region: " }, { { args = "object" },
      "rules.1.args: " },
    -- match
    { { match = "create_sandbx", deny = "x" }, "rules.1.match: there is no tool create_sandbx; did you mean create_sandbox?" },
    { { match = "execute", deny = "x" }, 'rules.1.match: there is no tool execute; the group is written "@execute"' },
    { { match = "@exec", deny = "x" }, "rules.1.match: there is no group @exec; did you mean @execute?" },
    { { match = "@nothing", deny = "x" }, "rules.1.match: there is no group @nothing; write one of @execute, @read" },
    { { match = { "@read", "zzz" }, deny = "x" }, "rules.1.match.2: there is no tool zzz; `demilune tools` lists them" },
    { { match = "run_[", deny = "x" }, 'rules.1.match: the glob "run_[": ' },
    -- decisions
    { { allow = true, ask = "?" }, "rules.1.ask: a rule decides once, and this one has `allow` and `ask`; leave one out" },
    { { allow = true, deny = "x" }, "rules.1.deny: a rule decides once" }, { { ask = "?", deny = "x" },
      "rules.1.deny: a rule decides once" },
    { {}, 'rules.1: rule "a" does nothing; write allow, deny, ask' }, { { when = { owned = true } },
      'rules.1: rule "a" does nothing' },
    { { scope = "server" }, 'rules.1: rule "a" does nothing', "rules.1.scope: `scope` stands beside `rate` or `quota`" },
    -- hide, list, client
    { { hide = true, deny = "x" }, "rules.1.deny: `deny` cannot stand beside `hide`" },
    { { hide = true, when = { provider = "local" } }, "rules.1.when.provider: only `when.principal` can stand beside `hide`" },
    { { list = "own" }, 'rules.1.list: `list` is for list_sandboxes alone; write match = "list_sandboxes"' },
    { { allow = true, when = { client = "x" } },
      "rules.1.when.client: a client names itself, so nothing is allowed for its name" },
    -- quotas
    { { quota = {} }, "rules.1.quota: `quota` is empty" },
    { { quota = { sandboxes = 1, per = "day" } }, "rules.1.quota.per: `per` stands beside `sandbox_seconds`" },
    { { match = "@read", quota = { sandboxes = 1 } },
      'rules.1.quota.sandboxes: `quota.sandboxes` counts creations, and this rule matches none; write match = "@create"' },
    { { match = "@create", quota = { tasks = 1 } }, "rules.1.quota.tasks: `quota.tasks` counts background tasks, and" },
    { { match = "@read", quota = { lifetime = 1 } }, "rules.1.quota.lifetime: " }, { { match = "@read",
      quota = { sandbox_seconds = 1 } }, "rules.1.quota.sandbox_seconds: " },
    { { scope = "server", deny = "x" }, "rules.1.scope: `scope` stands beside `rate` or `quota`" },
    -- arguments
    { { limit = { cpus = 4 } }, "rules.1.limit.cpus: `cpus` is no argument of create_sandbox; did you mean `cpu`?" },
    { { limit = { max_lines = 4 } },
      "rules.1.limit.max_lines: `max_lines` is no argument of create_sandbox; read_file has it; match that" },
    { { limit = { zzz = 4 } },
      "rules.1.limit.zzz: `zzz` is no argument of create_sandbox; leave it out, or write one of cpu, envs, memory" },
    { { limit = { template = 4 } },
      "rules.1.limit.template: `template` of create_sandbox is no number; write `only` or `never`" },
    { { limit = { cpu = {} } }, "rules.1.limit.cpu: `limit.cpu` is empty" }, { { limit = { cpu = { min = 5, max = 4 } } },
      "rules.1.limit.cpu: `min` of cpu is above its `max`" },
    { { limit = { cpu = { max = 4, default = 5 } } }, "rules.1.limit.cpu.default: `default` of cpu must be at most 4" },
    { { limit = { cpu = { max = 4, default = 1.5 } } },
      "rules.1.limit.cpu.default: create_sandbox takes as `cpu` only: integer of at least 1" },
    { { only = { cpu = "4" } }, "rules.1.only.cpu: `cpu` of create_sandbox is no text; write `limit` for numbers" },
    { { never = { envs = "4" } }, "rules.1.never.envs: `envs` of create_sandbox is no text; write `args`" },
    { { only = { region = "[" } }, 'rules.1.only.region: the glob "[": ' }, { { never = { regio = "x" } },
      "rules.1.never.regio: `regio` is no argument" },
    { { set = { cpu = "2" } },
      "rules.1.set.cpu: create_sandbox takes as `cpu` only: integer of at least 1; take away the quotes" },
    { { set = { cpu = 0 } },
      "rules.1.set.cpu: create_sandbox takes as `cpu` only: integer of at least 1; write that in place of 0" },
    { { force = { provider = "nowhere" } },
      "rules.1.force.provider: create_sandbox takes as `provider` only: one of local, cloud" },
    { { force = { envs = { A = 1 } } }, "rules.1.force.envs: create_sandbox takes as `envs` only: object of strings" },
      { { set = { timeuot = 5 } }, "rules.1.set.timeuot: `timeuot` is no argument of create_sandbox; did you mean `timeout`?" },
    { { match = "kill_sandbox", set = { cpu = 1 } },
      "rules.1.set.cpu: `cpu` is no argument of kill_sandbox; create_sandbox has it" },
    { { match = { "kill_sandbox", "get_sandbox" }, limit = { x = 1 } },
      "rules.1.limit.x: `x` is no argument of kill_sandbox or get_sandbox" },
    -- paths
    { { path = { deny = "/a" } },
      'rules.1.path: `path` holds tools with a path, and this rule matches none; write match = { "@read"' },
    { { match = "@read", path = {} }, "rules.1.path: `path` is empty" },
    { { match = "@read", path = { deny = "*.pem" } },
      'rules.1.path.deny.1: "*.pem" matches no path, since paths begin with /; write "**/*.pem"' },
    { { match = "@read", path = { allow = { "/a/**", "~/x" } } },
      'rules.1.path.allow.2: "~/x" matches no path, since paths begin with /; write "/home/user/x"' },
    { { match = "@read", path = { deny = "/a[" } }, 'rules.1.path.deny.1: the glob "/a[": ' },
    -- patterns, times, schemas
    { { redact = "(" }, "rules.1.redact: the regular expression is none: " }, { { redact = { "a", "[" } },
      "rules.1.redact.2: the regular expression is none: " },
    { { deny = "x", when = { principal = "[" } }, 'rules.1.when.principal: the glob "[": ' },
    { { deny = "x", when = { within = "always" } }, 'rules.1.when.within: "always" names no day' },
    { { deny = "x", when = { outside = "mon-fri" } }, "rules.1.when.outside: the last days have no hours" },
    { { deny = "x", when = { tz = "UTC" } }, "rules.1.when.tz: `tz` stands beside `within` or `outside`" },
    { { deny = "x", when = { within = "mon 08:00-09:00", tz = "Europe/Berlin" } },
      "rules.1.when.tz: time zones are not known here" },
    { { args = { type = "objekt" } }, 'rules.1.args.type: there is no such type; did you mean "object"?' },
    { { args = { propertys = {} } },
      "rules.1.args.propertys: `propertys` of a JSON Schema is not known; did you mean `properties`?" },
    { { args = { properties = { cpu = { format = "x" } } } },
      "rules.1.args.properties.cpu.format: `format` of a JSON Schema is refused: it is not held; write `pattern`" },
    -- names
    { { name = "policy-error", deny = "x" }, 'rules.1.name: "policy-error" is what decisions are called that no rule makes' },
    { { name = "default", deny = "x" }, "rules.1.name: " },
  }
  for i, row in ipairs(RULES) do
    it(("%d: %s"):format(i, row[2]), function()
      local faults = of_rule(row[1])
      assert_faults({ table.unpack(row, 2) }, faults)
    end)
  end

  it("has a name of its own", function()
    local _, faults = support.compile { default = "allow", rules = {
      { name = "a", match = "@all", ask = "x" }, { name = "a", match = "@read", deny = "x" },
    } }
    assert.are.same({ 'rules.2.name: there is a rule "a" already; write another name' }, faults)
  end)

  it("that is wrong does not hide what is wrong with others", function()
    local _, faults = support.compile { default = "allow", rules = {
      { name = "a", match = "zzz", deny = "x" }, { name = "b", match = "@read", limit = { zzz = 1 } }, { name = "c",
        match = "@read" },
    } }
    assert.are.equal(3, #faults)
  end)

  it("may be about a tool that is not configured", function()
    local env = support.env { is_plain = true }
    local faults = of_rule({ match = "veryfront__*", deny = "use create_sandbox" }, env)
    assert.are.same({}, faults)
    assert.are.same({}, (of_rule({ match = "veryfront__create_sandbox", limit = { ttl_hours = 4 } }, env)))
  end)

  it("knows a time zone where zones are known", function()
    local env = support.env { zone = function(name) return { local_time = function() return { wday = 1,
      minute_of_day = #name } end } end }
    assert.are.same({}, (of_rule({ deny = "x", when = { within = "mon 08:00-09:00", tz = "Europe/Berlin" } }, env)))
  end)
end)
