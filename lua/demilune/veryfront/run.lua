--- veryfront/run.lua - commands in a Veryfront sandbox.
--
-- What the service does at a deadline or when its client goes away is not published, so neither is left to it: a launcher
-- in the sandbox keeps the deadline, and what must end early is ended by a stamp in the launcher's arguments.
local collector = require "demilune.collector"
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local ndjson = require "demilune.veryfront.ndjson"
local outcome = require "demilune.outcome"
local provider_text = require "demilune.provider_text"
local scratch = require "demilune.scratch"
local scripts = require "demilune.veryfront.scripts"
local text = require "demilune.text"

local task = core.task
local run = {}

--- Beyond a command's own deadline: for the service's own, and then for the last words.
local SERVICE_MARGIN_S = 10
local STREAM_MARGIN_MS = 15000
--- Longer commands go through a script file: execve takes 128 KiB an argument, and quoting makes a command longer.
local INLINE_COMMAND_BYTES = 96 * 1024
--- The service's own client sends one so often.
run.HEARTBEAT_MS = 30000
local STOP_TIMEOUT_S = 10
local ANSWER_MS = 15000
local ANSWER_MAX_BYTES = 1024 * 1024
local STAMP_BYTES = 20
--- The service's ids of processes that were started to go on by themselves.
local STARTED_MAX = 1000

--- Signals of background.lua, as DETACH hears them.
local SIGNALS = { SIGNAL_SIGTERM = "TERM", SIGNAL_SIGKILL = "USR1" }

local SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -l "$@"; fi; exec sh "$@"'

--- A command line of these words.
local function line_of(words)
  local quoted = {}
  for i, word in ipairs(words) do quoted[i] = text.quote(tostring(word)) end
  return table.concat(quoted, " ")
end

--- Beats while a command runs, so that the platform does not think the sandbox idle.
local function start_heart(self, id)
  return task.spawn(function()
    while true do
      task.sleep(run.HEARTBEAT_MS)
      local ok, err = pcall(self.renew, self, id)
      if not ok and (not errors.is(err) or err == task.CANCELLED) then error(err, 0) end
    end
  end)
end

--- Ends what a stamp is on, in a task of its own: the call that had started it is over. Best effort.
local function stop_later(self, id, stamp)
  task.spawn(function()
    local ok, err = pcall(run.signal_stamp, self, { id = id, envs = {} }, stamp, "TERM")
    if not ok and errors.is(err) then core.log.debug("a command could not be ended: " .. err.category) end
  end)
end

--- What an error event means: the text of a provider goes no further.
local function raise_event(event)
  provider_text.tell("error", event.words)
  errors.raise("provider_rejected", { message = "The provider could not run the command." })
end

local function watch(res, deadline_ms, on_event, result)
  local started_ms = task.now_ms()
  local has_exit = ndjson.each(res, deadline_ms, function(event)
    if event.type == "error" then raise_event(event) end
    if event.type == "exit" then
      result.exit_code = event.code
      return true
    end
    on_event(event)
  end)
  if not has_exit then errors.raise "invalid_response" end
  result.duration_ms = task.now_ms() - started_ms
end

--- Runs LAUNCH with `opts.argv`. Anything but an answer to its end leaves a command behind, which is then ended.
local function launch(self, sandbox, opts, window_out, window_err)
  local stamp = core.crypto.id(STAMP_BYTES)
  local out, err = collector.new(window_out, opts.on_line), collector.new(window_err, opts.on_line)
  local timeout_ms = opts.timeout_s * 1000
  local deadline_ms = task.now_ms() + timeout_ms + STREAM_MARGIN_MS
  local started_ms = task.now_ms()
  local envs = next(sandbox.envs) and sandbox.envs or nil
  local heart = timeout_ms > run.HEARTBEAT_MS and start_heart(self, sandbox.id)
  local result = {}
  local ok, fault = pcall(function()
    local res <close> = self:stream(sandbox.id, "POST", "/commands/stream", {
      command = line_of { "sh", "-c", scripts.LAUNCH, stamp, opts.timeout_s, opts.cwd, table.unpack(opts.argv) },
      timeout_seconds = opts.timeout_s + SERVICE_MARGIN_S, env = envs,
    }, deadline_ms)
    watch(res, deadline_ms, function(event) (event.type == "stdout" and out or err):feed(event.data) end, result)
  end)
  if heart then heart:cancel() end
  if not ok then
    if opts.is_stopped_late ~= false then stop_later(self, sandbox.id, stamp) end
    error(fault, 0)
  end
  result.stdout, result.stderr = out:finish(), err:finish()
  -- Any program may end with that code; only a launcher that has waited so long says it of itself.
  result.timed_out = result.exit_code == scripts.TIMED_OUT_CODE and task.now_ms() - started_ms >= timeout_ms
  if result.timed_out then result.exit_code = nil end
  return result
end

local function is_lost(result)
  return result.exit_code == scripts.NO_DIRECTORY_CODE and result.stderr.head:find(scripts.NO_DIRECTORY_MARK, 1, true) == 1
end

