-- timeout: 600
--- Over HTTP: many sessions, streams and calls leave memory and descriptors where they were, and connections that do nothing
--- hold nobody up.

local client = require "spec.e2e.http_client"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"
local steady = require "spec.support.steady"

local json, task = core.json, core.task
local IDLE_CONNECTIONS = 1000

describe("serve --http", function()
  local home, server

  setup(function()
    home = demilune.home()
    server = client.start { home = home }
  end)

  teardown(function()
    server:stop()
    demilune.remove_home(home)
  end)

  local function ping(headers) return client.post(server, client.message "ping", headers) end

  it("keeps its size over 10,000 sessions that are begun and ended, and 2,000 that are left behind", function()
    client.run(function()
      steady.check("sessions that are ended", server.pid, 1000, 10000, function()
        local res = client.post(server, client.hello())
        local headers = { ["Mcp-Session-Id"] = res.headers["mcp-session-id"] }
        assert.are.equal(204, client.fetch(server, "DELETE", headers).status)
      end)
      steady.check("sessions that are left", server.pid, 500, 2000, function()
        assert.are.equal(200, client.post(server, client.hello()).status)
      end)
    end)
  end)

  it("keeps its size over 10,000 calls of either kind", function()
    client.run(function()
      local send = client.session(server)
      local body, fields = client.modern("tools/call", { name = "get_sandbox", arguments = json.decode "{}" }, "get_sandbox")
      body = json.encode(body)
      local call = json.encode(client.call("get_sandbox", json.decode "{}"))
      steady.check("calls over HTTP", server.pid, 1000, 10000, function(i)
        local res = i % 2 == 0 and send(call) or client.post(server, body, fields)
        assert.are.equal(200, res.status)
      end)
    end)
  end)

  it("answers beside 1,000 connections that do nothing", function()
    client.run(function()
      local fds = {}
      local ok, err = pcall(function()
        for i = 1, IDLE_CONNECTIONS do fds[i] = assert(os_calls.connect_tcp(math.tointeger(tonumber(server.port)))) end
        local _, headers = client.session(server)
        local from = task.now_ms()
        for _ = 1, 200 do assert.are.equal(200, ping(headers).status) end
        assert.is_true(task.now_ms() - from < 10000)
      end)
      for _, fd in ipairs(fds) do core.sys.close(fd) end
      if not ok then error(err, 0) end
    end)
  end)
end)
