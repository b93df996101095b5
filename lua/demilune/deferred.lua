--- deferred.lua - calls whose client was given a handle and asks again for the result: the records of protocol tasks.
--
-- A record belongs to the scope of its call and ends with it; the call itself goes on in a task of its own. Records live in
-- memory, since the result is of a call that the server's own process makes: what must outlive the server is a background
-- task. Both share one limit of how many run.
local core = require "demilune.core"
local errors = require "demilune.errors"

local task = core.task
local deferred = {}

--- Ended records that one principal's scopes keep; the oldest go first.
deferred.KEPT_MAX = 64
--- Results of ended records of a principal that are kept, in bytes; the oldest go first.
deferred.KEPT_BYTES_MAX = 32 * 1024 * 1024
--- How long a record is kept, from its creation.
deferred.TTL_MS = 3600 * 1000
deferred.TTL_MIN_MS, deferred.TTL_MAX_MS = 60 * 1000, 24 * 3600 * 1000
--- Questions of one call that its client has not answered yet.
deferred.INPUTS_MAX = 16
local ID_CHARACTERS = 32

--- States that nothing follows.
deferred.FINAL = { completed = true, failed = true, cancelled = true }

---@class demilune.Deferred.Record
---@field id string
---@field scope demilune.Scope
---@field principal string
---@field era string           who may ask for it: a client of the same way of speaking
---@field status "working"|"input_required"|"completed"|"failed"|"cancelled"
---@field created_ms integer   since 1970
---@field updated_ms integer   since 1970
---@field ttl_ms integer
---@field inputs table<string, {request: table, event: table, answer: any}>  questions that are open
---@field input_count integer
---@field outcome? {result?: string, error?: {code: integer, message: string, data?: table}}
---@field is_over table        event: a final state is reached
---@field is_changed table     event: set at each change of state; whoever waits clears it
---@field handle? table        of the task that works
---@field on_change? fun(record: demilune.Deferred.Record)
local Record = {}
Record.__index = Record

---@class demilune.Deferred
---@field app demilune.App
---@field records table<string, demilune.Deferred.Record>
local Deferred = {}
Deferred.__index = Deferred

--- Makes an empty registry.
---@param app demilune.App
---@return demilune.Deferred
function deferred.new(app)
  return setmetatable({ app = app, records = {} }, Deferred)
end

-- ---- one record ----

local function change(record, status)
  record.status = status
  record.updated_ms = task.epoch_ms()
  record.is_changed:set()
  if record.on_change then record.on_change(record) end
end

--- Whether nothing will change any more.
---@return boolean
function Record:is_final()
  return deferred.FINAL[self.status] == true
end

--- Notes how the call ended. What was cancelled stays so.
---@param outcome {result?: string, error?: table}  result: JSON text
function Record:finish(outcome)
  if self:is_final() then return end
  self.outcome, self.inputs, self.input_count = outcome, {}, 0
  change(self, outcome.error and "failed" or "completed")
  self.is_over:set()
end

--- Stops the call; nothing where it has ended.
function Record:cancel()
  if self:is_final() then return end
  self.inputs, self.input_count = {}, 0
  change(self, "cancelled")
  self.is_over:set()
  if self.handle then self.handle:cancel() end
end

--- Asks the client something and waits until it has answered; for the task that works. Raises `approval_required` where the
--- record's time ends before that, `quota_exceeded` where too many questions are open.
---@async
---@param key string      new in this record
---@param request table   method and params, as the client is shown it
---@return any answer     hostile
function Record:ask(key, request)
  if self.input_count >= deferred.INPUTS_MAX then
    errors.raise("quota_exceeded", { message = "Too many questions of this task wait for its client." })
  end
  local input = { request = request, event = task.event() }
  self.inputs[key] = input
  self.input_count = self.input_count + 1
  if self.status == "working" then change(self, "input_required") else change(self, self.status) end
  local was_answered = input.event:wait(math.max(0, self.created_ms + self.ttl_ms - task.epoch_ms()))
  if self.inputs[key] == input then
    self.inputs[key] = nil
    self.input_count = self.input_count - 1
    if self.input_count == 0 and self.status == "input_required" then change(self, "working") end
  end
  if not was_answered then errors.raise "approval_required" end
  return input.answer
