-- timeout: 180
--- `demilune serve --http` and who may call it: the real program, tokens, an authorization server, TLS, its pages.

local canary = require "spec.support.canary"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local issuer = require "spec.auth.issuer"
local os_calls = require "spec_os"
local peer = require "spec.net.peer"

local json, task = core.json, core.task
local SIGHUP = 1
local WAIT_MS = 10000
local MCP = "/mcp"

local INITIALIZE = json.encode {
  jsonrpc = "2.0", id = 1, method = "initialize",
  params = { protocolVersion = "2025-11-25", capabilities = {}, clientInfo = { name = "spec", version = "1" } },
}

local function write(path, text, mode)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  assert(os_calls.chmod(path, tonumber(mode or "600", 8)))
  return path
end

local function line_of(name, token) return name .. ":" .. core.crypto.sha256(token) .. "\n" end

--- Until `check()` is true; the program's output is read meanwhile.
local function eventually(server, what, check)
  local deadline = os_calls.now_ms() + WAIT_MS
  while not check() do
    assert(os_calls.now_ms() < deadline, "not within its time: " .. what .. "; stderr: " .. server.stderr)
    server:pump(20)
    if task.current() then task.sleep(1) end
  end
end

local function start(options)
  local server = demilune.start(options)
  eventually(server, "it listens", function() return server.stderr:find("listening on %S+/mcp") end)
  server.scheme, server.port = server.stderr:match "listening on (%a+)://[^:]+:(%d+)/mcp"
  return server
end

--- A request; in a task.
local function fetch(server, path, options)
  local url = ("%s://127.0.0.1:%s%s"):format(server.scheme, server.port, path)
  local request = { url = url, timeout_ms = 8000, max_body_bytes = 1 << 20 }
  for name, value in pairs(options or {}) do request[name] = value end
  return core.http.request(request)
end

local function post(server, token, body, more)
  local headers = { ["Content-Type"] = "application/json", Accept = "application/json, text/event-stream" }
  if token then headers.Authorization = "Bearer " .. token end
  for name, value in pairs(more or {}) do headers[name] = value end
  return fetch(server, MCP, { method = "POST", headers = headers, body = body })
end

local function run(body)
  task.run(function()
    local ok, err = xpcall(body, debug.traceback)
    core.http.close_idle()
    if not ok then error(err, 0) end
  end)
end

