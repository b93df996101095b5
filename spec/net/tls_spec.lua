-- timeout: 120
--- core.httpd over TLS: what it shows, what it refuses, certificates exchanged under open connections.

local build = require "spec.support.build"
local core = require "demilune.core"
local harness = require "spec.net.harness"
local peer = require "spec.net.peer"

local task, http, httpd = core.task, core.http, core.httpd

local CONNECTIONS = 100
local UPLOAD_BYTES = 8 << 20
local BAD_HANDSHAKES = 60

describe("core.httpd with TLS", function()
  local certificates

  setup(function()
    certificates = peer.certificates()
    assert(os.execute(("cd '%s' && chmod 600 *.key"):format(certificates)))
  end)

  local function path_of(name) return certificates .. "/" .. name end

  local function pair(name) return assert(httpd.tls(path_of(name .. ".pem"), path_of(name .. ".key"))) end

  local function write(name, text)
    local file = assert(io.open(path_of(name), "w"))
    file:write(text)
    file:close()
    return path_of(name)
  end

  --- Runs `body(port, server)` beside a server that answers with the length of what was sent.
  local function with_server(body, handler)
    task.run(function()
      local fd, port = httpd.listen_tcp("127.0.0.1", 0)
      local server = assert(httpd.listen {
        fd = fd, connections = 256, max_requests = 256, max_header_bytes = 16384, idle_timeout_s = 2, tls = pair "good",
        handler = handler or function(req)
          local text = req:read_all(1 << 26) or ""
          req:respond(200, { ["x-path"] = req.path }, tostring(#text))
        end,
      })
      local ok, err = xpcall(body, debug.traceback, port, server)
      server:close()
      http.close_idle()
      if not ok then error(err, 0) end
    end)
  end

  local function fetch(port, options)
    local request = {
      url = ("https://localhost:%d/x"):format(port), ca_file = path_of "ca.pem", timeout_ms = 10000, max_body_bytes = 1 << 25,
    }
    for name, value in pairs(options or {}) do request[name] = value end
    return http.request(request)
  end

  local function s_client(port, options, input)
    return harness.shell(("printf '%s' | timeout 10 openssl s_client -connect 127.0.0.1:%d -CAfile '%s' %s 2>&1"):format(
      input or "", port, path_of "ca.pem", options))
  end

  it("answers clients that check its certificate, ours and curl", function()
    with_server(function(port)
      local res, err = fetch(port, { method = "POST", body = "hello" })
      assert.is_truthy(res, tostring(err))
      assert.are.equal("5", res.body)
      assert.are.equal("/x", res.headers["x-path"])
      local text, code = harness.shell(("curl -sS --max-time 10 --cacert '%s' -d hello https://127.0.0.1:%d/y"):format(
        path_of "ca.pem", port))
      assert.are.equal(0, code, text)
      assert.are.equal("5", text)
    end)
  end)

  it("speaks TLS 1.2 and 1.3 and nothing older", function()
    with_server(function(port)
      assert.truthy(s_client(port, "-tls1_3 -brief"):find("TLSv1.3", 1, true))
      assert.truthy(s_client(port, "-tls1_2 -brief"):find("TLSv1.2", 1, true))
      for _, old in ipairs { "-tls1", "-tls1_1" } do
        local text, code = s_client(port, old .. " -cipher DEFAULT@SECLEVEL=0 -brief")
        assert.are_not.equal(0, code, text)
        assert.is_nil(text:find("CONNECTION ESTABLISHED", 1, true))
      end
      assert.are.equal("0", fetch(port).body)
    end)
  end)

  it("moves bodies larger than every buffer, both ways, also when the handler is slow to read", function()
    local sent = core.crypto.random(4096):rep(UPLOAD_BYTES // 4096)
    with_server(function(port)
      local res, err = fetch(port, { method = "POST", body = sent })
      assert.is_truthy(res, tostring(err))
      assert.is_true(sent == res.body)
    end, function(req)
      local parts = {}
      for chunk in function() return req:read() end do
        parts[#parts + 1] = chunk
        if #parts % 16 == 1 then task.sleep(5) end
      end
      req:start(200)
      for _, chunk in ipairs(parts) do req:write(chunk) end
      req:finish()
    end)
  end)

  it("serves many connections at once while handlers wait", function()
    with_server(function(port)
      local done = 0
      for i = 1, CONNECTIONS do
        task.spawn(function()
          local res = fetch(port, { is_fresh = true, method = "POST", body = ("x"):rep(i) })
          if res and res.body == tostring(i) then done = done + 1 end
        end)
      end
      harness.eventually("all are answered", function() return done == CONNECTIONS end, 30000)
    end, function(req)
      local text = req:read_all(1024)
      task.sleep(50)
      req:respond(200, nil, tostring(#text))
    end)
  end)

  it("cancels a handler whose client leaves", function()
    local is_over = false
    with_server(function(port)
      local client = task.spawn(function() fetch(port) end)
      task.sleep(200)
      client:cancel()
      harness.eventually("the handler ends", function() return is_over end, 5000)
    end, function()
      local mark <close> = setmetatable({}, { __close = function() is_over = true end }) -- luacheck: ignore 211
      task.sleep(20000)
    end)
  end)

  it("shows new connections a new certificate and leaves open ones as they are", function()
    local held = {}
    with_server(function(port, server)
      task.spawn(function()
        held.res = fetch(port, { is_fresh = true, url = ("https://localhost:%d/slow"):format(port) })
      end)
      harness.eventually("it is at work", function() return held.is_begun end)
      for _ = 1, 20 do server:set_tls(pair "self-signed") end
      local _, err = fetch(port, { is_fresh = true })
      assert.are.equal("connection_failed", err.category)
      assert.are.equal("new", fetch(port, { is_fresh = true, ca_file = path_of "self-signed.pem" }).body)
      collectgarbage()
      held.may_end = true
      harness.eventually("the old connection is answered", function() return held.res ~= nil end)
      assert.are.equal("slow", held.res.body)
      server:set_tls(pair "good")
      assert.are.equal("new", fetch(port, { is_fresh = true }).body)
    end, function(req)
      if req.path ~= "/slow" then return req:respond(200, nil, "new") end
      held.is_begun = true
      while not held.may_end do task.sleep(5) end
      req:respond(200, nil, "slow")
    end)
  end)

  it("survives what is no handshake, and closes those who never finish one", function()
    with_server(function(port, server)
      local command = "timeout 20 python3 spec/net/bad_handshakes.py %d %d 2>&1"
      local text, code = harness.shell(command:format(port, BAD_HANDSHAKES))
      assert.are.equal(0, code, text)
      local closed, all = text:match "closed (%d+) of (%d+)"
      assert.are.equal(all, closed)
      assert.are.equal("0", fetch(port, { is_fresh = true }).body)
      http.close_idle()
      harness.eventually("none is left", function() return server:connections() == 0 end)
    end)
  end)

  it("spends next to no time on handshakes that wait for their client", function()
    if build.sanitize ~= "" then pending "a sanitizer makes everything slower" end
    with_server(function(port, server)
      local holder = ([[timeout 20 python3 -c "
import socket, time
held = [socket.create_connection(('127.0.0.1', %d)) for _ in range(%d)]
for one in held: one.sendall(bytes.fromhex('16030102000100'))
time.sleep(1.5)"]]):format(port, CONNECTIONS)
      task.spawn(function() harness.shell(holder) end)
      harness.eventually("they are there", function() return server:connections() == CONNECTIONS end, 5000)
      local before_s, before_ms = os.clock(), task.now_ms()
      task.sleep(1000)
      local share = (os.clock() - before_s) * 1000 / (task.now_ms() - before_ms)
      assert.is_true(share < 0.5, ("%.0f %% of a processor"):format(share * 100))
      assert.are.equal("0", fetch(port, { is_fresh = true }).body)
      harness.eventually("they are closed", function() return server:connections() == 0 end, 5000)
    end)
  end)

  it("is not brought down by a client that wants to negotiate again", function()
    with_server(function(port)
      s_client(port, "-tls1_2", "R\\nR\\n")
      assert.are.equal("0", fetch(port).body)
    end)
  end)

  it("says what is wrong with a pair, without a path", function()
    local function why(cert, key)
      local tls, text = httpd.tls(path_of(cert), path_of(key))
      assert.is_nil(tls)
      assert.is_nil(text:find(certificates, 1, true))
      return text
    end
    assert.are.equal("the certificate file is not there", why("none.pem", "good.key"))
    assert.are.equal("the key file is not there", why("good.pem", "none.key"))
    assert.are.equal("the key is not the certificate's", why("good.pem", "ca.key"))
    assert.are.equal("the certificate file holds no certificate in PEM form", why("good.key", "good.key"))
    write("junk.key", "no key\n")
    assert(os.execute(("chmod 600 '%s'"):format(path_of "junk.key")))
    assert.are.equal("the key file holds no private key in PEM form", why("good.pem", "junk.key"))
    assert.are.equal("the key's path is no regular file", why("good.pem", "."))
    local lock = "cd '%s' && openssl pkey -in good.key -aes256 -passout pass:x -out locked.key && chmod 600 locked.key"
    assert(os.execute(lock:format(certificates)))
    assert.truthy(why("good.pem", "locked.key"):find "encrypted")
    write("long.pem", ("x"):rep(300 * 1024))
    assert.truthy(why("long.pem", "good.key"):find "256 KiB")
  end)

  it("takes a key that its group may read, and none that others may", function()
    assert(os.execute(("cd '%s' && cp good.key shared.key"):format(certificates)))
    local modes = { ["640"] = true, ["600"] = true, ["400"] = true, ["644"] = false, ["660"] = false, ["601"] = false }
    for mode, is_good in pairs(modes) do
      assert(os.execute(("chmod %s '%s'"):format(mode, path_of "shared.key")))
      local tls, text = httpd.tls(path_of "good.pem", path_of "shared.key")
      assert.are.equal(is_good, tls ~= nil, mode)
      if not is_good then assert.truthy(text:find "chmod 600") end
    end
  end)

  it("knows until when a certificate is valid", function()
    local left = pair("good"):expires() - os.time()
    assert.is_true(left > 86400 and left <= 2 * 86400)
    assert.is_true(pair("expired"):expires() < os.time())
  end)

  it("has no certificate to exchange on a plain server", function()
    harness.with_server(function(req) req:respond(200) end, function(_, server)
      assert.has_error(function() server:set_tls(pair "good") end)
    end)
  end)
end)
