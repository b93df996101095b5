--- engine_start.lua - finding the user's engine, or starting it: connect; on failure take the lock, connect again, start.
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local state = require "demilune.state"

local engine_start = {}

--- The engine's protocol that this version speaks.
engine_start.PROTOCOL = 1

local PROBE_TIMEOUT_MS = 2000
local START_TIMEOUT_MS = 5000
local POLL_MS = 10
local ANSWER_MAX_BYTES = 65536
--- How long a process that was killed may take to let go of everything.
local DYING_MS, DYING_POLL_MS = 300, 10

--- What a daemon may keep of the environment it was started from.
local ENVIRONMENT = { "HOME", "PATH", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "XDG_STATE_HOME", "XDG_CONFIG_HOME" }

--- What the engine says of itself: {version, protocol, sandboxes, pid}; nil and an error where none answers.
---@param socket string
---@return table?
---@return demilune.Error?
function engine_start.ask(socket)
  local res, err = core.http.request {
    method = "GET", url = "http://localhost/demilune", unix_socket = socket, headers = {}, timeout_ms = PROBE_TIMEOUT_MS,
    max_body_bytes = ANSWER_MAX_BYTES,
  }
  if not res then return nil, err end
  local answer = res.status == 200 and connect.object(res.body)
  if not answer then return nil, errors.new "invalid_response" end
  return answer
end

--- Whether an engine answers.
---@param socket string
---@return boolean
function engine_start.is_running(socket)
  return engine_start.ask(socket) ~= nil
end

--- Whether no engine runs: nobody holds its lock. One that only does not answer in time is there.
---@return boolean
function engine_start.is_absent()
  local lock = core.fs.lock(state.path "engine.lock")
  if lock then lock:release() end
  return lock ~= nil
end

--- Whether no engine runs, asked when a connection to one has broken: of a process that dies, the kernel closes the
--- connections before, or after, it lets go of the lock.
---@async
---@return boolean
function engine_start.is_gone()
  local until_ms = core.task.now_ms() + DYING_MS
  while not engine_start.is_absent() do
    if core.task.now_ms() >= until_ms then return false end
    core.task.sleep(DYING_POLL_MS)
  end
  return true
end

--- Asks the engine to end all sandboxes and itself.
---@param socket string
---@return boolean? ok
---@return demilune.Error? err
function engine_start.stop(socket)
  local res, err = core.http.request {
    method = "POST", url = "http://localhost/demilune/stop", unix_socket = socket, headers = {}, body = "",
    timeout_ms = PROBE_TIMEOUT_MS, max_body_bytes = ANSWER_MAX_BYTES,
  }
  if not res then return nil, err end
  return true
end

local function fail(message, suggestion)
  errors.raise("unavailable", {
    message = message, suggestion = suggestion or "See engine.log in demilune's state folder, and `demilune doctor`.",
  })
end

--- Starts an engine. Returns whether it said that it listens.
local function spawn()
  local ready_read, ready_write = core.sys.pipe()
  if not ready_read then errors.raise "internal" end
  local env = {}
  for _, name in ipairs(ENVIRONMENT) do env[name] = core.sys.env(name) end
  local child, err = core.process.start {
    argv = { core.sys.executable(), "engine", "--detach", "--ready-fd", "3" }, env = env, fds = { [3] = ready_write },
  }
  core.sys.close(ready_write)
  local reader = child and core.sys.reader(ready_read)
  if not reader then
    core.sys.close(ready_read)
    error(err or errors.new "internal", 0)
  end
  local byte = reader:read(START_TIMEOUT_MS)
  reader:close()
  child:wait(START_TIMEOUT_MS)
  return byte ~= nil
end

--- An engine of another protocol is replaced while nothing lives in it.
local function settle_version(socket, answer)
  if answer.protocol == engine_start.PROTOCOL then return true end
  if math.tointeger(answer.sandboxes) ~= 0 then
    fail "An engine of another version holds sandboxes; `demilune engine --stop` ends them and it."
  end
  engine_start.stop(socket)
  local deadline = core.task.now_ms() + START_TIMEOUT_MS
  while engine_start.is_running(socket) and core.task.now_ms() < deadline do core.task.sleep(POLL_MS) end
  return false
end

--- Says why none was to be had in time: one that holds its lock and does not answer is there, only busy.
local function give_up(message)
  if engine_start.is_absent() then fail(message) end
  fail("The local engine is busy and does not answer.", "Try again when some of what runs in sandboxes has ended.")
end

--- The lock of those that start engines; nil when one answered meanwhile.
local function take_start_lock(socket, deadline)
  repeat
    local lock = core.fs.lock(state.path "start.lock")
    if lock then return lock end
    core.task.sleep(POLL_MS)
    if engine_start.is_running(socket) then return nil end
  until core.task.now_ms() > deadline
  give_up "Another server has been starting the local engine for too long."
end

--- Returns when an engine of our protocol answers. Raises `unavailable` when none can be had.
---@param socket string
function engine_start.ensure(socket)
  local answer = engine_start.ask(socket)
  if answer and settle_version(socket, answer) then return end
  local deadline = core.task.now_ms() + START_TIMEOUT_MS
  local lock <close> = take_start_lock(socket, deadline)
  if not lock then return end
  repeat
    answer = engine_start.ask(socket)
    if answer and settle_version(socket, answer) then return end
    -- Whoever holds the engine's lock is just starting, ending or busy: a second engine would only leave again.
    if engine_start.is_absent() then
      if spawn() then return end
      if engine_start.is_absent() then fail "The local engine did not start." end
    end
    core.task.sleep(POLL_MS)
  until core.task.now_ms() > deadline
  give_up "The local engine did not start."
end

return engine_start
