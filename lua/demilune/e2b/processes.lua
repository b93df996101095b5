--- e2b/processes.lua - commands and programs in a sandbox, on any envd.
--
-- Our engine does by itself what the tools promise. An envd that is not ours ends the shell alone at a deadline (so the rest
-- is swept by a mark), calls whatever cannot be started an invalid argument (so a script says what is wrong), and waits
-- for all that holds the pipes open (so a second process is asked whether the shell is still there).
local core = require "demilune.core"
local envd = require "demilune.envd"
local errors = require "demilune.errors"
local outcome = require "demilune.outcome"
local scratch = require "demilune.scratch"
local sweep = require "demilune.e2b.sweep"

local processes = {}

--- Longer commands go through a script file: execve takes 128 KiB an argument.
local INLINE_COMMAND_BYTES = 96 * 1024
local MARK_CHARACTERS = 24
local SCRIPT_TIMEOUT_S = 10
local ANSWER_BYTES = 256
local SHELL = "/bin/bash"

--- sh WHY sh CWD PROGRAM: what stands in the way of starting it there.
processes.WHY = [[
if ! cd -- "$1" 2>/dev/null; then
  w=file_permission; [ -d "$1" ] || w=not_a_directory; [ -e "$1" ] || w=file_not_found; echo "cwd $w"
elif ! command -v -- "$2" >/dev/null; then echo program
fi
]]

--- sh LOOK sh PID: "ended STATUS" of a process that has ended and was not waited for; its wait status is the last field of
--- proc(5), stat.
processes.LOOK = [[
read -r l <"/proc/$1/stat" && l=${l##*) } && case $l in Z*) echo "ended ${l##* }";; esac
]]

--- What a start may fail with for reasons that a script can tell.
local VAGUE = { provider_rejected = true, unsupported = true, file_not_found = true }
local OF_CWD = { file_not_found = true, not_a_directory = true, file_permission = true }

--- Runs a script of ours and returns what it prints; nil where that fails.
local function ask(self, sandbox, script, ...)
  local window = { live = ANSWER_BYTES, tail = 1 }
  local ok, run = pcall(envd.run, self, { id = sandbox.id, envs = {} }, {
    argv = { "/bin/sh", "-c", script, "sh", ... }, cwd = "/", timeout_s = SCRIPT_TIMEOUT_S, stdout = window, stderr = window,
  })
  if ok then return run.stdout.head end
  if not errors.is(run) then error(run, 0) end
end

--- Raises why a program could not be started, as far as a script can tell; else what the service meant.
local function explain(self, sandbox, opts, err)
  if errors.is(err) and VAGUE[err.category] and not err.field and not err.is_command then
    local what, category = (ask(self, sandbox, processes.WHY, opts.cwd, opts.argv[1]) or ""):match "^(%l+) ?([%l_]*)\n$"
    if what == "cwd" and OF_CWD[category] then errors.raise(category, { field = "cwd" }) end
    if what == "program" then errors.raise("unsupported", { is_command = true }) end
  end
  error(err, 0)
end

--- How a process ended that still stands as ended: {exit_code?}; nil for one that runs.
local function look(self, sandbox, pid)
  local status = (ask(self, sandbox, processes.LOOK, tostring(pid)) or ""):match "^ended (%d+)\n$"
  status = status and math.tointeger(tonumber(status))
  if not status then return nil end
  return { exit_code = status & 0x7f == 0 and status >> 8 & 0xff or nil }
end

local function run_argv(self, sandbox, opts, argv)
  local window = opts.window
  local request = {
    argv = argv, cwd = opts.cwd, timeout_s = opts.timeout_s, on_line = opts.on_line,
    stdout = window or outcome.window(self.output.stdout), stderr = window or outcome.window(self.output.stderr),
  }
  if self.is_engine then return self:guard(sandbox, envd.run, request) end
  request.mark = core.crypto.id(MARK_CHARACTERS)
  request.look = function(pid) return look(self, sandbox, pid) end
  local ok, run = pcall(sweep.after, self, sandbox, request.mark, self.guard, self, sandbox, envd.run, request)
  if ok then return run end
  explain(self, sandbox, request, run)
end

--- Runs with bash, or with sh where there is no bash, which is remembered.
local function run_shell(self, sandbox, opts, arguments)
  if not sandbox.has_no_bash then
    local ok, run = pcall(run_argv, self, sandbox, opts, { SHELL, "-l", table.unpack(arguments) })
    if ok then return run end
    if not (errors.is(run) and run.is_command) then error(run, 0) end
    sandbox.has_no_bash = true
  end
  return run_argv(self, sandbox, opts, { "/bin/sh", table.unpack(arguments) })
end

--- Runs a command or a program and waits for it.
---@param self demilune.E2b
---@param sandbox demilune.Sandbox
---@param opts table  command or argv, cwd, timeout_s, on_line?, window?
---@return table run
function processes.run(self, sandbox, opts)
  local run
  if opts.argv then
    run = run_argv(self, sandbox, opts, opts.argv)
  else
    local command = self:with_envs(sandbox, opts.command)
    if #command <= INLINE_COMMAND_BYTES then
      run = run_shell(self, sandbox, opts, { "-c", command })
    else
      local dir = scratch.write(sandbox, "code", "command.sh", 'rm -rf "${0%/*}"; ' .. command)
      run = run_shell(self, sandbox, opts, { dir .. "/command.sh" })
    end
  end
  run.timeout_s = opts.timeout_s
  return run
end

--- Starts a process that goes on by itself.
---@param self demilune.E2b
---@param sandbox demilune.Sandbox
---@param opts {argv: string[], cwd: string, tag?: string}
---@return integer pid
function processes.start_detached(self, sandbox, opts)
  if self.is_engine then return self:guard(sandbox, envd.start_detached, opts) end
  opts.mark = opts.tag
  local ok, pid = pcall(self.guard, self, sandbox, envd.start_detached, opts)
  if ok then return pid end
  explain(self, sandbox, opts, pid)
end

--- See envd.signal. Where the service signals the one process alone, a KILL reaches all that it started.
---@param self demilune.E2b
---@param sandbox demilune.Sandbox
---@param tag string
---@param signal "SIGNAL_SIGTERM"|"SIGNAL_SIGKILL"
---@return boolean
function processes.signal(self, sandbox, tag, signal)
  if not self.is_engine and signal == "SIGNAL_SIGKILL" then sweep.run(self, sandbox, tag) end
  return self:guard(sandbox, envd.signal, tag, signal)
end

return processes
