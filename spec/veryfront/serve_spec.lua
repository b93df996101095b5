-- timeout: 90
--- The program itself with a Veryfront provider: what clients see, what leaves the process, what its end leaves behind.

local canary = require "spec.support.canary"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local support = require "spec.veryfront.support"

local CREATE, UPDATE = support.CREATE, support.UPDATE

describe("a server with a Veryfront provider", function()
  local vf, why = support.open()
  if not vf then
    it("is tried", function() pending(why) end)
    return
  end
  teardown(function() vf:close() end)

  local function asked(method, ...)
    local results
    local arguments = table.pack(...)
    core.task.run(function()
      results = table.pack(vf[method](vf, table.unpack(arguments, 1, arguments.n)))
      core.http.close_idle()
    end)
    return table.unpack(results, 1, results.n)
  end

  local function start(more)
    local server = demilune.start {
      config = ([[return {
        credentials = { vf = { source = "file:%s/key" } },
        providers = { { id = "vf", type = "veryfront", api_url = "http://127.0.0.1:%d", credential = "vf" }, %s },
        log = { level = "debug" }, %s
      }]]):format(vf.home, vf.port, more or "", more and 'default_provider = "vf",' or ""),
    }
    server:initialize()
    return server
  end

  it("lists the two tools behind the fifteen, and calls them without the caller's _meta", function()
    asked("set", { reset = true })
    local server = start()
    local listed = assert(server:request "tools/list").tools
    assert.are.equal(17, #listed)
    assert.are.same({ CREATE, UPDATE }, { listed[16].name, listed[17].name })
    assert.are.equal("http://json-schema.org/draft-07/schema#", listed[16].outputSchema["$schema"])
    local result = assert(server:request("tools/call", ('{"name":"%s","arguments":{"access_scope":"project"},'
      .. '"_meta":{"run_id":"r1","agent_id":"a1"}}'):format(CREATE)))
    assert.is_false(result.isError)
    assert.are.equal("project", result.structuredContent.access_scope)
    local sent = asked("requests", "tools/call")
    assert.are.same({ name = CREATE, arguments = { access_scope = "project" } }, sent[1].body.params)
    server:stop()
    assert.are.same({}, asked("requests", "^DELETE"))
  end)

  it("is the first one's where there are several", function()
    asked("set", { reset = true })
    local server = start(([[{ id = "other", type = "veryfront", api_url = "http://127.0.0.1:%d", project = "shop",
      credential = "vf" }]]):format(vf.port))
    assert(server:call(CREATE, { access_scope = "project" }))
    assert.are.equal(4, #asked("requests", "POST /mcp"))
    server:stop()
  end)

  it("ends what the scope created, and nothing else", function()
    asked("set", { reset = true })
    local server = start()
    local run = assert(server:call("run_command", { command = "echo hi" }))
    assert.are.equal("hi\n", run.stdout)
    local kept = assert(server:call(CREATE, { access_scope = "project" }))
    server:stop()
    local left = {}
    for _, sandbox in ipairs(asked("seen").sandboxes) do left[sandbox.id] = true end
    assert.is_nil(left[run.sandbox_id])
    assert.is_true(left[kept.id])
  end)

  it("has what it could not end in time ended by another process", function()
    asked("set", { reset = true })
    local server = start()
    local run = assert(server:call("run_command", { command = "true" }))
    asked("set", { faults = core.json.array { { path = ".*", http = "DELETE", hang = true, times = 1 } } })
    local ended, was_slow = server:stop()
    assert.are.same({ 0, false }, { ended.code, was_slow })
    local function is_there()
      for _, sandbox in ipairs(vf:seen().sandboxes) do
        if sandbox.id == run.sandbox_id then return true end
      end
      return false
    end
    core.task.run(function()
      assert(support.eventually(function() return not is_there() end, 20000))
      core.http.close_idle()
    end)
  end)

  it("lets neither the key nor a word of the service out, whatever fails", function()
    local server = start()
    local home = server.home
    for _, behaviour in ipairs {
      { answer = "failed" }, { answer = "rpc" }, { answer = "forbidden" }, { answer = "absent" }, { answer = "sloppy" },
      { faults = core.json.array { { path = "mcp$", status = 401 } } },
      { faults = core.json.array { { path = ".*", status = 403 } } },
      { faults = core.json.array { { path = ".*", status = 500 } } }, { exec = "error" },
    } do
      behaviour.reset = true
      asked("set", behaviour)
      server:call(CREATE, { access_scope = "project" })
      server:call(UPDATE, { sandbox_id = "0a1b2c3d-0000-4000-8000-0123456789ab", ttl_mode = "default" })
      server:call("run_command", { command = "true" })
      server:call("list_sandboxes", {})
    end
    server:close_stdin()
    server:wait(5000)
    for _, words in ipairs { "internal.veryfront", "handler.ts", "Denied by" } do
      assert.is_nil(server.stdout:find(words, 1, true), words)
      assert.is_nil(server.stderr:find(words, 1, true), words)
    end
    assert.is_nil(canary.find(server.stdout, support.KEY))
    assert.is_nil(canary.find(server.stderr, support.KEY))
    assert.is_nil(canary.find_in(home, support.KEY))
    assert.is_nil(canary.find_in(home, "internal.veryfront"))
    server:stop()
  end)
end)
