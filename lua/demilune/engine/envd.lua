--- envd.lua - the data plane: the two forms of Connect calls, /files, and what E2B's envd has beside
--- them.
local connect = require "demilune.connect"
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local files = require "demilune.engine.files"
local filesystem = require "demilune.engine.filesystem"
local input = require "demilune.engine.input"
local metrics = require "demilune.engine.metrics"
local process = require "demilune.engine.process"
local router = require "demilune.engine.router"
local target = require "demilune.engine.target"
local watch = require "demilune.engine.watch"

local envd = {}

--- A request message; a Start may carry 2 MiB of arguments and environment, a SendInput as much in
--- base64.
local MESSAGE_MAX_BYTES = 4 * 1024 * 1024
local USER = "user"
--- The path of a Connect call.
local RPC = "^/[%w_]+%.[%w_.]+/[%w_]+$"

local function find_sandbox(self, req)
  return target.find(self, req, target.ENVD_PORT)
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
    if target.answer_lost(req, sandbox, result) then return end
    local fault = faults.of(result)
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
    if target.answer_lost(req, sandbox, result) then return end
    local fault = faults.of(result)
    local frame = connect.ending(faults.connect_body(fault))
    input.drain(req)
    req:respond(200, { ["Content-Type"] = connect.STREAM_TYPE }, frame)
  end
end

--- A call of /files.
local function plain(self, operation, handler)
  return function(req)
    local sandbox = target.find_for_file(self, req, operation)
    if not sandbox then return end
    local user = req.query.username
    if user and user ~= USER then faults.raise "unauthenticated" end
    local ok, raised = pcall(handler, sandbox, req)
    if ok or target.answer_lost(req, sandbox, raised) then return end
    error(raised, 0)
  end
end

--- A call that shows something of a sandbox.
local function shown(self, make)
  return function(req)
    local sandbox = find_sandbox(self, req)
    if sandbox then router.json(req, 200, make(sandbox)) end
  end
end

local function refuse()
  faults.raise "unimplemented"
end

--- Methods of envd that are known and not had.
local UNSERVED = { "/process.Process/Update", "/process.Process/StreamInput" }

--- What one of these files makes of a path of its own, in the two forms of calls.
local function add_calls(routes, self, form, handlers)
  for path, handler in pairs(handlers) do
    routes[#routes + 1] = { "POST", path, form(self, handler) }
  end
end

--- The routes of the data plane.
---@param self demilune.engine.Plane
---@return demilune.engine.Route[]
function envd.routes(self)
  local routes = {
    { "GET", "/health", function(req) return find_sandbox(self, req) and router.empty(req, 204) end },
    { "GET", "/metrics", shown(self, metrics.of_envd) },
    { "GET", "/envs", shown(self, function(sandbox) return sandbox.env end) },
    { "GET", "/files", plain(self, "read", files.download) },
    { "POST", "/files", plain(self, "write", files.upload) },
    { "POST", "/files/compose", plain(self, "write", refuse) },
  }
  add_calls(routes, self, stream, {
    ["/process.Process/Start"] = process.start, ["/process.Process/Connect"] = process.connect,
  })
  add_calls(routes, self, unary, {
    ["/process.Process/List"] = process.list,
    ["/process.Process/SendSignal"] = process.send_signal,
    ["/process.Process/SendInput"] = process.send_input,
    ["/process.Process/CloseStdin"] = process.close_stdin,
    ["/filesystem.Filesystem/ListDir"] = filesystem.list_dir,
    ["/filesystem.Filesystem/Stat"] = filesystem.stat,
    ["/filesystem.Filesystem/MakeDir"] = filesystem.make_dir,
    ["/filesystem.Filesystem/Remove"] = filesystem.remove,
    ["/filesystem.Filesystem/Move"] = filesystem.move,
  })
  add_calls(routes, self, stream, watch.STREAM)
  add_calls(routes, self, unary, watch.UNARY)
  for _, path in ipairs(UNSERVED) do routes[#routes + 1] = { "POST", path, unary(self, refuse) } end
  return routes
end

--- Answers a call of a method that nobody knows; false when the request is no such call.
---@param self demilune.engine.Plane
---@param req table
---@return boolean
function envd.answer_unknown(self, req)
  if req.method ~= "POST" or not req.path:find(RPC) then return false end
  local form = input.media_type(req) == connect.STREAM_TYPE and stream or unary
  form(self, refuse)(req)
  return true
end

return envd
