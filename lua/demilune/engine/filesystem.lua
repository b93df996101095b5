--- filesystem.lua - filesystem.Filesystem of envd: ListDir, Stat, MakeDir, Move, Remove.
--
-- All sandboxes share this process, and file names are the sandbox's to choose: so a listing is
-- bounded in bytes as it will be sent, few large ones are made at a time, one a sandbox, and what
-- they took is given back.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local input = require "demilune.engine.input"
local path = require "demilune.engine.path"

local filesystem = {}

local DEPTH_MAX = 64
local LIMIT_MAX = 10000
--- Entries of an answer, all together, in JSON.
local ANSWER_MAX_BYTES = 3 * 1024 * 1024
--- A listing of more entries is a large one.
local SMALL_COUNT = 256
local LARGE_MAX = 4
local LARGE_WAIT_MS = 25000
--- How long an agent may take for a large one; it may be hostile, and keeps a place.
local LARGE_MS = 20000
--- Where the names are too long for one reply of the agent, so much fewer are asked for.
local FEWER = 8
--- Of entries that are made in one go, so that others have their turn.
local BURST_COUNT = 500
local TRIM_AFTER_MS = 250
local SIGKILL = 9
local TEMPORARY_CHARACTERS = 12

local TYPES = {
  file = "FILE_TYPE_FILE", directory = "FILE_TYPE_DIRECTORY", symlink = "FILE_TYPE_SYMLINK",
}
--- First letters as Go's FileMode writes them, which is what envd shows.
local LETTERS = { directory = "d", symlink = "L", file = "-" }
local TRIPLES = { [0] = "---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx" }

local function permissions(entry)
  local mode = entry.mode
  local triples = TRIPLES[mode >> 6 & 7] .. TRIPLES[mode >> 3 & 7] .. TRIPLES[mode & 7]
  return (LETTERS[entry.type] or "?") .. triples
end

--- An entry of the agent as envd's EntryInfo. A pipe, socket or device has no type, as proto3
--- leaves zero values out.
---@param entry demilune.core.agent.Entry
---@return table
function filesystem.show(entry)
  return {
    name = entry.name, path = entry.path, type = TYPES[entry.type], size = tostring(entry.size),
    mode = entry.mode,
    permissions = permissions(entry), owner = entry.owner, group = entry.group,
    modifiedTime = core.task.iso(entry.mtime_ms), symlinkTarget = entry.target,
  }
end

--- The large listings of this process.
local large = { count = 0, by_sandbox = {}, changed = core.task.event(), is_trimming = false }

local function enter(sandbox)
  local end_ms = core.task.now_ms() + LARGE_WAIT_MS
  while large.count >= LARGE_MAX or large.by_sandbox[sandbox] do
    local left_ms = end_ms - core.task.now_ms()
    if left_ms <= 0 then faults.raise "deadline_exceeded" end
    large.changed:clear()
    large.changed:wait(left_ms)
  end
  large.count = large.count + 1
  large.by_sandbox[sandbox] = true
end

--- Gives memory back to the system soon: once for all answers of a moment, when they are sent.
local function trim_soon()
  if large.is_trimming then return end
  large.is_trimming = true
  core.task.spawn(function()
    core.task.sleep(TRIM_AFTER_MS)
    large.is_trimming = false
    collectgarbage()
    core.sys.trim()
  end)
end

local function leave(sandbox)
  large.count = large.count - 1
  large.by_sandbox[sandbox] = nil
  large.changed:set()
  trim_soon()
end

--- As channel:list, within a time.
local function ask(sandbox, dir, depth, limit, timeout_ms)
  local asking = core.task.spawn(function()
    return table.pack(sandbox.channel:list(dir, depth, limit))
  end)
  local ok, is_done, answer = pcall(asking.wait, asking, timeout_ms)
  asking:cancel()
  if not ok or is_done == false then error(ok and answer or is_done, 0) end
  if not is_done then return nil, { code = "timeout" } end
  return table.unpack(answer, 1, answer.n)
end

