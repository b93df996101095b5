--- policy/hooks.lua - calls of the operator's three functions, and what their results mean.
--
-- A function can only say yes in the few ways that the contract names. Whatever else comes back (another value, an error, a
-- limit, a worker that died) is no: the caller is told the rule `policy-error`, and the log says what happened, since the
-- texts of Lua may repeat what stands in a call.
local connect = require "demilune.connect"
local core = require "demilune.core"
local groups = require "demilune.policy.groups"
local schema = require "demilune.schema"

local hooks = {}

--- The rule that a policy's own fault is reported under.
hooks.ERROR_RULE = "policy-error"

local REASON_BYTES_MAX = 1024
local REFUSED = "the policy says no"
local QUESTION = "May this call run?"

---@class demilune.policy.Verdict
---@field verdict "go"|"deny"|"ask"
---@field reason? string        of a denial; of "ask" the question
---@field args? table           as the function left them
---@field rule? string          ERROR_RULE where the function itself failed
---@field fault? string         what failed, for the operator: "policy.lua:3: …"
---@field instructions? integer
---@field cpu_us? integer

--- A text of the policy's as it may go to a client: valid UTF-8, cut.
local function words(text, without)
  if type(text) ~= "string" or text == "" then return without end
  text = core.text.mend(text)
  if #text <= REASON_BYTES_MAX then return text end
  local stop = REASON_BYTES_MAX
  while text:find("^[\128-\191]", stop + 1) do stop = stop - 1 end
  return text:sub(1, stop) .. "…"
end

--- What a fault of the fence is, in a line for the operator.
local function fault_line(fault)
  local place = fault.file and (fault.line and ("%s:%d: "):format(fault.file, fault.line) or fault.file .. ": ") or ""
  local limit = fault.limit and (" (limit: %s)"):format(fault.limit) or ""
  return place .. tostring(fault.text) .. limit
end

local function failed(state, name, text)
  -- A rehearsal tells the operator itself.
  if not state.is_rehearsed then core.log.warn(("the policy's `%s` failed: %s"):format(name, text)) end
  return {
    verdict = "deny", rule = hooks.ERROR_RULE, fault = text, reason = ("the policy's `%s` failed on this call"):format(name),
  }
end

local function call(state, name, ...)
  local ok, outcome, fault = pcall(state.fence.call, state.fence, name, ...)
  if not ok then
    if outcome == core.task.CANCELLED then error(outcome, 0) end
    return nil, failed(state, name, tostring(outcome))
  end
  if not outcome then return nil, failed(state, name, fault_line(fault)) end
  return outcome
end

--- Texts that look like a verdict and would be taken for the reason of a denial.
local WORDS_OF_VERDICTS = { allow = true, deny = true, ask = true }

--- The verdict that a function gave, or nil where it gave none of those that there are.
local function verdict_of(outcome)
  if outcome.decision == "allow" then return { verdict = "go" } end
  if outcome.decision == "deny" then return { verdict = "deny", reason = words(outcome.reason, REFUSED) } end
  if outcome.decision == "ask" then return { verdict = "ask", reason = words(outcome.reason, QUESTION) } end
  local value = outcome.value
  if value == nil or value == core.json.null or value == true then return { verdict = "go" } end
  if value == false then return { verdict = "deny", reason = REFUSED } end
  if WORDS_OF_VERDICTS[value] then return nil end
  if type(value) == "string" then return { verdict = "deny", reason = words(value, REFUSED) } end
  return nil
end

--- What was wrong with what a function returned.
local function odd(value)
  local what = type(value) == "string" and ('the text "%s"'):format(value) or "a " .. type(value)
  return ("it returned %s; return nothing to go on, deny(reason) or ask(question)"):format(what)
end

local function with_cost(verdict, outcome)
  verdict.instructions, verdict.cpu_us = outcome.instructions, outcome.cpu_us
  return verdict
end

--- What a function sees of a call: what the contract names, and nothing that is ours alone.
local function shown(view)
  return {
    tool = view.tool, group = view.group, args = view.args, principal = view.principal, client = view.client,
    transport = view.transport, provider = view.provider, template = view.template, sandbox = view.sandbox,
    time = view.time, counts = view.counts,
  }
