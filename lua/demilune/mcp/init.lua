--- mcp/init.lua - one client's conversation: which revision a request speaks, and who answers it.
--
-- Up to 2025-11-25 a session begins with `initialize`; from 2026-07-28 on every request names its revision in `_meta`. Both
-- may come over the same connection, in any order. What is wrong with a message itself was answered before, in C.
local calls = require "demilune.mcp.calls"
local connect = require "demilune.connect"
local core = require "demilune.core"
local legacy = require "demilune.mcp.v2025"
local modern = require "demilune.mcp.v2026"

local json = core.json
local mcp = {}

--- JSON-RPC's and MCP's codes.
mcp.METHOD_NOT_FOUND = -32601
mcp.INVALID_PARAMS = -32602

local META_VERSION = "io.modelcontextprotocol/protocolVersion"
local META_PREFIX = "^io%.modelcontextprotocol/"

---@class demilune.Conversation
---@field app demilune.App
---@field scope demilune.Scope
---@field principal string
---@field transport string
---@field client string      its name, of initialize
---@field client_version? string
---@field capabilities? table  the client's, of initialize
---@field revision? string   negotiated by initialize
---@field is_initialized? boolean  the client has said so, and may be notified
---@field log_level? string  of logging/setLevel
local Conversation = {}
Conversation.__index = Conversation

--- Begins a conversation.
---@param app demilune.App
---@param fields {scope: demilune.Scope, principal: string, transport: string, io: table}
---@return demilune.Conversation
function mcp.new(app, fields)
  fields.app = app
  fields.client = "unknown"
  return setmetatable(fields, Conversation)
end

--- Raises a protocol error: answered as JSON-RPC's, never as a tool result.
---@param code integer
---@param message string
---@param data? table
function mcp.fail(code, message, data)
  error({ rpc_code = code, message = message, data = data }, 0)
end

--- The request's `_meta`, checked.
local function meta_of(params)
  local meta = params._meta
  if meta == nil then return {} end
  if not connect.is_object(meta) then mcp.fail(mcp.INVALID_PARAMS, "_meta must be an object") end
  local token = meta.progressToken
  if math.type(token) == "float" then token = math.tointeger(token) or token end
  if token ~= nil and type(token) ~= "string" and math.type(token) ~= "integer" then
    mcp.fail(mcp.INVALID_PARAMS, "_meta.progressToken must be a string or an integer")
  end
  return meta, token
end

--- Which era a request belongs to: it names its revision, or it is of a session.
local function era_of(meta)
  if meta[META_VERSION] ~= nil then return modern end
  for key in pairs(meta) do
    if key:find(META_PREFIX) and key ~= "io.modelcontextprotocol/related-task" then return modern end
  end
  return legacy
end

local function answer(self, call, method, params)
  local meta, token = meta_of(params)
  local era = era_of(meta)
  local request = {
    call = call, conversation = self, params = params, meta = meta, token = token, revision = self.revision,
    capabilities = self.capabilities, client = self.client, client_version = self.client_version,
  }
  era.check(request, method)
  local handler = era.methods[method]
  if not handler then mcp.fail(mcp.METHOD_NOT_FOUND, "there is no such method") end
  return handler(request)
end

--- Waits while the client does not read what it was sent. Raises when the call is stopped.
local function wait_for_room(self)
  while self.io:is_full() do
    self.drained:clear()
    self.drained:wait()
  end
end

--- Answers one request. Runs as a task.
---@param call userdata  of core.stdio
---@param method string
---@param params table
function Conversation:on_request(call, method, params)
  local ok, result = xpcall(answer, debug.traceback, self, call, method, params)
  if ok then
    -- At the end of the scope the answer is there and still wanted; of a call taken back, reply drops it.
    pcall(wait_for_room, self)
    call:reply(result)
  elseif type(result) == "table" and result.rpc_code then
    call:fail(result.rpc_code, result.message, result.data and json.encode(result.data) or nil)
  else
    error(result, 0)
  end
end

--- Takes note of one notification. None is ever answered; those that mean nothing here are ignored.
---@param method string
---@param params table
function Conversation:on_notification(method, params) -- luacheck: ignore 212/params
  if method == "notifications/initialized" and self.revision then self.is_initialized = true end
end

--- What the principal sees of the tools, as a digest.
---@async
---@return string
function Conversation:tools_digest()
  local list = {}
  for i, tool in ipairs(calls.tools { conversation = self }) do list[i] = tool.definition end
  return core.crypto.sha256(json.encode(json.array(list)))
end

--- Tells a client of a session that its list of tools is another now. Clients of 2026-07-28 are never told without being
--- asked.
function Conversation:tools_changed()
  if self.is_initialized then self.io:notify("notifications/tools/list_changed", "{}") end
end

return mcp
