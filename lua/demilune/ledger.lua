--- ledger.lua - the counters of rates and quotas, kept across reloads, restarts and the several servers of one user.
--
-- One private file a configuration. Whoever changes it holds a lock, reads it, and puts a new one in its place; the lock is
-- never held over a wait. A file that cannot be read or written refuses what it should count: counting anew would forget what
-- was spent. The way out is the operator's, to mend or remove the file, and the log names it. What happened all the same (a
-- creation under way came to its end, a sandbox ended) is owed to the file and written as soon as it can be.
local core = require "demilune.core"
local errors = require "demilune.errors"
local page = require "demilune.ledger.page"

local json = core.json
local ledgers = {}

local FILE_BYTES_MAX = 16 * 1024 * 1024
--- How long the lock is waited for, and how long between two tries.
local LOCK_WAIT_MS, LOCK_TRY_MS = 1000, 2
--- Calls of principals are noted here and written with what is written next; at the latest after so many.
local NOTED_MAX = 1000
--- Changes that wait for a file that can be written; creations are refused meanwhile.
local OWED_MAX = 10000
local DAY_S = 86400

---@class demilune.Ledger
---@field path string
---@field text? string   what the file held when it was last read or written
---@field data? table    the same, decoded
---@field fault? string  why the counters cannot be used at present; names the file
---@field owed (fun(data: table, now_ms: integer))[]  changes that are not in the file yet
local Ledger = {}
Ledger.__index = Ledger

--- A place that was reserved. One that is forgotten is free again with the next change.
---@class demilune.Ticket
---@field place? string  of a creation
local Ticket = {}
Ticket.__index = Ticket

