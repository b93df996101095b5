--- auth/jwks.lua - the keys of an authorization server, fetched from its JWKS URL and kept.
--
-- An issuer takes new keys into use whenever it likes, and tells by nothing but a key id that nobody has seen; anybody can make
-- such ids up. So an unknown id has the keys fetched again, and no more often than every UNKNOWN_WAIT_S. One fetch runs at a
-- time and all wait for it. While the server cannot be reached the keys that are there go on, for STALE_MAX_S.
local core = require "demilune.core"
local transport = require "demilune.transport"

local task = core.task
local jwks = {}

jwks.MAX_BYTES = 256 * 1024
jwks.TIMEOUT_MS = 5000
--- Older keys are fetched again beside the request that found them so.
jwks.FRESH_S = 300
--- Older keys are not believed.
jwks.STALE_MAX_S = 3600
jwks.UNKNOWN_WAIT_S = 30
--- Between a fetch that failed and the next.
jwks.RETRY_WAIT_S = 5

---@class demilune.auth.Jwks
---@field url string
---@field transport demilune.Transport
---@field set? demilune.core.jwt.Keys
---@field fetched_ms? integer  when `set` came
---@field tried_ms? integer    when it was last asked for
---@field fetching? table      event: the fetch at work has ended
---@field fault? string        of the last fetch, for a person
---@field generation integer   counts sets
local Jwks = {}
Jwks.__index = Jwks

--- Makes one; nothing is fetched yet.
---@param url string       https, or http to this machine: config/url.lua
---@param ca_file? string  the only bundle of certificates to believe
---@return demilune.auth.Jwks
function jwks.new(url, ca_file)
  return setmetatable({ url = url, transport = transport.new { ca_file = ca_file }, generation = 0 }, Jwks)
end

local function ask(self)
  local ok, res = pcall(self.transport.send, self.transport, {
    url = self.url, headers = { Accept = "application/jwk-set+json, application/json" }, timeout_ms = jwks.TIMEOUT_MS,
    max_body_bytes = jwks.MAX_BYTES, is_safe = true,
  })
  if not ok and res == task.CANCELLED then error(res, 0) end
  if not ok then return nil, "it cannot be fetched (" .. tostring(res.category or "internal") .. ")" end
  if res.status ~= 200 then return nil, ("it answers with status %d"):format(res.status) end
  local set = core.jwt.keys(res.body)
  if not set then return nil, "it holds no key that can check a signature" end
  return set
end

local function take(self, set, fault)
  local had_fault = self.fault
  self.fault = fault
  if set then
    self.set, self.fetched_ms, self.generation = set, task.now_ms(), self.generation + 1
    if had_fault then core.log.info "the issuer's keys (http.oauth.jwks) can be fetched again" end
  elseif not had_fault then
    core.log.warn("the issuer's keys (http.oauth.jwks) cannot be fetched: " .. fault)
  end
end

local Fetch = {
  __close = function(fetch)
    fetch.owner.fetching = nil
    fetch.event:set()
  end,
}

--- Begins a fetch, unless one is at work or was tried less than so long ago. It has a task of its own: the request that needs
--- it may be over before it.
local function begin(self, wait_s)
  if self.fetching or (self.tried_ms and task.now_ms() - self.tried_ms < wait_s * 1000) then return end
  local one = setmetatable({ owner = self, event = task.event() }, Fetch)
  self.fetching, self.tried_ms = one.event, task.now_ms()
  task.spawn(function()
    local mark <close> = one -- luacheck: ignore 211
    take(self, ask(self))
  end)
end

local function renew(self, wait_s)
  begin(self, wait_s)
  if self.fetching then self.fetching:wait(jwks.TIMEOUT_MS) end
end

local function age_s(self)
  return self.fetched_ms and (task.now_ms() - self.fetched_ms) / 1000 or math.huge
end

--- The keys; nil while there are none to believe.
---@async
---@return demilune.core.jwt.Keys?
function Jwks:keys()
  if age_s(self) > jwks.STALE_MAX_S then
    renew(self, jwks.RETRY_WAIT_S)
  elseif age_s(self) > jwks.FRESH_S then
    begin(self, jwks.RETRY_WAIT_S)
  end
  return age_s(self) <= jwks.STALE_MAX_S and self.set or nil
end

--- Other keys than those which lack one: what came meanwhile, else what a fetch gives; nil where there are none.
---@async
---@param set demilune.core.jwt.Keys
---@return demilune.core.jwt.Keys?
function Jwks:newer(set)
  if self.set == set then renew(self, jwks.UNKNOWN_WAIT_S) end
  return self.set ~= set and self.set or nil
end

--- Has the next use fetch again; the keys that are there stay until it has.
function Jwks:expire()
  self.tried_ms = nil
  if self.fetched_ms then self.fetched_ms = math.min(self.fetched_ms, task.now_ms() - jwks.FRESH_S * 1000 - 1) end
end

return jwks
