--- ledger/page.lua - what is counted, as plain data: calls of late, sandboxes that live, seconds that were lived today.
--
-- Pure: no file and no clock of its own. A rate is counted in slices of its stretch, and a slice that has only half left the
-- stretch still counts in whole, so that there are never more calls than allowed in any stretch, and sometimes fewer.
local page = {}

local DAY_S = 86400
--- Slices of a stretch.
local SLICES = 60
--- A sandbox that should have ended is still counted for so long: its service may be late.
local LATE_S = 60
--- What is kept at most; beyond it places are refused.
local SANDBOXES_MAX, PENDING_MAX, RATES_MAX = 10000, 2048, 20000
--- A sandbox of which no end is known is taken for ended after so long.
local UNKNOWN_LIFE_S = DAY_S
--- A creation under way is given up after so long.
local PENDING_S = 900
--- Between the parts of a key; no name has it.
local SEPARATOR = "\31"

---@class demilune.ledger.Item
---@field kind "rate"|"sandboxes"|"tasks"|"sandbox_seconds"
---@field rule string
---@field most integer
---@field per_s? integer  of a rate
---@field scope? "principal"|"server"

--- An empty page.
---@return table
function page.new()
  return { rates = {}, sandboxes = {}, pending = {}, day = 0, lived = {}, calls = {} }
end

--- Whether a value has the form of a page.
---@param data any
---@return boolean
function page.is_one(data)
  if type(data) ~= "table" or math.type(data.day) ~= "integer" then return false end
  for _, name in ipairs { "rates", "sandboxes", "pending", "lived", "calls" } do
    if type(data[name]) ~= "table" then return false end
  end
  return true
end

--- The key of a sandbox.
---@param provider string
---@param id string
---@return string
function page.key(provider, id) return provider .. SEPARATOR .. id end

local function midnight(now_s) return now_s - now_s % DAY_S end

local function ends_of(entry) return entry.ends_s or entry.created_s + UNKNOWN_LIFE_S end

local function lived_today(entry, now_s)
  return math.max(0, math.min(ends_of(entry), now_s) - math.max(entry.created_s, midnight(now_s)))
end

--- Takes a sandbox out; what it lived today stays counted.
---@param data table
---@param key string
---@param now_s integer
function page.end_sandbox(data, key, now_s)
  local entry = data.sandboxes[key]
  if not entry then return end
  data.lived[entry.principal] = (data.lived[entry.principal] or 0) + lived_today(entry, now_s)
  data.sandboxes[key] = nil
end

local function begin_day(data, now_s)
  local today = now_s // DAY_S
  if data.day == today then return end
  data.day, data.lived, data.calls = today, {}, {}
end

--- Drops what is over. `is_alive(pid, start)` tells whether a process that reserved a place is still there.
---@param data table
---@param now_s integer
---@param is_alive fun(pid: integer, start: string): boolean
function page.prune(data, now_s, is_alive)
  begin_day(data, now_s)
  for key, entry in pairs(data.sandboxes) do
    if ends_of(entry) + LATE_S < now_s then page.end_sandbox(data, key, now_s) end
  end
  for key, entry in pairs(data.pending) do
    if entry.at_s + PENDING_S < now_s or not is_alive(entry.pid, entry.start) then data.pending[key] = nil end
  end
end

-- ---- rates ----

local function rate_key(item, principal)
  return item.rule .. SEPARATOR .. (item.scope == "server" and "" or principal)
end

