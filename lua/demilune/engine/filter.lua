--- filter.lua - which sandboxes a listing asks for.
--
-- E2B decodes the metadata filter three times: as a query value (done before this), as a whole, and
-- each key and value; so a space in a value arrives here as %2520 and a plain word as itself.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"

local filter = {}

local STATES = { running = true, paused = true }
local ORDERS = { asc = true, desc = true }
--- Filters that would change the answer and are not had.
local REFUSED = { "startedBefore", "templateID" }

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

--- A moment as task.iso writes it, so that texts compare as moments do.
local function read_moment(text)
  local seconds, fraction = text:match "^(%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d)%.?(%d*)Z$"
  if not seconds then faults.bad("startedAfter", "It must be a moment in UTC, as 2026-01-31T12:00:00Z.") end
  return ("%s.%sZ"):format(seconds, (fraction .. "000"):sub(1, 3))
end

--- Whether the oldest come first.
---@param query table<string, string>
---@return boolean
function filter.is_ascending(query)
  if query.order and not ORDERS[query.order] then faults.bad("order", "It is asc or desc.") end
  return query.order == "asc"
end

--- A function that says of a sandbox whether the query wants it.
---@param query table<string, string>
---@return fun(sandbox: demilune.engine.Sandbox): boolean
function filter.read(query)
  for _, name in ipairs(REFUSED) do
    if query[name] then faults.raise("unsupported", { field = name }) end
  end
  local states = query.state and read_states(query.state) or STATES
  local wanted = query.metadata and read_metadata(query.metadata) or {}
  local since = query.startedAfter and read_moment(query.startedAfter)
  return function(sandbox)
    if not states[sandbox.state == "running" and "running" or "paused"] then return false end
    if query.template and sandbox.template ~= query.template then return false end
    if since and core.task.iso(sandbox.started_at_ms) < since then return false end
    for key, value in pairs(wanted) do
      if sandbox.metadata[key] ~= value then return false end
    end
    return true
  end
end

return filter
