--- filter.lua - which sandboxes a listing asks for.
--
-- E2B decodes the metadata filter three times: as a query value (done before this), as a whole, and
-- each key and value; so a space in a value arrives here as %2520 and a plain word as itself.
local faults = require "demilune.engine.faults"

local filter = {}

local STATES = { running = true, paused = true }
--- Filters of E2B that would change the answer and are not had.
local REFUSED = { "order", "startedAfter", "startedBefore", "template", "templateID" }

--- Undoes one layer of percent-encoding; nil for a broken escape.
local function unescape(text)
  text = text:gsub("+", " ")
  if text:gsub("%%%x%x", ""):find("%", 1, true) then return nil end
  return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

local function read_metadata(text)
  local pairs_wanted = {}
  local whole = unescape(text)
  if not whole then faults.bad("metadata", "It has a broken escape.") end
  for pair in whole:gmatch "[^&]+" do
    local raw_key, raw_value = pair:match "^([^=]*)=?(.*)$"
    local key, value = unescape(raw_key), unescape(raw_value)
    if not key or not value then faults.bad("metadata", "It has a broken escape.") end
    pairs_wanted[key] = value
  end
  return pairs_wanted
end

local function read_states(text)
  local wanted = {}
  for state in text:gmatch "[^,]+" do
    if not STATES[state] then faults.bad("state", "A state is running or paused.") end
    wanted[state] = true
  end
  return wanted
end

--- A function that says of a sandbox whether the query wants it. All of this engine run.
---@param query table<string, string>
---@return fun(sandbox: demilune.engine.Sandbox): boolean
function filter.read(query)
  for _, name in ipairs(REFUSED) do
    if query[name] then faults.raise("unsupported", { field = name }) end
  end
  local is_running_wanted = not query.state or read_states(query.state).running == true
  local wanted = query.metadata and read_metadata(query.metadata) or {}
  return function(sandbox)
    if not is_running_wanted then return false end
    for key, value in pairs(wanted) do
      if sandbox.metadata[key] ~= value then return false end
    end
    return true
  end
end

return filter
