--- cli/client.lua - a small MCP client: a server as a child of ours, one request at a time, as clients do it.
--
-- It knows nothing of the server's insides; all it has is the two pipes. Revision 2025-11-25, which most clients speak.
local core = require "demilune.core"
local errors = require "demilune.errors"

local json, task = core.json, core.task
local client = {}

client.REVISION = "2025-11-25"

local ANSWER_TIMEOUT_MS = 60000
local LINE_MAX_BYTES = 32 * 1024 * 1024
--- What clients leave a server after they closed its stdin.
local END_TIMEOUT_MS = 2000

---@class demilune.Client
---@field child table
local Client = {}
Client.__index = Client

local function fail(message)
  errors.raise("invalid_response", { message = message })
end

--- Starts the server; its stderr is ours.
---@param argv string[]  its program by absolute path
---@return demilune.Client
function client.start(argv)
  local in_read, in_write = core.sys.pipe()
  local out_read, out_write = core.sys.pipe()
  if not (in_read and out_read) then errors.raise "internal" end
  local child, err = core.process.start { argv = argv, fds = { [0] = in_read, [1] = out_write, [2] = 2 } }
  core.sys.close(in_read)
  core.sys.close(out_write)
  if not child then error(err, 0) end
  return setmetatable({
    child = child, to_fd = in_write, from = core.sys.reader(out_read), parts = {}, held_bytes = 0, last_id = 0,
  }, Client)
end

local function send(self, message)
  message.jsonrpc = "2.0"
  local ok = core.sys.write(self.to_fd, json.encode(message) .. "\n")
  if not ok then fail "The server does not read any more." end
end

--- The next line of the server.
local function read_line(self, deadline)
  while true do
    local last = self.parts[#self.parts]
    local at = last and last:find("\n", 1, true)
    if at then
      self.parts[#self.parts] = last:sub(1, at - 1)
      local line = table.concat(self.parts)
      local rest = last:sub(at + 1)
      self.parts = { rest ~= "" and rest or nil }
      self.held_bytes = #rest
      return line
    end
    local bytes, err = self.from:read(math.max(0, deadline - task.now_ms()))
    if not bytes then fail(err and "The server does not answer." or "The server has ended.") end
    self.held_bytes = self.held_bytes + #bytes
    if self.held_bytes > LINE_MAX_BYTES then fail "The server sends a line without end." end
    self.parts[#self.parts + 1] = bytes
  end
end

--- Sends a notification.
---@param method string
function Client:notify(method)
  send(self, { method = method })
end

--- Sends a request and waits for its answer. Raises when none comes and when it is an error of the protocol.
---@param method string
---@param params? table
---@return table result
---@return integer ms  from sending to the answer
function Client:request(method, params)
  self.last_id = self.last_id + 1
  local started = task.now_ms()
  send(self, { id = self.last_id, method = method, params = params })
  while true do
    local message = json.decode(read_line(self, started + ANSWER_TIMEOUT_MS))
    if type(message) ~= "table" then fail "The server sends what is no message." end
    if message.id == self.last_id then
      if message.error then fail(method .. ": " .. tostring(message.error.message)) end
      return message.result, task.now_ms() - started
    end
  end
end

--- Calls a tool: its structured content, or nil and the error that it reports; and how long it took.
---@param name string
---@param arguments? table
---@return table? content
---@return table? err
---@return integer ms
function Client:call(name, arguments)
  local result, ms = self:request("tools/call", { name = name, arguments = arguments })
  if result.isError then
    return nil, result._meta and result._meta["dev.demilune/error"] or { message = "The tool failed." }, ms
  end
  return result.structuredContent, nil, ms
end

--- Ends it as clients do: end of stdin, then by force. Returns how it ended, {code=} or {signal=}, and how long that took.
---@return table ended
---@return integer ms
function Client:stop()
  local started = task.now_ms()
  if self.to_fd then core.sys.close(self.to_fd) end
  self.to_fd = nil
  local ended = self.child:wait(END_TIMEOUT_MS)
  if not ended then
    self.child:kill()
    ended = self.child:wait(END_TIMEOUT_MS) or { signal = 9 }
  end
  self.from:close()
  return ended, task.now_ms() - started
end

return client
