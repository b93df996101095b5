--- call.lua - the one path of every tool call, whatever door it came through.
--
-- validate, policy, handler, then the result: required fields that the handler left out become null, and what must not leave
-- is masked in it, as in an error. What cuts a text masks it before (outcome.lua, text_file.lua). Without a policy and without
-- an audit there is nothing to ask, and nothing is.
local core = require "demilune.core"
local errors = require "demilune.errors"
local mask = require "demilune.mask"
local progress = require "demilune.progress"
local schema = require "demilune.schema"

local json = core.json
local calls = {}

---@class demilune.Call
---@field app demilune.App
---@field scope demilune.Scope
---@field tool table            entry of tools.build
---@field principal string
---@field client string         the client's own name, for logs
---@field client_version? string
---@field transport string      "stdio" or "cli"
---@field revision? string      of MCP, where the call came that way
---@field implicit? boolean     a creation that another call needs
---@field sandbox? demilune.Sandbox  what it is about, once that is found
---@field by_default? boolean   found without an id
---@field send_progress? fun(count: integer, message: string)
---@field request? table        of MCP, where the call came that way
---@field client_face? table    functions of a request by which a handler reaches its client: log, ask
---@field defer? fun(): boolean  answers the client with a handle, where it takes them; the call goes on
---@field ask_person? fun(question: string, shown: table, timeout_ms: integer): "accept"|"decline"|nil
---@field redact? table[]       regular expressions of the policy for what leaves
---@field policy_state? table   the policy that it began under
---@field lists_own? boolean    a list shows the principal's own sandboxes alone
local Call = {}
Call.__index = Call

--- Categories that are safe to repeat for tools that change nothing or end in the same state.
local REPEATABLE = { provider_timeout = true, connection_failed = true, unavailable = true }
local REPEATABLE_EFFECTS = { read = true, lifetime = true, destroy = true }

--- Finds the sandbox to work in, creates the default where the tool may, renews its life.
---@param sandbox_id? string
---@param opts {creates?: boolean, work_s?: integer}  work_s: seconds that the work itself may take
---@return demilune.Sandbox sandbox
---@return boolean? created  true when this call created it
---@return boolean lives     it is known to live as long as the work may take
function Call:use(sandbox_id, opts)
  local sandbox, created = self.scope:resolve(self, sandbox_id, opts)
  self.sandbox, self.by_default = sandbox, sandbox_id == nil
  local lives = (created and not opts.work_s) or self.scope:renew(sandbox, opts.work_s)
  return sandbox, created, lives
end

--- Finds the sandbox that a control-plane request is about; connects to nothing.
---@param sandbox_id? string
---@return demilune.Sandbox
function Call:control(sandbox_id)
  self.sandbox, self.by_default = self.scope:find(self, sandbox_id), sandbox_id == nil
  return self.sandbox
end

--- Whose sandboxes this call may see at the provider, or nil for all of the account.
---@param provider table
---@return string?
function Call:tenant(provider)
  return provider.config.tenancy == "principal" and self.principal or nil
end

--- Whose sandboxes a list may show, nil for all: a principal's own, where the configuration or a rule says so.
---@param provider table
---@return string?
function Call:owner_shown(provider)
  return self:tenant(provider) or (self.lists_own and self.principal or nil)
end

--- A function for whole lines of output, or nil when nobody asked for progress.
---@return fun(line: string)?
function Call:line_reporter()
  local reporter = self.progress
  if not reporter then return nil end
  local masks = mask.of(self.redact)
  return function(line) reporter:line(masks.whole(line)) end
end

local function finish(call, result)
  for _, name in ipairs(call.tool.output.nulls) do
    if result[name] == nil then result[name] = json.null end
  end
  return mask.all(call.redact, result)
end

local function work(call, arguments)
  local policy = call.app.policy
  local args = schema.check(call.tool.input, arguments)
  if not policy then return finish(call, call.tool.handler(call, args)) end
  args = policy:decide(call, args, arguments)
  return policy:after(call, finish(call, call.tool.handler(call, args)))
end

--- Tells the policy that the call is over, whichever way it ended.
local function close(call, outcome, started_ms)
  local policy = call.app.policy
  if not policy or call.is_over then return end
  call.is_over = true
  local ok, err = pcall(policy.finish, policy, call, outcome, core.task.now_ms() - started_ms)
  if not ok then core.log.error("the end of a call could not be noted: " .. tostring(err)) end
end

--- What an error means to this scope: a sandbox it knew is gone, one it never knew was not found.
local function settle(call, err)
  local sandbox = call.sandbox
  if sandbox and (err.category == "sandbox_gone" or (err.category == "not_found" and not err.field)) then
    if call.scope:knows(sandbox) then
      local was_default = call.scope:forget(sandbox)
      err = errors.new("sandbox_gone", { suggestion = "Create another with create_sandbox." })
      -- Of calls at the same time only the first finds it still the default.
      if was_default or call.by_default then
        err.default_cleared = true
        err.suggestion = "The next run_command, run_code or write_file starts a fresh one."
      end
    else
      err = errors.new("not_found", { field = "sandbox_id", message = "There is no such sandbox." })
    end
  end
  if REPEATABLE[err.category] and REPEATABLE_EFFECTS[call.tool.tool.effect] then err.retryable = true end
  return err
end

--- What a failed command has to show all the same, as the policy lets it.
local function partial_of(call, partial)
  local policy = call.app.policy
  local shown = finish(call, partial)
  if not policy then return shown end
  local ok, changed = pcall(policy.after, policy, call, shown)
  return ok and changed or nil
end

local function settle_failure(call, failure)
  if failure == core.task.CANCELLED then return errors.new "stopped" end
  if not errors.is(failure) then return core.vault.redact_all(errors.public(failure)) end
  local err = settle(call, failure)
  return core.vault.redact_all(errors.public(err)), err.partial and partial_of(call, err.partial)
end

--- Runs a call. Never raises, but for the cancel of its own task.
---@param fields table  of a Call, without the methods
---@param arguments table
---@return table? result
---@return demilune.Error? err
---@return table? partial  of a failed command
function calls.run(fields, arguments)
  local call = setmetatable(fields, Call)
  local started_ms = core.task.now_ms()
  -- Closed also when the task is ended hard in the middle: the reporter has a task of its own.
  local reporter <close> = call.send_progress and progress.start(call.send_progress) or nil
  call.progress = reporter
  local ok, result = xpcall(work, errors.with_trace, call, arguments)
  if reporter then reporter:stop() end
  local err, partial
  if not ok then err, partial = settle_failure(call, result) end
  local outcome = ok and "ok" or err.category
  close(call, outcome, started_ms)
  local metrics = call.app.metrics
  if metrics then metrics:call(call.tool.name, outcome, core.task.now_ms() - started_ms) end
  if ok then return result end
  return nil, err, partial
end

--- Runs the creation that another call needs: a create_sandbox call of the same scope like any other, marked implicit.
---@param call demilune.Call
---@return demilune.Sandbox? sandbox
---@return demilune.Error? err
function calls.create_implicit(call)
  local inner = {
    app = call.app, scope = call.scope, tool = call.app.tools_by_name.create_sandbox, principal = call.principal,
    client = call.client, client_version = call.client_version, transport = call.transport, implicit = true,
    ask_person = call.ask_person,
  }
  local result, err = calls.run(inner, {})
  return result and inner.sandbox, err
end

return calls
