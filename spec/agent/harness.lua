--- The real agent at the other end of a channel, for the specs of core.agent.
--
--   it("says hello", harness.with(function(channel, place) ... end))
--
-- Plain, the agent is a child with the rights of whoever runs the specs; boxed, it is process 1 of a bubblewrap with a
-- /tmp of its own, so that it may do whatever a mutated frame asks it to.

local build = require "spec.support.build"
local core = require "demilune.core"
local os_calls = require "spec_os"

local agent, process, sys, task = core.agent, core.process, core.sys, core.task

local READY_MS, END_MS = 5000, 5000
local PLAIN_ID = "65533"

---@class spec.agent.harness
local harness = {}

harness.path = build.dir .. "/demilune-agent"

---@class spec.agent.Options
---@field is_boxed? boolean
---@field limits? string[]   arguments of `demilune-agent run` behind --channel
---@field is_raw? boolean    hand the descriptor over instead of a channel; the agent's end stays open here too, so that
---                            writing to an agent that has ended is no SIGPIPE

--- What starts the agent with its channel as descriptor 3. A box started by root has another uid's rights. `place` is
--- the one host folder that a box may write to; the folder above it holds a copy of the agent.
---@param options spec.agent.Options
---@param place string
---@return string[]
function harness.argv(options, place)
  local argv, copy = {}, place .. "/../agent"
  local function add(...)
    for _, word in ipairs { ... } do argv[#argv + 1] = word end
  end
  if options.is_boxed then
    if os_calls.ids() == 0 then add(copy, "launch", "--uid", PLAIN_ID, "--gid", PLAIN_ID, "--") end
    add("/usr/bin/bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--ro-bind", "/", "/")
    add("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/home", "--ro-bind", copy, "/tmp/agent")
    add("--bind", place, place, "--chdir", place, "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "/tmp/agent")
  else
    add(copy)
  end
  add("run", "--channel", "3", table.unpack(options.limits or {}))
  return argv
end

--- A fresh folder that any user may write to. Directly in /tmp, since what is above must let any user through.
---@return string
function harness.place()
  local folder = assert(os_calls.mkdtemp("/tmp/dml-agent-XXXXXX"))
  local place = folder .. "/place"
  assert(os.execute(("cp '%s' %s/agent && mkdir %s && chmod 755 %s %s/agent && chmod 777 %s"):format(
    harness.path, folder, place, folder, folder, place)))
  return place
end

---@param place string
function harness.remove(place)
  local folder = place:match("^(/tmp/dml%-agent%-%w+)/place$")
  os.execute("chmod -R u+rwx " .. folder .. "; rm -rf " .. folder)
end

--- Starts an agent: our end of the socketpair, and the child.
---@param options spec.agent.Options
---@param place string
---@return integer fd, any child, integer? theirs
function harness.start(options, place)
  local ours, theirs = sys.socketpair()
  local child, err = process.start { argv = harness.argv(options, place), fds = { [3] = theirs } }
  if child and options.is_raw then return ours, child, theirs end
  sys.close(theirs)
  if child then return ours, child end
  sys.close(ours)
  error("the agent cannot be started: " .. tostring(err))
end

--- A case that runs `body(channel, place, child)` in a task beside an agent; afterwards the agent must end by itself.
---@param options spec.agent.Options|fun(channel: any, place: string, child: any)
---@param body? fun(channel: any, place: string, child: any)
---@return fun()
function harness.with(options, body)
  if type(options) == "function" then options, body = {}, options end
  return function()
    local place = harness.place()
    local ok, err = pcall(task.run, function()
      local fd, child, theirs = harness.start(options, place)
      local channel = options.is_raw and fd or agent.attach(fd)
      if not options.is_raw then assert(channel:ready(READY_MS)) end
      local fine, why = pcall(body, channel, place, child)
      if options.is_raw then
        sys.close(fd)
        sys.close(theirs)
      else
        channel:close()
      end
      local ended = child:wait(END_MS)
      if not ended then child:kill() end
      if not fine then error(why, 0) end
      assert(ended, "the agent outlives its channel")
    end)
    harness.remove(place)
    if not ok then error(err, 0) end
  end
end

---@class spec.agent.Result
---@field stdout string
---@field stderr string
---@field exit table       the exit event
---@field output? table    the output event
---@field lines string[]

--- Reads a process to its end.
---@param proc any
---@return spec.agent.Result
function harness.finish(proc)
  local parts = { stdout = {}, stderr = {} }
  local result = { lines = {} }
  while true do
    local event, err = proc:next(20000)
    if not event then error("no exit: " .. tostring(err and err.code or err), 2) end
    if event.type == "exit" then
      result.exit = event
      break
    elseif event.type == "output" then
      result.output = event
    elseif event.type == "line" then
      table.insert(result.lines, event.text)
    else
      table.insert(parts[event.type], event.data)
    end
  end
  result.stdout, result.stderr = table.concat(parts.stdout), table.concat(parts.stderr)
  return result
end

--- Runs a shell script to its end; `options` are those of channel:start.
---@param channel any
---@param script string
---@param options? table
---@return spec.agent.Result
function harness.run(channel, script, options)
  local start = { cmd = "/bin/sh", args = { "-c", script } }
  for key, value in pairs(options or {}) do start[key] = value end
  return harness.finish(assert(channel:start(start)))
end

---@param path string
---@return string?
function harness.slurp(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local bytes = file:read("a")
  file:close()
  return bytes
end

---@param path string
---@param bytes string
function harness.spill(path, bytes)
  local file = assert(io.open(path, "wb"))
  assert(file:write(bytes))
  file:close()
end

--- Bytes that look random and are the same every time.
---@param count integer
---@return string
function harness.noise(count)
  local block, state = {}, 12345
  for i = 1, 8192 do
    state = (state * 1103515245 + 12345) & 0x7fffffff
    block[i] = string.char((state >> 16) & 255)
  end
  local text = table.concat(block)
  return text:rep(count // #text + 1):sub(1, count)
end

--- Writes a whole file through the channel.
---@param channel any
---@param path string
---@param bytes string
---@param options? table
---@return table? done, table? err
function harness.write(channel, path, bytes, options)
  local writer, err = channel:open_write(path, options)
  if not writer then return nil, err end
  local ok, failed = writer:write(bytes)
  if not ok then return nil, failed end
  return writer:commit()
end

--- Reads a whole file through the channel.
---@param channel any
---@param path string
---@param offset? integer
---@param length? integer
---@return string? bytes, table errOrReader
function harness.read(channel, path, offset, length)
  local reader, err = channel:open_read(path, offset, length)
  if not reader then return nil, err end
  local parts = {}
  while true do
    local chunk, failed = reader:read()
    if failed then return nil, failed end
    if not chunk then return table.concat(parts), reader end
    parts[#parts + 1] = chunk
  end
end

return harness
