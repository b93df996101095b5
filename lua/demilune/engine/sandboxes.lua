--- sandboxes.lua - the sandboxes of this engine: from their creation to the end of their last
--- process.
--
-- A sandbox leaves the table the moment it is ended, so nobody finds one that is going; its
-- processes, group and uid are given back by a keeper task of its own when the kernel says that
-- they are gone. All kills go out at once. Lifetimes count on CLOCK_BOOTTIME, and no client needs
-- to be connected for them to be kept.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local tokens = require "demilune.engine.tokens"

local task = core.task

local sandboxes = {}

--- Sandboxes at a time.
sandboxes.MAX_COUNT = 128
--- How long the agent of a new sandbox may take to say hello.
sandboxes.HELLO_TIMEOUT_MS = 10000
--- How long an answer to a kill may wait for the last process.
local GONE_TIMEOUT_MS = 5000
local ID_RANDOM_CHARACTERS = 19

---@class demilune.engine.Sandbox
---@field id string
---@field number integer          creations are counted
---@field template string
---@field env table<string, string>
---@field metadata table<string, string>
---@field lease? string
---@field disk_mb integer
---@field memory_mb? number       nil where the limit does not hold
---@field cpu? number             nil where the limit does not hold
---@field started_at_ms integer   epoch
---@field end_at_ms integer       epoch
---@field deadline_ms integer     task.now_ms
---@field channel table           core.agent
---@field box table               core.isolation
---@field state "running"|"pausing"|"paused"
---@field moved? table            event: the state is settled; nil while it is
---@field timeout_s integer       what the creation asked for
---@field has_auto_pause boolean  paused, not ended, at its time
---@field has_auto_resume boolean
---@field access_token string     asked for by the data plane over TCP
---@field traffic_token string    likewise, by ports other than envd's
---@field born_ms integer         task.now_ms
---@field is_ended boolean
---@field ended_by? string        the fault that a creation under way is answered with
---@field gone table              event: nothing of it is left

---@class demilune.engine.Sandboxes
---@field by_id table<string, demilune.engine.Sandbox>
---@field count integer
---@field ending integer          ended, and something of it is left
---@field number integer
---@field changed table           event: something here is other than before
---@field is_closing boolean
---@field open_isolation fun(): table?, table?
local Sandboxes = {}
Sandboxes.__index = Sandboxes

--- An empty table; `open_isolation` gives core.isolation's handle, or nil and an error, and is
--- asked at each creation.
---@param open_isolation fun(): table?, table?
---@return demilune.engine.Sandboxes
function sandboxes.new(open_isolation)
  return setmetatable({
    by_id = {}, count = 0, ending = 0, number = 0, changed = task.event(), is_closing = false,
    open_isolation = open_isolation,
  }, Sandboxes)
end

--- The sandbox of an id, or nil. Any string may be asked.
---@param id string
---@return demilune.engine.Sandbox?
function Sandboxes:find(id)
  local sandbox = self.by_id[id]
  return sandbox and sandbox.is_ready and sandbox or nil
end

