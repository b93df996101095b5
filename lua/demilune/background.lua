--- background.lua - tasks that outlive the call and the server that started them.
--
-- What a task prints, its process and its exit code live in files in its sandbox, kept by a small shell wrapper there, which
-- also enforces the deadline while no server lives. This side keeps one private file a task, named in the sealed task id.
local core = require "demilune.core"
local errors = require "demilune.errors"
local scripts = require "demilune.background_scripts"
local seen_of = require "demilune.background_seen"
local store = require "demilune.background_store"

local json = core.json
local background = {}

local TASK_DIR = "/tmp/.demilune/tasks"
local SLICE_BYTES = 16384
--- Room for the line before the output.
local LINE_BYTES = 256
--- Of either end of an output as much is fetched at most: a driver's window holds two of them.
local LOOK_MAX_BYTES = 480 * 1024
local COMMAND_SHOWN = 120
local LOOK_TIMEOUT_S = 15
local CANCEL_TIMEOUT_S = 15
local LISTED_MAX = 50

---@class demilune.Background
local Background = {}
Background.__index = Background

--- Makes it; files are touched when first needed.
---@param app demilune.App
---@return demilune.Background
function background.new(app)
  return setmetatable({ app = app }, Background)
end

local function first_characters(text, count)
  local stop = utf8.offset(text, count + 1)
  return stop and text:sub(1, stop - 1) or text
end

local function sandbox_of(self, call, record)
  local provider = self.app.providers_by_id[record.provider]
  if not provider then
    errors.raise("not_found", { field = "task_id", message = "The task's provider is not configured any more." })
  end
  local sandbox = require("demilune.sandbox").new(provider, record.sandbox_id, self.app:public_id(provider, record.sandbox_id))
  return call.scope.sandboxes[sandbox:key()] or sandbox
end

local function find(self, call, task_id)
  local record = store.find(task_id)
  if not record or record.principal ~= call.principal then
    errors.raise("not_found", { field = "task_id", message = "There is no such task." })
  end
  return record, sandbox_of(self, call, record)
end

