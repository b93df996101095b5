--- Warnings: what a policy that is right probably does not mean.

local support = require "spec.policy.support"

local function warnings(list, default, env)
  local texts = {}
  for i, warning in ipairs(support.rules(list, default, env).warnings) do
    texts[i] = table.concat(warning.path, ".") .. ": " .. warning.text
  end
  return texts
end

local PLAIN = { is_plain = true }

--- Rules, what the default is, and how each warning begins.
local ROWS = {
  -- parts of groups
  { { { match = "run_*", deny = "x" } }, "allow", "rules.1.match: run_* does not cover start_background_task; write @execute" },
  { { { match = "run_command", deny = "x" } }, "allow",
    "rules.1.match: run_command does not cover run_code or start_background_task; write @execute" },
  { { { match = { "run_command", "run_code" }, ask = "?" } }, "allow",
    "rules.1.match: run_code, run_command does not cover start_background_task" },
  { { { match = "run_*", allow = true } }, "deny" },
  { { { match = { "run_*", "@execute" }, deny = "x" } }, "allow" },
  { { { match = "run_*", deny = "x" }, { match = "start_background_task", deny = "x" } }, "allow" },
  { { { match = "run_*", rate = { calls = 1, per = 1 } }, { match = "start_*", deny = "x" } }, "allow" },
  { { { match = "read_file", deny = "x" } }, "allow",
    "rules.1.match: read_file does not cover list_files or download_file; write @read" },
  { { { match = "*_file", path = { deny = "/a" } }, { match = "@execute", deny = "x" } }, "allow",
    "rules.1.match: *_file does not cover list_files; write @read" },
  { { { match = "create_sandbox", limit = { cpu = 2 } } }, "allow" },
  { { { match = "create_sandbox", quota = { sandboxes = 2 } } }, "allow",
    "rules.1.match: create_sandbox does not cover veryfront__create_sandbox; write @create" },
  { { { match = "create_sandbox", quota = { sandboxes = 2 } } }, "allow", env = PLAIN },
  { { { match = "kill_sandbox", deny = "x" } }, "allow" },
  { { { match = "set_sandbox_timeout", deny = "x" } }, "allow" },
  { { { match = "@execute", when = { tool = "run_*" }, deny = "x" } }, "allow" },
  -- never matching
  { { { match = "zz*", deny = "x" } }, "allow", "rules.1.match: zz* matches no tool" },
  { { { match = "veryfront__*", deny = "x" } }, "allow", env = PLAIN },
  { { { match = "@all", when = { provider = "clod" }, deny = "x" } }, "allow",
    "rules.1.when.provider: clod is no provider of the configuration, so the rule never matches; there are local, cloud" },
  { { { match = "@all", when = { provider = { "clod", "c*" } }, deny = "x" } }, "allow" },
  { { { match = "@all", when = { transport = "tcp" }, deny = "x" } }, "allow", "rules.1.when.transport: tcp is no transport" },
  { { { match = "@all", when = { principal = "ci" }, deny = "x" } }, "allow", "rules.1.when.principal: ci is no principal",
    env = { principals = { "me" } } },
  { { { match = "@all", when = { principal = "ci" }, deny = "x" } }, "allow" },
  { { { match = "@read", when = { tool = "run_*" }, deny = "x" } }, "allow",
    "rules.1.when.tool: no tool of `match` is one of these, so the rule never matches" },
  { { { match = "@read", when = { template = "a" }, deny = "x" } }, "allow",
    "rules.1.when.template: no tool of this rule has a template, so that the rule matches whatever stands here" },
  { { { match = "@read", when = { template = "a" }, allow = true } }, "deny",
    "rules.1.when.template: no tool of this rule has a template, so that the rule never matches" },
  { { { match = "list_sandboxes", when = { owned = true }, deny = "x" } }, "allow",
    "rules.1.when.owned: no tool of this rule has a sandbox" },
  { { { match = "@create", when = { owned = false }, deny = "x" } }, "allow",
    "rules.1.when.owned: a sandbox that is made counts as owned" },
  { { { match = "@all", when = { within = "mon 08:00-09:00", outside = "mon-fri 00:00-24:00" }, deny = "x" } }, "allow",
    "rules.1.when: no time is within" },
  { { { match = "@all", when = { within = "mon-sat 08:00-09:00", outside = "mon-fri 00:00-24:00" }, deny = "x" } }, "allow" },
  -- shadows
  { { { match = "@execute", deny = "x" }, { match = "run_code", limit = { timeout = 5 } } }, "allow",
    'rules.2: rule "r2" changes nothing: rule "r1" denies all' },
  { { { match = "run_code", allow = true }, { match = "@execute", deny = "x" } }, "deny",
    'rules.1: rule "r1" changes nothing: rule "r2" denies all' },
  { { { match = "@execute", when = { principal = "a" }, deny = "x" }, { match = "@execute", allow = true } }, "deny" },
  { { { match = "@execute", allow = true }, { match = "run_code", ask = "?" } }, "deny",
    "rules.2.match: run_code does not cover", 'rules.2: rule "r2" changes nothing: rule "r1" before it decides' },
  { { { match = "run_code", ask = "?" }, { match = "@execute", allow = true } }, "deny",
    "rules.1.match: run_code does not cover run_command" },
  { { { match = "@execute", allow = true }, { match = "run_code", allow = true, limit = { timeout = 5 } } }, "deny" },
  { { { match = "@write", deny = "x" }, { match = "@write", hide = true } }, "allow" },
  -- checks that decide nothing
  { { { match = "@execute", limit = { timeout = 5 } } }, "deny",
    'rules.1: rule "r1" only checks, and default = "deny" denies what it lets pass; write allow = true beside' },
  { { { match = "@execute", limit = { timeout = 5 } }, { match = "run_code", allow = true } }, "deny" },
  { { { match = "@execute", limit = { timeout = 5 }, allow = true } }, "deny" },
  { { { match = "@execute", deny = "x" } }, "deny" },
  { { { match = "@execute", limit = { timeout = 5 } } }, "ask" },
  -- paths
  { { { match = "@read", path = { deny = "/a" } } }, "allow",
    "rules.1.path: `path` keeps file tools from accidents and not an agent that runs commands, and run_code is open" },
  { { { match = "@read", path = { deny = "/a" } }, { match = "run_*", deny = "x" }, { match = "start_*", deny = "x" } },
    "allow" },
  { { { match = "@read", path = { deny = "/a" } }, { match = "@execute", hide = true } }, "allow" },
  { { { match = "@read", path = { deny = "/a" } }, { match = "@execute", when = { principal = "x" }, deny = "x" } }, "allow",
    "rules.1.path: " },
  { { { match = "@read", path = { deny = "/a" }, allow = true } }, "deny" },
  { { { match = "@read", path = { deny = "/a" }, allow = true }, { match = "run_code", ask = "?" } }, "deny", "rules.1.path: ",
    "rules.2.match: run_code does not cover" },
}

describe("a warning", function()
  for i, row in ipairs(ROWS) do
    it(("%d: %s"):format(i, row[3] or "is not given"), function()
      local found = warnings(row[1], row[2], support.env(row.env))
      assert.are.equal(#row - 2, #found, table.concat(found, "\n"))
      for k, text in ipairs(found) do assert.are.equal(row[k + 2], text:sub(1, #row[k + 2]), text) end
    end)
  end
end)
