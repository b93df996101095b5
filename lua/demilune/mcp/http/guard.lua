--- mcp/http/guard.lua - who may ask at all: pages of browsers, and names that were made to point here.
--
-- A page of a browser says where it is from in Origin; one that made its own name point to this machine says that name in Host
-- ("DNS rebinding"). Programs send neither a foreign one (MCP, basic/transports, "Security Warning").
local refusal = require "demilune.mcp.http.refusal"

local guard = {}

local LOOPBACK = { ["localhost"] = true, ["127.0.0.1"] = true, ["[::1]"] = true }
--- What a page may send and read.
local CORS_METHODS = "GET, POST, DELETE, OPTIONS"
local CORS_HEADERS = "Content-Type, Accept, Authorization, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name, "
  .. "Last-Event-ID"
local CORS_EXPOSED = "Mcp-Session-Id, WWW-Authenticate"
local CORS_MAX_AGE_S = 600

---@class demilune.mcp.http.Guard
---@field hosts? table<string, boolean>  nil: every name, since a token is asked for
---@field origins table<string, boolean>
local Guard = {}
Guard.__index = Guard

local function without_port(host)
  return (host:gsub(":%d+$", ""))
end

--- Makes one.
---@param options {address: string, allow_hosts: string[], allow_origins: string[]}  address: numeric, without brackets
---@return demilune.mcp.http.Guard
function guard.new(options)
  local own = options.address:find(":", 1, true) and "[" .. options.address .. "]" or options.address
  local is_loopback = guard.is_loopback(options.address)
  local self = setmetatable({ origins = {} }, Guard)
  if is_loopback or #options.allow_hosts > 0 then
    self.hosts = { [own:lower()] = true }
    for name in pairs(is_loopback and LOOPBACK or {}) do self.hosts[name] = true end
    for _, name in ipairs(options.allow_hosts) do self.hosts[name:lower()] = true end
  end
  for _, origin in ipairs(options.allow_origins) do self.origins[origin:lower()] = true end
  return self
end

--- Whether an address is this machine's own.
---@param address string  numeric
---@return boolean
function guard.is_loopback(address)
  return address == "::1" or address:find "^127%.%d+%.%d+%.%d+$" ~= nil
end

--- Raises a refusal (403) for a request that may not be served.
---@param req demilune.core.httpd.Request
function Guard:check(req)
  local host = (req.headers.host or ""):lower()
  if self.hosts and not self.hosts[host] and not self.hosts[without_port(host)] then
    refusal.raise(403, "this Host is not served; start the server with --allow-host, or use its own address")
  end
  local origin = req.headers.origin
  if origin and not self:allows(origin) then
    refusal.raise(403, "pages of this Origin are not served; the operator allows one with --allow-origin")
  end
end

--- Whether pages of an origin may ask: those of this machine, and those that the operator named.
---@param origin string
---@return boolean
function Guard:allows(origin)
  origin = origin:lower()
  if self.origins[origin] then return true end
  local host = origin:match "^https?://([^/]+)$"
  return host ~= nil and LOOPBACK[without_port(host)] == true
end

--- What lets a page of an allowed origin read an answer (Fetch Standard, "CORS protocol").
---@param req demilune.core.httpd.Request
---@return table<string, string>
function Guard:cors(req)
  local origin = req.headers.origin
  if not origin or not self:allows(origin) then return {} end
  return { ["Access-Control-Allow-Origin"] = origin, ["Access-Control-Expose-Headers"] = CORS_EXPOSED, Vary = "Origin" }
end

--- Answers a page's question whether it may ask.
---@param req demilune.core.httpd.Request
function Guard:answer_preflight(req)
  local headers = self:cors(req)
  headers["Access-Control-Allow-Methods"], headers["Access-Control-Allow-Headers"] = CORS_METHODS, CORS_HEADERS
  local asked = req.headers["access-control-request-headers"]
  if asked and asked:lower():find("mcp-param-", 1, true) and not asked:find "[^%w%-, ]" then
    headers["Access-Control-Allow-Headers"] = CORS_HEADERS .. ", " .. asked
  end
  headers["Access-Control-Max-Age"] = tostring(CORS_MAX_AGE_S)
  req:respond(204, headers, "")
end

return guard
