--- core.httpd: handlers, their bodies and answers, clients that leave, servers that close.

local core = require "demilune.core"
local harness = require "spec.net.harness"
local os_calls = require "spec_os"

local task, http, httpd, sys = core.task, core.http, core.httpd, core.sys
local fetch, with_server, eventually = harness.fetch, harness.with_server, harness.eventually

local GET = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

local function put(length, fields)
  return ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n"):format(length, fields or "")
end

describe("a handler of core.httpd", function()
  it("that raises gives 500 without a word of the error", function()
    core.log.set_level("off")
    with_server(function() error("canary-of-the-handler") end, function(path)
      for _, options in ipairs { {}, { method = "POST", body = "x" }, { method = "PUT", body = ("x"):rep(1 << 20) } } do
        local res = assert(fetch(path, "/", options))
        assert.are.equal(500, res.status)
        assert.is_nil(res.body:find("canary", 1, true))
        assert.are.equal(500, core.json.decode(res.body).code)
      end
    end)
    core.log.set_level("warn")
  end)

  it("that gives no answer gives 500", function()
    with_server(function() end, function(path)
      assert.are.equal(500, assert(fetch(path, "/")).status)
    end)
  end)

  it("that is cancelled gives 500", function()
    local running
    with_server(function()
      running = task.current()
      task.sleep(10000)
    end, function(path)
      local client = task.spawn(function() return fetch(path, "/") end)
      eventually("the handler runs", function() return running end)
      running:cancel()
      local _, res = client:wait(1000)
      assert.are.equal(500, res.status)
    end)
  end)

  it("that ends in the middle of its answer cuts it", function()
    core.log.set_level("off")
    with_server(function(req)
      req:start(200)
      req:write("half")
      task.sleep(5)
      if req.path == "/raise" then error("canary") end
    end, function(path)
      for _, target in ipairs { "/raise", "/return" } do
        local res, err = fetch(path, target)
        assert.is_nil(res)
        assert.are.equal("invalid_response", err.category)
      end
    end)
    core.log.set_level("warn")
  end)

  it("may answer once only", function()
    with_server(function(req)
      assert.is_true(req:respond(200, nil, "first"))
      assert.has_error(function() req:respond(200, nil, "second") end)
      assert.has_error(function() req:start(200) end)
      assert.has_error(function() req:write("x") end)
      assert.has_error(function() req:finish() end)
    end, function(path)
      assert.are.equal("first", assert(fetch(path, "/")).body)
    end)
  end)

  it("cannot send what is no HTTP", function()
    local tried = 0
    with_server(function(req)
      for _, headers in ipairs { { ["X-A"] = "a\r\nb: c" }, { ["X A"] = "b" }, { ["X-A"] = "\0" } } do
        tried = tried + (pcall(req.respond, req, 200, headers, "x") and 0 or 1)
      end
      for _, status in ipairs { 0, 100, 199, 600, 99999 } do
        tried = tried + (pcall(req.respond, req, status) and 0 or 1)
      end
      req:respond(200, nil, "fine")
    end, function(path)
      assert.are.equal("fine", assert(fetch(path, "/")).body)
      assert.are.equal(8, tried)
    end)
  end)

  it("knows the process on the other side of a unix socket", function()
    with_server(function(req)
      local peer = req:peer()
      req:respond(200, nil, ("%d %d %d"):format(peer.uid, peer.gid, peer.pid))
    end, function(path)
      assert.are.equal(("%d %d %d"):format(os_calls.ids()), assert(fetch(path, "/")).body)
    end)
  end)

  it("may end the connection with its answer", function()
    with_server(function(req) req:respond(200, { Connection = "close" }, "last") end, function(path)
      local connection = harness.connect(path)
      connection:send(GET .. GET)
      local answer, is_closed = connection:receive()
      assert.is_truthy(answer:find("[Cc]onnection: close\r\n"))
      assert.are.equal(1, select(2, answer:gsub("last", "")))
      assert.is_true(is_closed)
      connection:close()
    end)
  end)

  it("keeps its request after the exchange is over", function()
    local kept
    with_server(function(req)
      kept = req
      req:respond(200, nil, "x")
      task.sleep(30)
    end, function(path)
      assert(fetch(path, "/a?b=c", { headers = { ["X-A"] = "1" } }))
      http.close_idle()
      task.sleep(50)
      assert.are.equal("/a", kept.path)
      assert.are.equal("c", kept.query.b)
      assert.are.equal("1", kept.headers["x-a"])
      assert.is_nil(kept:peer())
      assert.is_nil(kept.no_such_field)
      kept:abort()
    end)
    assert.are.equal("GET", kept.method)
  end)

  it("may give no body with 204, 304 and HEAD, whatever it writes", function()
    with_server(function(req)
      req:start(tonumber(req.path:sub(2)), req.query.length and { ["Content-Length"] = 3 } or nil)
      req:write("abc")
      req:finish()
    end, function(path, server)
      local cases = { { "/204" }, { "/304" }, { "/204?length=1" }, { "/200", "HEAD" }, { "/200?length=1", "HEAD" } }
      for _, case in ipairs(cases) do
        local res = assert(fetch(path, case[1], { method = case[2] or "GET" }))
        assert.are.equal(tonumber(case[1]:match("%d+")), res.status)
        assert.are.equal("", res.body)
        assert.are.equal("abc", assert(fetch(path, "/200")).body)
      end
      assert.is_true(server:connections() <= 2)
    end)
  end)

  it("streams chunks, or bytes of an announced length", function()
    with_server(function(req)
      req:start(200, req.path == "/fixed" and { ["Content-Length"] = 6 } or nil)
      req:write("abc")
      task.sleep(5)
      assert.is_true(req:write(""))
      req:write("def")
      assert.has_error(function() if req.path == "/fixed" then req:write("g") else error("x") end end)
      req:finish()
    end, function(path)
      local fixed = assert(fetch(path, "/fixed"))
      assert.are.equal("abcdef", fixed.body)
      assert.are.equal("6", fixed.headers["content-length"])
      local chunked = assert(fetch(path, "/chunked"))
      assert.are.equal("abcdef", chunked.body)
      assert.are.equal("chunked", chunked.headers["transfer-encoding"])
      local connection = harness.connect(path)
      connection:send("GET / HTTP/1.0\r\n\r\n")
      assert.is_truthy(connection:receive():find("\r\n\r\nabcdef$"))
      connection:close()
    end)
  end)
end)

