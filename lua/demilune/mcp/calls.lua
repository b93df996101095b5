--- mcp/calls.lua - tools/list and tools/call, as all revisions share them.
local core = require "demilune.core"

local json = core.json
local calls = {}

local PAGE_SIZE = 100
local INVALID_PARAMS = -32602

local function fail(message)
  error({ rpc_code = INVALID_PARAMS, message = message }, 0)
end

--- Whether a decoded value is a JSON object; arrays carry a metatable.
---@param value any
---@return boolean
function calls.is_object(value)
  return type(value) == "table" and getmetatable(value) == nil
end

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

--- Tells a client that wants to know how a call went: its tool, outcome and time, nothing of its arguments.
local function log_call(request, tool, err, started_ms)
  local wanted = request.log_level
  local level = not err and "debug" or err.category == "internal" and "error" or "warning"
  if not wanted or calls.LEVELS[level] < calls.LEVELS[wanted] then return end
  request.call:notify("notifications/message", json.encode {
    level = level, logger = "demilune",
    data = { tool = tool.name, outcome = err and err.category or "ok", duration_ms = core.task.now_ms() - started_ms },
  })
end

--- Runs tools/call and returns the CallToolResult as JSON text.
---@param request table  params, conversation, call, token
---@param has_structured boolean
---@return string
function calls.call(request, has_structured)
  local params, conversation = request.params, request.conversation
  local app = conversation.app
  if type(params.name) ~= "string" then fail "name must be a string" end
  local tool = app.tools_by_name[params.name]
  if not tool then fail "there is no such tool" end
  local arguments = params.arguments
  if arguments == nil or arguments == json.null then arguments = {} end
  if not calls.is_object(arguments) then fail "arguments must be an object" end
  local token, call, started_ms = request.token, request.call, core.task.now_ms()
  local result, err, partial = app:call(tool, arguments, {
    scope = conversation.scope, principal = conversation.principal, client = conversation.client,
    transport = conversation.transport, revision = request.revision,
    send_progress = token ~= nil and function(count, message)
      call:notify("notifications/progress", json.encode { progressToken = token, progress = count, message = message })
    end or nil,
  })
  log_call(request, tool, err, started_ms)
  if err and err.category == "stopped" and call:is_cancelled() then return "{}" end
  return app:encode_result(tool, result, err, partial, has_structured)
end

return calls
