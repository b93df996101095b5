--- e2b/info.lua - what a control plane says of a sandbox, checked: every answer is hostile until then.
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local time = require "demilune.time"

local info = {}

local ID_BYTES_MAX = 128
local TEXT_BYTES_MAX = 256
local VERSION_BYTES_MAX = 32
local COUNT_MAX = 1 << 40

--- Statuses that a listing of the service can ask for.
info.STATES = { running = true, paused = true }

--- Whether a string may be an id of a service.
---@param id string
---@return boolean
function info.is_id(id)
  return #id <= ID_BYTES_MAX and id:find "^[%w][%w_.-]*$" ~= nil
end

--- A short text of the service, or nil where it is none.
---@param value any
---@return string?
function info.text(value)
  return type(value) == "string" and #value <= TEXT_BYTES_MAX and core.text.is_utf8(value) and value or nil
end

--- A size of the service: a number from 0 to what no sandbox has; nil where it is none.
local function count_of(value, is_whole)
  if not math.type(value) or not (value >= 0 and value <= COUNT_MAX) then return nil end
  return is_whole and math.tointeger(value) or not is_whole and value or nil
end

--- The variables of a sandbox as our engine tells them, nil where the service does not: those that a shell can export.
local function envs_of(entry)
  local ours = connect.is_object(entry.demilune) and entry.demilune.env
  if not connect.is_object(ours) then return nil end
  local envs = {}
  for name, value in pairs(ours) do
    if name:find "^[%a_][%w_]*$" and type(value) == "string" and not value:find("\0", 1, true) then envs[name] = value end
  end
  return envs
end

--- One sandbox of an answer as driver info, and its metadata beside it. Raises `invalid_response`.
---@param entry any
---@return table info
---@return table metadata
function info.of(entry)
  if not connect.is_object(entry) or type(entry.sandboxID) ~= "string" or not info.is_id(entry.sandboxID) then
    errors.raise "invalid_response"
  end
  local metadata = connect.is_object(entry.metadata) and entry.metadata or {}
  local started, ends = time.iso(entry.startedAt), time.iso(entry.endAt)
  local now = core.task.epoch_ms()
  return {
    id = entry.sandboxID, template = info.text(entry.alias) or info.text(entry.templateID),
    status = info.STATES[entry.state] and entry.state or "running", started_at = started, end_at = ends,
    ends_in_ms = ends and time.epoch_ms(ends) - now or nil, age_ms = started and now - time.epoch_ms(started) or nil,
    cpu_count = count_of(entry.cpuCount, false), memory_mb = count_of(entry.memoryMB, true),
    disk_size_mb = count_of(entry.diskSizeMB, true), owner = info.text(metadata.demilune_principal), envs = envs_of(entry),
  }, metadata
end

--- The version of a sandbox's envd as a list of numbers; nil where it is not known.
---@param value any
---@return integer[]?
function info.version(value)
  if type(value) ~= "string" or #value > VERSION_BYTES_MAX then return nil end
  local major, minor, patch = value:match "^v?(%d+)%.(%d+)%.(%d+)"
  major, minor, patch = math.tointeger(tonumber(major)), math.tointeger(tonumber(minor)), math.tointeger(tonumber(patch))
  return major and minor and patch and { major, minor, patch } or nil
end

--- Whether a version is known and not below another.
---@param version? integer[]
---@param least integer[]
---@return boolean
function info.is_at_least(version, least)
  if not version then return false end
  for i = 1, 3 do
    if version[i] ~= least[i] then return version[i] > least[i] end
  end
  return true
end

return info
