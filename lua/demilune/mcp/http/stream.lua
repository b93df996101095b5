--- mcp/http/stream.lua - one stream of server-sent events: what waits for its reader, and what is kept to be read again.
--
-- Events of a session's streams have ids "STREAM-NUMBER", so that a client whose connection broke takes up exactly the stream
-- that it read (MCP 2025-11-25, basic/transports, "Resumability and Redelivery"). Those of 2026-07-28 have none and are gone
-- once they are written.
local core = require "demilune.core"

local task = core.task
local stream = {}

--- Events and bytes of a stream that are kept, read or unread. Beyond, the oldest go; the answer of a call always stays.
stream.EVENTS_MAX = 1024
stream.BYTES_MAX = 4 * 1024 * 1024
--- A sign of life, for whatever stands between.
stream.KEEPALIVE_MS = 15000
--- Written at a time.
local CHUNK_BYTES = 256 * 1024
--- When a client may come back, in milliseconds.
local RETRY_MS = 1000

local HEADERS = {
  ["Content-Type"] = "text/event-stream", ["Cache-Control"] = "no-cache, no-transform", ["X-Accel-Buffering"] = "no",
}

---@class demilune.mcp.http.Stream
---@field id? string        nil: nothing can be read again
---@field has_priming boolean
---@field events {number: integer, text: string, is_answer: boolean}[]
---@field bytes integer
---@field last integer      number of the newest event
---@field sent integer      number of the newest event that was written
---@field is_done boolean
---@field wake table        event: there is something new
---@field reader? table     whoever reads it now
local Stream = {}
Stream.__index = Stream

--- Makes one.
---@param id? string  what the ids of its events begin with
---@param has_priming? boolean  it begins with an empty event, so that a client has an id from the start
---@return demilune.mcp.http.Stream
function stream.new(id, has_priming)
  return setmetatable({
    id = id, has_priming = has_priming == true and id ~= nil, events = {}, bytes = 0, last = 0, sent = 0, is_done = false,
    wake = task.event(),
  }, Stream)
end

--- Drops the oldest event that is not the answer. False where there is none.
local function drop_oldest(self)
  for i, event in ipairs(self.events) do
    if not event.is_answer then
      table.remove(self.events, i)
      self.bytes = self.bytes - #event.text
      return true
    end
  end
  return false
end

--- Adds a message.
---@param text string  JSON text of one line
---@param is_answer? boolean  the answer of a call, which is the last
function Stream:push(text, is_answer)
  if self.is_done then return end
  self.last = self.last + 1
  self.events[#self.events + 1] = { number = self.last, text = text, is_answer = is_answer == true }
  self.bytes = self.bytes + #text
  while #self.events > stream.EVENTS_MAX or self.bytes > stream.BYTES_MAX do
    if not drop_oldest(self) then break end
  end
  self.is_done = is_answer == true
  self.wake:set()
end

--- Ends it: nothing comes any more.
function Stream:finish()
  self.is_done = true
  self.wake:set()
end

local function event_text(self, event)
  if not self.id then return "event: message\ndata: " .. event.text .. "\n\n" end
  return ("event: message\nid: %s-%d\ndata: %s\n\n"):format(self.id, event.number, event.text)
end

--- Events after a number, as much as is written at once, and the number of the last of them.
local function batch_after(self, number)
  local parts, bytes = {}, 0
  for _, event in ipairs(self.events) do
    if event.number > number and bytes < CHUNK_BYTES then
      parts[#parts + 1] = event_text(self, event)
      bytes, number = bytes + #event.text, event.number
    end
  end
  return table.concat(parts), number
end

--- What cannot be asked for again is not kept.
local function forget_until(self, number)
  if self.id then return end
  while self.events[1] and self.events[1].number <= number do
    self.bytes = self.bytes - #self.events[1].text
    table.remove(self.events, 1)
  end
end

local function head_of(self, number)
  if not self.id then return "" end
  local retry = ("retry: %d\n"):format(RETRY_MS)
  if self.has_priming and number == 0 then return ("%sid: %s-0\ndata: \n\n"):format(retry, self.id) end
  return retry .. "\n"
end

--- Writes events until the stream ends, its client goes, or another request reads it. Whoever read it before stops.
---@async
---@param req demilune.core.httpd.Request
---@param number integer  of the last event that the client has; 0 for none
---@param headers? table<string, string>
function Stream:serve(req, number, headers)
  local all, me = {}, {}
  for key, value in pairs(HEADERS) do all[key] = value end
  for key, value in pairs(headers or {}) do all[key] = value end
  self.reader = me
  local left <close> = setmetatable({}, { __close = function() -- luacheck: ignore 211
    if self.reader == me then self.reader = nil end
  end })
  if not req:start(200, all) then return end
  local head = head_of(self, number)
  if head ~= "" and not req:write(head) then return end
  while self.reader == me do
    local text, upto = batch_after(self, number)
    if text ~= "" then
      if not req:write(text) then return end
      number = upto
      self.sent = math.max(self.sent, number)
      forget_until(self, number)
    elseif self.is_done then
      break
    else
      self.wake:clear()
      if not self.wake:wait(stream.KEEPALIVE_MS) and not req:write ": alive\n\n" then return end
    end
  end
  req:finish()
end

--- Lets whoever reads it go.
function Stream:release()
  self.reader = nil
  self.wake:set()
end

return stream
