--- show.lua - a sandbox as the control plane shows it.
--
-- Over TCP there are E2B's fields alone, with the secrets that the data plane asks for there. Over
-- the unix socket those are null, and there is an object of ours.
local core = require "demilune.core"

local show = {}

--- What clients are told that the data plane is; newer ones then use every call that is served
--- here.
local ENVD_VERSION = "0.6.5"
local WORKDIR = "/home/user"

local function or_null(value)
  if value == nil then return core.json.null end
  return value
end

local function head(sandbox)
  return {
    sandboxID = sandbox.id, templateID = sandbox.template, clientID = "local",
    envdVersion = ENVD_VERSION,
  }
end

--- What create and connect answer.
---@param sandbox demilune.engine.Sandbox
---@param is_public boolean  over TCP
---@return table
function show.created(sandbox, is_public)
  local shown = head(sandbox)
  shown.domain = core.json.null
  shown.envdAccessToken = is_public and sandbox.access_token or core.json.null
  shown.trafficAccessToken = is_public and sandbox.traffic_token or core.json.null
  if is_public then return shown end
  shown.demilune = {
    startedAt = core.task.iso(sandbox.started_at_ms), endAt = core.task.iso(sandbox.end_at_ms),
    cpuCount = or_null(sandbox.cpu), memoryMB = or_null(sandbox.memory_mb),
    diskSizeMB = sandbox.disk_mb,
    workdir = WORKDIR, network = "none",
  }
  return shown
end

--- An element of a listing.
---@param sandbox demilune.engine.Sandbox
---@return table
function show.listed(sandbox)
  local shown = head(sandbox)
  shown.startedAt = core.task.iso(sandbox.started_at_ms)
  shown.endAt = core.task.iso(sandbox.end_at_ms)
  shown.cpuCount, shown.memoryMB = or_null(sandbox.cpu), or_null(sandbox.memory_mb)
  shown.diskSizeMB = sandbox.disk_mb
  shown.metadata = sandbox.metadata
  -- One that is just being stopped is not usable any more, one that is being resumed not yet.
  shown.state = sandbox.state == "running" and "running" or "paused"
  return shown
end

--- A single sandbox.
---@param sandbox demilune.engine.Sandbox
---@param is_public boolean  over TCP
---@return table
function show.detail(sandbox, is_public)
  local detail = show.listed(sandbox)
  detail.domain = core.json.null
  detail.envdAccessToken = is_public and sandbox.access_token or core.json.null
  detail.allowInternetAccess = false
  detail.lifecycle = {
    autoResume = sandbox.has_auto_resume, onTimeout = sandbox.has_auto_pause and "pause" or "kill",
  }
  -- Whoever may ask the unix socket may run commands in the sandbox, which see them.
  if not is_public then
    detail.demilune = { workdir = WORKDIR, network = "none", env = sandbox.env }
  end
  return detail
end

return show
