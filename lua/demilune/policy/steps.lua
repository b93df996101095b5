--- steps.lua - the decision about a call in words, step by step, for people who ask why.
--
-- A trace is only written where somebody asks (`io.trace`), and shows values of the call: it is for the operator alone.
local core = require "demilune.core"
local counters = require "demilune.policy.counters"

local steps = {}

local SHOWN_BYTES_MAX = 80

---@class demilune.policy.Step
---@field step "match"|"rewrite"|"check"|"decide"|"count"
---@field rule? string
---@field text string
---@field passes? boolean  of a check

local function shown(value)
  local ok, text = pcall(core.json.encode, value)
  text = ok and text or "a " .. type(value)
  if #text <= SHOWN_BYTES_MAX then return text end
  local stop = SHOWN_BYTES_MAX
  while text:find("^[\128-\191]", stop + 1) do stop = stop - 1 end
  return text:sub(1, stop) .. "…"
end

--- Adds a step.
---@param ctx table
---@param step string
---@param entry? { name: string }  the rule it is about
---@param text string
---@return demilune.policy.Step
function steps.note(ctx, step, entry, text)
  local made = { step = step, rule = entry and entry.name, text = text }
  ctx.trace[#ctx.trace + 1] = made
  return made
end

--- A rule without conditions.
---@param ctx table
---@param entry table
function steps.matches(ctx, entry)
  steps.note(ctx, "match", entry, "matches " .. ctx.view.tool)
end

--- A rule with conditions: whether they hold, and which does not.
---@param ctx table
---@param entry table
---@param holds? boolean  nil: cannot be told
---@param which? demilune.policy.Condition
function steps.condition(ctx, entry, holds, which)
  if holds then return steps.note(ctx, "match", entry, ("matches %s, and all of `when` holds"):format(ctx.view.tool)) end
  if holds == nil and not entry.allows then
    return steps.note(ctx, "match", entry,
      ("matches: it cannot be told whether when.%s holds, and a rule that does not allow matches then"):format(which.key))
  end
  if not ctx.trace.all then return end
  if holds == nil then
    return steps.note(ctx, "match", entry,
      ("does not match: it cannot be told whether when.%s holds, and a rule that allows does not match then"):format(which.key))
  end
  steps.note(ctx, "match", entry, ("does not match: when.%s is %s, and here it is %s"):format(which.key, which.text,
    shown(which.found(ctx))))
end

--- The rules that are not about the tool at all, where the trace is to have everything.
---@param ctx table
---@param compiled demilune.policy.Compiled
function steps.others(ctx, compiled)
  if not ctx.trace.all then return end
  for _, rule in ipairs(compiled.rules) do
    if not rule.has_tool[ctx.view.tool] then
      local is_narrowed = rule.spec.when and rule.spec.when.tool
      steps.note(ctx, "match", rule, ("does not match: `match`%s does not name %s"):format(
        is_narrowed and " with `when.tool`" or "", ctx.view.tool))
    elseif rule.spec.hide then
      steps.note(ctx, "match", rule, "does not hide the tool from this principal")
    end
  end
end

--- A hidden tool.
---@param ctx table
---@param rule string
function steps.hidden(ctx, rule)
  steps.note(ctx, "match", { name = rule }, ("hides %s: for this principal there is no such tool"):format(ctx.view.tool))
end

--- An argument that was set or forced.
---@param ctx table
---@param entry table
---@param key "set"|"force"
---@param item { name: string, value: any }
function steps.value(ctx, entry, key, item)
  steps.note(ctx, "rewrite", entry, ("%s %s = %s"):format(key, item.name, shown(item.value)))
end

local function changes(before, after)
  local names, list = {}, {}
  for name in pairs(before) do names[name] = true end
  for name in pairs(after) do names[name] = true end
  for name in pairs(names) do
    local old, new = shown(before[name]), shown(after[name])
    if old ~= new then list[#list + 1] = ("%s = %s"):format(name, new) end
  end
  table.sort(list)
  return table.concat(list, ", ")
end

--- What the function `before` said and changed.
---@param ctx table
---@param said demilune.policy.Verdict
function steps.before(ctx, said)
  local text
  if said.verdict == "ask" then
    text = ("`before` asks: %s"):format(said.reason or "")
  elseif said.verdict == "go" then
    text = "`before` lets the call go on"
  else
    text = ("`before` denies: %s"):format(said.fault or said.reason or "it gave no verdict")
  end
  local changed = type(said.args) == "table" and changes(ctx.args, said.args) or ""
  if changed ~= "" then text = text .. "; it sets " .. changed end
  steps.note(ctx, "rewrite", nil, text)
end

--- One check.
---@param ctx table
---@param entry table
---@param key string  of the rule
---@param refusal? demilune.policy.Refusal
function steps.check(ctx, entry, key, refusal)
  local text = refusal and ("`%s` denies: %s"):format(key, refusal.reason) or ("`%s` passes"):format(key)
  steps.note(ctx, "check", entry, text).passes = refusal == nil
end

local DECIDED = { allow = "allows", deny = "denies", ask = "asks" }

--- Which rule, or what else, decided.
---@param ctx table
---@param verdict string
---@param rule string
---@param question? string
function steps.decided(ctx, verdict, rule, question)
  local what = rule == "default" and ("no rule decides, and default = %q"):format(verdict) or DECIDED[verdict]
  if verdict == "ask" then what = ("%s: %s"):format(what, question) end
  steps.note(ctx, "decide", { name = rule }, what)
end

--- A quota of lifetime.
---@param ctx table
---@param entry table
---@param limit { most: integer }
---@param refusal? table
function steps.lifetime(ctx, entry, limit, refusal)
  steps.note(ctx, "count", entry, refusal and "denies: " .. refusal.reason
    or ("the sandbox lives at most %d s"):format(limit.most))
end

--- What is to be reserved.
---@param ctx table
---@param list table[]
function steps.reservations(ctx, list)
  for _, item in ipairs(list) do steps.note(ctx, "count", { name = item.rule }, counters.words(item)) end
end

--- What the counters refused.
---@param ctx table
---@param refusal { rule: string, reason: string }
function steps.refused(ctx, refusal)
  steps.note(ctx, "count", { name = refusal.rule }, "denies: " .. refusal.reason)
end

return steps
