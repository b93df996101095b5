--- process.lua - process.Process of envd: Start, Connect, List, SendSignal, SendInput, CloseStdin.
--
-- Stricter than envd, and said so in docs/engine.md: every process leads a group, and signals and
-- deadlines hit all of it. Closing a Start stream leaves the process running, unless the client
-- asked for the opposite.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local input = require "demilune.engine.input"
local output = require "demilune.engine.output"
local path = require "demilune.engine.path"

local process = {}

local CMD_MAX_BYTES = 4095
local TAG_MAX_BYTES = 255
local ARGS_MAX_COUNT = 16384
local ARG_MAX_BYTES = 128 * 1024 - 1
local PID_MAX = 4194304 -- PID_MAX_LIMIT on 64 bits, proc(5)
local TIMEOUT_MAX_MS = 2147483647
local KEEP_MAX_BYTES = 1024 * 1024
local PING_DEFAULT_S, PING_MAX_S = 90, 3600

local SIGKILL, SIGTERM = 9, 15
--- By name and by number, as proto3 JSON allows both.
local SIGNALS = {
  SIGNAL_SIGKILL = SIGKILL, SIGNAL_SIGTERM = SIGTERM, [SIGKILL] = SIGKILL, [SIGTERM] = SIGTERM,
}

--- Faults of the agent when a process, not a path, is meant.
local OF_PROCESS = { not_found = "process_not_found" }

