-- timeout: 120
--- core.jwt: signatures of every kind that counts, and the tricks that are played with headers and keys.

local core = require "demilune.core"
local issuer = require "spec.auth.issuer"

local json, jwt = core.json, core.jwt

local ALGS = { "RS256", "PS256", "ES256", "EdDSA" }
local CLAIMS = { iss = "i", sub = "s", n = 1 }

describe("core.jwt", function()
  local rsa, ec, ed, other

  setup(function()
    rsa, ec, ed, other = issuer.key("rsa", "r"), issuer.key("ec", "e"), issuer.key("ed", "d"), issuer.key("rsa", "r")
  end)

  local function keys(...) return assert(jwt.keys(issuer.set(...))) end

  local function fault_of(set, token, algs)
    local claims, fault = set:verify(token, algs or ALGS)
    assert.is_nil(claims)
    return fault
  end

  it("takes RS256, PS256, ES256 and EdDSA", function()
    local set = keys(rsa, ec, ed)
    assert.are.equal(3, #set)
    for _, token in ipairs { rsa:token(CLAIMS), rsa:token(CLAIMS, { alg = "PS256" }), ec:token(CLAIMS), ed:token(CLAIMS) } do
      local claims, fault = set:verify(token, ALGS)
      assert.is_nil(fault)
      assert.are.same(CLAIMS, claims)
    end
  end)

  it("refuses the signature of another key, and claims that were changed", function()
    local set = keys(rsa, ec, ed)
    assert.are.equal("signature", fault_of(set, other:token(CLAIMS)))
    for _, key in ipairs { rsa, ec, ed } do
      local head, _, tail = key:token(CLAIMS):match "^(.-)%.(.-)%.(.*)$"
      local changed = head .. "." .. issuer.base64(json.encode { iss = "i", sub = "root", n = 1 }) .. "." .. tail
      assert.are.equal("signature", fault_of(set, changed))
      assert.are.equal("signature", fault_of(set, head .. "." .. issuer.base64(json.encode(CLAIMS)) .. "."))
    end
  end)

  it("refuses tokens without a signature, whatever they call that", function()
    for _, alg in ipairs { "none", "None", "NONE", "nOnE", "" } do
      assert.are.equal("algorithm", fault_of(keys(rsa), issuer.token({ alg = alg, kid = "r" }, CLAIMS, function() return "" end)))
    end
  end)

  it("refuses an HMAC whose secret is the public key", function()
    local secrets = { issuer.set(rsa), json.encode(rsa.jwk), rsa.jwk.n }
    for _, secret in ipairs(secrets) do
      local token = issuer.token({ alg = "HS256", kid = "r" }, CLAIMS, function(bytes)
        return (core.crypto.hmac(secret, bytes):gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
      end)
      assert.are.equal("algorithm", fault_of(keys(rsa), token))
    end
    assert.has_error(function() keys(rsa):verify("a.b.c", { "HS256" }) end)
    assert.has_error(function() keys(rsa):verify("a.b.c", { "none" }) end)
  end)

  it("refuses an algorithm that is not allowed, and one that is not the key's", function()
    assert.are.equal("algorithm", fault_of(keys(rsa), rsa:token(CLAIMS), { "ES256" }))
    assert.are.equal("algorithm", fault_of(keys(rsa), rsa:token(CLAIMS), {}))
    assert.are.equal("algorithm", fault_of(keys(rsa), rsa:token(CLAIMS, { alg = "RS512" })))
    local as_ec = issuer.token({ alg = "ES256", kid = "r" }, CLAIMS, function(bytes) return rsa:sign("RS256", bytes) end)
    assert.are.equal("unknown_key", fault_of(keys(rsa), as_ec))
    local bound = { kty = "RSA", n = rsa.jwk.n, e = rsa.jwk.e, kid = "r", alg = "PS256" }
    assert.are.equal("unknown_key", fault_of(keys(bound), rsa:token(CLAIMS)))
    assert.is_truthy(keys(bound):verify(rsa:token(CLAIMS, { alg = "PS256" }), ALGS))
  end)

  it("looks at no key that a token brings along or names", function()
    local header = { jwk = other.jwk, jku = "http://127.0.0.1:1/jwks", x5u = "http://127.0.0.1:1/x", x5c = json.array { "AAAA" } }
    assert.are.equal("signature", fault_of(keys(rsa), other:token(CLAIMS, header)))
    assert.is_truthy(keys(rsa):verify(rsa:token(CLAIMS, header), ALGS))
  end)

  it("finds the key by its id alone, and without one only where there is no choice", function()
    local token = rsa:token(CLAIMS, { kid = "unknown" })
    assert.are.equal("unknown_key", fault_of(keys(rsa), token))
    for _, kid in ipairs { "../../dev/null", "r' OR 1=1", "R", ("x"):rep(4000), "" } do
      assert.are.equal("unknown_key", fault_of(keys(rsa), rsa:token(CLAIMS, { kid = kid })))
    end
    assert.are.equal("malformed", fault_of(keys(rsa), rsa:token(CLAIMS, { kid = 7 })))
    local bare = issuer.token({ alg = "RS256" }, CLAIMS, function(bytes) return rsa:sign("RS256", bytes) end)
    assert.is_truthy(keys(rsa, ec):verify(bare, ALGS))
    local second = issuer.key("rsa", "r2")
    assert.are.equal("unknown_key", fault_of(keys(rsa, second), bare))
    -- Two keys of one id: each is tried.
    assert.is_truthy(keys(other, rsa):verify(rsa:token(CLAIMS), ALGS))
  end)

  it("refuses what demands extensions, and tokens of other types", function()
    assert.are.equal("critical", fault_of(keys(rsa), rsa:token(CLAIMS, { crit = json.array { "b64" }, b64 = false })))
    assert.are.equal("malformed", fault_of(keys(rsa), rsa:token(CLAIMS, { typ = "secevent+jwt" })))
    for _, typ in ipairs { "JWT", "jwt", "AT+JWT", "application/at+jwt" } do
      assert.is_truthy(keys(rsa):verify(rsa:token(CLAIMS, { typ = typ }), ALGS))
    end
  end)

  it("refuses what is no JWT", function()
    local good = rsa:token(CLAIMS)
    local head, body, tail = good:match "^(.-)%.(.-)%.(.*)$"
    local cases = {
      "", ".", "..", "...", "a", "a.b", "a.b.c", good .. ".x", "." .. good, head .. ".." .. tail, "." .. body .. "." .. tail,
      head .. "=." .. body .. "." .. tail, head .. "\n." .. body .. "." .. tail, ("x"):rep(20000), good .. ("A"):rep(20000),
      issuer.base64 "[]" .. "." .. body .. "." .. tail, issuer.base64 "{" .. "." .. body .. "." .. tail,
      issuer.base64('{"alg":["RS256"]}') .. "." .. body .. "." .. tail, issuer.base64(("["):rep(5000)) .. "." .. body .. ".",
      "\xff\xfe." .. body .. "." .. tail, head .. ".\0." .. tail,
    }
    for i, token in ipairs(cases) do
      local claims, fault = keys(rsa):verify(token, ALGS)
      assert.is_nil(claims, tostring(i))
      assert.is_true(fault == "malformed" or fault == "signature", tostring(i) .. tostring(fault))
    end
    assert.are.equal("malformed", fault_of(keys(rsa), rsa:token "[1]"))
    assert.are.equal("malformed", fault_of(keys(rsa), rsa:token "no json"))
  end)

  it("survives noise in every place of a token", function()
    math.randomseed(5)
    local good, set = ec:token(CLAIMS), keys(ec)
    for _ = 1, 500 do
      local at = math.random(#good)
      local byte = string.char(math.random(0, 255))
      local token = good:sub(1, at - 1) .. byte .. good:sub(at + 1)
      local claims, fault = set:verify(token, ALGS)
      if claims then assert.are.same(CLAIMS, claims) else assert.is_string(fault) end
      if claims then assert.are.equal(good, token) end
    end
  end)

  it("keeps of a set what can check a signature, and nothing that could make one", function()
    local function count(...)
      local set = jwt.keys(issuer.set(...))
      return set and #set or 0
    end
    local n, e = rsa.jwk.n, rsa.jwk.e
    assert.are.equal(0, count({ kty = "oct", k = "AAAAAAAAAAAAAAAAAAAAAA", alg = "HS256" }))
    assert.are.equal(0, count(issuer.key "small"))
    assert.are.equal(0, count({ kty = "RSA", n = n, e = e, use = "enc" }))
    assert.are.equal(0, count({ kty = "RSA", n = n, e = e, key_ops = json.array { "encrypt" } }))
    assert.are.equal(1, count({ kty = "RSA", n = n, e = e, use = "sig", key_ops = json.array { "verify" } }))
    assert.are.equal(0, count({ kty = "RSA", n = n, e = "AQ" }))
    assert.are.equal(0, count({ kty = "RSA", n = n, e = "AQAA" }))
    assert.are.equal(0, count({ kty = "RSA", n = n .. "!", e = e }))
    assert.are.equal(0, count({ kty = "RSA", n = issuer.base64(("\xff"):rep(2000)), e = e }))
    assert.are.equal(0, count({ kty = "EC", crv = "P-384", x = ec.jwk.x, y = ec.jwk.y }))
    assert.are.equal(0, count({ kty = "EC", crv = "P-256", x = ec.jwk.x }))
    assert.are.equal(0, count({ kty = "OKP", crv = "X25519", x = ed.jwk.x }))
    assert.are.equal(0, count({ kty = "RSA", n = n, e = e, kid = 5 }))
    assert.are.equal(1, count({ kty = "what", x = 1 }, {}, rsa))
  end)

  it("does not verify by a point that is not on the curve", function()
    local bent = { kty = "EC", crv = "P-256", kid = "e", x = ec.jwk.x, y = ec.jwk.x }
    local set = jwt.keys(issuer.set(bent))
    if set then assert.are.equal("signature", fault_of(set, ec:token(CLAIMS))) end
  end)

  it("refuses sets that are none", function()
    for _, text in ipairs { "", "{}", "[]", '{"keys":{}}', '{"keys":[]}', '{"keys":[1,"x",null]}', "<html>", ("["):rep(300) } do
      local set, err = jwt.keys(text)
      assert.is_nil(set)
      assert.are.equal("invalid_response", err.category)
    end
  end)

  it("looks at no more than 64 keys of a set", function()
    local many = {}
    for i = 1, 100 do many[i] = { kty = "OKP", crv = "Ed25519", x = ed.jwk.x, kid = tostring(i) } end
    assert.are.equal(64, #assert(jwt.keys(issuer.set(table.unpack(many)))))
  end)
end)