local function width_of(item) return math.max(1, item.per_s * 1000 // SLICES) end

--- Calls in the stretch that ends now, and the slices, oldest first.
local function recent(data, item, principal, now_ms)
  local rate, width = data.rates[rate_key(item, principal)], width_of(item)
  local oldest, count, slices = now_ms // width - SLICES, 0, {}
  if not rate or rate.width ~= width then return 0, slices end
  for index, calls in pairs(rate.slices) do
    local number = math.tointeger(tonumber(index))
    if number and number >= oldest then
      count = count + calls
      slices[#slices + 1] = { number = number, calls = calls }
    end
  end
  table.sort(slices, function(a, b) return a.number < b.number end)
  return count, slices
end

--- Seconds until so many slices have left the stretch that one call more fits.
local function wait_s(item, slices, count, now_ms)
  local width = width_of(item)
  for _, slice in ipairs(slices) do
    count = count - slice.calls
    if count < item.most then return math.max(1, ((slice.number + SLICES + 1) * width - now_ms + 999) // 1000) end
  end
  return item.per_s
end

local function add_call(data, item, principal, now_ms)
  local key, width = rate_key(item, principal), width_of(item)
  local _, slices = recent(data, item, principal, now_ms)
  local kept = {}
  for _, slice in ipairs(slices) do kept[tostring(slice.number)] = slice.calls end
  local index = tostring(now_ms // width)
  kept[index] = (kept[index] or 0) + 1
  data.rates[key] = { width = width, slices = kept, until_s = (now_ms + item.per_s * 1000) // 1000 + 1 }
end

--- Drops rates whose stretch is over. Returns how many are left.
local function prune_rates(data, now_s)
  local count = 0
  for key, rate in pairs(data.rates) do
    if rate.until_s < now_s then data.rates[key] = nil else count = count + 1 end
  end
  return count
end

-- ---- sandboxes ----

local function is_of(item, principal, owner) return item.scope == "server" or owner == principal end

local function count_of(map, item, principal)
  local count = 0
  for _, entry in pairs(map) do
    if is_of(item, principal, entry.principal) then count = count + 1 end
  end
  return count
end

--- Seconds lived today by the sandboxes of a principal, or by all.
local function seconds_today(data, item, principal, now_s)
  local total = 0
  for owner, seconds in pairs(data.lived) do
    if is_of(item, principal, owner) then total = total + seconds end
  end
  for _, entry in pairs(data.sandboxes) do
    if is_of(item, principal, entry.principal) then total = total + lived_today(entry, now_s) end
  end
  return total
end

local function size_of(map)
  local count = 0
  for _ in pairs(map) do count = count + 1 end
  return count
end

-- ---- reserving ----

--- How much of each kind is spent, before the call in question; of a rate also how long to wait when it is all.
local SPENT = {
  rate = function(data, item, who, now_ms)
    local count, slices = recent(data, item, who.principal, now_ms)
    return count, count >= item.most and wait_s(item, slices, count, now_ms) or nil
  end,
  sandboxes = function(data, item, who)
    return count_of(data.sandboxes, item, who.principal) + count_of(data.pending, item, who.principal)
  end,
  tasks = function(_, _, who) return who.tasks or 0 end,
  sandbox_seconds = function(data, item, who, now_ms) return seconds_today(data, item, who.principal, now_ms // 1000) end,
}

--- How much of a counter is spent.
---@param data table
---@param item demilune.ledger.Item
---@param who { principal: string, tasks?: integer }
---@param now_ms integer
---@return integer spent
---@return integer? retry_after  seconds
function page.spent(data, item, who, now_ms) return SPENT[item.kind](data, item, who, now_ms) end

local function is_full(data, item, now_s)
  if item.kind == "rate" then return prune_rates(data, now_s) >= RATES_MAX end
  return size_of(data.sandboxes) >= SANDBOXES_MAX or size_of(data.pending) >= PENDING_MAX
end

--- The first counter that has no place left, as a refusal; nil where all have. Spends nothing.
---@param data table
---@param list demilune.ledger.Item[]
---@param who { principal: string, tasks?: integer }
---@param now_ms integer
---@return table? refusal  { rule, kind, category, most, retry_after? }
function page.refusal(data, list, who, now_ms)
  for _, item in ipairs(list) do
    local spent, retry_after = page.spent(data, item, who, now_ms)
    if spent >= item.most or is_full(data, item, now_ms // 1000) then
      local is_rate = item.kind == "rate"
      return {
        rule = item.rule, kind = item.kind, most = item.most, retry_after = is_rate and (retry_after or item.per_s) or nil,
        category = is_rate and "rate_limited" or "quota_exceeded",
      }
    end
  end
end

--- Spends the rates of a list.
---@param data table
---@param list demilune.ledger.Item[]
---@param who { principal: string }
---@param now_ms integer
function page.spend(data, list, who, now_ms)
  for _, item in ipairs(list) do
    if item.kind == "rate" then add_call(data, item, who.principal, now_ms) end
  end
end

--- What a policy's functions are told of a principal.
---@param data table
---@param who { principal: string, tasks?: integer }
---@param now_s integer
---@return { sandboxes: integer, tasks: integer, calls: integer, sandbox_seconds_today: integer }
function page.counts(data, who, now_s)
  local item = { scope = "principal" }
  local is_today = data.day == now_s // DAY_S
  return {
    sandboxes = count_of(data.sandboxes, item, who.principal), tasks = who.tasks or 0,
    calls = is_today and data.calls[who.principal] or 0,
    sandbox_seconds_today = is_today and seconds_today(data, item, who.principal, now_s) or 0,
  }
end

return page
