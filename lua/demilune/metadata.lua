--- metadata.lua - what the tools tell of a sandbox: these nine fields, and never another.
local json = require("demilune.core").json

local metadata = {}

--- The metadata of one sandbox as a result; what the service does not say is null.
---@param app demilune.App
---@param provider table
---@param info table  of a driver
---@return table
function metadata.public(app, provider, info)
  local function known(value)
    if value == nil then return json.null end
    return value
  end
  return {
    sandbox_id = app:public_id(provider, info.id), template = known(info.template), status = info.status,
    region = known(info.region), started_at = known(info.started_at), end_at = known(info.end_at),
    cpu_count = known(info.cpu_count), memory_mb = known(info.memory_mb), disk_size_mb = known(info.disk_size_mb),
  }
end

return metadata
