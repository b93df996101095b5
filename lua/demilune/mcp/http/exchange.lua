--- mcp/http/exchange.lua - one request of a client over HTTP: its call, and the answer as JSON, or as a stream of events as soon
--- as the call has something to say before its result.
--
-- The call works in a task of its own. For a client of a session a connection that breaks means nothing: the call goes on, and
-- its stream can be taken up again (MCP 2025-11-25, basic/transports). For one of 2026-07-28 it is the cancel.
local core = require "demilune.core"
local errors = require "demilune.errors"
local stream = require "demilune.mcp.http.stream"

local task = core.task
local exchange = {}

local INTERNAL_ERROR = -32603
--- What a question may hold.
local ASK_BYTES_MAX = 1024 * 1024
--- JSON-RPC errors that have a status of their own in 2026-07-28 (basic/transports/streamable-http).
local STATUS_OF = {
  [-32601] = 404, [-32602] = 400, [-32600] = 400, [-32700] = 400, [-32020] = 400, [-32021] = 400, [-32022] = 400,
}

--- A call as conversations know it: the methods of core.stdio's calls, with the same meaning.
---@class demilune.mcp.http.Call
---@field owner table          the session, or what stands for one: asks?, new_stream()
---@field message demilune.core.rpc.Message
---@field is_modern boolean
---@field takes_events boolean
---@field turn table           event: there is an answer or a stream
---@field stream? demilune.mcp.http.Stream
---@field text? string         the answer, where there is no stream
---@field status integer
---@field is_over boolean
---@field was_cancelled boolean
---@field on_answer? fun(headers: table<string, string>)  before the head of the answer goes out
local Call = {}
Call.__index = Call

--- Makes one.
---@param owner table
---@param message demilune.core.rpc.Message
---@param options {is_modern: boolean, takes_events: boolean}
---@return demilune.mcp.http.Call
function exchange.new(owner, message, options)
  return setmetatable({
    owner = owner, message = message, is_modern = options.is_modern, takes_events = options.takes_events, turn = task.event(),
    status = 200, is_over = false, was_cancelled = false,
  }, Call)
end

local function give(self, text)
  self.is_over = true
  if self.owner.asks then self.owner.asks:stop(self) end
  if self.stream then self.stream:push(text, true) else self.text = text end
  self.turn:set()
end

local function too_large(self)
  return core.rpc.error(self.message.id, INTERNAL_ERROR, "the answer is too large to be sent")
end

--- Answers with a result; nothing where it was answered or taken back.
---@param json string  JSON text
function Call:reply(json)
  if self.is_over then return end
  give(self, core.rpc.result(self.message.id, json) or too_large(self))
end

--- Answers with a JSON-RPC error, under the same conditions.
---@param code integer
---@param message string
---@param data_json? string  JSON text
function Call:fail(code, message, data_json)
  if self.is_over then return end
  if self.is_modern then self.status = STATUS_OF[code] or 200 end
  give(self, core.rpc.error(self.message.id, code, message, data_json) or too_large(self))
end

--- The stream of this call, which there is from now on.
local function open_stream(self)
  if not self.stream then
    self.stream = self.owner:new_stream()
    self.turn:set()
  end
  return self.stream
end

--- Sends a notification that belongs to the call; dropped for a client that takes no events.
---@param method string
---@param params_json string  JSON text
function Call:notify(method, params_json)
  if self.is_over or not self.takes_events then return end
  local text = core.rpc.notification(method, params_json)
  if text then open_stream(self):push(text) end
end

--- Asks the client something and waits for its result. Errors: those of asks.lua; too_large; unsupported (the client takes no
--- events).
---@async
---@param method string
---@param params_json string  JSON text, at most 1 MiB
---@param timeout_ms number
---@return table? result  hostile
---@return demilune.Error? err
function Call:request(method, params_json, timeout_ms)
  if self.is_over then return nil, errors.new "stopped" end
  if not self.takes_events or not self.owner.asks then return nil, errors.new "unsupported" end
  if #params_json > ASK_BYTES_MAX then return nil, errors.new "too_large" end
  local function send(id)
    local text = core.rpc.request(id, method, params_json)
    if text then open_stream(self):push(text) end
  end
  local function take_back(id)
    self:notify("notifications/cancelled", '{"requestId":"' .. id .. '"}')
  end
  return self.owner.asks:wait(send, take_back, timeout_ms, self)
end

--- The id as the JSON text that came.
---@return string
function Call:id() return self.message.id end

--- Whether the client took the call back.
---@return boolean
function Call:is_cancelled() return self.was_cancelled end

--- Stops it for good: the client took it back, so nothing is answered.
function Call:cancel()
  if self.is_over then return end
  self.was_cancelled, self.is_over = true, true
  if self.owner.asks then self.owner.asks:stop(self) end
  if self.stream then self.stream:finish() end
  self.turn:set()
  if self.worker then self.worker:cancel() end
end

--- Stops its work; it may still answer.
function Call:stop()
  if not self.is_over and self.worker then self.worker:cancel() end
end

--- Begins the work in a task of its own.
---@param conversation demilune.Conversation
---@param on_end fun()
function Call:start(conversation, on_end)
  local message = self.message
  self.worker = task.spawn(function()
    local ok, err = pcall(conversation.on_request, conversation, self, message.method, message.params)
    self.message.params = nil
    if not ok and not self.is_over then
      if err ~= task.CANCELLED then core.log.error(tostring(type(err) == "table" and err.message or err)) end
      self:fail(INTERNAL_ERROR, "the request could not be answered")
    end
    on_end()
  end)
end

--- Waits until there is an answer or a stream; a call that is silent for long gets a stream, for its signs of life.
local function wait_for_turn(self)
  while not self.text and not self.stream and not self.was_cancelled do
    self.turn:clear()
    if not self.turn:wait(stream.KEEPALIVE_MS) and self.takes_events and not self.is_over then open_stream(self) end
  end
end

--- A client of 2026-07-28 that goes away takes its call back.
local Attendance = {
  __close = function(attendance) attendance.call:cancel() end,
}

--- Answers the HTTP request.
---@async
---@param req demilune.core.httpd.Request
---@param headers table<string, string>  of every answer
function Call:answer(req, headers)
  local attendance <close> = self.is_modern and setmetatable({ call = self }, Attendance) or nil -- luacheck: ignore 211
  wait_for_turn(self)
  if self.on_answer then self.on_answer(headers) end
  if self.text then
    headers["Content-Type"] = "application/json"
    req:respond(self.status, headers, self.text)
  elseif self.stream then
    self.stream:serve(req, 0, headers)
  else
    req:respond(202, headers, "")
  end
end

return exchange
