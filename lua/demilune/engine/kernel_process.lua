--- kernel_process.lua - one kernel: an interpreter in a sandbox that runs code piece by piece.
--
-- The program is ours, but the code that it runs may be hostile and does what it wants with it. So
-- a frame that is too long, is no JSON or has no form that is known ends the kernel; long ones are
-- taken a few at a time, for a time; and what is left of an earlier execution is passed over.
local connect = require "demilune.connect"
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local kernel_python = require "demilune.engine.kernel_python"

local kernel_process = {}

--- One frame: a result with an image in it. The program keeps within three quarters of this.
local FRAME_MAX_BYTES = 8 * 1024 * 1024
--- A frame over this is a large one.
local SMALL_BYTES = 256 * 1024
--- Large frames that are received at a time in this process, one a sandbox, and for how long.
local LARGE_MAX = 4
local LARGE_MS = 20000
--- How long a sandbox has to wait after one of the full size, less after shorter ones: to decode it
--- takes a tenth of a second, in which nobody else is served.
local LARGE_PAUSE_MS = 250
--- How long the program may take to load, and to take a request.
local START_MS = 30000
local TAKE_MS = 30000
--- How long interrupted code may take to end.
local GRACE_MS = 3000
--- What may have been left unread by the time of the next request.
local STALE_MAX_CHUNKS = 16

local SIGINT, SIGKILL = 2, 9

---@class demilune.engine.Kernel
---@field sandbox demilune.engine.Sandbox
---@field proc table               core.agent
---@field decoder demilune.connect.Decoder
---@field count integer            executions
---@field has_ended boolean
---@field large_until_ms? integer  it receives a large frame
---@field large_bytes? integer
local Kernel = {}
Kernel.__index = Kernel

--- The large frames of this process; until when a sandbox may have no other.
local large = { count = 0, busy_until_ms = setmetatable({}, { __mode = "k" }), changed = core.task.event() }

local function leave_large(self)
  if not self.large_until_ms then return end
  self.large_until_ms = nil
  large.count = large.count - 1
  local pause_ms = LARGE_PAUSE_MS * self.large_bytes // FRAME_MAX_BYTES
  large.busy_until_ms[self.sandbox] = core.task.now_ms() + pause_ms
  large.changed:set()
end

--- Whether the frame that is coming may be received now; waits a time for that.
local function enter_large(self, timeout_ms)
  if self.large_until_ms or self.decoder.need <= SMALL_BYTES then return true end
  local end_ms = core.task.now_ms() + timeout_ms
  while true do
    local now_ms = core.task.now_ms()
    local busy_ms = (large.busy_until_ms[self.sandbox] or 0) - now_ms
    if busy_ms <= 0 and large.count < LARGE_MAX then break end
    if now_ms >= end_ms then return false end
    large.changed:clear()
    large.changed:wait(math.min(end_ms - now_ms, busy_ms > 0 and busy_ms or timeout_ms))
    if self.has_ended then return false end
  end
  large.count = large.count + 1
  large.busy_until_ms[self.sandbox] = math.maxinteger
  self.large_until_ms, self.large_bytes = core.task.now_ms() + LARGE_MS, self.decoder.need
  return true
end

--- Ends the process and all of its group. Twice is fine.
function Kernel:kill()
  leave_large(self)
  if self.has_ended then return end
  self.has_ended = true
  local sandbox, proc = self.sandbox, self.proc
  core.task.spawn(function() -- this task may have been cancelled
    sandbox.channel:signal(proc.pid, SIGKILL)
    proc:detach()
  end)
end

