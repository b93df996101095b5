--- auth/bearer.lua - the bearer token of a request, and how one is asked for (RFC 6750).
--
-- A token stands in the field Authorization and nowhere else (MCP basic/authorization, "Token Requirements"): an address is
-- written into logs and histories.
local bearer = {}

--- Longer than what issuers make of a few dozen groups.
bearer.TOKEN_MAX_BYTES = 8192
--- The parameter of RFC 6750 §2.3, which is refused.
local PARAMETER = "access_token"
local IN_QUERY = "A token in the address does not count; send it in the field Authorization."

---@class demilune.auth.Refusal
---@field status integer  400, 401, 403, 503
---@field headers table<string, string>
---@field message string  for the caller

--- Whether a token stands in the address.
---@param query? table<string, string>
---@return boolean
function bearer.is_in_query(query)
  return query ~= nil and query[PARAMETER] ~= nil
end

--- The token. Nil alone: there is none.
---@param headers table<string, string>  by name in lower case
---@param query? table<string, string>
---@return string? token
---@return string? fault  of a request that no server should take
function bearer.read(headers, query)
  if bearer.is_in_query(query) then return nil, IN_QUERY end
  local field = headers.authorization
  if not field then return nil end
  local scheme, token = field:match "^(%S+) +(%S+)$"
  if not scheme or scheme:lower() ~= "bearer" then return nil, "Authorization must be `Bearer` and one token." end
  if #token > bearer.TOKEN_MAX_BYTES then return nil, "The token is too long." end
  if not token:find "^[%w._~+/-]+=*$" then return nil, "The token has signs that no token has." end
  return token
end

--- A refusal with its challenge. Parameters are texts of ours and of the configuration.
---@param status integer
---@param message string
---@param parameters {[1]: string, [2]: string?}[]  in order; those without a value are left out
---@return demilune.auth.Refusal
function bearer.refusal(status, message, parameters)
  local parts = { 'realm="demilune"' }
  for _, one in ipairs(parameters) do
    if one[2] then parts[#parts + 1] = ('%s="%s"'):format(one[1], (one[2]:gsub('[\\"]', "\\%0"))) end
  end
  return { status = status, message = message, headers = { ["WWW-Authenticate"] = "Bearer " .. table.concat(parts, ", ") } }
end

return bearer
