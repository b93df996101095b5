--- counters.lua - what a rule's `rate` and `quota` mean for one tool: places to reserve, and how long a sandbox may live.
--
-- A lifetime needs no counter: it is seen from the call alone. It is judged with the counters all the same, since the contract
-- has it there.
local groups = require "demilune.policy.groups"

local counters = {}

local HOUR_S = 3600

local function reservation(rule, kind, most, per_s)
  return { kind = kind, rule = rule.name, most = most, per_s = per_s, scope = rule.spec.scope or "principal" }
end

--- The places that a rule wants reserved for a call of a tool.
---@param rule table  of the build
---@param tool table  entry of tools.build
---@return table[]?  nil for none
function counters.reservations(rule, tool)
  local rate, quota = rule.spec.rate, rule.spec.quota or {}
  local list, in_groups = {}, groups.of_entry(tool)
  if rate then list[1] = reservation(rule, "rate", rate.calls, rate.per) end
  if in_groups["@create"] and quota.sandboxes then
    list[#list + 1] = reservation(rule, "sandboxes", quota.sandboxes)
  end
  if in_groups["@create"] and quota.sandbox_seconds then
    list[#list + 1] = reservation(rule, "sandbox_seconds", quota.sandbox_seconds)
  end
  if tool.name == "start_background_task" and quota.tasks then list[#list + 1] = reservation(rule, "tasks", quota.tasks) end
  return #list > 0 and list or nil
end

--- The argument in which a tool takes a sandbox's lifetime, nil for a tool that takes none.
---@param tool table
---@return "timeout"|"ttl_hours"|nil
function counters.lifetime_argument(tool)
  local in_groups, properties = groups.of_entry(tool), tool.input.properties or {}
  if not (in_groups["@lifetime"] or in_groups["@create"]) then return nil end
  return properties.timeout and "timeout" or properties.ttl_hours and "ttl_hours" or nil
end

--- How long the sandbox is asked to live from now; nil where that cannot be told.
local function asked_s(argument, args, view)
  if argument == "ttl_hours" then
    local hours = args.ttl_mode == "duration" and math.tointeger(args.ttl_hours)
    return hours and hours * HOUR_S or nil
  end
  if args.timeout ~= nil then return math.type(args.timeout) and args.timeout or nil end
  if not view.group["@create"] then return nil end
  -- The default that the view knows is that of the provider it was resolved for.
  if args.provider ~= nil and args.provider ~= view.provider then return nil end
  return math.type(view.lifetime_s) and view.lifetime_s or nil
end

--- How long the sandbox has lived; nil where that cannot be told.
local function lived_s(args, view)
  if view.group["@create"] then return 0 end
  -- The age that the view knows is that of the sandbox which the call named before rewriting.
  if args.sandbox_id ~= view.args.sandbox_id then return nil end
  local since = view.sandbox and view.sandbox.created_at
  if not math.type(since) or not math.type(view.time) then return nil end
  return math.max(0, view.time - since)
end

--- What stands against a lifetime, nil where nothing does. What cannot be told does.
---@param limit { rule: string, most: integer, argument: string }
---@param args table
---@param view table
---@return table? refusal
function counters.lifetime_refusal(limit, args, view)
  local asked, lived = asked_s(limit.argument, args, view), lived_s(args, view)
  local left = lived and math.floor(limit.most - lived) or nil
  -- Written so that NaN is refused too.
  if asked and left and asked <= left then return nil end
  local unit = limit.argument == "ttl_hours" and HOUR_S or 1
  local most = left and left // unit or 0
  return {
    category = "quota_exceeded", rule = limit.rule, field = limit.argument,
    expected = most >= 1 and ("integer from 1 to %d"):format(most) or nil,
    reason = not left and "it is not known since when the sandbox lives"
      or most < 1 and ("a sandbox lives at most %d s, and no time is left"):format(limit.most)
      or ("a sandbox lives at most %d s from its creation"):format(limit.most),
  }
end

local function counted(most, one, many) return ("at most %d %s"):format(most, most == 1 and one or many) end

local WORDS = {
  rate = function(most, item) return ("%s in %d s"):format(counted(most, "call", "calls"), item.per_s or 0) end,
  sandboxes = function(most) return counted(most, "sandbox", "sandboxes") .. " at a time" end,
  tasks = function(most) return counted(most, "background task", "background tasks") .. " at a time" end,
  sandbox_seconds = function(most) return ("at most %d s of sandboxes a day"):format(most) end,
}

--- A reservation in words.
---@param item { kind: string, most: integer, per_s?: integer, scope?: string }
---@return string
function counters.words(item)
  local words = WORDS[item.kind](item.most, item)
  return item.scope == "server" and words .. ", for all principals together" or words
end

--- The refusal of a ledger as a decision has it.
---@param refusal { rule?: string, kind?: string, category?: string, retry_after?: integer }
---@param list table[]  what was to be reserved
---@return table
function counters.refusal(refusal, list)
  local reason
  for _, item in ipairs(list) do
    if item.rule == refusal.rule and item.kind == refusal.kind then reason = counters.words(item) end
  end
  local is_rate = refusal.kind == "rate"
  return {
    category = refusal.category or (is_rate and "rate_limited" or "quota_exceeded"), rule = refusal.rule,
    retry_after = refusal.retry_after, reason = reason or "the counters cannot be read",
  }
end

return counters
