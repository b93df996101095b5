--- init.lua - the life of the local engine: one a user, on a unix socket, until it is told to stop
--- or nobody needs it.
--
-- Whoever holds engine.lock is the engine; nothing is reaped and no socket replaced without it. The
-- socket goes before the lock, so that whoever finds no socket may start the next engine and gets
-- the lock soon.
local core = require "demilune.core"
local envd = require "demilune.engine.envd"
local leases = require "demilune.engine.leases"
local rest = require "demilune.engine.rest"
local router = require "demilune.engine.router"
local sandboxes = require "demilune.engine.sandboxes"
local state = require "demilune.state"

local task = core.task

local engine = {}

engine.EXIT_BUSY = 3
--- How long an engine without a sandbox and without a lease goes on.
engine.IDLE_S = 300

local LOCK_TRIES, LOCK_PAUSE_MS = 25, 20
--- One a running command, of all servers of the user. The program raises its limit of descriptors far enough.
local CONNECTIONS_MAX = 2048
local HEADER_MAX_BYTES = 32 * 1024
--- So that the answer to a stop is out before the connections are closed.
local LAST_ANSWER_MS = 30

--- The lock of the engine; nil while another has it. One that is just ending is waited for a
--- moment.
local function take_lock()
  local lock, err
  for _ = 1, LOCK_TRIES do
    lock, err = core.fs.lock(state.path "engine.lock")
    if lock or err.category ~= "conflict" then return lock, err end
    task.sleep(LOCK_PAUSE_MS)
  end
  return nil, err
end

--- Opens the isolation of this machine when it is first needed, and anew as long as that fails.
--- Opening reaps what a dead engine left.
local function isolation_opener()
  local iso
  return function()
    if iso then return iso end
    local err
    iso, err = core.isolation.open {
      state_dir = state.dir(), agent_path = core.sys.library_dir() .. "/demilune-agent",
    }
    if not iso then
      core.log.error("sandboxes cannot be isolated here: " .. tostring(err.category))
    end
    return iso, err
  end
end

local function listen(handler)
  local fd, err = core.sys.listen_unix(state.engine_socket())
  if not fd then return nil, err end
  return core.httpd.listen {
    fd = fd, connections = CONNECTIONS_MAX, max_requests = CONNECTIONS_MAX,
    max_header_bytes = HEADER_MAX_BYTES,
    handler = handler,
  }
end

--- Ready: one byte to whoever started us.
local function tell_ready(fd)
  if not fd then return end
  core.sys.write(fd, "1")
  core.sys.close(fd)
end

--- Waits until somebody stops the engine, or it has been idle for `idle_ms`.
local function live(all, held, stopped, idle_ms)
  local idle_since_ms
  while not stopped.is_set do
    all.changed:clear()
    local is_idle = all.count == 0 and all.ending == 0 and held.count == 0
    idle_since_ms = is_idle and (idle_since_ms or task.now_ms()) or nil
    local left_ms = is_idle and idle_since_ms + idle_ms - task.now_ms() or nil
    if left_ms and left_ms <= 0 then
      core.log.info "nobody needs the engine: it stops"
      return
    end
    all.changed:wait(left_ms)
  end
end

local function watch_signals(stop)
  core.sys.on_signal("TERM", stop)
  core.sys.on_signal("INT", stop)
  core.sys.on_signal("HUP", core.log.reopen)
end

--- Builds the parts, serves, ends all.
local function serve(options)
  local open_isolation = isolation_opener()
  local all = sandboxes.new(open_isolation)
  local held = leases.new(all)
  local stopped = { is_set = false }
  local function stop()
    stopped.is_set = true
    all.changed:set()
  end
  open_isolation()
  local routes = rest.routes { sandboxes = all, leases = held, stop = stop, limits = function()
    local iso = open_isolation()
    return iso and iso:limits()
  end }
  for _, route in ipairs(envd.routes { sandboxes = all }) do routes[#routes + 1] = route end
  local server, err = listen(router.new(routes))
  if not server then return nil, err end
  local expiry = task.spawn(all.watch_expiry, all)
  watch_signals(stop)
  core.log.info("engine " .. core.sys.version .. " listens, process " .. core.sys.pid())
  tell_ready(options.ready_fd)
  live(all, held, stopped, options.idle_ms or engine.IDLE_S * 1000)
  all:close()
  if stopped.is_set then task.sleep(LAST_ANSWER_MS) end
  core.fs.remove(state.engine_socket())
  server:close()
  expiry:cancel()
  return true
end

--- The engine's whole life. Raises for a state folder that cannot be used.
---@param options { ready_fd?: integer, idle_ms?: integer }
---@return integer exit_code
---@return string? message  one line for a person, when it failed
function engine.run(options)
  local lock, err = take_lock()
  if not lock then
    if err.category == "conflict" then return engine.EXIT_BUSY, "another engine runs" end
    return 1, "the engine's lock cannot be taken: " .. err.message
  end
  core.log.open(state.path("log", true) .. "/engine.log")
  local ok, done, why = pcall(serve, options)
  lock:release()
  if not ok then error(done, 0) end
  if not done then return 1, "the engine cannot listen: " .. why.message end
  core.log.info "engine ended"
  return 0
end

return engine
