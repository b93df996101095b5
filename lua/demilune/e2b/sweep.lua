--- e2b/sweep.lua - the end of all that a command started, where a service ends only the shell.
--
-- envd kills the one process that it started; what that one started lives on, in envd's own process group. So every process
-- of ours gets a variable of its own into its environment, which its children inherit wherever they move, and a second
-- process ends all that have it. A process group would be lost with a setsid, a parent's id with the parent.
local envd = require "demilune.envd"
local errors = require "demilune.errors"

local sweep = {}

--- sh SCRIPT sh MARK SIGNAL: signals what has the mark, some rounds, since a process may be just starting another. This
--- process has none.
local SCRIPT = [[
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; i=0; n=1
while [ $n -gt 0 ] && [ $i -lt 5 ]; do
  n=0; i=$((i+1))
  for e in /proc/[0-9]*/environ; do
    { tr '\0' '\n' <"$e" | grep -qxF "]] .. envd.MARK .. [[=$1"; } 2>/dev/null || continue
    e=${e#/proc/}; kill -"$2" "${e%/environ}" 2>/dev/null && n=$((n+1))
  done
  [ "$2" = KILL ] || break
done
]]

--- What the end of a call leaves running: it was cancelled, or nobody knows how the command goes on.
local LEAVES = { provider_timeout = true, connection_failed = true, invalid_response = true, stopped = true }

--- Signals all that has a mark; returns when that has begun. Best effort.
---@param plane table
---@param ref table
---@param mark string
---@param signal "KILL"|"TERM"
---@return boolean began
function sweep.run(plane, ref, mark, signal)
  local ok = pcall(envd.start_detached, plane, { id = ref.id, envs = {} }, {
    argv = { "/bin/sh", "-c", SCRIPT, "sh", mark, signal }, cwd = "/",
  })
  return ok
end

--- Runs `fn(...)`, which starts processes with a mark, and sweeps after a deadline, a cancel or a broken connection.
---@param plane table
---@param ref table
---@param mark string
---@param fn function
---@return table run
function sweep.after(plane, ref, mark, fn, ...)
  local ok, run = pcall(fn, ...)
  local is_left = ok and run.timed_out or not ok and (not errors.is(run) or LEAVES[run.category])
  if is_left then sweep.run(plane, ref, mark, "KILL") end
  if not ok then error(run, 0) end
  return run
end

return sweep