--- The variables as the agent takes them: those of the sandbox, then those of the call.
local function merge_env(sandbox, env)
  local list = {}
  for name, value in pairs(sandbox.env) do
    if not env[name] then list[#list + 1] = name .. "=" .. value end
  end
  for name, value in pairs(env) do list[#list + 1] = name .. "=" .. value end
  return list
end

local function read_spool(headers)
  local text = headers["x-demilune-spool"]
  if not text then return nil end
  local numbers = {}
  for number in text:gmatch "%d+" do
    numbers[#numbers + 1] = #number <= 7 and math.tointeger(tonumber(number)) or math.maxinteger
  end
  if not text:find "^%d+,%d+,%d+,%d+$" or math.max(table.unpack(numbers)) > KEEP_MAX_BYTES then
    local form = "It must be four numbers of at most %d."
    faults.bad("x-demilune-spool", form:format(KEEP_MAX_BYTES))
  end
  return {
    stdout_live = numbers[1], stdout_tail = numbers[2], stderr_live = numbers[3],
    stderr_tail = numbers[4],
  }
end

--- How long the client gave the call; nil for no limit.
local function read_timeout_ms(headers)
  local timeout_ms = input.digits(headers, "connect-timeout-ms", 0, 9999999999)
  if timeout_ms == 0 then faults.raise "deadline_exceeded" end
  return timeout_ms and math.min(timeout_ms, TIMEOUT_MAX_MS)
end

local function read_ping_ms(headers)
  return (input.digits(headers, "keepalive-ping-interval", 1, PING_MAX_S) or PING_DEFAULT_S) * 1000
end

local function read_start(sandbox, message, headers)
  if input.get(message, "pty") ~= nil then
    faults.raise("unimplemented", { field = "pty", message = "The local engine has no terminals." })
  end
  local config = input.object(message, "process") or faults.bad("process", "It is missing.")
  local cmd = input.text(config, "cmd", CMD_MAX_BYTES)
  if not cmd or cmd == "" then faults.bad("cmd", "It is missing.") end
  local has_stdin = input.flag(message, "stdin")
  return {
    cmd = cmd, args = input.texts(config, "args", ARGS_MAX_COUNT, ARG_MAX_BYTES),
    envs = merge_env(sandbox, input.env(config, "envs")), cwd = path.read(config,
    "cwd") or path.HOME,
    tag = input.text(message, "tag", TAG_MAX_BYTES), stdin = has_stdin == nil or has_stdin,
    timeout_ms = read_timeout_ms(headers) or 0, spool = read_spool(headers),
    progress = headers["x-demilune-progress"] == "1",
  }
end

--- Why a process could not be started: the agent says which of the two paths is at fault.
local function raise_start(err)
  if err.field == "cwd" then
    local is_denied = err.code == "permission"
    faults.raise(is_denied and "file_permission" or "cwd_not_found", { field = "cwd" })
  end
  faults.raise_agent(err, { not_found = "command_not_found", permission = "command_not_runnable",
    not_a_directory = "command_not_found", is_directory = "command_not_runnable" })
end

local function kill(sandbox, proc)
  sandbox.channel:signal(proc.pid, SIGKILL)
  proc:detach()
end

--- Starts a process that must not outlive its client, who may leave while the agent is asked: then
--- the answer is waited for all the same, so that there is a pid to kill.
local function start_bound(sandbox, spec)
  local starting = core.task.spawn(function() return { sandbox.channel:start(spec) } end)
  local ok, _, answer = pcall(starting.wait, starting)
  if ok then return table.unpack(answer, 1, 2) end
  core.task.spawn(function()
    local _, late = starting:wait()
    if late[1] then kill(sandbox, late[1]) end
  end)
  error(core.task.CANCELLED, 0)
end

--- Start.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@param req table
---@return fun() write  writes the stream
function process.start(sandbox, message, req)
  local is_bound = req.headers["x-demilune-kill-on-close"] == "1"
  local ping_ms = read_ping_ms(req.headers)
  local spec = read_start(sandbox, message, req.headers)
  local proc, err
  if is_bound then proc, err = start_bound(sandbox, spec)
  else proc, err = sandbox.channel:start(spec)
  end
  if not proc then raise_start(err) end
  return function()
    local ok, has_ended = pcall(output.stream, req, proc, { ping_ms = ping_ms })
    if ok and has_ended then return end
    if is_bound then kill(sandbox, proc) else proc:detach() end
    if not ok then error(has_ended, 0) end
  end
end

--- The process that a request selects: a pid or a tag.
local function read_selector(message)
  local selector = input.object(message, "process") or faults.bad("process", "It is missing.")
  local tag = input.text(selector, "tag", TAG_MAX_BYTES)
  local pid = input.number(selector, "pid", 1, PID_MAX, true)
  if not tag and not pid then faults.bad("process", "It must hold a pid or a tag.") end
  return pid or tag
end

local function open(sandbox, selector)
  local proc, err = sandbox.channel:connect(selector)
  if not proc then faults.raise_agent(err, OF_PROCESS) end
  return proc
end

--- Connect: the output from now on. Its deadline ends the stream, not the process.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@param req table
---@return fun() write  writes the stream
function process.connect(sandbox, message, req)
  local timeout_ms, ping_ms = read_timeout_ms(req.headers), read_ping_ms(req.headers)
  local deadline_ms = timeout_ms and core.task.now_ms() + timeout_ms
  local proc = open(sandbox, read_selector(message))
  return function()
    local times = { ping_ms = ping_ms, deadline_ms = deadline_ms }
    local ok, raised = pcall(output.stream, req, proc, times)
    proc:detach()
    if not ok then error(raised, 0) end
  end
end

--- List.
---@param sandbox demilune.engine.Sandbox
---@return table
function process.list(sandbox)
  local found, err = sandbox.channel:processes()
  if not found then faults.raise_agent(err, OF_PROCESS) end
  local shown = core.json.array {}
  for i, entry in ipairs(found) do
    local config = { cmd = entry.cmd, envs = {}, cwd = entry.cwd }
    config.args = core.json.array(entry.args)
    shown[i] = { config = config, pid = entry.pid, tag = entry.tag }
  end
  return { processes = shown }
end

local function pid_of(sandbox, selector)
  if type(selector) == "number" then return selector end
  local found, err = sandbox.channel:processes()
  if not found and err.code == "too_large" then
    -- That many processes, or arguments so long. A connection knows the pid too, also of one that has ended.
    local proc = open(sandbox, selector)
    proc:detach()
    return proc.pid
  end
  if not found then faults.raise_agent(err, OF_PROCESS) end
  for _, entry in ipairs(found) do
    if entry.tag == selector then return entry.pid end
  end
  faults.raise "process_not_found"
end

--- SendSignal, to the whole group.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function process.send_signal(sandbox, message)
  local selector = read_selector(message)
  local name = input.get(message, "signal")
  local signo = (type(name) == "string" or math.type(name) == "integer") and SIGNALS[name]
  if not signo then
    faults.raise("unimplemented", { field = "signal", message = "It may be SIGKILL or SIGTERM." })
  end
  local ok, err = sandbox.channel:signal(pid_of(sandbox, selector), signo)
  if not ok then faults.raise_agent(err, OF_PROCESS) end
  return {}
end

--- SendInput. A process without stdin swallows it.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function process.send_input(sandbox, message)
  local selector = read_selector(message)
  local source = input.object(message, "input") or faults.bad("input", "It is missing.")
  local text = input.text(source, "stdin", math.maxinteger)
  local bytes = text and core.crypto.unbase64(text)
  if not bytes then faults.bad("stdin", "It must be base64.") end
  local proc = open(sandbox, selector)
  local ok, written, err = pcall(proc.write, proc, bytes)
  proc:detach()
  if not ok then error(written, 0) end
  if not written then
    faults.raise_agent(err, { closed = sandbox.is_ended and "sandbox_gone" or "process_not_found" })
  end
  return {}
end

--- CloseStdin.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function process.close_stdin(sandbox, message)
  local proc = open(sandbox, read_selector(message))
  proc:close_stdin()
  proc:detach()
  return {}
end

return process
