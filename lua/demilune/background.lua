--- background.lua - tasks that outlive the call and the server that started them.
--
-- What a task prints, its process and its exit code live in files in its sandbox, kept by a small shell wrapper there, which
-- also enforces the deadline while no server lives. This side keeps one private file a task, named in the sealed task id.
local core = require "demilune.core"
local errors = require "demilune.errors"
local mask = require "demilune.mask"
local scratch = require "demilune.scratch"
local scripts = require "demilune.background_scripts"
local seen_of = require "demilune.background_seen"
local store = require "demilune.background_store"
local text = require "demilune.text"

local json = core.json
local background = {}

--- Room for the line before the output.
local LINE_BYTES = 256
--- Of either end of an output as much is fetched at most: a driver's window holds two of them.
local LOOK_MAX_BYTES = 480 * 1024
local COMMAND_SHOWN = 120
local LOOK_TIMEOUT_S = 15
--- A look that waits for nothing and shows nothing; and several of them, which go on beside each other.
local STATUS_TIMEOUT_S = 3
local STATUSES_MS = 5000
local CANCEL_TIMEOUT_S = 15
--- The wrapper's own two seconds, and some.
local WRAPPER_END_MS = 3500
local WRAPPER_POLL_MS = 100
local DROP_TIMEOUT_S = 10
--- Where a service wants to know how long a process may take: the wrapper ends it before.
local START_MARGIN_S = 60
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

--- Where a task of the call's principal runs; nothing for an id that is none of its.
---@param call demilune.Call
---@param task_id string
---@return table? provider
---@return string? sandbox_id  the provider's
function Background:place_of(call, task_id)
  local record = store.find(task_id)
  if not record or record.principal ~= call.principal then return nil end
  return self.app.providers_by_id[record.provider], record.sandbox_id
end

local function is_gone(err)
  return errors.is(err) and (err.category == "sandbox_gone" or err.category == "not_found")
end

