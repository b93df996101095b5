--- An authorization server for the specs: keys made and tokens signed by the openssl program, which shares no code with what
--- checks them here, and a JWKS URL whose answer the spec decides.

local core = require "demilune.core"
local lfs = require "lfs"
local os_calls = require "spec_os"

local crypto, json, httpd = core.crypto, core.json, core.httpd

local issuer = {}

local KINDS = {
  rsa = "-algorithm RSA -pkeyopt rsa_keygen_bits:2048", small = "-algorithm RSA -pkeyopt rsa_keygen_bits:1024",
  ec = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256", ed = "-algorithm ED25519",
}
local PSS = "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1 "

local folder

local function run(format, ...)
  local handle = assert(io.popen(("cd '%s' && openssl "):format(folder) .. format:format(...) .. " 2>>openssl.log"))
  local bytes = handle:read "a"
  assert(handle:close(), "openssl failed: see " .. folder .. "/openssl.log")
  return bytes
end

local function put(name, bytes)
  local file = assert(io.open(folder .. "/" .. name, "wb"))
  file:write(bytes)
  file:close()
end

--- Base64 for URLs without padding (RFC 7515 §2).
---@param bytes string
---@return string
function issuer.base64(bytes)
  return (crypto.base64(bytes):gsub("=+$", ""):gsub("+", "-"):gsub("/", "_"))
end

local base64 = issuer.base64

local function unhex(text)
  return (text:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

--- The public half as fields of a JWK.
local function public_of(name, kind)
  if kind == "rsa" or kind == "small" then
    return { kty = "RSA", n = base64(unhex(run("rsa -in %s -modulus -noout", name):match "=(%x+)")), e = "AQAB" }
  end
  local der = run("pkey -in %s -pubout -outform DER", name)
  if kind == "ed" then return { kty = "OKP", crv = "Ed25519", x = base64(der:sub(-32)) } end
  return { kty = "EC", crv = "P-256", x = base64(der:sub(-64, -33)), y = base64(der:sub(-32)) }
end

---@class spec.auth.Key
---@field name string
---@field kind string
---@field jwk table  the public half, with `kid`
local Key = {}
Key.__index = Key

local serial = 0

--- Makes a key.
---@param kind "rsa"|"small"|"ec"|"ed"
---@param kid? string
---@return spec.auth.Key
function issuer.key(kind, kid)
  folder = folder or assert(os_calls.mkdtemp((os.getenv("DML_SPEC_TMP") or "/tmp") .. "/issuer-XXXXXX"))
  assert(lfs.attributes(folder, "mode") == "directory")
  serial = serial + 1
  local name = ("key%d.pem"):format(serial)
  run("genpkey %s -out %s", KINDS[kind], name)
  local jwk = public_of(name, kind)
  jwk.kid = kid
  return setmetatable({ name = name, kind = kind, jwk = jwk }, Key)
end

--- r and s of an ASN.1 signature, 32 bytes each (RFC 7518 §3.4).
local function raw_signature(der)
  local function number(at)
    local len = der:byte(at + 1)
    local bytes = der:sub(at + 2, at + 1 + len):gsub("^\0+", "")
    return ("\0"):rep(32 - #bytes) .. bytes, at + 2 + len
  end
  local r, next_at = number(3)
  return r .. (number(next_at))
end

--- Signs bytes by an algorithm of JWS.
---@param alg string
---@param bytes string
---@return string
function Key:sign(alg, bytes)
  put("input", bytes)
  if alg == "EdDSA" then return run("pkeyutl -sign -rawin -inkey %s -in input", self.name) end
  local signature = run("dgst -sha256 -sign %s %s input", self.name, alg == "PS256" and PSS or "")
  return alg == "ES256" and raw_signature(signature) or signature
end

local function text_of(part)
  return base64(type(part) == "string" and part or json.encode(part))
end

--- A token of a header and claims, each a table or JSON text.
---@param header table|string
---@param claims table|string
---@param sign fun(bytes: string): string
---@return string
function issuer.token(header, claims, sign)
  local covered = text_of(header) .. "." .. text_of(claims)
  return covered .. "." .. base64(sign(covered))
end

--- A token of this key.
---@param claims table|string
---@param header? table  beside alg and kid
---@return string
function Key:token(claims, header)
  local alg = header and header.alg or ({ rsa = "RS256", small = "RS256", ec = "ES256", ed = "EdDSA" })[self.kind]
  local whole = { alg = alg, kid = self.jwk.kid, typ = "at+jwt" }
  for name, value in pairs(header or {}) do whole[name] = value end
  return issuer.token(whole, claims, function(bytes) return self:sign(alg, bytes) end)
end

--- A JWK set.
---@param ... spec.auth.Key|table
---@return string
function issuer.set(...)
  local keys = {}
  for i, key in ipairs { ... } do keys[i] = key.jwk or key end
  return json.encode { keys = json.array(keys) }
end

--- Serves JWKS; for use in a task. `state.body`, `state.status`, `state.answer` decide, `state.count` counts.
---@param state table  with `tls` over https
---@return string url
---@return table server
function issuer.serve(state)
  state.count = 0
  local fd, port = httpd.listen_tcp("127.0.0.1", state.port or 0)
  local server = assert(httpd.listen {
    fd = fd, connections = 64, max_requests = 64, max_header_bytes = 8192, tls = state.tls,
    handler = function(req)
      state.count = state.count + 1
      if state.answer then return state.answer(req) end
      req:respond(state.status or 200, { ["Content-Type"] = "application/json" }, state.body)
    end,
  })
  state.port = port
  return ("%s://127.0.0.1:%d/jwks"):format(state.tls and "https" or "http", port), server
end

return issuer
