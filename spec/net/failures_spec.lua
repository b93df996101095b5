-- timeout: 120
--- Every failure that a server can produce over plain TCP and TLS: its category, in time, with nothing left behind.

local core = require "demilune.core"
local errors = require "demilune.errors"
local harness = require "spec.net.harness"
local peer = require "spec.net.peer"
local transport = require "demilune.transport"

local task, http = core.task, core.http

local CLIENT_HEADER = "src/net/http_client_codes.h"

describe("the HTTP client", function()
  local server, certificates

  setup(function()
    certificates = peer.certificates()
    server = peer.hostile(certificates)
  end)

  teardown(function() server:stop() end)

  local function request(scheme, port, target, options)
    local opts = {
      url = ("%s://localhost:%d%s"):format(scheme, server.ports[port], target), ca_file = certificates .. "/ca.pem",
      timeout_ms = 5000, max_body_bytes = 1 << 20,
    }
    for name, value in pairs(options or {}) do opts[name] = value end
    return opts
  end

  --- Runs `body` in a task, and looks afterwards that all descriptors are closed again.
  local function run(body)
    task.run(function()
      -- The client keeps the back end and its loop's descriptors from its first request on.
      http.request(request("http", "nobody", "/"))
      http.close_idle()
      local before = peer.descriptors()
      body()
      http.close_idle()
      harness.eventually("descriptors are closed", function() return peer.descriptors() <= before end)
    end)
  end

  --- The category of what a request comes to, whole or read to its end, and how long it took.
  local function outcome(opts)
    local from = task.now_ms()
    local res, err = http.request(opts)
    if res and opts.stream then
      local _, broken = harness.drain(res)
      res:close()
      err = broken
    end
    return err and err.category or tostring(res.status), task.now_ms() - from
  end

  -- Target, category.
  local BROKEN = {
    { "/nothing", "connection_failed" },
    { "/reset-silent", "connection_failed" },
    { "/reset-status", "connection_failed" },
    { "/reset-head", "connection_failed" },
    { "/reset-body", "invalid_response" },
    { "/reset-chunk", "invalid_response" },
    { "/reset-open", "invalid_response" },
    { "/half-head", "invalid_response" },
    { "/short", "invalid_response" },
    { "/cut-chunk", "invalid_response" },
    { "/cut-chunks", "invalid_response" },
    { "/bad-chunk", "invalid_response" },
    { "/bad-length", "invalid_response" },
    { "/garbage", "invalid_response" },
    { "/http09", "invalid_response" },
    { "/big-head", "invalid_response" },
    { "/many-heads", "invalid_response" },
    { "/endless-head", "invalid_response" },
    { "/interim-only", "connection_failed" },
  }
  for _, way in ipairs { { "http", "tcp" }, { "https", "good" } } do
    for _, case in ipairs(BROKEN) do
      for _, is_stream in ipairs { false, true } do
        it(("gets %s of %s over %s%s"):format(case[2], case[1], way[1], is_stream and ", streaming" or ""), function()
          run(function()
            local category, took = outcome(request(way[1], way[2], case[1], { stream = is_stream }))
            assert.are.equal(case[2], category)
            assert.is_true(took < 2000)
          end)
        end)
      end
    end

    for _, target in ipairs { "/silent", "/drip", "/drip-head" } do
      it(("waits for %s over %s no longer than its deadline"):format(target, way[1]), function()
        run(function()
          local category, took = outcome(request(way[1], way[2], target, { timeout_ms = 250 }))
          assert.are.equal("provider_timeout", category)
          assert.is_true(took >= 240 and took < 1000)
        end)
      end)
    end

    for _, target in ipairs { "/gigabyte", "/endless" } do
      it(("takes no more of %s over %s than it has room for"):format(target, way[1]), function()
        run(function()
          local before = harness.rss_bytes()
          local category, took = outcome(request(way[1], way[2], target, { max_body_bytes = 1 << 20 }))
          assert.are.equal("too_large", category)
          assert.is_true(took < 3000)
          assert.is_true(harness.rss_bytes() - before < 16 << 20)
        end)
      end)
    end

    it("holds a bounded part of a stream without end over " .. way[1], function()
      run(function()
        local res = assert(http.request(request(way[1], way[2], "/gigabyte", { stream = true })))
        task.sleep(100)
        local before = harness.rss_bytes()
        task.sleep(200)
        assert.is_true(harness.rss_bytes() - before < 4 << 20)
        assert.is_true(#res:read(1000) <= 384 * 1024)
        res:close()
      end)
    end)

    it("can leave a stream in the middle over " .. way[1], function()
      run(function()
        local res = assert(http.request(request(way[1], way[2], "/drip", { stream = true })))
        assert.are.equal("x", res:read(1000):sub(1, 1))
        res:close()
        local _, err = res:read(100)
        assert.are.equal("stopped", err.category)
      end)
    end)
  end

  -- Sentence, scheme, port, category; how long it may take.
  local UNREACHED = {
    { "nobody who listens", "http", "nobody", "connection_failed" },
    { "nobody who listens, over TLS", "https", "nobody", "connection_failed" },
    { "a reset right after the connection", "http", "accept-reset", "connection_failed" },
    { "a reset before the handshake", "https", "accept-reset", "connection_failed" },
    { "a reset in the handshake", "https", "half-shake", "connection_failed" },
    { "a server that never answers", "http", "mute", "provider_timeout", 300 },
    { "a handshake that never ends", "https", "mute", "provider_timeout", 300 },
    { "a server that speaks first", "http", "mail", "invalid_response" },
    { "another protocol in place of TLS", "https", "mail", "connection_failed" },
    { "HTTP where TLS should be", "https", "tcp", "provider_timeout", 300 },
    { "TLS where HTTP should be", "http", "good", "connection_failed" },
    { "a certificate that signs itself", "https", "self-signed", "connection_failed" },
    { "the certificate of another host", "https", "other-host", "connection_failed" },
    { "a certificate that has run out", "https", "expired", "connection_failed" },
    { "TLS before 1.2", "https", "old", "connection_failed" },
  }
  for _, case in ipairs(UNREACHED) do
    for _, is_stream in ipairs { false, true } do
      it(("gets %s of %s%s"):format(case[4], case[1], is_stream and ", streaming" or ""), function()
        run(function()
          local category, took = outcome(request(case[2], case[3], "/to-the-end", {
            timeout_ms = case[5] or 5000, stream = is_stream,
          }))
          assert.are.equal(case[4], category)
          assert.is_true(took < 2000)
        end)
      end)
    end
  end

  it("ends a connection attempt and a handshake after the time for connecting", function()
    run(function()
      local category, took = outcome(request("https", "mute", "/", { connect_timeout_ms = 200 }))
      assert.are.equal("connection_failed", category)
      assert.is_true(took < 1500)
    end)
  end)

  it("gets connection_failed for a name that nobody has", function()
    run(function()
      local opts = request("https", "good", "/", { proxy = "" })
      opts.url = "https://no-such-host.invalid/"
      local category, took = outcome(opts)
      assert.are.equal("connection_failed", category)
      assert.is_true(took < 5500)
    end)
  end)

  it("says nothing of what it met in an error", function()
    run(function()
      for _, opts in ipairs {
        request("https", "good", "/short"), request("http", "tcp", "/nothing"), request("https", "self-signed", "/"),
      } do
        local _, err = http.request(opts)
        local shown = core.json.encode(err) .. tostring(err)
        for _, word in ipairs { "localhost", "127", "hello", "sock", "/tmp", "curl", "SSL", "certificate" } do
          assert.is_nil(shown:find(word, 1, true), shown)
        end
      end
    end)
  end)

  it("drops the request of a task that is cancelled, at any stage", function()
    run(function()
      local stages = {
        request("https", "mute", "/"), request("http", "mute", "/"), request("https", "good", "/drip"),
        request("https", "good", "/drip-head"), request("http", "tcp", "/silent"),
      }
      for _, opts in ipairs(stages) do
        local is_over = false
        local job = task.spawn(function()
          local guard <close> = setmetatable({}, { __close = function() is_over = true end }) -- luacheck: ignore 211
          http.request(opts)
        end)
        task.sleep(60)
        assert.is_false(is_over)
        job:cancel()
        assert.is_false((job:wait(100)))
        assert.is_true(is_over)
      end
    end)
  end)

  -- Status line and fields, category and field of errors.from_response for a lasting sandbox, for a creation where it differs.
  local STATUSES = {
    { "/status/301?Location=/x", "provider_rejected" }, { "/status/400", "provider_rejected" },
    { "/status/401", "authentication_failed" }, { "/status/402", "quota_exceeded" }, { "/status/403", "provider_forbidden" },
    { "/status/404", "not_found" }, { "/status/408", "provider_timeout" }, { "/status/409", "conflict", "provider_rejected" },
    { "/status/410", "sandbox_gone" }, { "/status/418", "provider_rejected" }, { "/status/429", "quota_exceeded" },
    { "/status/429?Retry-After=120", "rate_limited" }, { "/status/500", "unavailable" }, { "/status/501", "unavailable" },
    { "/status/502", "unavailable" }, { "/status/503", "unavailable", "no_capacity" },
    { "/status/504", "unavailable", "no_capacity" }, { "/status/507", "disk_full" }, { "/status/599", "unavailable" },
    { "/status/600", "invalid_response" }, { "/status/999", "invalid_response" },
  }
  for _, case in ipairs(STATUSES) do
    it("hands on " .. case[1] .. ", of which comes " .. case[2], function()
      run(function()
        local service = transport.new { ca_file = certificates .. "/ca.pem" }
        for _, way in ipairs { { "http", "tcp" }, { "https", "good" } } do
          local res = service:send(request(way[1], way[2], case[1]))
          assert.are.equal(tonumber(case[1]:match("%d+")), res.status)
          for is_create, category in pairs { [false] = case[2], [true] = case[3] or case[2] } do
            local err = errors.from_response {
              status = res.status, retry_after = transport.retry_after(res), is_create = is_create,
            }
            assert.are.equal(category, err.category)
            assert.are.equal(case[1]:find("Retry") and 120 or nil, err.retry_after)
            assert.is_nil(core.json.encode(err):find("words of theirs", 1, true))
          end
        end
      end)
    end)
  end

  it("repeats what is safe until it works, and only that", function()
    run(function()
      local service = transport.new()
      local res = service:send(request("http", "tcp", "/late/3/safe", { is_safe = true }))
      assert.are.equal(200, res.status)
      res = service:send(request("http", "tcp", "/late/3/unsafe", {}))
      assert.are.equal(503, res.status)
      assert.are.equal("1", service:send(request("http", "tcp", "/count/unsafe")).body)
      res = service:send(request("http", "tcp", "/late/9/never", { is_safe = true }))
      assert.are.equal(503, res.status)
      assert.are.equal("3", service:send(request("http", "tcp", "/count/never")).body)
    end)
  end)

  it("repeats within its deadline", function()
    run(function()
      local service = transport.new()
      local from = task.now_ms()
      local ok, err = pcall(service.send, service, request("http", "nobody", "/", { is_safe = true, timeout_ms = 5000 }))
      assert.are.same({ false, "connection_failed" }, { ok, err.category })
      assert.is_true(task.now_ms() - from >= 300 and task.now_ms() - from < 2500)
      from = task.now_ms()
      ok, err = pcall(service.send, service, request("http", "nobody", "/", { is_safe = true, timeout_ms = 120 }))
      assert.are.same({ false, "connection_failed" }, { ok, err.category })
      assert.is_true(task.now_ms() - from < 120)
      assert.are.equal(16, service.places.free)
    end)
  end)

  it("leaves nothing of a task that is cancelled in a pause or before its turn", function()
    run(function()
      local service = transport.new { max_requests = 1 }
      local limited = request("http", "tcp", "/status/429?Retry-After=4", { is_safe = true })
      local pausing = task.spawn(function() service:send(limited) end)
      task.sleep(100)
      assert.are.equal(1, service.places.free)
      local sending = task.spawn(function() service:send(request("http", "tcp", "/silent")) end)
      task.sleep(20)
      local waiting = task.spawn(function() service:send(request("http", "tcp", "/to-the-end")) end)
      task.sleep(20)
      assert.are.same({ 0, 1 }, { service.places.free, #service.places.queue })
      for _, job in ipairs { pausing, waiting, sending } do
        job:cancel()
        assert.is_false((job:wait(200)))
      end
      assert.are.same({ 1, 0 }, { service.places.free, #service.places.queue })
    end)
  end)
end)

describe("the table of libcurl's codes", function()
  it("knows each code that is not of another protocol", function()
    local others = { FTP = true, LDAP = true, TFTP = true, RTSP = true, FILE = true, SSH = true, QUOTE = true, REMOTE = true,
      FUNCTION = true, BAD = true, UPLOAD = true }
    local pipe = assert(io.popen("pkg-config --variable=includedir libcurl 2>/dev/null"))
    local folder = pipe:read("l") or "/usr/include"
    pipe:close()
    local file = io.open(folder .. "/curl/curl.h") or io.open("/usr/include/x86_64-linux-gnu/curl/curl.h")
    if not file then return pending("no header of libcurl here") end
    local text = file:read("a"):match("CURLE_OK = 0(.-)CURL_LAST")
    file:close()
    file = assert(io.open(CLIENT_HEADER))
    local ours = file:read("a")
    file:close()
    local missing = {}
    for code in text:gmatch("(CURLE_[%u%d_]+),") do
      local word = code:match("^CURLE_(%u+)")
      local is_known = word == "OBSOLETE" or others[word] or ours:find("X(" .. code .. ",", 1, true)
      if not is_known then missing[#missing + 1] = code end
    end
    assert.are.same({}, missing)
    assert.is_truthy(ours:find("X(CURLE_BAD_CONTENT_ENCODING,", 1, true))
  end)
end)
