-- timeout: 150
--- The two tools of the account, through an MCP server made with the official SDK.

local check = require "spec.tools.valid"
local core = require "demilune.core"
local schema = require "demilune.schema"
local support = require "spec.veryfront.support"

local json = core.json
local CREATE, UPDATE = support.CREATE, support.UPDATE
local ID = "0a1b2c3d-0000-4000-8000-0123456789ab"

describe("the stand-in", function()
  it("is what the official client expects", function()
    local vf, why = support.open()
    if not vf then return pending(why) end
    local code = vf:judge()
    vf:close()
    assert.are.equal(0, code)
  end)
end)

describe("the tools of the account", function()
  local vf, why = support.open()
  if not vf then
    it("are tried", function() pending(why) end)
    return
  end
  teardown(function() vf:close() end)

  local function create(arguments) return vf:call(CREATE, arguments or { access_scope = "project" }) end

  it("work over JSON and over events, with a session and without", function()
    for _, sse in ipairs { false, true } do
      for _, session in ipairs { false, true } do
        vf:run(function()
          vf:set { sse = sse, session = session, chatter = sse }
          local made = vf:must(CREATE, {
            access_scope = "private", project_reference = "shop", ttl_mode = "duration", ttl_hours = 5,
          })
          assert.are.same({ "private", 5 }, { made.access_scope, made.ttl_hours })
          local tool = vf.app.tools_by_name[CREATE]
          assert.is_nil(schema.fault(tool.output, made))
          local changed = vf:must(UPDATE, { sandbox_id = made.id, ttl_mode = "always_on" })
          assert.are.same({ made.id, "always_on", json.null }, { changed.id, changed.ttl_mode, changed.ttl_hours })
          assert.are.equal(1, #vf:requests "initialize")
          assert.are.equal(1, #vf:requests "notifications/initialized")
          assert.are.equal(1, #vf:requests "tools/list")
          for _, request in ipairs(vf:requests "POST /mcp") do
            local is_first = request.body.method == "initialize"
            assert.are.equal(not is_first and "2025-11-25" or nil, request.headers["mcp-protocol-version"])
            assert.are.equal(session and not is_first, request.headers["mcp-session-id"] ~= nil)
            assert.is_true(request.authorized)
          end
        end)
      end
    end
  end)

  it("send what they were given and nothing else", vf:test(function()
    assert(create { access_scope = "project", environment_id = ID, ttl_mode = json.null })
    local sent = vf:requests("tools/call")[1].body.params
    assert.are.same({ name = CREATE, arguments = { access_scope = "project", environment_id = ID } }, sent)
    assert(vf:call(UPDATE, { sandbox_id = ID, ttl_mode = "duration", ttl_hours = 24.0 }))
    sent = vf:requests("tools/call")[2].body.params
    assert.are.same({ name = UPDATE, arguments = { sandbox_id = ID, ttl_mode = "duration", ttl_hours = 24 } }, sent)
  end))

  it("go to the project's server where a project is configured, or where the path says", function()
    vf:run(function()
      assert(create())
      assert.are.equal(4, #vf:requests "POST /projects/shop/mcp")
    end, { project = "shop" })
    vf:run(function()
      assert(create())
      assert.are.equal(4, #vf:requests "POST /projects/other/mcp")
    end, { project = "shop", mcp_path = "/projects/other/mcp" })
  end)

  it("check ttl_hours before anything is sent", vf:test(function()
    for _, arguments in ipairs {
      { access_scope = "project", ttl_mode = "duration" }, { access_scope = "project", ttl_hours = 3 },
      { access_scope = "project", ttl_mode = "default", ttl_hours = 3 },
      { access_scope = "project", ttl_mode = "always_on", ttl_hours = 3 },
    } do
      local err = vf:fault(CREATE, arguments)
      assert.are.same({ "invalid_argument", "ttl_hours" }, { err.category, err.field })
    end
    local err = vf:fault(UPDATE, { sandbox_id = ID, ttl_mode = "default", ttl_hours = 3 })
    assert.are.same({ "invalid_argument", "ttl_hours" }, { err.category, err.field })
    assert.are.equal("sandbox_id", vf:fault(UPDATE, { sandbox_id = "vf:" .. ID, ttl_mode = "default" }).field)
    assert.are.same({}, vf:seen().requests)
  end))

  it("read answers leniently: what is not of the schema is dropped, at both levels", vf:test(function()
    vf:set { answer = "sloppy" }
    local made = assert(create())
    assert.is_nil(json.encode(made):find(support.KEY, 1, true))
    assert.are.same({ source_environment_id = json.null, variable_count = 2, copied_at = json.null }, made.variable_snapshot)
    local tool = vf.app.tools_by_name[CREATE]
    local shown = json.decode(vf.app:encode_result(tool, made, nil, nil, true))
    assert.is_nil(schema.fault(tool.output, shown.structuredContent))
    assert.is_nil(check(shown.structuredContent, { type = "object", properties = tool.output.properties }))
    vf:set { answer = "nulls" }
    assert.is_nil(assert(create()).variable_snapshot)
    vf:set { answer = "text" }
    assert.are.equal("amber-fox", assert(create()).short_id)
  end))

  it("hold what they give to the strict schema", vf:test(function()
    for _, answer in ipairs { "short", "wrong", "prose", "huge" } do
      vf:set { answer = answer }
      assert.are.equal("invalid_response", vf:fault(CREATE, { access_scope = "project" }).category, answer)
    end
  end))

  it("map failures by status or known code, and drop the words", vf:test(function()
    for answer, expected in pairs {
      failed = "provider_rejected", credits = "quota_exceeded", limit = "quota_exceeded", absent = "not_found",
      forbidden = "provider_forbidden", rpc = "quota_exceeded", unknown = "provider_rejected",
    } do
      vf:set { answer = answer }
      local err = vf:fault(CREATE, { access_scope = "project" })
      assert.are.equal(expected, err.category, answer)
      assert.is_nil(err.code and err.code:find "[^%l-]", answer)
    end
    vf:set { answer = "forbidden" }
    assert.truthy(vf:fault(CREATE, { access_scope = "project" }).suggestion:find("project.sandboxes.manage", 1, true))
    vf:set { answer = "absent" }
    assert.are.equal("sandbox_id", vf:fault(UPDATE, { sandbox_id = ID, ttl_mode = "default" }).field)
  end))

  it("map HTTP statuses", vf:test(function()
    for status, expected in pairs {
      [400] = "provider_rejected", [401] = "authentication_failed", [402] = "quota_exceeded", [403] = "provider_forbidden",
      [404] = "not_found", [429] = "quota_exceeded", [500] = "unavailable", [503] = "no_capacity", [307] = "provider_rejected",
    } do
      vf:set { reset = true, faults = json.array { { path = "/mcp$", method = "tools/call", status = status, times = 1,
        headers = { Location = ("http://127.0.0.1:%d/elsewhere"):format(vf.port) } } } }
      local err = vf:fault(CREATE, { access_scope = "project" })
      assert.are.same({ expected, status }, { err.category, err.status })
      assert.are.equal(1, #vf:requests "tools/call")
      assert.are.equal(0, #vf:requests "elsewhere")
    end
  end))

  it("never create twice, whatever the failure", vf:test(function()
    for _, fault in ipairs {
      { status = 429, headers = { ["Retry-After"] = "0" } }, { status = 503 }, { status = 502 }, { reset = true },
    } do
      fault.path, fault.method, fault.times = "/mcp$", "tools/call", 1
      vf:set { reset = true, faults = json.array { fault } }
      local err = vf:fault(CREATE, { access_scope = "project" })
      assert.are.equal(1, #vf:requests "tools/call")
      assert.are.equal(fault.status == 429 and 0 or nil, err.retry_after)
    end
  end))

  it("repeat an update once, on 429 with Retry-After and on 503", vf:test(function()
    local arguments = { sandbox_id = ID, ttl_mode = "default" }
    for _, case in ipairs {
      { { status = 429, headers = { ["Retry-After"] = "1" }, times = 1 }, 2 },
      { { status = 503, times = 1 }, 2 },
      { { status = 503, times = 5 }, 2, "unavailable" },
      { { status = 429, headers = { ["Retry-After"] = "0" }, times = 5 }, 2, "rate_limited" },
      { { status = 429, times = 5 }, 1, "quota_exceeded" },
      { { status = 429, headers = { ["Retry-After"] = "3600" }, times = 5 }, 1, "rate_limited" },
      { { status = 500, times = 5 }, 1, "unavailable" },
    } do
      local fault = case[1]
      fault.path, fault.method = "/mcp$", "tools/call"
      vf:set { reset = true, faults = json.array { fault } }
      local result, err = vf:call(UPDATE, arguments)
      assert.are.equal(case[2], #vf:requests "tools/call", fault.status)
      assert.are.equal(case[3], err and err.category)
      assert.are.equal(case[3] == nil, result ~= nil)
    end
  end))

  it("begin a session again once when it has expired", vf:test(function()
    vf:set { session = true }
    assert(create())
    vf:set { expire = true }
    assert(create())
    assert.are.equal(2, #vf:requests "initialize")
    assert.are.equal(3, #vf:requests "tools/call")
    -- A server that forgets at once is asked no third time.
    vf:set { session = true, faults = json.array { { path = "/mcp$", method = "tools/call", status = 404 } } }
    assert.are.equal("not_found", vf:fault(CREATE, { access_scope = "project" }).category)
    assert.are.equal(5, #vf:requests "tools/call")
  end))

  it("share the beginning of a session, and its failure", vf:test(function()
    local jobs = {}
    for i = 1, 5 do jobs[i] = core.task.spawn(create) end
    for _, job in ipairs(jobs) do
      local ok, result = job:wait(10000)
      assert.is_true(ok and result ~= nil)
    end
    assert.are.equal(1, #vf:requests "initialize")
    assert.are.equal(5, #vf:requests "tools/call")
  end))

  it("find the names of the server's generation, over all its pages", function()
    vf:run(function()
      vf:set { generation = "old", page = 4 }
      local err = vf:fault(CREATE, { access_scope = "project" })
      assert.are.same({ "unsupported", "access_scope" }, { err.category, err.field })
      local changed, fault = vf:call(UPDATE, { sandbox_id = ID, ttl_mode = "duration", ttl_hours = 2 })
      assert(changed, fault and fault.category)
      assert.are.same({ name = "update_sandbox_session_lifetime", arguments = { id = ID, ttl_mode = "duration", ttl_hours = 2 } },
        vf:requests("tools/call")[1].body.params)
      assert.are.equal(4, #vf:requests "tools/list")
    end)
    vf:run(function()
      vf:set { generation = "scoped" }
      assert(create())
      assert.are.equal("create_sandbox_session", vf:requests("tools/call")[1].body.params.name)
      local err = vf:fault(CREATE, { access_scope = "project", project_reference = "shop" })
      assert.are.same({ "unsupported", "project_reference" }, { err.category, err.field })
    end)
    vf:run(function()
      vf:set { generation = "none" }
      assert.are.equal("unsupported", vf:fault(CREATE, { access_scope = "project" }).category)
      vf:set { generation = "new" }
      assert(create())
    end)
    vf:run(function()
      vf:set { page = 51 }
      assert.are.equal("invalid_response", vf:fault(CREATE, { access_scope = "project" }).category)
      assert.are.equal(50, #vf:requests "tools/list")
    end)
  end)

  it("leave the scope alone: no default, nothing owned, nothing ended with it", vf:test(function()
    local made = assert(create())
    assert.is_nil(vf.scope.default)
    assert.are.same({}, vf.scope:owned())
    assert.are.equal("no_default_sandbox", vf:fault("get_sandbox", {}).category)
    vf.scope:close(1000)
    assert.are.equal(0, #vf:requests "^DELETE")
    local ids = {}
    for _, sandbox in ipairs(vf:seen().sandboxes) do ids[sandbox.id] = true end
    assert.is_true(ids[made.id])
  end))

  it("stop with their call, and leave no half-open session behind", vf:test(function()
    vf:set { faults = json.array { { path = "/mcp$", method = "initialize", hang = true, times = 1 } } }
    local job = core.task.spawn(create)
    assert(support.eventually(function() return #vf:requests "initialize" == 1 end))
    local waiting = core.task.spawn(create)
    core.task.sleep(50)
    job:cancel()
    local ok, result = waiting:wait(10000)
    assert.is_true(ok and result ~= nil)
    assert.are.equal(2, #vf:requests "initialize")
  end))
end)
