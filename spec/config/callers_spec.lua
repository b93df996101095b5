--- The keys of `http` that say who may call; what doctor says of what they name.

local core = require "demilune.core"
local health = require "demilune.cli.health"
local issuer = require "spec.auth.issuer"
local os_calls = require "spec_os"
local peer = require "spec.net.peer"
local support = require "spec.config.support"

local fault, load = support.fault, support.load

local function oauth(changes)
  local fields = {
    issuer = '"https://login.example.com/"', audience = '"https://mcp.example.com/mcp"', jwks = '"https://a.b/jwks"',
  }
  for name, value in pairs(changes or {}) do fields[name] = value or nil end
  local parts = {}
  for name, value in pairs(fields) do
    if value then parts[#parts + 1] = name .. " = " .. value end
  end
  return ("return { http = { oauth = { %s } } }"):format(table.concat(parts, ", "))
end

describe("who may call, in the configuration", function()
  it("is found beside the file", function()
    local config = load [[return { http = { token_file = "tokens", tls = { cert = "c.pem", key = "/k.pem" } } }]]
    assert.are.equal(config.dir .. "/tokens", config.http.token_file)
    assert.are.equal(config.dir .. "/c.pem", config.http.tls.cert)
    assert.are.equal("/k.pem", config.http.tls.key)
    assert.is_nil(load("return {}").http.oauth)
  end)

  it("keeps the issuer to its last byte", function()
    local config = load(oauth())
    assert.are.equal("https://login.example.com/", config.http.oauth.issuer)
    assert.are.same({}, config.http.oauth.scopes)
  end)

  it("is refused where a part is missing", function()
    assert.truthy(fault('return { http = { tls = { cert = "c" } } }'):find("http.tls has no `key`", 1, true))
    for _, name in ipairs { "issuer", "audience", "jwks" } do
      assert.truthy(fault(oauth { [name] = false }):find("http.oauth has no `" .. name .. "`", 1, true))
    end
  end)

  it("is refused where keys would be fetched in the clear, or a value can be none", function()
    assert.truthy(fault(oauth { jwks = '"http://login.example.com/jwks"' }):find("plain http", 1, true))
    assert.is_table(load(oauth { jwks = '"http://127.0.0.1:9/jwks"' }))
    assert.truthy(fault(oauth { issuer = '"login"' }):find("http.oauth.issuer is no URL", 1, true))
    assert.truthy(fault(oauth { audience = '"two words"' }):find("http.oauth.audience must be", 1, true))
    assert.truthy(fault(oauth { scopes = '{ "a b" }' }):find("http.oauth.scopes[1] must be a scope", 1, true))
    assert.truthy(fault(oauth { algorithms = '{ "none" }' }):find("algorithms is not a key", 1, true))
  end)
end)

describe("doctor's rows about callers", function()
  local folder

  setup(function() folder = assert(os_calls.mkdtemp((os.getenv "DML_SPEC_TMP" or "/tmp") .. "/callers-XXXXXX")) end)

  local function write(name, text, mode)
    local file = assert(io.open(folder .. "/" .. name, "w"))
    file:write(text)
    file:close()
    assert(os.execute(("chmod %s '%s/%s'"):format(mode or "600", folder, name)))
    return folder .. "/" .. name
  end

  local function rows(http)
    local found = {}
    core.task.run(function()
      for _, row in ipairs(health.callers { http = http }) do found[row.name] = row end
      core.http.close_idle()
    end)
    return found
  end

  it("are none where nothing is configured", function()
    assert.are.same({}, rows {})
    assert.are.same({}, rows(nil))
  end)

  it("say whether the tokens can be used", function()
    local path = write("tokens", "alice:" .. core.crypto.sha256 "x" .. "\n")
    assert.are.same({ name = "tokens", ok = true, text = "callers: 1" }, rows({ token_file = path }).tokens)
    write("tokens", "alice:x\n")
    local row = rows({ token_file = path }).tokens
    assert.is_false(row.ok)
    assert.truthy(row.text:find(path .. ":1: ", 1, true))
  end)

  it("say whether the certificate can be used, and until when", function()
    local certificates = peer.certificates()
    local function row(name)
      local tls = { cert = certificates .. "/" .. name .. ".pem", key = certificates .. "/good.key" }
      return rows({ tls = tls }).certificate
    end
    assert(os.execute(("chmod 600 '%s'/*.key"):format(certificates)))
    local good = row "good"
    assert.is_true(good.ok)
    assert.truthy(good.text:find "expires on %d%d%d%d%-%d%d%-%d%d")
    assert.is_false(row("other-host").ok)
    assert.truthy(row("other-host").text:find("the key is not the certificate's", 1, true))
    assert(os.execute(("cd '%s' && cp expired.key good.key"):format(certificates)))
    local expired = row "expired"
    assert.is_false(expired.ok)
    assert.truthy(expired.text:find "expired on")
  end)

  it("say whether the issuer's keys can be had", function()
    local state, row = { body = issuer.set(issuer.key("ed", "k")) }, nil
    core.task.run(function()
      local url, server = issuer.serve(state)
      row = health.callers({ http = { oauth = { jwks = url } } })[1]
      server:close()
      assert.are.same({ name = "issuer's keys", ok = true, text = "1 that can be used" }, row)
      row = health.callers({ http = { oauth = { jwks = url } } })[1]
      assert.is_false(row.ok)
      assert.truthy(row.text:find("http.oauth.jwks: it cannot be fetched", 1, true))
      core.http.close_idle()
    end)
  end)
end)
