--- sse.lua - server-sent events out of the bytes of a response, as the WHATWG HTML standard parses them (section 9.2.6).
--
-- Only what a reader of JSON-RPC needs: type, data and id of each event. `retry` is not kept, since nobody reconnects.
local sse = {}

local BOM = "\xEF\xBB\xBF"

---@class demilune.sse.Event
---@field type string  "message" unless the stream says another
---@field data string  lines joined with "\n"
---@field id? string   the last one seen, which may be that of an earlier event

---@class demilune.sse.Parser
---@field parts string[]  bytes of the line that has no end yet
---@field queue demilune.sse.Event[]
local Parser = {}
Parser.__index = Parser

--- Makes a parser. Its memory is bounded by what is fed: the caller counts bytes.
---@return demilune.sse.Parser
function sse.parser()
  return setmetatable({ parts = {}, data = {}, queue = {}, first = 1, last = 0, at_start = true, skip_lf = false }, Parser)
end

local function dispatch(self)
  local data, kind = self.data, self.kind
  self.data, self.kind = {}, nil
  -- Without a line of data, or with empty lines alone at the start of a stream (priming events), there is no event.
  if #data == 0 or (#data == 1 and data[1] == "") then return end
  self.last = self.last + 1
  self.queue[self.last] = { type = kind or "message", data = table.concat(data, "\n"), id = self.id }
end

local function take_line(self, line)
  if line == "" then return dispatch(self) end
  local field, value = line:match "^([^:]*):? ?(.*)$"
  if field == "data" then
    self.data[#self.data + 1] = value
  elseif field == "event" then
    self.kind = value ~= "" and value or nil
  elseif field == "id" and not value:find("\0", 1, true) then
    self.id = value
  end
end

--- The bytes with which a stream begins, once it is known whether they are a byte order mark; nil before.
local function without_bom(self, bytes)
  bytes = table.concat(self.parts) .. bytes
  self.parts = {}
  if #bytes < #BOM and BOM:sub(1, #bytes) == bytes then
    self.parts[1] = bytes
    return nil
  end
  self.at_start = false
  return bytes:sub(1, #BOM) == BOM and bytes:sub(#BOM + 1) or bytes
end

--- Adds bytes, whatever their borders.
---@param bytes string
function Parser:feed(bytes)
  if bytes == "" then return end
  if self.at_start then
    bytes = without_bom(self, bytes)
    if not bytes or bytes == "" then return end
  end
  local at = 1
  if self.skip_lf and bytes:byte(1) == 10 then at = 2 end
  self.skip_lf = false
  while true do
    local stop = bytes:find("[\r\n]", at)
    if not stop then break end
    self.parts[#self.parts + 1] = bytes:sub(at, stop - 1)
    local line = table.concat(self.parts)
    self.parts = {}
    take_line(self, line)
    at = stop + 1
    if bytes:byte(stop) == 13 then
      if at > #bytes then self.skip_lf = true elseif bytes:byte(at) == 10 then at = at + 1 end
    end
  end
  if at <= #bytes then self.parts[#self.parts + 1] = bytes:sub(at) end
end

--- The next whole event; nil when more bytes are needed. What is not ended by an empty line is no event.
---@return demilune.sse.Event?
function Parser:next()
  if self.first > self.last then return nil end
  local event = self.queue[self.first]
  self.queue[self.first] = nil
  self.first = self.first + 1
  return event
end

return sse
