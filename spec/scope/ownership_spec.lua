--- A scope owns what it created, ends it, and keeps owning what withstands. The habits of the configuration change that.

local core = require "demilune.core"
local fake = require "spec.scope.fake"

local function quietly(fn)
  core.log.set_level "off"
  fn()
  core.log.set_level "info"
end

describe("ownership", function()
  local world
  before_each(fake.run(function() world = fake.world() end))

  it("ends with the scope, for all at once, and leaves what is others'", fake.run(function()
    for _ = 1, 3 do assert(world:call("create_sandbox")) end
    world.provider:add "x1"
    assert(world:call("run_command", { command = "a", sandbox_id = "x1" }))
    assert(world:call("list_sandboxes"))
    assert(world:call("get_sandbox", { sandbox_id = "x1" }))
    world.provider.hold.kill = core.task.event()
    local closing = core.task.spawn(function() world.scope:close(1000) end)
    fake.settle()
    assert.are.equal(3, world.provider:called "kill")
    world.provider.hold.kill:set()
    closing:wait()
    assert.are.same({ "x1" }, { next(world.provider.sandboxes) and "x1", next(world.provider.sandboxes, "x1") })
    assert.are.equal(1, world.provider:called "release_scope")
  end))

  it("outlasts a kill that fails", fake.run(function()
    assert(world:call("create_sandbox"))
    world.provider.fail.kill = "unavailable"
    local _, err = world:call("kill_sandbox")
    assert.are.same({ "unavailable", true }, { err.category, err.retryable })
    assert.are.same({ 1, "s1" }, { #world.scope:owned(), world.scope.default.id })
    world.provider.fail.kill = nil
    assert.is_true(assert(world:call("kill_sandbox")).existed)
    assert.are.same({}, world.scope:owned())
  end))

  it("tries a failed kill again while the scope ends", fake.run(function()
    assert(world:call("create_sandbox"))
    local failures = 2
    world.provider.fail.kill = function()
      failures = failures - 1
      return failures >= 0 and "connection_failed" or nil
    end
    quietly(function() world.scope:close(2000) end)
    assert.are.same({}, world.provider.sandboxes)
    assert.are.equal(3, world.provider:called "kill")
  end))

  it("does not hold up the end of the scope when no kill works", fake.run(function()
    assert(world:call("create_sandbox"))
    world.provider.fail.kill = "connection_failed"
    local from = core.task.now_ms()
    quietly(function() world.scope:close(300) end)
    assert.is_true(core.task.now_ms() - from < 1000)
    assert.are.equal(1, world.provider:called "release_scope")
  end))

  it("ends once", fake.run(function()
    assert(world:call("create_sandbox"))
    world.scope:close(500)
    world.scope:close(500)
    assert.are.same({ 1, 1 }, { world.provider:called "kill", world.provider:called "release_scope" })
  end))

  it("is each scope's own", fake.run(function()
    assert(world:call("create_sandbox"))
    local other = world.app:new_scope(world.principal)
    assert(world:call("run_command", { command = "a", sandbox_id = "s1" }, { scope = other }))
    other:close(500)
    assert.is_table(world.provider.sandboxes.s1)
  end))

  it("is not cleaned up with keep_on_exit, and creation says so", fake.run(function()
    world = fake.world { config = { keep_on_exit = true } }
    assert(world:call("create_sandbox"))
    assert.is_true(world.provider:last("create").keep)
    world.scope:close(500)
    assert.are.equal(0, world.provider:called "kill")
    assert.is_table(world.provider.sandboxes.s1)
  end))

  it("comes with use under adopt_by_use, but with no look", fake.run(function()
    world = fake.world { config = { adopt_by_use = true } }
    world.provider:add "x1"
    assert(world:call("get_sandbox", { sandbox_id = "x1" }))
    assert(world:call("set_sandbox_timeout", { sandbox_id = "x1", timeout = 90 }))
    assert(world:call("list_sandboxes"))
    assert.are.same({}, world.scope:owned())
    assert(world:call("run_command", { command = "a", sandbox_id = "x1" }))
    assert.are.same({ 1, nil }, { #world.scope:owned(), world.scope.default })
    assert.are.same({ "x1", 3600 }, { world.provider:last "set_timeout" })
    world.scope:close(500)
    assert.are.same({}, world.provider.sandboxes)
  end))

  it("does not adopt what is not there", fake.run(function()
    world = fake.world { config = { adopt_by_use = true } }
    local _, err = world:call("run_command", { command = "a", sandbox_id = "x1" })
    assert.are.equal("not_found", err.category)
    assert.are.same({}, world.scope:owned())
  end))
end)

describe("tenancy by principal", function()
  local world
  before_each(fake.run(function()
    world = fake.world { providers = { { tenancy = "principal" } } }
    world.provider:add("x1", { owner = "local:other" })
    world.provider:add("x2", {})
    assert(world:call("create_sandbox"))
  end))

  local TOOLS = {
    run_code = { code = "1" }, run_command = { command = "a" }, write_file = { path = "a", content = "" },
    start_background_task = { command = "a" }, upload_file = { path = "a", content_base64 = "" }, read_file = { path = "a" },
    list_files = {}, download_file = { path = "a" }, get_sandbox = {}, set_sandbox_timeout = { timeout = 60 },
    kill_sandbox = {},
  }

  it("hides another principal's sandbox, and one without a stamp, from every tool", fake.run(function()
    for _, id in ipairs { "x1", "x2", "local:x1" } do
      for tool, arguments in pairs(TOOLS) do
        arguments.sandbox_id = id
        world.provider:clear()
        local _, err = world:call(tool, arguments)
        assert.are.same({ "not_found", "sandbox_id" }, { err.category, err.field }, tool)
        for _, name in ipairs(world.provider:called()) do assert.are.equal("get", name, tool) end
      end
    end
    assert.is_table(world.provider.sandboxes.x1)
  end))

  it("lists one's own alone", fake.run(function()
    local listed = assert(world:call("list_sandboxes")).sandboxes
    assert.are.same({ 1, "s1" }, { #listed, listed[1].sandbox_id })
    assert.are.equal("local:spec", world.provider:last("list").owner)
  end))

  it("lets another scope of the same principal in", fake.run(function()
    local other = world.app:new_scope(world.principal)
    assert(world:call("run_command", { command = "a", sandbox_id = "s1" }, { scope = other }))
    assert.are.equal("s1", assert(world:call("get_sandbox", { sandbox_id = "s1" }, { scope = other })).sandbox_id)
    local stranger = world.app:new_scope "local:stranger"
    local _, err = world:call("get_sandbox", { sandbox_id = "s1" }, { scope = stranger, principal = "local:stranger" })
    assert.are.equal("not_found", err.category)
  end))

  it("takes what does not exist as it is otherwise", fake.run(function()
    assert.is_false(assert(world:call("kill_sandbox", { sandbox_id = "zz" })).existed)
    local _, err = world:call("run_command", { command = "a", sandbox_id = "zz" })
    assert.are.same({ "not_found", "sandbox_id" }, { err.category, err.field })
  end))

  it("fails closed where the owner cannot be asked for", fake.run(function()
    world.provider.fail.get = "unavailable"
    for tool, arguments in pairs(TOOLS) do
      arguments.sandbox_id = "x1"
      local _, err = world:call(tool, arguments)
      assert.are.equal("unavailable", err.category, tool)
    end
  end))
end)
