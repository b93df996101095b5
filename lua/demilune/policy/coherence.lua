--- coherence.lua - what can stand beside what in a rule, and what a rule must be about to mean anything.
local groups = require "demilune.policy.groups"

local coherence = {}

--- Names under which decisions are reported that no rule made.
local RESERVED = { default = true, before = true, after = true, list = true, ["policy-error"] = true }
local EFFECTS = {
  "set", "force", "deny", "limit", "only", "never", "path", "args", "allow", "ask", "rate", "quota", "redact", "hide", "list",
}
local DECISIONS = { "allow", "ask", "deny" }
local BESIDE_HIDE = { name = true, match = true, when = true, hide = true }

local function check_decisions(build, rule)
  local found = {}
  for _, key in ipairs(DECISIONS) do
    if rule.spec[key] ~= nil then found[#found + 1] = key end
  end
  if #found < 2 then return end
  build:fault(build:under(rule.path, found[2]), ("a rule decides once, and this one has `%s` and `%s`; leave one out"):format(
    found[1], found[2]))
end

local function check_hide(build, rule)
  if not rule.spec.hide then return end
  for key in pairs(rule.spec) do
    if not BESIDE_HIDE[key] then
      build:fault(build:under(rule.path, key), ("`%s` cannot stand beside `hide`; put it in a rule of its own"):format(key))
    end
  end
  for key in pairs(rule.spec.when or {}) do
    if key ~= "principal" then
      build:fault(build:under(rule.path, "when", key),
        "only `when.principal` can stand beside `hide`, since lists are made before there is a call; write `deny`")
    end
  end
end

local function check_list(build, rule)
  if not rule.spec.list then return end
  for name in pairs(rule.known) do
    if name ~= "list_sandboxes" then
      return build:fault(build:under(rule.path, "list"), '`list` is for list_sandboxes alone; write match = "list_sandboxes"')
    end
  end
end

local function knows_one(rule, is_one)
  for name in pairs(rule.known) do
    if is_one(name) then return true end
  end
  for _, tool in ipairs(rule.tools) do
    if is_one(tool.name, tool) then return true end
  end
  return false
end

local function in_group(group)
  return function(name, tool)
    local set = tool and groups.of_entry(tool) or groups.of(name)
    return set[group]
  end
end

local is_creation = in_group "@create"

--- For each kind of quota: what it counts, and whether a tool is counted.
local QUOTAS = {
  sandboxes = { "creations", is_creation, "@create" },
  sandbox_seconds = { "creations", is_creation, "@create" },
  tasks = { "background tasks", function(name) return name == "start_background_task" end, "start_background_task" },
  lifetime = {
    "lifetimes", function(name, tool) return in_group "@lifetime"(name, tool) or is_creation(name, tool) end, "@lifetime",
  },
}

local function check_quota(build, rule)
  local quota, path = rule.spec.quota, build:under(rule.path, "quota")
  if rule.spec.scope and not quota and not rule.spec.rate then
    build:fault(build:under(rule.path, "scope"), "`scope` stands beside `rate` or `quota`; add one, or leave it out")
  end
  if not quota then return end
  local has_one = false
  for kind, row in pairs(QUOTAS) do
    has_one = has_one or quota[kind] ~= nil
    if quota[kind] and next(rule.known) and not knows_one(rule, row[2]) then
      build:fault(build:under(path, kind), ("`quota.%s` counts %s, and this rule matches none; write match = %q"):format(
        kind, row[1], row[3]))
    end
  end
  if not has_one then build:fault(path, "`quota` is empty; write sandboxes, tasks, lifetime or sandbox_seconds in it") end
  if quota.per and not quota.sandbox_seconds then
    build:fault(build:under(path, "per"), "`per` stands beside `sandbox_seconds`; for calls in a time write `rate`")
  end
end

local function check_client(build, rule)
  if rule.spec.allow and rule.spec.when and rule.spec.when.client then
    build:fault(build:under(rule.path, "when", "client"),
      "a client names itself, so nothing is allowed for its name; write `principal`, or use it in a rule that denies or asks")
  end
end

local function check_emptiness(build, rule)
  for _, key in ipairs(EFFECTS) do
    if rule.spec[key] ~= nil then return end
  end
  build:fault(rule.path, ("rule %q does nothing; write allow, deny, ask or another key that does"):format(rule.name))
end

local function check_name(build, rule, seen)
  local path = build:under(rule.path, "name")
  if RESERVED[rule.name] then
    build:fault(path, ("%q is what decisions are called that no rule makes; write another name"):format(rule.name))
  elseif seen[rule.name] then
    build:fault(path, ("there is a rule %q already; write another name"):format(rule.name))
  end
  seen[rule.name] = true
end

--- Notes what of a rule does not go together.
---@param build demilune.policy.Build
---@param rule table  whose tools are known
---@param seen table<string, true>  names of rules before it
function coherence.check(build, rule, seen)
  check_name(build, rule, seen)
  check_emptiness(build, rule)
  check_decisions(build, rule)
  check_hide(build, rule)
  check_list(build, rule)
  check_quota(build, rule)
  check_client(build, rule)
end

return coherence
