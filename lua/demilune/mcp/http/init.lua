--- mcp/http/init.lua - MCP over HTTP ("Streamable HTTP"): one endpoint for all revisions from 2025-03-26 on.
--
-- A request of 2026-07-28 says so in every message and stands alone; the others belong to a session that `initialize` began.
-- What is refused before it reaches a conversation is refused here, with a status and JSON-RPC's error.
local agreement = require "demilune.mcp.http.agreement"
local core = require "demilune.core"
local exchange = require "demilune.mcp.http.exchange"
local guard = require "demilune.mcp.http.guard"
local holders = require "demilune.mcp.http.holders"
local legacy = require "demilune.mcp.v2025"
local party = require "demilune.mcp.http.party"
local refusal = require "demilune.mcp.http.refusal"

local http = {}

http.PATH = "/mcp"
--- A message of this size leaves so much garbage that it is collected at once.
local LARGE_BYTES = 1024 * 1024
local RETRY_AFTER_S = "5"

---@class demilune.mcp.http.Endpoint
---@field app demilune.App
---@field guard demilune.mcp.http.Guard
---@field holders demilune.mcp.http.Holders
---@field auth demilune.Auth
---@field pages table<string, fun(endpoint: demilune.mcp.http.Endpoint, req: demilune.core.httpd.Request, headers: table)>  of
---  pages.lua
---@field body_max_bytes integer
---@field is_closing boolean
local Endpoint = {}
Endpoint.__index = Endpoint

--- Makes it.
---@param app demilune.App
---@param clients demilune.mcp.Conversations
---@param options {address: string, allow_hosts: string[], allow_origins: string[], sessions: integer, session_idle: integer,
---  max_body: integer, auth: table, pages?: table}  max_body: MB
---@return demilune.mcp.http.Endpoint
function http.new(app, clients, options)
  return setmetatable({
    app = app, guard = guard.new(options), auth = options.auth, pages = options.pages or {},
    holders = holders.new(app, clients, { sessions = options.sessions, idle_s = options.session_idle }),
    body_max_bytes = options.max_body * 1024 * 1024, is_closing = false,
  }, Endpoint)
end

-- ---- what a request must be ----

--- Which of the two forms of an answer the client takes. Without Accept: both (RFC 9110 §12.5.1).
local function accepts(req)
  local accept = req.headers.accept
  if not accept then return true, true end
  accept = accept:lower()
  local any = accept:find("*/*", 1, true) ~= nil
  return any or accept:find("application/json", 1, true) ~= nil or accept:find("application/*", 1, true) ~= nil,
    any or accept:find("text/event-stream", 1, true) ~= nil or accept:find("text/*", 1, true) ~= nil
end

local function check_type(req)
  local kind = (req.headers["content-type"] or ""):lower():match "^[%s]*([^;%s]*)"
  if kind ~= "application/json" then refusal.raise(415, "Content-Type must be application/json") end
end

