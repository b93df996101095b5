--- e2b/attached.lua - what the data planes of sandboxes are reached with, by id: place, domain, version of envd, tokens.
--
-- Bounded: the oldest goes first, and is asked for again when it is needed.
local attached = {}

--- The vault has room for two tokens of each.
local MAX = 256

---@class demilune.e2b.Plane
---@field place demilune.e2b.Place
---@field domain? string
---@field version? integer[]
---@field tokens table[]  handles

---@class demilune.e2b.Attached
---@field by_id table<string, demilune.e2b.Plane>
---@field order string[]
local Attached = {}
Attached.__index = Attached

--- Makes an empty one.
---@return demilune.e2b.Attached
function attached.new()
  return setmetatable({ by_id = {}, order = {} }, Attached)
end

--- What is known of a sandbox.
---@param id string
---@return demilune.e2b.Plane?
function Attached:get(id)
  return self.by_id[id]
end

--- Remembers it.
---@param id string
---@param known demilune.e2b.Plane
function Attached:put(id, known)
  if not self.by_id[id] then
    if #self.order == MAX then self.by_id[table.remove(self.order, 1)] = nil end
    self.order[#self.order + 1] = id
  end
  self.by_id[id] = known
end

--- Forgets it.
---@param id string
function Attached:drop(id)
  if not self.by_id[id] then return end
  self.by_id[id] = nil
  for i, other in ipairs(self.order) do
    if other == id then return table.remove(self.order, i) end
  end
end

return attached
