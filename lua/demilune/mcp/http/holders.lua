--- mcp/http/holders.lua - the sessions and parties of a server, each within its bounds.
--
-- A session that its client ends is cleaned up; one that merely idles out, or gives way to another, is dropped, and its
-- sandboxes live to their end: its scope is kept until they must have ended.
local core = require "demilune.core"
local party = require "demilune.mcp.http.party"
local session = require "demilune.mcp.http.session"

local task = core.task
local holders = {}

--- How often idle sessions are looked for.
holders.SWEEP_MS = 5000
--- Scopes of dropped sessions that still have sandboxes; beyond, no session is dropped for another.
holders.ORPHANS_MAX = 4096
--- How long the sandboxes of an ended session are waited for.
local CLOSE_MS = 10000

---@class demilune.mcp.http.Holders
---@field app demilune.App
---@field clients demilune.mcp.Conversations
---@field sessions table<string, demilune.mcp.http.Session>
---@field session_count integer
---@field parties table<string, demilune.mcp.http.Party>
---@field party_count integer
---@field orphans table<demilune.Scope, integer>  until when their sandboxes may live
---@field orphan_count integer
---@field limits {sessions: integer, idle_s: integer}
local Holders = {}
Holders.__index = Holders

--- Makes it.
---@param app demilune.App
---@param clients demilune.mcp.Conversations
---@param limits {sessions: integer, idle_s: integer}
---@return demilune.mcp.http.Holders
function holders.new(app, clients, limits)
  return setmetatable({
    app = app, clients = clients, limits = limits, sessions = {}, session_count = 0, parties = {}, party_count = 0, orphans = {},
    orphan_count = 0,
  }, Holders)
end

-- ---- dropping ----

--- Keeps a scope until its sandboxes have ended.
local function abandon(self, scope)
  self.app.deferred:end_scope(scope)
  if #scope:owned() == 0 then
    task.spawn(scope.close, scope, CLOSE_MS)
    return
  end
  local most_s = 0
  for _, sandbox in ipairs(scope:owned()) do most_s = math.max(most_s, sandbox.provider.config.max_lifetime) end
  self.orphans[scope], self.orphan_count = task.now_ms() + most_s * 1000, self.orphan_count + 1
end

local function remove_session(self, one)
  if not self.sessions[one.id] then return false end
  self.sessions[one.id], self.session_count = nil, self.session_count - 1
  self.clients:remove(one.conversation)
  one:stop()
  return true
end

local function drop_session(self, one)
  if remove_session(self, one) then abandon(self, one.scope) end
end

local function drop_party(self, key)
  local one = self.parties[key]
  self.parties[key], self.party_count = nil, self.party_count - 1
  abandon(self, one.scope)
end

--- The one that was idle for longest, nil where none is.
local function oldest_idle(list)
  local found_key, found
  for key, one in pairs(list) do
    if one:is_idle() and (not found or one.used_ms < found.used_ms) then found_key, found = key, one end
  end
  return found_key, found
end

--- Drops sessions that were idle for too long, and scopes whose sandboxes have ended.
function Holders:sweep()
  local now_ms = task.now_ms()
  for _, one in pairs(self.sessions) do
    if one:is_idle() and now_ms - one.used_ms >= self.limits.idle_s * 1000 then drop_session(self, one) end
  end
  for scope, until_ms in pairs(self.orphans) do
    if now_ms >= until_ms or #scope:owned() == 0 then
      self.orphans[scope], self.orphan_count = nil, self.orphan_count - 1
      task.spawn(scope.close, scope, CLOSE_MS)
    end
  end
end

-- ---- having ----

--- Begins a session; nil where there are too many and none is idle.
---@param principal string
---@return demilune.mcp.http.Session?
function Holders:begin(principal)
  if self.session_count >= self.limits.sessions then
    local _, oldest = oldest_idle(self.sessions)
    if not oldest or self.orphan_count >= holders.ORPHANS_MAX then return nil end
    drop_session(self, oldest)
  end
  local one = session.new(self.app, principal)
  self.sessions[one.id], self.session_count = one, self.session_count + 1
  self.clients:add(one.conversation)
  return one
end

--- The session of an id, for the principal that began it.
---@param id string
---@param principal string
---@return demilune.mcp.http.Session?
function Holders:find(id, principal)
  local one = self.sessions[id]
  if not one or one.principal ~= principal then return nil end
  one.used_ms = task.now_ms()
  return one
end

--- Ends a session and kills what it owns.
---@async
---@param one demilune.mcp.http.Session
function Holders:finish(one)
  if remove_session(self, one) then one.scope:close(CLOSE_MS) end
end

--- The party of a principal and the name of a scope; nil where there are too many and all are at work.
---@param principal string
---@param name string
---@return demilune.mcp.http.Party?
function Holders:party(principal, name)
  local key = #principal .. ":" .. principal .. name
  local one = self.parties[key]
  if not one then
    if self.party_count >= party.MAX then
      local oldest = oldest_idle(self.parties)
      if not oldest or self.orphan_count >= holders.ORPHANS_MAX then return nil end
      drop_party(self, oldest)
    end
    one = party.new(self.app, principal)
    self.parties[key], self.party_count = one, self.party_count + 1
  end
  one.used_ms = task.now_ms()
  return one
end

-- ---- the end ----

--- Stops all calls; they may still answer.
function Holders:stop()
  for _, one in pairs(self.sessions) do one:stop() end
  for _, one in pairs(self.parties) do one:stop() end
end

--- How many calls are at work.
---@return integer
function Holders:call_count()
  local count = 0
  for _, one in pairs(self.sessions) do count = count + one.call_count end
  for _, one in pairs(self.parties) do count = count + one.call_count end
  return count
end

--- Ends all scopes at once.
---@async
---@param within_ms integer
function Holders:close(within_ms)
  local jobs = {}
  local function close(scope) jobs[#jobs + 1] = task.spawn(scope.close, scope, within_ms) end
  for _, one in pairs(self.sessions) do close(one.scope) end
  for _, one in pairs(self.parties) do close(one.scope) end
  for scope in pairs(self.orphans) do close(scope) end
  for _, job in ipairs(jobs) do job:wait() end
end

return holders
