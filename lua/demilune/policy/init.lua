--- policy/init.lua - the operator's hand: one decision for every door, before a call runs, and one look at its result.
--
-- A call keeps the policy that it began under, whatever is loaded meanwhile: a state is closed when the last call that holds
-- it has ended. Whatever goes wrong here denies the call; nothing that goes wrong allows it.
local approvals = require "demilune.policy.approvals"
local asking = require "demilune.policy.asking"
local audit = require "demilune.audit"
local core = require "demilune.core"
local errors = require "demilune.errors"
local hooks = require "demilune.policy.hooks"
local ledger_file = require "demilune.policy.ledger_file"
local ledgers = require "demilune.ledger"
local load = require "demilune.policy.load"
local rules = require "demilune.policy.rules"
local state_folder = require "demilune.state"
local templates = require "demilune.policy.templates"
local views = require "demilune.policy.view"

local policy = {}

local FILE_BYTES_MAX = 1024 * 1024
local LIST_TOOL = "list_sandboxes"
--- Principals whose lists are remembered.
local LISTED_MAX = 1000

---@class demilune.Policy
---@field app demilune.App
---@field state? table     what is in force; nil where only an audit is configured
---@field fault? string    why the newest file is not in force
local Policy = {}
Policy.__index = Policy

local function environment(app, tools)
  local ids = {}
  for i, provider in ipairs(app.providers) do ids[i] = provider.id end
  return { tools = tools, provider_ids = ids, templates = templates.of(app), limits = app.config.policy.limits }
end

--- The faults of a file as one text, a line each.
local function fault_text(faults)
  local lines = {}
  for i, fault in ipairs(faults) do lines[i] = load.line_of(fault) end
  return table.concat(lines, "\n")
end

local function counts_anything(state)
  return state.compiled.counts or state.data.before ~= nil
end

--- What the files of a policy hold, for a look whether that has changed.
local function content_of(paths)
  local parts = {}
  for i, path in ipairs(paths) do parts[i] = core.fs.read(path, FILE_BYTES_MAX) or "" end
  return core.crypto.sha256(table.concat(parts, "\0"))
end

--- Opens what the configuration names. Raises `invalid_argument` with every fault of the policy, and what the audit says
--- that cannot be written.
---@async
---@param app demilune.App
---@return demilune.Policy
function policy.open(app)
  local config = app.config
  local self = setmetatable({ app = app, key = state_folder.key(), holders = {} }, Policy)
  self.approvals = approvals.new { ttl_s = config.policy and config.policy.approval_lifetime or nil }
  if config.audit then
    local record, err = audit.open(config.audit, { key = self.key, append = core.fs.append })
    if not record then error(err, 0) end
    self.audit = record
  end
  if config.policy then
    local state, fault = self:prepare(app.tools)
    if not state then
      errors.raise("invalid_argument", { message = "The policy is wrong; `demilune check` says where." }, fault)
    end
    self:install(state)
  end
  return self
end

--- A digest of the files of what is in force, whatever it calls itself.
---@return string?
function Policy:digest()
  return self.state and self.state.digest
end

--- Loads the file, without putting it in force.
---@async
---@param tools table[]  that it is about
---@return table? state
---@return string? fault  every fault, a line each
function Policy:prepare(tools)
  local state, faults = load.run(self.app.config.policy.file, environment(self.app, tools))
  if state then return state end
  self.fault = fault_text(faults)
  return nil, self.fault
end

--- Puts a state in force.
---@param state table
function Policy:install(state)
  local old = self.state
  self.state, self.fault, self.listed, self.listed_count = state, nil, {}, 0
  self.content = content_of(state.files)
  self.holders[state] = self.holders[state] or 0
  if counts_anything(state) and not self.ledger then self.ledger = ledgers.open(ledger_file.path(self.app.config)) end
  if old then self:drop(old) end
end

--- Closes a state that is in force no more, once no call holds it.
---@param state table
function Policy:drop(state)
  if state == self.state or self.holders[state] ~= 0 then return end
  self.holders[state] = nil
  state:close()
end

--- The version in force: the policy's own, or a digest of its files.
---@return string?
function Policy:version()
  return self.state and self.state.version
end

--- Whether its files hold something else than when they were last loaded, or tried.
---@return boolean
function Policy:is_stale()
  if not self.state then return false end
  local content = content_of(self.state.files)
  local is_stale = content ~= self.content
  self.content = content
  return is_stale
end

-- ---- counting ----

--- Whose sandbox it is, where that is counted.
---@param provider table
---@param id string
---@return string? principal
function Policy:owner_of(provider, id)
  return self.ledger and self.ledger:owner(provider.id, id)
end

