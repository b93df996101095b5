-- timeout: 180
--- auth with an authorization server: claims, scopes, and keys that change, vanish, lie or take their time.

local auth = require "demilune.auth"
local core = require "demilune.core"
local issuer = require "spec.auth.issuer"
local jwks = require "demilune.auth.jwks"
local oauth = require "demilune.auth.oauth"
local peer = require "spec.net.peer"

local task = core.task

local ISSUER, AUDIENCE = "https://login.example.com", "https://mcp.example.com/mcp"

describe("auth with an authorization server", function()
  local key, other
  local real_now, real_epoch, ahead_ms

  setup(function()
    key, other = issuer.key("ec", "one"), issuer.key("ec", "two")
    real_now, real_epoch = task.now_ms, task.epoch_ms
  end)

  before_each(function()
    ahead_ms = 0
    rawset(task, "now_ms", function() return real_now() + ahead_ms end)
    rawset(task, "epoch_ms", function() return real_epoch() + ahead_ms end)
  end)

  after_each(function()
    rawset(task, "now_ms", real_now)
    rawset(task, "epoch_ms", real_epoch)
  end)

  --- Later, as far as the code under test can tell.
  local function pass(seconds) ahead_ms = ahead_ms + seconds * 1000 end

  local function claims(changes)
    local now = core.task.epoch_ms() // 1000
    local all = { iss = ISSUER, aud = AUDIENCE, sub = "alice", exp = now + 600, iat = now, scope = "mcp sandboxes" }
    for name, value in pairs(changes or {}) do
      if value == core.json.null then all[name] = nil else all[name] = value end
    end
    return all
  end

  --- Runs `body(who, state)` in a task beside an issuer with these keys.
  local function with(options, body)
    task.run(function()
      local state = { body = issuer.set(key) }
      local url, server = issuer.serve(state)
      local settings = { issuer = ISSUER, audience = options.audience or AUDIENCE, jwks = url, scopes = options.scopes }
      local who = assert(auth.new { oauth = settings, tls = options.tls, token_file = options.token_file })
      state.url, state.server = url, server
      local ok, err = xpcall(body, debug.traceback, who, state)
      state.server:close()
      core.http.close_idle()
      if not ok then error(err, 0) end
    end)
  end

  local function identify(who, token)
    return who:identify({ authorization = "Bearer " .. token, host = "127.0.0.1:9000" }, {})
  end

  local function refused(who, token, status, code)
    local caller, refusal = identify(who, token)
    assert.is_nil(caller)
    assert.are.equal(status, refusal.status, refusal.message)
    if code then assert.truthy(refusal.headers["WWW-Authenticate"]:find(('error="%s"'):format(code), 1, true)) end
    for _, value in pairs(refusal.headers) do assert.is_nil(value:find(token, 1, true)) end
    return refusal
  end

  it("makes the subject the principal, with its scopes", function()
    with({}, function(who)
      local caller = assert(identify(who, key:token(claims())))
      assert.are.equal("oauth:alice", caller.principal)
      assert.are.same({ mcp = true, sandboxes = true }, caller.scopes)
      caller = assert(identify(who, key:token(claims { scope = core.json.null, scp = core.json.array { "a", "b" } })))
      assert.are.same({ a = true, b = true }, caller.scopes)
      caller = assert(identify(who, key:token(claims { aud = core.json.array { "x", AUDIENCE } })))
      assert.are.equal("oauth:alice", caller.principal)
    end)
  end)

  it("refuses tokens of others, for others, out of their time, or of nobody", function()
    with({}, function(who)
      local now = task.epoch_ms() // 1000
      local null, array = core.json.null, core.json.array
      local wrong = {
        { iss = ISSUER .. "/" }, { iss = "https://evil.example.com" }, { iss = null }, { iss = array { ISSUER } },
        { aud = "https://mcp.example.com" }, { aud = AUDIENCE .. "/" }, { aud = null }, { aud = array {} },
        { aud = { a = AUDIENCE } },
        { exp = now - 60 }, { exp = null }, { exp = "9999999999" }, { exp = -1 }, { exp = 1e300 }, { exp = true },
        { nbf = now + 120 }, { nbf = "x" }, { iat = now + 120 }, { iat = array {} },
        { sub = null }, { sub = "" }, { sub = 7 }, { sub = "a b" }, { sub = "a\nb" }, { sub = ("x"):rep(251) }, { sub = "böse" },
        { cnf = { jkt = "x" } },
      }
      for _, change in ipairs(wrong) do refused(who, key:token(claims(change)), 401, "invalid_token") end
      assert.is_truthy(identify(who, key:token(claims { exp = now - 10, nbf = now + 10, iat = now + 10 })))
    end)
  end)

  it("refuses what no key of the issuer signed, and what is no JWT", function()
    with({}, function(who)
      refused(who, other:token(claims()), 401, "invalid_token")
      refused(who, other:token(claims(), { kid = "one" }), 401, "invalid_token")
      refused(who, "opaque-token", 401, "invalid_token")
      refused(who, issuer.token({ alg = "none" }, claims(), function() return "" end), 401, "invalid_token")
      refused(who, ("x"):rep(9000), 400, "invalid_request")
    end)
  end)

  it("asks for a token with the place of its metadata and the scopes", function()
    with({ scopes = { "mcp", "sandboxes" } }, function(who)
      local _, refusal = who:identify({ host = "127.0.0.1:9000" }, {})
      assert.are.equal(401, refusal.status)
      assert.are.equal('Bearer realm="demilune", '
        .. 'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp", scope="mcp sandboxes"',
        refusal.headers["WWW-Authenticate"])
      refusal = refused(who, key:token(claims { scope = "mcp" }), 403, "insufficient_scope")
      assert.truthy(refusal.headers["WWW-Authenticate"]:find('scope="mcp sandboxes"', 1, true))
      assert.truthy(refusal.headers["WWW-Authenticate"]:find("resource_metadata=", 1, true))
      assert.is_truthy(identify(who, key:token(claims())))
    end)
  end)

  it("serves RFC 9728 metadata at the well-known paths", function()
    with({ scopes = { "mcp" } }, function(who)
      for _, path in ipairs { "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp" } do
        local document = assert(core.json.decode(who:metadata(path, "whatever")))
        assert.are.equal(AUDIENCE, document.resource)
        assert.are.same({ ISSUER }, document.authorization_servers)
        assert.are.same({ "header" }, document.bearer_methods_supported)
        assert.are.same({ "mcp" }, document.scopes_supported)
      end
      assert.is_nil(who:metadata("/.well-known/oauth-protected-resource/other", "a"))
      assert.is_nil(who:metadata("/mcp", "a"))
    end)
    with({ audience = "mcp-sandboxes", tls = {} }, function(who)
      local document = assert(core.json.decode(who:metadata("/.well-known/oauth-protected-resource", "host.example.com:8443")))
      assert.are.equal("https://host.example.com:8443/mcp", document.resource)
      assert.is_nil(document.scopes_supported)
      assert.is_nil(who:metadata("/.well-known/oauth-protected-resource", 'a"b'))
      assert.is_nil(who:metadata("/.well-known/oauth-protected-resource", nil))
      local _, refusal = who:identify({}, {})
      assert.are.equal('Bearer realm="demilune"', refusal.headers["WWW-Authenticate"])
    end)
  end)

  it("fetches the keys once for many, and again for a key id that is new", function()
    with({}, function(who, state)
      local token, done = key:token(claims()), 0
      for _ = 1, 20 do
        task.spawn(function()
          assert(identify(who, token))
          done = done + 1
        end)
      end
      while done < 20 do task.sleep(2) end
      assert.are.equal(1, state.count)
      state.body = issuer.set(other, key)
      pass(jwks.UNKNOWN_WAIT_S + 1)
      assert.is_truthy(identify(who, other:token(claims())))
      assert.is_truthy(identify(who, key:token(claims())))
      assert.are.equal(2, state.count)
      state.body = issuer.set(other)
      pass(jwks.FRESH_S)
      identify(who, other:token(claims()))
      while who.oauth.jwks.fetching do task.sleep(2) end
      refused(who, key:token(claims()), 401, "invalid_token")
    end)
  end)

  it("is not made to fetch by key ids that are made up", function()
    with({}, function(who, state)
      assert(identify(who, key:token(claims())))
      pass(jwks.UNKNOWN_WAIT_S + 1)
      for i = 1, 20 do refused(who, other:token(claims(), { kid = "made-up-" .. i }), 401) end
      assert.are.equal(2, state.count)
      assert(identify(who, key:token(claims())))
    end)
  end)

  it("goes on with the keys it has while the issuer cannot be reached, for a bounded time", function()
    with({}, function(who, state)
      assert(identify(who, key:token(claims())))
      state.server:close()
      core.http.close_idle()
      pass(jwks.FRESH_S + 1)
      assert.is_truthy(identify(who, key:token(claims())))
      while who.oauth.jwks.fetching do task.sleep(2) end
      assert.is_string(who.oauth.jwks.fault)
      assert.is_truthy(identify(who, key:token(claims())))
      pass(jwks.STALE_MAX_S)
      local refusal = refused(who, key:token(claims()), 503)
      assert.is_string(refusal.headers["Retry-After"])
      local _
      _, state.server = issuer.serve(state)
      pass(jwks.RETRY_WAIT_S + 1)
      assert.is_truthy(identify(who, key:token(claims())))
    end)
  end)

  it("refuses with 503 while there are no keys, and asks for them no faster than it promises", function()
    with({}, function(who, state)
      local bodies = { "", "{}", "<html>", '{"keys":[]}', ("["):rep(1000), '{"keys":[' .. ("1,"):rep(200000) .. "1]}" }
      for _, body in ipairs(bodies) do
        state.body = body
        for _ = 1, 3 do refused(who, key:token(claims()), 503) end
        pass(jwks.RETRY_WAIT_S + 1)
      end
      assert.are.equal(#bodies, state.count)
      state.body, state.status = issuer.set(key), 404
      refused(who, key:token(claims()), 503)
      state.status = 302
      pass(jwks.RETRY_WAIT_S + 1)
      refused(who, key:token(claims()), 503)
      state.status = 200
      pass(jwks.RETRY_WAIT_S + 1)
      assert(identify(who, key:token(claims())))
    end)
  end)

  it("believes no body without end, and waits for no slow issuer for long", function()
    local real_timeout = jwks.TIMEOUT_MS
    jwks.TIMEOUT_MS = 300
    with({}, function(who, state)
      state.answer = function(req)
        req:start(200)
        for _ = 1, 4096 do
          if not req:write((" "):rep(65536)) then return end
        end
      end
      refused(who, key:token(claims()), 503)
      state.answer = function(req)
        task.sleep(1500)
        req:respond(200, nil, issuer.set(key))
      end
      pass(jwks.RETRY_WAIT_S + 1)
      local before_ms = real_now()
      refused(who, key:token(claims()), 503)
      assert.is_true(real_now() - before_ms < 1400)
      assert.is_string(who.oauth.jwks.fault)
    end)
    jwks.TIMEOUT_MS = real_timeout
  end)

  it("fetches on though the request that began it is over", function()
    with({}, function(who, state)
      state.answer = function(req)
        task.sleep(60)
        req:respond(200, nil, issuer.set(key))
      end
      local impatient = task.spawn(function() identify(who, key:token(claims())) end)
      task.sleep(10)
      impatient:cancel()
      assert.is_truthy(identify(who, key:token(claims())))
      assert.are.equal(1, state.count)
    end)
  end)

  it("believes the issuer's certificate by the operator's bundle alone", function()
    local certificates = peer.certificates()
    assert(os.execute(("chmod 600 '%s'/*.key"):format(certificates)))
    local function path(name) return certificates .. "/" .. name end
    task.run(function()
      for name, is_good in pairs { good = true, ["other-host"] = false, expired = false, ["self-signed"] = false } do
        local tls = assert(core.httpd.tls(path(name .. ".pem"), path(name .. ".key")))
        local url, server = issuer.serve { body = issuer.set(key), tls = tls }
        local who = assert(auth.new { oauth = { issuer = ISSUER, audience = AUDIENCE, jwks = url, ca_file = path "ca.pem" } })
        local caller, refusal = identify(who, key:token(claims()))
        assert.are.equal(is_good, caller ~= nil, name)
        if not is_good then assert.are.equal(503, refusal.status) end
        server:close()
        core.http.close_idle()
      end
    end)
  end)

  it("remembers a good token for a moment, and never beyond its end or its key", function()
    with({}, function(who, state)
      local token = key:token(claims { exp = task.epoch_ms() // 1000 + 40 })
      local verified = 0
      assert(identify(who, token))
      local real = who.oauth.jwks.set
      who.oauth.jwks.set = setmetatable({}, { __index = function(_, name)
        verified = verified + 1
        return function(_, ...) return real[name](real, ...) end
      end })
      for _ = 1, 10 do assert(identify(who, token)) end
      assert.are.equal(0, verified)
      pass(40 + oauth.LEEWAY_S + 1)
      refused(who, token, 401, "invalid_token")
      assert.are.equal(1, verified)
      local lasting = key:token(claims { exp = task.epoch_ms() // 1000 + 6000 })
      who.oauth.jwks.set = real
      assert(identify(who, lasting))
      state.body = issuer.set(other)
      who:reload()
      identify(who, lasting)
      while who.oauth.jwks.fetching do task.sleep(2) end
      refused(who, lasting, 401, "invalid_token")
    end)
  end)

  it("remembers no more than it promises", function()
    local real_max = oauth.REMEMBER_MAX
    oauth.REMEMBER_MAX = 8
    with({}, function(who)
      for i = 1, 30 do
        assert(identify(who, key:token(claims { sub = "s" .. i })))
        local count = 0
        for _ in pairs(who.oauth.known) do count = count + 1 end
        assert.is_true(count <= 8)
      end
    end)
    oauth.REMEMBER_MAX = real_max
  end)

  it("stands beside a file of tokens, whose names no subject can take", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write("alice:", core.crypto.sha256 "static-token", "\n")
    file:close()
    assert(os.execute("chmod 600 " .. path))
    with({ token_file = path }, function(who)
      assert.are.equal("alice", identify(who, "static-token").principal)
      assert.are.equal("oauth:alice", identify(who, key:token(claims())).principal)
      refused(who, "static-tokem", 401, "invalid_token")
    end)
    os.remove(path)
  end)
end)
