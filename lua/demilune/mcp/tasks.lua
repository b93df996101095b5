--- mcp/tasks.lua - tasks of the protocol: a tool's call that is answered with a handle, and whose result is asked for later.
--
-- Revision 2025-11-25 has the client say that it wants a task (basic/utilities/tasks); clients of 2026-07-28 only say that they
-- take one (extension io.modelcontextprotocol/tasks, SEP-2663), and get it when a call takes long. Both are one record
-- (deferred.lua) behind two shapes. The call itself is the same call as ever: one path, one policy, one audit.
local calls = require "demilune.mcp.calls"
local connect = require "demilune.connect"
local core = require "demilune.core"
local work = require "demilune.mcp.task_work"

local json = core.json
local tasks = { legacy = {}, modern = {} }

local INVALID_PARAMS, METHOD_NOT_FOUND, INTERNAL_ERROR = -32602, -32601, -32603
--- MCP 2026-07-28, basic: MissingRequiredClientCapability.
local MISSING_CAPABILITY = -32021
--- How often a client should ask.
local POLL_MS = 1000

tasks.EXTENSION = "io.modelcontextprotocol/tasks"
--- Tasks are there since, as part of the protocol; and until, since then they are an extension.
tasks.SINCE = "2025-11-25"
--- What a server of 2025-11-25 declares.
tasks.CAPABILITY = { list = {}, cancel = {}, requests = { tools = { call = {} } } }

local RELATED = "io.modelcontextprotocol/related-task"

local function fail(code, message, data)
  error({ rpc_code = code, message = message, data = data }, 0)
end

local STATUS_MESSAGES = {
  working = "The call is running.",
  input_required = "The call waits for an answer.",
  completed = "The call has ended.",
  failed = "The call could not be carried out.",
  cancelled = "The call was stopped.",
}

--- A record as both shapes have it.
local function shared(record)
  return {
    taskId = record.id, status = record.status, statusMessage = STATUS_MESSAGES[record.status],
    createdAt = core.task.iso(record.created_ms), lastUpdatedAt = core.task.iso(record.updated_ms),
  }
end

local function find(request, era)
  local id = request.params.taskId
  if type(id) ~= "string" then fail(INVALID_PARAMS, "taskId must be a string") end
  local record = request.conversation.app.deferred:find(id, request.conversation.scope, era)
  return record or fail(INVALID_PARAMS, "there is no such task, or its time is over")
end

--- The tool that a tools/call names, where the client may know of it.
local function tool_of(request)
  local tool = type(request.params.name) == "string" and calls.tool(request) or nil
  return tool, tool and tool.tool.task
end

-- ---- 2025-11-25 ----

local LEGACY = "2025"

local function legacy_shape(record)
  local shape = shared(record)
  shape.ttl, shape.pollInterval = record.ttl_ms, POLL_MS
  return shape
end

local function tell_legacy(request)
  local conversation = request.conversation
  return function(record)
    conversation.io:notify("notifications/tasks/status", json.encode(legacy_shape(record)))
  end
end

--- Answers a tools/call of a client of a session: with a task where the client wants one.
---@param request table
---@return string result  JSON text
function tasks.legacy.call(request)
  local wanted = request.params.task
  local tool, support = tool_of(request)
  if wanted == nil or not tool then
    if support == "required" then fail(METHOD_NOT_FOUND, "this tool runs as a task only: send the call with task") end
    return calls.call(request, true)
  end
  if not support then fail(METHOD_NOT_FOUND, "this tool does not run as a task; send the call without task") end
  if not connect.is_object(wanted) then fail(INVALID_PARAMS, "task must be an object") end
  local ttl = wanted.ttl
  if ttl ~= nil and not (math.type(ttl) and ttl >= 0) then fail(INVALID_PARAMS, "task.ttl must be a number of milliseconds") end
  local one = work.start(request, { era = LEGACY, ttl_ms = ttl, run = function(inner) return calls.call(inner, true) end,
    on_change = tell_legacy(request) })
  if not one:defer() then
    one:stop()
    fail(INTERNAL_ERROR, "too many tasks run; wait for one with tasks/result, or stop one with tasks/cancel")
  end
  return json.encode { task = legacy_shape(one.record) }
end

--- The methods of clients of a session, from 2025-11-25 on.
tasks.legacy.methods = {}

