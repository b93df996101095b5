--- mcp/http/serving.lua - the door of `demilune serve --http`: a TCP port and the endpoint behind it.
local certificate = require "demilune.auth.certificate"
local core = require "demilune.core"
local errors = require "demilune.errors"
local guard = require "demilune.mcp.http.guard"
local http = require "demilune.mcp.http"
local metrics = require "demilune.metrics"
local pages = require "demilune.mcp.http.pages"

local task = core.task
local serving = {}

--- Open connections, and requests at work, streams among them. Beyond, clients wait, or get 503.
serving.CONNECTIONS_MAX, serving.REQUESTS_MAX = 4096, 2048
serving.HEADER_MAX_BYTES = 16 * 1024
--- How long a client may be silent before it has sent a whole head, or while it sends a body or takes an answer.
serving.IDLE_TIMEOUT_S = 60

---@class demilune.mcp.http.Door
---@field endpoint demilune.mcp.http.Endpoint
---@field server demilune.core.httpd.Server
---@field port integer
---@field auth demilune.Auth
---@field tls? {cert: string, key: string}
---@field sweeper table
local Door = {}
Door.__index = Door

--- Reads "127.0.0.1:9000" or "[::1]:9000".
---@param text string
---@return string? address  numeric, without brackets; nil when it is none
---@return integer|string port  or what is wrong
function serving.read_address(text)
  local address, port = text:match "^%[([%x:.]+)%]:(%d+)$"
  if not address then address, port = text:match "^(%d+%.%d+%.%d+%.%d+):(%d+)$" end
  if not address or #port > 5 or tonumber(port) > 65535 then
    return nil, "it must be an address and a port, such as 127.0.0.1:9000 or [::1]:9000"
  end
  return address, math.tointeger(tonumber(port))
end

local function usage(message)
  errors.raise("invalid_argument", { message = message, is_usage = true })
end

--- The certificate to begin with; nil for a plain server.
local function first_certificate(settings)
  if not settings.tls then return nil end
  local pair, message = certificate.load(settings.tls)
  if not pair then usage(message) end
  local warning = certificate.warning(pair)
  if warning then core.log.warn(warning) end
  return pair
end

--- Listens. Raises errors for a person where it cannot, or may not.
---@param app demilune.App
---@param clients demilune.mcp.Conversations
---@param settings table  `http` of the configuration
---@param auth demilune.Auth
---@return demilune.mcp.http.Door
function serving.start(app, clients, settings, auth)
  local address, port = serving.read_address(settings.listen)
  if not address then usage("--http cannot be used: " .. port) end
  if auth.is_open and not guard.is_loopback(address) then
    usage(("%s can be reached from other machines, so callers need tokens: name a file with --token-file, or listen on 127.0.0.1")
      :format(settings.listen))
  end
  local pair = first_certificate(settings)
  local fd, bound = core.httpd.listen_tcp(address, port)
  if not fd then usage(("%s cannot be listened on: %s"):format(settings.listen, errors.detail(bound) or bound.message)) end
  local endpoint = http.new(app, clients, {
    address = address, allow_hosts = settings.allow_hosts, allow_origins = settings.allow_origins, sessions = settings.sessions,
    session_idle = settings.session_idle, max_body = settings.max_body, auth = auth,
    pages = pages.of(auth),
  })
  local server = assert(core.httpd.listen {
    fd = fd, connections = serving.CONNECTIONS_MAX, max_requests = serving.REQUESTS_MAX,
    max_header_bytes = serving.HEADER_MAX_BYTES, idle_timeout_s = serving.IDLE_TIMEOUT_S, tls = pair,
    handler = function(req) endpoint:handle(req) end,
  })
  app.metrics = metrics.new()
  local self = setmetatable({
    endpoint = endpoint, server = server, address = address, port = bound, auth = auth, tls = settings.tls,
  }, Door)
  self.sweeper = task.spawn(function()
    while true do
      task.sleep(math.min(5000, settings.session_idle * 1000))
      endpoint.holders:sweep()
    end
  end)
  return self
end

--- The endpoint's URL.
---@return string
function Door:url()
  local host = self.address:find(":", 1, true) and "[" .. self.address .. "]" or self.address
  return ("%s://%s:%d%s"):format(self.tls and "https" or "http", host, self.port, http.PATH)
end

--- Reads the tokens and the certificate again, each for itself: what is wrong stays as it was.
---@return string? fault  for a person
function Door:reload()
  local faults = {}
  local _, token_fault = self.auth:reload()
  faults[#faults + 1] = token_fault
  if self.tls then
    local pair, fault = certificate.load(self.tls)
    local warning = pair and certificate.warning(pair)
    if pair then self.server:set_tls(pair) end
    if warning then core.log.warn(warning) end
    faults[#faults + 1] = fault
  end
  return faults[1] and table.concat(faults, "\n") or nil
end

--- Ends it: calls are stopped and may answer, then all that they made is killed.
---@async
---@param answer_ms integer
---@param close_ms integer
function Door:close(answer_ms, close_ms)
  local endpoint = self.endpoint
  endpoint.is_closing = true
  self.sweeper:cancel()
  local until_ms = task.now_ms() + answer_ms
  endpoint.holders:stop()
  while endpoint.holders:call_count() > 0 and task.now_ms() < until_ms do task.sleep(5) end
  endpoint.holders:close(close_ms)
  self.server:close()
end

return serving
