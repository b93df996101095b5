--- e2b/place.lua - where requests of one region go, and what they may carry.
--
-- The key goes to the API's origin alone, a sandbox's tokens to where sandboxes are: one fixed origin, or the hosts below
-- the domain that the configuration names. What an answer says of a domain is believed only within that.
local core = require "demilune.core"
local errors = require "demilune.errors"

local place = {}

---@class demilune.e2b.Place
---@field api_url string
---@field sandbox_url string   with {port}, {id}, {domain}
---@field domain? string
---@field region? string
---@field is_shared boolean
---@field credentials? table[]       the key, for the API
---@field credential_names? string[]
---@field tokens? table<string, table>  pointers of secrets in an answer of one sandbox, and where those may go
local Place = {}
Place.__index = Place

--- Pointers of the secrets in the answers about one sandbox, and the headers in which the data plane wants them.
local TOKENS = { ["/envdAccessToken"] = "X-Access-Token", ["/trafficAccessToken"] = "E2B-Traffic-Access-Token" }

local function origin_of(url) return url:match "^%a+://[^/]+" end

local function bindings(resolved)
  local tokens, reach = {}, resolved.reach
  for pointer, header in pairs(TOKENS) do
    tokens[pointer] = { header = header, origins = reach.origins, suffixes = reach.suffixes }
  end
  return tokens
end

--- Makes one of what presets.resolve gives. `credential` is the name of the key in the vault.
---@param resolved demilune.Preset.Resolved
---@param credential string
---@return demilune.e2b.Place
function place.new(resolved, credential)
  return setmetatable({
    api_url = resolved.api_url, sandbox_url = resolved.sandbox_url, domain = resolved.domain, region = resolved.region,
    is_shared = resolved.is_shared, tokens = bindings(resolved), credential_names = { credential },
    credentials = { core.vault.bind(credential, { header = resolved.key_header, origins = { origin_of(resolved.api_url) } }) },
  }, Place)
end

--- The same tokens in each element of a listing: a service has no reason to put them there, and might.
---@return table<string, table>
function Place:listed_tokens()
  local tokens = {}
  for pointer, binding in pairs(self.tokens) do tokens["/*" .. pointer] = binding end
  return tokens
end

--- The domain of a sandbox from what an answer says. Raises `invalid_response` for one that the configuration does not
--- cover.
---@param said any
---@return string?
function Place:domain_of(said)
  if said == nil or said == core.json.null or said == "" or not self.sandbox_url:find "{domain}" then return self.domain end
  local is_host = type(said) == "string" and #said <= 253 and said:find "^[%w][%w.-]*$" and not said:find("..", 1, true)
  if is_host and (said == self.domain or said:sub(-#self.domain - 1) == "." .. self.domain) then return said end
  errors.raise "invalid_response"
end

--- The URL of a port of a sandbox. `is_own` wants the sandbox's own host where there also is a shared one.
---@param id string       checked
---@param port string
---@param domain? string  of domain_of
---@param is_own? boolean
---@return string
function Place:url_of(id, port, domain, is_own)
  local pattern = self.is_shared and is_own and "https://{port}-{id}.{domain}" or self.sandbox_url
  local values = { id = id, port = port, domain = domain or self.domain }
  return (pattern:gsub("{(%l+)}", function(name) return values[name] end))
end

return place
