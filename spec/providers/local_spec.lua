--- The local driver: what it refuses before any request, and how it takes an engine that is there and does not answer.

local core = require "demilune.core"
local config = require "demilune.config"
local create = require "demilune.engine.create"
local demilune_app = require "demilune.app"
local engine_start = require "demilune.engine_start"
local local_driver = require "demilune.providers.local"
local state = require "demilune.state"

local function within(fn)
  return function()
    core.task.run(function()
      local ok, err = pcall(fn)
      core.http.close_idle()
      if not ok then error(err, 0) end
    end)
  end
end

--- Calls a tool of an app with the default configuration.
local function caller()
  local app = demilune_app.new(config.defaults())
  local scope = app:new_scope "local:spec"
  return function(name, arguments)
    return app:call(app.tools_by_name[name], arguments, {
      scope = scope, principal = "local:spec", client = "spec", transport = "stdio",
    })
  end
end

describe("limits of a creation", function()
  it("beyond what the engine takes are refused by field, and no engine is started to say so", within(function()
    local call = caller()
    for _, row in ipairs {
      { "cpu", 4097, "integer from 1 to 4096" }, { "cpu", 100000, "integer from 1 to 4096" },
      { "memory", 1, "integer from 16 to 16777216" }, { "memory", 15, "integer from 16 to 16777216" },
      { "memory", 16777217, "integer from 16 to 16777216" },
    } do
      local _, err = call("create_sandbox", { [row[1]] = row[2] })
      assert.are.same({ "unsupported", row[1], row[3], false }, { err.category, err.field, err.expected, err.retryable })
      assert.are.equal(("%s must be an %s at this provider."):format(row[1], row[3]), err.message)
    end
    assert.is_false(engine_start.is_running(state.engine_socket()))
  end))

  it("are the engine's own", function()
    for name, bounds in pairs(local_driver.BOUNDS) do
      local function body(value) return { templateID = "base", demilune = { template = { [name] = value } } } end
      for _, value in ipairs(bounds) do
        local ok, spec = pcall(create.read, body(value), 15)
        assert.is_true(ok)
        assert.are.equal(value, spec[name == "cpu" and "cpu" or "memory_mb"])
      end
      assert.is_false((pcall(create.read, body(bounds[2] + 1), 15)))
      assert.is_false((pcall(create.read, body(bounds[1] - 1), 15)))
    end
  end)
end)

describe("an engine that holds its lock and does not answer", function()
  local lock

  before_each(function() lock = assert(core.fs.lock(state.path "engine.lock")) end)
  after_each(function() lock:release() end)

  it("is called busy, and no second one is started", within(function()
    local _, err = caller()("create_sandbox", {})
    assert.are.equal("unavailable", err.category)
    assert.are.equal("The local engine is busy and does not answer.", err.message)
    assert.is_nil(core.fs.stat(state.path "engine.sock"))
  end))

  it("is not taken for the end of its sandboxes", within(function()
    local call = caller()
    for tool, arguments in pairs {
      kill_sandbox = { sandbox_id = "abc" }, get_sandbox = { sandbox_id = "abc" }, list_sandboxes = {},
      run_command = { sandbox_id = "abc", command = "true" },
    } do
      local result, err = call(tool, arguments)
      assert.is_nil(result, tool)
      assert.are.equal("connection_failed", err.category, tool)
    end
  end))

  it("that was only just ending is replaced", within(function()
    core.task.spawn(function()
      core.task.sleep(200)
      lock:release()
    end)
    local spawned
    local real = core.process.start
    core.process.start = function(opts)
      spawned = opts.argv
      core.process.start = real
      return nil, core.status.new "internal"
    end
    local ok = pcall(engine_start.ensure, state.engine_socket())
    core.process.start = real
    assert.is_false(ok)
    assert.are.equal("engine", spawned[2])
  end))
end)
