--- policy/approvals.lua - questions that wait for an operator, and what was answered: bookkeeping alone.
--
-- A question is about one call of one principal, asked by one rule of one version of a policy; its answer is taken once, by
-- that call when it comes again. The book outlives a reload: what was asked under another version just matches nothing.
local core = require "demilune.core"

local approvals = {}

local TTL_S = 300
local MAX = 256
local ID_CHARACTERS = 16
--- Of the arguments, this much is kept for whoever decides.
local SHOWN_BYTES = 16 * 1024

---@class demilune.Approval
---@field id string
---@field key string        of what it is about
---@field principal string
---@field tool string
---@field rule string
---@field version string
---@field question string
---@field shown table       what a person is shown: tool, arguments (JSON text), sandbox, provider
---@field opened_ms integer
---@field ends_ms integer
---@field answer? "approved"|"refused"

---@class demilune.Approvals
---@field ttl_ms integer
---@field max integer
---@field clock fun(): integer  milliseconds
---@field list_in_order demilune.Approval[]  oldest first
local Approvals = {}
Approvals.__index = Approvals

--- A book without questions.
---@param options? {ttl_s?: integer, max?: integer, clock?: fun(): integer}  ttl_s: how long a question, and then its answer,
---  is good; max: questions kept; clock: milliseconds that only grow
---@return demilune.Approvals
function approvals.new(options)
  options = options or {}
  return setmetatable({
    ttl_ms = (options.ttl_s or TTL_S) * 1000, max = options.max or MAX, clock = options.clock or core.task.now_ms,
    list_in_order = {},
  }, Approvals)
end

local function key_of(principal, tool, digest, rule, version)
  return table.concat({ principal, tool, digest, rule, version }, "\0")
end

local function find(self, name, value)
  for i, entry in ipairs(self.list_in_order) do
    if entry[name] == value then return entry, i end
  end
end

--- Drops what ended so long ago that nobody asks about it any more.
local function prune(self)
  local kept, now_ms = {}, self.clock()
  for _, entry in ipairs(self.list_in_order) do
    if now_ms < entry.ends_ms + self.ttl_ms then kept[#kept + 1] = entry end
  end
  self.list_in_order = kept
end

--- Makes room for one: what has ended goes first, then the oldest question, then the oldest answer.
local function make_room(self)
  local list, now_ms = self.list_in_order, self.clock()
  while #list >= self.max do
    local victim
    for i, entry in ipairs(list) do
      if now_ms >= entry.ends_ms then
        victim = i
        break
      end
      if not entry.answer and not victim then victim = i end
    end
    table.remove(list, victim or 1)
  end
end

local function cut(shown)
  local out = {}
  for name, value in pairs(shown) do out[name] = value end
  if type(out.arguments) == "string" and #out.arguments > SHOWN_BYTES then
    out.arguments_bytes = #out.arguments
    out.arguments = core.text.head(out.arguments, SHOWN_BYTES)
  end
  return out
end

--- Opens a question. While one about the same waits, it is that one.
---@param fields {principal: string, tool: string, digest: string, rule: string, version: string, question: string, shown: table,
---  record_id?: string}  version: of the policy, exactly; record_id: of the audit, for `take`
---@return string id
function Approvals:open(fields)
  prune(self)
  local now_ms = self.clock()
  local key = key_of(fields.principal, fields.tool, fields.digest, fields.rule, fields.version)
  local known, at = find(self, "key", key)
  if known and now_ms < known.ends_ms then return known.id end
  if known then table.remove(self.list_in_order, at) end
  make_room(self)
  local entry = {
    id = "ap_" .. core.crypto.id(ID_CHARACTERS), key = key, principal = fields.principal, tool = fields.tool,
    rule = fields.rule, version = fields.version, question = fields.question, shown = cut(fields.shown),
    record_id = fields.record_id, opened_ms = now_ms, ends_ms = now_ms + self.ttl_ms,
  }
  table.insert(self.list_in_order, entry)
  return entry.id
end

--- Answers a question. The answer is then good as long again as a question is.
---@param id string
---@param is_approved boolean
---@return true?
---@return "no such"|"expired"|"decided already"|nil why
function Approvals:decide(id, is_approved)
  prune(self)
  local entry = find(self, "id", id)
  if not entry then return nil, "no such" end
  local now_ms = self.clock()
  if now_ms >= entry.ends_ms then return nil, "expired" end
  if entry.answer then return nil, "decided already" end
  entry.answer = is_approved and "approved" or "refused"
  entry.ends_ms = now_ms + self.ttl_ms
  return true
end

--- What was answered to the question about exactly this call. An answer is given out once.
---@param principal string
---@param tool string
---@param digest string
---@param rule string
---@param version string
---@return "approved"|"refused"|"pending"|nil answer
---@return {id: string, record_id?: string}? entry  of the question
function Approvals:take(principal, tool, digest, rule, version)
  local entry, at = find(self, "key", key_of(principal, tool, digest, rule, version))
  if not entry or self.clock() >= entry.ends_ms then return nil end
  if not entry.answer then return "pending", entry end
  table.remove(self.list_in_order, at)
  return entry.answer, entry
end

--- The questions that wait for an answer, oldest first.
---@return {id: string, principal: string, tool: string, rule: string, version: string, question: string, shown: table,
---  expires_in: integer}[]  expires_in: seconds
function Approvals:list()
  local out, now_ms = {}, self.clock()
  for _, entry in ipairs(self.list_in_order) do
    if not entry.answer and now_ms < entry.ends_ms then
      out[#out + 1] = {
        id = entry.id, principal = entry.principal, tool = entry.tool, rule = entry.rule, version = entry.version,
        question = entry.question, shown = entry.shown, expires_in = math.ceil((entry.ends_ms - now_ms) / 1000),
      }
    end
  end
  return out
end

return approvals