describe("serve --http with a file of tokens", function()
  local home, server, token, tokens

  setup(function()
    home = demilune.home()
    token = canary.new()
    tokens = write(home .. "/tokens", line_of("alice", token) .. line_of("bob", "tok-bob"))
    server = start { args = { "serve", "--http", "127.0.0.1:0", "--token-file", tokens }, home = home }
  end)

  teardown(function()
    server:stop()
    demilune.remove_home(home)
  end)

  it("serves its holders, each with sessions that the other cannot use", function()
    run(function()
      local res = assert(post(server, token, INITIALIZE))
      assert.are.equal(200, res.status)
      local session = res.headers["mcp-session-id"]
      local ping = json.encode { jsonrpc = "2.0", id = 2, method = "ping" }
      assert.are.equal(200, post(server, token, ping, { ["Mcp-Session-Id"] = session }).status)
      assert.are.equal(404, post(server, "tok-bob", ping, { ["Mcp-Session-Id"] = session }).status)
      assert.are.equal(401, post(server, nil, ping, { ["Mcp-Session-Id"] = session }).status)
      assert.are.equal(401, post(server, token .. "x", INITIALIZE).status)
    end)
  end)

  it("answers with JSON and a challenge, and repeats no token", function()
    run(function()
      for _, given in ipairs { "", token .. "0", "Basic " .. core.crypto.base64("a:" .. token) } do
        local headers = { ["Content-Type"] = "application/json", Authorization = given ~= "" and given or nil }
        local res = assert(fetch(server, MCP, { method = "POST", headers = headers, body = INITIALIZE }))
        assert.is_true(res.status == 401 or res.status == 400)
        assert.truthy(res.headers["www-authenticate"]:find '^Bearer realm="demilune"')
        assert.are.equal("application/json", res.headers["content-type"])
        assert.is_table(json.decode(res.body).error)
        assert.is_nil(canary.find(res.body .. res.headers["www-authenticate"], token))
      end
      local res = assert(fetch(server, MCP .. "?access_token=" .. token, {
        method = "POST", headers = { ["Content-Type"] = "application/json", Authorization = "Bearer " .. token }, body = INITIALIZE,
      }))
      assert.are.equal(400, res.status)
      assert.truthy(res.body:find "Authorization")
      assert.is_nil(canary.find(res.body, token))
    end)
  end)

  it("has an open /health and a /metrics that asks for a token", function()
    run(function()
      local health = json.decode(assert(fetch(server, "/health")).body)
      assert.are.equal("ok", health.status)
      assert.are.equal("2026-07-28", health.revisions[1])
      assert.is_true(health.sessions >= 1)
      assert.are.equal(401, fetch(server, "/metrics").status)
      assert.are.equal(405, fetch(server, "/health", { method = "POST", body = "" }).status)
      local call = json.encode {
        jsonrpc = "2.0", id = 3, method = "tools/call", params = {
          name = "get_sandbox", arguments = {}, _meta = {
            ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = {},
          },
        },
      }
      local modern = { ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = "get_sandbox" }
      assert.are.equal(200, post(server, token, call, modern).status)
      local res = assert(fetch(server, "/metrics", { headers = { Authorization = "Bearer " .. token } }))
      assert.are.equal(200, res.status)
      assert.truthy(res.headers["content-type"]:find("version=0.0.4", 1, true))
      assert.truthy(res.body:find('demilune_calls_total{tool="get_sandbox",outcome="no_default_sandbox"} 1\n', 1, true))
      assert.truthy(res.body:find('demilune_call_duration_seconds_count{tool="get_sandbox"} 1\n', 1, true))
      assert.truthy(res.body:find "\ndemilune_sessions %d+\n")
      assert.is_nil(canary.find(res.body, token))
    end)
  end)

  it("reads its tokens again, and keeps the old ones when the new are wrong", function()
    run(function()
      write(tokens, line_of("alice", token) .. "carol:nonsense-that-is-secret\n")
      server:signal(SIGHUP)
      task.sleep(200)
      assert.are.equal(200, post(server, "tok-bob", INITIALIZE).status)
      write(tokens, line_of("alice", token) .. line_of("carol", "tok-carol"))
      server:signal(SIGHUP)
      eventually(server, "carol may call", function() return post(server, "tok-carol", INITIALIZE).status == 200 end)
      assert.are.equal(401, post(server, "tok-bob", INITIALIZE).status)
    end)
    write(tokens, line_of("alice", token), "644")
    local ran = demilune.run({ "reload" }, { home = home })
    assert.are.equal(1, ran.code)
    assert.truthy(ran.stderr:find("chmod 600", 1, true), ran.stderr)
    assert(os_calls.chmod(tokens, tonumber("600", 8)))
    assert.are.equal(0, demilune.run({ "reload" }, { home = home }).code)
  end)

  it("writes no token anywhere", function()
    server:pump(0)
    assert.is_nil(canary.find(server.stdout .. server.stderr, token))
    assert.is_nil(canary.find_in(home .. "/state", token))
    local found = false
    for _, text in ipairs { server.stderr } do found = found or text:find "nonsense" ~= nil end
    assert.is_false(found)
    assert.is_nil(canary.find_in(home .. "/state", "nonsense-that-is-secret"))
  end)
end)

describe("serve --http", function()
  local home

  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  local function refused(args, config)
    local ran = demilune.run(args, { home = home, config = config })
    assert.are.equal(2, ran.code, ran.stderr)
    return ran.stderr
  end

  it("does not listen where other machines reach it and nobody is asked who he is", function()
    assert.truthy(refused({ "serve", "--http", "0.0.0.0:0" }):find "token")
    assert.truthy(refused({ "serve", "--http", "[::]:0" }):find "token")
  end)

  it("does not start with tokens or a certificate that are wrong", function()
    local bad = write(home .. "/tokens", "alice:nope\n")
    assert.truthy(refused({ "serve", "--http", "127.0.0.1:0", "--token-file", bad }):find(bad .. ":1: ", 1, true))
    assert.truthy(refused({ "serve", "--token-file", bad }):find("go with --http", 1, true))
    local config = ('return { http = { listen = "127.0.0.1:0", tls = { cert = "%s", key = "%s" } } }'):format(bad, bad)
    assert.truthy(refused({ "serve" }, config):find("holds no certificate in PEM form", 1, true))
  end)

  it("says so when nobody is asked who he is", function()
    local server = start { args = { "serve", "--http", "127.0.0.1:0" }, home = home }
    eventually(server, "it says so", function() return server.stderr:find("without tokens", 1, true) end)
    run(function()
      assert.are.equal(200, post(server, nil, INITIALIZE).status)
      assert.are.equal(200, fetch(server, "/metrics").status)
      assert.are.equal(404, fetch(server, "/.well-known/oauth-protected-resource").status)
    end)
    server:stop()
  end)
end)

