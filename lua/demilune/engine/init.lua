--- init.lua - the life of the local engine: one a user, on a unix socket, until it is told to stop
--- or nobody needs it.
--
-- Whoever holds engine.lock is the engine; nothing is reaped and no socket replaced without it. The
-- socket goes before the lock, so that whoever finds no socket may start the next engine and gets
-- the lock soon.
local core = require "demilune.core"
local door = require "demilune.engine.door"
local expiry = require "demilune.engine.expiry"
local leases = require "demilune.engine.leases"
local sandboxes = require "demilune.engine.sandboxes"
local serving = require "demilune.engine.serving"
local state = require "demilune.state"

local task = core.task

local engine = {}

engine.EXIT_BUSY = 3
--- How long an engine without a sandbox and without a lease goes on.
engine.IDLE_S = 300

local LOCK_TRIES, LOCK_PAUSE_MS = 25, 20
--- One a running command, of all servers of the user. The program raises its limit of descriptors far enough.
local CONNECTIONS_MAX = 2048
--- Over TCP, where anybody on the machine may connect: so few that they leave room for the others.
local TCP_CONNECTIONS_MAX = 512
local TCP_IDLE_S = 30
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

local function listen(fd, connections, handler, idle_timeout_s)
  return core.httpd.listen {
    fd = fd, connections = connections, max_requests = connections,
    max_header_bytes = HEADER_MAX_BYTES, idle_timeout_s = idle_timeout_s, handler = handler,
  }
end

--- The unix socket.
local function listen_here(parts)
  local fd, err = core.sys.listen_unix(state.engine_socket())
  if not fd then return nil, err end
  return listen(fd, CONNECTIONS_MAX, serving.here(parts))
end

--- The TCP port, where one was asked for. Says on stdout which it is.
local function listen_public(parts, public)
  if not public then return true end
  local fd, port = core.httpd.listen_tcp(public.address, public.port)
  if not fd then return nil, port end
  local handler = serving.public(parts, door.new(public.address, public.key))
  local server, err = listen(fd, TCP_CONNECTIONS_MAX, handler, TCP_IDLE_S)
  if not server then return nil, err end
  local host = public.address:find(":", 1, true) and "[" .. public.address .. "]" or public.address
  io.stdout:write(("demilune engine listens on http://%s:%d\n"):format(host, port))
  io.stdout:flush()
  return server
end

--- Ready: one byte to whoever started us.
local function tell_ready(fd)
  if not fd then return end
  core.sys.write(fd, "1")
  core.sys.close(fd)
end

--- Waits until somebody stops the engine, or it has been idle for `idle_ms` (nil: for ever).
local function live(all, held, stopped, idle_ms)
  local idle_since_ms
  while not stopped.is_set do
    all.changed:clear()
    local is_idle = idle_ms and all.count == 0 and all.ending == 0 and held.count == 0
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

--- What both doors serve.
local function make_parts(stop)
  local open_isolation = isolation_opener()
  open_isolation()
  local all = sandboxes.new(open_isolation)
  local function limits()
    local iso = open_isolation()
    return iso and iso:limits()
  end
  return { sandboxes = all, leases = leases.new(all), stop = stop, limits = limits }
end

--- Listens at both doors; nil and what failed, and then at none.
local function open_doors(parts, public)
  local here, err = listen_here(parts)
  if not here then return nil, err end
  local there, why = listen_public(parts, public)
  if not there then
    core.fs.remove(state.engine_socket())
    here:close()
    return nil, why
  end
  return function()
    core.fs.remove(state.engine_socket())
    here:close()
    if public then there:close() end
  end
end

--- Builds the parts, serves, ends all.
local function serve(options)
  local stopped, parts = { is_set = false }, nil
  local function stop()
    stopped.is_set = true
    parts.sandboxes.changed:set()
  end
  parts = make_parts(stop)
  local close, err = open_doors(parts, options.public)
  if not close then return nil, err end
  local keeper = task.spawn(expiry.watch, parts.sandboxes)
  watch_signals(stop)
  core.log.info("engine " .. core.sys.version .. " listens, process " .. core.sys.pid())
  tell_ready(options.ready_fd)
  live(parts.sandboxes, parts.leases, stopped, options.idle_ms)
  parts.sandboxes:close()
  if stopped.is_set then task.sleep(LAST_ANSWER_MS) end
  close()
  keeper:cancel()
  return true
end

---@class demilune.engine.Options
---@field ready_fd? integer
---@field idle_ms? integer  IDLE_S without it; with a TCP port, which somebody asked for, for ever
---@field public? { address: string, port: integer, key: string }  also listens on TCP

--- The engine's whole life. Raises for a state folder that cannot be used.
---@param options demilune.engine.Options
---@return integer exit_code
---@return string? message  one line for a person, when it failed
function engine.run(options)
  local lock, err = take_lock()
  if not lock then
    if err.category == "conflict" then return engine.EXIT_BUSY, "another engine runs" end
    return 1, "the engine's lock cannot be taken: " .. err.message
  end
  options.idle_ms = options.idle_ms or not options.public and engine.IDLE_S * 1000 or nil
  core.log.open(state.path("log", true) .. "/engine.log")
  local ok, done, why = pcall(serve, options)
  lock:release()
  if not ok then error(done, 0) end
  if not done then return 1, "the engine cannot listen: " .. why.message end
  core.log.info "engine ended"
  return 0
end

return engine
