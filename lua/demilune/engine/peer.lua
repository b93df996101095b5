--- peer.lua - who may talk to the engine: this user and root, and nobody who sits in a sandbox.
--
-- The socket has mode 0600, but a read-only bind of it into a sandbox would still let a process of
-- the same uid connect. What runs in a sandbox runs in a nested pid namespace, which the kernel
-- shows in the NSpid line of its status (proc(5)); a peer that cannot be looked at is refused as
-- well.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"

local peer = {}

local STATUS_MAX_BYTES = 16384

--- How many pid namespaces a process is in, as seen from here; nil when it cannot be told.
local function depth_of(pid)
  local file = io.open("/proc/" .. pid .. "/status", "r")
  if not file then return nil end
  local text = file:read(STATUS_MAX_BYTES) or ""
  file:close()
  local numbers = text:match "\nNSpid:([%d\t ]*)\n"
  if not numbers then return nil end
  local _, count = numbers:gsub("%d+", "")
  return count
end

local own_depth

--- Whether a peer (pid, uid of SO_PEERCRED) may talk to this engine.
---@param credentials? { pid: integer, uid: integer }
---@return boolean
function peer.is_allowed(credentials)
  if not credentials then return false end
  if credentials.uid ~= 0 and credentials.uid ~= core.sys.uid() then return false end
  own_depth = own_depth or depth_of "self"
  local depth = credentials.pid > 0 and depth_of(credentials.pid) or nil
  return depth ~= nil and own_depth ~= nil and depth <= own_depth
end

--- The fault of a request whose peer may not talk to this engine.
---@param req table
---@return demilune.engine.Fault?
function peer.refuse(req)
  if peer.is_allowed(req:peer()) then return nil end
  return faults.new "forbidden"
end

return peer
