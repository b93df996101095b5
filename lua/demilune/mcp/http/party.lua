--- mcp/http/party.lua - who calls without a session (2026-07-28): a principal, with one scope for all of its calls, or with as
--- many as a host tells apart by `_meta["dev.demilune/scope"]`.
local core = require "demilune.core"
local mcp = require "demilune.mcp"
local refusal = require "demilune.mcp.http.refusal"
local stream = require "demilune.mcp.http.stream"

local party = {}

--- Scopes of all principals; beyond, those that were not used for longest are dropped, and their sandboxes live on.
party.MAX = 1000
--- Calls of one at work at a time.
party.CALLS_MAX = 256
party.META = "dev.demilune/scope"
local INVALID_PARAMS = -32602

---@class demilune.mcp.http.Party
---@field conversation demilune.Conversation
---@field scope demilune.Scope
---@field calls table<demilune.mcp.http.Call, true>
---@field call_count integer
---@field used_ms integer
local Party = {}
Party.__index = Party

--- Makes one.
---@param app demilune.App
---@param principal string
---@return demilune.mcp.http.Party
function party.new(app, principal)
  local self = setmetatable({
    scope = app:new_scope(principal), calls = {}, call_count = 0, used_ms = core.task.now_ms(),
  }, Party)
  self.conversation = mcp.new(app, {
    scope = self.scope, principal = principal, transport = "http", drained = core.task.event(),
    io = { is_full = function() return false end, notify = function() end },
  })
  return self
end

--- The name of the scope that a request wants, "" for its principal's own. Raises a refusal for one that is none.
---@param message demilune.core.rpc.Message
---@return string
function party.name_of(message)
  local name = message.params._meta[party.META]
  if name == nil then return "" end
  if type(name) ~= "string" or #name > 64 or not name:find "^[\x21-\x7e]+$" then
    refusal.raise(400, ("_meta.%s must be 1 to 64 visible ASCII characters"):format(party.META),
      { code = INVALID_PARAMS, id = message.id })
  end
  return name
end

--- A stream for a call: what was written is gone.
---@return demilune.mcp.http.Stream
function Party:new_stream() -- luacheck: ignore 212/self
  return stream.new()
end

--- Notes that a call begins; false where too many are at work.
---@param call demilune.mcp.http.Call
---@return boolean
function Party:enter(call)
  if self.call_count >= party.CALLS_MAX then return false end
  self.call_count = self.call_count + 1
  self.calls[call] = true
  return true
end

--- Notes that a call is over.
---@param call demilune.mcp.http.Call
function Party:leave(call)
  self.call_count = self.call_count - 1
  self.calls[call] = nil
  self.used_ms = core.task.now_ms()
end

--- Whether nobody uses it now.
---@return boolean
function Party:is_idle()
  return self.call_count == 0
end

--- Stops its calls.
function Party:stop()
  for call in pairs(self.calls) do call:stop() end
end

return party
