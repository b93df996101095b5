--- auth/oauth.lua - access tokens of an authorization server: JWTs (RFC 9068) that it signed for this server.
--
-- The principal is `oauth:` and the subject: so no subject, which its issuer chooses, can be a name of the file of tokens or
-- this machine's `local:user`. What was found good is remembered for a moment by the token's digest, since checking a
-- signature costs more than most calls.
local core = require "demilune.core"
local jwks = require "demilune.auth.jwks"

local oauth = {}

--- Signatures that count. Those with a shared secret never do.
oauth.ALGS = { "RS256", "PS256", "ES256", "EdDSA" }
--- How far two clocks may be apart.
oauth.LEEWAY_S = 30
--- How long a token is believed without another look at its signature, and how many are.
oauth.REMEMBER_S, oauth.REMEMBER_MAX = 60, 512
--- With what stands before it, no longer than an audit shows whole.
local SUBJECT_MAX_BYTES = 250
local SCOPES_MAX = 128

--- What is told to the caller; which check failed beyond that helps nobody who has a good token.
local WORDS = {
  malformed = "The token is no JWT.", algorithm = "The token is not signed by an algorithm that counts here.",
  critical = "The token demands an extension that is not known here.", unknown_key = "The token is signed by an unknown key.",
  signature = "The token's signature is wrong.",
}

---@class demilune.auth.Oauth
---@field issuer string
---@field audience string
---@field scopes string[]  that a token must have
---@field jwks demilune.auth.Jwks
---@field known table<string, {caller: demilune.auth.Caller, until_s: number, exp: number}>  by digest
---@field known_count integer
---@field generation integer  of the keys that `known` was found by
local Oauth = {}
Oauth.__index = Oauth

--- Makes it; nothing is fetched yet.
---@param settings {issuer: string, audience: string, jwks: string, scopes?: string[], ca_file?: string}
---@return demilune.auth.Oauth
function oauth.new(settings)
  return setmetatable({
    issuer = settings.issuer, audience = settings.audience, scopes = settings.scopes or {},
    jwks = jwks.new(settings.jwks, settings.ca_file), known = {}, known_count = 0, generation = 0,
  }, Oauth)
end

local function has_audience(claim, audience)
  if claim == audience then return true end
  for _, one in ipairs(type(claim) == "table" and claim or {}) do
    if one == audience then return true end
  end
  return false
end

--- A time of a token (RFC 7519 §2, NumericDate); false for what is none.
local function time_of(value)
  if value == nil then return nil end
  return type(value) == "number" and value >= 0 and value < 2 ^ 53 and value
end

local function time_fault(claims, now_s)
  local exp, nbf, iat = time_of(claims.exp), time_of(claims.nbf), time_of(claims.iat)
  if not exp or nbf == false or iat == false then return "The token has no time at which it ends, or wrong times." end
  if exp + oauth.LEEWAY_S <= now_s then return "The token has expired." end
  if nbf and nbf - oauth.LEEWAY_S > now_s then return "The token is not valid yet." end
  if iat and iat - oauth.LEEWAY_S > now_s then return "The token was issued in the future." end
end

local function claims_fault(self, claims, now_s)
  if claims.iss ~= self.issuer then return "The token is of another issuer." end
  if not has_audience(claims.aud, self.audience) then return "The token is for another server." end
  local fault = time_fault(claims, now_s)
  if fault then return fault end
  local sub = claims.sub
  if type(sub) ~= "string" or #sub > SUBJECT_MAX_BYTES or not sub:find "^[!-~]+$" then
    return "The token has no subject that can be a name."
  end
  -- A token that is bound to a key (RFC 9449 §7.1, RFC 8705 §3) must not count for whoever merely holds it.
  if claims.cnf ~= nil then return "The token is bound to a key, which is not checked here." end
end

--- The scopes of a token, as a set: `scope` (RFC 9068 §2.2.3) or the `scp` of some issuers.
local function scopes_of(claims)
  local set, count = {}, 0
  local function add(name)
    count = count + 1
    if count <= SCOPES_MAX and type(name) == "string" then set[name] = true end
  end
  for _, given in ipairs { claims.scope or false, claims.scp or false } do
    if type(given) == "string" then
      for name in given:gmatch "%S+" do add(name) end
    elseif type(given) == "table" then
      for _, name in ipairs(given) do add(name) end
    end
  end
  return set
end

local function lacks_scope(self, set)
  for _, name in ipairs(self.scopes) do
    if not set[name] then return true end
  end
  return false
end

--- Verifies a signature, with newer keys where the present ones do not have its own.
local function verify(self, token)
  local keys = self.jwks:keys()
  if not keys then return nil, "no_keys" end
  local claims, fault = keys:verify(token, oauth.ALGS)
  if fault == "unknown_key" then
    keys = self.jwks:newer(keys)
    if keys then claims, fault = keys:verify(token, oauth.ALGS) end
  end
  return claims, fault
end

local function forget_all(self)
  self.known, self.known_count, self.generation = {}, 0, self.jwks.generation
end

local function remember(self, digest, caller, exp, now_s)
  if self.known_count >= oauth.REMEMBER_MAX or self.generation ~= self.jwks.generation then forget_all(self) end
  if not self.known[digest] then self.known_count = self.known_count + 1 end
  self.known[digest] = { caller = caller, until_s = math.min(now_s + oauth.REMEMBER_S, exp + oauth.LEEWAY_S) }
end

local function recall(self, digest, now_s)
  if self.generation ~= self.jwks.generation then forget_all(self) end
  local one = self.known[digest]
  return one and one.until_s > now_s and one.caller or nil
end

---@alias demilune.auth.Fault "invalid_token"|"insufficient_scope"|"unavailable"

--- Whose token it is.
---@async
---@param token string
---@return demilune.auth.Caller? caller
---@return demilune.auth.Fault? fault
---@return string? message
function Oauth:check(token)
  local now_s, digest = core.task.epoch_ms() / 1000, core.crypto.sha256(token)
  local caller = recall(self, digest, now_s)
  if caller and self.jwks:keys() then return caller end
  local claims, fault = verify(self, token)
  if fault == "no_keys" or fault == "internal" then
    return nil, "unavailable", "Tokens cannot be checked now; try again in a moment."
  end
  if not claims then return nil, "invalid_token", WORDS[fault] end
  fault = claims_fault(self, claims, now_s)
  if fault then return nil, "invalid_token", fault end
  local scopes = scopes_of(claims)
  if lacks_scope(self, scopes) then return nil, "insufficient_scope", "The token lacks a scope that is needed here." end
  caller = { principal = "oauth:" .. claims.sub, scopes = scopes }
  remember(self, digest, caller, claims.exp, now_s)
  return caller
end

return oauth
