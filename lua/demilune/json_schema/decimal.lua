--- json_schema/decimal.lua - whether a number is a multiple of another, as the two stand in JSON.
--
-- 0.3 is a multiple of 0.1, though the doubles are not; so both become whole numbers times powers of ten first.
local decimal = {}

--- A finite number as mantissa and exponent of ten, without zeros at the end: 1200 is 12, 2.
local function parts_of(value)
  local text = math.type(value) == "integer" and ("%d"):format(value)
  for digits = 15, 17 do
    if text then break end
    local short = ("%%.%dg"):format(digits):format(value)
    if tonumber(short) == value then text = short end
  end
  local whole, behind, exponent = text:gsub("^%-", ""):match "^(%d+)%.?(%d*)e?([+-]?%d*)$"
  local digits, power = whole .. behind, (tonumber(exponent) or 0) - #behind
  digits = digits:gsub("^0+", "")
  local zeros = #digits:match "0*$"
  return math.tointeger(tonumber(digits:sub(1, #digits - zeros))) or 0, math.tointeger(power) + zeros
end

--- a + b modulo m, all below m, which may be any positive integer.
local function sum(a, b, m)
  local total = a + b
  if total < 0 or total >= m then total = total - m end
  return total
end

--- The greatest modulus of which two numbers can be multiplied.
local PLAIN_MAX = 1 << 31

local function product(a, b, m)
  if m <= PLAIN_MAX then return a * b % m end
  local out = 0
  while b > 0 do
    if b & 1 == 1 then out = sum(out, a, m) end
    a, b = sum(a, a, m), b >> 1
  end
  return out
end

local function power_of_ten(exponent, m)
  local out, base = 1 % m, 10 % m
  while exponent > 0 do
    if exponent & 1 == 1 then out = product(out, base, m) end
    base, exponent = product(base, base, m), exponent >> 1
  end
  return out
end

--- What it costs to hold a value against a factor, in the steps of values.lua.
---@param factor number
---@return integer
function decimal.steps(factor) return parts_of(factor) <= PLAIN_MAX and 8 or 200 end

--- Whether `value` is a whole number of times `factor`.
---@param value number
---@param factor number  above 0
---@return boolean
function decimal.is_multiple(value, factor)
  if math.type(value) == "integer" and math.type(factor) == "integer" then return value % factor == 0 end
  if value == 0 then return true end
  if value ~= value or value == math.huge or value == -math.huge then return false end
  local top, top_power = parts_of(value)
  local bottom, bottom_power = parts_of(factor)
  local exponent = top_power - bottom_power
  if exponent >= 0 then return product(top % bottom, power_of_ten(exponent, bottom), bottom) == 0 end
  -- The top has no zero at its end, so only a bottom with fewer powers of ten divides it.
  while exponent < 0 do
    if bottom > top // 10 then return false end
    bottom, exponent = bottom * 10, exponent + 1
  end
  return top % bottom == 0
end

return decimal
