--- connect.lua - what both ends of the Connect protocol need: frames of a stream, codes, JSON
--- bodies.
--
-- A stream is a run of frames: one flag byte, four bytes of length (big endian), that many bytes of
-- JSON. Flag 0x02 ends the stream and carries its error; a stream without it was cut off
-- (connectrpc.com/docs/protocol, "streaming RPCs"). Compression is never offered, so a frame with
-- flag 0x01 is an error.
local core = require "demilune.core"

local connect = {}

connect.STREAM_TYPE = "application/connect+json"
connect.UNARY_TYPE = "application/json"
connect.FLAG_COMPRESSED = 1
connect.FLAG_END = 2

local HEADER_BYTES = 5
local HEADER = ">BI4"

--- HTTP status of a unary answer that fails with a code.
---@type table<string, integer>
connect.STATUS = {
  canceled = 499, unknown = 500, invalid_argument = 400, deadline_exceeded = 504, not_found = 404,
  already_exists = 409, permission_denied = 403, resource_exhausted = 429,
  failed_precondition = 400,
  aborted = 409, out_of_range = 400, unimplemented = 501, internal = 500, unavailable = 503,
  data_loss = 500, unauthenticated = 401,
}

--- One frame.
---@param flags integer
---@param text string
---@return string
function connect.frame(flags, text)
  return string.pack(">Bs4", flags, text)
end

--- The frame of one message.
---@param value table
---@return string
function connect.message(value)
  return connect.frame(0, core.json.encode(value))
end

--- The frame that ends a stream, with its error if there is one: { code=, message=, ... }.
---@param err? table
---@return string
function connect.ending(err)
  if not err then return connect.frame(connect.FLAG_END, "{}") end
  return connect.frame(connect.FLAG_END, core.json.encode({ error = err }))
end

--- Decodes a body or payload that must be one JSON object. Nil for everything else.
---@param text string
---@return table?
function connect.object(text)
  local value = core.json.decode(text)
  if not connect.is_object(value) then return nil end
  return value
end

local ARRAY = getmetatable(core.json.array())

--- Whether a decoded value is a JSON object; arrays carry a metatable of their own.
---@param value any
---@return boolean
function connect.is_object(value)
  return type(value) == "table" and getmetatable(value) ~= ARRAY
end

--- Whether a decoded value is a JSON array.
---@param value any
---@return boolean
function connect.is_array(value)
  return type(value) == "table" and getmetatable(value) == ARRAY
end

---@class demilune.connect.Decoder
---@field max_bytes integer
---@field parts string[]    bytes that are not decoded yet
---@field size integer      of all parts
---@field need integer      how many bytes must be there before it pays to look again
---@field at integer        where the next frame starts in parts[1]
---@field err? table        sticks
local Decoder = {}
Decoder.__index = Decoder

--- A decoder for frames of at most `max_bytes` each. Feed it what comes, take frames until there is
--- none.
---@param max_bytes integer
---@return demilune.connect.Decoder
function connect.decoder(max_bytes)
  return setmetatable({
    max_bytes = max_bytes, parts = {}, size = 0, need = HEADER_BYTES, at = 1,
  }, Decoder)
end

--- Adds bytes.
---@param bytes string
function Decoder:feed(bytes)
  if self.err or #bytes == 0 then return end
  self.parts[#self.parts + 1] = bytes
  self.size = self.size + #bytes
end

--- Makes one string of the parts, without what was decoded.
local function gather(decoder)
  local parts = decoder.parts
  if decoder.at > 1 then parts[1] = parts[1]:sub(decoder.at) end
  decoder.parts = { table.concat(parts) }
  decoder.at = 1
  return decoder.parts[1]
end

--- The next whole frame: its flags and payload. Nothing when more bytes are needed; nil and an
--- error (category `too_large` or `invalid_response`) from a frame on that is too long or
--- compressed.
---@return integer? flags
---@return string|table? payload
function Decoder:next()
  if self.err then return nil, self.err end
  if self.size < self.need then return nil end
  local bytes = #self.parts > 1 and gather(self) or self.parts[1]
  local flags, length = string.unpack(HEADER, bytes, self.at)
  if flags & connect.FLAG_COMPRESSED ~= 0 then
    self.err = core.status.new "invalid_response"
  elseif length > self.max_bytes then
    self.err = core.status.new "too_large"
  end
  if self.err then
    self.parts = {}
    return nil, self.err
  end
  self.need = HEADER_BYTES + length
  if self.size < self.need then return nil end
  local payload = bytes:sub(self.at + HEADER_BYTES, self.at + self.need - 1)
  self.at, self.size, self.need = self.at + self.need, self.size - self.need, HEADER_BYTES
  if self.size == 0 then self.parts, self.at = {}, 1 end
  return flags, payload
end

--- Whether bytes of an unfinished frame wait.
---@return boolean
function Decoder:is_partial()
  return self.size > 0
end

return connect