end

--- Takes a client's answer. One to a question that is not open is passed over.
---@param key string
---@param answer any
function Record:answer(key, answer)
  local input = self.inputs[key]
  if not input or self:is_final() then return end
  input.answer = answer
  self.inputs[key] = nil
  self.input_count = self.input_count - 1
  if self.input_count == 0 then change(self, "working") end
  input.event:set()
end

--- How long it is kept from now on.
---@return integer ms  0 and less: its time is over
function Record:left_ms()
  return self.created_ms + self.ttl_ms - task.epoch_ms()
end

-- ---- all records ----

local function oldest_first(a, b)
  if a.updated_ms ~= b.updated_ms then return a.updated_ms < b.updated_ms end
  return a.id < b.id
end

local function bytes_of(record)
  return record.outcome and record.outcome.result and #record.outcome.result or 0
end

--- Drops what is over: by time, of all; by number and size, of the principal.
local function sweep(self, principal)
  local ended, bytes = {}, 0
  for id, record in pairs(self.records) do
    if record:left_ms() <= 0 then
      record:cancel()
      self.records[id] = nil
    elseif record.principal == principal and record:is_final() then
      ended[#ended + 1] = record
      bytes = bytes + bytes_of(record)
    end
  end
  table.sort(ended, oldest_first)
  for i, record in ipairs(ended) do
    if #ended - i < deferred.KEPT_MAX and bytes <= deferred.KEPT_BYTES_MAX then break end
    self.records[record.id] = nil
    bytes = bytes - bytes_of(record)
  end
end

--- How many calls of a principal go on behind a handle.
---@param principal string
---@return integer
function Deferred:running_count(principal)
  local count = 0
  for _, record in pairs(self.records) do
    if record.principal == principal and not record:is_final() then count = count + 1 end
  end
  return count
end

--- Makes a record for a call that goes on; nil where the principal has too many that run, background tasks among them.
---@param fields {scope: demilune.Scope, principal: string, era: string, ttl_ms?: number}
---@return demilune.Deferred.Record?
function Deferred:add(fields)
  sweep(self, fields.principal)
  if self.app.background:running_count(fields) >= self.app.config.limits.tasks then return nil end
  local now_ms = task.epoch_ms()
  local ttl_ms = math.max(deferred.TTL_MIN_MS, math.min(fields.ttl_ms or deferred.TTL_MS, deferred.TTL_MAX_MS))
  local record = setmetatable({
    id = core.crypto.id(ID_CHARACTERS), scope = fields.scope, principal = fields.principal, era = fields.era,
    status = "working", created_ms = now_ms, updated_ms = now_ms, ttl_ms = math.floor(ttl_ms), inputs = {}, input_count = 0,
    is_over = task.event(), is_changed = task.event(),
  }, Record)
  self.records[record.id] = record
  return record
end

--- The record of an id, for the scope and era that it was made in; nil for every other.
---@param id any
---@param scope demilune.Scope
---@param era string
---@return demilune.Deferred.Record?
function Deferred:find(id, scope, era)
  local record = type(id) == "string" and self.records[id] or nil
  if not record or record.scope ~= scope or record.era ~= era then return nil end
  if record:left_ms() <= 0 then
    record:cancel()
    self.records[record.id] = nil
    return nil
  end
  return record
end

--- The records of a scope, newest first.
---@param scope demilune.Scope
---@param era string
---@return demilune.Deferred.Record[]
function Deferred:list(scope, era)
  local list = {}
  for _, record in pairs(self.records) do
    if record.scope == scope and record.era == era and record:left_ms() > 0 then list[#list + 1] = record end
  end
  table.sort(list, function(a, b)
    if a.created_ms ~= b.created_ms then return a.created_ms > b.created_ms end
    return a.id > b.id
  end)
  return list
end

--- Stops the calls of a scope that ends and forgets its records.
---@param scope demilune.Scope
function Deferred:end_scope(scope)
  for id, record in pairs(self.records) do
    if record.scope == scope then
      record:cancel()
      self.records[id] = nil
    end
  end
end

return deferred
