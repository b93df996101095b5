--- audit.lua - the record of what was decided: one JSON object a line, added before the call runs, and one for its outcome.
--
-- A decision and its outcome have the same id. Several servers add to one file, a whole line with one write. What a client
-- sent is in it as a digest that only this install can make; with `arguments` also as it was, secrets masked and cut.
local core = require "demilune.core"
local errors = require "demilune.errors"

local json, task = core.json, core.task
local audits = {}

local MB = 1024 * 1024
local NAME_BYTES, TEXT_BYTES, ARGUMENTS_BYTES = 64, 256, 16384
--- How long records may wait for the disk with sync = "batch".
local BATCH_MS = 1000

---@class demilune.Audit
---@field options table      of the configuration
---@field file? demilune.core.fs.Appender
---@field is_dirty boolean   something was written that was not forced to the disk
local Audit = {}
Audit.__index = Audit

--- What stands in the way, in words without a path.
local WHY = {
  disk_full = "the disk is full", file_permission = "the file may not be written", file_not_found = "the file is gone",
  is_directory = "a folder is in its place", not_a_directory = "a file stands where a folder should",
  too_large = "the file may not grow",
  unsupported = "it is no ordinary file",
}

--- The error of a call that cannot be recorded.
local function denial(self, err)
  local why = WHY[err.category] or "the file cannot be written"
  self.why = why
  return errors.new("policy_denied", {
    rule = "audit", reason = "no record of the call can be written: " .. why,
    suggestion = "Only the operator can mend this; do not try again at once.",
  }, ("the audit %s cannot be written: %s"):format(self.options.file, why))
end

local function note(self, err)
  local denied = denial(self, err)
  if self.noted ~= self.why then core.log.error(errors.detail(denied)) end
  self.noted = self.why
  return nil, denied
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
        .. "; mend that, or write audit.required = false")
    end
  end
  return self
end

--- Why no record can be written at present.
---@return string?
function Audit:fault() return self.why end

-- ---- rotation ----

local function rotated(path, number) return ("%s.%d"):format(path, number) end

--- Moves the files one number up; another server may have done so meanwhile.
local function rotate(self)
  local path = self.options.file
  local held <close> = core.fs.lock(path .. ".lock")
  if not held or not self.file:is_current() then return end
  os.remove(rotated(path, self.options.keep))
  for number = self.options.keep - 1, 1, -1 do os.rename(rotated(path, number), rotated(path, number + 1)) end
  os.rename(path, rotated(path, 1))
end

--- Sees that the file is the one that the path names, and not too large. A file that was moved away and has no successor is
--- written on: whoever moved it tells us when there is another. One that was removed cannot be written; that is no rotation,
--- and nothing hides it.
local function settle_file(self)
  if not self.file then
    local file, err = self.append(self.options.file)
    if not file then return nil, err end
    self.file = file
  end
  local most = self.options.max_size * MB
  if most > 0 and (self.file:size() or 0) >= most then
    rotate(self)
    return self.file:reopen()
  end
  if not self.file:is_current() and core.fs.stat(self.options.file) then return self.file:reopen() end
  return true
end

-- ---- writing ----

--- Forces what waits to the disk, a little later, once for all that comes until then.
local function sync_later(self)
  if self.job then return end
  self.job = task.spawn(function()
    task.sleep(BATCH_MS)
    self.job = nil
    self:sync()
  end)
end

--- Forces records to the disk.
---@async
---@return true? done
---@return demilune.Error? err
function Audit:sync()
  if not self.is_dirty then return true end
  self.is_dirty = false
  local ok, err = self.file:sync()
  self.sync_error = err
  if ok then return true end
  self.is_dirty = true
  return nil, err
end

local function add(self, record)
  record.time = task.iso(task.epoch_ms())
  local ok, err = settle_file(self)
  if ok then ok, err = self.file:write(json.encode(record) .. "\n") end
  if not ok then return nil, err end
  self.is_dirty = true
  if self.options.sync == "call" then return self:sync() end
  if self.options.sync == "batch" then sync_later(self) end
  return true
end

local function shown_arguments(arguments)
  local masked = core.vault.redact_all(arguments)
  local text = json.encode(masked)
  if #text <= ARGUMENTS_BYTES then return masked end
  return { cut = core.text.head(text, ARGUMENTS_BYTES), bytes = #text }
end

local function short(text, most)
  return type(text) == "string" and core.text.mend(core.text.head(text, most)) or nil
end

--- Records a decision, before its call runs.
---@async
---@param fields { principal: string, client: string, transport: string, tool: string, arguments: table, decision: string,
---  rule?: string, policy_version?: string, provider?: string, sandbox_id?: string, implicit?: boolean }
---@return string? id
---@return demilune.Error? err  `policy_denied` with the rule "audit"
function Audit:decision(fields)
  -- What could not be forced to the disk before is tried first: a record that may be lost is none.
  if self.sync_error then
    local ok, err = self:sync()
    if not ok then return note(self, err) end
  end
  local id = core.crypto.id(20)
  local ok, err = add(self, {
    id = id, principal = short(fields.principal, TEXT_BYTES), client = short(fields.client, NAME_BYTES),
    transport = fields.transport, tool = short(fields.tool, NAME_BYTES),
    args_digest = core.crypto.hmac(self.key, json.encode(fields.arguments)), decision = fields.decision, rule = fields.rule,
    policy_version = fields.policy_version, provider = fields.provider, sandbox_id = short(fields.sandbox_id, TEXT_BYTES),
    implicit = fields.implicit == true, arguments = self.options.arguments and shown_arguments(fields.arguments) or nil,
  })
  if not ok then return note(self, err) end
  self.why, self.noted = nil, nil
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

--- Opens the path anew, after logrotate.
function Audit:reopen()
  if not self.file then return end
  local ok, err = self.file:reopen()
  if not ok then note(self, err) end
end

--- Ends it; what waits is forced to the disk.
---@async
function Audit:close()
  if self.job then self.job:cancel() end
  if not self.file then return end
  self:sync()
  self.file:close()
  self.file = nil
end

return audits
