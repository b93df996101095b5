--- windows.lua - time windows of a week: "mon-fri 08:00-18:00, sat,sun 10:00-12:00".
--
-- A window whose end is not after its beginning goes over midnight and belongs to the day on which it begins: in
-- "fri 22:00-06:00" the morning is Saturday's. The minute at which a window ends is outside.

local windows = {}

local DAYS = { mon = 1, tue = 2, wed = 3, thu = 4, fri = 5, sat = 6, sun = 7 }
local WEEK_DAYS = 7
local DAY_MINUTES = 1440
local EXAMPLE = 'write it like "mon-fri 08:00-18:00"'

---@class demilune.policy.Window
---@field days table<integer, true>  1 is Monday
---@field from integer  minutes of the day
---@field to integer    likewise; up to 1440

--- Adds the days of "mon" or "mon-fri" to a set; false where it names none.
local function add_days(text, days)
  local first, last = text:match "^(%a%a%a)%s*%-%s*(%a%a%a)$"
  if not first then first, last = text, text end
  local from, to = DAYS[first], DAYS[last]
  if not from or not to then return false end
  local day = from
  days[day] = true
  while day ~= to do
    day = day % WEEK_DAYS + 1
    days[day] = true
  end
  return true
end

local function minutes_of(hour, minute)
  hour, minute = math.tointeger(hour), math.tointeger(minute)
  if minute > 59 or hour > 24 or (hour == 24 and minute > 0) then return nil end
  return hour * 60 + minute
end

--- Splits "fri 08:00-18:00" into its days and minutes; only days for "fri".
local function parts_of(text)
  local days, h1, m1, h2, m2 = text:match "^(.-)%s*(%d%d?):(%d%d)%s*%-%s*(%d%d?):(%d%d)$"
  if not days then return text end
  return days, minutes_of(h1, m1), minutes_of(h2, m2), true
end

--- Reads a window.
---@param text string
---@return demilune.policy.Window[]? list
---@return string? why  "what is wrong; the way out"
function windows.parse(text)
  local list, days = {}, {}
  for part in (text:lower() .. ","):gmatch "%s*([^,]-)%s*," do
    local names, from, to, has_hours = parts_of(part)
    if has_hours and (not from or not to or from == to) then
      return nil, ("%q has no hours from 00:00 to 24:00; %s"):format(part, EXAMPLE)
    end
    local is_named = names ~= "" and add_days(names, days)
    if not is_named and (names ~= "" or not has_hours) then
      return nil, ("%q names no day; days are mon, tue, wed, thu, fri, sat and sun; %s"):format(part, EXAMPLE)
    end
    if not next(days) then return nil, ("%q names no day; %s, or mon-sun for every day"):format(part, EXAMPLE) end
    if has_hours then
      list[#list + 1] = { days = days, from = from, to = to }
      days = {}
    end
  end
  if next(days) then return nil, "the last days have no hours; add 00:00-24:00 for whole days" end
  return list
end

local function is_in(window, day, minute)
  if window.from < window.to then return window.days[day] and minute >= window.from and minute < window.to end
  local day_before = (day - 2) % WEEK_DAYS + 1
  return (window.days[day] and minute >= window.from) or (window.days[day_before] and minute < window.to)
end

--- Whether a time of the week is in one of the windows.
---@param list demilune.policy.Window[]
---@param day integer     1 (Monday) to 7
---@param minute integer  of the day
---@return boolean
function windows.hold(list, day, minute)
  for _, window in ipairs(list) do
    if is_in(window, day, minute) then return true end
  end
  return false
end

--- Whether there is a minute of the week that is in the one and not in the other.
---@param within? demilune.policy.Window[]   nil for any time
---@param outside? demilune.policy.Window[]  nil for no time
---@return boolean
function windows.meet(within, outside)
  for day = 1, WEEK_DAYS do
    for minute = 0, DAY_MINUTES - 1 do
      local holds = not within or windows.hold(within, day, minute)
      if holds and not (outside and windows.hold(outside, day, minute)) then return true end
    end
  end
  return false
end

return windows
