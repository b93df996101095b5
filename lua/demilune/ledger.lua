--- ledger.lua - the counters of rates and quotas, kept across reloads, restarts and the several servers of one user.
--
-- One private file a configuration. Whoever changes it holds a lock, reads it, and puts a new one in its place; the lock is
-- never held over a wait. A file that cannot be read or written refuses what it should count: counting anew would forget what
-- was spent. The way out is the operator's, to mend or remove the file, and the log names it.
local core = require "demilune.core"
local page = require "demilune.ledger.page"

local json = core.json
local ledgers = {}

local FILE_BYTES_MAX = 16 * 1024 * 1024
--- How long the lock is waited for, and how long between two tries.
local LOCK_WAIT_MS, LOCK_TRY_MS = 1000, 2
--- Calls of a principal are noted here and written with what is written next; at the latest after so many.
local NOTED_MAX = 1000

---@class demilune.Ledger
---@field path string
---@field text? string  what the file held when it was last read or written
---@field data? table   the same, decoded
local Ledger = {}
Ledger.__index = Ledger

--- A place that was reserved.
---@class demilune.Ticket
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

local function now_s() return core.task.epoch_ms() // 1000 end

--- Makes it; the file is made when there is something to keep.
---@param path string
---@return demilune.Ledger
function ledgers.open(path)
  return setmetatable({ path = path, pid = core.sys.pid(), start = start_of(core.sys.pid()) or "", noted = {}, noted_count = 0 },
    Ledger)
end

local function fail(self, what)
  local text = ("the counters in %s %s; calls that they should count are denied until it is mended or removed"):format(
    self.path, what)
  if self.fault ~= text then core.log.error(text) end
  self.fault = text
  return nil
end

--- The present page, or nil where there is none that can be used.
---@return table?
function Ledger:read()
  local text, err = core.fs.read(self.path, FILE_BYTES_MAX)
  if not text and err.category == "file_not_found" then
    self.text, self.data = nil, page.new()
    return self.data
  end
  if not text then return fail(self, "cannot be read") end
  if text ~= self.text then
    local data = json.decode(text)
    if not page.is_one(data) then return fail(self, "are damaged") end
    self.text, self.data = text, data
  end
  self.fault = nil
  return self.data
end

local function write(self, data)
  for principal, count in pairs(self.noted) do data.calls[principal] = (data.calls[principal] or 0) + count end
  self.noted, self.noted_count = {}, 0
  local text = json.encode(data)
  local ok = core.fs.write(self.path, text)
  -- After a failure the data here is not what the file holds.
  self.text, self.data = ok and text or nil, ok and data or nil
  if not ok then return fail(self, "cannot be written") end
  return true
end

local function lock(self)
  local deadline_ms = core.task.now_ms() + LOCK_WAIT_MS
  while true do
    local held = core.fs.lock(self.path .. ".lock")
    if held then return held end
    if core.task.now_ms() >= deadline_ms then return fail(self, "stay locked") end
    core.task.sleep(LOCK_TRY_MS)
  end
end

--- Changes the page: `change(data)` works on it and returns whether it is to be written, and what this returns. Nil where
--- the file cannot be used.
---@async
---@param change fun(data: table, now_ms: integer): boolean, any
---@return boolean? is_done
---@return any result
function Ledger:update(change)
  local held <close> = lock(self)
  local data = held and self:read()
  if not data then return nil end
  page.prune(data, now_s(), is_alive)
  local is_changed, result = change(data, core.task.epoch_ms())
  if is_changed and not write(self, data) then return nil end
  return true, result
end

local IS_CREATION = { sandboxes = true, sandbox_seconds = true }

local function unavailable(list)
  return { rule = list[1] and list[1].rule, kind = "unavailable", category = "policy_denied" }
end

local function wants_place(list)
  for _, item in ipairs(list) do
    if IS_CREATION[item.kind] then return true end
  end
  return false
end

