--- core.http against a server that answers wrongly, and core.httpd against curl.

local core = require "demilune.core"
local lfs = require "lfs"
local harness = require "spec.net.harness"
local os_calls = require "spec_os"

local task, http = core.task, core.http

local function exists(path) return lfs.attributes(path, "mode") ~= nil end

describe("core.http", function()
  local path, pid

  setup(function()
    path = harness.socket_path()
    pid = assert(os_calls.spawn({ "/usr/bin/python3", "spec/net/hostile.py", path }, { "PATH=/usr/bin:/bin" }, nil, -1, -1, 2))
    local deadline = os_calls.now_ms() + 10000
    while not exists(path) and os_calls.now_ms() < deadline do os_calls.sleep_ms(5) end
  end)

  teardown(function()
    os_calls.kill(-pid, 9)
    while not os_calls.wait(pid) do os_calls.sleep_ms(1) end
    os.remove(path)
  end)

  local function run(body)
    task.run(function()
      body()
      http.close_idle()
    end)
  end

  -- Target of hostile.py, what comes of it; a body where it succeeds.
  local ANSWERS = {
    { "/nothing", "connection_failed" },
    { "/garbage", "invalid_response" },
    { "/http09", "invalid_response" },
    { "/half-head", "invalid_response" },
    { "/short", "invalid_response" },
    { "/reset", "invalid_response" },
    { "/cut-chunk", "invalid_response" },
    { "/cut-chunks", "invalid_response" },
    { "/bad-chunk", "invalid_response" },
    { "/bad-length", "invalid_response" },
    { "/minus-length", "invalid_response" },
    { "/bad-name", "invalid_response" },
    { "/control", "invalid_response" },
    { "/nul", "invalid_response" },
    { "/no-colon", "invalid_response" },
    { "/big-head", "invalid_response" },
    { "/long-head", "invalid_response" },
    { "/many-heads", "invalid_response" },
    { "/endless-head", "invalid_response" },
    { "/status", "invalid_response" },
    { "/interim-only", "connection_failed" },
    { "/endless", "too_large" },
    { "/huge-length", "invalid_response" },
    { "/silent", "provider_timeout" },
    { "/interim", nil, "hello" },
    { "/to-the-end", nil, "hello" },
    { "/trailers", nil, "hello" },
    { "/duplicates", nil, "hello" },
  }
  for _, case in ipairs(ANSWERS) do
    it(("gets %s of %s"):format(case[2] or "the body", case[1]), function()
      run(function()
        local res, err = harness.fetch(path, case[1], { timeout_ms = case[2] == "provider_timeout" and 100 or 10000 })
        if case[2] then
          assert.is_nil(res)
          assert.are.equal(case[2], err.category)
        else
          assert.are.equal(200, res and res.status or err.category)
          assert.are.equal(case[3], res.body)
          assert.is_not.equal("lost", res.headers.x)
          assert.is_nil(res.headers["x-late"])
        end
      end)
    end)
  end

  for method, times in pairs { POST = 1, PATCH = 1, GET = 2, PUT = 2 } do
    it(("sends %s %d times when the kept connection dies"):format(method, times), function()
      run(function()
        assert(harness.fetch(path, "/again"))
        local body = method ~= "GET" and "x" or nil
        local res, err = harness.fetch(path, "/die", { method = method, body = body })
        assert.is_nil(res)
        assert.are.equal("connection_failed", err.category)
        assert.are.equal(tostring(times), assert(harness.fetch(path, "/again", { method = method, body = body })).body)
      end)
    end)
  end

  it("holds a bounded part of an endless stream", function()
    run(function()
      local res = assert(harness.fetch(path, "/endless", { stream = true }))
      task.sleep(50)
      collectgarbage()
      local before = harness.rss_bytes()
      task.sleep(300)
      assert.is_true(harness.rss_bytes() - before < 2 << 20)
      assert.is_true(#res:read() <= 320 * 1024)
      res:close()
    end)
  end)

  it("serves others while a stream comes faster than it can be worked on", function()
    run(function()
      local res = assert(harness.fetch(path, "/endless", { stream = true }))
      local reading = task.spawn(function()
        while res:read(1000) do
          local until_s = os.clock() + 0.003
          while os.clock() < until_s do end
        end
      end)
      for _ = 1, 20 do
        local from = task.now_ms()
        assert.are.equal("hello", assert(harness.fetch(path, "/to-the-end", { timeout_ms = 5000 })).body)
        assert.is_true(task.now_ms() - from < 2000)
      end
      reading:cancel()
      res:close()
    end)
  end)
end)

describe("core.httpd answers curl", function()
  local function echo(req)
    if req.path == "/size" then
      local total = 0
      while true do
        local chunk, err = req:read()
        if not chunk then
          assert(not err)
          break
        end
        total = total + #chunk
      end
      return req:respond(200, nil, tostring(total))
    elseif req.path == "/stream" then
      req:start(200)
      for i = 1, 5 do
        task.sleep(2)
        req:write(tostring(i))
      end
      return req:finish()
    end
    req:respond(req.method == "DELETE" and 204 or 200, { ["X-A"] = "b" }, req.method .. " " .. req.path)
  end

  local CALLS = {
    { "a plain GET", "http://a/x", "GET /x" },
    { "two requests on one connection", "http://a/x http://a/y", "GET /xGET /y" },
    { "HTTP/1.0", "-0 http://a/x", "GET /x" },
    { "HEAD", "-I -o /dev/null -w '%%{http_code}' http://a/x", "200" },
    { "DELETE", "-X DELETE -w '%%{http_code}' http://a/x", "204" },
    { "a stream", "http://a/stream", "12345" },
    { "an upload that asks before it sends", "-H 'Expect: 100-continue' -T %s http://a/size", "5000000" },
    { "an upload in chunks", "-H 'Transfer-Encoding: chunked' -T %s http://a/size", "5000000" },
    { "a form", "--data-binary @%s http://a/size", "5000000" },
    { "an upload that nobody reads", "-w '%%{http_code}' -o /dev/null -T %s http://a/x", "200" },
  }
  for _, case in ipairs(CALLS) do
    it("for " .. case[1], function()
      if not exists("/usr/bin/curl") then return pending("no curl here") end
      harness.with_server(echo, function(path)
        local name = path .. ".data"
        local file = assert(io.open(name, "w"))
        file:write(("x"):rep(5000000))
        file:close()
        local output, code = harness.shell(("curl -sS --max-time 20 --unix-socket %s %s"):format(path, case[2]:format(name)))
        os.remove(name)
        assert.are.equal(case[3], output)
        assert.are.equal(0, code)
      end)
    end)
  end
end)
