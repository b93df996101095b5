--- engine.lua - `demilune engine`: runs the local engine, asks after it, stops it.
local core = require "demilune.core"
local door = require "demilune.engine.door"
local engine = require "demilune.engine"
local engine_start = require "demilune.engine_start"
local state = require "demilune.state"

local STOP_TIMEOUT_MS = 5000
local POLL_MS = 10

local function complain(message)
  io.stderr:write("demilune: ", core.vault.redact(message), "\n")
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

--- What --listen and --key-file ask for; nil for neither, false when it was complained about.
local function read_public(options)
  local text, path = options.listen, options["key-file"]
  if not text and not path then return nil end
  if not text or not path then
    complain "--listen and --key-file go together"
    return false
  end
  local address, port = door.read_address(text)
  if not address then
    complain("--listen cannot be used: " .. port)
    return false
  end
  local key, why = door.read_key(path)
  if not key then
    complain("--key-file cannot be used: " .. why)
    return false
  end
  return { address = address, port = port, key = key }
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
  local public = read_public(options)
  if public == false then return 2 end
  local code, message = engine.run {
    ready_fd = ready_fd, idle_ms = idle_s and idle_s * 1000, public = public,
  }
  if message then complain(message) end
  return code
end

return {
  name = "engine",
  summary = "Run the local engine, which keeps the sandboxes of this machine.",
  usage = "engine [--detach] [--ready-fd N] [--listen ADDRESS:PORT --key-file FILE] | --status | --stop",
  help = [[
Runs the engine of this user until it is stopped, or has had no sandbox for five minutes. Servers
start it by themselves.

With --listen it also serves E2B's protocol over plain HTTP on a port of this machine, and then runs
until it is stopped. It prints the address when it listens; point an E2B SDK at it by E2B_API_URL and
E2B_SANDBOX_URL, with the key as E2B_API_KEY.

  --detach         leave terminal and session; must come first
  --ready-fd N     write one byte to descriptor N when the engine listens
  --listen A:PORT  127.0.0.1:PORT or [::1]:PORT; port 0 lets the system choose
  --key-file FILE  the key that clients must show: the first line, at least 16 bytes, of a file of
                   yours with mode 0600
  --status         print one line about the running engine; exit 1 when there is none
  --stop           end all sandboxes and the engine]],
  options = {
    "detach", "ready-fd:", "stop", "status", "idle-seconds:", "listen:", "key-file:",
  },
  run = run,
}
