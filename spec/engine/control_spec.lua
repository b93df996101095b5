--- The control plane: creations, listings, lifetimes, leases, and what malformed requests get.

local core = require "demilune.core"
local leftovers = require "spec.support.leftovers"
local os_calls = require "spec_os"
local support = require "spec.engine.support"

local task = core.task

describe("the control plane of the engine", function()
  local engine

  setup(function() engine = support.start() end)
  teardown(function() engine:stop() end)

  local function within(fn) return function() support.run(fn) end end

  it("says what it is", within(function()
    local status, body = engine:call("GET", "/demilune")
    assert.are.equal(200, status)
    assert.truthy(body.pause == "freezer" or body.pause == "signals")
    body.pause = nil
    assert.are.same({ version = core.sys.version, protocol = 1, sandboxes = 0, pid = engine.program.pid }, body)
  end))

  it("creates, shows, lists and ends a sandbox", within(function()
    local before_ms = task.epoch_ms()
    local status, created = engine:call("POST", "/sandboxes", { templateID = "base", timeout = 100,
      metadata = { user = "a b" }, envVars = { A = "1" }, secure = true, autoPause = false,
      allow_internet_access = false })
    assert.are.equal(201, status)
    assert.truthy(created.sandboxID:find "^i[a-z2-7]+$")
    assert.are.equal(20, #created.sandboxID)
    assert.are.equal("base", created.templateID)
    assert.are.equal("0.6.5", created.envdVersion)
    assert.are.equal(core.json.null, created.envdAccessToken)
    assert.are.equal(core.json.null, created.domain)
    assert.are.equal("/home/user", created.demilune.workdir)
    assert.are.equal("none", created.demilune.network)
    assert.are.equal(1024, created.demilune.diskSizeMB)
    assert.truthy(created.demilune.startedAt:find "^%d+%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$")
    assert.are.equal(task.iso(before_ms):sub(1, 16), created.demilune.startedAt:sub(1, 16))

    local shown_status, shown = engine:call("GET", "/sandboxes/" .. created.sandboxID)
    assert.are.equal(200, shown_status)
    assert.are.equal("running", shown.state)
    assert.are.same({ user = "a b" }, shown.metadata)
    assert.are.equal(created.demilune.endAt, shown.endAt)
    assert.is_nil(shown.envVars)
    assert.are.same({ A = "1" }, shown.demilune.env)
    local _, listed = engine:call("GET", "/v2/sandboxes")
    assert.are.equal(1, #listed)
    assert.are.equal(created.sandboxID, listed[1].sandboxID)
    assert.is_nil(listed[1].demilune)
    assert.are.equal(204, (engine:call("DELETE", "/sandboxes/" .. created.sandboxID)))
    assert.are.equal(404, (engine:call("DELETE", "/sandboxes/" .. created.sandboxID)))
    assert.are.equal(404, (engine:call("GET", "/sandboxes/" .. created.sandboxID)))
    local _, none = engine:call("GET", "/v2/sandboxes")
    assert.are.same({}, none)
  end))

  it("gives limits that hold, null for others, and refuses those that must hold and cannot", within(function()
    local template = { disk = 64, memory = 256, cpu = 1, pids = 64, explicit = { memory = true, cpu = true } }
    local status, body = engine:call("POST", "/sandboxes",
      { templateID = "own", timeout = 60, demilune = { template = template } })
    local plain = engine:create { templateID = "own", demilune = { template = { disk = 64, memory = 256, cpu = 1 } } }
    assert.are.equal("own", plain.created.templateID)
    assert.are.equal(64, plain.created.demilune.diskSizeMB)
    if status == 201 then
      assert.are.equal(256, body.demilune.memoryMB)
      assert.are.equal(1, body.demilune.cpuCount)
      engine:call("DELETE", "/sandboxes/" .. body.sandboxID)
    else
      assert.are.equal(400, status)
      assert.are.equal("unsupported", body.error_code)
      assert.truthy(body.field == "memory" or body.field == "cpu")
    end
    plain:kill()
  end))

  it("pages and filters listings, newest first", within(function()
    local ids = {}
    for i = 1, 3 do
      local created = engine:create { metadata = { n = tostring(i), odd = i % 2 == 1 and "y & z" or "no" } }
      ids[4 - i] = created.id
    end
    local _, first, res = engine:call("GET", "/v2/sandboxes?limit=2&state=running,paused")
    assert.are.same({ ids[1], ids[2] }, { first[1].sandboxID, first[2].sandboxID })
    assert.are.equal("3", res.headers["x-total-running"])
    local token = res.headers["x-next-token"]
    local _, second, last = engine:call("GET", "/v2/sandboxes?limit=2&nextToken=" .. token)
    assert.are.same({ ids[3] }, { second[1].sandboxID })
    assert.is_nil(last.headers["x-next-token"])
    -- As the SDK sends it: each key and value escaped, once more, and the whole as a query value.
    local _, odd = engine:call("GET", "/v2/sandboxes?metadata=odd%3Dy%252520%252526%252520z")
    assert.are.same({ ids[1], ids[3] }, { odd[1].sandboxID, odd[2].sandboxID })
    local _, one = engine:call("GET", "/v2/sandboxes?metadata=n%3D2%26odd%3Dno")
    assert.are.same({ ids[2] }, { one[1].sandboxID })
    local _, paused = engine:call("GET", "/v2/sandboxes?state=paused")
    assert.are.same({}, paused)
    local _, oldest, oldest_res = engine:call("GET", "/v2/sandboxes?order=asc&limit=2")
    assert.are.same({ ids[3], ids[2] }, { oldest[1].sandboxID, oldest[2].sandboxID })
    local _, rest = engine:call("GET", "/v2/sandboxes?order=asc&limit=2&nextToken=" .. oldest_res.headers["x-next-token"])
    assert.are.same({ ids[1] }, { rest[1].sandboxID })
    local _, later = engine:call("GET", "/v2/sandboxes?startedAfter=" .. first[1].startedAt:gsub(":", "%%3A"))
    assert.are.equal(ids[1], later[1].sandboxID)
    assert.is_true(#later < 3)
    local _, of_base = engine:call("GET", "/v2/sandboxes?template=base&state=running")
    assert.are.equal(3, #of_base)
    assert.are.same({}, (select(2, engine:call("GET", "/v2/sandboxes?template=other"))))
    local _, running = engine:call("GET", "/sandboxes?metadata=n%3D2")
    assert.are.same({ ids[2] }, { running[1].sandboxID })
    for _, query in ipairs { "limit=0", "limit=101", "limit=x", "nextToken=a", "state=odd", "metadata=%25zz", "order=up",
      "startedAfter=yesterday", "templateID=base" } do
      assert.are.equal(400, (engine:call("GET", "/v2/sandboxes?" .. query)), query)
    end
    for _, id in ipairs(ids) do engine:call("DELETE", "/sandboxes/" .. id) end
  end))

  it("ends sandboxes at their time without any client connected", within(function()
    local sandbox = engine:create { timeout = 1 }
    core.http.close_idle()
    task.sleep(900)
    assert.are.equal(200, (engine:call("GET", "/sandboxes/" .. sandbox.id)))
    core.http.close_idle()
    task.sleep(250)
    assert.are.equal(404, (engine:call("GET", "/sandboxes/" .. sandbox.id)))
  end))

  it("sets, extends and shortens lifetimes", within(function()
    local sandbox = engine:create { timeout = 100 }
    local path = "/sandboxes/" .. sandbox.id
    local function ends_in()
      local _, shown = engine:call("GET", path)
      local hour, minute, second = shown.endAt:match "T(%d+):(%d+):([%d.]+)Z"
      local now = task.epoch_ms() / 1000 % 86400
      return (hour * 3600 + minute * 60 + second - now) % 86400
    end
    assert.is_true(math.abs(ends_in() - 100) < 2)
    assert.are.equal(204, (engine:call("POST", path .. "/timeout", { timeout = 20 })))
    assert.is_true(math.abs(ends_in() - 20) < 2)
    assert.are.equal(204, (engine:call("POST", path .. "/refreshes", { duration = 10 })))
    assert.is_true(math.abs(ends_in() - 20) < 2)
    assert.are.equal(204, (engine:call("POST", path .. "/refreshes", { duration = 60 })))
    assert.is_true(math.abs(ends_in() - 60) < 2)
    local status, body = engine:call("POST", path .. "/connect", { timeout = 200 })
    assert.are.same({ 200, sandbox.id }, { status, body.sandboxID })
    assert.is_true(math.abs(ends_in() - 200) < 2)
    assert.are.equal(200, (engine:call("POST", "/v2" .. path .. "/connect", {})))
    assert.is_true(math.abs(ends_in() - 300) < 2)
    assert.are.equal(400, (engine:call("POST", path .. "/connect", {})))
    for _, timeout in ipairs { 0, -1, 86401, 1.5, "60", {}, core.json.null } do
      assert.are.equal(400, (engine:call("POST", path .. "/timeout", { timeout = timeout })), tostring(timeout))
    end
    assert.are.equal(404, (engine:call("POST", "/sandboxes/iaaaaaaaaaaaaaaaaaaa/timeout", { timeout = 5 })))
    local UNSERVED = {
      { "POST", path .. "/snapshots" }, { "POST", path .. "/fork" }, { "PUT", path .. "/network" },
      { "GET", path .. "/logs" }, { "GET", "/v2" .. path .. "/logs" }, { "GET", "/snapshots" },
      { "GET", "/templates/aliases/base" }, { "POST", "/v3/templates" }, { "GET", "/volumes" }, { "GET", "/secrets" },
    }
    for _, call in ipairs(UNSERVED) do
      local refused, fault = engine:call(call[1], call[2], call[1] ~= "GET" and {} or nil)
      assert.are.same({ 501, "unimplemented" }, { refused, fault.error_code }, call[2])
    end
    sandbox:kill()
  end))

  it("ends what hangs on a lease when its connection breaks, and only that", within(function()
    local id = ("a"):rep(16)
    local refused, fault = engine:call("POST", "/sandboxes", { templateID = "base", demilune = { lease = id } })
    assert.are.same({ 409, "lease_gone" }, { refused, fault.error_code })
    local lease, hello = engine:lease(id)
    assert.are.equal("ok\n", hello)
    assert.are.equal(409, assert(engine:request("GET", "/demilune/lease?id=" .. id)).status)
    local bound = { engine:create { demilune = { lease = id } }, engine:create { demilune = { lease = id } } }
    local free = engine:create()
    task.sleep(30)
    assert.are.equal(200, (engine:call("GET", "/sandboxes/" .. bound[1].id)))
    lease:close()
    local gone = support.eventually(function()
      return engine:call("GET", "/sandboxes/" .. bound[1].id) == 404 and engine:call("GET", "/sandboxes/" .. bound[2].id) == 404
    end, 1000)
    assert.is_true(gone)
    assert.are.equal(200, (engine:call("GET", "/sandboxes/" .. free.id)))
    local again, again_hello = engine:lease(id)
    assert.are.equal("ok\n", again_hello)
    again:close()
    free:kill()
    for _, bad in ipairs { "", "short", ("a"):rep(65), ("A"):rep(20), ("a"):rep(15) .. "%00" } do
      assert.are.equal(400, assert(engine:request("GET", "/demilune/lease?id=" .. bad)).status, bad)
    end
  end))

  it("creates 20 at a time of which some fail, and leaves nothing over", within(function()
    local made, failed, handles = {}, 0, {}
    for i = 1, 20 do
      local body = { templateID = i % 4 == 0 and "nothing" or "base", timeout = 60 }
      handles[i] = task.spawn(function() return engine:call("POST", "/sandboxes", body) end)
    end
    for _, handle in ipairs(handles) do
      local _, status, body = handle:wait()
      if status == 201 then made[#made + 1] = body.sandboxID else failed = failed + 1 end
    end
    assert.are.same({ 15, 5 }, { #made, failed })
    local _, listed = engine:call("GET", "/v2/sandboxes")
    assert.are.equal(15, #listed)
    local before_ms = task.now_ms()
    local kills = {}
    for i, id in ipairs(made) do
      kills[i] = task.spawn(function() return engine:call("DELETE", "/sandboxes/" .. id) end)
    end
    for _, handle in ipairs(kills) do assert.are.equal(204, (select(2, handle:wait()))) end
    assert.is_true(task.now_ms() - before_ms < 2000)
    local _, known = engine:call("GET", "/demilune")
    assert.are.equal(0, known.sandboxes)
  end))

  it("lets a sandbox go at once when its agent dies", within(function()
    local known = {}
    for _, process in ipairs(leftovers.tree(engine.program.pid)) do known[process.pid] = true end
    local sandbox = engine:create()
    local _, next_frame = sandbox:open("process.Process/Start", support.shell "sleep 84")
    assert.is_true(next_frame().message.event.start.pid > 0)
    local tree, agent = leftovers.tree(engine.program.pid), nil
    for _, process in ipairs(tree) do
      if not known[process.pid] and process.name ~= "bwrap" and not process.name:find "^s[hl]" then agent = process end
    end
    assert.is_table(agent)
    os_calls.kill(agent.pid, 9)
    assert.are.equal("sandbox_gone", next_frame().message.error.error_code)
    assert.are.equal(404, (engine:call("GET", "/sandboxes/" .. sandbox.id)))
    assert.are.equal(502, assert(sandbox:request("GET", "/health")).status)
    assert.is_true(support.eventually(function() return #leftovers.alive(tree) == 1 end, 2000))
  end))

  it("leaves no sandbox to a client that goes away during the creation", within(function()
    for delay_ms = 0, 8, 2 do
      local handle = task.spawn(function() return engine:call("POST", "/sandboxes", { templateID = "base" }) end)
      task.sleep(delay_ms)
      handle:cancel()
      handle:wait()
    end
    core.http.close_idle()
    local is_empty = support.eventually(function()
      local _, listed = engine:call("GET", "/v2/sandboxes")
      -- An answer that was out before the client left is a sandbox that it may know.
      for _, sandbox in ipairs(listed) do engine:call("DELETE", "/sandboxes/" .. sandbox.sandboxID) end
      local _, known = engine:call("GET", "/demilune")
      return known.sandboxes == 0
    end)
    assert.is_true(is_empty)
  end))

  local MALFORMED = {
    { "POST", "/sandboxes", "{", 400 },
    { "POST", "/sandboxes", "[]", 400 },
    { "POST", "/sandboxes", "null", 400 },
    { "POST", "/sandboxes", '{"templateID":"base","timeout":1e99}', 400, "timeout" },
    { "POST", "/sandboxes", '{"templateID":"base","timeout":0}', 400, "timeout" },
    { "POST", "/sandboxes", '{"templateID":"base","timeout":86401}', 400, "timeout" },
    { "POST", "/sandboxes", '{"templateID":"base","timeout":"60"}', 400, "timeout" },
    { "POST", "/sandboxes", "{}", 400, "templateID" },
    { "POST", "/sandboxes", '{"templateID":7}', 400, "templateID" },
    { "POST", "/sandboxes", '{"templateID":"a\\u0000b"}', 400, "templateID" },
    { "POST", "/sandboxes", '{"templateID":"other"}', 404, "templateID" },
    { "POST", "/sandboxes", '{"templateID":"base","autoPause":1}', 400, "autoPause" },
    { "POST", "/sandboxes", '{"templateID":"base","autoResume":true}', 400, "autoResume" },
    { "POST", "/sandboxes", '{"templateID":"base","autoPauseMemory":false}', 400, "autoPauseMemory" },
    { "POST", "/sandboxes", '{"templateID":"base","allow_internet_access":true}', 400, "allow_internet_access" },
    { "POST", "/sandboxes", '{"templateID":"base","network":{"allowOut":["8.8.8.8"]}}', 400, "network" },
    { "POST", "/sandboxes", '{"templateID":"base","volumeMounts":[{}]}', 400, "volumeMounts" },
    { "POST", "/sandboxes", '{"templateID":"base","mcp":{"a":1}}', 400, "mcp" },
    { "POST", "/sandboxes", '{"templateID":"base","envVars":[]}', 400, "envVars" },
    { "POST", "/sandboxes", '{"templateID":"base","envVars":{"A":1}}', 400, "envVars" },
    { "POST", "/sandboxes", '{"templateID":"base","envVars":{"A=B":"1"}}', 400, "envVars" },
    { "POST", "/sandboxes", '{"templateID":"base","envVars":{"":"1"}}', 400, "envVars" },
    { "POST", "/sandboxes", '{"templateID":"base","envVars":{"A":"\\u0000"}}', 400, "envVars" },
    { "POST", "/sandboxes", '{"templateID":"base","metadata":{"a":{}}}', 400, "metadata" },
    { "POST", "/sandboxes", '{"templateID":"base","demilune":[]}', 400, "demilune" },
    { "POST", "/sandboxes", '{"templateID":"base","demilune":{"lease":"x"}}', 400, "lease" },
    { "POST", "/sandboxes", '{"templateID":"t","demilune":{"template":{"memory":1}}}', 400, "memory" },
    { "POST", "/sandboxes", '{"templateID":"t","demilune":{"template":{"disk":0.5}}}', 400, "disk" },
    { "POST", "/sandboxes", '{"templateID":"t","demilune":{"template":{"cpu":"1"}}}', 400, "cpu" },
    { "POST", "/sandboxes", '{"templateID":"t","demilune":{"template":{"pids":-1}}}', 400, "pids" },
    { "POST", "/sandboxes", '{"templateID":"t","demilune":{"template":{"explicit":{"cpu":1}}}}', 400, "cpu" },
    { "GET", "/", nil, 404 },
    { "PUT", "/sandboxes", nil, 405 },
    { "GET", "/sandboxes/metrics", nil, 400, "sandbox_ids" },
    { "PUT", "/demilune", nil, 405 },
    { "GET", "/demilune/nothing", nil, 404 },
    { "GET", "/sandboxes/{id}", nil, 404 },
    { "GET", "/sandboxes/%00", nil, 400 },
    { "GET", "/sandboxes/..%2f..", nil, 404 },
    { "POST", "/sandboxes/{id}/nothing", "{}", 404 },
    { "DELETE", "/sandboxes/" .. ("a"):rep(3000), nil, 404 },
  }

  it("refuses malformed requests by field, without repeating what they hold", within(function()
    for i, case in ipairs(MALFORMED) do
      local what = ("%d: %s %s %s"):format(i, case[1], case[2]:sub(1, 60), case[3] or "")
      local status, body = engine:call(case[1], case[2], case[3])
      assert.are.equal(case[4], status, what)
      assert.are.equal(case[4], body.code, what)
      assert.are.equal(case[5], body.field, what)
      assert.is_string(body.message, what)
    end
    local status, body = engine:call("POST", "/sandboxes", '{"templateID":"base"}', { ["Content-Type"] = "text/plain" })
    assert.are.same({ 415, 415 }, { status, body.code })
    assert.are.equal(413, (engine:call("POST", "/sandboxes", ("x"):rep(3 << 20))))
    local _, known = engine:call("GET", "/demilune")
    assert.are.equal(0, known.sandboxes)
  end))
end)
