--- veryfront/ndjson.lua - a command's stream: one JSON object a line (stdout, stderr, exit, error).
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"

local ndjson = {}

--- The service's own client takes lines of 1 MiB; ours are that generous with its own escapes.
local LINE_MAX_BYTES = 8 * 1024 * 1024
local CODE_MAX = 255

---@class demilune.veryfront.Lines
---@field parts string[]  bytes of the line that has no end yet
---@field size integer    of them
local Lines = {}
Lines.__index = Lines

--- A reader of lines. Feed it what comes, take events until there is none.
---@return demilune.veryfront.Lines
function ndjson.reader()
  return setmetatable({ parts = {}, size = 0, queue = {}, first = 1, last = 0 }, Lines)
end

local TEXT = { stdout = true, stderr = true }

--- One line as an event; nil for an empty one and for types that came later. Raises `invalid_response`.
local function event_of(line)
  if not line:find "%S" then return nil end
  local value = connect.object(line) or errors.raise "invalid_response"
  if TEXT[value.type] then
    if value.data == nil then return nil end
    if type(value.data) ~= "string" then errors.raise "invalid_response" end
    return { type = value.type, data = value.data }
  elseif value.type == "exit" then
    local code = type(value.exitCode) == "number" and math.tointeger(value.exitCode)
    if not code or code < 0 or code > CODE_MAX then errors.raise "invalid_response" end
    return { type = "exit", code = code }
  elseif value.type == "error" then
    return { type = "error", words = type(value.data) == "string" and value.data or nil }
  end
  if type(value.type) ~= "string" then errors.raise "invalid_response" end
  return nil
end

local function push(self, line)
  local event = event_of(line)
  if not event then return end
  self.last = self.last + 1
  self.queue[self.last] = event
end

--- Adds bytes.
---@param bytes string
function Lines:feed(bytes)
  local at = 1
  while true do
    local stop = bytes:find("\n", at, true)
    local piece = bytes:sub(at, (stop or 0) - 1)
    self.size = self.size + #piece
    if self.size > LINE_MAX_BYTES then errors.raise "invalid_response" end
    self.parts[#self.parts + 1] = piece
    if not stop then return end
    local line = table.concat(self.parts)
    self.parts, self.size, at = {}, 0, stop + 1
    push(self, line)
  end
end

--- The stream has ended: its last line may lack its end.
function Lines:finish()
  local line = table.concat(self.parts)
  self.parts, self.size = {}, 0
  push(self, line)
end

--- The next event: { type = "stdout"|"stderr", data }, { type = "exit", code }, { type = "error", words? }; nil for none.
---@return table?
function Lines:next()
  if self.first > self.last then return nil end
  local event = self.queue[self.first]
  self.queue[self.first] = nil
  self.first = self.first + 1
  return event
end

--- Reads events from a response, until `on_event` returns true. Returns false where the stream ended before.
---@param res table           a stream
---@param deadline_ms integer
---@param on_event fun(event: table): boolean?
---@return boolean
function ndjson.each(res, deadline_ms, on_event)
  local lines, has_ended = ndjson.reader(), false
  while true do
    local event = lines:next()
    if event then
      if on_event(event) then return true end
    elseif has_ended then
      return false
    else
      local left_ms = deadline_ms - core.task.now_ms()
      if left_ms < 1 then errors.raise "provider_timeout" end
      local chunk, err = res:read(left_ms)
      if err then error(err, 0) end
      if chunk then lines:feed(chunk) else has_ended = true; lines:finish() end
    end
  end
end

return ndjson