--- Runs argv as it is.
local function run_argv(self, sandbox, opts, argv)
  local window = opts.window
  local result = self:guard(sandbox.id, launch, sandbox, {
    argv = argv, cwd = opts.cwd, timeout_s = opts.timeout_s, on_line = opts.on_line,
  }, window or outcome.window(self.output.stdout), window or outcome.window(self.output.stderr))
  if is_lost(result) then
    errors.raise("file_not_found", { field = "cwd", message = "There is no such working directory in the sandbox." })
  end
  result.timeout_s = opts.timeout_s
  return result
end

--- Runs a command or a program and waits for it: the contract's `run`.
---@param self demilune.Veryfront
---@param sandbox demilune.Sandbox
---@param opts table  command or argv, cwd, timeout_s, on_line?, window?
---@return table
function run.run(self, sandbox, opts)
  if opts.argv then return run_argv(self, sandbox, opts, opts.argv) end
  if #text.quote(opts.command) <= INLINE_COMMAND_BYTES then
    return run_argv(self, sandbox, opts, { "sh", "-c", SHELL, "sh", "-c", opts.command })
  end
  local dir = scratch.write(sandbox, "code", "command.sh", 'rm -rf "${0%/*}"; ' .. opts.command)
  return run_argv(self, sandbox, opts, { "sh", "-c", SHELL, "sh", dir .. "/command.sh" })
end

--- Runs one of our scripts and returns its stdout, all of it, and whether it ended with 0.
---@param self demilune.Veryfront
---@param ref table            {id, envs}
---@param script string
---@param args (string|integer)[]
---@param opts {timeout_s: integer, bytes: integer, is_stopped_late?: boolean}
---@return string stdout
---@return boolean ok
function run.script(self, ref, script, args, opts)
  local result = launch(self, { id = ref.id, envs = {} }, {
    argv = { "sh", "-c", script, "sh", table.unpack(args) }, cwd = "/", timeout_s = opts.timeout_s,
    is_stopped_late = opts.is_stopped_late,
  }, { live = opts.bytes, tail = 1 }, { live = 1, tail = 1 })
  if result.timed_out then errors.raise("provider_timeout", { message = "The sandbox did not answer in time." }) end
  if result.stdout.tail then errors.raise "too_large" end
  return result.stdout.head, result.exit_code == 0
end

--- Signals the processes that carry a stamp. Returns whether there was one.
---@param self demilune.Veryfront
---@param ref table
---@param stamp string
---@param signal string
---@return boolean
function run.signal_stamp(self, ref, stamp, signal)
  local half = #stamp // 2
  local _, ok = run.script(self, ref, scripts.SIGNAL, { stamp:sub(1, half), stamp:sub(half + 1), signal }, {
    timeout_s = STOP_TIMEOUT_S, bytes = 1024, is_stopped_late = false,
  })
  return ok
end

--- Remembers the service's id of what was started, for `signal`.
local function remember(self, key, id)
  if self.started_count >= STARTED_MAX then self.started, self.started_count = {}, 0 end
  self.started[key], self.started_count = id, self.started_count + 1
end

--- Starts a process that goes on by itself.
---@param self demilune.Veryfront
---@param sandbox demilune.Sandbox
---@param opts {argv: string[], cwd: string, tag?: string, timeout_s?: integer}
---@return string id  the service's
function run.start_detached(self, sandbox, opts)
  local tag = opts.tag or core.crypto.id(STAMP_BYTES)
  local answer = self:guard(sandbox.id, self.data, sandbox.id, "POST", "/commands", {
    command = line_of { "sh", "-c", scripts.DETACH, tag, opts.cwd, table.unpack(opts.argv) },
    timeout_seconds = opts.timeout_s, env = next(sandbox.envs) and sandbox.envs or nil,
  }, { timeout_ms = ANSWER_MS, max_body_bytes = ANSWER_MAX_BYTES })
  local id = connect.is_object(answer) and answer.id
  if type(id) ~= "string" or #id > 256 or not id:find "^[%w_.-]+$" then errors.raise "invalid_response" end
  remember(self, sandbox.id .. "\0" .. tag, id)
  return id
end

--- Signals what was started with that tag. False: it does not run. A KILL is also asked of the service, where it is known
--- what it calls the process.
---@param self demilune.Veryfront
---@param sandbox demilune.Sandbox
---@param tag string
---@param signal "SIGNAL_SIGTERM"|"SIGNAL_SIGKILL"
---@return boolean
function run.signal(self, sandbox, tag, signal)
  local found = self:guard(sandbox.id, run.signal_stamp, sandbox, tag, SIGNALS[signal])
  local id = self.started[sandbox.id .. "\0" .. tag]
  if found and id and signal == "SIGNAL_SIGKILL" then
    local ok, err = pcall(self.data, self, sandbox.id, "POST", "/commands/" .. id .. "/cancel", nil, {
      timeout_ms = ANSWER_MS, max_body_bytes = ANSWER_MAX_BYTES, is_safe = true,
    })
    if not ok and (not errors.is(err) or err == task.CANCELLED) then error(err, 0) end
  end
  return found
end

return run
