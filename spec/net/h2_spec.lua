-- timeout: 120
--- HTTP/2 with a server of Node's: whole requests share a connection, streams have their own and HTTP/1.1.

local core = require "demilune.core"
local harness = require "spec.net.harness"
local peer = require "spec.net.peer"

local crypto, http, task = core.crypto, core.http, core.task

local node = peer.node()
if not node then
  it("HTTP/2", function() pending("no Node here to be the server") end)
  return
end

describe("core.http over TLS to a server with HTTP/2", function()
  local server, certificates

  setup(function()
    certificates = peer.certificates()
    server = peer.start({ node, "spec/net/h2_server.mjs", certificates .. "/h2", certificates }, certificates .. "/h2")
  end)

  teardown(function() server:stop() end)

  local function fetch(target, options)
    local opts = {
      url = ("https://localhost:%d%s"):format(server.ports.tls, target), ca_file = certificates .. "/ca.pem",
      timeout_ms = 10000, max_body_bytes = 32 << 20,
    }
    for name, value in pairs(options or {}) do opts[name] = value end
    return http.request(opts)
  end

  local function info(options)
    local res, err = fetch("/info", options)
    assert.is_truthy(res, tostring(err))
    local body = res.body
    if not body then
      local parts = {}
      for chunk in function() return res:read(5000) end do parts[#parts + 1] = chunk end
      body = table.concat(parts)
    end
    return assert(core.json.decode(body))
  end

  local function run(body)
    task.run(function()
      assert(info())
      http.close_idle()
      local before = peer.descriptors()
      body()
      http.close_idle()
      harness.eventually("descriptors are closed", function() return peer.descriptors() <= before end)
      harness.eventually("connections are closed", function() return peer.connections(server.ports.tls) == 0 end)
    end)
  end

  --- So many bytes without a pattern that a mistake of place could hide in.
  local function noise(bytes)
    local parts = {}
    for i = 1, bytes // 4096 do parts[i] = crypto.random(4096) end
    return table.concat(parts)
  end

  --- Runs `count` tasks of `fn(i)` beside each other.
  local function beside(count, fn)
    local jobs = {}
    for i = 1, count do jobs[i] = task.spawn(fn, i) end
    for i = 1, count do
      local ok, err = jobs[i]:wait(20000)
      if not ok then error(err, 0) end
    end
  end

  it("speaks HTTP/2 for whole requests, on one connection that is there, however many at a time", function()
    run(function()
      local before = info().connections
      local seen = {}
      beside(40, function(i)
        assert.are.equal("slow", assert(fetch("/slow/20")).body)
        seen[i] = info().version
      end)
      for i = 1, 40 do assert.are.equal("2.0", seen[i]) end
      assert.are.equal(before, info().connections)
    end)
  end)

  it("waits for no other request's handshake", function()
    run(function()
      local seen = {}
      beside(8, function(i) seen[i] = info().version end)
      for i = 1, 8 do assert.are.equal("2.0", seen[i]) end
      local mute = peer.hostile(certificates)
      local from = task.now_ms()
      beside(8, function()
        local _, err = fetch("/", { url = ("https://localhost:%d/"):format(mute.ports.mute), connect_timeout_ms = 200 })
        assert.are.equal("connection_failed", err.category)
      end)
      mute:stop()
      assert.is_true(task.now_ms() - from < 1000)
    end)
  end)

  it("gives each request its own answer, whatever happens to others on the connection", function()
    run(function()
      local function other(i)
        local kinds = {
          { "/hang", "provider_timeout", { timeout_ms = 5 + i } }, { "/endless", "too_large", { max_body_bytes = 300000 } },
          { "/reset", "connection_failed" },
        }
        local kind = kinds[i % 3 + 1]
        local _, err = fetch(kind[1], kind[3])
        assert.are.equal(kind[2], err.category)
      end
      math.randomseed(20261201)
      for round = 1, 12 do
        beside(math.random(4, 20), function(i)
          if i % 4 == 0 then return other(i) end
          local seed = ("s%d-%d"):format(round, i):gsub("-", "x")
          local size = i % 5 == 0 and math.random(1000000) or math.random(40000)
          local res = assert(fetch(("/fill/%s-%d-%d"):format(seed, size, math.random(12))))
          assert.are.equal(seed, res.headers["x-seed"])
          assert.is_true(res.body == (seed .. "."):rep(size // #seed + 1):sub(1, size))
        end)
      end
    end)
  end)

  it("speaks HTTP/1.1 for a body, so that an answer may come before it is sent", function()
    run(function()
      for _ = 1, 30 do
        local seen = info { method = "POST", body = ("x"):rep(math.random(200000)) }
        assert.are.equal("1.1", seen.version)
      end
      assert.are.equal("2.0", info({ method = "POST" }).version)
      assert.are.equal("2.0", info({ method = "POST", body = "" }).version)
    end)
  end)

  it("sends and gets what it would over HTTP/1.1", function()
    run(function()
      local body = noise(3 << 20)
      for _, is_fresh in ipairs { false, true } do
        local res = assert(fetch("/echo", { method = "PUT", body = body, is_fresh = is_fresh }))
        assert.are.equal(("%d %s"):format(#body, crypto.sha256(body)), res.body)
        assert.are.equal(200, res.status)
        local seen = info { method = "PATCH", body = "x", headers = { ["X-A"] = "1", ["X-Empty"] = "" }, is_fresh = is_fresh }
        assert.are.equal("1.1", seen.version)
        seen = info { method = "DELETE", headers = { ["X-A"] = "1", ["X-Empty"] = "" }, is_fresh = is_fresh }
        assert.are.equal(is_fresh and "1.1" or "2.0", seen.version)
        assert.are.same({ "DELETE", "1", "" }, { seen.method, seen.headers["x-a"], seen.headers["x-empty"] })
        assert.is_nil(seen.headers.expect)
        assert.are.equal(5 << 20, #assert(fetch("/big/5242880", { is_fresh = is_fresh })).body)
        res = assert(fetch("/status/204", { is_fresh = is_fresh }))
        assert.are.same({ 204, "" }, { res.status, res.body })
        assert.are.equal("", assert(fetch("/big/10", { method = "HEAD", is_fresh = is_fresh })).body)
      end
    end)
  end)

  it("takes a head of many fields", function()
    run(function()
      assert.are.equal(200, assert(fetch("/heads/200")).status)
    end)
  end)

  it("moves large bodies both ways beside each other", function()
    run(function()
      local body = noise(2 << 20)
      local sum = ("%d %s"):format(#body, crypto.sha256(body))
      beside(8, function(i)
        if i % 2 == 0 then
          assert.are.equal(sum, assert(fetch("/echo", { method = "POST", body = body })).body)
        else
          assert.are.equal(8 << 20, #assert(fetch("/big/8388608")).body)
        end
      end)
    end)
  end)

  it("speaks HTTP/1.1 for streams, whatever connection is there", function()
    run(function()
      assert.are.equal("2.0", info().version)
      assert.are.equal("1.1", info({ stream = true }).version)
      assert.are.equal("2.0", info().version)
      assert.are.equal("1.1", info({ stream = true }).version)
      assert.are.equal(2, peer.connections(server.ports.tls))
    end)
  end)

  it("goes on while a stream waits that nobody reads", function()
    run(function()
      local streams = {}
      for i = 1, 3 do streams[i] = assert(fetch("/endless", { stream = true })) end
      task.sleep(200)
      local from = task.now_ms()
      for _ = 1, 20 do assert.are.equal("2.0", info().version) end
      assert.are.equal(4 << 20, #assert(fetch("/big/4194304")).body)
      assert.is_true(task.now_ms() - from < 3000)
      for i = 1, 3 do streams[i]:close() end
    end)
  end)

  it("has a fresh connection for who asks for one, and closes it", function()
    run(function()
      assert.are.equal("2.0", info().version)
      local before = info()
      for i = 1, 3 do
        local one = info { is_fresh = true }
        assert.are.same({ "1.1", before.connections + i }, { one.version, one.connections })
        harness.eventually("it is closed", function() return peer.connections(server.ports.tls) == 1 end)
      end
      local stream = assert(fetch("/big/100", { is_fresh = true, stream = true }))
      assert.are.equal(100, (harness.drain(stream)))
      harness.eventually("it is closed", function() return peer.connections(server.ports.tls) == 1 end)
    end)
  end)

  -- Target, category, options.
  local FAILURES = {
    { "/reset", "connection_failed" },
    { "/refuse", "connection_failed" },
    { "/destroy", "connection_failed" },
    { "/half", "invalid_response" },
    { "/short", "invalid_response" },
    { "/heads/60", nil },
    { "/heads/256", "invalid_response" },
    { "/heads/400", "invalid_response" },
    { "/endless", "too_large", { max_body_bytes = 1 << 20 } },
    { "/big/1000001", "too_large", { max_body_bytes = 1000000 } },
    { "/hang", "provider_timeout", { timeout_ms = 200 } },
    { "/drip", "provider_timeout", { timeout_ms = 200 } },
  }
  for _, case in ipairs(FAILURES) do
    it(("gets %s of %s, and harms no other request"):format(case[2] or "the answer", case[1]), function()
      run(function()
        local slow = case[1] ~= "/destroy" and task.spawn(function() return assert(fetch("/slow/400")).body end)
        task.sleep(20)
        local from = task.now_ms()
        local res, err = fetch(case[1], case[3])
        assert.are.equal(case[2], err and err.category)
        assert.are.equal(not case[2], res ~= nil)
        assert.is_true(task.now_ms() - from < 2000)
        assert.are.equal("2.0", info().version)
        if slow then
          local ok, body = slow:wait(5000)
          assert.are.same({ true, "slow" }, { ok, body })
        end
      end)
    end)
  end

  it("drops the request of a task that is cancelled, and no other", function()
    run(function()
      local slow = task.spawn(function() return assert(fetch("/slow/300")).body end)
      local jobs = {}
      for i, target in ipairs { "/hang", "/drip", "/endless" } do
        jobs[i] = task.spawn(function() fetch(target, { max_body_bytes = 1 << 40 }) end)
      end
      task.sleep(60)
      for i = 1, 3 do
        jobs[i]:cancel()
        assert.is_false((jobs[i]:wait(200)))
      end
      local ok, body = slow:wait(5000)
      assert.are.same({ true, "slow" }, { ok, body })
    end)
  end)

  it("does not send twice what may have been acted on", function()
    run(function()
      assert.are.equal("2.0", info().version)
      local before = tonumber(assert(fetch("/count/destroy")).body)
      local _, err = fetch("/destroy", { method = "POST" })
      assert.are.equal("connection_failed", err.category)
      assert.are.equal(before + 1, tonumber(assert(fetch("/count/destroy")).body))
    end)
  end)

  it("goes on with another connection when the server ends this one in order", function()
    run(function()
      for _ = 1, 3 do assert.are.equal("bye", assert(fetch("/goaway")).body) end
      assert.are.equal("2.0", info().version)
    end)
  end)

  it("gives the URL that a redirect means, of whole answers and streams", function()
    run(function()
      local base = "https://localhost:" .. server.ports.tls
      for _, stream in ipairs { false, true } do
        local res = assert(fetch("/status/307", { stream = stream }))
        assert.are.equal(base .. "/elsewhere?a=b", res.redirect_url)
        if stream then res:close() end
        res = assert(fetch("/status/200", { stream = stream }))
        assert.is_nil(res.redirect_url)
        if stream then res:close() end
      end
    end)
  end)
end)