--- Reserves all places of a list, or none.
---@async
---@param list demilune.ledger.Item[]
---@param who { principal: string, tasks?: integer }
---@return demilune.Ticket? ticket
---@return table? refusal  { rule, kind, category, most, retry_after? }; kind "unavailable" where the file cannot be used
function Ledger:reserve(list, who)
  local ticket = setmetatable({ ledger = self, principal = who.principal, is_open = true }, Ticket)
  if #list == 0 then return ticket end
  local done, refusal = self:update(function(data, now_ms)
    local refused = page.refusal(data, list, who, now_ms)
    if refused then return false, refused end
    page.spend(data, list, who, now_ms)
    if wants_place(list) then
      ticket.place = core.crypto.id(16)
      data.pending[ticket.place] = { principal = who.principal, pid = self.pid, start = self.start, at_s = now_ms // 1000 }
    end
    return true
  end)
  if not done then return nil, unavailable(list) end
  if refusal then return nil, refusal end
  return ticket
end

--- The creation worked: its place becomes the sandbox. Nothing for a call that created none. Once.
---@async
---@param sandbox? { provider: string, id: string, principal: string, created_s: integer, ends_s?: integer }
function Ticket:keep(sandbox)
  if not self.is_open then return end
  self.is_open = false
  if not sandbox then return self:leave() end
  self.ledger:update(function(data)
    if self.place then data.pending[self.place] = nil end
    data.sandboxes[page.key(sandbox.provider, sandbox.id)] = {
      principal = sandbox.principal, created_s = sandbox.created_s, ends_s = sandbox.ends_s,
    }
    return true
  end)
end

--- Frees the place.
---@async
function Ticket:leave()
  local place = self.place
  if not place then return end
  self.place = nil
  self.ledger:update(function(data)
    data.pending[place] = nil
    return true
  end)
end

--- The call came to nothing: its place is free again; a rate stays spent. Once.
---@async
function Ticket:give_back()
  if not self.is_open then return end
  self.is_open = false
  self:leave()
end

--- Takes note of a call of a principal, for `counts`.
---@async
---@param principal string
function Ledger:note_call(principal)
  self.noted[principal] = (self.noted[principal] or 0) + 1
  self.noted_count = self.noted_count + 1
  if self.noted_count >= NOTED_MAX then self:flush() end
end

--- Writes what was noted.
---@async
function Ledger:flush()
  if self.noted_count > 0 then self:update(function() return true end) end
end

--- A sandbox is no more.
---@async
---@param provider string
---@param id string
function Ledger:sandbox_ended(provider, id)
  local key = page.key(provider, id)
  if not self:entry(provider, id) then return end
  self:update(function(data, now_ms)
    page.end_sandbox(data, key, now_ms // 1000)
    return true
  end)
end

--- A sandbox ends at another time.
---@async
---@param provider string
---@param id string
---@param ends_s integer  since 1970
function Ledger:sandbox_extended(provider, id, ends_s)
  if not self:entry(provider, id) then return end
  self:update(function(data)
    local entry = data.sandboxes[page.key(provider, id)]
    if entry then entry.ends_s = ends_s end
    return entry ~= nil
  end)
end

--- What is kept of a sandbox.
---@param provider string
---@param id string
---@return table?
function Ledger:entry(provider, id)
  local data = self:read()
  return data and data.sandboxes[page.key(provider, id)]
end

--- Who made a sandbox; nil for one that is not counted.
---@param provider string
---@param id string
---@return string? principal
function Ledger:owner(provider, id)
  local entry = self:entry(provider, id)
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

--- What a policy's functions are told of a principal.
---@param who { principal: string, tasks?: integer }
---@return { sandboxes: integer, tasks: integer, calls: integer, sandbox_seconds_today: integer }
function Ledger:counts(who)
  local counts = page.counts(self:read() or page.new(), who, now_s())
  counts.calls = counts.calls + (self.noted[who.principal] or 0)
  return counts
end


return ledgers
