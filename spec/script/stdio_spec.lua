--- core.stdio: requests become tasks, answers find their way, and a handler may do what it likes.

local cjson = require "cjson"
local core = require "demilune.core"
local stdio, sys, task = core.stdio, core.sys, core.task

--- Runs `body(send, receive, io)` as a task beside a connection with these handlers.
local function connected(handlers, body, options)
  return task.run(function()
    local in_read, in_write = assert(sys.pipe())
    local out_read, out_write = assert(sys.pipe())
    local reader, rest = assert(sys.reader(out_read)), ""
    local start = { in_fd = in_read, out_fd = out_write }
    for key, value in pairs(handlers) do start[key] = value end
    for key, value in pairs(options or {}) do start[key] = value end
    local io = assert(stdio.serve(start))
    local function receive(timeout_ms)
      while not rest:find "\n" do
        local chunk, err = reader:read(timeout_ms or 5000)
        if not chunk then return nil, err and err.category or "end" end
        rest = rest .. chunk
      end
      local line
      line, rest = rest:match "^([^\n]*)\n(.*)$"
      return cjson.decode(line)
    end
    local function send(line)
      if line then assert(sys.write(in_write, line)) else sys.close(in_write) end
    end
    local ok, err = pcall(body, send, receive, io)
    io:close()
    reader:close()
    if ok then pcall(sys.close, in_write) end
    if not ok then error(err, 0) end
  end)
end

local function request(id, method, params)
  return ('{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}\n'):format(id, method, params or "{}")
end

