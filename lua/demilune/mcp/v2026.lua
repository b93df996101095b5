--- mcp/v2026.lua - revision 2026-07-28: no handshake, every request names its revision.
local calls = require "demilune.mcp.calls"
local connect = require "demilune.connect"
local core = require "demilune.core"
local input = require "demilune.mcp.input"
local instructions = require "demilune.mcp.instructions"
local tasks = require "demilune.mcp.tasks"

local json = core.json
local v2026 = { methods = {} }

local INVALID_PARAMS = -32602
--- MCP 2026-07-28, basic: UnsupportedProtocolVersion.
local UNSUPPORTED_VERSION = -32022

local REVISION = "2026-07-28"
local META = "io.modelcontextprotocol/"

--- What is listed here changes when the operator reloads, and with the principal.
local CACHE = { ttlMs = 300000, cacheScope = "private" }

local function fail(code, message, data)
  error({ rpc_code = code, message = message, data = data }, 0)
end

--- Checks the parts of `_meta` that every request must carry.
---@param request table
function v2026.check(request)
  local meta = request.meta
  local version = meta[META .. "protocolVersion"]
  if type(version) ~= "string" then
    fail(INVALID_PARAMS, "_meta." .. META .. "protocolVersion must be a string")
  end
  if version ~= REVISION then
    fail(UNSUPPORTED_VERSION, "this protocol version is not supported", {
      supported = json.array { REVISION }, requested = core.text.head(version, 64),
    })
  end
  local capabilities = meta[META .. "clientCapabilities"]
  if not connect.is_object(capabilities) then
    fail(INVALID_PARAMS, "_meta." .. META .. "clientCapabilities must be an object")
  end
  local info = meta[META .. "clientInfo"]
  if info ~= nil and not connect.is_object(info) then
    fail(INVALID_PARAMS, "_meta." .. META .. "clientInfo must be an object")
  end
  local level = meta[META .. "logLevel"]
  if level ~= nil and not calls.LEVELS[level] then
    fail(INVALID_PARAMS, "_meta." .. META .. "logLevel must be a level of RFC 5424, such as warning")
  end
  request.log_level = level
  request.revision = REVISION
  request.capabilities = capabilities
  local name, client_version = calls.client_of(info)
  request.client, request.client_version = name or request.client, client_version
end

local SERVER_INFO = { name = "demilune", version = core.sys.version, title = "demilune sandboxes" }

--- Every result says who answers.
local RESULT_META = { [META .. "serverInfo"] = SERVER_INFO }

--- A complete result: the discriminator, who answers, and `fields`.
local function complete(fields)
  fields.resultType = "complete"
  fields._meta = RESULT_META
  return json.encode(fields)
end

v2026.methods["server/discover"] = function(request)
  return complete {
    supportedVersions = json.array { REVISION }, capabilities = { tools = {}, extensions = { [tasks.EXTENSION] = {} } },
    instructions = instructions.text(request.conversation.app), ttlMs = CACHE.ttlMs, cacheScope = CACHE.cacheScope,
  }
end

v2026.methods["tools/list"] = function(request)
  local list = {}
  for i, tool in ipairs(calls.tools(request)) do list[i] = tool.definition end
  local page, next_cursor = calls.page(list, request.params.cursor)
  return complete { tools = page, nextCursor = next_cursor, ttlMs = CACHE.ttlMs, cacheScope = CACHE.cacheScope }
end

--- The shared result is JSON text already, and always an object with something in it.
local CALL_HEAD = '{"resultType":"complete",'

--- The call is not complete: the client must answer first, and call again.
local function input_required(request)
  local wanted = input.result(request)
  return json.encode {
    resultType = "input_required", _meta = RESULT_META, inputRequests = wanted.inputRequests,
    requestState = wanted.requestState,
  }
end

local function call(request)
  local result = calls.call(request, true, RESULT_META)
  return result and CALL_HEAD .. result:sub(2) or input_required(request)
end

--- A result that is no complete one says so itself.
local function other(fields)
  fields._meta = RESULT_META
  return json.encode(fields)
end

v2026.methods["tools/call"] = function(request)
  input.open(request)
  return tasks.modern.call(request, call, other)
end

for method, handler in pairs(tasks.modern.methods) do
  v2026.methods[method] = function(request) return complete(handler(request)) end
end

return v2026
