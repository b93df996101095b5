--- progress.lua - what a call says while it runs, for clients that gave a progressToken.
--
-- The newest whole output line, at most 5 a second, and a sign of life every 15 s. Only the call's own connection gets it.
local core = require "demilune.core"

local progress = {}

local INTERVAL_MS = 200
--- One tick less than the 15 s that are promised.
local SILENCE_MS = 15000 - INTERVAL_MS
local LINE_BYTES = 200

---@class demilune.Progress
local Progress = {}
Progress.__index = Progress
Progress.__close = function(self) self:stop() end

--- Starts reporting. `send(count, message)` writes one notification.
---@param send fun(count: integer, message: string)
---@return demilune.Progress
function progress.start(send)
  local now = core.task.now_ms()
  local self = setmetatable({ send = send, count = 0, started_ms = now, sent_ms = now - INTERVAL_MS }, Progress)
  self.ticker = core.task.spawn(function()
    while true do
      core.task.sleep(INTERVAL_MS)
      self:tick()
    end
  end)
  return self
end

--- Sends one notification now.
---@param message string
function Progress:emit(message)
  self.count = self.count + 1
  self.sent_ms = core.task.now_ms()
  self.newest = nil
  self.send(self.count, message)
end

--- Sends what waits, or a sign of life. The ticker's.
function Progress:tick()
  local now = core.task.now_ms()
  if self.newest and now - self.sent_ms >= INTERVAL_MS then
    self:emit(self.newest)
  elseif now - self.sent_ms >= SILENCE_MS then
    self:emit(("running, %d s"):format((now - self.started_ms + 500) // 1000))
  end
end

--- Notes a whole line of output; it is sent at once when the last one is long enough ago.
---@param line string  bytes of any kind, with what the policy names masked
function Progress:line(line)
  line = core.vault.redact(line)
  if line == "" then return end
  self.newest = core.text.mend(core.text.head(line, LINE_BYTES))
  if core.task.now_ms() - self.sent_ms >= INTERVAL_MS then self:emit(self.newest) end
end

--- Ends reporting. A line that waits is dropped: the result that follows has it.
function Progress:stop()
  self.ticker:cancel()
end

return progress