describe("serve --http with an authorization server", function()
  it("serves whom it sends, and tells clients where it is", function()
    local home, key = demilune.home(), issuer.key("rsa", "k1")
    run(function()
      local state = { body = issuer.set(key) }
      local url, keys = issuer.serve(state)
      local server = start {
        home = home, config = ([[return { http = { listen = "127.0.0.1:0", oauth = {
          issuer = "https://login.example.com", audience = "https://mcp.example.com/mcp", jwks = "%s", scopes = { "mcp" } } } }]])
          :format(url),
      }
      local function token(changes)
        local claims = {
          iss = "https://login.example.com", aud = "https://mcp.example.com/mcp", sub = "u1", scope = "mcp",
          exp = os.time() + 60,
        }
        for name, value in pairs(changes or {}) do claims[name] = value end
        return key:token(claims)
      end
      assert.are.equal(200, post(server, token(), INITIALIZE).status)
      local refused = post(server, nil, INITIALIZE)
      assert.are.equal(401, refused.status)
      local where = refused.headers["www-authenticate"]:match 'resource_metadata="https://mcp%.example%.com([^"]+)"'
      local document = json.decode(fetch(server, where).body)
      assert.are.equal("https://mcp.example.com/mcp", document.resource)
      assert.are.same({ "https://login.example.com" }, document.authorization_servers)
      assert.are.equal(401, post(server, token { exp = os.time() - 90 }, INITIALIZE).status)
      local lacking = post(server, token { scope = "other" }, INITIALIZE)
      assert.are.equal(403, lacking.status)
      assert.truthy(lacking.headers["www-authenticate"]:find('error="insufficient_scope"', 1, true))
      keys:close()
      server:stop()
    end)
    demilune.remove_home(home)
  end)
end)

describe("serve --http with TLS", function()
  it("shows a new certificate after a reload, to new connections", function()
    local home, certificates = demilune.home(), peer.certificates()
    local function copy(name)
      for from, to in pairs { [name .. ".pem"] = "now.pem", [name .. ".key"] = "now.key" } do
        assert(os.execute(("cd '%s' && cp %s %s && chmod 600 %s"):format(certificates, from, to, to)))
      end
    end
    copy "good"
    local tokens = write(home .. "/tokens", line_of("alice", "tok-alice"))
    local server = start {
      home = home, args = { "serve", "--http", "127.0.0.1:0", "--token-file", tokens },
      config = ('return { http = { tls = { cert = "%s/now.pem", key = "%s/now.key" } } }'):format(certificates, certificates),
    }
    assert.are.equal("https", server.scheme)
    run(function()
      local function health(ca) return (fetch(server, "/health", { ca_file = certificates .. "/" .. ca, is_fresh = true })) end
      assert.are.equal(200, health("ca.pem").status)
      assert.is_nil(health "self-signed.pem")
      copy "self-signed"
      server:signal(SIGHUP)
      eventually(server, "the new one is shown", function() return health "self-signed.pem" end)
      assert.is_nil(health "ca.pem")
      write(certificates .. "/now.key", "nonsense")
      server:signal(SIGHUP)
      task.sleep(200)
      assert.are.equal(200, health("self-signed.pem").status)
    end)
    local ran = demilune.run({ "reload" }, { home = home })
    assert.are.equal(1, ran.code)
    assert.truthy(ran.stderr:find("the key file holds no private key in PEM form", 1, true), ran.stderr)
    server:stop()
    demilune.remove_home(home)
  end)
end)
