--- Frames as bytes, written independently of the C code, for specs that play a hostile end.

local wire = {}

---@type table<string, integer>
wire.types = {
  START_PART = 1, START = 2, CONNECT = 3, SIGNAL = 4, PROCESSES = 5, READ = 6, WRITE = 7, STAT = 8, LIST = 9,
  MKDIR = 10, REMOVE = 11, MOVE = 12, WATCH = 13, END = 16, DROP = 17, DATA = 24, CREDIT = 25,
  HELLO = 32, STARTED = 33, LINE = 34, TAIL = 35, OUTPUT = 36, EXIT = 37, OPENED = 38, ENTRY = 39, DONE = 40, ERROR = 41,
}

---@type table<string, integer>
wire.tags = {
  VERSION = 1, CMD = 2, ARG = 3, ENV = 4, CWD = 5, TAG = 6, TIMEOUT_MS = 7, STDIN = 8, PROGRESS = 9, LIVE = 10,
  TAIL = 11, SPOOL_AT = 12, STREAM = 13, PID = 14, SIGNO = 15, PATH = 16, OFFSET = 17, LENGTH = 18, APPEND_AT = 19,
  DEPTH = 20, LIMIT = 21, TOTAL = 22, CODE = 23, TIMED_OUT = 24, NAME = 25, TYPE = 26, SIZE = 27, MODE = 28,
  MTIME_MS = 29, OWNER = 30, GROUP = 31, TARGET = 32, WHICH = 33, TO = 34, RECURSIVE = 35, EVENT = 36,
}

--- { { "PID", 7 }, { "PATH", "/x" }, … } as bytes: integers of 8 bytes, text with its NUL.
---@param list table[]
---@return string
function wire.fields(list)
  local parts = {}
  for i, field in ipairs(list) do
    local tag, value = wire.tags[field[1]] or field[1], field[2]
    local bytes = math.type(value) == "integer" and ("<i8"):pack(value) or value .. "\0"
    parts[i] = ("<Bs4"):pack(tag, bytes)
  end
  return table.concat(parts)
end

---@param kind string|integer
---@param stream integer
---@param payload? string|table[]  bytes or fields
---@param flags? integer
---@return string
function wire.frame(kind, stream, payload, flags)
  if type(payload) == "table" then payload = wire.fields(payload) end
  payload = payload or ""
  return ("<I4BBI2I4"):pack(#payload, wire.types[kind] or kind, flags or 0, 0, stream) .. payload
end

wire.HELLO = wire.frame("HELLO", 0, { { "VERSION", 2 } })

---@class spec.agent.Random
---@field state integer
local Random = {}
Random.__index = Random

--- Numbers that are the same on every machine, every time.
---@param seed integer
---@return spec.agent.Random
function wire.random(seed) return setmetatable({ state = seed }, Random) end

--- An integer from 1 to `most`.
---@param most integer
---@return integer
function Random:below(most)
  self.state = (self.state * 6364136223846793005 + 1442695040888963407)
  return (self.state >> 33) % most + 1
end

---@generic T
---@param list T[]
---@return T
function Random:pick(list) return list[self:below(#list)] end

---@param count integer
---@return string
function Random:bytes(count)
  local bytes = {}
  for i = 1, count do bytes[i] = string.char(self:below(256) - 1) end
  return table.concat(bytes)
end

--- A few bytes changed, put in, taken out, or the end cut off.
---@param bytes string
---@return string
function Random:mutate(bytes)
  for _ = 1, self:below(3) do
    local at = self:below(#bytes + 1)
    local how = self:below(5)
    if how == 1 then
      bytes = bytes:sub(1, at - 1) .. self:bytes(1) .. bytes:sub(at + 1)
    elseif how == 2 then
      bytes = bytes:sub(1, at - 1) .. self:pick { "\0", "\255", "\1", "\127\255\255\255" } .. bytes:sub(at + 1)
    elseif how == 3 then
      bytes = bytes:sub(1, at - 1) .. self:bytes(self:below(8)) .. bytes:sub(at)
    elseif how == 4 then
      bytes = bytes:sub(1, at - 1) .. bytes:sub(at + self:below(8))
    else
      bytes = bytes:sub(1, at)
    end
  end
  return bytes
end

return wire
