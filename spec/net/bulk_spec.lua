-- timeout: 120
--- Many and large bodies through core.http and core.httpd, and the memory they take.

local core = require "demilune.core"
local build = require "spec.support.build"
local harness = require "spec.net.harness"
local leftovers = require "spec.support.leftovers"
local lfs = require "lfs"

local task, http = core.task, core.http
local fetch, with_server, rss_bytes = harness.fetch, harness.with_server, harness.rss_bytes

local MIB = 1 << 20

-- Neither sanitizers nor valgrind: limits of time and memory hold.
local IS_FAST = build.sanitize == ""
do
  local maps = assert(io.open("/proc/self/maps"))
  if maps:read("a"):find("vgpreload", 1, true) then IS_FAST = false end
  maps:close()
end
local BULK_BYTES = (IS_FAST and 100 or 20) * MIB

local function count_body(req)
  local total = 0
  while true do
    local chunk, err = req:read()
    if not chunk then
      assert(not err, err and err.category)
      return total
    end
    total = total + #chunk
  end
end

local function note_speed(what, bytes, since_ms)
  print(("note: %s: %.0f MB/s"):format(what, bytes / 1e6 / math.max(task.now_ms() - since_ms, 1) * 1000))
end

--- Runs `body` and returns by how much memory grew at most. Garbage, which is not what is asked about, is collected all
--- the while.
local function peak_growth(body)
  collectgarbage()
  collectgarbage()
  local before, peak, is_over = rss_bytes(), 0, false
  local watcher = task.spawn(function()
    while not is_over do
      collectgarbage()
      peak = math.max(peak, rss_bytes() - before)
      task.sleep(2)
    end
  end)
  body()
  is_over = true
  watcher:wait()
  return peak
end

