--- What sandbox specs run in a process of its own, as root or as a plain user; see probe.lua.
--
--   lua5.4 worker.lua FOLDER MODE REQUEST.json
--
-- FOLDER holds demilune/core.so and demilune-agent. Prints one line of JSON.

local folder, mode, request_path = arg[1], arg[2], arg[3]
package.cpath = folder .. "/?.so;" .. package.cpath

local core = require "demilune.core"
local agent, isolation, json, task = core.agent, core.isolation, core.json, core.task

local READY_MS = 10000
local STEP_MS = 20000

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

local function print_json(value)
  io.stdout:write(json.encode(value), "\n")
  io.stdout:flush()
end

local function open()
  return assert(isolation.open { state_dir = folder, agent_path = folder .. "/demilune-agent" })
end

local function start(iso, request, name)
  local box = assert(iso:start {
    name = name,
    disk_mb = request.disk_mb or 64,
    memory_mb = request.memory_mb or 256,
    cpu = request.cpu or 1,
    pids = request.pids or 128,
  })
  local channel = agent.attach(box:take_fd())
  local ok, err = channel:ready(READY_MS)
  if not ok then
    box:release()
    error("the agent is not ready: " .. tostring(err))
  end
  return box, channel
end

--- Runs one shell script in the sandbox: { code=, signal=, output=, ms= }.
local function run(channel, script)
  local began = task.now_ms()
  local proc = assert(channel:start {
    cmd = "/bin/bash",
    args = { "-c", script },
    envs = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user" },
    cwd = "/home/user",
    timeout_ms = STEP_MS,
  })
  local output = {}
  while true do
    local event, err = proc:next(STEP_MS + 1000)
    if not event then return { error = tostring(err), output = table.concat(output) } end
    if event.type == "stdout" or event.type == "stderr" then output[#output + 1] = event.data end
    if event.type == "exit" then
      return {
        code = event.code,
        signal = event.signal,
        timed_out = event.timed_out,
        output = table.concat(output),
        ms = task.now_ms() - began,
      }
    end
  end
end

local function children(pid)
  local found = {}
  for child in (read(("/proc/%d/task/%d/children"):format(pid, pid)) or ""):gmatch("%d+") do
    found[#found + 1] = math.tointeger(tonumber(child))
  end
  return found
end

--- How the two processes of a sandbox look from the host.
local function outside(pid)
  local facts = {}
  for _, one in ipairs { pid, children(pid)[1] } do
    facts[#facts + 1] = {
      pid = one,
      status = read(("/proc/%d/status"):format(one)),
      cmdline = read(("/proc/%d/cmdline"):format(one)),
      environ = read(("/proc/%d/environ"):format(one)) or "",
    }
  end
  return facts
end

local modes = {}

--- Runs all scripts of the request in one sandbox, in turn.
function modes.inside(request)
  local iso = open()
  local box, channel = start(iso, request, "inside")
  local answer = {
    limits = iso:limits(),
    memory_mb = box.memory_mb,
    cpu = box.cpu,
    outside = outside(box.pid),
    results = {},
  }
  for _, step in ipairs(request.scripts) do answer.results[step.name] = run(channel, step.script) end
  box:kill()
  answer.has_ended = box:wait(2000) == true
  box:release()
  print_json(answer)
end

function modes.preflight(request)
  print_json(isolation.preflight { agent_path = request.agent_path or folder .. "/demilune-agent" })
end

--- Starts sandboxes with a sleeping command each, says who they are, and waits to be killed.
function modes.hold(request)
  local iso = open()
  local held, pids = {}, {}
  for i = 1, request.count do
    local box, channel = start(iso, request, "hold" .. i)
    local proc = assert(channel:start { cmd = "/bin/sleep", args = { "60" }, cwd = "/" })
    held[i] = { box, channel, proc }
    pids[#pids + 1] = box.pid
    for _, inner in ipairs(children(box.pid)) do
      pids[#pids + 1] = inner
      for _, command in ipairs(children(inner)) do pids[#pids + 1] = command end
    end
  end
  print_json { pids = pids, limits = iso:limits() }
  task.sleep(60000)
  return held
end

task.run(function() modes[mode](assert(json.decode(read(request_path)))) end)
