---@meta _

--- jwt.lua - core.jwt: signed JSON Web Tokens (src/script/bind_jwt.c, src/net/jwt.h).
--
-- Checks who signed a token, and nothing of what it claims. Signatures are checked by libjose in demilune_jose.so, which the
-- first check opens; EdDSA by libsodium.
error "lua/demilune/meta/jwt.lua is for editors and cannot be required"

---@class demilune.core.jwt
local jwt = {}

--- The public keys of an issuer; `#` is how many of them can be used.
---@class demilune.core.jwt.Keys
local Keys = {}

--- Reads a JWK set (RFC 7517 §5). Of at most 64 keys it keeps those that check signatures: RSA of 2,048 to 8,192 bits, EC
--- on P-256, Ed25519. Symmetric and private parts are never kept. Errors: invalid_response (no such set, or no usable key).
---@param json string
---@return demilune.core.jwt.Keys?
---@return demilune.Error? err
function jwt.keys(json) end

---@alias demilune.core.jwt.Fault "malformed"|"algorithm"|"critical"|"unknown_key"|"signature"|"internal"

--- The claims of a token that one of the keys signed. The algorithm must be among `algs` and fit the key. Keys that the
--- token's own header holds or names are not looked at. unknown_key: newer keys may have it. Raises for an algorithm that
--- cannot be checked here.
---@param token string  of at most 16 KiB
---@param algs string[]  of RS256, PS256, ES256, EdDSA
---@return table<string, any>? claims
---@return demilune.core.jwt.Fault? fault
function Keys:verify(token, algs) end

return jwt