describe("core.stdio", function()
  it("answers requests in the order in which they are done, each with its own id", function()
    local go = { slow = task.event(), fast = task.event() }
    connected({
      on_request = function(call, method, params)
        if go[method] then go[method]:wait() end
        call:reply(core.json.encode { method = method, params = params })
      end,
    }, function(send, receive, io)
      send(request(1, "slow") .. request('"1"', "fast", '{"a":[]}') .. request("99999999999999999999", "now"))
      assert.are.equal("now", receive().result.method)
      assert.are.equal(2, io:call_count())
      go.fast:set()
      local second = receive()
      go.slow:set()
      local third = receive()
      assert.are.same({ "1", "fast", 1, "slow" }, { second.id, second.result.method, third.id, third.result.method })
      assert.are.equal(0, #second.result.params.a)
      assert.are.equal(0, io:call_count())
    end)
  end)

  it("answers for a handler that raises, returns without an answer, or drops its call", function()
    connected({
      on_request = function(call, method)
        if method == "raise" then error("a fault of a handler", 0) end
        if method == "forget" then return end
        if method == "drop" then
          call = nil -- luacheck: ignore
          for _ = 1, 4 do
            collectgarbage()
            task.sleep(1)
          end
          return
        end
        call:fail(-32001, "no \"such\"\n", '{"a":[]}')
        call:fail(-32002, "twice")
        call:reply "{}"
      end,
    }, function(send, receive)
      core.log.set_level "off"
      for i, method in ipairs { "raise", "forget", "drop" } do
        send(request(i, method))
        local answer = receive()
        assert.are.equal(i, answer.id)
        assert.are.equal(-32603, answer.error.code)
      end
      core.log.set_level "warn"
      send(request(9, "fail") .. request(10, "forget"))
      local failed = receive()
      assert.are.equal(-32001, failed.error.code)
      assert.are.equal("no \"such\"\n", failed.error.message)
      assert.are.equal(10, receive().id)
    end)
  end)

  it("says nothing of a call that was taken back, and lets it clean up", function()
    local cleaned = task.event()
    connected({
      on_request = function(call)
        local ok, err = pcall(task.sleep, 5000)
        assert(not ok and err == task.CANCELLED and call:is_cancelled())
        task.sleep(1)
        call:notify("n", "{}")
        call:reply "{}"
        cleaned:set()
      end,
    }, function(send, receive)
      send(request(1, "m") .. request('"1"', "m"))
      task.sleep(5)
      send '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n'
      assert.is_true(cleaned:wait(1000))
      send '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}\n'
      local _, why = receive(50)
      assert.are.equal("provider_timeout", why)
    end)
  end)

  it("stops calls that may still answer", function()
    connected({
      on_request = function(call)
        pcall(task.sleep, 5000)
        call:reply(call:is_cancelled() and '"cancelled"' or '"stopped"')
      end,
    }, function(send, receive, io)
      send(request(1, "m") .. request(2, "m"))
      task.sleep(5)
      assert.are.equal(2, io:call_count())
      io:stop_calls()
      assert.are.equal("stopped", receive().result)
      assert.are.equal("stopped", receive().result)
    end)
  end)

  for _, where in ipairs { "on_request", "on_notification", "on_end", "on_drain" } do
    it("may be closed from inside " .. where, function()
      local io, closed = nil, task.event()
      local nested
      local function close()
        nested = nested or { pcall(task.run, print) }
        io:close()
        io:close()
        closed:set()
      end
      local handlers = { on_request = function(call) call:reply('"' .. ("x"):rep(5 * 1024 * 1024) .. '"') end }
      handlers[where] = close
      connected(handlers, function(send, receive, connection)
        io = connection
        if where == "on_request" then send(request(1, "m") .. request(2, "m") .. "nonsense\n") end
        if where == "on_notification" then send '{"jsonrpc":"2.0","method":"n"}\n{"jsonrpc":"2.0","method":"n"}\n[]\n' end
        if where == "on_end" then send(nil) end
        if where == "on_drain" then
          send(request(1, "m") .. request(2, "m"))
          receive()
        end
        assert.is_true(closed:wait(2000))
        assert.is_false(nested[1])
        assert.truthy(nested[2]:find "^task.run ")
        assert.are.equal(0, io:unsent())
        assert.is_false(io:is_full())
        io:notify("n", "{}")
        io:stop_reading()
      end)
    end)
  end

  it("has 1,024 requests in flight, refuses one more, and answers each", function()
    local go = task.event()
    connected({
      on_request = function(call)
        go:wait()
        call:reply "{}"
      end,
    }, function(send, receive, io)
      for i = 1, 1024 do
        send(request(i, "m"))
        if i % 64 == 0 then task.sleep(1) end
      end
      while io:call_count() < 1024 do task.sleep(1) end
      send(request(1025, "m"))
      local refused = receive()
      assert.are.equal(1025, refused.id)
      assert.truthy(refused.error.message:find "quota_exceeded")
      go:set()
      local seen = {}
      for _ = 1, 1024 do seen[receive().id] = true end
      assert.are.equal(1024, #seen)
      assert.are.equal(0, io:call_count())
      send(request(1, "m"))
      assert.are.equal(1, receive().id)
    end)
  end)

  it("takes no more requests than there is room for answers", function()
    local started = 0
    connected({
      on_request = function(call)
        started = started + 1
        call:reply('"' .. ("x"):rep(1024 * 1024) .. '"')
      end,
    }, function(send, receive, io)
      for i = 1, 40 do send(request(i, "m")) end
      task.sleep(20)
      assert.is_true(io:is_full())
      assert.is_true(started <= 5, started)
      assert.is_true(io:unsent() <= 6 * 1024 * 1024)
      for i = 1, 40 do assert.are.equal(i, receive().id) end
      assert.are.equal(40, started)
    end)
  end)

  it("tells the end once, after a last line without its line break", function()
    local ends, lines = 0, 0
    connected({
      on_request = function(call)
        lines = lines + 1
        call:reply "{}"
      end,
      on_end = function() ends = ends + 1 end,
    }, function(send, receive)
      send(request(1, "m") .. request(2, "m"):sub(1, -2))
      send(nil)
      assert.are.equal(1, receive().id)
      assert.are.equal(2, receive().id)
      task.sleep(20)
      assert.are.equal(1, ends)
      assert.are.equal(2, lines)
    end)
  end)

  it("skips a line over its limit, tells it once, and serves the next", function()
    connected({ on_request = function(call) call:reply "{}" end }, function(send, receive)
      local fits = request(1, "m", '{"x":"%s"}')
      fits = fits:format(("y"):rep(1000 - #fits + 3))
      assert.are.equal(1001, #fits)
      send(fits .. (fits:gsub('"x":"', '"x":"z')) .. request(2, "m"))
      assert.are.equal(1, receive().id)
      local refused = receive()
      assert.are.equal(1, refused.id)
      assert.are.equal(-32600, refused.error.code)
      assert.are.equal(2, receive().id)
      send('{"jsonrpc":"2.0","id":"far"')
      for _ = 1, 10 do
        send((" "):rep(10000))
        task.sleep(1)
      end
      send(',"method":"m"}\n')
      assert.are.equal("far", receive().id)
      for _ = 1, 40 do
        send(("w"):rep(10000))
        task.sleep(1) -- the pipe holds 64 KiB, and this thread is the reader too
      end
      send("\n" .. request(3, "m"))
      assert.are.equal(cjson.null, receive().id)
      assert.are.equal(3, receive().id)
    end, { line_max_bytes = 1000 })
  end)

  it("refuses a limit that is none", function()
    for _, limit in ipairs { 0, -1 } do
      assert.has_error(function() stdio.serve { line_max_bytes = limit } end)
    end
  end)
end)
