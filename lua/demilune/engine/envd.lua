--- envd.lua - the data plane: which sandbox a request means, and the two forms of Connect calls.
--
-- All sandboxes share the engine's socket; the header E2b-Sandbox-Id says which one is meant, as on
-- E2B's shared host.
local connect = require "demilune.connect"
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local files = require "demilune.engine.files"
local filesystem = require "demilune.engine.filesystem"
local input = require "demilune.engine.input"
local process = require "demilune.engine.process"
local router = require "demilune.engine.router"

local envd = {}

local ENVD_PORT = "49983"
local ID = "^i[a-z2-7]+$"
local ID_BYTES = 20
--- A request message; a Start may carry 2 MiB of arguments and environment, a SendInput as much in
--- base64.
local MESSAGE_MAX_BYTES = 4 * 1024 * 1024
local USER = "user"

--- Answers as E2B's proxy does when there is no such sandbox or port.
local function answer_gone(req, id, port)
  local fault = faults.new(port and "port_closed" or "sandbox_gone")
  local known = #id == ID_BYTES and id:find(ID) and id or ""
  return router.json(req, 502, {
    sandboxId = known, message = fault.message, port = port, code = 502,
    error_code = fault.error_code,
  })
end

--- The sandbox that the request names; nil when it was answered, since there is none.
local function find_sandbox(self, req)
  local id = req.headers["e2b-sandbox-id"] or ""
  local sandbox = self.sandboxes:find(id)
  if not sandbox then
    answer_gone(req, id)
    return nil
  end
  local port = req.headers["e2b-sandbox-port"] or ENVD_PORT
  if port ~= ENVD_PORT then
    answer_gone(req, id, #port <= 5 and port:match "^%d+$" and tonumber(port) or 0)
    return nil
  end
  return sandbox
end

--- The user of an RPC stands in Authorization, with an empty password; there is one.
local function check_user(req)
  local header = req.headers.authorization
  if not header then return end
  local text = header:match "^[Bb][Aa][Ss][Ii][Cc] +([%w+/=]+)$"
  local user = text and core.crypto.unbase64(text)
  if not user or user:match "^([^:]*)" ~= USER then faults.raise "unauthenticated" end
end

local function check_protocol(req)
  local version = req.headers["connect-protocol-version"]
  if version and version ~= "1" then faults.bad("connect-protocol-version", "It must be 1.") end
  local encoding = req.headers["connect-content-encoding"]
  if encoding and encoding ~= "identity" then faults.raise "unimplemented" end
end

--- A unary call: JSON object in, JSON object out.
local function unary(self, handler)
  return function(req)
    local sandbox = find_sandbox(self, req)
    if not sandbox then return end
    if input.media_type(req) ~= connect.UNARY_TYPE then faults.raise "unsupported_media_type" end
    local ok, result = pcall(function()
      check_user(req)
      check_protocol(req)
      return handler(sandbox, input.json(req, MESSAGE_MAX_BYTES))
    end)
    if ok then return router.json(req, 200, result) end
    if result == core.task.CANCELLED then error(result, 0) end
    local fault = faults.of(result)
    if fault.error_code == "sandbox_gone" then return answer_gone(req, sandbox.id) end
    if fault.error_code == "unsupported_media_type" then error(fault, 0) end
    local body = faults.connect_body(fault)
    local status = faults.status(fault)
    router.json(req, status ~= 500 and status or connect.STATUS[body.code], body)
  end
end

--- The one message of a server stream's request.
local function read_message(req)
  local body = input.body(req, MESSAGE_MAX_BYTES)
  local decoder = connect.decoder(MESSAGE_MAX_BYTES)
  decoder:feed(body)
  local flags, payload = decoder:next()
  if flags ~= 0 or decoder:is_partial() then
    faults.raise("invalid_argument", { message = "The body must be one uncompressed frame." })
  end
  local message = connect.object(payload)
  if not message then
    faults.raise("invalid_argument", { message = "The message must be one JSON object." })
  end
  return message
end

--- A server stream. `handler(sandbox, message, req)` opens it and returns a function that writes it
--- out; until then a failure is a stream of one frame, still with status 200, as Connect wants it.
local function stream(self, handler)
  return function(req)
    local sandbox = find_sandbox(self, req)
    if not sandbox then return end
    if input.media_type(req) ~= connect.STREAM_TYPE then faults.raise "unsupported_media_type" end
    local ok, result = pcall(function()
      check_user(req)
      check_protocol(req)
      return handler(sandbox, read_message(req), req)
    end)
    if ok then return result() end
    if result == core.task.CANCELLED then error(result, 0) end
    local fault = faults.of(result)
    if fault.error_code == "sandbox_gone" then return answer_gone(req, sandbox.id) end
    local frame = connect.ending(faults.connect_body(fault))
    input.drain(req)
    req:respond(200, { ["Content-Type"] = connect.STREAM_TYPE }, frame)
  end
end

--- A call of /files.
local function plain(self, handler)
  return function(req)
    local sandbox = find_sandbox(self, req)
    if not sandbox then return end
    local user = req.query.username
    if user and user ~= USER then faults.raise "unauthenticated" end
    local ok, raised = pcall(handler, sandbox, req)
    if ok then return end
    if faults.is(raised) and raised.error_code == "sandbox_gone" then
      return answer_gone(req, sandbox.id)
    end
    error(raised, 0)
  end
end

local function refuse()
  faults.raise "unimplemented"
end

--- Methods of envd that are known and not had.
local UNSERVED = {
  { unary, "/process.Process/Update" }, { unary, "/process.Process/StreamInput" },
  { unary, "/filesystem.Filesystem/Move" }, { stream, "/filesystem.Filesystem/WatchDir" },
  { unary, "/filesystem.Filesystem/CreateWatcher" }, { unary,
  "/filesystem.Filesystem/GetWatcherEvents" },
  { unary, "/filesystem.Filesystem/RemoveWatcher" },
}

--- The routes of the data plane.
---@param self { sandboxes: demilune.engine.Sandboxes }
---@return demilune.engine.Route[]
function envd.routes(self)
  local routes = {
    { "GET", "/health", function(req) return find_sandbox(self, req) and router.empty(req,
      204) end },
    { "GET", "/files", plain(self, files.download) },
    { "POST", "/files", plain(self, files.upload) },
    { "POST", "/process.Process/Start", stream(self, process.start) },
    { "POST", "/process.Process/Connect", stream(self, process.connect) },
    { "POST", "/process.Process/List", unary(self, process.list) },
    { "POST", "/process.Process/SendSignal", unary(self, process.send_signal) },
    { "POST", "/process.Process/SendInput", unary(self, process.send_input) },
    { "POST", "/process.Process/CloseStdin", unary(self, process.close_stdin) },
    { "POST", "/filesystem.Filesystem/ListDir", unary(self, filesystem.list_dir) },
    { "POST", "/filesystem.Filesystem/Stat", unary(self, filesystem.stat) },
    { "POST", "/filesystem.Filesystem/MakeDir", unary(self, filesystem.make_dir) },
    { "POST", "/filesystem.Filesystem/Remove", unary(self, filesystem.remove) },
  }
  for _, call in ipairs(UNSERVED) do
    routes[#routes + 1] = { "POST", call[2], call[1](self, refuse) }
  end
  return routes
end

return envd