end

--- An empty table has lost which of the two it was on its way; the schema knows.
local function as_schema_has_it(node, value)
  if type(value) ~= "table" or type(node) ~= "table" then return value end
  local types = type(node.type) == "table" and node.type or { node.type }
  if next(value) == nil then
    for _, name in ipairs(types) do
      if name == "array" then return core.json.array(value) end
    end
    return {}
  end
  for key, part in pairs(value) do
    local of = type(key) == "string" and node.properties and node.properties[key] or node.items
    value[key] = as_schema_has_it(of, part)
  end
  return value
end

--- Runs `before`. Never raises, but for the cancel of its own task.
---@async
---@param state demilune.policy.State
---@param view table  of a call; it stays as it is
---@return demilune.policy.Verdict
function hooks.before(state, view)
  local outcome, failure = call(state, "before", shown(view))
  if not outcome then return failure end
  local verdict = verdict_of(outcome)
  if not verdict then
    return with_cost(failed(state, "before", odd(outcome.value)), outcome)
  end
  local left = outcome.args and outcome.args[1]
  local args = type(left) == "table" and left.args
  if verdict.verdict ~= "deny" and not connect.is_object(args) and not (type(args) == "table" and next(args) == nil) then
    failure = failed(state, "before", "it left call.args as no table of arguments; change its fields, not the table")
    return with_cost(failure, outcome)
  end
  local entry = state.tools_by_name[view.tool]
  verdict.args = verdict.verdict ~= "deny" and as_schema_has_it(entry and entry.input, args) or nil
  return with_cost(verdict, outcome)
end

local function refusal(reason, rule)
  return { verdict = "deny", category = "policy_denied", reason = reason, rule = rule }
end

--- The result as `after` left it, or nil where it does not fit the tool's schema.
local function fitting(state, tool, result)
  if type(result) ~= "table" then return nil end
  local entry = state.tools_by_name[tool]
  if not entry then return result end
  result = as_schema_has_it(entry.output, result)
  return schema.fault(entry.output, result) == nil and result or nil
end

--- Runs `after`: what it made of a result, or the refusal. Never raises, but for the cancel of its own task.
---@async
---@param state demilune.policy.State
---@param view table    of the call that ran
---@param result table  as it would leave; it stays as it is
---@return table? result
---@return table? refusal  { verdict = "deny", category, rule?, reason }
function hooks.after(state, view, result)
  local outcome, failure = call(state, "after", shown(view), result)
  if not outcome then return nil, refusal(failure.reason, failure.rule) end
  local verdict = verdict_of(outcome)
  if verdict and verdict.verdict == "deny" then return nil, refusal(verdict.reason) end
  if not verdict or verdict.verdict == "ask" then
    local what = verdict and "ask(…)" or "a " .. type(outcome.value)
    failure = failed(state, "after", ("it returned %s; change `result` and return nothing, or deny(reason)"):format(what))
    return nil, refusal(failure.reason, failure.rule)
  end
  local changed = fitting(state, view.tool, outcome.args and outcome.args[2])
  if changed then return changed end
  failure = failed(state, "after", "what it left of the result is not what the tool promises; keep the fields and their types")
  return nil, refusal(failure.reason, failure.rule)
end

--- Runs `list`: whether a principal may know of a tool. An error hides it.
---@async
---@param state demilune.policy.State
---@param definition table  of the tool, as clients see it
---@param who table         { principal, scopes }
---@return boolean is_shown
---@return string? fault  what failed, for the operator
function hooks.list(state, definition, who)
  local entry = state.tools_by_name[definition.name]
  local tool = {
    name = definition.name, title = definition.title, description = definition.description,
    annotations = definition.annotations, group = entry and groups.of_entry(entry),
  }
  local outcome, failure = call(state, "list", tool, who)
  if not outcome then return false, failure.fault end
  local verdict = verdict_of(outcome)
  if not verdict then
    failure = failed(state, "list", ("it returned a %s; return true or false"):format(type(outcome.value)))
    return false, failure.fault
  end
  return verdict.verdict == "go"
end

return hooks
