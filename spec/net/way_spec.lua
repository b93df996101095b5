-- timeout: 120
--- The way to a server: whom certificates are believed from, and proxies.

local core = require "demilune.core"
local harness = require "spec.net.harness"
local peer = require "spec.net.peer"

local http, task = core.http, core.task

describe("core.http", function()
  local server, certificates

  setup(function()
    certificates = peer.certificates()
    server = peer.hostile(certificates)
  end)

  teardown(function() server:stop() end)

  local function url(scheme, host, port, target)
    return ("%s://%s:%d%s"):format(scheme, host, server.ports[port], target or "/to-the-end")
  end

  local function proxy_url() return "http://127.0.0.1:" .. server.ports.proxy end

  local function certificate(name) return ("%s/%s.pem"):format(certificates, name) end

  local function fetch(address, options)
    local opts = { url = address, timeout_ms = 5000, max_body_bytes = 1 << 20 }
    for name, value in pairs(options or {}) do opts[name] = value end
    local res, err = http.request(opts)
    return err and err.category or res.status, res
  end

  local function run(body)
    task.run(function()
      fetch(url("http", "localhost", "nobody"))
      fetch(proxy_url() .. "/log")
      http.close_idle()
      local before = peer.descriptors()
      body()
      http.close_idle()
      harness.eventually("descriptors are closed", function() return peer.descriptors() <= before end)
    end)
  end

  --- A request in a process with these variables; its first line, and what follows.
  local function elsewhere(environment, ...)
    local variables = { "DML_BUILD_DIR=" .. os.getenv("DML_BUILD_DIR") }
    for _, name in ipairs { "LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS" } do
      if os.getenv(name) then variables[#variables + 1] = ("%s=%s"):format(name, os.getenv(name)) end
    end
    for _, variable in ipairs(environment) do variables[#variables + 1] = variable end
    local output = harness.shell("exec lua5.4 spec/net/fetch.lua '" .. table.concat({ ... }, "' '") .. "' 2>&1", variables)
    return output:match("^([^\n]*)\n(.*)$")
  end

  local function proxied()
    local _, res = fetch(proxy_url() .. "/log")
    return assert(core.json.decode(res.body))
  end

  describe("believes", function()
    it("the bundle that it is given, and no other", function()
      run(function()
        local address = url("https", "localhost", "good")
        assert.are.equal(200, (fetch(address, { ca_file = certificate "ca" })))
        assert.are.equal("connection_failed", (fetch(address)))
        assert.are.equal("connection_failed", (fetch(address, { ca_file = certificate "self-signed" })))
        assert.are.equal(200, (fetch(url("https", "localhost", "self-signed"), { ca_file = certificate "self-signed" })))
        assert.are.equal("connection_failed", (fetch(url("https", "localhost", "self-signed"), { ca_file = certificate "ca" })))
        assert.are.equal(200, (fetch(url("https", "127.0.0.1", "good"), { ca_file = certificate "ca" })))
      end)
    end)

    it("nobody with a bundle that is not there, is no bundle, or is the system's", function()
      run(function()
        for _, file in ipairs { "/nowhere/ca.pem", "spec/net/way_spec.lua", "/", "/etc/ssl/certs/ca-certificates.crt" } do
          for _, stream in ipairs { false, true } do
            assert.are.equal("connection_failed",
              (fetch(url("https", "localhost", "good"), { ca_file = file, stream = stream })))
          end
        end
      end)
    end)

    it("what another request's bundle allowed no more on a connection that is kept", function()
      run(function()
        local address = url("https", "localhost", "good", "/again")
        for _, body in ipairs { false, "x" } do
          local options = { ca_file = certificate "ca", method = body and "PUT" or nil, body = body or nil }
          assert.are.equal(200, (fetch(address, options)))
          assert.are.equal(1, peer.connections(server.ports.good))
          options.ca_file = certificate "self-signed"
          assert.are.equal("connection_failed", (fetch(address, options)))
          http.close_idle()
          harness.eventually("it is closed", function() return peer.connections(server.ports.good) == 0 end)
        end
      end)
    end)

    it("the environment's bundle, of SSL_CERT_FILE first, and before both its own", function()
      run(function()
        local address, ca = url("https", "localhost", "good"), certificate "ca"
        assert.are.equal("connection_failed", (elsewhere({}, address)))
        assert.are.equal("200", (elsewhere({ "SSL_CERT_FILE=" .. ca }, address)))
        assert.are.equal("200", (elsewhere({ "CURL_CA_BUNDLE=" .. ca }, address)))
        assert.are.equal("200", (elsewhere({ "SSL_CERT_FILE=" .. ca, "CURL_CA_BUNDLE=/nowhere" }, address)))
        assert.are.equal("200", (elsewhere({ "SSL_CERT_FILE=", "CURL_CA_BUNDLE=" .. ca }, address)))
        assert.are.equal("connection_failed", (elsewhere({ "SSL_CERT_FILE=/nowhere", "CURL_CA_BUNDLE=" .. ca }, address)))
        assert.are.equal("200", (elsewhere({ "SSL_CERT_FILE=/nowhere" }, address, "ca_file=" .. ca)))
        assert.are.equal("connection_failed", (elsewhere({ "SSL_CERT_FILE=" .. ca }, address, "ca_file=/nowhere")))
      end)
    end)
  end)

  describe("goes through a proxy", function()
    it("in a tunnel for https, of which the proxy sees the host and nothing else", function()
      run(function()
        for _, stream in ipairs { false, true } do
          local status, res = fetch("https://sandbox.test/to-the-end", {
            proxy = proxy_url(), ca_file = certificate "ca", stream = stream,
            headers = { Authorization = "Bearer canary-1", ["X-Api-Key"] = "canary-2", Cookie = "canary-3" },
          })
          assert.are.equal(200, status)
          if stream then
            assert.are.equal(5, (harness.drain(res)))
            res:close()
          end
          local heads = proxied()
          assert.are.equal(1, #heads)
          assert.is_truthy(heads[1]:find("^CONNECT sandbox%.test:443 HTTP/1%.1\r\n"))
          assert.is_nil(heads[1]:lower():find("canary"))
          assert.is_nil(heads[1]:lower():find("api-key", 1, true))
        end
      end)
    end)

    it("and checks the certificate of the host behind it", function()
      run(function()
        local options = { proxy = proxy_url(), ca_file = certificate "ca" }
        assert.are.equal("connection_failed", (fetch("https://elsewhere.test/", options)))
        assert.are.equal("connection_failed", (fetch("https://sandbox.test/", { proxy = proxy_url() })))
      end)
    end)

    it("with the whole request only where there is nothing to hide", function()
      run(function()
        local status, res = fetch("http://sandbox.test/x", { proxy = proxy_url() })
        assert.are.same({ 200, "proxied" }, { status, res.body })
        assert.is_truthy(proxied()[1]:find("^GET http://sandbox%.test/x HTTP/1%.1\r\n"))
      end)
    end)

    it("for no loopback host and no unix socket", function()
      run(function()
        for _, host in ipairs { "localhost", "127.0.0.1", "LOCALHOST" } do
          assert.are.equal(200, (fetch(url("http", host, "tcp"), { proxy = proxy_url() })))
        end
        assert.are.equal(200, (fetch(url("https", "localhost", "good"), { proxy = proxy_url(), ca_file = certificate "ca" })))
        assert.are.equal(200, (fetch("http://sandbox.test/to-the-end", { proxy = proxy_url(), unix_socket = server.path })))
        assert.are.same({}, proxied())
      end)
    end)

    it("of the environment, by its rules, unless it is told otherwise", function()
      run(function()
        local ca, address = "ca_file=" .. certificate "ca", "https://sandbox.test/to-the-end"
        for _, name in ipairs { "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY" } do
          assert.are.equal("200", (elsewhere({ name .. "=" .. proxy_url() }, address, ca)))
        end
        local set = "https_proxy=" .. proxy_url()
        assert.are.equal("connection_failed", (elsewhere({ set, "no_proxy=sandbox.test" }, address, ca)))
        assert.are.equal("connection_failed", (elsewhere({ set, "NO_PROXY=.test" }, address, ca)))
        assert.are.equal("connection_failed", (elsewhere({ set }, address, ca, "proxy=")))
        assert.are.equal("200", (elsewhere({ "https_proxy=http://127.0.0.1:1" }, address, ca, "proxy=" .. proxy_url())))
        local status, body = elsewhere({ "http_proxy=" .. proxy_url() }, "http://sandbox.test/x")
        assert.are.same({ "200", "proxied\n" }, { status, body })
        assert.are.equal("200", (elsewhere({ "http_proxy=" .. proxy_url() }, url("http", "localhost", "tcp"))))
        assert.are.equal(6, #proxied())
      end)
    end)

    -- Host of hostile.py's proxy, category.
    local BROKEN = {
      { "login.test", "connection_failed" }, { "refused.test", "connection_failed" }, { "gone.test", "connection_failed" },
      { "garbage.test", "connection_failed" }, { "empty.test", "connection_failed" }, { "reset.test", "connection_failed" },
      { "broken.test", "connection_failed" }, { "plain.test", "connection_failed" }, { "mute.test", "provider_timeout" },
    }
    for _, case in ipairs(BROKEN) do
      for _, stream in ipairs { false, true } do
        it(("and gets %s of one that does like %s%s"):format(case[2], case[1], stream and ", streaming" or ""), function()
          run(function()
            local from = task.now_ms()
            assert.are.equal(case[2], (fetch(("https://%s/"):format(case[1]), {
              proxy = proxy_url(), ca_file = certificate "ca", stream = stream,
              timeout_ms = case[2] == "provider_timeout" and 300 or 5000,
            })))
            assert.is_true(task.now_ms() - from < 2000)
          end)
        end)
      end
    end

    it("that nobody is, and gets connection_failed", function()
      run(function()
        for _, proxy in ipairs {
          "http://127.0.0.1:" .. server.ports.nobody, "https://127.0.0.1:" .. server.ports.nobody,
          "socks5h://127.0.0.1:" .. server.ports.nobody, "http://no-such-host.invalid:1",
          "https://127.0.0.1:" .. server.ports["self-signed"], "socks5h://127.0.0.1:" .. server.ports.tcp,
        } do
          assert.are.equal("connection_failed", (fetch("https://sandbox.test/", { proxy = proxy, connect_timeout_ms = 1000 })))
        end
      end)
    end)

    it("and leaves nothing of a request that is cancelled before the tunnel is there", function()
      run(function()
        local job = task.spawn(function() fetch("https://mute.test/", { proxy = proxy_url() }) end)
        task.sleep(60)
        assert.are.equal(1, peer.connections(server.ports.proxy))
        job:cancel()
        assert.is_false((job:wait(200)))
        harness.eventually("it is closed", function() return peer.connections(server.ports.proxy) == 0 end)
      end)
    end)
  end)

  -- Sentence, options.
  local INVALID = {
    { "a proxy without a scheme", { proxy = "127.0.0.1:80" } }, { "a proxy of another scheme", { proxy = "file:///x" } },
    { "a proxy with a space", { proxy = "http://a b:1" } }, { "a proxy with a line end", { proxy = "http://a\r\n:1" } },
    { "a proxy without end", { proxy = "http://" .. ("a"):rep(3000) } }, { "NUL in a path of a bundle", { ca_file = "/a\0b" } },
    { "a path of a bundle without end", { ca_file = ("/a"):rep(3000) } },
    { "a user in the URL", { url = "https://a@localhost/" } },
    { "a backslash before the host", { url = "https://a\\@localhost/" } },
    { "an escape in the host", { url = "https://local%68ost/" } }, { "no host", { url = "https:///x" } },
    { "two hosts", { url = "https://localhost,a/" } }, { "a quote in the host", { url = "https://localhost'/" } },
  }
  for _, case in ipairs(INVALID) do
    it("refuses " .. case[1], function()
      run(function() assert.are.equal("invalid_argument", (fetch(url("http", "localhost", "tcp"), case[2]))) end)
    end)
  end

  -- Location, what it means.
  local MOVED = {
    { "/x?y#z", "/x?y" }, { "x", "/status/x" }, { "?q", "/status/302?q" }, { "//other.test/a", "http://other.test/a" },
    { "https://other.test", "https://other.test/" }, { "HTTP://Other.Test:81/", "http://Other.Test:81/" },
    { "../../x", "/x" }, { "/a b", "/a%20b" }, { "ftp://other.test/", nil }, { "javascript:x", nil },
    { "https://a@other.test/", nil },
    { "https://a:b@other.test/", nil }, { "file:///etc/passwd", nil }, { "http://[::1", nil }, { "https://other.test\\@x/", nil },
    { "", nil },
  }
  for _, case in ipairs(MOVED) do
    it(("takes Location: %s for %s"):format(case[1], case[2] or "nothing that could be asked"), function()
      harness.with_server(function(req)
        req:respond(302, { Location = req.headers["x-location"] })
      end, function(path)
        local res = assert(harness.fetch(path, "/status/302", { headers = { ["X-Location"] = case[1] } }))
        local wanted = case[2] and case[2]:find "^/" and "http://localhost" .. case[2] or case[2]
        assert.are.equal(wanted, res.redirect_url)
      end)
    end)
  end
end)
