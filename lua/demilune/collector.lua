--- collector.lua - keeps the head and the tail of an output, however long it is.
local collector = {}

--- Of the newest line: what is shown of it, and the longest secret in hex.
local LINE_BYTES = 20480

---@class demilune.Collector
local Collector = {}
Collector.__index = Collector

--- Makes one.
---@param window {live: integer, tail: integer}  bytes kept from the start, and from the end
---@param on_line? fun(line: string)             called with the newest whole line of what is fed
---@return demilune.Collector
function collector.new(window, on_line)
  return setmetatable({
    window = window, on_line = on_line, parts = {}, head_bytes = 0, tail = {}, first = 1, last = 0, tail_bytes = 0, total = 0,
    line = "",
  }, Collector)
end

local function note_line(self, bytes)
  local before, rest = bytes:match "^(.*)\n([^\n]*)$"
  if not before then
    if #self.line < LINE_BYTES then self.line = self.line .. bytes:sub(1, LINE_BYTES) end
    return
  end
  local last_break = #before - (before:reverse():find("\n", 1, true) or #before + 1) + 1
  local newest = before:sub(last_break + 1)
  if last_break == 0 then newest = self.line .. newest end
  self.line = rest:sub(1, LINE_BYTES)
  self.on_line(newest)
end

--- Adds bytes.
---@param bytes string
function Collector:feed(bytes)
  self.total = self.total + #bytes
  if self.on_line then note_line(self, bytes) end
  local room = self.window.live - self.head_bytes
  if room > 0 then
    local piece = bytes:sub(1, room)
    self.parts[#self.parts + 1] = piece
    self.head_bytes = self.head_bytes + #piece
    bytes = bytes:sub(room + 1)
  end
  if bytes == "" then return end
  self.last = self.last + 1
  self.tail[self.last] = bytes
  self.tail_bytes = self.tail_bytes + #bytes
  while self.first < self.last and self.tail_bytes - #self.tail[self.first] >= self.window.tail do
    self.tail_bytes = self.tail_bytes - #self.tail[self.first]
    self.tail[self.first] = nil
    self.first = self.first + 1
  end
end

--- A tail of what was not sent begins where the head ends, and may be shorter than the window: the head completes it.
local function complete(head, tail, most)
  if #tail < most then tail = head:sub(-(most - #tail)) .. tail end
  return tail:sub(-most)
end

--- What was kept: all of it in `head`, or `head` and `tail` of a longer one. `cut` is what a driver says that cut by
--- itself: the total, the last bytes of what it did not send, and where all of it is.
---@param cut? {total: integer, tail: string, path?: string}
---@return {head: string, tail?: string, total: integer, path?: string}
function Collector:finish(cut)
  local head = table.concat(self.parts)
  local most = self.window.tail
  if cut and cut.total > self.total then
    local has_gap = cut.total - self.total > #cut.tail
    return {
      head = head, tail = has_gap and cut.tail or complete(head, cut.tail, most), total = cut.total, path = cut.path,
    }
  end
  if self.total <= self.window.live then return { head = head, total = self.total, path = cut and cut.path } end
  local tail = complete(head, table.concat(self.tail, "", self.first, self.last), most)
  return { head = head, tail = tail, total = self.total, path = cut and cut.path }
end

return collector
