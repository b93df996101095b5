--- mcp/http/asks.lua - what a session's client was asked and has not answered yet; its answers come by requests of their own.
local core = require "demilune.core"
local errors = require "demilune.errors"

local asks = {}

--- Questions of a session that wait at a time.
asks.MAX = 64

---@class demilune.mcp.http.Asks
---@field waiting table<string, {event: table, answer?: table}>
---@field count integer
---@field last integer
local Asks = {}
Asks.__index = Asks

--- Makes an empty list.
---@return demilune.mcp.http.Asks
function asks.new()
  return setmetatable({ waiting = {}, count = 0, last = 0 }, Asks)
end

local function remove(self, id)
  if not self.waiting[id] then return end
  self.waiting[id] = nil
  self.count = self.count - 1
end

--- Asks and waits. `send(id)` puts the question on its way, `take_back(id)` tells the client that it need not answer. Errors:
--- quota_exceeded, provider_timeout, provider_rejected, invalid_response, stopped.
---@async
---@param send fun(id: string)
---@param take_back fun(id: string)
---@param timeout_ms number
---@param owner table  whose end ends the question
---@return table? result  hostile
---@return demilune.Error? err
function Asks:wait(send, take_back, timeout_ms, owner)
  if self.count >= asks.MAX then return nil, errors.new "quota_exceeded" end
  self.last = self.last + 1
  local id = "dml-" .. self.last
  local ask = { event = core.task.event(), owner = owner }
  self.waiting[id], self.count = ask, self.count + 1
  local left <close> = setmetatable({}, { __close = function() -- luacheck: ignore 211
    if self.waiting[id] then
      remove(self, id)
      take_back(id)
    end
  end })
  send(id)
  if not ask.event:wait(timeout_ms) then return nil, errors.new "provider_timeout" end
  local answer = ask.answer
  if not answer then return nil, errors.new "stopped" end
  if answer.result then return answer.result end
  return nil, errors.new(answer.is_error and "provider_rejected" or "invalid_response")
end

--- Takes a client's answer; one to nothing that waits is passed over.
---@param message demilune.core.rpc.Message
function Asks:answer(message)
  local ask = self.waiting[message.answers]
  if not ask then return end
  remove(self, message.answers)
  ask.answer = message
  ask.event:set()
end

--- Ends the questions of an owner, or all.
---@param owner? table
function Asks:stop(owner)
  for id, ask in pairs(self.waiting) do
    if not owner or ask.owner == owner then
      remove(self, id)
      ask.event:set()
    end
  end
end

return asks
