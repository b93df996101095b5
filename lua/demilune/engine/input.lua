--- input.lua - reads requests and checks them field by field: whoever sent them is not trusted.
--
-- Every function raises a fault that names the field, never its value.
local connect = require "demilune.connect"
local core = require "demilune.core"
local faults = require "demilune.engine.faults"

local input = {}

--- Longest name and value of an environment variable (execve(2): 128 KiB for one string).
local ENV_NAME_MAX_BYTES = 256
local ENV_VALUE_MAX_BYTES = 128 * 1024 - ENV_NAME_MAX_BYTES - 2
local MAP_MAX_ENTRIES = 1024
local METADATA_MAX_BYTES = 4096
local DRAIN_MAX_BYTES = 64 * 1024 * 1024

--- Reads what is left of a body and throws it away: a client that still writes when its connection
--- is closed would see a broken pipe instead of the answer.
---@param req table
function input.drain(req)
  local left = DRAIN_MAX_BYTES
  while left > 0 do
    local chunk = req:read()
    if not chunk then return end
    left = left - #chunk
  end
end

--- The media type of the body, lower case, without parameters; "" when there is none.
---@param req table
---@return string
function input.media_type(req)
  return ((req.headers["content-type"] or ""):lower():match "^%s*([^;%s]*)")
end

--- Reads the whole body.
---@param req table
---@param max_bytes integer
---@return string
function input.body(req, max_bytes)
  local encoding = (req.headers["content-encoding"] or "identity"):lower()
  if encoding ~= "identity" then faults.raise "unsupported_media_type" end
  local body, err = req:read_all(max_bytes)
  if body then return body end
  if err and err.category == "too_large" then faults.raise "too_large" end
  faults.raise("invalid_argument", { message = "The body ended early." })
end

--- Reads a body that is one JSON object. Nothing at all counts as {}.
---@param req table
---@param max_bytes integer
---@return table
function input.json(req, max_bytes)
  local media = input.media_type(req)
  if media ~= "application/json" and media ~= "" then faults.raise "unsupported_media_type" end
  local body = input.body(req, max_bytes)
  if body == "" then return {} end
  if media == "" then faults.raise "unsupported_media_type" end
  local value = connect.object(body)
  if not value then
    faults.raise("invalid_argument", { message = "The body must be one JSON object." })
  end
  return value
end

--- The value of a field, null taken for absent.
---@param object table
---@param name string
---@return any
function input.get(object, name)
  local value = object[name]
  if value == core.json.null then return nil end
  return value
end

--- A text without NUL; nil where it is absent.
---@param object table
---@param name string
---@param max_bytes integer
---@return string?
function input.text(object, name, max_bytes)
  local value = input.get(object, name)
  if value == nil then return nil end
  if type(value) ~= "string" then faults.bad(name, "It must be a string.") end
  if #value > max_bytes then faults.bad(name, ("It may have %d bytes."):format(max_bytes)) end
  if value:find("\0", 1, true) then faults.bad(name, "It must not hold a NUL.") end
  return value
end

--- A number in [min, max]; nil where it is absent. `is_whole` refuses fractions.
---@param object table
---@param name string
---@param min number
---@param max number
---@param is_whole? boolean
---@return number?
function input.number(object, name, min, max, is_whole)
  local value = input.get(object, name)
  if value == nil then return nil end
  if type(value) ~= "number" then faults.bad(name, "It must be a number.") end
  if is_whole then
    value = math.tointeger(value)
    if not value then faults.bad(name, "It must be a whole number.") end
  end
  if not (value >= min and value <= max) then
    faults.bad(name, ("It must be from %s to %s."):format(min, max))
  end
  return value
end

--- A boolean; nil where it is absent.
---@param object table
---@param name string
---@return boolean?
function input.flag(object, name)
  local value = input.get(object, name)
  if value ~= nil and type(value) ~= "boolean" then
    faults.bad(name, "It must be true or false.")
  end
  return value
end

--- A JSON object; nil where it is absent.
---@param object table
---@param name string
---@return table?
function input.object(object, name)
  local value = input.get(object, name)
  if value ~= nil and not connect.is_object(value) then
    faults.bad(name, "It must be an object.")
  end
  return value
end

--- A list of texts without NUL; {} where it is absent.
---@param object table
---@param name string
---@param max_count integer
---@param max_bytes integer
---@return string[]
function input.texts(object, name, max_count, max_bytes)
  local value = input.get(object, name)
  if value == nil then return {} end
  if not connect.is_array(value) then faults.bad(name, "It must be a list.") end
  if #value > max_count then faults.bad(name, ("It may have %d entries."):format(max_count)) end
  local texts = {}
  for i in ipairs(value) do
    local ok, text = pcall(input.text, value, i, max_bytes)
    if not ok or text == nil then faults.bad(name, "Its entries must be strings without NUL.") end
    texts[i] = text
  end
  return texts
end

local function map(object, name, check)
  local value = input.object(object, name)
  if not value then return {} end
  local copy, count = {}, 0
  for key, text in pairs(value) do
    count = count + 1
    if count > MAP_MAX_ENTRIES then
      faults.bad(name, ("It may have %d entries."):format(MAP_MAX_ENTRIES))
    end
    if type(text) ~= "string" then faults.bad(name, "Its values must be strings.") end
    check(key, text)
    copy[key] = text
  end
  return copy
end

--- A map of environment variables; {} where it is absent.
---@param object table
---@param name string
---@return table<string, string>
function input.env(object, name)
  return map(object, name, function(key, text)
    if key == "" or #key > ENV_NAME_MAX_BYTES or key:find "[=%z]" then
      faults.bad(name, "A name is empty, too long, or holds = or NUL.")
    end
    if #text > ENV_VALUE_MAX_BYTES or text:find("\0", 1, true) then
      faults.bad(name, "A value is too long or holds a NUL.")
    end
  end)
end

--- A map of texts to texts; {} where it is absent.
---@param object table
---@param name string
---@return table<string, string>
function input.metadata(object, name)
  return map(object, name, function(key, text)
    if key == "" or #key + #text > METADATA_MAX_BYTES then
      faults.bad(name, "A name is empty or a pair too long.")
    end
  end)
end

--- A number of decimal digits in a header or query; nil where it is absent.
---@param source table
---@param name string
---@param min integer
---@param max integer
---@return integer?
function input.digits(source, name, min, max)
  local text = source[name]
  if text == nil then return nil end
  local value = #text <= 18 and text:match "^%d+$" and math.tointeger(tonumber(text)) or nil
  if not value or value < min or value > max then
    faults.bad(name, ("It must be a whole number from %d to %d."):format(min, max))
  end
  return value
end

return input
