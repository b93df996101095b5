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

--- Settles a decision to ask. Returns how it was approved; raises `approval_refused` or `approval_required`.
---@param call demilune.Call
---@param view table
---@param decision table      of rules.decide, verdict "ask"
---@param approvals table     of policy/approvals.lua
---@param version string      of the policy
---@param key string          of the install
---@return "operator"|"client"
function asking.settle(call, view, decision, approvals, version, key)
  local digest = asking.digest(key, view, decision.args)
  local given = approvals:take(view.principal, view.tool, digest, decision.rule, version)
  if given == "approved" then return "operator" end
  if given == "refused" then refused(decision) end
  local shown = shown_of(view, decision, version)
  if call.ask_person then
    local answer = call.ask_person(decision.question, shown, PERSON_MS)
    if answer == "accept" then return "client" end
    if answer == "decline" then refused(decision) end
  end
  if call.transport == "cli" then
    errors.raise("approval_required", {
      rule = decision.rule, reason = decision.question, suggestion = "Run the command at a terminal, to be asked there.",
    })
  end
  local id = approvals:open {
    principal = view.principal, tool = view.tool, digest = digest, rule = decision.rule, version = version,
    question = decision.question, shown = shown,
  }
  errors.raise("approval_required", {
    approval_id = id, rule = decision.rule, reason = decision.question,
    suggestion = "Ask the operator to run `demilune approve " .. id .. "`, then call again with the same arguments.",
  })
end

return asking
