--- The transport: places, deadlines, repetitions and redirects, with a server, a vault and a clock that are made up.

local core = require "demilune.core"
local errors = require "demilune.errors"
local transport = require "demilune.transport"

local task = core.task

--- What the world does while a test runs. `steps` are taken in turn: a table is a response, a string the category of an
--- error, a function is called with the request and gives either.
local world
local real = {}

local function answer(step, request)
  if type(step) == "function" then step = step(request) end
  if type(step) == "string" then return nil, core.status.new(step) end
  step.headers = step.headers or {}
  return step
end

local function request(options)
  local copy = {}
  for name, value in pairs(options) do copy[name] = value end
  world.requests[#world.requests + 1] = copy
  world.at[#world.at + 1] = world.now
  local step = table.remove(world.steps, 1)
  assert(step ~= nil, "one request more than there are answers")
  return answer(step, copy)
end

local function sleep(ms)
  world.slept[#world.slept + 1] = ms
  world.now = world.now + ms
end

local VAULT = {
  load = function(name)
    world.loads[#world.loads + 1] = name
    if world.missing == name then return nil, core.status.new "authentication_failed" end
    return true
  end,
  reload = function(name)
    world.reloads[#world.reloads + 1] = name
    if world.reload_takes then world.reload_takes() end
    return table.remove(world.changes, 1)
  end,
  status = function() return { credentials = { { name = "k" }, { name = "l", cause = "The file /k is not there." } } } end,
  allows = function(credential, url) return url:find(credential.origin, 1, true) == 1 end,
}

--- Runs `fn` in a task of the made-up world.
local function with(steps, fn)
  return function()
    world = { now = 1000000, steps = steps(), requests = {}, at = {}, slept = {}, loads = {}, reloads = {}, changes = {} }
    task.run(fn)
    assert.are.equal(0, #world.steps)
  end
end

local function steps(...)
  local list = table.pack(...)
  return function()
    local copy = {}
    for i = 1, list.n do
      local step = list[i]
      copy[i] = type(step) == "table" and { status = step.status, headers = step.headers, redirect_url = step.redirect_url } or step
    end
    return copy
  end
end

local function caught(...)
  local ok, err = pcall(...)
  assert.is_false(ok)
  assert.is_true(errors.is(err), tostring(err))
  return err
end

local function get(fields)
  local opts = { url = "https://a.test/x", timeout_ms = 30000, max_body_bytes = 100, is_safe = true }
  for name, value in pairs(fields or {}) do opts[name] = value end
  return opts
end

local function after(text, date) return { status = 429, headers = { ["retry-after"] = text, date = date } } end

local KEY = { origin = "https://a.test/" }

describe("demilune.transport", function()
  before_each(function()
    real = { request = core.http.request, sleep = task.sleep, now_ms = task.now_ms, vault = core.vault }
    core.http.request, task.sleep, task.now_ms, core.vault = request, sleep, function() return world.now end, VAULT
  end)

  after_each(function()
    core.http.request, task.sleep, task.now_ms, core.vault = real.request, real.sleep, real.now_ms, real.vault
  end)

  it("sends what it is given, with its own proxy and bundle, and no field that HTTP does not know", with(steps { status = 200 },
    function()
      local one = transport.new { proxy = "http://p.test:1", ca_file = "/ca" }
      local opts = get { method = "POST", body = "b", headers = { a = "1" }, is_fresh = true, is_create = true, stream = true }
      assert.are.equal(200, one:send(opts).status)
      assert.are.same({
        url = "https://a.test/x", method = "POST", body = "b", headers = { a = "1" }, is_fresh = true, stream = true,
        max_body_bytes = 100, timeout_ms = 30000, proxy = "http://p.test:1", ca_file = "/ca",
      }, world.requests[1])
    end))

  -- Sentence, options, answers; how the last one ends, and how many pauses there were.
  local MANNERS = {
    { "returns any answer to what is not safe", { is_safe = false }, { { status = 503 } }, 503, 0 },
    { "repeats nothing that broke and is not safe", { is_safe = false }, { "connection_failed" }, "connection_failed", 0 },
    { "repeats 502", {}, { { status = 502 }, { status = 200 } }, 200, 1 },
    { "repeats 503 and 504", {}, { { status = 503 }, { status = 504 }, { status = 204 } }, 204, 2 },
    { "repeats what did not get through", {}, { "connection_failed", { status = 200 } }, 200, 1 },
    { "gives up at the third try", {}, { { status = 502 }, "connection_failed", { status = 503 } }, 503, 2 },
    { "gives up with the last error", {}, { { status = 502 }, { status = 502 }, "connection_failed" }, "connection_failed", 2 },
    { "repeats no 500", {}, { { status = 500 } }, 500, 0 },
    { "repeats no 404", {}, { { status = 404 } }, 404, 0 },
    { "repeats no timeout", {}, { "provider_timeout" }, "provider_timeout", 0 },
    { "repeats no answer that is none", {}, { "invalid_response" }, "invalid_response", 0 },
    { "repeats nothing that is too large", {}, { "too_large" }, "too_large", 0 },
    { "takes 429 without Retry-After for a quota", {}, { { status = 429 } }, 429, 0 },
    { "takes 429 with a senseless Retry-After for a quota", {}, { after "soon" }, 429, 0 },
    { "takes 429 with a negative Retry-After for a quota", {}, { after "-1" }, 429, 0 },
    { "repeats 429 with Retry-After", {}, { after "2", { status = 200 } }, 200, 1 },
    { "repeats no 429 of what is not safe", { is_safe = false }, { after "2" }, 429, 0 },
    { "does not wait beyond its deadline", {}, { after "30" }, 429, 0 },
    { "does not wait for ever", {}, { after(("9"):rep(400)) }, 429, 0 },
  }
  for _, case in ipairs(MANNERS) do
    it(case[1], with(steps(table.unpack(case[3])), function()
      local one = transport.new()
      if type(case[4]) == "string" then
        assert.are.equal(case[4], caught(one.send, one, get(case[2])).category)
      else
        assert.are.equal(case[4], one:send(get(case[2])).status)
      end
      assert.are.equal(case[5], #world.slept)
      assert.are.equal(#case[3], #world.requests)
      assert.are.equal(16, one.places.free)
    end))
  end

  it("pauses twice as long each time, and by chance not always as long", function()
    local seen = {}
    for _ = 1, 200 do
      with(steps({ status = 502 }, { status = 502 }, { status = 200 }), function() transport.new():send(get()) end)()
      assert.is_true(world.slept[1] >= 100 and world.slept[1] <= 300)
      assert.is_true(world.slept[2] >= 200 and world.slept[2] <= 600)
      seen[world.slept[1]] = true
    end
    assert.is_not_nil(next(seen, next(seen)))
  end)

  it("waits at least as long as it is asked to", with(steps(after "3", { status = 503, headers = { ["retry-after"] = "0" } },
    { status = 200 }), function()
    transport.new():send(get())
    assert.is_true(world.slept[1] >= 3000)
    assert.is_true(world.slept[2] >= 200 and world.slept[2] <= 600)
  end))

  it("keeps all tries within one deadline", with(steps(function()
    world.now = world.now + 6000
    return { status = 502, headers = { ["retry-after"] = "1" } }
  end, { status = 200 }), function()
    local one = transport.new()
    one:send(get { deadline_ms = world.now + 10000, timeout_ms = 8000 })
    assert.are.equal(8000, world.requests[1].timeout_ms)
    assert.are.equal(3000, world.requests[2].timeout_ms)
    assert.are.equal("provider_timeout", caught(one.send, one, get { deadline_ms = world.now - 1 }).category)
  end))

  it("repeats nothing for which too little time is left", with(steps(function()
    world.now = world.now + 980
    return { status = 502 }
  end), function()
    assert.are.equal(502, transport.new():send(get { timeout_ms = 1000 }).status)
  end))

  -- Retry-After, Date, seconds.
  local WAITS = {
    { "0", nil, 0 }, { "17", nil, 17 }, { "007", nil, 7 }, { "99999999999999999999", nil, 86400 },
    { "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:30 GMT", 7 },
    { "Sunday, 06-Nov-94 08:49:37 GMT", nil, "any" },
    { "Sun Nov  6 08:49:37 1994", "Sun, 06 Nov 1994 08:49:30 GMT", 7 },
    { "Thu, 29 Feb 2024 23:59:59 GMT", "Thu, 29 Feb 2024 23:59:09 GMT", 50 },
    { "Fri, 01 Mar 2024 00:00:09 GMT", "Thu, 29 Feb 2024 23:59:59 GMT", 10 },
    { "Fri, 01 Jan 2027 00:00:00 GMT", "Thu, 31 Dec 2026 23:59:58 GMT", 2 },
    { "Sun, 06 Nov 1994 08:49:30 GMT", "Sun, 06 Nov 1994 08:49:37 GMT", 0 },
    { "Sun, 06 Nov 1994 08:49:37 GMT", nil, 0 },
    { "Sun, 06 Nov 1994 08:49:37 GMT", "yesterday", 0 },
    { "Sun, 06 Foo 1994 08:49:37 GMT", nil, nil }, { "", nil, nil }, { "1.5", nil, nil }, { "1 ", nil, nil }, { "0x10", nil, nil },
  }
  for _, case in ipairs(WAITS) do
    it(("reads Retry-After: %q as %s"):format(case[1], case[3]), function()
      local seconds = transport.retry_after(after(case[1], case[2]))
      if case[3] == "any" then
        assert.are.equal("integer", math.type(seconds))
      else
        assert.are.equal(case[3], seconds)
      end
    end)
  end

  it("counts a date that comes alone from this machine's clock", function()
    local seconds = transport.retry_after(after(os.date("!%a, %d %b %Y %H:%M:%S GMT", os.time() + 40)))
    assert.is_true(seconds >= 38 and seconds <= 40)
  end)

  it("loads the credentials that it names before it sends", with(steps { status = 200 }, function()
    local one = transport.new()
    one:send(get { credentials = { KEY }, credential_names = { "k", "l" } })
    assert.are.same({ "k", "l" }, world.loads)
    assert.are.same({ KEY }, world.requests[1].credentials)
    world.missing = "l"
    local err = caught(one.send, one, get { credentials = { KEY }, credential_names = { "k", "l" } })
    assert.are.equal("authentication_failed", err.category)
    -- For a person at this machine alone: it names a path.
    assert.are.equal("The file /k is not there.", errors.detail(err))
    assert.is_nil(core.json.encode(errors.public(err)):find("/k", 1, true))
    assert.are.equal(1, #world.requests)
  end))

  it("sends again after a 401 when the credential had changed, whatever the method", with(steps({ status = 401 }, { status = 201 }),
    function()
      world.changes = { true }
      local res = transport.new():send(get { method = "POST", is_safe = false, credentials = { KEY }, credential_names = { "k" } })
      assert.are.equal(201, res.status)
      assert.are.same({ "k" }, world.reloads)
    end))

  it("returns a 401 of a credential that had not changed, or was refused twice", with(steps({ status = 401 }, { status = 401 },
    { status = 401 }), function()
    world.changes = { false, true }
    local one = transport.new()
    local opts = get { credentials = { KEY }, credential_names = { "k" } }
    assert.are.equal(401, one:send(opts).status)
    assert.are.equal(1, #world.requests)
    assert.are.equal(401, one:send(opts).status)
    assert.are.equal(3, #world.requests)
    assert.are.same({ "k", "k" }, world.reloads)
  end))

  it("reads nothing again for a request that had no credential", with(steps { status = 401 }, function()
    assert.are.equal(401, transport.new():send(get { credential_names = { "k" } }).status)
    assert.are.same({}, world.reloads)
  end))

  it("reads a credential once for all requests that it was refused in", with(steps({ status = 401 }, { status = 401 },
    { status = 401 }, { status = 200 }, { status = 200 }, { status = 200 }), function()
    world.changes = { true }
    world.reload_takes = function() real.sleep(5) end
    local one, jobs, statuses = transport.new(), {}, {}
    local arrived = task.event()
    local steps_left = world.steps
    for i = 1, 3 do
      local step = steps_left[i]
      steps_left[i] = function()
        if #world.requests == 3 then arrived:set() end
        arrived:wait()
        return step
      end
    end
    for i = 1, 3 do
      jobs[i] = task.spawn(function()
        statuses[i] = one:send(get { credentials = { KEY }, credential_names = { "many" } }).status
      end)
    end
    for i = 1, 3 do jobs[i]:wait(2000) end
    assert.are.same({ 200, 200, 200 }, statuses)
    assert.are.same({ "many" }, world.reloads)
  end))

  local function moved(url, status) return { status = status or 302, redirect_url = url } end

  it("follows no redirect unless it is told to", with(steps(moved "https://a.test/y"), function()
    assert.are.equal(302, transport.new():send(get()).status)
  end))

  it("follows as many as it may, with the credentials that may go there", with(steps(moved("https://a.test/y", 301),
    moved("https://b.test/z", 307), { status = 200 }), function()
    transport.new():send(get { redirects = 2, credentials = { KEY } })
    assert.are.same({ KEY }, world.requests[2].credentials)
    assert.are.equal("https://a.test/y", world.requests[2].url)
    assert.is_nil(world.requests[3].credentials)
    assert.are.equal("https://b.test/z", world.requests[3].url)
  end))

  -- Sentence, options, answer.
  local NOT_FOLLOWED = {
    { "more than it may", { redirects = 0 }, moved "https://a.test/y" },
    { "from https to http", {}, moved "http://a.test/y" },
    { "what has no place that can be asked", {}, { status = 302 } },
    { "for a method that is not GET", { method = "POST" }, moved("https://a.test/y", 307) },
    { "over a unix socket", { unix_socket = "/s", url = "http://localhost/x" }, moved "http://a.test/y" },
    { "a 300", {}, moved("https://a.test/y", 300) },
    { "a 304", {}, moved("https://a.test/y", 304) },
  }
  for _, case in ipairs(NOT_FOLLOWED) do
    it("does not follow " .. case[1], with(steps(case[3]), function()
      local opts = get(case[2])
      opts.redirects = opts.redirects or 1
      assert.are.equal(case[3].status, transport.new():send(opts).status)
    end))
  end

  it("stops following in a circle", with(steps(moved "https://a.test/x", moved "https://a.test/x", moved "https://a.test/x"),
    function()
      assert.are.equal(302, transport.new():send(get { redirects = 2 }).status)
    end))

  it("sends so many at a time and says that there are too many", with(steps(function()
    real.sleep(60)
    return { status = 200 }
  end), function()
    task.now_ms = real.now_ms
    local one = transport.new { max_requests = 1, wait_ms = 20 }
    local job = task.spawn(function() one:send(get()) end)
    real.sleep(1)
    local err = caught(one.send, one, get())
    assert.are.equal("quota_exceeded", err.category)
    assert.is_truthy(err.suggestion)
    assert.are.equal(1, #world.requests)
    assert.is_true(job:wait(2000))
    assert.are.equal(1, one.places.free)
  end))

  it("gives a stream's place back once its head is there, and closes a stream that it does not hand on", function()
    local closed = 0
    local function stream(status) return { status = status, close = function() closed = closed + 1 end } end
    with(function() return { stream(502), stream(200), stream(200) } end, function()
      local one = transport.new { max_requests = 1, wait_ms = 20 }
      local first = one:send(get { stream = true })
      assert.are.equal(1, closed)
      assert.are.equal(200, first.status)
      assert.are.equal(1, one.places.free)
      assert.are.equal(200, one:send(get { stream = true }).status)
    end)()
  end)

  it("keeps no place while it pauses, and none for a task that is cancelled", with(steps({ status = 502 }, function()
    real.sleep(5000)
  end), function()
    task.now_ms = real.now_ms
    local one, pausing = transport.new { max_requests = 1 }, task.event()
    task.sleep = function(ms)
      pausing:set()
      real.sleep(ms)
    end
    local in_pause = task.spawn(function() one:send(get()) end)
    pausing:wait(2000)
    assert.are.equal(1, one.places.free)
    in_pause:cancel()
    assert.is_false((in_pause:wait(2000)))
    local sending = task.spawn(function() one:send(get()) end)
    real.sleep(1)
    local waiting = task.spawn(function() one:send(get()) end)
    real.sleep(1)
    assert.are.same({ 0, 1 }, { one.places.free, #one.places.queue })
    waiting:cancel()
    sending:cancel()
    assert.is_false((waiting:wait(2000)))
    assert.is_false((sending:wait(2000)))
    assert.are.same({ 1, 0 }, { one.places.free, #one.places.queue })
  end))
end)
