--- mcp/task_work.lua - one tools/call in a task of its own, so that its request can be answered before it ends.
--
-- Until it has a record it is the request's: what it says goes the request's way, and it ends with it. From then on it is the
-- record's, and its client is reached through the record alone.
local core = require "demilune.core"
local errors = require "demilune.errors"

local json, task = core.json, core.task
local work = {}

local INTERNAL_ERROR = -32603
local RELATED = "io.modelcontextprotocol/related-task"

---@class demilune.mcp.TaskWork
---@field request table     the outer one
---@field inner table       the request that the work is given
---@field options table
---@field handle table      of the task
---@field is_turned table   event: there is a result or a record
---@field outcome? {result?: string, failure?: any}
---@field record? demilune.Deferred.Record
local Work = {}
Work.__index = Work

-- ---- the call object of the inner request ----

--- Has the methods of core.stdio's calls that work uses.
local Call = {}
Call.__index = Call

function Call:id() return self.work.request.call:id() end

function Call:is_cancelled()
  local record = self.work.record
  if record then return record.status == "cancelled" end
  return self.work.request.call:is_cancelled()
end

--- With `_meta` that says whose message it is.
local function related(record, params_json)
  local params = json.decode(params_json)
  params._meta = params._meta or {}
  params._meta[RELATED] = { taskId = record.id }
  return json.encode(params)
end

--- Of a deferred call a session's client is told outside of any request; one of 2026-07-28 is not, since notifications are
--- of a request's own stream there.
function Call:notify(method, params_json)
  local record = self.work.record
  if not record then return self.work.request.call:notify(method, params_json) end
  if record.era == "2026" or record:is_final() then return end
  self.work.request.conversation.io:notify(method, related(record, params_json))
end

local next_question = 0

--- A question of a deferred call waits until the client asks for the result: that request carries it.
function Call:request(method, params_json, timeout_ms)
  local record = self.work.record
  if not record then return self.work.request.call:request(method, params_json, timeout_ms) end
  next_question = next_question + 1
  local ok, answer = pcall(record.ask, record, "q" .. next_question, {
    method = method, params_json = related(record, params_json), timeout_ms = timeout_ms,
  })
  if not ok then
    if answer == task.CANCELLED then error(answer, 0) end
    return nil, errors.is(answer) and errors.new "provider_timeout" or error(answer, 0)
  end
  return answer.result, answer.err
end

-- ---- the work ----

local function body(self)
  local ok, result = xpcall(self.options.run, errors.with_trace, self.inner)
  if ok then
    self.outcome = { result = result }
  elseif result == task.CANCELLED then
    error(result, 0)
  else
    self.outcome = { failure = result }
  end
  self:settle()
  self.is_turned:set()
end

--- Begins the work. What `run` is given is a copy of the request with a call of its own.
---@param request table
---@param options {era: string, ttl_ms?: number, run: fun(request: table): string, on_change?: fun(record: table)}
---@return demilune.mcp.TaskWork
function work.start(request, options)
  local self = setmetatable({ request = request, options = options, is_turned = task.event() }, Work)
  self.inner = setmetatable({}, { __index = request })
  self.inner.call = setmetatable({ work = self }, Call)
  self.inner.defer = function() return self:defer() end
  self.handle = task.spawn(body, self)
  return self
end

--- What a failure is to the client: JSON-RPC's error where it is one, else an internal one, whose words are the log's.
local function error_of(failure)
  if type(failure) == "table" and failure.rpc_code then
    return { code = failure.rpc_code, message = failure.message, data = failure.data }
  end
  core.log.error("a task: " .. tostring(type(failure) == "table" and failure.message or failure))
  return { code = INTERNAL_ERROR, message = "internal error" }
end

--- Brings the outcome to the record, where both are there.
function Work:settle()
  local record, outcome = self.record, self.outcome
  if not record or not outcome then return end
  if outcome.failure == nil then record:finish { result = outcome.result }
  else record:finish { error = error_of(outcome.failure) } end
end

--- Gives the work a record, so that its request may be answered with a handle. False where the principal has no place for
--- one more; then all stays as it was.
---@return boolean
function Work:defer()
  if self.record then return true end
  local conversation = self.request.conversation
  local record = conversation.app.deferred:add {
    scope = conversation.scope, principal = conversation.principal, era = self.options.era, ttl_ms = self.options.ttl_ms,
  }
  if not record then return false end
  record.handle, record.on_change = self.handle, self.options.on_change
  self.record, self.inner.deferred = record, record
  self:settle()
  self.is_turned:set()
  return true
end

--- Waits for the result, `after_ms` at most; then for a record. Raises what the work raised.
---@async
---@param after_ms integer
---@return string? result  nil where there is a record now
function Work:wait(after_ms)
  if after_ms > 0 then self.is_turned:wait(after_ms) end
  if not self.outcome and not self.record and not self:defer() then self.is_turned:wait() end
  if self.record then return nil end
  if self.outcome.failure ~= nil then error(self.outcome.failure, 0) end
  return self.outcome.result
end

--- Ends work that has no record.
function Work:stop()
  if not self.record and not self.outcome then self.handle:cancel() end
end

Work.__close = Work.stop

-- ---- who waits for a result ----

--- A question that nobody has asked the client yet.
local function unasked(record)
  for key, input in pairs(record.inputs) do
    if not input.is_asked then return key, input end
  end
end

--- Asks the client one question and hands its answer to the record. The end of the call that carries it leaves the question to
--- the next.
local function relay(record, call, key, input)
  input.is_asked = true
  local request = input.request
  local ok, result, err = pcall(call.request, call, request.method, request.params_json, request.timeout_ms)
  if not ok or err and err.category == "stopped" then
    input.is_asked = false
    error(ok and task.CANCELLED or result, 0)
  end
  record:answer(key, { result = result, err = err })
end

--- Waits until a record of a session has reached its end, and asks its client meanwhile through a call of its own.
---@async
---@param record demilune.Deferred.Record
---@param call table
function work.attend(record, call)
  while not record:is_final() do
    record.is_changed:clear()
    local key, input = unasked(record)
    if key then
      relay(record, call, key, input)
    elseif not record:is_final() then
      record.is_changed:wait(math.max(0, record:left_ms()))
      if record:left_ms() <= 0 then record:cancel() end
    end
  end
end

return work
