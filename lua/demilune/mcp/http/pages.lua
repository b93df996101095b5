--- mcp/http/pages.lua - what the door answers beside its endpoint: GET /health, GET /metrics, and where clients read which
--- authorization server to ask (RFC 9728).
--
-- /health is for whoever must know that the server is alive, so it is open and says nothing that a stranger may not know.
-- /metrics names tools and providers and asks for a token where calls do.
local agreement = require "demilune.mcp.http.agreement"
local core = require "demilune.core"
local legacy = require "demilune.mcp.v2025"
local metrics = require "demilune.metrics"
local refusal = require "demilune.mcp.http.refusal"
local transport = require "demilune.transport"

local pages = {}

local JSON = "application/json"

local function answer(req, headers, kind, body)
  local all = { ["Content-Type"] = kind, ["Cache-Control"] = "no-store" }
  for key, value in pairs(headers) do all[key] = value end
  req:respond(200, all, body)
end

local function check_method(req)
  if req.method ~= "GET" and req.method ~= "HEAD" then
    refusal.raise(405, "use GET", { headers = { Allow = "GET, HEAD" } })
  end
end

--- How many sandboxes the scopes of a server hold.
local function sandbox_count(holders)
  local count = 0
  for _, one in pairs(holders.sessions) do count = count + #one.scope:owned() end
  for _, one in pairs(holders.parties) do count = count + #one.scope:owned() end
  for scope in pairs(holders.orphans) do count = count + #scope:owned() end
  return count
end

local function health(endpoint, req, headers)
  check_method(req)
  local holders = endpoint.holders
  local revisions = core.json.array { agreement.REVISION }
  for _, revision in ipairs(legacy.REVISIONS) do revisions[#revisions + 1] = revision end
  answer(req, headers, JSON, core.json.encode {
    status = endpoint.is_closing and "closing" or "ok", version = core.sys.version, revisions = revisions,
    sessions = holders.session_count, calls = endpoint.app.call_count, calls_running = holders:call_count(),
  })
end

local function show_metrics(endpoint, req, headers)
  check_method(req)
  endpoint:identify(req)
  local holders = endpoint.holders
  answer(req, headers, metrics.CONTENT_TYPE, endpoint.app.metrics:text {
    sessions = holders.session_count, sandboxes = sandbox_count(holders), running = holders:call_count(),
    requests = transport.counts,
  })
end

local function describe(endpoint, req, headers)
  if req.method == "OPTIONS" then return endpoint.guard:answer_preflight(req) end
  check_method(req)
  local document = endpoint.auth:metadata(req.path, req.headers.host)
  if not document then refusal.raise(404, "there is nothing here") end
  answer(req, headers, JSON, document)
end

--- The pages of a server, by path.
---@param auth demilune.Auth
---@return table<string, fun(endpoint: demilune.mcp.http.Endpoint, req: demilune.core.httpd.Request, headers: table)>
function pages.of(auth)
  local all = { ["/health"] = health, ["/metrics"] = show_metrics }
  for _, path in ipairs(auth:metadata_paths()) do all[path] = describe end
  return all
end

return pages
