-- timeout: 90
--- Credentials in requests and tokens out of answers: where they go, and that Lua sees none of them.

local core = require "demilune.core"
local harness = require "spec.net.harness"
local os_calls = require "spec_os"
local peer = require "spec.net.peer"
local transport = require "demilune.transport"

local http, task, vault = core.http, core.task, core.vault

local KEY = "canary-key-4f1c9a7d"

local node = peer.node()
if not node then
  it("credentials", function() pending("no Node here to be the server") end)
  return
end

describe("core.http", function()
  local server, other, certificates, origin, key

  local function write_secret(name, text)
    local path = ("%s/%s.secret"):format(certificates, name)
    local file = assert(io.open(path, "w"))
    file:write(text, "\n")
    file:close()
    assert(os_calls.chmod(path, 384)) -- 0600
    return "file:" .. path
  end

  setup(function()
    certificates = peer.certificates()
    server = peer.start({ node, "spec/net/h2_server.mjs", certificates .. "/one", certificates }, certificates .. "/one")
    other = peer.start({ node, "spec/net/h2_server.mjs", certificates .. "/two", certificates }, certificates .. "/two")
    origin = "https://localhost:" .. server.ports.tls
    task.run(function()
      assert(vault.define("net-key", write_secret("net-key", KEY)))
      assert(vault.load("net-key"))
    end)
    key = vault.bind("net-key", { header = "X-API-Key", origins = { origin }, suffixes = { "sandbox.test" }, is_unix = true })
  end)

  teardown(function()
    server:stop()
    other:stop()
  end)

  local function options(target, fields)
    local opts = {
      url = origin .. target, ca_file = certificates .. "/ca.pem", timeout_ms = 5000, max_body_bytes = 1 << 20,
      credentials = { key },
    }
    for name, value in pairs(fields or {}) do opts[name] = value end
    return opts
  end

  local function run(body)
    task.run(function()
      body()
      http.close_idle()
    end)
  end

  local function headers_seen(fields)
    local res = assert(http.request(options("/info", fields)))
    local body = res.body
    if not body then
      body = assert(res:read(5000))
      res:close()
    end
    return assert(core.json.decode(body)).headers
  end

  it("sends a credential in its header, over HTTP/2, over HTTP/1.1 and in streams", function()
    run(function()
      for _, fields in ipairs { {}, { body = "x", method = "POST" }, { stream = true }, { is_fresh = true } } do
        local seen = headers_seen(fields)
        assert.are.equal(KEY, seen["x-api-key"])
        assert.is_nil(headers_seen({ credentials = {} })["x-api-key"])
      end
      local bearer = vault.bind("net-key", { header = "Authorization", prefix = "Bearer ", origins = { origin } })
      local seen = headers_seen { credentials = { key, bearer }, headers = { ["X-A"] = ("y"):rep(2000) } }
      assert.are.same({ KEY, "Bearer " .. KEY }, { seen["x-api-key"], seen.authorization })
    end)
  end)

  it("sends a credential over a unix socket", function()
    harness.with_server(function(req)
      req:respond(200, nil, req.headers["x-api-key"])
    end, function(path)
      assert.are.equal(KEY, assert(harness.fetch(path, "/", { credentials = { key } })).body)
    end)
  end)

  it("raises before it sends one where it must not go", function()
    run(function()
      assert.is_table(headers_seen())
      local places = {
        "https://localhost:" .. other.ports.tls .. "/", "http://localhost:" .. server.ports.tls .. "/",
        "https://127.0.0.1:" .. server.ports.tls .. "/", "https://localhost/", "https://sandbox.test.evil.test/",
        "http://a.sandbox.test/", "https://a.sandbox.test:444/",
      }
      for _, url in ipairs(places) do
        local ok, err = pcall(http.request, options("", { url = url }))
        assert.is_false(ok)
        assert.is_nil(tostring(err):find(KEY, 1, true))
      end
      -- One that may go there, and through the tunnel of a proxy alone.
      local _, err = http.request(options("", { url = "https://a.sandbox.test/", proxy = "http://127.0.0.1:1" }))
      assert.are.equal("connection_failed", err.category)
    end)
  end)

  it("says that a credential is not loaded, and sends nothing", function()
    run(function()
      assert(vault.define("net-late", write_secret("net-late", "canary-late-77aa")))
      local late = vault.bind("net-late", { header = "X-API-Key", origins = { origin } })
      local _, err = http.request(options("/info", { credentials = { late } }))
      assert.are.equal("authentication_failed", err.category)
      assert(vault.load("net-late"))
      assert.are.equal("canary-late-77aa", headers_seen({ credentials = { late } })["x-api-key"])
    end)
  end)

  it("takes no list of credentials that is none", function()
    run(function()
      for _, value in ipairs { "x", 1, true, { "x" }, { KEY }, { {} } } do
        assert.is_false((pcall(http.request, options("/info", { credentials = value }))))
      end
    end)
  end)

  local function binding() return { header = "X-Access-Token", origins = { origin } } end

  it("lifts tokens out of an answer before Lua sees it", function()
    run(function()
      local tokens = { ["/token"] = binding(), ["/items/*/token"] = binding() }
      for _, fields in ipairs { {}, { method = "POST", body = "{}" } } do
        fields.tokens = tokens
        local res = assert(http.request(options("/token", fields)))
        assert.is_nil(res.body)
        assert.are.equal("i1", res.json.id)
        assert.are.equal("credential(token)", tostring(res.json.token))
        assert.are.equal("credential(token)", tostring(res.json.items[1].token))
        assert.are.equal(core.json.null, res.json.items[2].token)
        assert.are.equal("application/json", res.headers["content-type"])
        local seen = headers_seen { credentials = { res.json.token } }
        assert.are.equal("tok-0123456789abcdef", seen["x-access-token"])
      end
    end)
  end)

  it("leaves an answer without success as it is, and refuses one that is no JSON", function()
    run(function()
      local tokens = { ["/token"] = binding() }
      local res = assert(http.request(options("/bare/404", { tokens = tokens })))
      assert.are.same({ 404, "no JSON", nil }, { res.status, res.body, res.json })
      res = assert(http.request(options("/bare/204", { tokens = tokens })))
      assert.are.same({ 204, "" }, { res.status, res.body })
      for _, code in ipairs { 200, 201 } do
        local none, err = http.request(options("/bare/" .. code, { tokens = tokens }))
        assert.is_nil(none)
        assert.are.equal("invalid_response", err.category)
      end
      local _, err = http.request(options("/hang", { tokens = tokens, timeout_ms = 100 }))
      assert.are.equal("provider_timeout", err.category)
      _, err = http.request(options("/big/70000", { tokens = tokens, max_body_bytes = 69999 }))
      assert.are.equal("too_large", err.category)
      _, err = http.request(options("/big/700000", { tokens = tokens }))
      assert.are.equal("invalid_response", err.category)
      assert.is_false((pcall(http.request, options("/token", { tokens = tokens, stream = true }))))
      assert.is_false((pcall(http.request, options("/token", { tokens = "x" }))))
    end)
  end)

  it("drops a request for tokens with its task", function()
    run(function()
      local job = task.spawn(function() http.request(options("/hang", { tokens = { ["/token"] = binding() } })) end)
      task.sleep(50)
      job:cancel()
      assert.is_false((job:wait(200)))
      assert.is_table(headers_seen())
    end)
  end)

  describe("behind demilune.transport", function()
    local function send(target, fields)
      return transport.new({ ca_file = certificates .. "/ca.pem" }):send(options(target, fields))
    end

    it("sends no credential where a redirect leads but to its own places", function()
      run(function()
        local res = send("/away/" .. other.ports.tls, { redirects = 1, credential_names = { "net-key" } })
        assert.are.equal(200, res.status)
        assert.is_nil(assert(core.json.decode(res.body)).headers["x-api-key"])
        res = send("/away/" .. server.ports.tls, { redirects = 1, credential_names = { "net-key" } })
        assert.are.equal(KEY, assert(core.json.decode(res.body)).headers["x-api-key"])
        res = send("/away/" .. other.ports.tls, { credential_names = { "net-key" } })
        assert.are.equal(302, res.status)
      end)
    end)

    it("reads a credential again that was refused, and sends once more", function()
      run(function()
        assert(vault.define("net-turn", write_secret("net-turn", "canary-old-1234")))
        local turning = { vault.bind("net-turn", { header = "X-API-Key", origins = { origin } }) }
        local fields = { credentials = turning, credential_names = { "net-turn" }, method = "POST", body = "{}" }
        assert.are.equal(200, send("/guard/canary-old-1234", fields).status)
        assert.are.equal(401, send("/guard/canary-new-5678", fields).status)
        write_secret("net-turn", "canary-new-5678")
        assert.are.equal(200, send("/guard/canary-new-5678", fields).status)
        assert.are.equal(401, send("/guard/canary-old-1234", fields).status)
        os.remove(certificates .. "/net-turn.secret")
        assert.are.equal(401, send("/guard/canary-old-1234", fields).status)
        assert.are.equal(200, send("/guard/canary-new-5678", fields).status)
      end)
    end)

    it("says which credential cannot be read", function()
      run(function()
        assert(vault.define("net-none", "file:" .. certificates .. "/nowhere"))
        local none = vault.bind("net-none", { header = "X-API-Key", origins = { origin } })
        local ok, err = pcall(send, "/info", { credentials = { none }, credential_names = { "net-none" } })
        assert.are.same({ false, "authentication_failed" }, { ok, err.category })
        assert.is_truthy(err.message:find("net-none", 1, true))
        assert.is_nil(core.json.encode(err):find(certificates, 1, true))
      end)
    end)
  end)
end)