--- When a process started, in the kernel's own count (proc(5), stat, field 22): another of the same number has another.
local function start_of(pid)
  local file = io.open(("/proc/%d/stat"):format(pid))
  if not file then return nil end
  local text = file:read "a" or ""
  file:close()
  local after = text:match "^.*%)(.*)$"
  local fields = {}
  for field in (after or ""):gmatch "%S+" do fields[#fields + 1] = field end
  return fields[20]
end

local function is_alive(pid, start) return start_of(pid) == start end

--- Makes it; the file is made when there is something to keep.
---@param path string  in a folder that is there
---@return demilune.Ledger
function ledgers.open(path)
  return setmetatable({
    path = path, pid = core.sys.pid(), start = start_of(core.sys.pid()) or "", owed = {},
    noted = {}, noted_count = 0, noted_day = 0,
  }, Ledger)
end

--- Says once what is wrong.
local function fail(self, what, way_out)
  local text = ("the counters in %s %s; calls that they should count are denied until %s"):format(self.path, what, way_out)
  if self.fault ~= text then core.log.error(text) end
  self.fault = text
  return nil
end

-- ---- the file ----

--- The page as it is now, or nil where there is none that can be used.
---@return table?
function Ledger:read()
  local text, err = core.fs.read(self.path, FILE_BYTES_MAX)
  if text then
    if text ~= self.text then
      local data = json.decode(text)
      if not page.is_one(data) then return fail(self, "are damaged", "the file is mended, or removed to count anew") end
      self.text, self.data = text, data
    end
  elseif err.category == "file_not_found" then
    self.text, self.data = nil, page.new()
  else
    return fail(self, "cannot be read", "the file can be")
  end
  page.prune(self.data, core.task.epoch_ms(), is_alive)
  return self.data
end

local function write(self, data)
  local text = json.encode(data)
  local err
  if #text > FILE_BYTES_MAX then err = "too_large" else err = select(2, core.fs.write(self.path, text)) end
  if err then return fail(self, "cannot be written", "there is room for them, and the folder may be written") end
  self.text = text
  return true
end

local function lock(self)
  local deadline_ms = core.task.now_ms() + LOCK_WAIT_MS
  while true do
    local held, err = core.fs.lock(self.path .. ".lock")
    if held then return held end
    if err.category ~= "conflict" then return fail(self, "cannot be locked", "the folder may be written") end
    if core.task.now_ms() >= deadline_ms then return fail(self, "stay locked", "the process that locks them has ended") end
    core.task.sleep(LOCK_TRY_MS)
  end
end

--- What was noted, and what is owed.
local function add_waiting(self, data, now_ms)
  if self.noted_day == now_ms // 1000 // DAY_S then
    for principal, count in pairs(self.noted) do page.add_calls(data, principal, count) end
  end
  for _, change in ipairs(self.owed) do change(data, now_ms) end
  return #self.owed > 0
end

--- Changes the page: `change(data, now_ms)` works on it and returns whether it is to be written, and what this returns. Nil
--- where the file cannot be used.
---@async
---@param change fun(data: table, now_ms: integer): boolean, any
---@return boolean? is_done
---@return any result
function Ledger:update(change)
  local held <close> = lock(self)
  local data, now_ms = held and self:read(), core.task.epoch_ms()
  if not data then return nil end
  -- From here on the page holds more than the file: it is read anew, unless all of it gets written.
  self.text, self.data = nil, nil
  local was_owed = add_waiting(self, data, now_ms)
  local is_changed, result = change(data, now_ms)
  if is_changed or was_owed then
    if not write(self, data) then return nil end
    self.data, self.owed, self.noted, self.noted_count = data, {}, {}, 0
  end
  self.fault = nil
  return true, result
end

--- Changes the page now, or as soon as that can be done.
local function owe(self, change)
  if #self.owed >= OWED_MAX then table.remove(self.owed, 1) end
  self.owed[#self.owed + 1] = change
  self:update(function() return false end)
end

-- ---- places ----

local function unavailable(list)
  return { rule = list[1].rule, kind = "unavailable", category = "policy_denied" }
end

--- Reserves all places of a list, or none.
---@async
---@param list demilune.ledger.Item[]
---@param who { principal: string, tasks?: integer }
---@return demilune.Ticket? ticket
---@return table? refusal  { rule, kind, category, most, retry_after? }; kind "unavailable" where the file cannot be used
function Ledger:reserve(list, who)
  local ticket = setmetatable({ ledger = self, is_open = true }, Ticket)
  if #list == 0 then return ticket end
  local name = core.crypto.id(16)
  local done, refusal = self:update(function(data, now_ms)
    local refused = page.refusal(data, list, who, now_ms)
    if refused then return false, refused end
    local owner = { principal = who.principal, pid = self.pid, start = self.start, at_s = now_ms // 1000 }
    local is_placed, is_paced = page.spend(data, list, { name = name, owner = owner }, now_ms)
    ticket.place = is_placed and name or nil
    return is_placed or is_paced
  end)
  if done and not refusal then return ticket end
  ticket.is_open = false
  return nil, refusal or unavailable(list)
end

local function without(place)
  return function(data) data.pending[place] = nil end
end

--- The call worked: the place of a creation becomes its sandbox. Nothing for a call that created none. Once. One that
--- `is_held` ends with this process, also when that is killed.
---@async
---@param sandbox? { provider: string, id: string, principal: string, created_s: integer, ends_s?: integer, is_held?: boolean }
function Ticket:keep(sandbox)
  if not sandbox then return self:give_back() end
  if not self.is_open then return end
  self.is_open = false
  owe(self.ledger, function(data, now_ms)
    if self.place then data.pending[self.place] = nil end
    local entry = { principal = sandbox.principal, created_s = sandbox.created_s, ends_s = sandbox.ends_s }
    if sandbox.is_held then entry.pid, entry.start = self.ledger.pid, self.ledger.start end
    page.add_sandbox(data, page.key(sandbox.provider, sandbox.id), entry, now_ms // 1000)
  end)
end

--- The place of a creation that came to nothing is free again; a rate stays spent. Once.
---@async
function Ticket:give_back()
  if not self.is_open then return end
  self.is_open = false
  if self.place then owe(self.ledger, without(self.place)) end
end

--- A task that is ended hard gives nothing back.
function Ticket:__gc()
  if not (self.is_open and self.place) then return end
  local owed = self.ledger.owed
  if #owed < OWED_MAX then owed[#owed + 1] = without(self.place) end
end

-- ---- calls and sandboxes ----

--- Takes note of a call of a principal, for `counts`.
---@async
---@param principal string
function Ledger:note_call(principal)
  local today = core.task.epoch_ms() // 1000 // DAY_S
  if self.noted_day ~= today then self.noted, self.noted_count, self.noted_day = {}, 0, today end
  self.noted[principal] = (self.noted[principal] or 0) + 1
  self.noted_count = self.noted_count + 1
  if self.noted_count % NOTED_MAX == 0 then self:flush() end
end

--- Writes what was noted and what is owed; at the end, so that nothing of it is lost.
---@async
function Ledger:flush()
  if self.noted_count > 0 or #self.owed > 0 then self:update(function() return true end) end
end

--- Changes what is kept of a sandbox. One that is not kept costs no writing.
local function change_sandbox(self, provider, id, change)
  local data, key = self:read(), page.key(provider, id)
  if data and not data.sandboxes[key] and #self.owed == 0 then return end
  owe(self, function(now_data, now_ms) change(now_data, key, now_ms // 1000) end)
end

--- A sandbox is no more.
---@async
---@param provider string
---@param id string
function Ledger:sandbox_ended(provider, id)
  change_sandbox(self, provider, id, page.end_sandbox)
end

--- A sandbox ends at another time.
---@async
---@param provider string
---@param id string
---@param ends_s integer  since 1970
function Ledger:sandbox_extended(provider, id, ends_s)
  change_sandbox(self, provider, id, function(data, key)
    local entry = data.sandboxes[key]
    if entry then entry.ends_s = ends_s end
  end)
end

--- Who made a sandbox; nil for one that is not kept, and where that cannot be told.
---@param provider string
---@param id string
---@return string? principal
function Ledger:owner(provider, id)
  local data = self:read()
  local entry = data and data.sandboxes[page.key(provider, id)]
  return entry and entry.principal
end

--- How much of a counter is spent; nil where that cannot be told.
---@param item demilune.ledger.Item
---@param who { principal: string, tasks?: integer }
---@return integer? spent
---@return integer? retry_after
function Ledger:spent(item, who)
  local data = self:read()
  if data then return page.spent(data, item, who, core.task.epoch_ms()) end
end

--- What a policy's functions are told of a principal. Raises `internal` where that cannot be told: no numbers would let pass
--- what the real ones stop.
---@param who { principal: string, tasks?: integer }
---@return { sandboxes: integer, tasks: integer, calls: integer, sandbox_seconds_today: integer }
function Ledger:counts(who)
  local data, now_ms = self:read(), core.task.epoch_ms()
  if not data then errors.raise("internal", { message = "The counters of the policy cannot be read." }, self.fault) end
  local counts = page.counts(data, who, now_ms)
  if self.noted_day == now_ms // 1000 // DAY_S then counts.calls = counts.calls + (self.noted[who.principal] or 0) end
  return counts
end

return ledgers
