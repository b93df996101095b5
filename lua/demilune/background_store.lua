--- background_store.lua - one private file a background task, in the state folder.
--
-- A task id is "bt_" and the sealed name of that file: unreadable, and nobody can make one up.
local core = require "demilune.core"
local errors = require "demilune.errors"
local state = require "demilune.state"

local store = {}

local PREFIX = "bt_"
local NAME_BYTES = 16
local RECORD_MAX_BYTES = 16384
--- Records of all principals that are kept: the newest, and for so long.
local KEEP_S = 7 * 86400
local FILES_MAX = 2000
local LOCK_WAIT_MS = 5000
local LOCK_POLL_MS = 10

local function dir()
  return state.path("tasks", true)
end

local function load_file(name)
  local bytes = core.fs.read(dir() .. "/" .. name .. ".json", RECORD_MAX_BYTES)
  local record = bytes and core.json.decode(bytes)
  if type(record) ~= "table" or record.name ~= name or type(record.principal) ~= "string"
    or type(record.sealed) ~= "string" or type(record.dir) ~= "string" or math.type(record.started_ms) ~= "integer" then
    return nil
  end
  record.id = PREFIX .. record.sealed
  return record
end

--- Held while tasks are counted and started, so that two servers cannot both take the last place.
---@return userdata lock  to be closed
function store.lock()
  local path = dir() .. "/lock"
  local deadline = core.task.now_ms() + LOCK_WAIT_MS
  while true do
    local lock = core.fs.lock(path)
    if lock then return lock end
    if core.task.now_ms() > deadline then
      errors.raise("unavailable", { message = "Another server keeps the list of tasks locked." })
    end
    core.task.sleep(LOCK_POLL_MS)
  end
end

--- A new record; not saved yet.
---@param fields table  principal, provider, sandbox_id, dir (in the sandbox), command, timeout_s
---@return table
function store.new(fields)
  fields.name = core.crypto.id(NAME_BYTES)
  fields.sealed = core.crypto.seal(state.key(), fields.name)
  fields.id = PREFIX .. fields.sealed
  fields.status = "running"
  fields.started_ms = core.task.epoch_ms()
  fields.started_at = core.task.iso(fields.started_ms)
  return fields
end

--- Drops a record of a task that never was.
---@param record table
function store.remove(record)
  core.fs.remove(dir() .. "/" .. record.name .. ".json")
end

--- Writes a record.
---@param record table
function store.save(record)
  local out = {}
  for key, value in pairs(record) do out[key] = value end
  out.id = nil
  assert(core.fs.write(dir() .. "/" .. record.name .. ".json", core.json.encode(out)))
end

--- The record of a task id, or nil.
---@param task_id string
---@return table?
function store.find(task_id)
  if task_id:sub(1, #PREFIX) ~= PREFIX then return nil end
  local name = core.crypto.open(state.key(), task_id:sub(#PREFIX + 1))
  if not name or not name:find "^[a-z2-7]+$" then return nil end
  return load_file(name)
end

local function newest_first(a, b)
  if a.started_ms ~= b.started_ms then return a.started_ms > b.started_ms end
  return a.name > b.name
end

--- A principal's records, newest first. Those that are too old or too many go, whoever's they are.
---@param principal string
---@return table[]
function store.list(principal)
  local all, records = {}, {}
  for _, file in ipairs(assert(core.fs.list(dir()))) do
    local name = file:match "^([a-z2-7]+)%.json$"
    all[#all + 1] = name and load_file(name) or nil
  end
  table.sort(all, newest_first)
  local oldest_ms = core.task.epoch_ms() - KEEP_S * 1000
  for i, record in ipairs(all) do
    if i > FILES_MAX or record.started_ms < oldest_ms then store.remove(record)
    elseif record.principal == principal then records[#records + 1] = record end
  end
  return records
end

return store
