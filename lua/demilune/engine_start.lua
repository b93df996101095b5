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

local function fail(message)
  errors.raise("unavailable", {
    message = message, suggestion = "See engine.log in demilune's state folder, and `demilune doctor`.",
  })
end

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
  if not byte then fail "The local engine did not start." end
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

--- Returns when an engine of our protocol answers. Raises `unavailable` when none can be had.
---@param socket string
function engine_start.ensure(socket)
  local answer = engine_start.ask(socket)
  if answer and settle_version(socket, answer) then return end
  local deadline = core.task.now_ms() + START_TIMEOUT_MS
  local lock
  repeat
    lock = core.fs.lock(state.path "start.lock")
    if not lock then
      core.task.sleep(POLL_MS)
      if engine_start.is_running(socket) then return end
    end
  until lock or core.task.now_ms() > deadline
  if not lock then fail "Another server has been starting the local engine for too long." end
  local guard <close> = lock -- luacheck: ignore 211
  answer = engine_start.ask(socket)
  if answer and settle_version(socket, answer) then return end
  spawn()
end

return engine_start
