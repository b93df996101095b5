--- audit.lua - the record of what was decided: one JSON object a line, added before the call runs, and one for its outcome.
--
-- A decision and its outcome have the same id. Several servers add to one file, a whole line with one write. What a client
-- sent is in it as a digest that only this install can make; with `arguments` also as it was, secrets masked and cut. A file
-- that was moved away and has no successor is written on: whoever moved it tells us when there is another. One that was
-- removed cannot be written; that is no rotation, and nothing hides it.
local core = require "demilune.core"
local errors = require "demilune.errors"

local json, task = core.json, core.task
local audits = {}

local MB = 1024 * 1024
local NAME_BYTES, TEXT_BYTES, ARGUMENTS_BYTES = 64, 256, 16384
--- How long records may wait for the disk with sync = "batch", and outcomes with sync = "call".
local BATCH_MS = 1000
--- How long the end of a server waits for the last of a file that was rotated.
local LEAVE_MS = 5000

---@class demilune.Audit
---@field options table      of the configuration
---@field file? demilune.core.fs.Appender
---@field is_dirty boolean   something was written that was not forced to the disk
---@field why? string        why no record can be written at present
local Audit = {}
Audit.__index = Audit

--- What stands in the way, in words without a path, and the operator's way out.
local WHY = {
  disk_full = { "the disk is full", "make room" },
  too_large = { "the file may not grow", "raise its limit, or move it away" },
  file_permission = { "the file may not be written", "it must be this user's, no link, and writable by nobody else" },
  file_not_found = { "the file is gone", "put it back, or make a new one with `demilune reload`" },
  is_directory = { "a folder is in its place", "move that away" },
  not_a_directory = { "a file stands where a folder should", "move that away" },
  unsupported = { "it is no ordinary file", "name another in the configuration" },
}
local UNKNOWN = { "the file cannot be written", "see that it can be" }

--- The error of a call that cannot be recorded. What is wrong is said once, until it is another or over.
local function note(self, err)
  local why, way_out = table.unpack(WHY[err.category] or UNKNOWN)
  local detail = ("the audit %s cannot be written: %s; %s"):format(self.options.file, why, way_out)
  if self.why ~= why then core.log.error(detail) end
  self.why = why
  return nil, errors.new("policy_denied", {
    rule = "audit", reason = "no record of the call can be written: " .. why,
    suggestion = "Only the operator can mend this; do not try again at once.",
  }, detail)
end

--- Opens the file, making it where it is missing.
---@param options { file: string, required: boolean, sync: string, arguments: boolean, max_size: integer, keep: integer }
---@param env { key: string, append?: fun(path: string): table?, demilune.Error? }  key: of the install
---@return demilune.Audit? audit
---@return demilune.Error? err  only where records are required
function audits.open(options, env)
  local self = setmetatable({ options = options, key = env.key, append = env.append or core.fs.append, is_dirty = false }, Audit)
  local file, err = self.append(options.file)
  self.file = file
  if not file then
    local _, denied = note(self, err)
    if options.required then
      return nil, errors.new("invalid_argument", { message = "The audit cannot be opened." }, errors.detail(denied)
        .. "; or write audit.required = false")
    end
  end
  return self
end

--- Why no record can be written at present.
---@return string?
function Audit:fault() return self.why end

-- ---- rotation ----

--- Closes a file that another has followed, once what was written to it is on the disk.
local function leave(self, file)
  if self.options.sync == "none" or not self.is_dirty then return file:close() end
  self.is_dirty = false
  local before = self.leaving
  self.leaving = task.spawn(function()
    if before then before:wait() end
    local ok, err = file:sync()
    file:close()
    if not ok then note(self, err) end
  end)
end

--- Opens the path anew. When that fails, the file that was open stays.
local function replace(self)
  local file, err = self.append(self.options.file)
  if not file then return nil, err end
  local old = self.file
  self.file, self.was_shifted = file, nil
  if old then leave(self, old) end
  return true
end

--- Moves the files one number up, as far as there is one after the other; when all are there, the last one goes. Stops at the
--- first that stays: the one below it would overwrite it.
local function shift(path, keep)
  local function name(number) return number > 0 and ("%s.%d"):format(path, number) or path end
  local free = 1
  while free < keep and core.fs.stat(name(free)) do free = free + 1 end
  for number = free - 1, 0, -1 do
    local ok, why = os.rename(name(number), name(number + 1))
    if not ok then return nil, why end
  end
  return true
end

--- Rotates, unless another server is at it or has done so. Where it cannot be done, the file grows on.
local function rotate(self)
  local path = self.options.file
  local held <close>, err = core.fs.lock(path .. ".lock")
  if not held and err.category == "conflict" then return true end
  local ok, why = held ~= nil, "its folder may not be written"
  if held and self.file:is_current() then ok, why = shift(path, self.options.keep) end
  if ok then
    self.cannot_rotate, self.was_shifted = nil, true
    return replace(self)
  end
  if not self.cannot_rotate then core.log.error(("the audit %s cannot be rotated: %s"):format(path, why)) end
  self.cannot_rotate = true
  return true
