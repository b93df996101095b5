--- tokens.lua - the secrets of the TCP door: comparing them, and E2B's signed URLs.
--
-- Two texts are compared by their hashes under a salt of this process, so the time that a comparison
-- takes tells nothing about the secret that it can be searched for with.
local core = require "demilune.core"

local tokens = {}

--- Of [a-z2-7]: 260 bits.
local TOKEN_CHARACTERS = 52
local SALT_BYTES = 32
local salt = core.crypto.random(SALT_BYTES)

--- A fresh secret.
---@return string
function tokens.fresh()
  return core.crypto.id(TOKEN_CHARACTERS)
end

--- What to keep of a secret that is only compared.
---@param text string
---@return string
function tokens.print_of(text)
  return core.crypto.sha256(salt .. text)
end

--- Whether a text is the secret with that print.
---@param text? string
---@param print string
---@return boolean
function tokens.matches(text, print)
  return text ~= nil and tokens.print_of(text) == print
end

--- Whether two texts are the same, in a time that does not depend on where they differ.
---@param text? string
---@param secret string
---@return boolean
function tokens.is_equal(text, secret)
  return tokens.matches(text, tokens.print_of(secret))
end

local function from_hex(hex)
  return (hex:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

--- The signature of a URL of /files, as E2B's SDK makes it: over the path and user as the URL has
--- them, "" where it has none.
---@param token string
---@param operation "read"|"write"
---@param query { path?: string, username?: string, signature_expiration?: string }
---@return string
function tokens.signature(token, operation, query)
  local text = table.concat({ query.path or "", operation, query.username or "", token }, ":")
  if query.signature_expiration then text = text .. ":" .. query.signature_expiration end
  local digest = core.crypto.base64(from_hex(core.crypto.sha256(text)))
  return "v1_" .. digest:gsub("=+$", "")
end

return tokens