local function read_body(self, req)
  local body, err = req:read_all(self.body_max_bytes)
  if body then return body end
  if err.category == "too_large" then
    refusal.raise(413, ("a message may have at most %d MB"):format(self.body_max_bytes // (1024 * 1024)))
  end
  return nil
end

local function is_known(revision)
  for _, known in ipairs(legacy.REVISIONS) do
    if known == revision then return true end
  end
  return false
end

--- Without the field it is 2025-03-26, which had none.
local function check_revision(req)
  local revision = req.headers["mcp-protocol-version"]
  if revision and not is_known(revision) then
    refusal.raise(400, "this MCP-Protocol-Version is not supported; known are " .. agreement.REVISION .. ", "
      .. table.concat(legacy.REVISIONS, ", "))
  end
end

local function busy(message, text)
  refusal.raise(503, text, { code = -32603, id = message and message.id, headers = { ["Retry-After"] = RETRY_AFTER_S } })
end

--- The session that a request names.
local function session_of(self, req, who, message)
  local id = req.headers["mcp-session-id"]
  if not id then
    refusal.raise(400, "Mcp-Session-Id is missing; begin with initialize", { id = message and message.id })
  end
  check_revision(req)
  return self.holders:find(id, who.principal) or refusal.raise(404,
    "there is no such session, or it is over; begin with initialize",
    { code = refusal.NO_SESSION, id = message and message.id })
end

-- ---- calls ----

--- Works on a request and answers it. `owner` is whose call it is.
local function run(owner, req, message, options)
  local call = exchange.new(owner, message, options)
  if not owner:enter(call) then busy(message, "too many requests are at work; wait for answers") end
  call.on_answer = options.on_answer
  call:start(owner.conversation, function()
    owner:leave(call)
    if options.is_large then collectgarbage() end
  end)
  call:answer(req, options.headers)
end

local function initialize(self, req, who, message, options)
  local session = self.holders:begin(who.principal)
  if not session then busy(message, "there are too many sessions") end
  options.on_answer = function(headers)
    if session.conversation.revision then headers["Mcp-Session-Id"] = session.id else self.holders:finish(session) end
  end
  run(session, req, message, options)
end

local function post_legacy(self, req, who, message, options)
  if message.kind == "request" and message.method == "initialize" and not req.headers["mcp-session-id"] then
    return initialize(self, req, who, message, options)
  end
  local session = session_of(self, req, who, message)
  if message.kind == "request" then return run(session, req, message, options) end
  if message.kind == "response" then session.asks:answer(message) end
  if message.kind == "notification" then
    if message.method == "notifications/cancelled" then session:cancel(message.params)
    else session.conversation:on_notification(message.method, message.params) end
  end
  req:respond(202, options.headers, "")
end

--- The schema of a tool's arguments, where the principal may know of the tool.
local function schema_finder(self)
  return function(name)
    local tool = self.app.tools_by_name[name]
    return tool and tool.definition.inputSchema
  end
end

local function post_modern(self, req, who, message, options)
  if message.kind == "response" then
    refusal.raise(400, "clients of this revision send no responses; answer with inputResponses")
  end
  if message.kind ~= "request" then return req:respond(202, options.headers, "") end
  agreement.check(req, message, schema_finder(self))
  local one = self.holders:party(who.principal, party.name_of(message))
  if not one then busy(message, "there are too many scopes") end
  options.is_modern = true
  run(one, req, message, options)
end

local function post(self, req, who, state)
  check_type(req)
  local takes_json, takes_events = accepts(req)
  if not takes_json then refusal.raise(406, "Accept must allow application/json, and should allow text/event-stream") end
  local body = read_body(self, req)
  if not body then return end
  state.is_read = true
  local message = core.rpc.read(body)
  if message.kind == "invalid" then
    refusal.raise(400, message.message, { code = message.code, id = message.id })
  end
  local options = { headers = state.headers, takes_events = takes_events, is_large = #body >= LARGE_BYTES }
  local answer = agreement.is_modern(req, message) and post_modern or post_legacy
  answer(self, req, who, message, options)
end

-- ---- streams and ends of sessions ----

--- Revision 2026-07-28 has POST alone.
local function refuse_modern(req)
  if req.headers["mcp-protocol-version"] == agreement.REVISION then
    refusal.raise(405, "this revision has POST alone", { headers = { Allow = "POST" } })
  end
end

local function get(self, req, who, state)
  refuse_modern(req)
  local _, takes_events = accepts(req)
  if not req.headers.accept or not takes_events then refusal.raise(406, "Accept must allow text/event-stream") end
  local session = session_of(self, req, who)
  local event_id = req.headers["last-event-id"]
  if event_id then
    local stream, number = session:find_event(event_id)
    if not stream then refusal.raise(400, "there is no such event any more; ask without Last-Event-ID") end
    return stream:serve(req, number, state.headers)
  end
  local news = session.news
  if news.reader then refusal.raise(409, "this session has its stream already") end
  news.has_priming = session:has_priming()
  news:serve(req, news.sent, state.headers)
end

local function delete(self, req, who, state)
  refuse_modern(req)
  local session = session_of(self, req, who)
  core.task.spawn(self.holders.finish, self.holders, session)
  req:respond(204, state.headers, "")
end

local METHODS = { POST = post, GET = get, DELETE = delete }

-- ---- every request ----

--- Who sends a request; raises a refusal where nobody who may.
---@async
---@param req demilune.core.httpd.Request
---@return demilune.auth.Caller
function Endpoint:identify(req)
  local who, why = self.auth:identify(req.headers, req.query)
  return who or refusal.raise(why.status, why.message, { headers = why.headers })
end

local function route(self, req, state)
  self.guard:check(req)
  state.headers = self.guard:cors(req)
  local page = self.pages[req.path]
  if page then return page(self, req, state.headers) end
  if req.path ~= http.PATH then refusal.raise(404, "there is nothing here; the endpoint is " .. http.PATH) end
  if req.method == "OPTIONS" then return self.guard:answer_preflight(req) end
  local serve = METHODS[req.method]
  if not serve then refusal.raise(405, "use POST, GET or DELETE", { headers = { Allow = "POST, GET, DELETE, OPTIONS" } }) end
  if self.is_closing then busy(nil, "the server ends") end
  serve(self, req, self:identify(req), state)
end

--- Answers a request. Runs as a task.
---@async
---@param req demilune.core.httpd.Request
function Endpoint:handle(req)
  local state = { headers = {}, is_read = false }
  local ok, err = pcall(route, self, req, state)
  if ok then return end
  local one = refusal.of(err)
  if not one then error(err, 0) end
  refusal.send(req, one, state.headers, state.is_read)
end

return http
