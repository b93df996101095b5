--- Clients that are never silent and never done: a head that drips, and a body that nobody wants.

local core = require "demilune.core"
local harness = require "spec.net.harness"

local task = core.task

describe("core.httpd", function()
  --- Sends `bytes` one at a time until the server closes; how long that took, and what it said.
  local function drip(path, head, bytes, pause_ms)
    local client <close> = harness.connect(path)
    local before_ms = task.now_ms()
    assert.is_true(client:send(head))
    local answer = ""
    for i = 1, #bytes do
      task.sleep(pause_ms)
      if not client:send(bytes:sub(i, i)) then break end
      if task.now_ms() - before_ms > 6000 then break end
      answer = answer .. client:receive(nil, 1)
    end
    return task.now_ms() - before_ms, answer, client.is_closed
  end

  local function answer(req) req:respond(200, nil, "done") end

  it("closes on a head that drips, however often a byte comes", function()
    harness.with_server(answer, function(path, server)
      local clients = {}
      for i = 1, 20 do
        clients[i] = task.spawn(drip, path, "GET / HTTP/1.1\r\nHost: a\r\nX: ", ("x"):rep(200), 40)
      end
      for _, client in ipairs(clients) do
        local _, span_ms, _, is_closed = client:wait()
        assert.is_true(is_closed)
        assert.is_true(span_ms > 900 and span_ms < 3000, span_ms)
      end
      harness.eventually("no connection is left", function() return server:connections() == 0 end)
    end, { idle_timeout_s = 1 })
  end)

  it("gives the next head of a kept connection as much time, and no more", function()
    harness.with_server(answer, function(path)
      local client <close> = harness.connect(path)
      for _ = 1, 3 do
        client:send "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        assert.truthy(client:receive "done$":find "200 OK")
        task.sleep(500)
      end
      for _ = 1, 60 do
        if not client:send "G" then break end
        task.sleep(50)
      end
      assert.is_true(client.is_closed)
    end, { idle_timeout_s = 1 })
  end)

  it("answers before the body, and does not wait for the rest of one that drips", function()
    harness.with_server(function(req) req:respond(403, nil, "no") end, function(path)
      local span_ms, _, is_closed = drip(path, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", ("x"):rep(200), 40)
      assert.is_true(is_closed)
      assert.is_true(span_ms < 3000, span_ms)
    end, { idle_timeout_s = 1 })
  end)

  it("lets a handler and a body that is read take longer than that", function()
    harness.with_server(function(req)
      local body = req:read_all(1000)
      task.sleep(1500)
      req:respond(200, nil, body)
    end, function(path)
      local client <close> = harness.connect(path)
      client:send "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n"
      for _ = 1, 20 do
        task.sleep(75)
        assert.is_true(client:send "y")
      end
      assert.truthy(client:receive(("y"):rep(20) .. "$", 4000):find "200 OK")
    end, { idle_timeout_s = 1 })
  end)
end)