--- The whole frames that were received, decoded.
local function take_messages(self)
  local messages = {}
  while true do
    local flags, payload = self.decoder:next()
    if not flags then
      if payload then return nil end
      break
    end
    local message = flags == 0 and connect.object(payload)
    if not message then return nil end
    messages[#messages + 1] = message
  end
  if #messages > 0 then leave_large(self) end
  return messages
end

--- Waits for what the kernel says: some messages, maybe none yet; nil and "timeout"; nil and
--- "ended", always from then on.
---@param timeout_ms integer
---@return table[]? messages
---@return "timeout"|"ended"|nil why
function Kernel:next(timeout_ms)
  if self.has_ended then return nil, "ended" end
  if not enter_large(self, timeout_ms) then return nil, self.has_ended and "ended" or "timeout" end
  if self.large_until_ms then
    timeout_ms = math.max(0, math.min(timeout_ms, self.large_until_ms - core.task.now_ms()))
  end
  local event, why = self.proc:next(timeout_ms)
  if why == "timeout" then
    local is_late = self.large_until_ms and self.large_until_ms <= core.task.now_ms()
    if not is_late then return nil, "timeout" end
    self:kill()
  elseif not event or event.type == "exit" then
    leave_large(self)
    self.has_ended = true
  elseif event.type == "stdout" then
    self.decoder:feed(event.data)
    local messages = take_messages(self)
    if messages then return messages end
    self:kill()
  else
    return {} -- stderr, from before the program was loaded
  end
  return nil, "ended"
end

--- Hands bytes over, a bounded time.
local function give(self, bytes, timeout_ms)
  local proc = self.proc
  local giving = core.task.spawn(function() return (proc:write(bytes)) end)
  local ok, is_done, written = pcall(giving.wait, giving, timeout_ms)
  if not is_done or not ok then giving:cancel() end
  if not ok then
    self:kill()
    error(is_done, 0)
  end
  if is_done and written then return true end
  self:kill()
  return false
end

--- Waits for the program to say that it has loaded.
local function await_ready(self)
  local end_ms = core.task.now_ms() + START_MS
  while true do
    local messages = self:next(math.max(0, end_ms - core.task.now_ms()))
    if not messages then return false end
    if messages[1] then return messages[1].type == "ready" end
  end
end

local NO_PYTHON = "The sandbox has no python3, so it cannot run code."
local NOT_STARTED = "The interpreter could not be started."

--- The variables as the agent takes them.
local function env_of(sandbox)
  local list = {}
  for name, value in pairs(sandbox.env) do list[#list + 1] = name .. "=" .. value end
  return list
end

local function raise_start(err)
  if err.field == "cwd" then faults.raise("cwd_not_found", { field = "cwd" }) end
  if err.code == "not_found" or err.code == "permission" then
    faults.raise("unsupported", { message = NO_PYTHON })
  end
  faults.raise_agent(err)
end

--- Starts a kernel; raises a fault when that cannot be.
---@param sandbox demilune.engine.Sandbox
---@param cwd string
---@return demilune.engine.Kernel
function kernel_process.start(sandbox, cwd)
  local proc, err = sandbox.channel:start {
    cmd = "python3", args = { "-c", kernel_python.BOOT }, envs = env_of(sandbox), cwd = cwd, stdin = true,
  }
  if not proc then raise_start(err) end
  local self = setmetatable({
    sandbox = sandbox, proc = proc, decoder = connect.decoder(FRAME_MAX_BYTES), count = 0,
    has_ended = false,
  }, Kernel)
  local ok, is_ready = pcall(function()
    return give(self, connect.frame(0, kernel_python.PROGRAM), TAKE_MS) and await_ready(self)
  end)
  if ok and is_ready then return self end
  self:kill()
  if not ok then error(is_ready, 0) end
  if sandbox.is_ended then faults.raise "sandbox_gone" end
  faults.raise("exhausted", { message = NOT_STARTED })
end

--- Throws away what came since the last execution, and notices an end. A kernel that has more to
--- say than that does not keep to the protocol.
---@return boolean is_alive
function Kernel:settle()
  for _ = 1, STALE_MAX_CHUNKS do
    local _, why = self:next(0)
    if why then return why == "timeout" end
  end
  self:kill()
  return false
end

--- Begins an execution; false when the kernel does not take it and has ended for that.
---@param code string
---@param env table<string, string>
---@return boolean
function Kernel:execute(code, env)
  self.count = self.count + 1
  local request = { id = self.count, code = code, env = env }
  return give(self, connect.message(request), TAKE_MS)
end

--- Interrupts the present execution and waits for its end; kills the kernel when that does not come
--- in time.
function Kernel:interrupt()
  if self.has_ended then return end
  self.sandbox.channel:signal(self.proc.pid, SIGINT)
  local end_ms = core.task.now_ms() + GRACE_MS
  while core.task.now_ms() < end_ms do
    local messages, why = self:next(math.max(0, end_ms - core.task.now_ms()))
    if why == "ended" then return end
    for _, message in ipairs(messages or {}) do
      if message.type == "done" and message.id == self.count then return end
    end
  end
  self:kill()
end

return kernel_process
