--- policy/asking.lua - a call that a person must agree to: by an approval given before, through the client, or later.
--
-- What was agreed to is one call of one principal, as it is after defaults and rewriting, under one version of the policy. It
-- is named by a digest, so that the waiting list holds no more than what a person is shown.
local core = require "demilune.core"
local errors = require "demilune.errors"

local asking = {}

--- A legacy client's own request would time out after a minute.
local PERSON_MS = 45000

--- The name of exactly this call.
---@param key string  of the install
---@param view table
---@param args table  rewritten
---@return string
function asking.digest(key, view, args)
  return core.crypto.hmac(key, core.json.encode {
    principal = view.principal, tool = view.tool, provider = view.provider, sandbox = view.sandbox and view.sandbox.id,
    args = args,
  })
end

--- What is shown to whoever is asked.
local function shown_of(view, decision, version)
  return {
    rule = decision.rule, version = version, principal = view.principal, tool = view.tool, provider = view.provider,
    sandbox = view.sandbox and (view.sandbox.id or "a new one") or nil, arguments = core.json.encode(decision.args),
  }
end

local function refused(decision)
  errors.raise("approval_refused", { rule = decision.rule })
end

---@class demilune.policy.Asked
---@field call demilune.Call
---@field view table
---@field decision table    of rules.decide, verdict "ask"
---@field approvals table   of policy/approvals.lua
---@field state table       the policy that asks
---@field key string        of the install
---@field record fun(word: "ask"|"allow"|"deny", join?: table)  notes the question, or the answer with what joins them

--- Settles a decision to ask: returns when it was approved, raises `approval_refused` or `approval_required`. The question is
--- recorded before anybody sees it, and the answer under the question's id.
---@async
---@param asked demilune.policy.Asked
function asking.settle(asked)
  local call, view, decision, approvals = asked.call, asked.view, asked.decision, asked.approvals
  -- The digest of the policy's files: a version that its author forgot to change must not carry an approval over.
  local version = asked.state.digest
  local digest = asking.digest(asked.key, view, decision.args)
  local given, entry = approvals:take(view.principal, view.tool, digest, decision.rule, version)
  if given == "approved" or given == "refused" then
    local join = { id = entry.record_id, approval_id = entry.id, answered_by = "operator" }
    asked.record(given == "approved" and "allow" or "deny", join)
    return given == "approved" or refused(decision)
  end
  local record_id = asked.record("ask", { approval_id = entry and entry.id })
  local shown = shown_of(view, decision, version)
  if call.ask_person then
    local answer = call.ask_person(decision.question, shown, PERSON_MS)
    if answer then
      asked.record(answer == "accept" and "allow" or "deny", { id = record_id, answered_by = "client" })
      return answer == "accept" or refused(decision)
    end
  end
  if call.transport == "cli" then
    errors.raise("approval_required", {
      rule = decision.rule, reason = decision.question, suggestion = "Run the command at a terminal, to be asked there.",
    })
  end
  local id = approvals:open {
    principal = view.principal, tool = view.tool, digest = digest, rule = decision.rule, version = version,
    question = decision.question, shown = shown, record_id = record_id,
  }
  errors.raise("approval_required", {
    approval_id = id, rule = decision.rule, reason = decision.question,
    suggestion = "Ask the operator to run `demilune approve " .. id .. "`, then call again with the same arguments.",
  })
end

return asking
