--- time.lua - times as services write them: checked, and as numbers.
local time = {}

local BYTES_MAX = 40

--- Days from 1970-01-01 of a day of the Gregorian calendar, "days from civil" of
--- http://howardhinnant.github.io/date_algorithms.html. A month or day out of range counts on.
---@param year integer
---@param month integer
---@param day integer
---@return integer
function time.days(year, month, day)
  if month <= 2 then year = year - 1 end
  local era = year // 400
  local of_era = year - era * 400
  local of_year = (153 * (month + (month > 2 and -3 or 9)) + 2) // 5 + day - 1
  return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
end

--- The same text where it is a time in UTC as RFC 3339 has it, else nil.
---@param value any
---@return string?
function time.iso(value)
  if type(value) ~= "string" or #value > BYTES_MAX then return nil end
  local fraction = value:match "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d([^%d]?%d*)Z$"
  return fraction and (fraction == "" or fraction:sub(1, 1) == ".") and value or nil
end

--- Milliseconds since 1970 of a text that `iso` took.
---@param iso string
---@return integer
function time.epoch_ms(iso)
  local year, month, day, hour, minute, second, rest = iso:match "^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)(%.?%d*)Z$"
  local n = math.tointeger
  local ms = math.floor((tonumber("0" .. rest) or 0) * 1000)
  return ((time.days(n(year), n(month), n(day)) * 24 + n(hour)) * 60 + n(minute)) * 60000 + n(second) * 1000 + ms
end

return time