end

--- Sees that the file is the one that the path names, and not too large.
local function settle_file(self)
  if not self.file then return replace(self) end
  if not self.file:is_current() then
    if self.was_shifted or core.fs.stat(self.options.file) then return replace(self) end
    return true
  end
  local most = self.options.max_size * MB
  if most > 0 and (self.file:size() or 0) >= most then return rotate(self) end
  return true
end

-- ---- writing ----

--- Forces what waits to the disk, a little later, once for all that comes until then.
local function sync_later(self)
  if self.job then return end
  self.job = task.spawn(function()
    task.sleep(BATCH_MS)
    self.job = nil
    local ok, err = self:sync()
    if not ok then note(self, err) end
  end)
end

--- Forces records to the disk.
---@async
---@return true? done
---@return demilune.Error? err
function Audit:sync()
  if not (self.is_dirty and self.file) then return true end
  self.is_dirty = false
  local ok, err = self.file:sync()
  self.sync_error = err
  if ok then return true end
  self.is_dirty = true
  return nil, err
end

--- Adds a line. One that a call waits for is on the disk then, where the configuration wants that.
local function add(self, record, is_awaited)
  record.time = task.iso(task.epoch_ms())
  local ok, err = settle_file(self)
  if ok then ok, err = self.file:write(json.encode(record) .. "\n") end
  if not ok then return nil, err end
  if self.options.sync == "none" then return true end
  self.is_dirty = true
  if self.options.sync == "call" and is_awaited then return self:sync() end
  sync_later(self)
  return true
end

local function shown_arguments(arguments)
  local masked = core.vault.redact_all(arguments)
  local text = json.encode(masked)
  if #text <= ARGUMENTS_BYTES then return masked end
  return { cut = core.text.head(text, ARGUMENTS_BYTES), bytes = #text }
end

--- At most so many bytes of a foreign text; bytes that are no UTF-8 grow when they are mended.
local function short(text, most)
  if type(text) ~= "string" then return nil end
  return core.text.head(core.text.mend(core.text.head(text, most)), most)
end

--- Records a decision, before its call runs. The answer to a question has the question's id.
---@async
---@param fields { id?: string, principal: string, client?: string, transport: string, tool: string, arguments: table,
---  decision: string, rule?: string, policy_version?: string, provider?: string, sandbox_id?: string, implicit?: boolean,
---  approval_id?: string, answered_by?: string }
---@return string? id
---@return demilune.Error? err  `policy_denied` with the rule "audit"
function Audit:decision(fields)
  -- What could not be forced to the disk before is tried first: a record that may be lost is none.
  if self.sync_error then
    local ok, err = self:sync()
    if not ok then return note(self, err) end
  end
  local id = fields.id or core.crypto.id(20)
  local ok, err = add(self, {
    id = id, principal = short(fields.principal, TEXT_BYTES), client = short(fields.client, NAME_BYTES),
    transport = fields.transport, tool = short(fields.tool, NAME_BYTES),
    args_digest = core.crypto.hmac(self.key, json.encode(fields.arguments)), decision = fields.decision, rule = fields.rule,
    policy_version = fields.policy_version, provider = fields.provider, sandbox_id = short(fields.sandbox_id, TEXT_BYTES),
    implicit = fields.implicit == true, approval_id = fields.approval_id, answered_by = fields.answered_by,
    arguments = self.options.arguments and shown_arguments(fields.arguments) or nil,
  }, true)
  if not ok then return note(self, err) end
  self.why = nil
  return id
end

--- Records how a call ended. What stands in the way is for the log and the next decision.
---@async
---@param id string  of its decision
---@param outcome string  "ok" or a category
---@param duration_ms integer
---@param sandbox_id? string  what it was about, where that was found later
function Audit:outcome(id, outcome, duration_ms, sandbox_id)
  local ok, err = add(self, { id = id, outcome = outcome, duration_ms = duration_ms, sandbox_id = short(sandbox_id, TEXT_BYTES) })
  if not ok then note(self, err) end
end

--- Opens the path anew, after logrotate. When that fails, the file that was open is written on.
function Audit:reopen()
  local ok, err = replace(self)
  if not ok then note(self, err) end
end

--- Ends it; what waits is forced to the disk.
---@async
function Audit:close()
  if self.job then self.job:cancel() end
  self.job = nil
  if self.leaving then self.leaving:wait(LEAVE_MS) end
  if not self.file then return end
  if self.options.sync ~= "none" then self:sync() end
  self.file:close()
  self.file = nil
end

return audits
