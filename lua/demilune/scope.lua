--- scope.lua - what holds a default sandbox, owned sandboxes and counters: a process on stdio.
--
-- A scope owns what it created and nothing else; what it owns ends with it. The default changes by creation alone.
local core = require "demilune.core"
local errors = require "demilune.errors"
local reap = require "demilune.reap"
local sandboxes = require "demilune.sandbox"

local task = core.task
local scopes = {}

--- A sandbox in use that this scope does not own is only kept from ending within this time.
local USED_KEEP_S = 60
--- Room beyond a command's own deadline, for what happens around it.
local WORK_MARGIN_S = 5
--- Ended sandboxes that are remembered, so that their ids are told from ids that never were.
local PAST_MAX = 1000
--- The end of a scope tries failed kills again this often.
local RETRY_MS = 100
--- How long a sandbox is looked for whose creation failed without a word whether it was made.
local LOST_MS = 30000
--- Such failures: the service may have made it all the same.
local MAY_HAVE_CREATED = {
  provider_timeout = true, connection_failed = true, unavailable = true, no_capacity = true, invalid_response = true,
  too_large = true, internal = true, disk_full = true,
}
--- To look at a sandbox that is none of ours leaves nothing behind, not even a connection.
local FOREIGN = { is_fresh = true }

---@class demilune.Scope
local Scope = {}
Scope.__index = Scope

--- Makes a scope.
---@param app demilune.App
---@param principal string
---@return demilune.Scope
function scopes.new(app, principal)
  return setmetatable({
    app = app, principal = principal, id = core.crypto.id(24), sandboxes = {}, past = {}, past_count = 0, creations = {}, lost = {},
    is_closed = false,
  }, Scope)
end

--- Whether this scope created the sandbox or has worked in it, be it gone by now.
---@param sandbox demilune.Sandbox
---@return boolean
function Scope:knows(sandbox)
  local key = sandbox:key()
  return self.sandboxes[key] ~= nil or self.past[key] == true
end

--- How the control plane is asked about a sandbox.
---@param sandbox demilune.Sandbox
---@return {is_fresh: boolean}?  nil for one that this scope created or works in
function Scope:manner(sandbox)
  return not self.sandboxes[sandbox:key()] and FOREIGN or nil
end

--- Drops a sandbox that is no more. Returns whether it was the default.
---@param sandbox demilune.Sandbox
---@return boolean
function Scope:forget(sandbox)
  local key = sandbox:key()
  if self.sandboxes[key] then
    if self.past_count == PAST_MAX then self.past, self.past_count = {}, 0 end
    self.past[key], self.past_count = true, self.past_count + 1
  end
  self.sandboxes[key] = nil
  if self.app.policy then self.app.policy:sandbox_ended(sandbox) end
  local was_default = self.default ~= nil and self.default:key() == key
  if was_default then self.default = nil end
  return was_default
end