describe("100 MB", function()
  it("go up from memory with at most a few MB more", function()
    with_server(function(req) req:respond(200, nil, tostring(count_body(req))) end, function(path)
      local body = ("x"):rep(BULK_BYTES)
      local growth = peak_growth(function()
        local since = task.now_ms()
        assert.are.equal(tostring(BULK_BYTES), assert(fetch(path, "/", { method = "PUT", body = body, timeout_ms = 60000 })).body)
        note_speed("upload", BULK_BYTES, since)
      end)
      if IS_FAST then assert.is_true(growth < 16 * MIB, growth) end
    end)
  end)

  it("come down as a stream with at most a few MB more", function()
    local chunk = ("y"):rep(100000)
    with_server(function(req)
      req:start(200, req.path == "/fixed" and { ["Content-Length"] = BULK_BYTES // #chunk * #chunk } or nil)
      for _ = 1, BULK_BYTES // #chunk do assert(req:write(chunk)) end
      req:finish()
    end, function(path)
      for _, target in ipairs { "/fixed", "/chunked" } do
        local growth = peak_growth(function()
          local since = task.now_ms()
          local res = assert(fetch(path, target, { stream = true }))
          assert.are.equal(BULK_BYTES // #chunk * #chunk, (harness.drain(res)))
          note_speed("download " .. target, BULK_BYTES, since)
        end)
        if IS_FAST then assert.is_true(growth < 16 * MIB, growth) end
      end
    end)
  end)

  it("come down whole, byte for byte", function()
    local parts = {}
    for i = 1, 4096 do parts[i] = ("%08d"):format(i) end
    local block = table.concat(parts)
    local body = block:rep(BULK_BYTES // #block)
    with_server(function(req) req:respond(200, nil, body) end, function(path)
      local since = task.now_ms()
      local res = assert(fetch(path, "/", { max_body_bytes = BULK_BYTES, timeout_ms = 60000 }))
      note_speed("download whole", BULK_BYTES, since)
      assert.is_true(res.body == body)
    end)
  end)

  it("come back as they went up", function()
    with_server(function(req) req:respond(200, nil, req:read_all(BULK_BYTES)) end, function(path)
      local body = ("0123456789abcdef"):rep(BULK_BYTES // 16)
      local res = assert(fetch(path, "/", { method = "PUT", body = body, max_body_bytes = BULK_BYTES, timeout_ms = 60000 }))
      assert.is_true(res.body == body)
    end)
  end)
end)

describe("a slow reader", function()
  it("makes the writer wait, and memory stays", function()
    local written = 0
    with_server(function(req)
      req:start(200)
      local chunk = ("z"):rep(65536)
      while written < 50 * MIB do
        if not req:write(chunk) then return end
        written = written + #chunk
      end
      req:finish()
    end, function(path)
      local growth = peak_growth(function()
        local res = assert(fetch(path, "/", { stream = true }))
        task.sleep(100)
        local at_rest = written
        assert.is_true(at_rest < 2 * MIB)
        task.sleep(100)
        assert.are.equal(at_rest, written)
        local first = #assert(res:read())
        task.sleep(50)
        assert.is_true(written > at_rest and written <= at_rest + first + 512 * 1024)
        assert.are.equal(50 * MIB, first + harness.drain(res))
      end)
      if IS_FAST then assert.is_true(growth < 16 * MIB, growth) end
    end)
  end)

  it("of an upload makes the client wait", function()
    local is_open
    with_server(function(req)
      task.sleep(100)
      local first = #assert(req:read())
      task.sleep(100)
      is_open = true
      req:respond(200, nil, tostring(first + count_body(req)))
    end, function(path)
      local connection = harness.connect(path)
      local sent, is_done = 0, false
      local sender = task.spawn(function()
        connection:send(("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"):format(20 * MIB))
        local piece = ("x"):rep(65536)
        while sent < 20 * MIB do
          assert(connection:send(piece))
          sent = sent + #piece
        end
        is_done = true
      end)
      task.sleep(90)
      assert.is_true(sent < 2 * MIB)
      harness.eventually("the handler reads on", function() return is_open end)
      assert.is_true(sent < 4 * MIB)
      assert.is_truthy(connection:receive(tostring(20 * MIB) .. "$", 10000):find("^HTTP/1.1 200"))
      sender:wait()
      assert.is_true(is_done)
      connection:close()
    end)
  end)
end)

describe("100 streams at once", function()
  it("each get their own bytes, all of them", function()
    with_server(function(req)
      req:start(200)
      for i = 1, 20 do
        assert(req:write(("%s-%d;"):format(req.query.n, i)))
        task.sleep(i % 3)
      end
      req:finish()
    end, function(path, server)
      local clients, most = {}, 0
      for n = 1, 100 do
        clients[n] = task.spawn(function()
          local res = assert(fetch(path, "/?n=" .. n, { stream = true, timeout_ms = 20000 }))
          local parts = {}
          while true do
            local chunk, err = res:read(20000)
            if not chunk then
              assert(not err)
              break
            end
            parts[#parts + 1] = chunk
            most = math.max(most, server:connections())
          end
          return table.concat(parts)
        end)
      end
      for n = 1, 100 do
        local expected = {}
        for i = 1, 20 do expected[i] = ("%d-%d;"):format(n, i) end
        local ok, text = clients[n]:wait(30000)
        assert.is_true(ok)
        assert.are.equal(table.concat(expected), text)
      end
      assert.are.equal(100, most)
    end)
  end)

  it("go through unread ones without standing still", function()
    with_server(function(req)
      req:start(200)
      for _ = 1, 40 do
        if not req:write(("x"):rep(65536)) then return end
      end
      req:finish()
    end, function(path)
      local unread = {}
      for n = 1, 50 do unread[n] = assert(fetch(path, "/", { stream = true })) end
      for _ = 1, 10 do assert.are.equal(40 * 65536, (harness.drain(assert(fetch(path, "/", { stream = true }))))) end
      for n = 1, 25 do unread[n]:close() end
      for n = 26, 50 do assert.are.equal(40 * 65536, (harness.drain(unread[n]))) end
    end)
  end)
end)

describe("clients that leave and servers that close at any moment", function()
  local function handler(req)
    local how = req.query.how
    if how == "sleep" then task.sleep(math.random(0, 10)) end
    if how == "read" then assert(req:read_all(1 << 30)) end
    if how == "peek" then req:read() end
    if how == "abort" then return req:abort() end
    if how == "stream" then
      req:start(200, math.random(2) == 1 and { ["Content-Length"] = 900000 } or nil)
      for _ = 1, 9 do
        if not req:write(("x"):rep(100000)) then return end
        if math.random(3) == 1 then task.sleep(1) end
      end
      return req:finish()
    end
    req:respond(200, nil, ("y"):rep(math.random(0, 500000)))
  end

  local HOW = { "sleep", "read", "peek", "abort", "stream", "answer" }

  local function one_client(path)
    local body = math.random(2) == 1 and ("z"):rep(math.random(0, 700000)) or nil
    local options = { method = body and "PUT" or "GET", body = body, stream = math.random(2) == 1, max_body_bytes = MIB }
    local res = fetch(path, "/?how=" .. HOW[math.random(#HOW)], options)
    if not res or not options.stream then return end
    for _ = 1, math.random(20) do
      if not res:read(100) then return end
      if math.random(4) == 1 then task.sleep(1) end
    end
    if math.random(2) == 1 then res:close() end
  end

  local function one_raw(path)
    if not lfs.attributes(path, "mode") then return end
    local connection <close> = harness.connect(path)
    local length = math.random(0, 300000)
    connection:send(("PUT /?how=%s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"):format(
      HOW[math.random(#HOW)], length, ("w"):rep(math.random(0, length))))
    if math.random(2) == 1 then connection:receive("x", 2) end
  end

  it("leave nothing behind", function()
    math.randomseed(20261130)
    local before, after = 0, 0
    for _ in pairs(leftovers.fds()) do before = before + 1 end
    task.run(function()
      for _ = 1, IS_FAST and 12 or 6 do
        local server, path = harness.serve(handler, { connections = 24, max_requests = 16 })
        local clients = {}
        for i = 1, 60 do
          clients[i] = task.spawn(math.random(3) == 1 and one_raw or one_client, path)
          if math.random(4) == 1 then task.sleep(1) end
          if math.random(4) == 1 then clients[math.random(i)]:cancel() end
        end
        task.sleep(math.random(0, 20))
        os.remove(path)
        server:close()
        for i = 1, 60 do
          local ok, err = clients[i]:wait(5000)
          assert.is_true(ok or err == task.CANCELLED, tostring(err))
        end
      end
      collectgarbage() -- streams that nobody closed
      collectgarbage()
      http.close_idle()
    end)
    for _ in pairs(leftovers.fds()) do after = after + 1 end
    assert.are.equal(before, after)
  end)
end)

describe("small requests", function()
  it("cost little, one after the other on one connection", function()
    with_server(function(req) req:respond(200, { ["Content-Type"] = "application/json" }, "{}") end, function(path)
      local count = IS_FAST and 5000 or 500
      local function round()
        for _ = 1, count do assert(fetch(path, "/")) end
      end
      round()
      local before = task.now_ms()
      round()
      local each_us = (task.now_ms() - before) * 1000 / count
      print(("note: a small request, client and server: %.0f µs"):format(each_us))
      -- The goal is 150; a busy machine may take more.
      if IS_FAST then assert.is_true(each_us < 600, each_us) end
      collectgarbage()
      collectgarbage()
      local memory = rss_bytes()
      for _ = 1, 4 do round() end
      collectgarbage()
      collectgarbage()
      if IS_FAST then assert.is_true(rss_bytes() - memory < 2 * MIB) end
    end)
  end)
end)
