--- multipart.lua - multipart/form-data read as it comes (RFC 7578, RFC 2046 §5.1), one part after
--- the other.
--
-- Pulled, not pushed: the reader never holds more than a chunk and a delimiter.
local faults = require "demilune.engine.faults"

local multipart = {}

local HEADERS_MAX_BYTES = 8192
local BOUNDARY_MAX_BYTES = 70 -- RFC 2046 §5.1.1

---@class demilune.engine.Multipart
---@field source fun(): string?, table?
---@field delimiter string   with the line break before it
---@field buffer string
---@field is_in_part boolean
local Multipart = {}
Multipart.__index = Multipart

local function bad(message)
  faults.raise("invalid_argument", { message = message })
end

--- A reader over what `source` gives (chunk | nil at the end | nil, err); the boundary is a
--- parameter of the type.
---@param content_type string
---@param source fun(): string?, table?
---@return demilune.engine.Multipart
function multipart.reader(content_type, source)
  local boundary = content_type:match '[;%s][Bb][Oo][Uu][Nn][Dd][Aa][Rr][Yy]="([^"]+)"'
    or content_type:match "[;%s][Bb][Oo][Uu][Nn][Dd][Aa][Rr][Yy]=([^;%s]+)"
  if not boundary or #boundary > BOUNDARY_MAX_BYTES then
    bad "The multipart body has no valid boundary."
  end
  return setmetatable({
    source = source, delimiter = "\r\n--" .. boundary, buffer = "\r\n", is_in_part = true,
  }, Multipart)
end

--- Adds a chunk to the buffer; raises at the end of the body, which never comes before the last
--- delimiter.
local function more(self)
  local chunk = self.source()
  if not chunk then bad "The multipart body ended early." end
  self.buffer = self.buffer .. chunk
end

--- The next bytes of the part; nothing at its end.
---@return string? chunk
function Multipart:read()
  if not self.is_in_part then return nil end
  while true do
    local at = self.buffer:find(self.delimiter, 1, true)
    local whole = at and at - 1 or #self.buffer - #self.delimiter
    if whole > 0 then
      local chunk = self.buffer:sub(1, whole)
      self.buffer = self.buffer:sub(whole + 1)
      return chunk
    end
    if at then
      self.buffer = self.buffer:sub(#self.delimiter + 1)
      self.is_in_part = false
      return nil
    end
    more(self)
  end
end

--- Takes the bytes up to `mark` and drops the mark.
local function take_to(self, mark)
  while true do
    local at = self.buffer:find(mark, 1, true)
    if at then
      local taken = self.buffer:sub(1, at - 1)
      self.buffer = self.buffer:sub(at + #mark)
      return taken
    end
    if #self.buffer > HEADERS_MAX_BYTES then bad "The headers of a part are too long." end
    more(self)
  end
end

--- undici and browsers escape these three, and nothing else (WHATWG HTML, "multipart form data").
local ESCAPES = { ["%22"] = '"', ["%0D"] = "\r", ["%0A"] = "\n" }

local function read_disposition(headers)
  local line = ("\r\n" .. headers .. "\r\n"):match "\r\n[Cc]ontent%-[Dd]isposition:([^\r\n]*)\r\n"
  if not line then return nil end
  local name = line:match '[;%s]name="([^"]*)"' or line:match "[;%s]name=([^;%s\"]+)"
  local filename = line:match '[;%s]filename="([^"]*)"' or line:match "[;%s]filename=([^;%s\"]+)"
  return name, filename and filename:gsub("%%%x%x", ESCAPES)
end

--- Goes on to the next part named `file`, over what is in between. Its filename, or nil after the
--- last part.
---@return string? filename
function Multipart:next_file()
  while true do
    while self:read() do end
    while #self.buffer < 2 do more(self) end
    if self.buffer:sub(1, 2) == "--" then return nil end
    take_to(self, "\r\n")
    -- A part without headers starts with the empty line at once.
    self.buffer = "\r\n" .. self.buffer
    local name, filename = read_disposition(take_to(self, "\r\n\r\n"))
    self.is_in_part = true
    if name == "file" and filename then return filename end
  end
end

return multipart
