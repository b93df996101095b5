--- auth/init.lua - who may call over HTTP: the holders of the operator's tokens, and those whom an authorization server sends.
--
-- Without either everybody is `anonymous`; the door opens then on the loopback alone. A token is taken out of the request's
-- fields as soon as it was looked at, so that nothing after this can show it.
local bearer = require "demilune.auth.bearer"
local core = require "demilune.core"
local metadata = require "demilune.auth.metadata"
local oauth = require "demilune.auth.oauth"
local tokens = require "demilune.auth.tokens"

local auth = {}

auth.ANONYMOUS = "anonymous"
--- When a caller may come again while the issuer's keys cannot be had.
local RETRY_AFTER_S = 5

---@class demilune.auth.Caller
---@field principal string
---@field scopes? table<string, true>  of an access token; nil for others

---@class demilune.Auth
---@field is_open boolean  everybody may call
---@field token_file? string
---@field tokens? demilune.auth.Token[]
---@field oauth? demilune.auth.Oauth
---@field is_tls boolean
local Auth = {}
Auth.__index = Auth

--- Makes it of `http` of the configuration. Fetches nothing.
---@param http {token_file?: string, oauth?: table, tls?: table}
---@return demilune.Auth?
---@return string? message  what is wrong with the file of tokens, for a person
function auth.new(http)
  local self = setmetatable({
    token_file = http.token_file, is_tls = http.tls ~= nil, oauth = http.oauth and oauth.new(http.oauth) or nil,
    is_open = not http.token_file and not http.oauth,
  }, Auth)
  if not self.token_file then return self end
  local list, message = tokens.read(self.token_file)
  if not list then return nil, message end
  self.tokens = list
  return self
end

--- A refusal as the configuration has clients ask for a token (RFC 6750 §3, RFC 9728 §5.1).
local function refuse(self, status, host, message, code)
  local place = self.oauth and metadata.place(self.oauth.audience, host, self.is_tls)
  local scopes = self.oauth and status ~= 400 and table.concat(self.oauth.scopes, " ")
  return bearer.refusal(status, message, {
    { "error", code }, { "error_description", code and message },
    { "resource_metadata", place and metadata.url(place) or nil }, { "scope", scopes and scopes ~= "" and scopes or nil },
  })
end

local STATUS = { invalid_token = 401, insufficient_scope = 403 }

local function identify_token(self, token, host)
  local name = self.tokens and tokens.find(self.tokens, token)
  if name then return { principal = name } end
  if not self.oauth then return nil, refuse(self, 401, host, "The token is not known here.", "invalid_token") end
  local caller, fault, message = self.oauth:check(token)
  if caller then return caller end
  if fault == "unavailable" then
    return nil, { status = 503, message = message, headers = { ["Retry-After"] = tostring(RETRY_AFTER_S) } }
  end
  return nil, refuse(self, STATUS[fault], host, message, fault)
end

--- Who sends a request. Takes the field Authorization out of `headers`. May wait for the issuer's keys.
---@async
---@param headers table<string, string>  by name in lower case
---@param query? table<string, string>
---@return demilune.auth.Caller? caller
---@return demilune.auth.Refusal? refusal  an answer of its status and headers is right
function Auth:identify(headers, query)
  local token, fault = bearer.read(headers, query)
  headers.authorization = nil
  if self.is_open and not bearer.is_in_query(query) then return { principal = auth.ANONYMOUS } end
  if fault then return nil, refuse(self, 400, headers.host, fault, "invalid_request") end
  if not token then return nil, refuse(self, 401, headers.host, "This server asks for a bearer token.") end
  return identify_token(self, token, headers.host)
end

--- The paths at which `metadata` may have a document.
---@return string[]
function Auth:metadata_paths()
  return self.oauth and metadata.paths(self.oauth.audience) or {}
end

--- The document by which clients find the authorization server, for the paths that it has.
---@param path string
---@param host? string  the request's Host
---@return string? json  nil: no such document
function Auth:metadata(path, host)
  for _, known in ipairs(self:metadata_paths()) do
    local place = known == path and metadata.place(self.oauth.audience, host, self.is_tls)
    if place then return metadata.document(place, self.oauth) end
  end
end

--- Reads the file of tokens again, and has the issuer's keys fetched again. A file that is wrong changes nothing.
---@return true? done
---@return string? message  what is wrong with the file, for a person
function Auth:reload()
  if self.oauth then self.oauth.jwks:expire() end
  if not self.token_file then return true end
  local list, message = tokens.read(self.token_file)
  if not list then return nil, message end
  local before = #self.tokens
  self.tokens = list
  core.log.info(("reload: tokens read, %d, before %d"):format(#list, before))
  return true
end

return auth
