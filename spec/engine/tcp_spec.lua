--- The engine's TCP door: what opens it, what it refuses, and what is not for it.

local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local support = require "spec.engine.support"
local tokens = require "demilune.engine.tokens"

local json = core.json

describe("the engine over TCP", function()
  local here, public

  setup(function() here, public = support.start_public() end)
  teardown(function() here:stop() end)

  local function within(fn) return function() support.run(fn) end end

  local function status_of(method, path, headers, body)
    local res = assert(public:request(method, path, { headers = headers, body = body, is_stranger = true }))
    return res.status, res.body ~= "" and json.decode(res.body) or nil
  end

  it("prints one line with its address", function()
    assert.truthy(here.program.stdout:find "^demilune engine listens on http://127%.0%.0%.1:%d+\n$")
    assert.are.equal("", here.program.stderr)
  end)

  it("asks for the key on every call of the control plane, and on addresses that are not there", within(function()
    local sandbox = public:create()
    local CALLS = {
      { "GET", "/sandboxes" }, { "GET", "/v2/sandboxes" }, { "POST", "/sandboxes" }, { "POST", "/v2/sandboxes" },
      { "GET", "/sandboxes/metrics" }, { "GET", "/templates" }, { "GET", "/" }, { "GET", "/nothing" }, { "PUT", "/sandboxes" },
      { "GET", "/demilune" }, { "POST", "/demilune/stop" }, { "GET", "/demilune/lease?id=" .. ("a"):rep(20) },
    }
    for _, call in ipairs { "GET ", "DELETE ", "POST /timeout", "POST /refreshes", "POST /connect", "POST /pause",
      "POST /resume", "POST /fork", "POST /snapshots", "GET /metrics", "GET /logs", "PUT /network" } do
      local method, rest = call:match "^(%u+) (.*)$"
      CALLS[#CALLS + 1] = { method, "/sandboxes/" .. sandbox.id .. rest }
    end
    local WRONG = {
      {}, { ["X-API-KEY"] = "" }, { ["X-API-KEY"] = support.KEY:sub(1, -2) }, { ["X-API-KEY"] = support.KEY .. "0" },
      { Authorization = "Bearer " .. support.KEY }, { ["X-Access-Token"] = sandbox.created.envdAccessToken },
    }
    for _, call in ipairs(CALLS) do
      for i, headers in ipairs(WRONG) do
        local status, body = status_of(call[1], call[2], headers)
        assert.are.same({ 401, "bad_key", 401 }, { status, body.error_code, body.code }, call[2] .. i)
      end
    end
    assert.are.equal(200, (public:call("GET", "/sandboxes/" .. sandbox.id)))
    assert.are.equal(204, (sandbox:kill()))
  end))

  it("has nothing of ours: no /demilune, no lease, no template of the client's, no variables", within(function()
    for _, path in ipairs { "/demilune", "/demilune/lease?id=" .. ("a"):rep(20) } do
      assert.are.equal(404, (public:call("GET", path)))
    end
    assert.are.equal(404, (public:call("POST", "/demilune/stop", {})))
    local sandbox = public:create { envVars = { SECRET = "1" }, demilune = { lease = "x", template = { disk = 1 } } }
    assert.is_nil(sandbox.created.demilune)
    local _, shown = public:call("GET", "/sandboxes/" .. sandbox.id)
    assert.is_nil(shown.demilune)
    assert.is_nil(json.encode(shown):find "SECRET")
    assert.are.equal(1024, shown.diskSizeMB)
    assert.are.equal(404, (public:call("POST", "/sandboxes", { templateID = "t", demilune = { template = { disk = 1 } } })))
    sandbox:kill()
  end))

  it("refuses pages of browsers and names that are not this machine's, with the key and without", within(function()
    for _, path in ipairs { "/sandboxes", "/health", "/files?path=x", "/nothing" } do
      for _, headers in ipairs {
        { Origin = "http://localhost" }, { Origin = "null" }, { Host = "example.com" }, { Host = "127.0.0.1.example.com" },
        { Host = "" },
      } do
        headers["X-API-KEY"] = support.KEY
        local status = status_of("GET", path, headers)
        assert.is_true(status == 403 or headers.Host == "" and status == 400, path)
      end
    end
    assert.are.equal(200, (status_of("GET", "/sandboxes", { Host = "localhost", ["X-API-KEY"] = support.KEY })))
  end))

  it("gives each sandbox a token of its own, and asks for it on every call of the data plane", within(function()
    local one, other = public:create(), public:create()
    local token, traffic = one.created.envdAccessToken, one.created.trafficAccessToken
    assert.is_true(#token >= 43 and #traffic >= 43 and token ~= traffic)
    assert.are_not.equal(token, other.created.envdAccessToken)
    local _, shown = public:call("GET", "/sandboxes/" .. one.id)
    assert.are.equal(token, shown.envdAccessToken)
    local _, connected = public:call("POST", "/v2/sandboxes/" .. one.id .. "/connect", {})
    assert.are.same({ token, traffic }, { connected.envdAccessToken, connected.trafficAccessToken })
    local _, listed = public:call("GET", "/v2/sandboxes")
    assert.is_nil(json.encode(listed):find(token, 1, true))

    local CALLS = {
      { "GET", "/health" }, { "GET", "/metrics" }, { "GET", "/envs" }, { "GET", "/files?path=x" },
      { "POST", "/files?path=x" }, { "POST", "/files/compose" }, { "POST", "/process.Process/Start" },
      { "POST", "/process.Process/List" },
      { "POST", "/filesystem.Filesystem/Stat" }, { "POST", "/process.Process/Nope" },
    }
    local WRONG = { "", token:sub(1, -2), token .. "a", other.created.envdAccessToken, traffic, support.KEY }
    for _, call in ipairs(CALLS) do
      for i = 0, #WRONG do
        local headers = { ["E2b-Sandbox-Id"] = one.id, ["E2b-Sandbox-Port"] = "49983", ["X-API-KEY"] = support.KEY,
          ["Content-Type"] = "application/json", ["X-Access-Token"] = WRONG[i] }
        local status, body = status_of(call[1], call[2], headers, call[1] == "POST" and "{}" or nil)
        assert.are.same({ 401, 401, "bad_token" }, { status, body.code, body.error_code }, call[2] .. i)
      end
    end
    assert.are.equal("x\n", one:start("echo x").stdout)
    local mine = { ["E2b-Sandbox-Id"] = one.id, ["X-Access-Token"] = token, ["Content-Type"] = "application/json" }
    local status, body = status_of("POST", "/files/compose", mine, "{}")
    assert.are.same({ 501, "unimplemented" }, { status, body.error_code })
    assert.are.equal(502, (status_of("GET", "/health", { ["E2b-Sandbox-Id"] = "i" .. ("a"):rep(19) })))
    one:kill()
    other:kill()
  end))

  it("takes the traffic token for the port of the kernels, not for envd's", within(function()
    local sandbox = public:create()
    local function health(port, headers)
      headers["E2b-Sandbox-Id"], headers["E2b-Sandbox-Port"] = sandbox.id, port
      return (status_of("GET", port == "49999" and "/contexts" or "/health", headers))
    end
    local traffic = { ["E2b-Traffic-Access-Token"] = sandbox.created.trafficAccessToken }
    assert.are.equal(401, health("49999", {}))
    assert.are.equal(401, health("49999", { ["E2b-Traffic-Access-Token"] = "x" }))
    assert.are_not.equal(401, health("49999", traffic))
    assert.are.equal(401, health("49983", traffic))
    sandbox:kill()
  end))

  it("refuses a second value of what decides who asks", within(function()
    local sandbox = public:create()
    for _, name in ipairs { "X-API-KEY", "X-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port", "Origin",
      "E2b-Traffic-Access-Token" } do
      local status = assert(public:request("GET", "/sandboxes", { headers = { [name] = { "a", "b" } } })).status
      assert.are.equal(400, status, name)
    end
    sandbox:kill()
  end))

  describe("with signed URLs", function()
    local sandbox, other

    setup(within(function()
      sandbox, other = public:create(), public:create()
      assert.are.equal(200, (sandbox:write("/home/user/a b.txt", "signed")))
    end))
    teardown(within(function()
      sandbox:kill()
      other:kill()
    end))

    --- A URL of /files signed with a token; fields of `more` come after the signing.
    local function url(operation, query, token, more)
      local parts = { "signature=" .. support.escape(tokens.signature(token, operation, query)) }
      for name, value in pairs(query) do parts[#parts + 1] = name .. "=" .. support.escape(value) end
      for name, value in pairs(more or {}) do parts[#parts + 1] = name .. "=" .. support.escape(value) end
      return "/files?" .. table.concat(parts, "&")
    end

    local function in_s(seconds) return tostring(core.task.epoch_ms() // 1000 + seconds) end

    it("reads and writes without any header", within(function()
      local token = sandbox.created.envdAccessToken
      local res = assert(public:request("GET", url("read", { path = "a b.txt" }, token), { is_stranger = true }))
      assert.are.same({ 200, "signed" }, { res.status, res.body })
      local dated = url("read", { path = "a b.txt", signature_expiration = in_s(60) }, token)
      assert.are.equal(200, assert(public:request("GET", dated, { is_stranger = true })).status)
      local status, body = status_of("POST", url("write", { path = "up.txt", username = "user" }, token),
        { ["Content-Type"] = "application/octet-stream" }, "uploaded")
      assert.are.same({ 200, "/home/user/up.txt" }, { status, body[1].path })
      assert.are.equal("uploaded", sandbox:read("up.txt").body)
      -- With the id in a header, as the SDK sends its own calls.
      local named = { ["E2b-Sandbox-Id"] = sandbox.id }
      assert.are.equal(200, assert(public:request("GET", dated, { is_stranger = true, headers = named })).status)
    end))

    it("refuses what is expired, signed for something else, or changed afterwards", within(function()
      local token = sandbox.created.envdAccessToken
      local CASES = {
        { url("read", { path = "a b.txt", signature_expiration = in_s(-1) }, token), "signature is already expired" },
        { url("read", { path = "a b.txt", signature_expiration = "soon" }, token), "signature is already expired" },
        { url("read", { path = "a b.txt", signature_expiration = ("9"):rep(30) }, token), "signature is already expired" },
        { url("write", { path = "a b.txt" }, token) }, { url("read", { path = "a b.txt" }, "another token") },
        { url("read", { path = "a b.txt" }, token, { username = "user" }) },
        { url("read", { path = "a b.txt" }, token, { signature_expiration = in_s(60) }) },
        { url("read", { path = "a b.txt" }, token, { path = "/etc/passwd" }) },
        { "/files?path=a%20b.txt&signature=v1_" }, { "/files?path=a%20b.txt&signature=" },
      }
      for i, case in ipairs(CASES) do
        local status, body = status_of("GET", case[1])
        assert.are.same({ 401, case[2] or "invalid signature" }, { status, body.message }, i)
      end
      -- A valid one of another sandbox than the header names, and one beside a wrong token.
      local good = url("read", { path = "a b.txt" }, token)
      assert.are.equal(401, (status_of("GET", good, { ["E2b-Sandbox-Id"] = other.id })))
      local wrong = { ["E2b-Sandbox-Id"] = sandbox.id, ["X-Access-Token"] = "x" }
      assert.are.equal(401, (status_of("GET", good, wrong)))
      assert.are.equal(401, (status_of("GET", "/files?path=a%20b.txt", { ["E2b-Sandbox-Id"] = sandbox.id })))
    end))

    it("are no key to anything else, and nothing at the unix socket", within(function()
      local signed = url("read", { path = "/health" }, sandbox.created.envdAccessToken):gsub("^/files", "")
      local named = { ["E2b-Sandbox-Id"] = sandbox.id }
      assert.are.equal(401, (status_of("GET", "/health" .. signed, named)))
      assert.are.equal(401, (status_of("GET", "/metrics" .. signed, named)))
      local res = assert(here:request("GET", "/files" .. signed))
      assert.are.equal(502, res.status)
    end))
  end)

  it("leaves the unix socket as it was: no tokens to see, none asked for", within(function()
    local sandbox = here:create()
    assert.are.equal(json.null, sandbox.created.envdAccessToken)
    assert.are.equal(json.null, sandbox.created.trafficAccessToken)
    assert.is_table(sandbox.created.demilune)
    local _, shown = here:call("GET", "/sandboxes/" .. sandbox.id)
    assert.are.equal(json.null, shown.envdAccessToken)
    assert.are.equal("x\n", sandbox:start("echo x").stdout)
    -- It is one engine: the owner of the key sees it too, and then with its token.
    local _, seen = public:call("GET", "/sandboxes/" .. sandbox.id)
    assert.is_string(seen.envdAccessToken)
    sandbox:kill()
  end))

  it("serves what older and newer SDKs ask for", within(function()
    local v1 = { templateID = "base", secure = true, allow_internet_access = true, autoPause = false, timeout = 60 }
    local status, created = public:call("POST", "/sandboxes", v1)
    assert.are.equal(201, status)
    local _, shown = public:call("GET", "/sandboxes/" .. created.sandboxID)
    assert.is_false(shown.allowInternetAccess)
    local v2_status, v2 = public:call("POST", "/v2/sandboxes", { templateID = "code-interpreter-v1" })
    assert.are.equal(201, v2_status)
    for _, id in ipairs { created.sandboxID, v2.sandboxID } do
      assert.are.equal(200, (public:call("POST", "/sandboxes/" .. id .. "/connect", { timeout = 90 })))
      assert.are.equal(200, (public:call("POST", "/v2/sandboxes/" .. id .. "/connect", {})))
      assert.are.equal(204, (public:call("POST", "/sandboxes/" .. id .. "/refreshes", {})))
      assert.are.equal(409, (public:call("POST", "/sandboxes/" .. id .. "/resume", {})))
      assert.are.equal(204, (public:call("DELETE", "/sandboxes/" .. id)))
    end
  end))

  it("keeps the unix socket for its user while strangers hold every connection there is", within(function()
    local flood = assert(io.popen(([[timeout 20 /usr/bin/python3 -c '
import socket, time
held = []
for i in range(700):
    s = socket.create_connection(("127.0.0.1", %s))
    s.sendall(b"GET /sandboxes HTTP/1.1\r\nHost: localhost\r\nX: ")
    held.append(s)
print("held", flush=True)
time.sleep(1.5)
']]):format(public.url:match ":(%d+)$")))
    assert.are.equal("held", flood:read "l")
    local before_ms = core.task.now_ms()
    local sandbox = here:create()
    assert.are.equal("x\n", sandbox:start("echo x").stdout)
    sandbox:kill()
    assert.is_true(core.task.now_ms() - before_ms < 1400)
    flood:close()
    assert.are.equal(200, (public:call("GET", "/v2/sandboxes")))
  end))

  it("turns a stranger away without waiting for what is still to be sent", within(function()
    local before_ms = core.task.now_ms()
    for _, path in ipairs { "/sandboxes", "/nothing", "/files?path=x", "/process.Process/Start" } do
      local res = assert(public:request("POST", path, { is_stranger = true, body = ("x"):rep(8 << 20) }))
      assert.is_true(res.status == 401 or res.status == 502, path)
    end
    assert.is_true(core.task.now_ms() - before_ms < 3000)
  end))

  it("leaves when nobody needs it only if told so", function()
    local told = support.start_public { args = { "--idle-seconds", "1" } }
    assert.are.equal(0, told.program:wait(4000).code)
    told:stop()
  end)

  describe("refuses to start", function()
    local home = demilune.home()

    local function fails(args, text)
      local command = { "engine" }
      for _, word in ipairs(args) do command[#command + 1] = word end
      local program = demilune.start { args = command, home = home }
      local ended = program:wait(5000)
      program:stop()
      assert.are.equal(2, ended.code)
      assert.are.equal("", program.stdout)
      assert.truthy(program.stderr:find(text, 1, true), program.stderr)
      assert.truthy(program.stderr:find "^demilune: [^\n]+\n$", program.stderr)
      assert.is_nil(program.stderr:find(support.KEY, 1, true))
    end

    it("without a key, on an address that others reach, and with a key that others can read", function()
      local key = home .. "/key"
      support.write_key(key, support.KEY)
      fails({ "--listen", "127.0.0.1:0" }, "--listen and --key-file go together")
      fails({ "--key-file", key }, "--listen and --key-file go together")
      for _, address in ipairs { "0.0.0.0:0", "[::]:0", "192.0.2.1:80", "localhost:0", "127.0.0.1" } do
        fails({ "--listen", address, "--key-file", key }, "--listen cannot be used")
      end
      support.write_key(key, support.KEY, "644")
      fails({ "--listen", "127.0.0.1:0", "--key-file", key }, "its mode must be 0600")
      support.write_key(key, "short", "600")
      fails({ "--listen", "127.0.0.1:0", "--key-file", key }, "16 to 256 bytes")
      fails({ "--listen", "127.0.0.1:0", "--key-file", home .. "/none" }, "it cannot be read")
    end)
  end)

  it("says so when the port is taken, and leaves no socket", function()
    local home = demilune.home()
    support.write_key(home .. "/key", support.KEY)
    local program = demilune.start { home = home,
      args = { "engine", "--listen", public.url:match "http://(.*)", "--key-file", home .. "/key" } }
    local ended = program:wait(5000)
    program:stop()
    assert.are.equal(1, ended.code)
    assert.truthy(program.stderr:find "cannot listen")
    assert.is_nil((core.fs.stat(home .. "/state/demilune/engine.sock")))
  end)

  it("listens on ::1 as well, where the machine has it", function()
    local fd = core.httpd.listen_tcp("::1", 0)
    if not fd then return end
    core.sys.close(fd)
    local local_engine, v6 = support.start_public { listen = "[::1]:0" }
    assert.truthy(v6.url:find "^http://%[::1%]:%d+$")
    support.run(function()
      local sandbox = v6:create()
      assert.are.equal("six\n", sandbox:start("echo six").stdout)
    end)
    local_engine:stop()
  end)
end)
