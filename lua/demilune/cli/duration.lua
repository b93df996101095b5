--- cli/duration.lua - times of results in the words of people.
local core = require "demilune.core"
local time = require "demilune.time"

local duration = {}

--- Seconds from now to a time of a result.
---@param iso string  ISO 8601 in UTC, as results have it
---@return number? seconds  negative when it is past; nil when that is no time
function duration.until_iso(iso)
  local known = time.iso(iso)
  return known and (time.epoch_ms(known) - core.task.epoch_ms()) / 1000
end

--- "48 s", "12 min", "3 h 5 min", "1 day 2 h".
---@param seconds number
---@return string
function duration.words(seconds)
  seconds = math.max(0, math.floor(seconds))
  if seconds < 120 then return seconds .. " s" end
  local minutes = seconds // 60
  if minutes < 60 then return minutes .. " min" end
  local hours, rest = minutes // 60, minutes % 60
  if hours < 24 then return hours .. " h" .. (rest > 0 and " " .. rest .. " min" or "") end
  local days = hours // 24
  return days .. (days == 1 and " day" or " days") .. (hours % 24 > 0 and " " .. hours % 24 .. " h" or "")
end

return duration
