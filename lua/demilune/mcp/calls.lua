--- mcp/calls.lua - tools/list and tools/call, as all revisions share them.
local connect = require "demilune.connect"
local core = require "demilune.core"
local elicit = require "demilune.mcp.elicit"
local errors = require "demilune.errors"
local input = require "demilune.mcp.input"

local json = core.json
local calls = {}

local PAGE_SIZE = 100
--- How long a person may take over a question of a tool; a client of a session has less (elicit.lua).
local QUESTION_MS = 10 * 60 * 1000
local INVALID_PARAMS = -32602

local function fail(message)
  error({ rpc_code = INVALID_PARAMS, message = message }, 0)
end

--- Progress has a `message` from this revision on.
local PROGRESS_MESSAGE_SINCE = "2025-03-26"

--- The page of `list` that a cursor names, and the cursor of the next. A cursor is opaque to clients: the sealed place.
---@param list table[]
---@param cursor any
---@param size? integer
---@return table page
---@return string? next_cursor
function calls.page(list, cursor, size)
  size = size or PAGE_SIZE
  local from = 0
  if cursor ~= nil then
    if type(cursor) ~= "string" then fail "cursor must be a string" end
    local place = core.crypto.unbase64(cursor)
    from = place and place:match "^after:(%d+)$" and math.tointeger(place:match "%d+")
    if not from or from <= 0 or from >= #list then fail "cursor is not one that this server gave" end
  end
  local page = json.array(table.move(list, from + 1, math.min(from + size, #list), 1, {}))
  local next_cursor = from + size < #list and core.crypto.base64("after:" .. from + size) or nil
  return page, next_cursor
end

--- Severities of RFC 5424, as logging/setLevel names them.
calls.LEVELS = { debug = 1, info = 2, notice = 3, warning = 4, error = 5, critical = 6, alert = 7, emergency = 8 }

--- Whether the client of a request wants to hear of a severity.
local function is_wanted(request, level)
  return request.log_level ~= nil and calls.LEVELS[level] >= calls.LEVELS[request.log_level]
end

--- What a handler may say to its client beside its result, and ask of the person there.
local CLIENT = {}

--- A line for a client that wants to hear of its level.
function CLIENT.log(request, level, text)
  if not is_wanted(request, level) then return end
  request.call:notify("notifications/message", json.encode { level = level, logger = "demilune", data = text })
end

--- A form, as elicit.form.
function CLIENT.ask(request, message, requested_schema)
  return elicit.form(request, message, requested_schema, QUESTION_MS, request.params.arguments)
end

--- Tells a client that wants to know how a call went: its tool, outcome and time, nothing of its arguments.
local function log_call(request, tool, err, started_ms)
  local level = not err and "debug" or err.category == "internal" and "error" or "warning"
  if not is_wanted(request, level) then return end
  request.call:notify("notifications/message", json.encode {
    level = level, logger = "demilune",
    data = { tool = tool.name, outcome = err and err.category or "ok", duration_ms = core.task.now_ms() - started_ms },
  })
end

--- A function that tells the request's client how far its call is; nil when it did not ask.
local function progress_sender(request)
  local token, call = request.token, request.call
  if token == nil then return nil end
  local has_message = request.revision >= PROGRESS_MESSAGE_SINCE
  return function(count, message)
    call:notify("notifications/progress", json.encode {
      progressToken = token, progress = count, message = has_message and message or nil,
    })
  end
end

--- How much of a client's name and version is kept.
local CLIENT_BYTES = 64

--- Who a client says it is: for logs and records, and nothing is decided by it.
---@param info any  `clientInfo`
---@return string? name
---@return string? version
function calls.client_of(info)
  if not connect.is_object(info) then return nil end
  local name = type(info.name) == "string" and core.text.head(info.name, CLIENT_BYTES) or nil
  return name, type(info.version) == "string" and core.text.head(info.version, CLIENT_BYTES) or nil
end

--- Whether a conversation's principal may know of a tool. What it may not know of, it cannot call either.
local function is_shown(conversation, tool)
  local policy = conversation.app.policy
  return not policy or policy:shows(tool, conversation.principal)
end

--- The tools that a request's client may see, in order.
---@async
---@param request table
---@return table[]  entries of tools.build
function calls.tools(request)
  local conversation, list = request.conversation, {}
  for _, tool in ipairs(conversation.app.tools) do
    if is_shown(conversation, tool) then list[#list + 1] = tool end
  end
  return list
end

--- The tool that a tools/call names, nil where there is none or its client may not know of it.
---@async
---@param request table
---@return table?  entry of tools.build
function calls.tool(request)
  local name, conversation = request.params.name, request.conversation
  local tool = type(name) == "string" and conversation.app.tools_by_name[name] or nil
  return tool and is_shown(conversation, tool) and tool or nil
end

--- Runs tools/call and returns the CallToolResult as JSON text; nil where the client must answer something first
--- (input.lua).
---@param request table  params, conversation, call, token, revision, capabilities, client, client_version
---@param has_structured boolean
---@param meta? table  what the revision puts into a result's `_meta`
---@return string?
function calls.call(request, has_structured, meta)
  local params, conversation = request.params, request.conversation
  local app = conversation.app
  if type(params.name) ~= "string" then fail "name must be a string" end
  local tool = calls.tool(request) or fail "there is no such tool"
  local arguments = params.arguments
  if arguments == nil or arguments == json.null then arguments = {} end
  if not connect.is_object(arguments) then fail "arguments must be an object" end
  local started_ms = core.task.now_ms()
  local result, err, partial = app:call(tool, arguments, {
    scope = conversation.scope, principal = conversation.principal, client = request.client,
    client_version = request.client_version, transport = conversation.transport, revision = request.revision,
    send_progress = progress_sender(request), ask_person = elicit.asker(request), defer = request.defer,
    request = request, client_face = CLIENT,
  })
  if err and input.is_wanted(request) then return nil end
  local detail = err and errors.detail(err)
  if detail then core.log.error(tool.name .. ": " .. detail) end
  log_call(request, tool, err, started_ms)
  if err and err.category == "stopped" and request.call:is_cancelled() then return "{}" end
  return app:encode_result(tool, result, err, partial, has_structured, meta)
end

return calls
