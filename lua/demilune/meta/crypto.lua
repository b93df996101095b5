---@meta _

--- crypto.lua - core.crypto: libsodium's hashes, base64, random bytes and sealing (src/script/bind_crypto.c).
error "lua/demilune/meta/crypto.lua is for editors and cannot be required"

---@class demilune.core.crypto
local crypto = {}

--- SHA-256.
---@param bytes string
---@return string hex  64 digits, lower case
function crypto.sha256(bytes) end

--- HMAC-SHA256 (RFC 2104): a digest that only the holder of the key can make.
---@param key string
---@param bytes string
---@return string hex  64 digits, lower case
function crypto.hmac(key, bytes) end

--- Whether two texts are the same, in a time that depends on their lengths alone: for digests and tokens.
---@param a string
---@param b string
---@return boolean
function crypto.equal(a, b) end

--- Base64 with padding (RFC 4648 §4).
---@param bytes string
---@return string text
function crypto.base64(bytes) end

--- The bytes of a base64 text; nothing unless it is the canonical form with padding (RFC 4648 §4) and nothing else.
---@param text string
---@return string? bytes
function crypto.unbase64(text) end

--- Bytes that nobody can guess.
---@param n integer  [1, 4096]
---@return string bytes
function crypto.random(n) end

--- An identifier that nobody can guess, of the characters a-z and 2-7: 5 bits each.
---@param n integer  [1, 64] characters
---@return string
function crypto.id(n) end

--- Encrypts and authenticates (XSalsa20-Poly1305, a random nonce): the same bytes give another text each time.
---@param key string    32 bytes
---@param bytes string  at most 4096 bytes
---@return string text  URL-safe base64 without padding
function crypto.seal(key, bytes) end

--- The bytes of a sealed text; nothing when it was not sealed with the key, was changed, or is not in canonical form.
---@param key string  32 bytes
---@param text string
---@return string? bytes
function crypto.open(key, text) end

return crypto
