--- expiry.lua - ends or pauses the sandboxes whose time is up.
local core = require "demilune.core"
local pause = require "demilune.engine.pause"

local task = core.task

local expiry = {}

--- The loop's timers stand still while the machine sleeps, so the next expiry is looked at this
--- often.
local LOOK_MS = 10000

--- Sorts the sandboxes: those to be ended now, those to be paused now, and when to look again.
local function look(all, now_ms)
  local doomed, tired, next_ms = {}, {}, now_ms + LOOK_MS
  for _, sandbox in pairs(all.by_id) do
    local deadline_ms = sandbox.deadline_ms
    if deadline_ms and deadline_ms > now_ms then
      next_ms = math.min(next_ms, deadline_ms)
    elseif deadline_ms and sandbox.has_auto_pause and sandbox.state ~= "paused" then
      sandbox.deadline_ms = nil
      tired[#tired + 1] = sandbox
    elseif deadline_ms then
      doomed[sandbox] = true
    end
  end
  return doomed, tired, next_ms
end

--- Keeps the times of all sandboxes, for ever. Runs as a task.
---@param all demilune.engine.Sandboxes
function expiry.watch(all)
  while true do
    all.changed:clear()
    local now_ms = task.now_ms()
    local doomed, tired, next_ms = look(all, now_ms)
    all:kill_matching(function(sandbox) return doomed[sandbox] end)
    for _, sandbox in ipairs(tired) do task.spawn(pause.at_end, all, sandbox) end
    all.changed:wait(all.count > 0 and next_ms - now_ms or nil)
  end
end

return expiry
