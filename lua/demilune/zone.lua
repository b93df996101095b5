--- zone.lua - the local time of a time zone, for the time windows of a policy.
--
-- The C library knows the zones, but for one a process at a time: so a short-lived process of ours (src/fence/zone.c) says
-- when the offset changes in the years to come, and the rest is arithmetic that waits for nothing.

local core = require "demilune.core"

local zone = {}

local DAY = 86400
local SPAN_SECONDS = 800 * DAY
local NAME_BYTES_MAX = 64
local ANSWER_BYTES_MAX = 65536
local DEADLINE_MS = 5000
-- A zone that was loaded is used again so long; then a newer tzdata has its turn.
local KEPT_SECONDS = 3600
local KEPT_MAX = 64
-- Years 1 to 9999; what the process is asked for stays inside.
local EPOCH_MIN, EPOCH_MAX = -62135596800, 253402300799 - SPAN_SECONDS

--- A time zone over some years.
---@class demilune.Zone
---@field name string
---@field package from integer?      first second that is covered; none for UTC, which has no end
---@field package to integer?        last one
---@field package starts integer[]   where each offset begins, ascending
---@field package offsets integer[]  seconds east of UTC
local Zone = {}
Zone.__index = Zone

---@type table<string, { zone: demilune.Zone, loaded_s: integer }>
local kept, kept_count = {}, 0

local function unknown(name)
  return ('there is no time zone %s; write one such as "Europe/Berlin": /usr/share/zoneinfo has them all'):format(name)
end

local function is_name(name)
  return type(name) == "string" and #name <= NAME_BYTES_MAX and name:find "^[%w_+-][%w_+/-]*$" ~= nil
end

--- All that a process prints until its end, nil when that is too much or late.
local function read_all(fd, deadline_ms)
  local reader = core.sys.reader(fd)
  if not reader then
    core.sys.close(fd)
    return nil
  end
  local parts, size, is_good = {}, 0, true
  while is_good do
    local chunk, err = reader:read(math.max(0, deadline_ms - core.task.now_ms()))
    if not chunk then
      is_good = err == nil
      break
    end
    size = size + #chunk
    parts[#parts + 1] = chunk
    is_good = size <= ANSWER_BYTES_MAX
  end
  reader:close()
  return is_good and table.concat(parts) or nil
end

--- Runs the helper. Returns what it printed and its end, or nothing where it could not be run to its end.
local function ask(name, from, to)
  local read_fd, write_fd = core.sys.pipe()
  if not read_fd then return nil end
  local deadline_ms = core.task.now_ms() + DEADLINE_MS
  local child = core.process.start {
    argv = { core.sys.library_dir() .. "/demilune-fence", "--zone", name, tostring(from), tostring(to) },
    fds = { [1] = write_fd }, env = {},
  }
  core.sys.close(write_fd)
  if not child then
    core.sys.close(read_fd)
    return nil
  end
  local answer = read_all(read_fd, deadline_ms)
  local ended = answer and child:wait(math.max(0, deadline_ms - core.task.now_ms()))
  if not ended then child:kill() end
  return answer, ended
end

--- Lines "EPOCH OFFSET" as two lists, nil where they are something else.
local function parse(answer)
  local starts, offsets = {}, {}
  for line in answer:gmatch "[^\n]+" do
    local start, offset = line:match "^(%-?%d+) (%-?%d+)$"
    if not start then return nil end
    starts[#starts + 1], offsets[#offsets + 1] = math.tointeger(tonumber(start)), math.tointeger(tonumber(offset))
  end
  if #starts == 0 then return nil end
  return starts, offsets
end

--- Loads what is around a time into a zone. Returns whether it is there, and why not.
local function fill(self, around_s)
  local from = math.max(EPOCH_MIN, math.min(around_s, EPOCH_MAX)) - DAY
  local answer, ended = ask(self.name, from, from + SPAN_SECONDS)
  if ended and ended.code == 2 then return false, unknown(self.name) end
  local starts, offsets
  if ended and ended.code == 0 then starts, offsets = parse(answer) end
  if not starts then return false, ("the time zone %s could not be read just now"):format(self.name) end
  self.from, self.to, self.starts, self.offsets = from, from + SPAN_SECONDS, starts, offsets
  return true
end

local function covers(self, epoch_s) return not self.from or (epoch_s >= self.from and epoch_s <= self.to) end

--- The offset that holds at a time that is covered.
local function offset_at(self, epoch_s)
  local starts = self.starts
  local low, high = 1, #starts
  while low < high do
    local middle = (low + high + 1) // 2
    if starts[middle] <= epoch_s then low = middle else high = middle - 1 end
  end
  return self.offsets[low]
end

local function keep(self, loaded_s)
  if not kept[self.name] then
    if kept_count >= KEPT_MAX then kept, kept_count = {}, 0 end
    kept_count = kept_count + 1
  end
  kept[self.name] = { zone = self, loaded_s = loaded_s }
end

--- Loads a time zone; "UTC" waits for nothing.
---@async
---@param name string     of the zone data, such as "Europe/Berlin"
---@param from_s integer? seconds since 1970 that its first 800 days begin with, a day before; now without it
---@return demilune.Zone?
---@return string? why    a sentence for the operator
function zone.load(name, from_s)
  if name == "UTC" then return setmetatable({ name = name, starts = { 0 }, offsets = { 0 } }, Zone) end
  if not is_name(name) then return nil, unknown(tostring(name):sub(1, NAME_BYTES_MAX)) end
  local now_s = core.task.epoch_ms() // 1000
  local around_s, known = from_s or now_s, kept[name]
  if known and math.abs(now_s - known.loaded_s) < KEPT_SECONDS and covers(known.zone, around_s) then return known.zone end
  local self = setmetatable({ name = name }, Zone)
  local is_there, why = fill(self, around_s)
  if not is_there then return nil, why end
  keep(self, now_s)
  return self
end

---@class demilune.LocalTime
---@field wday integer           1 is Monday, 7 Sunday
---@field hour integer
---@field min integer
---@field minute_of_day integer  0 to 1439

--- The local time. Waits only for a time that is further off than the years that were loaded.
---@async
---@param epoch_s integer  seconds since 1970
---@return demilune.LocalTime?
---@return string? why     the years around that time could not be loaded
function Zone:local_time(epoch_s)
  if not covers(self, epoch_s) then
    if not core.task.current() then return nil, "the years around that time are not loaded" end
    local is_there, why = fill(self, epoch_s)
    if not is_there then return nil, why end
    if not covers(self, epoch_s) then return nil, "that time is none of the years 1 to 9999" end
  end
  local seconds = epoch_s + offset_at(self, epoch_s)
  local minute_of_day = seconds % DAY // 60
  return {
    wday = (seconds // DAY + 3) % 7 + 1, -- 1970 began on a Thursday
    hour = minute_of_day // 60, min = minute_of_day % 60, minute_of_day = minute_of_day,
  }
end

return zone