--- The entries of the agent: as many of `limit` as it can say in one reply.
local function entries_of(sandbox, dir, depth, limit)
  local end_ms = core.task.now_ms() + LARGE_MS
  while true do
    local entries, total = ask(sandbox, dir, depth, limit, math.max(0, end_ms - core.task.now_ms()))
    if entries then return entries, total end
    if total.code ~= "too_large" or limit == 1 then faults.raise_agent(total) end
    limit = math.max(1, limit // FEWER)
  end
end

--- The entries as they are sent: as many as there is room for.
local function show_all(entries)
  local shown, bytes = core.json.array {}, 0
  for i, entry in ipairs(entries) do
    local one = filesystem.show(entry)
    bytes = bytes + #core.json.encode(one) + 1
    if bytes > ANSWER_MAX_BYTES then break end
    shown[i] = one
    if i % BURST_COUNT == 0 then core.task.sleep(0) end
  end
  return shown
end

--- ListDir. `limit` and `total` are ours; fewer entries than both means that they were too large.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function filesystem.list_dir(sandbox, message)
  local dir = path.need(message, "path")
  local depth = math.max(input.number(message, "depth", 0, DEPTH_MAX, true) or 1, 1)
  local limit = input.number(message, "limit", 1, LIMIT_MAX, true) or LIMIT_MAX
  local is_large = limit > SMALL_COUNT
  if is_large then enter(sandbox) end
  local ok, result = pcall(function()
    local entries, total = entries_of(sandbox, dir, depth, limit)
    return { entries = show_all(entries), total = total }
  end)
  if is_large then leave(sandbox) end
  if not ok then error(result, 0) end
  return result
end

local function stat(sandbox, absolute)
  local entry, err = sandbox.channel:stat(absolute)
  if not entry then faults.raise_agent(err) end
  return { entry = filesystem.show(entry) }
end

--- Stat. Does not follow a final symlink.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function filesystem.stat(sandbox, message)
  return stat(sandbox, path.need(message, "path"))
end

--- MakeDir, parents too.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function filesystem.make_dir(sandbox, message)
  local dir = path.need(message, "path")
  local ok, err = sandbox.channel:mkdir(dir)
  if not ok then faults.raise_agent(err) end
  return stat(sandbox, dir)
end

--- Moves from $1 to $2 on another file system, as home and /tmp are two: a copy, $3, that takes its
--- place when it is whole.
local COPY = [[
cp -aT -- "$1" "$3" && mv -fT -- "$3" "$2" || { rm -rf -- "$3"; exit 1; }
rm -rf -- "$1" || exit 2]]
--- How long that may take.
local COPY_MS = 600000
local COPY_WORDS_BYTES = 4096
local COPY_FAULTS = {
  { "No space left on device", "disk_full" }, { "Disk quota exceeded", "disk_full" },
  { "Permission denied", "file_permission" }, { "Operation not permitted", "file_permission" },
  { "Read-only file system", "file_permission" }, { "No such file or directory", "file_not_found" },
}

--- What a failed copy means. Its words are only looked at, never shown.
local function copy_fault(exit, words)
  if exit.timed_out then return "deadline_exceeded" end
  if exit.code == 2 then return "file_permission" end
  for _, pair in ipairs(COPY_FAULTS) do
    if words:find(pair[1], 1, true) then return pair[2] end
  end
  return "unsupported"
end

--- Waits for the end of a copy; nil or the name of a fault.
local function await_copy(proc)
  local words = ""
  while true do
    local event, err = proc:next()
    if not event then faults.raise_agent(err) end
    if event.type == "output" then words = event.stderr.tail or "" end
    if event.type == "exit" then
      return event.code ~= 0 and copy_fault(event, words) or nil
    end
  end
end

local function copy(sandbox, from, to)
  local temporary = to:match "^(.*/)" .. ".demilune-" .. core.crypto.id(TEMPORARY_CHARACTERS)
  local proc, err = sandbox.channel:start {
    cmd = "/bin/sh", args = { "-c", COPY, "sh", from, to, temporary }, envs = { "LC_ALL=C" },
    timeout_ms = COPY_MS, spool = { stderr_tail = COPY_WORDS_BYTES },
  }
  if not proc then faults.raise_agent(err, { not_found = "unsupported" }) end
  local ok, fault = pcall(await_copy, proc)
  if ok and not fault then return end
  core.task.spawn(function() -- the client may be gone, and this task with it
    sandbox.channel:signal(proc.pid, SIGKILL)
    sandbox.channel:remove(temporary)
  end)
  if not ok then error(fault, 0) end
  faults.raise(fault)
end

--- Move; the parents of the destination are made. Over file systems it is a copy and a removal.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function filesystem.move(sandbox, message)
  local from, to = path.need(message, "source"), path.need(message, "destination")
  local ok, err = sandbox.channel:move(from, to)
  if not ok then
    if err.code ~= "cross_device" then faults.raise_agent(err) end
    copy(sandbox, from, to)
  end
  return stat(sandbox, to)
end

--- Remove, with everything below; what is not there is fine, as with envd.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function filesystem.remove(sandbox, message)
  local ok, err = sandbox.channel:remove(path.need(message, "path"))
  if not ok and err.code ~= "not_found" then faults.raise_agent(err) end
  return {}
end

return filesystem
