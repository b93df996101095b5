--- core.http against core.httpd: what arrives at the other side, over unix sockets and TCP.

local core = require "demilune.core"
local harness = require "spec.net.harness"
local leftovers = require "spec.support.leftovers"

local task, http, httpd = core.task, core.http, core.httpd
local CLOEXEC = 1 << 19 -- O_CLOEXEC in fdinfo (proc(5))
local fetch, with_server = harness.fetch, harness.with_server

local function mirror(req)
  local body = assert(req:read_all(1 << 20))
  local lines = { req.method, req.path, tostring(req.content_length), body }
  local names = {}
  for name in pairs(req.headers) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do lines[#lines + 1] = name .. "=" .. req.headers[name] end
  req:respond(200, { ["Content-Type"] = "text/plain" }, table.concat(lines, "\n"))
end

local function category(err)
  assert.are.equal("table", type(err))
  assert.are.equal("string", type(err.message))
  assert.are.equal("boolean", type(err.retryable))
  return err.category
end

describe("core.http.request", function()
  it("sends only what it was told to send", function()
    with_server(mirror, function(path)
      local res = assert(fetch(path, "/a%20b", { headers = { ["X-A"] = "1" } }))
      assert.are.equal("GET\n/a b\nnil\n\naccept=*/*\nhost=localhost\nx-a=1", res.body)
      res = assert(fetch(path, "/", { method = "POST", body = "hello", headers = { ["Content-Type"] = "a/b", Accept = "c/d" } }))
      assert.are.equal("POST\n/\n5\nhello\naccept=c/d\ncontent-length=5\ncontent-type=a/b\nhost=localhost", res.body)
    end)
  end)

  it("gives status, headers by lower-case name, and body", function()
    with_server(function(req)
      req:respond(418, { ["X-A"] = { "1", "2" }, ["X-Empty"] = "", ["X-Number"] = 7 }, "a\0b")
    end, function(path)
      local res = assert(fetch(path, "/"))
      assert.are.equal(418, res.status)
      assert.are.equal("a\0b", res.body)
      assert.are.equal("1, 2", res.headers["x-a"])
      assert.are.equal("7", res.headers["x-number"])
      assert.are.equal("3", res.headers["content-length"])
      assert.is_nil(res.headers["x-empty"])
    end)
  end)

  for _, method in ipairs { "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND" } do
    it("sends " .. method .. " with and without a body", function()
      with_server(mirror, function(path)
        local plain = assert(fetch(path, "/x", { method = method })).body
        assert.are.equal(method .. "\n/x\n" .. (method == "POST" and "0" or "nil"), plain:match("^%u+\n/x\n%w+"))
        local full = assert(fetch(path, "/x", { method = method, body = "\0\1\2" })).body
        assert.are.equal(method .. "\n/x\n3\n\0\1\2", full:match("^%u+\n/x\n%w+\n..."))
        local empty = assert(fetch(path, "/x", { method = method, body = "" })).body
        assert.are.equal(method .. "\n/x\n0", empty:match("^%u+\n/x\n%w+"))
      end)
    end)
  end

  it("sends HEAD and takes no body for it", function()
    with_server(mirror, function(path)
      local res = assert(fetch(path, "/", { method = "HEAD" }))
      assert.are.equal("", res.body)
      assert.is_true(tonumber(res.headers["content-length"]) > 0)
      assert.are.equal(200, assert(fetch(path, "/")).status)
    end)
  end)

  it("sends a header with an empty value", function()
    with_server(mirror, function(path)
      assert.is_truthy(assert(fetch(path, "/", { headers = { ["X-Empty"] = "" } })).body:find("x-empty=$"))
    end)
  end)

  it("asks for no confirmation before a large body", function()
    with_server(function(req)
      local size = #assert(req:read_all(4 << 20))
      req:respond(200, nil, tostring(req.headers.expect) .. size)
    end, function(path)
      assert.are.equal("nil3145728", assert(fetch(path, "/", { method = "PUT", body = ("x"):rep(3 << 20) })).body)
    end)
  end)

  it("does not follow redirects", function()
    with_server(function(req)
      req:respond(302, { Location = "http://localhost/other" }, "here")
    end, function(path)
      local res = assert(fetch(path, "/"))
      assert.are.equal(302, res.status)
      assert.are.equal("here", res.body)
    end)
  end)

  it("uses one connection for requests that follow each other", function()
    with_server(mirror, function(path, server)
      for i = 1, 50 do
        assert(fetch(path, "/" .. i, i % 2 == 0 and { method = "POST", body = "x" } or nil))
        assert.are.equal(1, server:connections())
      end
      http.close_idle()
      harness.eventually("the connection is closed", function() return server:connections() == 0 end)
    end)
  end)

  it("goes on when the server has closed the idle connection", function()
    with_server(mirror, function(path)
      assert(fetch(path, "/"))
      task.sleep(1300)
      assert(fetch(path, "/"))
      assert(fetch(path, "/"))
    end, { idle_timeout_s = 1 })
  end)

  it("closes idle connections only when the last request is over", function()
    with_server(function(req)
      task.sleep(40)
      req:respond(200, nil, "late")
    end, function(path)
      local other = task.spawn(function() return fetch(path, "/") end)
      task.sleep(10)
      http.close_idle()
      local ok, res = other:wait(2000)
      assert.is_true(ok)
      assert.are.equal("late", res.body)
    end)
  end)

  for name, address in pairs { IPv4 = "127.0.0.1", IPv6 = "::1" } do
    it("works over TCP and " .. name, function()
      task.run(function()
        local fd, port = httpd.listen_tcp(address, 0)
        if not fd then return end -- no such loopback here
        local server = assert(httpd.listen {
          fd = fd, connections = 8, max_requests = 8, max_header_bytes = 16384,
          handler = function(req) req:respond(200, nil, tostring(req:peer()) .. #assert(req:read_all(1 << 24))) end,
        })
        local url = address:find(":", 1, true) and "http://[::1]:%d/" or "http://127.0.0.1:%d/"
        for _ = 1, 3 do
          local res = assert(http.request {
            url = url:format(port), method = "POST", body = ("x"):rep(5 << 20), timeout_ms = 5000, max_body_bytes = 100,
          })
          assert.are.equal("nil" .. (5 << 20), res.body)
          assert.are.equal(1, server:connections())
        end
        server:close()
        http.close_idle()
      end)
    end)
  end
end)

describe("core.http.request fails with", function()
  it("connection_failed where nobody listens", function()
    task.run(function()
      local res, err = fetch("/nowhere/at-all.sock", "/")
      assert.is_nil(res)
      assert.are.equal("connection_failed", category(err))
      local fd, port = assert(httpd.listen_tcp("127.0.0.1", 0))
      core.sys.close(fd)
      res, err = http.request { url = ("http://127.0.0.1:%d/"):format(port), timeout_ms = 2000, max_body_bytes = 1 }
      assert.is_nil(res)
      assert.are.equal("connection_failed", category(err))
      res, err = http.request { url = "http://no-such-name.invalid/", timeout_ms = 5000, max_body_bytes = 1 }
      assert.is_nil(res)
      assert.are.equal("connection_failed", category(err))
      http.close_idle()
    end)
  end)

  it("connection_failed when the server goes before it answers", function()
    with_server(function(req) req:abort() end, function(path)
      local res, err = fetch(path, "/")
      assert.is_nil(res)
      assert.are.equal("connection_failed", category(err))
    end)
  end)

  it("invalid_response when the body is cut", function()
    with_server(function(req)
      req:start(200, req.path == "/fixed" and { ["Content-Length"] = 10 } or nil)
      req:write("hello")
      task.sleep(5)
      req:abort()
    end, function(path)
      for _, target in ipairs { "/fixed", "/chunked" } do
        local res, err = fetch(path, target)
        assert.is_nil(res)
        assert.are.equal("invalid_response", category(err))
      end
    end)
  end)

  it("provider_timeout when the answer does not come in time", function()
    with_server(function(req)
      if req.path == "/body" then
        req:start(200)
        req:write("some")
      end
      task.sleep(10000)
    end, function(path)
      for _, target in ipairs { "/head", "/body" } do
        local before = task.now_ms()
        local res, err = fetch(path, target, { timeout_ms = 50 })
        assert.is_nil(res)
        assert.are.equal("provider_timeout", category(err))
        assert.is_true(task.now_ms() - before < 1000)
      end
    end)
  end)

  it("too_large when the body passes its limit", function()
    with_server(function(req)
      if req.path == "/fixed" then return req:respond(200, nil, ("x"):rep(1001)) end
      req:start(200)
      req:write(("x"):rep(1001))
      req:finish()
    end, function(path)
      for _, target in ipairs { "/fixed", "/chunked" } do
        local res, err = fetch(path, target, { max_body_bytes = 1000 })
        assert.is_nil(res)
        assert.are.equal("too_large", category(err))
        assert.are.equal(1001, #assert(fetch(path, target, { max_body_bytes = 1001 })).body)
      end
    end)
  end)

  local INVALID = {
    { "another protocol", { url = "file:///etc/passwd" } },
    { "a URL without a scheme", { url = "localhost/" } },
    { "a line break in the URL", { url = "http://localhost/\r\nX: y" } },
    { "NUL in the URL", { url = "http://localhost/\0" } },
    { "a space in the URL", { url = "http://localhost/a b" } },
    { "a user name in the URL", { url = "http://a:b@localhost/" } },
    { "a method that is no token", { method = "GET /" } },
    { "CONNECT", { method = "CONNECT" } },
    { "a line break in a header", { headers = { ["X-A"] = "a\r\nb: c" } } },
    { "NUL in a header", { headers = { ["X-A"] = "a\0" } } },
    { "a header name that is no token", { headers = { ["X A"] = "a" } } },
    { "a body of HEAD", { method = "HEAD", body = "x" } },
    { "a socket path that is too long", { unix_socket = "/" .. ("x"):rep(107) } },
    { "NUL in the socket path", { unix_socket = "/tmp/a\0b" } },
  }
  for _, case in ipairs(INVALID) do
    it("invalid_argument for " .. case[1], function()
      local handled = 0
      with_server(function(req)
        handled = handled + 1
        mirror(req)
      end, function(path)
        local res, err = fetch(path, "/", case[2])
        assert.is_nil(res)
        assert.are.equal("invalid_argument", category(err))
        assert.are.equal(0, handled)
      end)
    end)
  end

  it("an error of its own for arguments that are missing", function()
    task.run(function()
      local url = "http://localhost/"
      assert.has_error(function() http.request { timeout_ms = 1, max_body_bytes = 1 } end, "url must be a string")
      assert.has_error(function() http.request { url = url, max_body_bytes = 1 } end)
      assert.has_error(function() http.request { url = url, timeout_ms = 0, max_body_bytes = 1 } end)
      assert.has_error(function() http.request { url = url, timeout_ms = 1 } end)
      local mixed = { a = {}, b = true }
      assert.has_error(function() http.request { url = url, timeout_ms = 1, max_body_bytes = 1, headers = mixed } end)
    end)
    assert.has_error(function() http.request { url = "http://localhost/", timeout_ms = 1, max_body_bytes = 1 } end)
  end)
end)

describe("a streaming response", function()
  local function counter(req)
    req:start(200, { ["X-A"] = "b" })
    for i = 1, 5 do
      task.sleep(5)
      if not req:write(tostring(i)) then return end
    end
    req:finish()
  end

  it("has its head before its body", function()
    with_server(counter, function(path)
      local res = assert(fetch(path, "/", { stream = true }))
      assert.are.equal(200, res.status)
      assert.are.equal("b", res.headers["x-a"])
      local parts = {}
      repeat
        parts[#parts + 1] = res:read()
      until #table.concat(parts) >= 5
      assert.is_nil(res:read())
      assert.are.equal("12345", table.concat(parts))
      assert.is_true(#parts > 1)
      assert.is_nil(select(2, res:read()))
    end)
  end)

  it("tells a cut body from its end", function()
    with_server(function(req)
      req:start(200)
      req:write("hello")
      task.sleep(5)
      req:abort()
    end, function(path)
      local res = assert(fetch(path, "/", { stream = true }))
      assert.are.equal("hello", res:read())
      local chunk, err = res:read()
      assert.is_nil(chunk)
      assert.are.equal("invalid_response", category(err))
    end)
  end)

  it("waits for a chunk no longer than it is told, and goes on after", function()
    with_server(function(req)
      req:start(200)
      req:write("one")
      task.sleep(80)
      req:write("two")
      req:finish()
    end, function(path)
      local res = assert(fetch(path, "/", { stream = true }))
      assert.are.equal("one", res:read(1000))
      local chunk, err = res:read(10)
      assert.is_nil(chunk)
      assert.are.equal("provider_timeout", category(err))
      assert.are.equal("two", res:read(2000))
      assert.is_nil(res:read(2000))
    end)
  end)

  it("outlives the deadline of its head", function()
    with_server(counter, function(path)
      local res = assert(fetch(path, "/", { stream = true, timeout_ms = 15 }))
      assert.are.equal(5, (harness.drain(res)))
    end)
  end)

  it("has one reader at a time", function()
    with_server(function(req)
      req:start(200)
      task.sleep(50)
      req:finish()
    end, function(path)
      local res = assert(fetch(path, "/", { stream = true }))
      local reader = task.spawn(function() return res:read() end)
      task.sleep(5)
      assert.has_error(function() res:read() end, "another task reads this response")
      reader:wait()
    end)
  end)

  it("is dropped by close, and tells its reader", function()
    local is_cancelled
    with_server(function(req)
      req:start(200)
      req:write("x")
      local _, err = pcall(task.sleep, 10000)
      is_cancelled = err == task.CANCELLED
      error(err, 0)
    end, function(path, server)
      local res = assert(fetch(path, "/", { stream = true }))
      assert.are.equal("x", res:read())
      local reader = task.spawn(function() return res:read() end)
      task.sleep(5)
      res:close()
      local ok, chunk, err = reader:wait(1000)
      assert.is_true(ok)
      assert.is_nil(chunk)
      assert.are.equal("stopped", category(err))
      res:close()
      assert.are.equal("stopped", category(select(2, res:read())))
      harness.eventually("the handler is cancelled", function() return is_cancelled end, 100)
      harness.eventually("the connection is closed", function() return server:connections() == 0 end)
    end)
  end)

  it("is dropped by the end of its scope and by the collector", function()
    local handlers = 0
    with_server(function(req)
      handlers = handlers + 1
      req:start(200)
      req:write("x")
      pcall(task.sleep, 10000)
      handlers = handlers - 1
    end, function(path)
      do
        local res <close> = assert(fetch(path, "/", { stream = true }))
        assert.are.equal("x", res:read())
      end
      harness.eventually("the first handler ends", function() return handlers == 0 end)
      local function open_and_forget() assert(fetch(path, "/", { stream = true })) end
      open_and_forget()
      harness.eventually("the second handler ends", function()
        collectgarbage()
        return handlers == 0
      end)
    end)
  end)
end)

describe("a cancelled task", function()
  it("drops its request at once, so that the handler is cancelled within 100 ms", function()
    local state
    with_server(function(req)
      state = "waits"
      local ok, err = pcall(task.sleep, 10000)
      state = not ok and err == task.CANCELLED and "cancelled" or "woken"
    end, function(path, server)
      local client = task.spawn(function() fetch(path, "/") end)
      harness.eventually("the handler runs", function() return state == "waits" end)
      local before = task.now_ms()
      client:cancel()
      harness.eventually("the handler is cancelled", function() return state == "cancelled" end)
      assert.is_true(task.now_ms() - before < 100)
      assert.are.equal("failed", client:status())
      harness.eventually("the connection is closed", function() return server:connections() == 0 end)
    end)
  end)

  it("drops the stream that it reads", function()
    local is_over
    with_server(function(req)
      req:start(200)
      req:write("x")
      pcall(task.sleep, 10000)
      is_over = true
    end, function(path)
      local res = assert(fetch(path, "/", { stream = true }))
      res:read()
      local reader = task.spawn(function() res:read() end)
      task.sleep(5)
      reader:cancel()
      harness.eventually("the handler ends", function() return is_over end)
      assert.are.equal("stopped", category(select(2, res:read())))
    end)
  end)
end)

describe("descriptors of both sides", function()
  it("are not inherited by children", function()
    local before = leftovers.fds()
    with_server(function(req)
      task.sleep(5)
      mirror(req)
    end, function(path)
      assert(fetch(path, "/"))
      local inherited = {}
      local function look()
        for fd, target in pairs(leftovers.fds()) do
          local info = io.open("/proc/self/fdinfo/" .. fd)
          local flags = info and tonumber(info:read("a"):match("flags:%s+(%d+)"), 8)
          if info then info:close() end
          if not before[fd] and flags and flags & CLOEXEC == 0 then inherited[fd] = target end
        end
      end
      local client = task.spawn(function() return fetch(path, "/") end)
      task.sleep(1)
      look()
      client:wait()
      look()
      local count = 0
      for fd in pairs(leftovers.fds()) do count = count + (before[fd] and 0 or 1) end
      assert.is_true(count >= 6)
      assert.are.same({}, inherited)
    end)
  end)
end)

describe("an environment with proxies", function()
  it("does not concern unix sockets", function()
    with_server(mirror, function(path)
      -- The client of a child, whose environment it is.
      local script = ([[
        package.cpath = %q
        local core = require "demilune.core"
        core.task.run(function()
          local res, err = core.http.request {
            url = "http://localhost/proxied", unix_socket = %q, timeout_ms = 3000, max_body_bytes = 9999,
          }
          io.write(res and res.status or err.category)
        end)]]):format(package.cpath, path)
      local name = harness.socket_path() .. ".lua"
      local file = assert(io.open(name, "w"))
      file:write(script)
      file:close()
      local environment = { "http_proxy=http://127.0.0.1:1", "ALL_PROXY=http://127.0.0.1:1" }
      for _, variable in ipairs { "LD_PRELOAD", "ASAN_OPTIONS" } do
        if os.getenv(variable) then table.insert(environment, variable .. "=" .. os.getenv(variable)) end
      end
      local output = harness.shell("lua5.4 " .. name, environment)
      os.remove(name)
      assert.are.equal("200", output)
    end)
  end)
end)