--- All that can be used, newest first.
---@return demilune.engine.Sandbox[]
function Sandboxes:list()
  local all = {}
  for _, sandbox in pairs(self.by_id) do
    if sandbox.is_ready then all[#all + 1] = sandbox end
  end
  table.sort(all, function(a, b) return a.number > b.number end)
  return all
end

--- Sets the end to `seconds` from now; `is_extension` never makes it earlier.
---@param sandbox demilune.engine.Sandbox
---@param seconds integer
---@param is_extension? boolean
function Sandboxes:set_timeout(sandbox, seconds, is_extension)
  local deadline_ms = task.now_ms() + seconds * 1000
  if is_extension and sandbox.deadline_ms and deadline_ms <= sandbox.deadline_ms then return end
  sandbox.deadline_ms = deadline_ms
  sandbox.end_at_ms = task.epoch_ms() + seconds * 1000
  self.changed:set()
end

--- Ends a sandbox now; what is left of it goes on its own (see `gone`). `why` answers a creation
--- under way.
---@param sandbox demilune.engine.Sandbox
---@param why? string
function Sandboxes:kill(sandbox, why)
  if sandbox.is_ended then return end
  sandbox.is_ended, sandbox.is_ready, sandbox.ended_by = true, false, why
  self.by_id[sandbox.id] = nil
  self.count, self.ending = self.count - 1, self.ending + 1
  if sandbox.box then sandbox.box:kill() end
  if sandbox.channel then sandbox.channel:close() end
  if sandbox.moved then sandbox.moved:set() end
  self.changed:set()
end

--- Ends all sandboxes that `matches`, at once.
---@param matches fun(sandbox: demilune.engine.Sandbox): boolean
---@param why? string
function Sandboxes:kill_matching(matches, why)
  local doomed = {}
  for _, sandbox in pairs(self.by_id) do
    if matches(sandbox) then doomed[#doomed + 1] = sandbox end
  end
  for _, sandbox in ipairs(doomed) do self:kill(sandbox, why) end
end

--- Waits until nothing of an ended sandbox is left, a bounded time.
---@param sandbox demilune.engine.Sandbox
function Sandboxes:wait_gone(sandbox)
  sandbox.gone:wait(GONE_TIMEOUT_MS)
end

--- The keeper: an agent that dies takes its sandbox along; then everything is given back.
local function keep(self, sandbox)
  sandbox.channel:closed()
  if not sandbox.is_ended then
    core.log.info("sandbox " .. sandbox.id .. " ended by itself")
    self:kill(sandbox, "local_isolation_unavailable")
  end
  sandbox.box:wait()
  sandbox.box:release()
  sandbox.channel:close()
  self.ending = self.ending - 1
  sandbox.gone:set()
  self.changed:set()
end

--- Drops a sandbox that never had a process.
local function forget(self, sandbox)
  self.by_id[sandbox.id] = nil
  sandbox.is_ended = true
  self.count = self.count - 1
  sandbox.gone:set()
  self.changed:set()
end

local START_FAULTS = {
  local_isolation_unavailable = "local_isolation_unavailable", no_capacity = "no_capacity",
  conflict = "no_capacity",
}

--- Starts bubblewrap and the keeper, in one go: no wait in between, so nothing can be left over.
local function start(self, sandbox, spec)
  local iso, err = self.open_isolation()
  local box
  if iso then
    box, err = iso:start {
      name = sandbox.id, disk_mb = spec.disk_mb, memory_mb = spec.memory_mb, cpu = spec.cpu,
      pids = spec.pids,
    }
  end
  if not box then
    forget(self, sandbox)
    core.log.error("a sandbox could not be started: " .. tostring(err and err.category))
    faults.raise(START_FAULTS[err and err.category] or "internal")
  end
  sandbox.box = box
  sandbox.memory_mb, sandbox.cpu = box.memory_mb, box.cpu
  sandbox.channel = core.agent.attach(box:take_fd())
  task.spawn(keep, self, sandbox)
end

local function await_hello(self, sandbox)
  local ok, ready, err = pcall(sandbox.channel.ready, sandbox.channel, sandboxes.HELLO_TIMEOUT_MS)
  if ok and ready and not sandbox.is_ended then return end
  local is_late = ok and err and err.code == "timeout"
  self:kill(sandbox, is_late and "agent_timeout" or "local_isolation_unavailable")
  if not ok then error(ready, 0) end
  core.log.error("sandbox " .. sandbox.id .. " did not come up: " .. tostring(sandbox.ended_by))
  faults.raise(sandbox.ended_by or "local_isolation_unavailable")
end

---@class demilune.engine.Spec
---@field template string
---@field timeout_s integer
---@field disk_mb integer
---@field memory_mb? number
---@field cpu? number
---@field pids? integer
---@field env table<string, string>
---@field metadata table<string, string>
---@field lease? string
---@field has_auto_pause boolean
---@field has_auto_resume boolean

--- An entry for a sandbox that is to be.
local function describe(number, spec)
  return {
    id = "i" .. core.crypto.id(ID_RANDOM_CHARACTERS), number = number,
    template = spec.template, env = spec.env, metadata = spec.metadata, lease = spec.lease,
    disk_mb = spec.disk_mb, timeout_s = spec.timeout_s,
    has_auto_pause = spec.has_auto_pause, has_auto_resume = spec.has_auto_resume,
    access_token = tokens.fresh(), traffic_token = tokens.fresh(),
    started_at_ms = task.epoch_ms(), born_ms = task.now_ms(),
    state = "running", gone = task.event(), is_ended = false, is_ready = false,
  }
end

--- Makes a sandbox and waits until it can be used. Raises a fault, or the cancel of the task; then
--- nothing is left.
---@param spec demilune.engine.Spec
---@return demilune.engine.Sandbox
function Sandboxes:create(spec)
  if self.is_closing then faults.raise "engine_stopping" end
  if self.count + self.ending >= sandboxes.MAX_COUNT then faults.raise "too_many_sandboxes" end
  self.number, self.count = self.number + 1, self.count + 1
  local sandbox = describe(self.number, spec)
  self.by_id[sandbox.id] = sandbox
  start(self, sandbox, spec)
  await_hello(self, sandbox)
  sandbox.is_ready = true
  self:set_timeout(sandbox, spec.timeout_s)
  core.log.info("sandbox " .. sandbox.id .. " started")
  return sandbox
end

--- Takes no more creations, ends all sandboxes and waits until nothing of them is left, a bounded
--- time.
function Sandboxes:close()
  self.is_closing = true
  self:kill_matching(function() return true end, "engine_stopping")
  local end_ms = task.now_ms() + GONE_TIMEOUT_MS
  while self.ending > 0 and task.now_ms() < end_ms do
    self.changed:clear()
    self.changed:wait(end_ms - task.now_ms())
  end
end

return sandboxes