--- Runs one of the shell scripts for a task. Nil when the sandbox is gone.
local function ask(sandbox, record, script, args, opts)
  local argv = { "/bin/sh", "-c", script, "sh", TASK_DIR .. "/" .. record.name }
  for _, value in ipairs(args) do argv[#argv + 1] = tostring(value) end
  local ok, run = pcall(sandbox.run, sandbox, {
    argv = argv, timeout_s = opts.timeout_s, window = { live = 2 * (opts.bytes or 0) + LINE_BYTES, tail = 1 },
  })
  if ok then return run end
  if errors.is(run) and (run.category == "sandbox_gone" or run.category == "not_found") then return nil end
  error(run, 0)
end

--- Tasks that we ended have no exit code of their own.
local HAS_EXIT = { succeeded = true, failed = true }

local function note_final(record, seen)
  if not seen_of.FINAL[seen.status] or record.status == seen.status then return end
  record.status = seen.status
  record.finished_at = core.task.iso(seen.finished and seen.finished * 1000 or core.task.epoch_ms())
  record.exit_code = HAS_EXIT[seen.status] and seen.exit_code or nil
  store.save(record)
end

--- Tasks of the principal that may still run; those that have ended are found out when there are too many.
local function running_count(self, call)
  local running = {}
  for _, record in ipairs(store.list(call.principal)) do
    if not seen_of.FINAL[record.status] then running[#running + 1] = record end
  end
  if #running < self.app.config.limits.tasks then return #running end
  local count = 0
  for _, record in ipairs(running) do
    if self:status(call, record) == "running" then count = count + 1 end
  end
  return count
end

--- The present status of a task, from its sandbox; the last one known where that does not answer as it should.
---@param call demilune.Call
---@param record table
---@return string
function Background:status(call, record)
  if seen_of.FINAL[record.status] then return record.status end
  local ok, seen = pcall(function()
    local run = ask(sandbox_of(self, call, record), record, scripts.LOOK, { "", "", 0, 0 }, { timeout_s = LOOK_TIMEOUT_S })
    return run and seen_of.read(record, run) or { status = "lost" }
  end)
  if ok then
    note_final(record, seen)
    return seen.status
  end
  if not errors.is(seen) then error(seen, 0) end
  return record.status
end

--- Starts a task. Raises `quota_exceeded` when too many run.
---@param call demilune.Call
---@param sandbox demilune.Sandbox
---@param args {command: string, cwd?: string, timeout: integer}
---@return {id: string, started_at: string}
function Background:start(call, sandbox, args)
  local lock <close> = store.lock() -- luacheck: ignore 211
  local most = self.app.config.limits.tasks
  if running_count(self, call) >= most then
    errors.raise("quota_exceeded", {
      message = ("At most %d background tasks run at a time."):format(most),
      suggestion = "Wait for one with get_background_task, or stop one with cancel_background_task.",
    })
  end
  local record = store.new {
    principal = call.principal, provider = sandbox.provider.id, sandbox_id = sandbox.id,
    command = first_characters(args.command, COMMAND_SHOWN), timeout_s = args.timeout,
  }
  local dir = TASK_DIR .. "/" .. record.name
  sandbox:write(dir .. "/command", sandbox.provider:with_envs(sandbox, args.command))
  -- Before the start: a task that nobody could look at or stop would be worse than one that never began.
  store.save(record)
  local ok, err = pcall(sandbox.start_detached, sandbox, {
    argv = { "/bin/sh", "-c", scripts.RUN, "sh", dir, tostring(args.timeout) }, cwd = args.cwd,
  })
  if not ok then
    if errors.is(err) then store.remove(record) end
    error(err, 0)
  end
  return record
end

--- get_background_task with an id.
---@param call demilune.Call
---@param args table
---@return table
function Background:look(call, args)
  local record, sandbox = find(self, call, args.task_id)
  local limits = self.app.config.output
  local bytes = math.min(math.max(SLICE_BYTES, limits.stdout, limits.stderr), LOOK_MAX_BYTES)
  local run = record.status ~= "lost" and ask(sandbox, record, scripts.LOOK, {
    args.stdout_offset or "", args.stderr_offset or "", args.wait * 10, bytes,
  }, { timeout_s = args.wait + LOOK_TIMEOUT_S, bytes = bytes }) or nil
  local result = { task_id = args.task_id, sandbox_id = sandbox.public_id, started_at = record.started_at }
  if not run then
    note_final(record, { status = seen_of.FINAL[record.status] and record.status or "lost" })
    result.status, result.exit_code, result.finished_at = record.status, record.exit_code, record.finished_at
    result.note = "The sandbox has ended, and the output with it."
    return result
  end
  local seen = seen_of.read(record, run)
  note_final(record, seen)
  result.status = seen.status
  if seen_of.FINAL[seen.status] then result.exit_code, result.finished_at = record.exit_code, record.finished_at end
  local dir = TASK_DIR .. "/" .. record.name
  result.stdout, result.stdout_next_offset, result.stdout_truncated, result.stdout_path =
    seen_of.show(seen, "out", args.stdout_offset, limits.stdout, dir)
  result.stderr, result.stderr_next_offset, result.stderr_truncated, result.stderr_path =
    seen_of.show(seen, "err", args.stderr_offset, limits.stderr, dir)
  return result
end

--- get_background_task without one: the principal's tasks, newest first.
---@param call demilune.Call
---@return table
function Background:list(call)
  local tasks = json.array {}
  for i, record in ipairs(store.list(call.principal)) do
    if i > LISTED_MAX then break end
    local provider = self.app.providers_by_id[record.provider]
    tasks[i] = {
      task_id = record.id, command = record.command, started_at = record.started_at,
      sandbox_id = provider and self.app:public_id(provider, record.sandbox_id) or record.sandbox_id,
      status = provider and self:status(call, record) or "lost",
    }
  end
  return { tasks = tasks }
end

--- cancel_background_task. A finished task stays as it ended.
---@param call demilune.Call
---@param task_id string
---@return table
function Background:cancel(call, task_id)
  local record, sandbox = find(self, call, task_id)
  if self:status(call, record) == "running" then
    ask(sandbox, record, scripts.CANCEL, {}, { timeout_s = CANCEL_TIMEOUT_S })
    self:status(call, record)
  end
  return { task_id = task_id, sandbox_id = sandbox.public_id, status = record.status,
    success = seen_of.FINAL[record.status] == true }
end

return background