describe("the body of a request", function()
  it("comes in pieces, then nil", function()
    with_server(function(req)
      local total, pieces = 0, 0
      while true do
        local chunk, err = req:read()
        if not chunk then
          assert(not err)
          break
        end
        total, pieces = total + #chunk, pieces + 1
      end
      assert.is_nil(req:read())
      req:respond(200, nil, ("%d %s"):format(total, pieces > 1))
    end, function(path)
      assert.are.equal("0 false", assert(fetch(path, "/")).body)
      assert.are.equal("3000000 true", assert(fetch(path, "/", { method = "PUT", body = ("x"):rep(3000000) })).body)
    end)
  end)

  it("is refused by read_all beyond its limit", function()
    with_server(function(req)
      local body, err = req:read_all(1000)
      req:respond(body and 200 or 413, nil, body or err.category)
    end, function(path)
      local chunked = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"
        .. ("x"):rep(1001) .. "\r\n0\r\n\r\n"
      local connection = harness.connect(path)
      connection:send(chunked)
      assert.is_truthy(connection:receive("too_large$"):find("^HTTP/1.1 413"))
      connection:close()
      assert.are.equal("too_large", assert(fetch(path, "/", { method = "PUT", body = ("x"):rep(1001) })).body)
      assert.are.equal(1000, #assert(fetch(path, "/", { method = "PUT", body = ("x"):rep(1000) })).body)
    end)
  end)

  it("need not be read: the client sees the answer, and the connection lives on", function()
    with_server(function(req) req:respond(403, nil, "no") end, function(path, server)
      for _, size in ipairs { 10, 200000, 5000000 } do
        local res = assert(fetch(path, "/", { method = "PUT", body = ("x"):rep(size) }))
        assert.are.equal("no", res.body)
        assert.are.equal(1, server:connections())
      end
    end)
  end)

  it("need not be read to its end", function()
    with_server(function(req)
      local first = assert(req:read())
      assert.is_true(#first < 5000000)
      req:respond(507, nil, "full")
    end, function(path, server)
      assert.are.equal("full", assert(fetch(path, "/", { method = "PUT", body = ("x"):rep(5000000) })).body)
      assert.are.equal(1, server:connections())
    end)
  end)

  it("cannot be read any more once the answer has begun", function()
    with_server(function(req)
      req:start(200)
      assert.has_error(function() req:read() end)
      req:write("begun")
      req:finish()
    end, function(path)
      assert.are.equal("begun", assert(fetch(path, "/", { method = "PUT", body = ("x"):rep(1000000) })).body)
    end)
  end)

  it("is asked for only when the handler reads it", function()
    with_server(function(req)
      if req.path == "/refuse" then return req:respond(413) end
      task.sleep(30)
      req:respond(200, nil, req:read_all(100))
    end, function(path)
      local connection = harness.connect(path)
      connection:send(put(5, "Expect: 100-continue\r\n"))
      assert.are.equal("", (connection:receive(nil, 15)))
      assert.are.equal("HTTP/1.1 100 Continue\r\n\r\n", (connection:receive("100 Continue\r\n\r\n$")))
      connection:send("hello")
      assert.is_truthy(connection:receive("hello$"):find("^HTTP/1.1 200"))
      connection:close()
      connection = harness.connect(path)
      connection:send((put(5, "Expect: 100-continue\r\n"):gsub("PUT /", "PUT /refuse")))
      local answer, is_closed = connection:receive()
      assert.is_truthy(answer:find("^HTTP/1.1 413"))
      assert.is_true(is_closed)
      connection:close()
    end)
  end)

  it("that is cut cancels its handler", function()
    local outcome
    with_server(function(req)
      outcome = table.pack(pcall(req.read_all, req, 1 << 30))
    end, function(path)
      for _, length in ipairs { 100, 1000000 } do
        outcome = nil
        local connection = harness.connect(path)
        connection:send(put(length) .. "some")
        task.sleep(10)
        assert.is_nil(outcome)
        connection:close()
        eventually("the handler is cancelled", function() return outcome end, 100)
        assert.are.equal(task.CANCELLED, outcome[2])
      end
    end)
  end)
end)

describe("a client that leaves", function()
  local WAITS = {
    { "sleeps", function() task.sleep(10000) end },
    { "waits between chunks", function(req)
      req:start(200)
      req:write("x")
      task.sleep(10000)
    end },
    { "writes to a full connection", function(req)
      req:start(200)
      while req:write(("x"):rep(100000)) do end
    end },
    { "writes one chunk larger than all buffers", function(req)
      req:start(200)
      req:write(("x"):rep(5000000))
    end },
  }
  for _, case in ipairs(WAITS) do
    it("cancels within 100 ms a handler that " .. case[1], function()
      local started, outcome
      with_server(function(req)
        started = true
        outcome = table.pack(pcall(case[2], req))
        error(outcome[2], 0)
      end, function(path, server)
        local connection = harness.connect(path)
        connection:send(GET)
        eventually("the handler runs", function() return started end)
        task.sleep(30)
        assert.is_nil(outcome)
        local before = task.now_ms()
        connection:close()
        eventually("the handler is cancelled", function() return outcome end)
        assert.is_true(task.now_ms() - before < 100)
        assert.are.equal(task.CANCELLED, outcome[2])
        eventually("the connection is closed", function() return server:connections() == 0 end)
      end)
    end)
  end

  it("leaves alone a handler that has answered", function()
    local finished
    with_server(function(req)
      req:respond(200, nil, "x")
      task.sleep(40)
      finished = true
    end, function(path)
      local connection = harness.connect(path)
      connection:send(GET)
      connection:receive("x$")
      connection:close()
      eventually("the handler ends", function() return finished end)
      assert.is_true(finished)
    end)
  end)

  it("before it has sent a whole head is no request", function()
    local handled = false
    with_server(function() handled = true end, function(path, server)
      local connection = harness.connect(path)
      connection:send("GET / HTTP/1.1\r\nHo")
      task.sleep(5)
      connection:close()
      eventually("the connection is closed", function() return server:connections() == 0 end)
      assert.is_false(handled)
    end)
  end)

  it("may come back on the same descriptor number without harm", function()
    local started, cancelled = 0, 0
    with_server(function(req)
      if req.path == "/quick" then return req:respond(200, nil, "x") end
      started = started + 1
      local _, err = pcall(task.sleep, 10000)
      if err == task.CANCELLED then cancelled = cancelled + 1 end
      error(err, 0)
    end, function(path, server)
      for round = 1, 50 do
        local connection = harness.connect(path)
        connection:send(GET)
        eventually("the handler runs", function() return started == round end)
        connection:close()
        assert.are.equal("x", assert(fetch(path, "/quick")).body)
        http.close_idle()
        eventually("round " .. round, function() return cancelled == round end)
      end
      eventually("all connections are closed", function() return server:connections() == 0 end)
    end)
  end)
end)

describe("a server", function()
  it("takes no more connections than its limit, and the waiting ones later", function()
    with_server(function(req)
      task.sleep(20)
      req:respond(200, { Connection = "close" }, "x")
    end, function(path, server)
      local clients, most = {}, 0
      local function client() return assert(fetch(path, "/", { headers = { Connection = "close" } })).body end
      for i = 1, 12 do clients[i] = task.spawn(client) end
      for i = 1, 12 do
        local ok, body
        repeat
          ok, body = clients[i]:wait(5)
          most = math.max(most, server:connections())
        until ok ~= nil
        assert.are.equal("x", body)
      end
      assert.is_true(most > 0 and most <= 3)
    end, { connections = 3 })
  end)

  it("answers 503 beyond its limit of requests", function()
    with_server(function(req)
      task.sleep(50)
      req:respond(200)
    end, function(path)
      local statuses, clients = {}, {}
      for i = 1, 5 do clients[i] = task.spawn(function() return assert(fetch(path, "/")).status end) end
      for i = 1, 5 do
        local _, status = clients[i]:wait(2000)
        statuses[status] = (statuses[status] or 0) + 1
      end
      assert.are.same({ [200] = 2, [503] = 3 }, statuses)
      assert.are.equal(200, assert(fetch(path, "/")).status)
    end, { max_requests = 2 })
  end)

  it("closes connections that nobody uses, but not those that wait for a handler", function()
    with_server(function(req)
      task.sleep(1500)
      req:respond(200, nil, "late")
    end, function(path, server)
      local idle, half, busy = harness.connect(path), harness.connect(path), harness.connect(path)
      half:send("GET / HT")
      busy:send(GET)
      eventually("all are there", function() return server:connections() == 3 end)
      eventually("two are closed", function() return server:connections() == 1 end, 4000)
      assert.is_truthy(busy:receive("late$", 3000):find("^HTTP/1.1 200"))
      for _, connection in ipairs { idle, half, busy } do connection:close() end
    end, { idle_timeout_s = 1 })
  end)

  it("ends all its requests when it closes", function()
    task.run(function()
      local outcomes, started = {}, 0
      local server, path = harness.serve(function(req)
        started = started + 1
        local ok, err
        if req.path == "/sleep" then
          ok, err = pcall(task.sleep, 10000)
        elseif req.path == "/read" then
          ok, err = pcall(req.read_all, req, 1 << 30)
        else
          req:start(200)
          ok, err = pcall(req.write, req, ("x"):rep(5000000))
        end
        outcomes[#outcomes + 1] = not ok and err == task.CANCELLED
        error(err, 0)
      end)
      local connections = {}
      for i, head in ipairs { "GET /sleep", "GET /write", "PUT /read" } do
        connections[i] = harness.connect(path)
        connections[i]:send(head .. " HTTP/1.1\r\nHost: a\r\n" .. (i == 3 and "Content-Length: 1000000\r\n\r\nx" or "\r\n"))
      end
      connections[4] = harness.connect(path)
      connections[5] = harness.connect(path)
      connections[5]:send("GET / HT")
      eventually("the handlers run", function() return started == 3 end)
      task.sleep(10)
      server:close()
      assert.are.equal(0, server:connections())
      server:close()
      eventually("the handlers are cancelled", function() return #outcomes == 3 end, 100)
      assert.are.same({ true, true, true }, outcomes)
      for _, connection in ipairs(connections) do
        assert.is_true(select(2, connection:receive(nil, 500)))
        connection:close()
      end
      assert.is_nil(os_calls.connect_unix(path))
      os.remove(path)
    end)
  end)

  it("may be closed by its own handler", function()
    task.run(function()
      local server, path, outcome
      server, path = harness.serve(function(req)
        if req.path == "/close" then
          server:close()
          outcome = table.pack(pcall(req.respond, req, 200))
          return
        end
        task.sleep(10000)
      end)
      local others = {}
      for i = 1, 3 do others[i] = task.spawn(function() return fetch(path, "/other") end) end
      task.sleep(10)
      local res, err = fetch(path, "/close")
      assert.is_nil(res)
      assert.are.equal("connection_failed", err.category)
      assert.is_nil(outcome[2])
      assert.are.equal("connection_failed", outcome[3].category)
      for i = 1, 3 do
        local ok, other = others[i]:wait(1000)
        assert.is_true(ok)
        assert.is_nil(other)
      end
      http.close_idle()
      os.remove(path)
    end)
  end)

  it("refuses limits that are none", function()
    local good = { fd = 0, connections = 1, max_requests = 1, max_header_bytes = 4096, handler = function() end }
    for name, value in pairs { fd = -1, connections = 0, max_requests = 0, max_header_bytes = 1 << 30, handler = "x" } do
      local options = {}
      for k, v in pairs(good) do options[k] = v end
      options[name] = value
      assert.has_error(function() httpd.listen(options) end)
      options[name] = nil
      assert.has_error(function() httpd.listen(options) end)
    end
    local fd, err = httpd.listen_tcp("localhost", 0)
    assert.is_nil(fd)
    assert.are.equal("invalid_argument", err.category)
  end)

  it("that could not listen says so and closes the descriptor", function()
    core.log.set_level("off")
    local reader, writer = assert(os_calls.pipe())
    sys.close(writer)
    local server = httpd.listen {
      fd = reader, connections = 1, max_requests = 1, max_header_bytes = 4096, handler = function() end,
    }
    core.log.set_level("warn")
    if server then server:close() end
    assert.is_nil(os_calls.close(reader))
  end)
end)
