--- tools/call as the revisions share it: what goes to the client beside the result, and what stays here.

local core = require "demilune.core"
local errors = require "demilune.errors"
local fake = require "spec.scope.fake"
local legacy = require "demilune.mcp.v2025"
local modern = require "demilune.mcp.v2026"

local json = core.json

local SERVER_INFO = "io.modelcontextprotocol/serverInfo"

--- A tools/call of a revision; the decoded answer and the notifications.
local function call(world, revision, name, arguments)
  local told = {}
  local request = {
    params = { name = name, arguments = arguments }, token = "t", revision = revision,
    conversation = { app = world.app, scope = world.scope, principal = world.principal, client = "spec", transport = "stdio" },
    call = {
      notify = function(_, method, params) told[#told + 1] = { method = method, params = json.decode(params) } end,
      is_cancelled = function() return false end,
    },
  }
  local era = revision == "2026-07-28" and modern or legacy
  return json.decode(era.methods["tools/call"](request)), told
end

describe("tools/call", function()
  it("sends progress with a message from the revision on that knows one", fake.run(function()
    for revision, has_message in pairs {
      ["2024-11-05"] = false, ["2025-03-26"] = true, ["2025-11-25"] = true, ["2026-07-28"] = true,
    } do
      local _, told = call(fake.world(), revision, "run_command", { command = "a" })
      assert.are.equal("notifications/progress", told[1].method)
      assert.are.same({ "t", 1 }, { told[1].params.progressToken, told[1].params.progress })
      assert.are.equal(has_message and "a line" or nil, told[1].params.message, revision)
    end
  end))

  it("says who answers from 2026-07-28 on, in results and in errors", fake.run(function()
    local world = fake.world()
    local result = call(world, "2026-07-28", "run_command", { command = "a" })
    assert.are.equal("complete", result.resultType)
    assert.are.same({ name = "demilune", version = core.sys.version, title = "demilune sandboxes" }, result._meta[SERVER_INFO])
    assert.is_false(result.isError)
    local failed = call(world, "2026-07-28", "run_command", {})
    assert.are.equal("demilune", failed._meta[SERVER_INFO].name)
    assert.are.equal("invalid_argument", failed._meta["dev.demilune/error"].category)
    assert.is_nil(call(world, "2025-11-25", "run_command", { command = "a" })._meta)
    assert.is_nil(call(world, "2025-11-25", "run_command", {})._meta[SERVER_INFO])
  end))

  it("keeps the detail of an error for the log", fake.run(function()
    local world = fake.world()
    world.provider.fail.create = errors.new("internal", { message = "A sentence." }, "The folder /some/where is in the way.")
    local logged, real = {}, core.log.error
    core.log.error = function(line) logged[#logged + 1] = line end
    local ok, result = pcall(call, world, "2025-11-25", "run_command", { command = "a" })
    core.log.error = real
    assert.is_true(ok, result)
    assert.is_true(result.isError)
    assert.is_nil(json.encode(result):find("/some/where", 1, true))
    assert.are.equal("A sentence.", result._meta["dev.demilune/error"].message)
    assert.are.same({ "run_command: The folder /some/where is in the way." }, logged)
  end))
end)
