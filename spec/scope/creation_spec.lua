--- Creations in flight: shared, cancelled, overtaken by the end of the scope. What was made is never lost.

local core = require "demilune.core"
local fake = require "spec.scope.fake"

describe("a creation in flight", function()
  local world
  before_each(fake.run(function()
    world = fake.world()
    world.provider.hold.create = core.task.event()
  end))

  local function finish() world.provider.hold.create:set() end

  it("is shared by calls that need a default at the same time", fake.run(function()
    local calls = {}
    for i = 1, 5 do calls[i] = world:spawn("run_command", { command = "a" }) end
    world:until_called "create"
    finish()
    local created = 0
    for _, call in ipairs(calls) do
      local _, result = call:wait()
      assert.are.equal("s1", result.sandbox_id)
      created = created + (result.created and 1 or 0)
    end
    assert.are.same({ 1, 1 }, { created, world.provider:called "create" })
  end))

  it("fails all that share it with the creation's own error, and the next call tries again", fake.run(function()
    world.provider.fail.create = "no_capacity"
    local calls = {}
    for i = 1, 3 do calls[i] = world:spawn("run_command", { command = "a" }) end
    world:until_called "create"
    finish()
    for _, call in ipairs(calls) do
      local _, _, err = call:wait()
      assert.are.same({ "no_capacity", true }, { err.category, err.retryable })
    end
    world.provider.fail.create = nil
    assert.are.equal("s1", assert(world:call("run_command", { command = "a" })).sandbox_id)
  end))

  it("goes on while one of those that share it still waits", fake.run(function()
    local first, second = world:spawn("run_command", { command = "a" }), world:spawn("run_command", { command = "a" })
    world:until_called "create"
    first:cancel()
    local _, _, err = first:wait()
    assert.are.equal("stopped", err.category)
    finish()
    local _, result = second:wait()
    assert.are.same({ "s1", true }, { result.sandbox_id, result.created })
    assert.are.equal(0, world.provider:called "kill")
  end))

  it("is killed as soon as it answers when nobody waits any more", fake.run(function()
    for _, tool in ipairs { "run_command", "create_sandbox" } do
      local call = world:spawn(tool, tool == "run_command" and { command = "a" } or {})
      world:until_called "create"
      call:cancel()
      call:wait()
      assert.are.equal(0, world.provider:called "kill")
      finish()
      fake.settle()
      assert.are.same({}, world.provider.sandboxes)
      assert.are.same({}, world.scope:owned())
      assert.is_nil(world.scope.default)
      world.provider:clear()
      world.provider.hold.create:clear()
    end
  end))

  it("is not taken up again by a call that comes after it was given up", fake.run(function()
    local call = world:spawn("run_command", { command = "a" })
    world:until_called "create"
    call:cancel()
    call:wait()
    local later = world:spawn("run_command", { command = "a" })
    fake.settle()
    finish()
    local _, result = later:wait()
    assert.is_true(result.created)
    fake.settle()
    local left = next(world.provider.sandboxes)
    assert.are.same({ result.sandbox_id, nil }, { left, next(world.provider.sandboxes, left) })
  end))

  it("stays owned when it cannot be killed, and goes with the scope", fake.run(function()
    local call = world:spawn("create_sandbox")
    world:until_called "create"
    call:cancel()
    call:wait()
    world.provider.fail.kill = "unavailable"
    finish()
    core.log.set_level "off"
    fake.settle()
    core.log.set_level "info"
    assert.are.equal(1, #world.scope:owned())
    assert.is_nil(world.scope.default)
    world.provider.fail.kill = nil
    world.scope:close(1000)
    assert.are.same({}, world.provider.sandboxes)
  end))

  it("is killed when it answers while the scope ends", fake.run(function()
    local call = world:spawn("run_command", { command = "a" })
    world:until_called "create"
    local closing = core.task.spawn(function() world.scope:close(2000) end)
    fake.settle()
    finish()
    closing:wait()
    assert.are.same({}, world.provider.sandboxes)
    local _, _, err = call:wait()
    assert.are.equal("stopped", err.category)
    assert.is_nil(world.scope.default)
  end))

  it("does not hold up the end of the scope for longer than that may take", fake.run(function()
    world:spawn("run_command", { command = "a" })
    world:until_called "create"
    local from = core.task.now_ms()
    world.scope:close(100)
    assert.is_true(core.task.now_ms() - from < 600)
    finish()
    fake.settle()
    assert.are.same({}, world.provider.sandboxes)
  end))

  it("is not begun in a scope that has ended", fake.run(function()
    finish()
    world.scope:close(100)
    local _, err = world:call("run_command", { command = "a" })
    assert.are.equal("stopped", err.category)
    _, err = world:call("create_sandbox")
    assert.are.equal("stopped", err.category)
    assert.are.equal(0, world.provider:called "create")
  end))
end)
