--- engine.lua - `demilune engine`: runs the local engine, asks after it, stops it.
local core = require "demilune.core"
local engine = require "demilune.engine"
local engine_start = require "demilune.engine_start"
local state = require "demilune.state"

local STOP_TIMEOUT_MS = 5000
local POLL_MS = 10

local function complain(message)
  io.stderr:write("demilune: ", message, "\n")
end

local function show_status()
  local known = engine_start.ask(state.engine_socket())
  if not known then
    print(engine_start.is_absent() and "no engine runs" or "an engine runs and does not answer")
    return 1
  end
  print(("engine %s, process %s, sandboxes: %s"):format(known.version, known.pid, known.sandboxes))
  return 0
end

local function stop()
  local socket, end_ms = state.engine_socket(), core.task.now_ms() + STOP_TIMEOUT_MS
  if engine_start.is_absent() then return 0 end
  local is_told = engine_start.stop(socket)
  while not engine_start.is_absent() do
    if core.task.now_ms() > end_ms then
      complain "the engine does not stop"
      return 1
    end
    core.task.sleep(POLL_MS)
    -- One that was just starting when it was first asked listens now.
    if not is_told then is_told = engine_start.stop(socket) end
  end
  return 0
end

local function whole_number(text, min, max)
  local number = text and text:match "^%d+$" and #text < 10 and math.tointeger(tonumber(text))
  return number and number >= min and number <= max and number or nil
end

local function run(options)
  if options.status then return show_status() end
  if options.stop then return stop() end
  local ready_fd = whole_number(options["ready-fd"], 3, 65535)
  local idle_s = whole_number(options["idle-seconds"], 0, 86400)
  if options["ready-fd"] and not ready_fd then
    complain "--ready-fd takes the number of an open descriptor"
    return 2
  end
  if options["idle-seconds"] and not idle_s then
    complain "--idle-seconds takes a whole number"
    return 2
  end
  local code, message = engine.run { ready_fd = ready_fd, idle_ms = idle_s and idle_s * 1000 }
  if message then complain(message) end
  return code
end

return {
  name = "engine",
  summary = "Run the local engine, which keeps the sandboxes of this machine.",
  usage = "engine [--detach] [--ready-fd N] | --status | --stop",
  help = [[
Runs the engine of this user until it is stopped, or has had no sandbox for five minutes. Servers
start it by themselves.

  --detach      leave terminal and session; must come first
  --ready-fd N  write one byte to descriptor N when the engine listens
  --status      print one line about the running engine; exit 1 when there is none
  --stop        end all sandboxes and the engine]],
  options = { "detach", "ready-fd:", "stop", "status", "idle-seconds:" },
  run = run,
}
