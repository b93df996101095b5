--- ledger/page.lua - what is counted, as plain data: calls of late, sandboxes that live, seconds that were lived today.
--
-- Pure: no file and no clock of its own. A rate is counted in slices of its stretch, and a slice that has only half left the
-- stretch still counts in whole, so that there are never more calls than allowed in any stretch, and sometimes fewer. All
-- bounds together stay below what core.json decodes at once: a page that is full can still be read.
local page = {}

local DAY_S = 86400
--- Slices of a stretch.
local SLICES = 60
--- A sandbox that should have ended is still counted for so long: its service may be late.
local LATE_S = 60
--- What is kept at most; beyond it places are refused.
local SANDBOXES_MAX, PENDING_MAX, RATES_MAX, PRINCIPALS_MAX = 10000, 2048, 4096, 10000
--- A sandbox of which no end is known is taken for ended after so long.
local UNKNOWN_LIFE_S = DAY_S
--- A creation under way is given up after so long.
local PENDING_S = 900
--- Between the parts of a key; no name has it.
local SEPARATOR = "\31"
--- All principals together that came after the last one with a count of its own.
local OTHERS = SEPARATOR
--- Larger numbers are no counts and no times of ours.
local NUMBER_MAX = 1 << 53

---@class demilune.ledger.Item
---@field kind "rate"|"sandboxes"|"tasks"|"sandbox_seconds"
---@field rule string
---@field most integer
---@field per_s? integer  of a rate
---@field scope? "principal"|"server"

---@class demilune.ledger.Sandbox
---@field principal string
---@field created_s integer  since 1970
---@field ends_s? integer    since 1970
---@field pid? integer   of the server with which it ends; nil for one that outlives its server
---@field start? string  of that process

---@class demilune.ledger.Place
---@field principal string
---@field pid integer   of the server that creates
---@field start string  of that process, see is_alive of page.prune
---@field at_s integer  since 1970

--- An empty page.
---@return table
function page.new()
  return { rates = {}, sandboxes = {}, pending = {}, day = 0, lived = {}, calls = {} }
end

-- ---- the form ----

local function is_number(value) return math.type(value) == "integer" and value >= 0 and value <= NUMBER_MAX end

--- A rate is one text: the width of its slices in ms, then number=calls of each, oldest first.
local function is_rate(value)
  return type(value) == "string" and value:find "^[1-9]%d* %d+=%d+[%d= ]*$" ~= nil and not value:find(("%d"):rep(16))
end

local FORMS = {
  rates = is_rate, lived = is_number, calls = is_number,
  sandboxes = function(value)
    return type(value) == "table" and type(value.principal) == "string" and is_number(value.created_s)
      and (value.ends_s == nil or is_number(value.ends_s))
      and (value.pid == nil or (is_number(value.pid) and type(value.start) == "string"))
  end,
  pending = function(value)
    return type(value) == "table" and type(value.principal) == "string" and is_number(value.pid)
      and type(value.start) == "string" and is_number(value.at_s)
  end,
}

--- Whether a value has the form of a page, all that is in it too.
---@param data any
---@return boolean
function page.is_one(data)
  if type(data) ~= "table" or not is_number(data.day) then return false end
  for name, is_form in pairs(FORMS) do
    if type(data[name]) ~= "table" then return false end
    for key, value in pairs(data[name]) do
      if type(key) ~= "string" or not is_form(value) then return false end
    end
  end
  return true
end

--- Under which a sandbox is kept.
---@param provider string
---@param id string
---@return string
function page.key(provider, id) return provider .. SEPARATOR .. id end

local function size_of(map)
  local count = 0
  for _ in pairs(map) do count = count + 1 end
  return count
end

--- Adds to what a principal has.
local function add_to(map, principal, count)
  local key = (map[principal] or size_of(map) < PRINCIPALS_MAX) and principal or OTHERS
  map[key] = (map[key] or 0) + count
end

-- ---- rates ----

local function rate_key(item, principal)
  return item.rule .. SEPARATOR .. (item.scope == "server" and "" or principal)
end

--- All slices together are at least as long as the stretch.
local function width_of(item) return (item.per_s * 1000 + SLICES - 1) // SLICES end