--- Takes note that a sandbox is no more.
---@param sandbox demilune.Sandbox
function Policy:sandbox_ended(sandbox)
  if self.ledger then self.ledger:sandbox_ended(sandbox.provider.id, sandbox.id) end
end

--- Takes note that a sandbox ends at another time.
---@param sandbox demilune.Sandbox
---@param left_s number  from now
function Policy:sandbox_extended(sandbox, left_s)
  if self.ledger then
    self.ledger:sandbox_extended(sandbox.provider.id, sandbox.id, core.task.epoch_ms() // 1000 + math.ceil(left_s))
  end
end

local function who(self, call)
  return { principal = call.principal, tasks = self.app.background:running_count(call) }
end

local NO_COUNTS = { sandboxes = 0, tasks = 0, calls = 0, sandbox_seconds_today = 0 }

-- ---- deciding ----

--- A sandbox that the call names, for a look at where its path really leads.
local function real_path(self, call, view, path)
  if not (view.sandbox and view.sandbox.id) then return path end
  local provider, id = self.app:split_id(view.sandbox.id)
  local known = call.scope.sandboxes[provider.id .. "\0" .. id]
  local sandbox = known or require("demilune.sandbox").new(provider, id, view.sandbox.id)
  local ok, real = pcall(sandbox.real_path, sandbox, path)
  if ok then return real end
  if real == core.task.CANCELLED then error(real, 0) end
  return nil
end

--- What rules.decide needs of the world.
local function world(self, call, state)
  return {
    before = state.data.before and function(view)
      view.counts = self.ledger and self.ledger:counts(who(self, call)) or NO_COUNTS
      return hooks.before(state, view)
    end or nil,
    validate = function(tool, args) return require("demilune.schema").check(self.app.tools_by_name[tool].input, args) end,
    real_path = function(view, path) return real_path(self, call, view, path) end,
    honours = function(view, argument) return views.honours(self.app.providers_by_id[view.provider], argument) end,
    reserve = function(list) return self.ledger:reserve(list, who(self, call)) end,
  }
end

local ALLOWED = { verdict = "allow" }

local function denied(decision)
  return errors.new(decision.category or "policy_denied", {
    rule = decision.rule, reason = decision.reason, field = decision.field, expected = decision.expected,
    allowed = decision.allowed, retry_after = decision.retry_after,
  })
end

--- The record of a decision, before the call runs. `join` says which question it answers.
local function record(self, call, view, decision, word, join)
  if not self.audit then return nil end
  join = join or {}
  return self.audit:decision {
    id = join.id, approval_id = join.approval_id, answered_by = join.answered_by, principal = view.principal,
    client = call.client, transport = view.transport, tool = view.tool, arguments = decision.args,
    decision = word, rule = decision.rule, policy_version = self:version(), provider = view.provider,
    sandbox_id = view.sandbox and view.sandbox.id, implicit = view.implicit,
  }
end

--- Writes a record; the call is denied where it must be there and cannot be.
local function must_record(self, call, view, decision, word, join)
  local id, err = record(self, call, view, decision, word, join)
  if err and self.app.config.audit.required then error(err, 0) end
  return id
end

--- Decides a call before its handler runs, and holds on to the policy until `finish`. Raises `policy_denied`,
--- `approval_required`, `quota_exceeded`, … when it may not.
---@async
---@param call demilune.Call
---@param args table       checked arguments
---@param arguments table  as they came
---@return table args  perhaps rewritten
function Policy:decide(call, args, arguments)
  local state = self.state
  call.policy_state = state
  if state then self.holders[state] = self.holders[state] + 1 end
  local view = views.of(call, args, arguments)
  call.view = view
  if not state then
    call.audit_id = must_record(self, call, view, { args = args, verdict = "allow" }, "allow")
    return args
  end
  local io = world(self, call, state)
  local decision = rules.decide(state.compiled, view, io)
  call.decision, call.ticket = decision, decision.ticket
  if decision.args ~= args then views.renew(view, call, decision.args) end
  if decision.verdict == "ask" then return self:ask(call, view, decision, io) end
  if decision.verdict == "deny" then
    call.audit_id = must_record(self, call, view, decision, "deny")
    error(denied(decision), 0)
  end
  call.audit_id = must_record(self, call, view, decision, "allow")
  return self:begin(call, decision)
end

--- What a call that may run takes with it.
---@async
---@param call demilune.Call
---@param decision table
---@return table args
function Policy:begin(call, decision)
  call.ticket = call.ticket or self:ticket_of_creation(call)
  call.redact = decision.redact
  call.lists_own = call.view.tool == LIST_TOOL and rules.lists_own(call.policy_state.compiled, call.view)
  if self.ledger then self.ledger:note_call(call.principal) end
  return decision.args
end

--- Asks, then counts. What is asked about is recorded, and so is the answer, under one id. Raises as `decide`.
---@async
---@param call demilune.Call
---@param view table
---@param decision table
---@param io table
---@return table args
function Policy:ask(call, view, decision, io)
  local state = call.policy_state
  asking.settle {
    call = call, view = view, decision = decision, approvals = self.approvals, state = state, key = self.key,
    record = function(word, join)
      call.audit_id = must_record(self, call, view, decision, word, join)
      return call.audit_id
    end,
  }
  rules.count(state.compiled, view, decision, io)
  call.ticket = decision.ticket
  if decision.verdict ~= "deny" then return self:begin(call, decision) end
  call.audit_id = must_record(self, call, view, decision, "deny", { id = call.audit_id })
  error(denied(decision), 0)
end

--- A creation is in the ledger even where no rule counts it: another rule may, later.
---@param call demilune.Call
---@return table?
function Policy:ticket_of_creation(call)
  if not (self.ledger and call.tool.groups["@create"]) then return nil end
  return (self.ledger:reserve({}, who(self, call)))
end

--- Looks at a result before it leaves: what was created is held against the limits, then `after` may mask or refuse. Raises
--- `policy_denied`.
---@async
---@param call demilune.Call
---@param result table
---@return table
function Policy:after(call, result)
  local state, decision = call.policy_state, call.decision or ALLOWED
  if call.sandbox and decision.lifetime_s then
    call.sandbox.longest_s = math.min(call.sandbox.longest_s or math.huge, decision.lifetime_s)
  end
  if decision.limits and call.sandbox and call.tool.groups["@create"] then
    local refusal = rules.after_creation(decision, call.sandbox.info)
    if refusal then
      pcall(call.scope.kill, call.scope, call.sandbox)
      error(denied(refusal), 0)
    end
  end
  if not (state and state.data.after) then return result end
  local view = call.view
  view.args = decision.args
  if call.sandbox then view.sandbox = { id = call.sandbox.public_id, owned = true } end
  local changed, refusal = hooks.after(state, view, result)
  if not changed then error(denied(refusal), 0) end
  return changed
end

--- Ends what `decide` began: the outcome is recorded, places that were not needed are free again, the policy let go.
---@param call demilune.Call
---@param outcome string      "ok" or a category
---@param duration_ms integer
function Policy:finish(call, outcome, duration_ms)
  if call.ticket then
    local sandbox = outcome == "ok" and call.tool.groups["@create"] and call.sandbox or nil
    if outcome == "ok" then call.ticket:keep(sandbox and self:entry_of(call, sandbox)) else call.ticket:give_back() end
  end
  if self.audit and call.audit_id then
    self.audit:outcome(call.audit_id, outcome, duration_ms, call.sandbox and call.sandbox.public_id)
  end
  local state = call.policy_state
  if not state then return end
  self.holders[state] = self.holders[state] - 1
  self:drop(state)
end

--- A created sandbox as the ledger keeps it.
---@param call demilune.Call
---@param sandbox demilune.Sandbox
---@return table
function Policy:entry_of(call, sandbox)
  local now_s = core.task.epoch_ms() // 1000
  local left_ms = sandbox.ends_ms and sandbox.ends_ms - core.task.now_ms()
  return {
    provider = sandbox.provider.id, id = sandbox.id, principal = call.principal, created_s = now_s,
    ends_s = left_ms and now_s + left_ms // 1000 or nil,
    is_held = sandbox.provider.config.type == "local" and not self.app.config.keep_on_exit or nil,
  }
end

-- ---- lists ----

--- Whether a principal sees a tool; what it does not see, it cannot call.
---@async
---@param tool table  entry of tools.build
---@param principal string
---@return boolean
function Policy:shows(tool, principal)
  local state = self.state
  if not state then return true end
  local seen = self.listed[principal]
  if not seen then
    if self.listed_count == LISTED_MAX then self.listed, self.listed_count = {}, 0 end
    seen = {}
    self.listed[principal], self.listed_count = seen, self.listed_count + 1
  end
  if seen[tool.name] == nil then
    local person = { principal = principal, scopes = core.json.array {} }
    local is_shown = rules.shows(state.compiled, tool.name, person)
    if is_shown and state.data.list then is_shown = hooks.list(state, tool.definition, person) end
    if state == self.state then seen[tool.name] = is_shown end
    return is_shown
  end
  return seen[tool.name]
end

--- Ends it: audit, counters and worker.
---@async
function Policy:close()
  if self.ledger then self.ledger:flush() end
  if self.audit then self.audit:close() end
  for state in pairs(self.holders) do state:close() end
  self.holders, self.state = {}, nil
end

return policy
