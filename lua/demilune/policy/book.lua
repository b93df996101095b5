--- policy/book.lua - counters in memory, for calls that are only rehearsed. The face of ledger.lua, with a clock that the
-- caller sets.
--
-- What is counted is what would have happened: an allowed creation lives for its lifetime, an allowed task runs on.
local errors = require "demilune.errors"

local book = {}

local DAY_S = 86400
--- Entries of one book; a file of cases that goes beyond is no file of cases.
local ENTRIES_MAX = 100000

---@class demilune.policy.Book
---@field now_s integer     what time it is
---@field calls table<string, integer[]>  times of calls by counter
---@field sandboxes { principal: string, created_s: integer, ends_s: integer }[]
---@field tasks table<string, integer>    running, by principal
local Book = {}
Book.__index = Book

--- An empty one.
---@param now_s integer
---@return demilune.policy.Book
function book.new(now_s)
  return setmetatable({ now_s = now_s, calls = {}, sandboxes = {}, tasks = {}, entries = 0 }, Book)
end

local function is_of(item, principal, owner)
  return item.scope == "server" or owner == principal
end

local function living(self, item, principal)
  local count = 0
  for _, sandbox in ipairs(self.sandboxes) do
    local lives = sandbox.created_s <= self.now_s and self.now_s < sandbox.ends_s
    if lives and is_of(item, principal, sandbox.principal) then count = count + 1 end
  end
  return count
end

local function lived_today(self, item, principal)
  local midnight, total = self.now_s - self.now_s % DAY_S, 0
  for _, sandbox in ipairs(self.sandboxes) do
    if is_of(item, principal, sandbox.principal) then
      local from, to = math.max(sandbox.created_s, midnight), math.min(sandbox.ends_s, self.now_s)
      total = total + math.max(0, to - from)
    end
  end
  return total
end

local function key_of(item, principal)
  return item.rule .. "\0" .. (item.scope == "server" and "" or principal)
end

--- Calls within the window, and when the first of them leaves it.
local function recent(self, item, principal)
  local count, first = 0, nil
  for _, at in ipairs(self.calls[key_of(item, principal)] or {}) do
    if at > self.now_s - item.per_s and at <= self.now_s then
      count, first = count + 1, first or at
    end
  end
  return count, first and first + item.per_s - self.now_s
end

local function running(self, item, principal, tasks)
  if item.scope ~= "server" then return (self.tasks[principal] or 0) + (tasks or 0) end
  local total = tasks or 0
  for _, count in pairs(self.tasks) do total = total + count end
  return total
end

--- How much of a counter is spent, before the call in question.
---@param item { kind: string, rule: string, most: integer, per_s?: integer, scope?: string }
---@param who { principal: string, tasks?: integer }
---@return integer spent
---@return integer? retry_after  of a rate: seconds until a place is free
function Book:spent(item, who)
  if item.kind == "rate" then return recent(self, item, who.principal) end
  if item.kind == "sandboxes" then return living(self, item, who.principal) end
  if item.kind == "tasks" then return running(self, item, who.principal, who.tasks) end
  return lived_today(self, item, who.principal)
end

local function note_call(self, item, principal)
  self.entries = self.entries + 1
  if self.entries > ENTRIES_MAX then
    errors.raise("invalid_argument", { message = "There are too many calls in one file; split it.", is_usage = true })
  end
  local key = key_of(item, principal)
  local list = self.calls[key] or {}
  self.calls[key] = list
  list[#list + 1] = self.now_s
end

local Ticket = {}
Ticket.__index = Ticket

--- The call was made; `sandbox` is what it created.
---@param sandbox? { principal: string, created_s: integer, ends_s: integer }
function Ticket:keep(sandbox)
  if self.is_done then return end
  self.is_done = true
  if sandbox then self.book.sandboxes[#self.book.sandboxes + 1] = sandbox end
end

--- The call was not made. What a rate spent stays spent.
function Ticket:give_back() self.is_done = true end

--- Takes all of the places, or none.
---@param list table[]  reservations of rules.decide
---@param who { principal: string, tasks?: integer }
---@return table? ticket
---@return table? refusal  { rule, kind, category, most, retry_after? }
function Book:reserve(list, who)
  for _, item in ipairs(list) do
    local spent, retry_after = self:spent(item, who)
    if spent >= item.most then
      return nil, {
        rule = item.rule, kind = item.kind, most = item.most, retry_after = retry_after,
        category = item.kind == "rate" and "rate_limited" or "quota_exceeded",
      }
    end
  end
  for _, item in ipairs(list) do
    if item.kind == "rate" then note_call(self, item, who.principal) end
  end
  return setmetatable({ book = self }, Ticket)
end

--- The first living sandbox of a principal ends now.
---@param principal string
function Book:end_one(principal)
  for _, sandbox in ipairs(self.sandboxes) do
    if sandbox.principal == principal and self.now_s < sandbox.ends_s then
      sandbox.ends_s = self.now_s
      return
    end
  end
end

--- A background task of a principal runs from now on.
---@param principal string
function Book:task_started(principal)
  self.tasks[principal] = (self.tasks[principal] or 0) + 1
end

--- What `before` sees of the counters.
---@param who { principal: string, tasks?: integer }
---@return { sandboxes: integer, tasks: integer, calls: integer, sandbox_seconds_today: integer }
function Book:counts(who)
  return {
    sandboxes = living(self, {}, who.principal), tasks = running(self, {}, who.principal, who.tasks), calls = 0,
    sandbox_seconds_today = lived_today(self, {}, who.principal),
  }
end

return book
