--- mcp/v2025.lua - the revisions that begin with `initialize`: 2024-11-05 to 2025-11-25.
local calls = require "demilune.mcp.calls"
local connect = require "demilune.connect"
local core = require "demilune.core"
local instructions = require "demilune.mcp.instructions"
local tasks = require "demilune.mcp.tasks"

local json = core.json
local v2025 = { methods = {} }

local INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32600, -32601, -32602

--- Newest first. An unknown one is answered with the newest (lifecycle, "Version Negotiation").
v2025.REVISIONS = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" }

local function fail(code, message)
  error({ rpc_code = code, message = message }, 0)
end

local BEFORE_INITIALIZE = { initialize = true, ping = true }

--- Refuses what may not come before `initialize`. Unknown methods stay unknown methods.
---@param request table
---@param method string
function v2025.check(request, method)
  request.log_level = request.conversation.log_level
  if request.conversation.revision or BEFORE_INITIALIZE[method] or not v2025.methods[method] then return end
  fail(INVALID_PARAMS, "send initialize first, or name a protocol version in _meta with every request")
end

--- Dates sort as text.
local function is_at_least(revision, wanted)
  return revision >= wanted
end

local function server_info(revision)
  local info = { name = "demilune", version = core.sys.version }
  if is_at_least(revision, "2025-06-18") then info.title = "demilune sandboxes" end
  return info
end

local function capabilities_of(revision)
  return {
    tools = { listChanged = true }, logging = {}, tasks = is_at_least(revision, tasks.SINCE) and tasks.CAPABILITY or nil,
  }
end

function v2025.methods.initialize(request)
  local conversation, params = request.conversation, request.params
  if conversation.revision then fail(INVALID_REQUEST, "the session is initialized already") end
  if type(params.protocolVersion) ~= "string" then fail(INVALID_PARAMS, "protocolVersion must be a string") end
  for _, name in ipairs { "capabilities", "clientInfo" } do
    if params[name] ~= nil and not connect.is_object(params[name]) then
      fail(INVALID_PARAMS, name .. " must be an object")
    end
  end
  local revision = v2025.REVISIONS[1]
  for _, known in ipairs(v2025.REVISIONS) do
    if known == params.protocolVersion then revision = known end
  end
  conversation.revision = revision
  conversation.capabilities = params.capabilities
  local name, version = calls.client_of(params.clientInfo)
  conversation.client, conversation.client_version = name or conversation.client, version
  return json.encode {
    protocolVersion = revision, capabilities = capabilities_of(revision),
    serverInfo = server_info(revision),
    instructions = instructions.text(conversation.app),
  }
end

function v2025.methods.ping()
  return "{}"
end

v2025.methods["logging/setLevel"] = function(request)
  local level = request.params.level
  if type(level) ~= "string" or not calls.LEVELS[level] then
    fail(INVALID_PARAMS, "level must be one of debug, info, notice, warning, error, critical, alert, emergency")
  end
  request.conversation.log_level = level
  return "{}"
end

--- A tool as a revision knows it: newer fields are left out.
local function shown(tool, revision)
  local definition = tool.definition
  local out = { name = definition.name, description = definition.description, inputSchema = definition.inputSchema }
  if is_at_least(revision, "2025-03-26") then out.annotations = definition.annotations end
  if is_at_least(revision, "2025-06-18") then
    out.title, out.outputSchema = definition.title, definition.outputSchema
  end
  if is_at_least(revision, tasks.SINCE) and tool.tool.task then out.execution = { taskSupport = tool.tool.task } end
  return out
end

v2025.methods["tools/list"] = function(request)
  local list = {}
  for i, tool in ipairs(calls.tools(request)) do list[i] = shown(tool, request.revision) end
  local page, next_cursor = calls.page(list, request.params.cursor)
  return json.encode { tools = page, nextCursor = next_cursor }
end

v2025.methods["tools/call"] = function(request)
  if is_at_least(request.revision, tasks.SINCE) then return tasks.legacy.call(request) end
  return calls.call(request, is_at_least(request.revision, "2025-06-18"))
end

for method, handler in pairs(tasks.legacy.methods) do
  v2025.methods[method] = function(request)
    if not is_at_least(request.revision, tasks.SINCE) then fail(METHOD_NOT_FOUND, "there is no such method") end
    return handler(request)
  end
end

return v2025