--- Calls in the stretch that ends now, and the slices, oldest first. After a change of the rule's `per` what was counted
--- counts on, as late as it can have been.
local function recent(data, item, principal, now_ms)
  local text, width = data.rates[rate_key(item, principal)], width_of(item)
  local oldest, count, slices = now_ms // width - SLICES, 0, {}
  local was_width = text and math.tointeger(tonumber(text:match "^%d+"))
  for number, calls in (text or ""):gmatch "(%d+)=(%d+)" do
    number, calls = math.tointeger(tonumber(number)), math.tointeger(tonumber(calls))
    if was_width ~= width then number = ((number + 1) * was_width - 1) // width end
    if number >= oldest then
      count = count + calls
      slices[#slices + 1] = { number = number, calls = calls }
    end
  end
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
  local width = width_of(item)
  local _, slices = recent(data, item, principal, now_ms)
  slices[#slices + 1] = { number = now_ms // width, calls = 1 }
  -- The clock may have been set back.
  table.sort(slices, function(a, b) return a.number < b.number end)
  local parts = { tostring(width) }
  for i, slice in ipairs(slices) do
    local next_slice = slices[i + 1]
    if next_slice and next_slice.number == slice.number then next_slice.calls = next_slice.calls + slice.calls
    else parts[#parts + 1] = ("%d=%d"):format(slice.number, slice.calls) end
  end
  data.rates[rate_key(item, principal)] = table.concat(parts, " ")
end

--- Whether the newest slice of a rate has left its stretch.
local function is_over(rate, now_ms)
  local width, last = rate:match "^(%d+).* (%d+)=%d+$"
  width, last = math.tointeger(tonumber(width)), math.tointeger(tonumber(last))
  return last ~= nil and last < now_ms // width - SLICES
end

-- ---- sandboxes ----

local function midnight(now_s) return now_s - now_s % DAY_S end

local function ends_of(entry) return entry.ends_s or entry.created_s + UNKNOWN_LIFE_S end

local function lived_today(entry, now_s)
  return math.max(0, math.min(ends_of(entry), now_s) - math.max(entry.created_s, midnight(now_s)))
end

--- Takes a sandbox out; what it lived today stays counted.
---@param data table
---@param key string  of page.key
---@param now_s integer
function page.end_sandbox(data, key, now_s)
  local entry = data.sandboxes[key]
  if not entry then return end
  local lived = lived_today(entry, now_s)
  if lived > 0 then add_to(data.lived, entry.principal, lived) end
  data.sandboxes[key] = nil
end

--- Puts a sandbox in. Where no rule counts sandboxes, nothing refuses one too many: the one that ends first gives way.
---@param data table
---@param key string  of page.key
---@param entry demilune.ledger.Sandbox
---@param now_s integer
function page.add_sandbox(data, key, entry, now_s)
  if not data.sandboxes[key] and size_of(data.sandboxes) >= SANDBOXES_MAX then
    local first
    for other, known in pairs(data.sandboxes) do
      if not first or ends_of(known) < ends_of(data.sandboxes[first]) then first = other end
    end
    page.end_sandbox(data, first, now_s)
  end
  data.sandboxes[key] = entry
end

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

-- ---- what is over ----

local function begin_day(data, now_s)
  local today = now_s // DAY_S
  if data.day == today then return end
  data.day, data.lived, data.calls = today, {}, {}
end

--- `is_alive`, asked once for each process.
local function asking_once(is_alive)
  local known = {}
  return function(pid, start)
    local key = pid .. SEPARATOR .. start
    if known[key] == nil then known[key] = is_alive(pid, start) end
    return known[key]
  end
end

--- Drops what is over. `is_alive(pid, start)` tells whether a process that reserved a place, or holds a sandbox, is still
--- there.
---@param data table
---@param now_ms integer  since 1970
---@param is_alive fun(pid: integer, start: string): boolean
function page.prune(data, now_ms, is_alive)
  local now_s, lives = now_ms // 1000, asking_once(is_alive)
  begin_day(data, now_s)
  for key, entry in pairs(data.sandboxes) do
    local is_orphan = entry.pid ~= nil and not lives(entry.pid, entry.start)
    if is_orphan or ends_of(entry) + LATE_S < now_s then page.end_sandbox(data, key, now_s) end
  end
  for key, place in pairs(data.pending) do
    if place.at_s + PENDING_S < now_s or not lives(place.pid, place.start) then data.pending[key] = nil end
  end
  for key, rate in pairs(data.rates) do
    if is_over(rate, now_ms) then data.rates[key] = nil end
  end
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

--- Whether there is no room left to keep what would be counted.
local IS_FULL = {
  rate = function(data, item, who)
    return data.rates[rate_key(item, who.principal)] == nil and size_of(data.rates) >= RATES_MAX
  end,
  sandboxes = function(data)
    return size_of(data.sandboxes) >= SANDBOXES_MAX or size_of(data.pending) >= PENDING_MAX
  end,
  tasks = function() return false end,
}

function IS_FULL.sandbox_seconds(data, item, who)
  local is_new = data.lived[who.principal] == nil
  return IS_FULL.sandboxes(data, item, who) or (is_new and size_of(data.lived) >= PRINCIPALS_MAX)
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
    if spent >= item.most or IS_FULL[item.kind](data, item, who) then
      local is_paced = item.kind == "rate"
      return {
        rule = item.rule, kind = item.kind, most = item.most, retry_after = is_paced and (retry_after or item.per_s) or nil,
        category = is_paced and "rate_limited" or "quota_exceeded",
      }
    end
  end
end

local IS_CREATION = { sandboxes = true, sandbox_seconds = true }

--- Spends what a list asks for: its rates, and `place` where it is about a creation.
---@param data table
---@param list demilune.ledger.Item[]
---@param place { name: string, owner: demilune.ledger.Place }
---@param now_ms integer
---@return boolean is_placed
---@return boolean is_paced  a rate was spent
function page.spend(data, list, place, now_ms)
  local is_placed, is_paced = false, false
  for _, item in ipairs(list) do
    if item.kind == "rate" then
      add_call(data, item, place.owner.principal, now_ms)
      is_paced = true
    end
    is_placed = is_placed or IS_CREATION[item.kind] == true
  end
  if is_placed then data.pending[place.name] = place.owner end
  return is_placed, is_paced
end

-- ---- counts ----

--- Notes calls of a principal. Those of principals beyond the bound are counted together, and each is told the sum.
---@param data table
---@param principal string
---@param count integer
function page.add_calls(data, principal, count) add_to(data.calls, principal, count) end

--- What a policy's functions are told of a principal.
---@param data table  pruned
---@param who { principal: string, tasks?: integer }
---@param now_ms integer
---@return { sandboxes: integer, tasks: integer, calls: integer, sandbox_seconds_today: integer }
function page.counts(data, who, now_ms)
  local item = { scope = "principal" }
  return {
    sandboxes = count_of(data.sandboxes, item, who.principal) + count_of(data.pending, item, who.principal),
    tasks = who.tasks or 0, calls = data.calls[who.principal] or data.calls[OTHERS] or 0,
    sandbox_seconds_today = seconds_today(data, item, who.principal, now_ms // 1000),
  }
end

return page
