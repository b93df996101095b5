--- leases.lua - connections that sandboxes hang on.
--
-- A client holds one request open; when its connection breaks, for whatever reason, the sandboxes
-- that were created with the lease are ended at once. So kill -9 of a client leaves nothing.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"

local leases = {}

local BEAT_MS = 30000
local ID = "^[a-z2-7]+$"
local ID_MIN, ID_MAX = 16, 64

---@class demilune.engine.Leases
---@field sandboxes demilune.engine.Sandboxes
---@field held table<string, boolean>
---@field count integer
local Leases = {}
Leases.__index = Leases

--- No leases yet.
---@param sandboxes demilune.engine.Sandboxes
---@return demilune.engine.Leases
function leases.new(sandboxes)
  return setmetatable({ sandboxes = sandboxes, held = {}, count = 0 }, Leases)
end

--- Whether a text has the form of a lease.
---@param id any
---@return boolean
function leases.is_id(id)
  return type(id) == "string" and #id >= ID_MIN and #id <= ID_MAX and id:find(ID) ~= nil
end

--- Whether the lease is connected.
---@param id string
---@return boolean
function Leases:is_held(id)
  return self.held[id] == true
end

local function beat(req)
  req:start(200, { ["Content-Type"] = "text/plain" })
  local ok = req:write "ok\n"
  while ok do
    core.task.sleep(BEAT_MS)
    ok = req:write "\n"
  end
end

--- Serves GET /demilune/lease?id=…, for as long as the connection lasts.
---@param req table
function Leases:serve(req)
  local id = req.query.id
  if not leases.is_id(id) then faults.bad("id", "A lease is 16 to 64 of a-z and 2-7.") end
  if self.held[id] then faults.raise "lease_taken" end
  self.held[id] = true
  self.count = self.count + 1
  self.sandboxes.changed:set()
  local ok, raised = pcall(beat, req)
  self.held[id] = nil
  self.count = self.count - 1
  self.sandboxes:kill_matching(function(sandbox) return sandbox.lease == id end, "lease_gone")
  self.sandboxes.changed:set()
  if not ok then error(raised, 0) end
  req:abort()
end

return leases
