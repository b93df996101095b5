--- pause.lua - sandboxes that stand still: stopped, kept in memory, and going on where they were.
--
-- The two ways of stopping are the isolation's (src/sandbox/pause.h); here is who may ask for it and
-- when. A change is made by a task of its own, so a client that goes away leaves no sandbox half
-- stopped.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"

local task = core.task

local pause = {}

--- How long a paused sandbox is kept. It holds memory of this machine, so not for ever.
pause.PAUSED_MAX_S = 86400
--- Until all of a sandbox stands.
local STOP_TIMEOUT_MS, STOP_LOOK_MS = 5000, 2
--- How long a request waits for a change that is under way.
local SETTLE_TIMEOUT_MS = 10000

--- Waits until the sandbox is running or paused, and raises when it ends meanwhile.
---@param sandbox demilune.engine.Sandbox
function pause.settle(sandbox)
  local end_ms = task.now_ms() + SETTLE_TIMEOUT_MS
  while sandbox.moved and not sandbox.is_ended do
    local left_ms = end_ms - task.now_ms()
    if left_ms <= 0 or not sandbox.moved:wait(left_ms) then faults.raise "sandbox_moving" end
  end
  if sandbox.is_ended then faults.raise "sandbox_not_found" end
end

--- Runs `change` to its end; the sandbox has the state `moving` meanwhile and what `change` returns
--- afterwards. Returns that state; another may have changed it again since.
local function move(sandbox, moving, change)
  sandbox.state, sandbox.moved = moving, task.event()
  local changing = task.spawn(function()
    local ok, state = pcall(change)
    sandbox.state = ok and state or "running"
    local moved = sandbox.moved
    sandbox.moved = nil
    moved:set()
    if not ok then error(state, 0) end
    return state
  end)
  local ok, state = changing:wait()
  return ok and state or "running"
end

local function stop(sandbox)
  local end_ms = task.now_ms() + STOP_TIMEOUT_MS
  while not sandbox.is_ended do
    local is_stopped, err = sandbox.box:pause()
    if is_stopped then return true end
    if err or task.now_ms() > end_ms then break end
    task.sleep(STOP_LOOK_MS)
  end
  if not sandbox.is_ended then sandbox.box:resume() end
  return false
end

--- Stops all of a sandbox. Raises `conflict` for one that is paused, and `pause_failed`.
---@param all demilune.engine.Sandboxes
---@param sandbox demilune.engine.Sandbox
function pause.pause(all, sandbox)
  pause.settle(sandbox)
  if sandbox.state == "paused" then
    faults.raise("conflict", { message = "The sandbox is paused already." })
  end
  local state = move(sandbox, "pausing", function()
    if not stop(sandbox) then return "running" end
    all:set_timeout(sandbox, pause.PAUSED_MAX_S)
    core.log.info("sandbox " .. sandbox.id .. " paused")
    return "paused"
  end)
  if sandbox.is_ended then faults.raise "sandbox_not_found" end
  if state ~= "paused" then faults.raise "pause_failed" end
end

--- Lets a paused sandbox go on, for `seconds`. Harmless when it runs.
---@param all demilune.engine.Sandboxes
---@param sandbox demilune.engine.Sandbox
---@param seconds integer
---@return boolean is_resumed  false when it ran
function pause.resume(all, sandbox, seconds)
  pause.settle(sandbox)
  if sandbox.state ~= "paused" then return false end
  local ok = sandbox.box:resume()
  if not ok then faults.raise "internal" end
  sandbox.state = "running"
  all:set_timeout(sandbox, seconds)
  core.log.info("sandbox " .. sandbox.id .. " resumed")
  return true
end

--- What to do with a sandbox whose time is up and that was to be paused then.
---@param all demilune.engine.Sandboxes
---@param sandbox demilune.engine.Sandbox
function pause.at_end(all, sandbox)
  local ok, raised = pcall(pause.pause, all, sandbox)
  local is_paused = faults.is(raised) and raised.error_code == "conflict"
  if ok or is_paused or sandbox.is_ended then return end
  all:kill(sandbox)
end

--- Makes a sandbox ready for the data plane, or raises what E2B's proxy would answer.
---@param all demilune.engine.Sandboxes
---@param sandbox demilune.engine.Sandbox
function pause.wake(all, sandbox)
  if sandbox.state == "running" then return end
  pause.settle(sandbox)
  if sandbox.state == "running" then return end
  if not sandbox.has_auto_resume then faults.raise "sandbox_paused" end
  pause.resume(all, sandbox, sandbox.timeout_s)
end

return pause
