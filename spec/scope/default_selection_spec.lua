--- Which sandbox a call without an id means, and what changes that.

local fake = require "spec.scope.fake"

local EXECUTE = {
  run_code = { code = "1" }, run_command = { command = "a" }, write_file = { path = "a", content = "" },
  start_background_task = { command = "a" }, upload_file = { path = "a", content_base64 = "" },
}
local READ = { read_file = { path = "a" }, list_files = {}, download_file = { path = "a" } }
local CONTROL = { get_sandbox = {}, set_sandbox_timeout = { timeout = 60 }, kill_sandbox = {} }

local function with_id(arguments, id)
  local out = { sandbox_id = id }
  for key, value in pairs(arguments) do out[key] = value end
  return out
end

describe("default selection", function()
  local world
  before_each(fake.run(function() world = fake.world() end))

  it("creates one for tools that work, and keeps it for the next", fake.run(function()
    for tool, arguments in pairs(EXECUTE) do
      world = fake.world()
      local result = assert(world:call(tool, arguments))
      assert.are.same({ "s1", true }, { result.sandbox_id, result.created }, tool)
      assert.are.equal("s1", world.scope.default.id)
      result = assert(world:call(tool, arguments))
      assert.are.same({ "s1" }, { result.sandbox_id, result.created }, tool)
      assert.are.equal(1, world.provider:called "create", tool)
    end
  end))

  it("creates none for tools that read or look", fake.run(function()
    for _, tools in ipairs { READ, CONTROL } do
      for tool, arguments in pairs(tools) do
        local _, err = world:call(tool, arguments)
        assert.are.same({ "no_default_sandbox", "sandbox_id", false }, { err.category, err.field, err.retryable }, tool)
        assert.truthy(err.suggestion:find "create_sandbox", tool)
        if tools == READ then assert.truthy(err.suggestion:find "run_command", tool) end
      end
    end
    assert(world:call("list_sandboxes"))
    assert.are.same({ "list" }, world.provider:called())
  end))

  it("changes by creation alone", fake.run(function()
    assert(world:call("create_sandbox"))
    assert(world:call("create_sandbox"))
    assert.are.equal("s2", assert(world:call("get_sandbox")).sandbox_id)
    world.provider:add("x1", { ends_in_ms = 900000 })
    for _, tools in ipairs { EXECUTE, READ, CONTROL } do
      for tool, arguments in pairs(tools) do
        if tool ~= "kill_sandbox" then assert(world:call(tool, with_id(arguments, "x1"))) end
        assert.are.equal("s2", world.scope.default.id, tool)
      end
    end
    assert(world:call("list_sandboxes"))
    assert(world:call("kill_sandbox", { sandbox_id = "s1" }))
    assert.are.equal("s2", world.scope.default.id)
  end))

  it("is none again after a kill, and never falls back to another", fake.run(function()
    assert(world:call("create_sandbox"))
    assert(world:call("create_sandbox"))
    assert.are.same({ true, "s2", true }, (function()
      local result = assert(world:call("kill_sandbox"))
      return { result.success, result.sandbox_id, result.existed }
    end)())
    local _, err = world:call("get_sandbox")
    assert.are.equal("no_default_sandbox", err.category)
    assert.are.equal("s3", assert(world:call("run_command", { command = "a" })).sandbox_id)
  end))

  it("tells of a default that is gone, clears it, and replaces it in the next call only", fake.run(function()
    for _, tools in ipairs { EXECUTE, READ, { get_sandbox = {}, set_sandbox_timeout = { timeout = 60 } } } do
      for tool, arguments in pairs(tools) do
        world = fake.world()
        assert(world:call("create_sandbox"))
        world.provider.sandboxes = {}
        local result, err = world:call(tool, arguments)
        assert.is_nil(result, tool)
        assert.are.same({ "sandbox_gone", true, false }, { err.category, err.default_cleared, err.retryable }, tool)
        assert.are.equal(1, world.provider:called "create", tool)
        assert.is_nil(world.scope.default, tool)
      end
    end
    local result = assert(world:call("run_command", { command = "a" }))
    assert.are.same({ "s2", true }, { result.sandbox_id, result.created })
  end))

  it("says so to each of several calls that find the default gone", fake.run(function()
    assert(world:call("create_sandbox"))
    world.provider.hold.run = require("demilune.core").task.event()
    local calls = {}
    for i = 1, 3 do calls[i] = world:spawn("run_command", { command = "a" }) end
    fake.settle()
    world.provider.sandboxes = {}
    world.provider.hold.run:set()
    for _, call in ipairs(calls) do
      local _, _, err = call:wait()
      assert.are.same({ "sandbox_gone", true }, { err.category, err.default_cleared })
    end
  end))

  it("is left alone by a sandbox that is gone and was named", fake.run(function()
    assert(world:call("create_sandbox"))
    assert(world:call("create_sandbox"))
    world.provider.sandboxes.s1 = nil
    local _, err = world:call("run_command", { command = "a", sandbox_id = "s1" })
    assert.are.same({ "sandbox_gone" }, { err.category, err.default_cleared })
    assert.are.equal("s2", world.scope.default.id)
    _, err = world:call("get_sandbox", { sandbox_id = "s1" })
    assert.are.equal("sandbox_gone", err.category)
    assert.is_false(assert(world:call("kill_sandbox", { sandbox_id = "s1" })).existed)
  end))

  it("tells a sandbox that never was from one that is gone", fake.run(function()
    for _, tool in ipairs { "get_sandbox", "run_command", "read_file", "set_sandbox_timeout" } do
      local _, err = world:call(tool, ({
        run_command = { command = "a", sandbox_id = "zz" }, read_file = { path = "a", sandbox_id = "zz" },
        set_sandbox_timeout = { timeout = 5, sandbox_id = "zz" },
      })[tool] or { sandbox_id = "zz" })
      assert.are.same({ "not_found", "sandbox_id" }, { err.category, err.field }, tool)
    end
    local result = assert(world:call("kill_sandbox", { sandbox_id = "zz" }))
    assert.are.same({ true, "zz", false }, { result.success, result.sandbox_id, result.existed })
  end))

  it("is off everywhere where the operator turns it off", fake.run(function()
    world = fake.world { config = { default_sandbox = "off" } }
    local id = assert(world:call("create_sandbox")).sandbox_id
    for _, tools in ipairs { EXECUTE, READ, CONTROL } do
      for tool, arguments in pairs(tools) do
        local _, err = world:call(tool, arguments)
        assert.are.equal("no_default_sandbox", err.category, tool)
      end
    end
    assert.are.equal(1, world.provider:called "create")
    assert(world:call("run_command", { command = "a", sandbox_id = id }))
    world.provider.sandboxes = {}
    local _, err = world:call("run_command", { command = "a", sandbox_id = id })
    assert.are.same({ "sandbox_gone" }, { err.category, err.default_cleared })
  end))

  it("needs an id to kill where conversations share a scope and it owns several", fake.run(function()
    local modern = { revision = "2026-07-28" }
    assert(world:call("create_sandbox"))
    assert(world:call("create_sandbox"))
    local _, err = world:call("kill_sandbox", {}, modern)
    assert.are.same({ "invalid_argument", "sandbox_id" }, { err.category, err.field })
    assert.are.equal(0, world.provider:called "kill")
    assert(world:call("kill_sandbox", { sandbox_id = "s1" }, modern))
    assert(world:call("kill_sandbox", {}, modern))
    assert.are.same({}, world.scope:owned())
  end))

  it("is each scope's own", fake.run(function()
    assert(world:call("create_sandbox"))
    local other = world.app:new_scope(world.principal)
    local _, err = world:call("get_sandbox", {}, { scope = other })
    assert.are.equal("no_default_sandbox", err.category)
  end))
end)