--- Sandboxes that this scope created and that are not known to have ended.
---@return demilune.Sandbox[]
function Scope:owned()
  local list = {}
  for _, sandbox in pairs(self.sandboxes) do
    if sandbox.is_owned then list[#list + 1] = sandbox end
  end
  return list
end

-- ---- finding ----

local function is_gone(err)
  return errors.is(err) and (err.category == "not_found" or err.category == "sandbox_gone")
end

local function by_id(scope, call, sandbox_id)
  local provider, id = scope.app:split_id(sandbox_id)
  local sandbox = sandboxes.new(provider, id, scope.app:public_id(provider, id))
  local known = scope.sandboxes[sandbox:key()]
  if known then return known end
  if call:tenant(provider) then
    local ok, info = pcall(provider.get, provider, id, FOREIGN)
    -- Of what does not exist nothing can be told; what is asked next finds that out.
    if ok then scope:check_tenant(call, provider, info) elseif not is_gone(info) then error(info, 0) end
  end
  return sandbox
end

--- Under `tenancy = "principal"` another principal's sandbox does not exist.
---@param call demilune.Call
---@param provider table
---@param info table
function Scope:check_tenant(call, provider, info) -- luacheck: ignore 212/self
  local tenant = call:tenant(provider)
  if tenant and info.owner ~= tenant then
    errors.raise("not_found", { field = "sandbox_id", message = "There is no such sandbox." })
  end
end

local function refuse_no_default(suggestion)
  errors.raise("no_default_sandbox", { field = "sandbox_id", suggestion = suggestion })
end

--- The sandbox of a control-plane request: by id, or the default. Creates and connects nothing.
---@param call demilune.Call
---@param sandbox_id? string
---@return demilune.Sandbox
function Scope:find(call, sandbox_id)
  if sandbox_id then return by_id(self, call, sandbox_id) end
  if self.default and self.app.config.default_sandbox ~= "off" then return self.default end
  refuse_no_default "Pass sandbox_id, or create one with create_sandbox."
end

--- The sandbox to work in: by id, the default, or (opts.creates) a new default, which calls at the same time share.
---@param call demilune.Call
---@param sandbox_id? string
---@param opts {creates?: boolean}
---@return demilune.Sandbox sandbox
---@return boolean? created
function Scope:resolve(call, sandbox_id, opts)
  if sandbox_id then return by_id(self, call, sandbox_id) end
  if self.app.config.default_sandbox == "off" then refuse_no_default "Pass sandbox_id; this server keeps no default." end
  if self.default then return self.default end
  if not opts.creates then
    refuse_no_default "Start one with run_command or create_sandbox, or pass sandbox_id."
  end
  local job = self.default_job or self:start_default(call)
  local sandbox = self:await_default(job)
  local created = not job.is_reported or nil
  job.is_reported = true
  return sandbox, created
end

--- Starts the creation of a default, in a task of its own, since several calls may wait for it.
---@param call demilune.Call
---@return table job
function Scope:start_default(call)
  local job = { done = task.event(), waiters = 0 }
  self.default_job = job
  job.task = task.spawn(function()
    job.sandbox, job.err = require("demilune.call").create_implicit(call)
    if self.default_job == job then self.default_job = nil end
    job.done:set()
  end)
  return job
end

--- Waits for the default; the last one to give up cancels its creation.
---@param job table
---@return demilune.Sandbox
function Scope:await_default(job)
  job.waiters = job.waiters + 1
  local ok, err = pcall(job.done.wait, job.done)
  job.waiters = job.waiters - 1
  if not ok then
    if job.waiters == 0 then
      if self.default_job == job then self.default_job = nil end
      job.task:cancel()
    end
    error(err, 0)
  end
  return job.sandbox or error(job.err, 0)
end

-- ---- creating ----

--- Kills a sandbox, and tries again until `deadline_ms`. Returns whether it is gone.
local function kill_until(sandbox, deadline_ms)
  while true do
    local ok, err = pcall(sandbox.provider.kill, sandbox.provider, sandbox.id)
    if ok then return true end
    if err == task.CANCELLED then error(err, 0) end
    core.log.warn("a sandbox could not be killed: " .. tostring(err))
    if task.now_ms() + RETRY_MS >= deadline_ms then return false end
    task.sleep(RETRY_MS)
  end
end

--- Ends what nobody waits for any more. While the scope lives, one that withstands stays owned, so that its end tries again.
local function kill_late(scope, sandbox)
  if kill_until(sandbox, scope.close_deadline_ms or 0) then return end
  if scope.is_closed and not sandbox.provider.is_reaped then return end
  scope.sandboxes[sandbox:key()] = sandbox
end

local function check_lifetime(provider, timeout_s)
  local most = provider.config.max_lifetime
  if not most or timeout_s <= most then return end
  local expected = ("integer from 1 to %d"):format(most)
  errors.raise("invalid_argument", {
    field = "timeout", expected = expected, message = ("timeout must be an %s at this provider."):format(expected),
  })
end

local function create_now(scope, call, opts, stamp)
  local provider = opts.provider
  local timeout_s = opts.timeout_s or provider.config.lifetime
  check_lifetime(provider, timeout_s)
  local info = provider:create {
    scope = scope, template = opts.template, timeout_s = timeout_s, has_timeout = opts.timeout_s ~= nil,
    envs = opts.envs, region = opts.region, cpu = opts.cpu, memory = opts.memory,
    principal = call.principal, keep = scope.app.config.keep_on_exit, stamp = stamp,
  }
  local sandbox = sandboxes.new(provider, info.id, scope.app:public_id(provider, info.id))
  sandbox.is_owned = true
  sandbox.info = info
  sandbox.envs = info.envs or opts.envs or {}
  sandbox.policy_s = timeout_s
  sandbox.created_ms = task.now_ms()
  sandbox.ends_ms = sandbox.created_ms + timeout_s * 1000
  return sandbox
end

--- Looks for what a failed creation may have made, and ends it. Nobody waits for that.
local function seek_lost(scope, job)
  local provider, err = job.provider, job.result
  if not provider.is_reaped or (errors.is(err) and not MAY_HAVE_CREATED[err.category]) then return end
  scope.lost[job.stamp] = provider
  task.spawn(function()
    pcall(provider.kill_by_stamp, provider, job.stamp, task.now_ms() + LOST_MS)
    scope.lost[job.stamp] = nil
  end)
end

--- Starts a creation in a task of its own: it outlives the call that asked, so that what it makes is never lost.
---@param call demilune.Call
---@param opts table
---@return table job
function Scope:start_creation(call, opts)
  if self.is_closed then errors.raise "stopped" end
  -- The stamp goes with the creation, and finds the sandbox again where no answer came.
  local stamp = core.crypto.id(24) .. (opts.region and "@" .. opts.region or "")
  local job = { done = task.event(), waiters = 0, provider = opts.provider, stamp = stamp }
  self.creations[job] = true
  job.task = task.spawn(function()
    job.ok, job.result = pcall(create_now, self, call, opts, job.stamp)
    if job.ok and not (job.is_abandoned or self.is_closed) then
      self.sandboxes[job.result:key()] = job.result
      if self.app.config.default_sandbox ~= "off" then self.default = job.result end
    end
    if job.ok and (job.is_abandoned or self.is_closed) then
      kill_late(self, job.result)
      job.ok, job.result = false, errors.new "stopped"
    elseif not job.ok then
      seek_lost(self, job)
    end
    self.creations[job] = nil
    job.done:set()
  end)
  return job
end

--- Waits for a creation; the last one to give up abandons it.
---@param job table
---@return demilune.Sandbox
function Scope:await_creation(job)
  job.waiters = job.waiters + 1
  local ok, err = pcall(job.done.wait, job.done)
  job.waiters = job.waiters - 1
  if not ok then
    if job.waiters == 0 then job.is_abandoned = true end
    error(err, 0)
  end
  if not job.ok then error(job.result, 0) end
  return job.result
end

--- Creates a sandbox, which becomes the default.
---@param call demilune.Call
---@param opts table  provider, template, timeout_s, envs, region, cpu, memory
---@return demilune.Sandbox
function Scope:create(call, opts)
  return self:await_creation(self:start_creation(call, opts))
end

-- ---- life ----

--- Seconds of life left to grant until `max_lifetime`, or a large number.
local function room_s(sandbox, now)
  local most = sandbox.provider.config.max_lifetime
  if sandbox.longest_s then most = math.min(most or math.huge, sandbox.longest_s) end
  if not most or not sandbox.created_ms then return math.huge end
  return most - (now - sandbox.created_ms) // 1000
end

--- Asks when a sandbox of somebody else ends, and with which variables it began. Best effort, but for one that is gone.
local function learn(sandbox)
  local ok, info = pcall(sandbox.provider.get, sandbox.provider, sandbox.id)
  if not ok then
    if errors.is(info) and not is_gone(info) then return end
    error(info, 0)
  end
  local now = task.now_ms()
  sandbox.info = next(sandbox.info) and sandbox.info or info
  sandbox.envs = info.envs or sandbox.envs
  if info.ends_in_ms then sandbox.ends_ms = now + info.ends_in_ms end
  if info.age_ms then sandbox.created_ms = now - info.age_ms end
end

--- Notes the first use of a sandbox that came by its id. The operator may want such ones adopted.
local function begin_use(scope, sandbox)
  if scope.is_closed or scope.sandboxes[sandbox:key()] then return end
  scope.sandboxes[sandbox:key()] = sandbox
  if scope.app.config.adopt_by_use then
    sandbox.is_owned, sandbox.policy_s = true, sandbox.provider.config.lifetime
  end
end

--- Tells a service without lifetimes in seconds that a sandbox is in use; how long that is good for, it does not say.
local function beat(sandbox)
  local ok, err = pcall(sandbox.provider.renew, sandbox.provider, sandbox.id)
  if not ok and err == task.CANCELLED then error(err, 0) end
  return ok
end

--- Keeps a sandbox alive for work that begins now: owned ones by their policy, used ones from ending soon, both to the end
--- of the work. Best effort: a failure is the work's to find out, but for a sandbox that is gone.
---@param sandbox demilune.Sandbox
---@param work_s? integer  the work's own deadline
---@return boolean is_enough  it lives as long as the work may take, as far as is known
function Scope:renew(sandbox, work_s)
  local now = task.now_ms()
  if not sandbox.is_owned and (not sandbox.ends_ms or sandbox.ends_ms - now < USED_KEEP_S * 1000) then
    learn(sandbox)
  end
  begin_use(self, sandbox)
  if not sandbox.ends_ms then return true end
  local left_ms = sandbox.ends_ms - now
  local work_ms = work_s and (work_s + WORK_MARGIN_S) * 1000 or 0
  local policy_ms = (sandbox.is_owned and sandbox.policy_s or USED_KEEP_S) * 1000
  local enough_ms = sandbox.is_owned and policy_ms / 2 or policy_ms
  if left_ms > enough_ms and left_ms >= work_ms then return true end
  local room = room_s(sandbox, now)
  local grant_s = math.ceil(math.min(math.max(policy_ms, work_ms, left_ms) / 1000, room))
  local gain_ms = grant_s * 1000 - left_ms
  -- At the longest lifetime what is left to gain is only the rounding to whole seconds.
  if grant_s < 1 or gain_ms <= 0 or (grant_s == room and gain_ms < 1000) then return left_ms >= work_ms end
  if sandbox.provider.renew then return beat(sandbox) and left_ms >= work_ms end
  local ok, err = pcall(sandbox.provider.set_timeout, sandbox.provider, sandbox.id, grant_s)
  if ok and not self.is_closed then
    sandbox.ends_ms = now + grant_s * 1000
    if self.app.policy then self.app.policy:sandbox_extended(sandbox, grant_s) end
  elseif not ok and err == task.CANCELLED then
    error(err, 0)
  end
  return grant_s * 1000 >= work_ms and ok
end

--- Sets the lifetime from now; on an owned sandbox that is the new policy too.
---@param call demilune.Call
---@param sandbox demilune.Sandbox
---@param timeout_s integer
function Scope:set_timeout(call, sandbox, timeout_s)
  local now = task.now_ms()
  -- Where the service knows no such lifetime, that is said before anything is asked of it.
  if sandbox.provider.renew then return sandbox.provider:set_timeout(sandbox.id, timeout_s) end
  if not sandbox.created_ms and sandbox.provider.config.max_lifetime then
    local info = sandbox.provider:get(sandbox.id, self:manner(sandbox))
    self:check_tenant(call, sandbox.provider, info)
    if info.age_ms then sandbox.created_ms = now - info.age_ms end
  end
  local room = room_s(sandbox, now)
  if timeout_s > room then
    errors.raise("quota_exceeded", {
      field = "timeout",
      expected = room >= 1 and ("integer from 1 to %d"):format(room) or "nothing more: the longest lifetime is used up",
      message = "That is beyond the longest lifetime which the operator allows a sandbox.",
    })
  end
  sandbox.provider:set_timeout(sandbox.id, timeout_s, self:manner(sandbox))
  if self.app.policy then self.app.policy:sandbox_extended(sandbox, timeout_s) end
  if self.is_closed then return end
  sandbox.ends_ms = task.now_ms() + timeout_s * 1000
  if sandbox.is_owned then sandbox.policy_s = timeout_s end
end

--- The sandbox's present metadata from its control plane.
---@param call demilune.Call
---@param sandbox demilune.Sandbox
---@return table info
function Scope:inspect(call, sandbox)
  local info = sandbox.provider:get(sandbox.id, self:manner(sandbox))
  self:check_tenant(call, sandbox.provider, info)
  return info
end

--- Ends a sandbox. Returns whether it was there. After a failure it is still owned.
---@param sandbox demilune.Sandbox
---@return boolean existed
function Scope:kill(sandbox)
  local existed = sandbox.provider:kill(sandbox.id)
  self:forget(sandbox)
  return existed
end

--- What is not known to be gone, by provider; of those whose sandboxes no lease ends.
local function unfinished(scope)
  local jobs, by_provider = {}, {}
  local function job_of(provider)
    local job = by_provider[provider]
    if not job then
      job = { entry = provider.config, ids = core.json.array {}, stamps = core.json.array {} }
      by_provider[provider], jobs[#jobs + 1] = job, job
    end
    return job
  end
  for _, sandbox in ipairs(scope:owned()) do
    if sandbox.provider.is_reaped then table.insert(job_of(sandbox.provider).ids, sandbox.id) end
  end
  for creation in pairs(scope.creations) do
    if creation.provider.is_reaped then table.insert(job_of(creation.provider).stamps, creation.stamp) end
  end
  for stamp, provider in pairs(scope.lost) do table.insert(job_of(provider).stamps, stamp) end
  return jobs
end

local function kill_owned(scope, sandbox, deadline_ms)
  if kill_until(sandbox, deadline_ms) then scope:forget(sandbox) end
end

--- Ends the scope: owned sandboxes and creations in flight go, all at once. Returns within `within_ms`; what is unanswered
--- by then is the lease's to end, or a process of its own does it.
---@param within_ms integer
function Scope:close(within_ms)
  if self.is_closed then return end
  self.is_closed = true
  self.default = nil
  self.app.deferred:end_scope(self)
  local deadline = task.now_ms() + within_ms
  self.close_deadline_ms = deadline
  local jobs = {}
  if not self.app.config.keep_on_exit then
    for _, sandbox in ipairs(self:owned()) do jobs[#jobs + 1] = task.spawn(kill_owned, self, sandbox, deadline) end
    for job in pairs(self.creations) do jobs[#jobs + 1] = job.task end
  end
  for _, job in ipairs(jobs) do job:wait(math.max(0, deadline - task.now_ms())) end
  for _, provider in ipairs(self.app.providers) do provider:release_scope(self) end
  if self.app.config.keep_on_exit then return end
  local left = unfinished(self)
  if #left == 0 or reap.start(left) then return end
  core.log.error "sandboxes may be left at a provider: no process could be started to end them"
end

return scopes
