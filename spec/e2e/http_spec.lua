-- timeout: 180
--- `demilune serve --http`: what is answered with which status, sessions and their ends, the revision without sessions.

local client = require "spec.e2e.http_client"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

local json, task = core.json, core.task
local start, run, with, fetch, post = client.start, client.run, client.with, client.fetch, client.post
local message, hello, session, modern, call = client.message, client.hello, client.session, client.modern, client.call
local WAIT_MS, EVENTS, PLAIN = 10000, client.EVENTS, client.PLAIN
local META = "io.modelcontextprotocol/"

--- Asserts a refusal: its status, and JSON-RPC's error in JSON.
local function assert_refused(status, code, res)
  assert.are.equal(status, res.status, res.body)
  assert.are.equal("application/json", res.headers["content-type"])
  local body = json.decode(res.body)
  assert.are.equal("2.0", body.jsonrpc)
  if code then assert.are.equal(code, body.error.code, res.body) end
  assert.is_true(#body.error.message > 0)
  return body
end

describe("the endpoint", function()
  local home, server

  setup(function()
    home = demilune.home()
    server = start { home = home, config = "return { http = { max_body = 1 } }" }
  end)

  teardown(function()
    server:stop()
    demilune.remove_home(home)
  end)

  it("refuses what is no message for it, each with its status", function()
    run(function()
      local ping = json.encode(message "ping")
      assert_refused(400, -32700, post(server, "{"))
      assert_refused(400, -32600, post(server, "[]"))
      assert_refused(400, -32600, post(server, "[" .. ping .. "]"))
      assert.are.equal(7, assert_refused(400, -32600, post(server, '{"jsonrpc":"2.0","id":7}')).id)
      assert_refused(400, -32600, post(server, ping))
      assert_refused(404, -32001, post(server, ping, { ["Mcp-Session-Id"] = "nosuch" }))
      assert_refused(404, -32001, fetch(server, "DELETE", { ["Mcp-Session-Id"] = "nosuch" }))
      assert_refused(404, -32001, fetch(server, "GET", { ["Mcp-Session-Id"] = "nosuch", Accept = "text/event-stream" }))
      assert_refused(406, nil, post(server, ping, { Accept = "text/html" }))
      assert_refused(406, nil, fetch(server, "GET", { ["Mcp-Session-Id"] = "nosuch", Accept = "application/json" }))
      assert_refused(415, nil, post(server, ping, { ["Content-Type"] = "text/plain" }))
      assert_refused(415, nil, post(server, ping, { ["Content-Type"] = "absent" }))
      local res = fetch(server, "PUT", PLAIN, ping)
      assert_refused(405, nil, res)
      assert.are.equal("POST, GET, DELETE, OPTIONS", res.headers.allow)
      assert_refused(404, nil, fetch(server, "POST", PLAIN, ping, "/other"))
      assert_refused(413, nil, post(server, ('"%s"'):format(("x"):rep(1024 * 1024 + 1))))
      assert.are.equal(431, post(server, ping, { ["X-Long"] = ("x"):rep(20000) }).status)
    end)
  end)

  it("refuses pages of other origins and names that were made to point here", function()
    run(function()
      local body = json.encode(hello())
      for _, origin in ipairs {
        "https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1.evil.example:80",
      } do
        assert_refused(403, nil, post(server, body, { Origin = origin }))
      end
      for _, host in ipairs { "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example" } do
        assert_refused(403, nil, post(server, body, { Host = host }))
      end
      for _, origin in ipairs { "http://localhost", "http://127.0.0.1:5173", "https://[::1]:8443" } do
        local res = post(server, body, { Origin = origin })
        assert.are.equal(200, res.status)
        assert.are.equal(origin, res.headers["access-control-allow-origin"])
      end
      assert.is_nil(post(server, body).headers["access-control-allow-origin"])
      local res = fetch(server, "OPTIONS", { Origin = "http://localhost:1", ["Access-Control-Request-Method"] = "POST" })
      assert.are.equal(204, res.status)
      assert.is_truthy(res.headers["access-control-allow-headers"]:find("Mcp-Session-Id", 1, true))
    end)
  end)

  it("negotiates each revision, and asks for no field that came later", function()
    run(function()
      for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
        local send = session(server, revision)
        assert.are.equal(15, #json.decode(send(message "tools/list").body).result.tools)
        assert.are.equal(200, send(message "ping", { ["MCP-Protocol-Version"] = "absent" }).status)
        assert_refused(400, nil, send(message "ping", { ["MCP-Protocol-Version"] = "1999-01-01" }))
      end
      assert.are.equal("2025-11-25", json.decode(post(server, hello "1999-01-01").body).result.protocolVersion)
    end)
  end)

  it("gives no session to an initialize that fails", function()
    run(function()
      local res = post(server, message("initialize", { capabilities = {} }))
      assert.are.equal(-32602, json.decode(res.body).error.code)
      assert.is_nil(res.headers["mcp-session-id"])
    end)
  end)

  it("keeps ids as they came, integers of any length and strings", function()
    run(function()
      local send = session(server)
      for _, id in ipairs { '"a\\u0041"', "12345678901234567890123", "-7", '""', "0" } do
        local res = send('{"jsonrpc":"2.0","id":' .. id .. ',"method":"ping"}')
        assert.are.equal('{"jsonrpc":"2.0","id":' .. id .. ',"result":{}}', res.body)
      end
    end)
  end)
end)

describe("sessions", function()
  local home, server

  setup(function()
    home = demilune.home()
    server = start { home = home, config = "return { http = { sessions = 3, session_idle = 3600 } }" }
  end)

  teardown(function()
    server:stop()
    demilune.remove_home(home)
  end)

  it("have sandboxes of their own, which end with them", function()
    run(function()
      local one, headers = session(server)
      local two = session(server)
      local made = json.decode(one(call("run_command", { command = "echo one > mine" })).body).result
      if made.isError then pending "this machine cannot isolate a sandbox" end
      local id = made.structuredContent.sandbox_id
      local err = json.decode(two(call("read_file", { path = "mine" })).body).result._meta["dev.demilune/error"]
      assert.are.equal("no_default_sandbox", err.category)
      assert.are.equal(204, fetch(server, "DELETE", headers).status)
      assert_refused(404, -32001, one(message "ping"))
      local left
      local deadline = os_calls.now_ms() + WAIT_MS
      repeat
        task.sleep(50)
        left = json.decode(two(call "list_sandboxes").body).result.structuredContent.sandboxes
      until #left == 0 or os_calls.now_ms() > deadline
      assert.are.equal(0, #left, id)
    end)
  end)

  it("give way to new ones when they are too many, the longest idle first", function()
    run(function()
      local sends = {}
      for i = 1, 3 do sends[i] = session(server) end
      assert.are.equal(200, sends[1](message "ping").status)
      local fourth = session(server)
      assert.are.equal(404, sends[2](message "ping").status)
      for _, send in ipairs { sends[1], sends[3], fourth } do assert.are.equal(200, send(message "ping").status) end
    end)
  end)
end)

describe("2026-07-28 over HTTP", function()
  local home, server

  setup(function()
    home = demilune.home()
    server = start { home = home }
  end)

  teardown(function()
    server:stop()
    demilune.remove_home(home)
  end)

  local function ask(method, params, name, more)
    local body, headers = modern(method, params, name)
    return post(server, body, with(headers, more))
  end

  it("needs no session and has its own errors' statuses", function()
    run(function()
      local found = json.decode(ask("server/discover").body).result
      assert.are.equal("2026-07-28", found.supportedVersions[1])
      assert.are.equal(200, ask("tools/list").status)
      assert_refused(404, -32601, ask "nosuch/method")
      for _, method in ipairs { "initialize", "ping", "logging/setLevel", "resources/subscribe" } do
        assert_refused(404, -32601, ask(method))
      end
      assert_refused(400, -32602, ask("tools/call", { name = "nosuch", arguments = {} }, "nosuch"))
      assert_refused(405, nil, fetch(server, "GET", { ["MCP-Protocol-Version"] = "2026-07-28", Accept = EVENTS }))
      assert_refused(405, nil, fetch(server, "DELETE", { ["MCP-Protocol-Version"] = "2026-07-28" }))
      local body = modern "tools/list"
      body.params._meta[META .. "protocolVersion"] = "2099-01-01"
      local refused = assert_refused(400, -32022, post(server, body, {
        ["MCP-Protocol-Version"] = "2099-01-01", ["Mcp-Method"] = "tools/list",
      }))
      assert.are.same({ "2026-07-28" }, { table.unpack(refused.error.data.supported) })
    end)
  end)

  it("refuses fields that do not say what the body says", function()
    run(function()
      local params = { name = "get_sandbox", arguments = {} }
      assert.are.equal(200, ask("tools/call", params, "get_sandbox").status)
      assert.are.equal(200, ask("tools/call", params, "=?base64?Z2V0X3NhbmRib3g=?=").status)
      assert.are.equal(200, ask("tools/call", params, "  get_sandbox ").status)
      for _, more in ipairs {
        { ["MCP-Protocol-Version"] = "absent" }, { ["MCP-Protocol-Version"] = "2025-11-25" }, { ["Mcp-Method"] = "absent" },
        { ["Mcp-Method"] = "Tools/call" }, { ["Mcp-Name"] = "absent" }, { ["Mcp-Name"] = "Get_sandbox" },
        { ["Mcp-Name"] = "=?base64?Z2V0X3NhbmRib3g?=" }, { ["Mcp-Name"] = "=?base64?!!!!?=" },
      } do
        assert_refused(400, -32020, ask("tools/call", params, "get_sandbox", more))
      end
    end)
  end)

  it("has one scope a principal, and others by name", function()
    run(function()
      local function command(text, scope)
        local _meta = scope and { ["dev.demilune/scope"] = scope } or {}
        local params = { name = "run_command", arguments = { command = text }, _meta = _meta }
        return json.decode(ask("tools/call", params, "run_command").body).result
      end
      local made = command "echo mine > note"
      if made.isError then pending "this machine cannot isolate a sandbox" end
      assert.are.equal("mine\n", command("cat note").structuredContent.stdout)
      assert.are_not.equal(0, command("cat note", "other").structuredContent.exit_code)
      for _, wrong in ipairs { "", ("x"):rep(65), "a b", "é" } do
        local params = { name = "run_command", arguments = { command = "true" }, _meta = { ["dev.demilune/scope"] = wrong } }
        assert_refused(400, -32602, ask("tools/call", params, "run_command"))
      end
    end)
  end)
end)

describe("serve --http", function()
  it("listens on other machines' addresses only with tokens", function()
    local home = demilune.home()
    local result = demilune.run({ "serve", "--http", "0.0.0.0:0" }, { home = home })
    assert.are.equal(2, result.code)
    assert.is_truthy(result.stderr:find("--token-file", 1, true), result.stderr)
    for _, wrong in ipairs { "localhost:9000", "127.0.0.1", "127.0.0.1:99999", ":9000", "nonsense" } do
      result = demilune.run({ "serve", "--http", wrong }, { home = home })
      assert.are.equal(2, result.code, wrong)
      assert.is_truthy(result.stderr:find("127.0.0.1:9000", 1, true), result.stderr)
    end
    demilune.remove_home(home)
  end)

  it("ends within its time, with calls at work", function()
    local home = demilune.home()
    local server = start { home = home }
    run(function()
      local send = session(server)
      local waiting = task.spawn(function() return pcall(send, call("run_command", { command = "sleep 60" })) end)
      task.sleep(500)
      server:signal(15)
      assert.is_true(waiting:wait(3000))
      assert.are.same({ code = 0 }, server:wait(3000))
    end)
    server:stop()
    demilune.remove_home(home)
  end)
end)
