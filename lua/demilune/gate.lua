--- gate.lua - so many at a time; the others wait in order, for a bounded time.
--
--   local place <close> = gate:enter()    -- nil when none was free in time; enter(ms): in less time than the gate's
--   place:leave()                         -- or the end of the block, or the collector
local core = require "demilune.core"

local task = core.task
local gate = {}

---@class demilune.Gate
---@field free integer   places that nobody has
---@field wait_ms integer
---@field queue demilune.Place[]  those that are waited for, in order
local Gate = {}
Gate.__index = Gate

---@class demilune.Place
---@field gate demilune.Gate
---@field is_had boolean
---@field event? table  set when it is had
local Place = {}
Place.__index = Place

--- Makes one with all places free.
---@param places integer
---@param wait_ms integer  how long one may wait
---@return demilune.Gate
function gate.new(places, wait_ms)
  return setmetatable({ free = places, wait_ms = wait_ms, queue = {} }, Gate)
end

--- Gives the place back: who waits longest has it at once. Of one that is waited for, ends the wait. Twice is fine.
function Place:leave()
  local queue = self.gate.queue
  if not self.is_had then
    for i, other in ipairs(queue) do
      if other == self then return table.remove(queue, i) end
    end
    return nil
  end
  self.is_had = false
  local next_one = table.remove(queue, 1)
  if not next_one then
    self.gate.free = self.gate.free + 1
    return nil
  end
  next_one.is_had = true
  next_one.event:set()
end

Place.__close, Place.__gc = Place.leave, Place.leave

--- Ends a wait that is left by an error or with its task.
local Waiting = {
  __close = function(waiting)
    if not waiting.is_over then waiting.place:leave() end
  end,
}

--- Takes a place; nil when none was free in time. A task that is cancelled meanwhile has none.
---@param wait_ms? number  where that is less than the gate's own
---@return demilune.Place?
function Gate:enter(wait_ms)
  local place = setmetatable({ gate = self, is_had = self.free > 0 }, Place)
  if place.is_had then
    self.free = self.free - 1
    return place
  end
  place.event = task.event()
  self.queue[#self.queue + 1] = place
  local waiting <close> = setmetatable({ place = place }, Waiting)
  place.event:wait(wait_ms and math.min(wait_ms, self.wait_ms) or self.wait_ms)
  waiting.is_over = place.is_had
  return place.is_had and place or nil
end

return gate
