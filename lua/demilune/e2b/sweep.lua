--- e2b/sweep.lua - the end of all that a command started, where a service ends only the shell.
--
-- envd kills the one process that it started; what that one started lives on, in envd's own process group. So every process
-- of ours gets a variable of its own into its environment, which its children inherit wherever they move, and a second
-- process ends all that have it, and all that come from those. A process group would be lost with a setsid, a parent's id
-- with the parent. Where the sandbox lets its user be root by sudo, the sweep is root's: it sees what the command started so.
local core = require "demilune.core"
local envd = require "demilune.envd"
local errors = require "demilune.errors"

local task = core.task
local sweep = {}

--- How long a sweep may take, and how long its caller waits for it: a call that was cancelled is over at once.
local SWEEP_S = 10
local WAIT_MS = 1500
local WINDOW = { live = 1, tail = 1 }

--- sh SCRIPT sh MARK SCRIPT: kills what has the mark, some rounds, since a process may be just starting another. What runs
--- this has none. What cleared its environment is found by its parent, as long as that lives.
sweep.SCRIPT = [[
exec 2>/dev/null; PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ "$(id -u)" != 0 ] && sudo -n true; then exec sudo -n /bin/sh -c "$2" sh "$1" "$2"; fi
i=0
while [ $i -lt 10 ]; do
  i=$((i+1)); all=" "; new=
  for e in $(grep -lsF "]] .. envd.MARK .. [[=$1" /proc/[0-9]*/environ); do e=${e#/proc/}; all="$all${e%/*} "; new=1; done
  [ -n "$new" ] || exit 0
  while [ -n "$new" ]; do
    new=
    for f in /proc/[0-9]*/stat; do
      read -r l <"$f" || continue
      p=${l%% *}; l=${l##*) }; l=${l#* }
      case $all in *" $p "*) continue;; *" ${l%% *} "*) all="$all$p "; new=1;; esac
    done
  done
  kill -KILL $all
done
]]

--- What the end of a call leaves running: it was cancelled, or nobody knows how the command goes on.
local LEAVES = {
  provider_timeout = true, connection_failed = true, invalid_response = true, too_large = true, stopped = true,
}

--- Kills all that has a mark. Best effort.
---@param plane table
---@param ref table
---@param mark string
function sweep.run(plane, ref, mark)
  -- In a task of its own, which goes on when this one is ended.
  local sweeping = task.spawn(pcall, envd.run, plane, { id = ref.id, envs = {} }, {
    argv = { "/bin/sh", "-c", sweep.SCRIPT, "sh", mark, sweep.SCRIPT }, cwd = "/", timeout_s = SWEEP_S,
    stdout = WINDOW, stderr = WINDOW,
  })
  sweeping:wait(WAIT_MS)
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
  if is_left then sweep.run(plane, ref, mark) end
  if not ok then error(run, 0) end
  return run
end

return sweep