--- Runs one of the shell scripts for a task, wherever its sandbox's working directory is by now. Nil when the sandbox is
--- gone.
local function ask(sandbox, record, script, args, opts)
  local argv = { "/bin/sh", "-c", script, "sh", record.dir }
  for _, value in ipairs(args) do argv[#argv + 1] = tostring(value) end
  local ok, run = pcall(sandbox.run, sandbox, {
    argv = argv, cwd = "/", timeout_s = opts.timeout_s, window = { live = 2 * (opts.bytes or 0) + LINE_BYTES, tail = 1 },
  })
  if ok then return run end
  if is_gone(run) then return nil end
  error(run, 0)
end

--- Tasks that we ended have no exit code of their own.
local HAS_EXIT = { succeeded = true, failed = true }

local function note_final(record, seen)
  if not seen_of.FINAL[seen.status] or record.status == seen.status then return end
  record.status = seen.status
  record.finished_at = core.task.iso(seen.finished_ms or core.task.epoch_ms())
  record.exit_code = HAS_EXIT[seen.status] and seen.exit_code or nil
  store.save(record)
end

--- Tasks of the principal that may still run.
local function running_of(call)
  local running = {}
  for _, record in ipairs(store.list(call.principal)) do
    if not seen_of.FINAL[record.status] then running[#running + 1] = record end
  end
  return running
end

--- How many tasks of the call's principal may still run, as far as is known without asking their sandboxes: those that
--- outlive a server, and the calls of this one that go on behind a handle.
---@param call demilune.Call
---@return integer
function Background:running_count(call)
  return #running_of(call) + self.app.deferred:running_count(call.principal)
end

--- The present status of a task, from its sandbox; the last one known where that does not answer as it should.
---@param call demilune.Call
---@param record table
---@return string
function Background:status(call, record)
  if seen_of.FINAL[record.status] then return record.status end
  local ok, seen = pcall(function()
    local run = ask(sandbox_of(self, call, record), record, scripts.LOOK, { "", "", 0, 0, 0, 0 }, { timeout_s = STATUS_TIMEOUT_S })
    return run and seen_of.read(record, run) or { status = "lost" }
  end)
  if ok then
    note_final(record, seen)
    return seen.status
  end
  if not errors.is(seen) or seen == core.task.CANCELLED then error(seen, 0) end
  return record.status
end

--- Finds out the status of all, under one deadline: a sandbox that does not answer holds up no other. Records of those
--- that have ended say so afterwards.
local function find_statuses(self, call, records)
  local deadline_ms = core.task.now_ms() + STATUSES_MS
  local looks = {}
  for i, record in ipairs(records) do looks[i] = core.task.spawn(self.status, self, call, record) end
  local ok, fault = pcall(function()
    for _, look in ipairs(looks) do
      local done, err = look:wait(math.max(0, deadline_ms - core.task.now_ms()))
      if done == false and not errors.is(err) then error(err, 0) end
    end
  end)
  for _, look in ipairs(looks) do look:cancel() end
  if not ok then error(fault, 0) end
end

local function check_quota(self, call)
  local most = self.app.config.limits.tasks
  if self:running_count(call) < most then return end
  errors.raise("quota_exceeded", {
    message = ("At most %d tasks run at a time."):format(most),
    suggestion = "Wait for one with get_background_task, or stop one with cancel_background_task.",
  })
end

--- Takes a place among the tasks that run. Sandboxes are not asked under the lock: one that does not answer would hold up
--- all servers of the user.
local function reserve(self, call, record)
  local lock <close> = store.lock() -- luacheck: ignore 211
  check_quota(self, call)
  -- Before the start: a task that nobody could look at or stop would be worse than one that never began.
  store.save(record)
end

--- Starts a task. Raises `quota_exceeded` when too many run.
---@param call demilune.Call
---@param sandbox demilune.Sandbox
---@param args {command: string, cwd?: string, timeout: integer}
---@return {id: string, started_at: string}
function Background:start(call, sandbox, args)
  local running = running_of(call)
  if self:running_count(call) >= self.app.config.limits.tasks then
    find_statuses(self, call, running)
    check_quota(self, call)
  end
  local dir = scratch.write(sandbox, "tasks", "command", sandbox.provider:with_envs(sandbox, args.command))
  local record = store.new {
    principal = call.principal, provider = sandbox.provider.id, sandbox_id = sandbox.id, dir = dir,
    command = text.first(core.vault.redact(args.command), COMMAND_SHOWN), timeout_s = args.timeout,
  }
  local ok, err = pcall(reserve, self, call, record)
  if not ok then
    pcall(sandbox.run, sandbox, { argv = { "/bin/rm", "-rf", dir }, cwd = "/", timeout_s = DROP_TIMEOUT_S })
    error(err, 0)
  end
  ok, err = pcall(sandbox.start_detached, sandbox, {
    argv = { "/bin/sh", "-c", scripts.RUN, "sh", dir, tostring(args.timeout) }, cwd = args.cwd, tag = record.name,
    timeout_s = args.timeout + START_MARGIN_S,
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
  local bytes = math.min(math.max(seen_of.SLICE_BYTES, limits.stdout, limits.stderr), LOOK_MAX_BYTES)
  local run = record.status ~= "lost" and ask(sandbox, record, scripts.LOOK, {
    args.stdout_offset or "", args.stderr_offset or "", args.wait * 10, bytes, seen_of.SLICE_BYTES + 2 * seen_of.AROUND_BYTES,
    seen_of.AROUND_BYTES,
  }, { timeout_s = args.wait + LOOK_TIMEOUT_S, bytes = bytes }) or nil
  local result = { task_id = args.task_id, sandbox_id = sandbox.public_id, started_at = record.started_at }
  if not run then
    note_final(record, { status = seen_of.FINAL[record.status] and record.status or "lost" })
    result.status, result.exit_code, result.finished_at = record.status, record.exit_code, record.finished_at
    result.note = "The sandbox has ended, and the output with it."
    return result
  end
  local seen, masks = seen_of.read(record, run), mask.of(call.redact)
  note_final(record, seen)
  result.status = seen.status
  if seen_of.FINAL[seen.status] then result.exit_code, result.finished_at = record.exit_code, record.finished_at end
  result.stdout, result.stdout_next_offset, result.stdout_truncated, result.stdout_path =
    seen_of.show(seen, "out", args.stdout_offset, limits.stdout, record.dir, masks)
  result.stderr, result.stderr_next_offset, result.stderr_truncated, result.stderr_path =
    seen_of.show(seen, "err", args.stderr_offset, limits.stderr, record.dir, masks)
  return result
end

--- get_background_task without one: the principal's tasks, newest first.
---@param call demilune.Call
---@return table
function Background:list(call)
  local records, open = store.list(call.principal), {}
  for i = #records, LISTED_MAX + 1, -1 do records[i] = nil end
  for _, record in ipairs(records) do
    if not self.app.providers_by_id[record.provider] then record.status = "lost"
    elseif not seen_of.FINAL[record.status] then open[#open + 1] = record end
  end
  find_statuses(self, call, open)
  local tasks = json.array {}
  for i, record in ipairs(records) do
    local provider = self.app.providers_by_id[record.provider]
    tasks[i] = {
      task_id = record.id, command = record.command, started_at = record.started_at, status = record.status,
      sandbox_id = provider and self.app:public_id(provider, record.sandbox_id) or record.sandbox_id,
    }
  end
  return { tasks = tasks }
end

--- Ends what is left of a task by what the service remembers of its wrapper, whatever the task wrote into its folder: TERM,
--- which the wrapper passes on to the command, and KILL for one that does not end. Nothing where it has ended.
local function end_wrapper(sandbox, record)
  local deadline_ms = core.task.now_ms() + WRAPPER_END_MS
  local provider = sandbox.provider
  while provider:signal(sandbox, record.name, "SIGNAL_SIGTERM") do
    if core.task.now_ms() >= deadline_ms then return provider:signal(sandbox, record.name, "SIGNAL_SIGKILL") end
    core.task.sleep(WRAPPER_POLL_MS)
  end
end

--- cancel_background_task. A finished task stays as it ended, but what it left behind goes, and so does one that only says
--- that it has finished.
---@param call demilune.Call
---@param task_id string
---@return table
function Background:cancel(call, task_id)
  local record, sandbox = find(self, call, task_id)
  self:status(call, record)
  if ask(sandbox, record, scripts.CANCEL, {}, { timeout_s = CANCEL_TIMEOUT_S }) then
    local ok, err = pcall(end_wrapper, sandbox, record)
    if not ok and not is_gone(err) then error(err, 0) end
  end
  self:status(call, record)
  return { task_id = task_id, sandbox_id = sandbox.public_id, status = record.status,
    success = seen_of.FINAL[record.status] == true }
end

return background