tasks.legacy.methods["tasks/get"] = function(request)
  return json.encode(legacy_shape(find(request, LEGACY)))
end

tasks.legacy.methods["tasks/list"] = function(request)
  local conversation, list = request.conversation, {}
  for i, record in ipairs(conversation.app.deferred:list(conversation.scope, LEGACY)) do list[i] = legacy_shape(record) end
  local page, next_cursor = calls.page(list, request.params.cursor)
  return json.encode { tasks = page, nextCursor = next_cursor }
end

tasks.legacy.methods["tasks/cancel"] = function(request)
  local record = find(request, LEGACY)
  if record:is_final() then fail(INVALID_PARAMS, "the task has ended: it is " .. record.status) end
  record:cancel()
  return json.encode(legacy_shape(record))
end

--- A result says whose it is.
local function with_related(result, record)
  local value = json.decode(result)
  value._meta = connect.is_object(value._meta) and value._meta or {}
  value._meta[RELATED] = { taskId = record.id }
  return json.encode(value)
end

--- Waits for the end, and asks the client meanwhile what the call wants to know of it.
tasks.legacy.methods["tasks/result"] = function(request)
  local record = find(request, LEGACY)
  work.attend(record, request.call)
  local outcome = record.outcome
  if not outcome then fail(INTERNAL_ERROR, "the task was cancelled") end
  if outcome.error then fail(outcome.error.code, outcome.error.message, outcome.error.data) end
  return with_related(outcome.result, record)
end

-- ---- 2026-07-28 ----

local MODERN = "2026"

--- Whether the client of a request takes task handles.
---@param request table
---@return boolean
function tasks.are_taken(request)
  local extensions = request.capabilities and request.capabilities.extensions
  return connect.is_object(extensions) and connect.is_object(extensions[tasks.EXTENSION])
end

--- Raises JSON-RPC's error for a client that did not say it takes tasks.
---@param request table
function tasks.need(request)
  if tasks.are_taken(request) then return end
  fail(MISSING_CAPABILITY, "this takes a client that declares " .. tasks.EXTENSION, {
    requiredCapabilities = { extensions = { [tasks.EXTENSION] = {} } },
  })
end

local function modern_shape(record)
  local shape = shared(record)
  shape.ttlMs, shape.pollIntervalMs = record.ttl_ms, POLL_MS
  return shape
end

--- A record with what belongs to its state (DetailedTask).
---@param record demilune.Deferred.Record
---@return table
function tasks.detailed(record)
  local shape, outcome = modern_shape(record), record.outcome
  if record.status == "input_required" then
    shape.inputRequests = {}
    for key, input in pairs(record.inputs) do shape.inputRequests[key] = input.request end
  elseif record.status == "completed" then
    shape.result = json.decode(outcome.result)
  elseif record.status == "failed" then
    shape.error, shape.statusMessage = outcome.error, outcome.error.message
  end
  return shape
end

--- Answers a tools/call: with a handle where the call takes long, the tool allows it and the client takes handles.
---@param request table
---@param run fun(request: table): string  the whole answer as JSON text
---@param finish fun(fields: table): string  a result of the era
---@return string result  JSON text
function tasks.modern.call(request, run, finish)
  local tool, support = tool_of(request)
  if not tool or not support then return run(request) end
  if support == "required" then tasks.need(request) elseif not tasks.are_taken(request) then return run(request) end
  local one <close> = work.start(request, { era = MODERN, run = run })
  local after_ms = support == "required" and 0 or request.conversation.app.config.task_after * 1000
  local result = one:wait(after_ms)
  if result then return result end
  local shape = modern_shape(one.record)
  shape.resultType = "task"
  return finish(shape)
end

--- The methods of clients of 2026-07-28: each gives the fields of its result.
tasks.modern.methods = {}

tasks.modern.methods["tasks/get"] = function(request)
  tasks.need(request)
  return tasks.detailed(find(request, MODERN))
end

tasks.modern.methods["tasks/update"] = function(request)
  tasks.need(request)
  local record, given = find(request, MODERN), request.params.inputResponses
  if not connect.is_object(given) then fail(INVALID_PARAMS, "inputResponses must be an object") end
  for key, answer in pairs(given) do record:answer(key, answer) end
  return {}
end

tasks.modern.methods["tasks/cancel"] = function(request)
  tasks.need(request)
  find(request, MODERN):cancel()
  return {}
end

return tasks
