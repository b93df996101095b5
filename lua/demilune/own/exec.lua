--- own/exec.lua - a program on this machine, run for an operator's driver: its output by pieces, its end, a deadline.
--
-- The program gets SIGTERM at the deadline, or when its call is cancelled, and SIGKILL after a grace: the program alone, not what
-- it started. timeout(1) before it passes TERM on to its whole group.
local core = require "demilune.core"

local exec = {}

local TERM, KILL = 15, 9
local GRACE_MS = 500
--- Pipes that a grandchild holds open are read so long after the end.
local DRAIN_MS = 200
local PIECE_MS = 50

--- A pipe to read from; its other end is the child's.
local function open_pipe()
  local read_fd, write_fd = core.sys.pipe()
  if not read_fd then error(write_fd, 0) end
  local reader, err = core.sys.reader(read_fd)
  if reader then return reader, write_fd end
  core.sys.close(read_fd)
  core.sys.close(write_fd)
  error(err, 0)
end

--- Hands on what a pipe has until its end, or until `state.stop_ms`.
local function pump(reader, sink, state)
  while not (state.stop_ms and core.task.now_ms() >= state.stop_ms) do
    local bytes, err = reader:read(PIECE_MS)
    if bytes then
      if sink then sink(bytes) end
    elseif not err or err.category ~= "provider_timeout" then
      break
    end
  end
  reader:close()
end

--- Ends the child, politely first.
local function stop(child)
  child:kill(TERM)
  if not child:wait(GRACE_MS) then child:kill(KILL) end
  return child:wait()
end

--- Where the call is cancelled, a task of its own sees to the end.
local Guard = {
  __close = function(self)
    if self.is_over then return end
    self.state.stop_ms = core.task.now_ms()
    core.task.spawn(stop, self.child)
  end,
}

local function start(opts)
  local out, out_fd = open_pipe()
  local ok, err_reader, err_fd = pcall(open_pipe)
  if not ok then
    out:close()
    core.sys.close(out_fd)
    error(err_reader, 0)
  end
  local child, err = core.process.start { argv = opts.argv, env = opts.env, fds = { [1] = out_fd, [2] = err_fd }, group = true }
  core.sys.close(out_fd)
  core.sys.close(err_fd)
  if child then return child, out, err_reader end
  out:close()
  err_reader:close()
  error(err, 0)
end

--- Runs a program and waits for it. Raises errors of the table where it cannot be started.
---@async
---@param opts { argv: string[], env?: table<string, string>, timeout_s: number, stdout?: fun(bytes: string),
---  stderr?: fun(bytes: string) }
---@return { exit_code?: integer, timed_out: boolean }
function exec.run(opts)
  local child, out, err = start(opts)
  local state = {}
  local guard <close> = setmetatable({ child = child, state = state }, Guard)
  local jobs = { core.task.spawn(pump, out, opts.stdout, state), core.task.spawn(pump, err, opts.stderr, state) }
  local ended = child:wait(opts.timeout_s * 1000)
  local timed_out = ended == nil
  if timed_out then ended = stop(child) end
  guard.is_over = true
  state.stop_ms = core.task.now_ms() + DRAIN_MS
  for _, job in ipairs(jobs) do job:wait() end
  return { exit_code = not timed_out and ended and ended.code or nil, timed_out = timed_out }
end

return exec
