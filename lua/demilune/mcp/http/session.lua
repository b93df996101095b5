--- mcp/http/session.lua - one session of a client that began with `initialize`: its conversation, calls and streams.
local asks = require "demilune.mcp.http.asks"
local core = require "demilune.core"
local mcp = require "demilune.mcp"
local stream = require "demilune.mcp.http.stream"

local task = core.task
local session = {}

--- Streams that are kept to be read again, and their bytes; beyond, the oldest that have ended go.
session.STREAMS_MAX = 64
session.BYTES_MAX = 32 * 1024 * 1024
--- Calls of a session at work at a time.
session.CALLS_MAX = 256
local ID_CHARACTERS = 40
--- Streams begin with an empty event since.
local PRIMING_SINCE = "2025-11-25"

---@class demilune.mcp.http.Session
---@field id string
---@field principal string
---@field conversation demilune.Conversation
---@field scope demilune.Scope
---@field asks demilune.mcp.http.Asks
---@field calls table<string, demilune.mcp.http.Call>  by key
---@field call_count integer
---@field streams demilune.mcp.http.Stream[]  oldest first
---@field stream_count integer  that there ever were
---@field news demilune.mcp.http.Stream       what belongs to no call; numbered 0
---@field used_ms integer
---@field is_over boolean
local Session = {}
Session.__index = Session

--- Begins one.
---@param app demilune.App
---@param principal string
---@return demilune.mcp.http.Session
function session.new(app, principal)
  local self = setmetatable({
    id = core.crypto.id(ID_CHARACTERS), principal = principal, scope = app:new_scope(principal), asks = asks.new(), calls = {},
    call_count = 0, streams = {}, stream_count = 0, news = stream.new "0", used_ms = task.now_ms(), is_over = false,
  }, Session)
  self.conversation = mcp.new(app, {
    scope = self.scope, principal = principal, transport = "http", drained = task.event(), io = {
      is_full = function() return false end,
      notify = function(_, method, params_json) self:notify(method, params_json) end,
    },
  })
  return self
end

--- Tells the client something outside of any call.
---@param method string
---@param params_json string
function Session:notify(method, params_json)
  local text = not self.is_over and core.rpc.notification(method, params_json)
  if text then self.news:push(text) end
end

--- Drops streams that have ended while there are too many, or they hold too much.
local function shrink(self)
  local bytes = 0
  for _, one in ipairs(self.streams) do bytes = bytes + one.bytes end
  local i = 1
  while self.streams[i] and (#self.streams > session.STREAMS_MAX or bytes > session.BYTES_MAX) do
    local one = self.streams[i]
    if one.is_done and not one.reader then
      bytes = bytes - one.bytes
      table.remove(self.streams, i)
    else
      i = i + 1
    end
  end
end

--- Whether its client knows streams that begin with an empty event; older ones take that for a message.
---@return boolean
function Session:has_priming()
  return (self.conversation.revision or "") >= PRIMING_SINCE
end

--- A stream for a call.
---@return demilune.mcp.http.Stream
function Session:new_stream()
  shrink(self)
  self.stream_count = self.stream_count + 1
  local one = stream.new(tostring(self.stream_count), self:has_priming())
  self.streams[#self.streams + 1] = one
  return one
end

--- The stream and the number of an event's id; nil where the session has none of that id any more.
---@param event_id string
---@return demilune.mcp.http.Stream?
---@return integer? number
function Session:find_event(event_id)
  local id, number = event_id:match "^(%d+)%-(%d+)$"
  number = number and #number <= 15 and math.tointeger(tonumber(number))
  if not number then return nil end
  if id == self.news.id then return self.news, number end
  for _, one in ipairs(self.streams) do
    if one.id == id then return one, number end
  end
end

--- Notes that a call begins; false where too many are at work.
---@param call demilune.mcp.http.Call
---@return boolean
function Session:enter(call)
  if self.call_count >= session.CALLS_MAX then return false end
  self.call_count = self.call_count + 1
  self.calls[call.message.key] = call
  return true
end

--- Notes that a call is over.
---@param call demilune.mcp.http.Call
function Session:leave(call)
  self.call_count = self.call_count - 1
  self.used_ms = task.now_ms()
  if self.calls[call.message.key] == call then self.calls[call.message.key] = nil end
end

--- Takes back the call that notifications/cancelled names; others are passed over.
---@param params table
function Session:cancel(params)
  local id = params.requestId
  if math.type(id) == "float" then id = math.tointeger(id) end
  local key = type(id) == "string" and "s" .. id or math.type(id) == "integer" and "i" .. id
  local call = key and self.calls[key]
  if call and call.message.method ~= "initialize" then call:cancel() end
end

--- Whether nobody uses it now.
---@return boolean
function Session:is_idle()
  return self.call_count == 0 and not self.news.reader
end

--- Ends what it holds but its scope: calls, questions, streams.
function Session:stop()
  self.is_over = true
  for _, call in pairs(self.calls) do call:stop() end
  self.asks:stop()
  self.news:finish()
end

return session