describe("qualified ids", function()
  local world, other
  before_each(fake.run(function()
    world = fake.world { providers = { { id = "local" }, { id = "b", prefix = "b" } } }
    other = world.app.providers[2]
  end))

  it("name the provider, and come back qualified for all but the default one", fake.run(function()
    assert.are.equal("b:b1", assert(world:call("create_sandbox", { provider = "b" })).sandbox_id)
    assert.are.equal("b:b1", assert(world:call("run_command", { command = "a" })).sandbox_id)
    assert.are.equal("b:b1", assert(world:call("get_sandbox", { sandbox_id = "b:b1" })).sandbox_id)
    assert.are.equal("s1", assert(world:call("create_sandbox", { provider = "local" })).sandbox_id)
    assert.are.equal("s1", assert(world:call("get_sandbox", { sandbox_id = "local:s1" })).sandbox_id)
    assert.are.equal("s1", assert(world:call("kill_sandbox", { sandbox_id = "local:s1" })).sandbox_id)
    assert.are.equal("b:b1", assert(world:call("list_sandboxes", { provider = "b" })).sandboxes[1].sandbox_id)
  end))

  it("mean the default provider when they are bare", fake.run(function()
    other:add "x1"
    local _, err = world:call("get_sandbox", { sandbox_id = "x1" })
    assert.are.equal("not_found", err.category)
    assert.are.same({}, other:called())
    assert.are.equal("x1", world.provider:last "get")
  end))

  it("are told apart when two providers have the same id", fake.run(function()
    world = fake.world { providers = { { id = "local" }, { id = "b" } } }
    assert.are.equal("s1", assert(world:call("create_sandbox")).sandbox_id)
    assert.are.equal("b:s1", assert(world:call("create_sandbox", { provider = "b" })).sandbox_id)
    assert(world:call("kill_sandbox", { sandbox_id = "s1" }))
    assert.are.equal("b:s1", assert(world:call("get_sandbox")).sandbox_id)
  end))

  it("of a provider that is not configured are refused without a call", fake.run(function()
    for _, id in ipairs { "cloud:x1", "a-b_2:x", "cloud:b:x" } do
      local _, err = world:call("get_sandbox", { sandbox_id = id })
      assert.are.same({ "not_found", "sandbox_id", { "local", "b" } }, { err.category, err.field, err.allowed })
      _, err = world:call("kill_sandbox", { sandbox_id = id })
      assert.are.equal("not_found", err.category)
    end
    for _, id in ipairs { "Cloud:x1", ":x1", "2:x", "b:", "b:x:y" } do
      local _, err = world:call("get_sandbox", { sandbox_id = id })
      assert.are.same({ "invalid_argument", "sandbox_id" }, { err.category, err.field }, id)
    end
    assert.are.same({}, world.provider:called())
    assert.are.same({}, other:called())
  end))

  it("stay bare or become qualified so that they parse back to the same sandbox", fake.run(function()
    world.provider.is_id = function() return true end
    for _, id in ipairs { "x", "b:x", "local:x", "c:x" } do
      local public = world.app:public_id(world.provider, id)
      local provider, back = world.app:split_id(public)
      assert.are.same({ "local", id }, { provider.id, back }, public)
    end
    assert.are.equal("c:x", world.app:public_id(world.provider, "c:x"))
    assert.are.equal("local:b:x", world.app:public_id(world.provider, "b:x"))
  end))
end)
