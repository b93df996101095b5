--- Renewal before work: when it is asked for, how much, and that its failure is never the work's.

local core = require "demilune.core"
local fake = require "spec.scope.fake"

describe("renewal", function()
  local world, sandbox
  local real_now = core.task.now_ms

  --- Lets seconds pass for the code under test.
  local function pass(seconds)
    local from = core.task.now_ms
    core.task.now_ms = function() return from() + seconds * 1000 end
  end

  before_each(fake.run(function()
    world = fake.world()
    assert(world:call("create_sandbox", { timeout = 600 }))
    sandbox = world.scope.default
    world.provider:clear()
  end))
  after_each(function() core.task.now_ms = real_now end)

  it("is skipped while more than half of the policy is left", fake.run(function()
    assert(world:call("list_files"))
    pass(299)
    assert(world:call("list_files"))
    assert.are.equal(0, world.provider:called "set_timeout")
    pass(2)
    assert(world:call("list_files"))
    assert.are.same({ "s1", 600 }, { world.provider:last "set_timeout" })
    assert(world:call("list_files"))
    assert.are.equal(1, world.provider:called "set_timeout")
  end))

  it("comes before each tool that executes or reads, and never with a lifecycle tool", fake.run(function()
    local tools = {
      run_code = { code = "1" }, run_command = { command = "a" }, write_file = { path = "a", content = "" }, list_files = {},
      start_background_task = { command = "a", timeout = 1 }, upload_file = { path = "a", content_base64 = "" },
      read_file = { path = "a" }, download_file = { path = "a" },
    }
    for tool, arguments in pairs(tools) do
      pass(400)
      world.provider:clear()
      assert(world:call(tool, arguments))
      assert.are.same({ "s1", 600 }, { world.provider:last "set_timeout" }, tool)
      assert.are.equal("set_timeout", world.provider:called()[1], tool)
    end
    pass(400)
    world.provider:clear()
    assert(world:call("get_sandbox"))
    assert(world:call("list_sandboxes"))
    assert.are.same({ "get", "list" }, world.provider:called())
  end))

  it("covers work that takes longer than the policy, and is never less than what is left", fake.run(function()
    assert(world:call("run_command", { command = "a", timeout = 5000 }))
    local _, seconds = world.provider:last "set_timeout"
    assert.is_true(seconds >= 5000 and seconds <= 5060)
    world.provider:clear()
    assert(world:call("run_command", { command = "a", timeout = 4000 }))
    assert(world:call("list_files"))
    assert.are.equal(0, world.provider:called "set_timeout")
  end))

  it("does not fail the work", fake.run(function()
    for _, category in ipairs { "unavailable", "connection_failed", "provider_timeout", "rate_limited", "internal",
      "not_found" } do
      pass(400)
      world.provider.fail.set_timeout = category
      assert(world:call("run_command", { command = "a" }))
      assert.are.equal(600, sandbox.policy_s)
    end
    local before = world.provider:called "set_timeout"
    world.provider.fail.set_timeout = nil
    assert(world:call("run_command", { command = "a" }))
    assert.are.equal(before + 1, world.provider:called "set_timeout")
  end))

  it("tells a background task that may outlive its sandbox", fake.run(function()
    assert.is_nil(assert(world:call("start_background_task", { command = "a" })).note)
    world.provider.fail.set_timeout = "unavailable"
    assert.truthy(assert(world:call("start_background_task", { command = "a", timeout = 9000 })).note:find "may end before")
  end))

  it("uses the seconds of the last successful set_sandbox_timeout", fake.run(function()
    assert(world:call("set_sandbox_timeout", { timeout = 100 }))
    assert.are.same({ "s1", 100 }, { world.provider:last "set_timeout" })
    pass(60)
    assert(world:call("list_files"))
    assert.are.same({ "s1", 100 }, { world.provider:last "set_timeout" })
    assert.are.equal(2, world.provider:called "set_timeout")
    world.provider.fail.set_timeout = "unavailable"
    local _, err = world:call("set_sandbox_timeout", { timeout = 7000 })
    assert.are.same({ "unavailable", true }, { err.category, err.retryable })
    world.provider.fail.set_timeout = nil
    pass(60)
    assert(world:call("list_files"))
    assert.are.same({ "s1", 100 }, { world.provider:last "set_timeout" })
  end))

  it("may be shortened by set_sandbox_timeout, whose end then stands", fake.run(function()
    local result = assert(world:call("set_sandbox_timeout", { timeout = 5 }))
    assert.are.same({ true, "s1", 5 }, { result.success, result.sandbox_id, result.timeout })
    assert(world:call("get_sandbox"))
    assert.are.equal(1, world.provider:called "set_timeout")
  end))

  it("restores nothing when the scope ends while an update is in flight", fake.run(function()
    world.provider.hold.set_timeout = core.task.event()
    local update = world:spawn("set_sandbox_timeout", { timeout = 5000 })
    world:until_called "set_timeout"
    local closing = core.task.spawn(function() world.scope:close(1000) end)
    closing:wait()
    world.provider.hold.set_timeout:set()
    update:wait()
    assert.are.same({ 600, {}, nil }, { sandbox.policy_s, world.scope:owned(), world.scope.default })
    assert.is_nil(world.provider.sandboxes.s1)
  end))

  it("gives a sandbox of others a minute at most, and only when it ends within one", fake.run(function()
    world.provider:add("x1", { ends_in_ms = 300000 })
    assert(world:call("run_command", { command = "a", sandbox_id = "x1" }))
    assert.are.equal(0, world.provider:called "set_timeout")
    world.provider:add("x2", { ends_in_ms = 20000 })
    assert(world:call("run_command", { command = "a", sandbox_id = "x2", timeout = 10 }))
    assert.are.same({ "x2", 60 }, { world.provider:last "set_timeout" })
    assert(world:call("run_command", { command = "a", sandbox_id = "x2", timeout = 200 }))
    local id, seconds = world.provider:last "set_timeout"
    assert.are.equal("x2", id)
    assert.is_true(seconds >= 200 and seconds <= 260)
    assert.are.equal(1, #world.scope:owned())
  end))

  it("leaves a foreign id's policy alone when its timeout is set", fake.run(function()
    world.provider:add("x1", { ends_in_ms = 20000 })
    assert(world:call("set_sandbox_timeout", { sandbox_id = "x1", timeout = 500 }))
    assert.is_nil(world.scope.sandboxes["local\0x1"])
    world.provider:add("x1", { ends_in_ms = 20000 })
    assert(world:call("list_files", { sandbox_id = "x1" }))
    assert.are.same({ "x1", 60 }, { world.provider:last "set_timeout" })
  end))

  it("does not fail the work in a sandbox of others whose end cannot be asked for", fake.run(function()
    world.provider:add "x1"
    for _, category in ipairs { "unavailable", "connection_failed", "provider_timeout" } do
      world.provider.fail.get = category
      assert(world:call("run_command", { command = "a", sandbox_id = "x1" }))
    end
    assert.are.equal(0, world.provider:called "set_timeout")
  end))

  it("never passes the longest lifetime", fake.run(function()
    world = fake.world { providers = { { max_lifetime = 1000, lifetime = 600 } } }
    assert(world:call("create_sandbox"))
    pass(500)
    assert(world:call("run_command", { command = "a" }))
    local _, seconds = world.provider:last "set_timeout"
    assert.are.equal(500, seconds)
    world.provider:clear()
    assert(world:call("run_command", { command = "a", timeout = 5000 }))
    assert.are.equal(0, world.provider:called "set_timeout")
    local _, err = world:call("set_sandbox_timeout", { timeout = 501 })
    assert.are.same({ "quota_exceeded", "timeout", "integer from 1 to 500" }, { err.category, err.field, err.expected })
    assert.are.equal(0, world.provider:called "set_timeout")
    assert(world:call("set_sandbox_timeout", { timeout = 499 }))
    world.provider:add("x1", { age_ms = 900000 })
    _, err = world:call("set_sandbox_timeout", { timeout = 200, sandbox_id = "x1" })
    assert.are.same({ "quota_exceeded", "integer from 1 to 100" }, { err.category, err.expected })
    pass(600)
    _, err = world:call("set_sandbox_timeout", { timeout = 1 })
    assert.are.equal("quota_exceeded", err.category)
  end))

  it("stops with the call that is cancelled in it", fake.run(function()
    pass(400)
    world.provider.hold.set_timeout = core.task.event()
    local call = world:spawn("run_command", { command = "a" })
    world:until_called "set_timeout"
    call:cancel()
    local _, _, err = call:wait()
    assert.are.equal("stopped", err.category)
    assert.are.equal(0, world.provider:called "run")
  end))

  it("is a sign of life where the service has no lifetimes in seconds; set_sandbox_timeout is its to refuse", fake.run(function()
    world = fake.world { providers = { { is_renewed = true } } }
    assert(world:call "create_sandbox")
    assert(world:call("run_command", { command = "a" }))
    assert.are.equal(0, world.provider:called "renew")
    pass(3000)
    assert(world:call("run_command", { command = "a" }))
    assert.are.same({ 1, 0 }, { world.provider:called "renew", world.provider:called "set_timeout" })
    world.provider.fail.renew = "unavailable"
    assert(world:call("run_command", { command = "a" }))
    world.provider:clear()
    world.provider.fail.set_timeout = "unsupported"
    local _, err = world:call("set_sandbox_timeout", { timeout = 60, sandbox_id = "x7" })
    assert.are.same({ "unsupported", { "set_timeout" } }, { err.category, world.provider:called() })
  end))
end)
