--- What the tools tell of a sandbox, and that nothing else of a provider, a sandbox or a caller gets out.

local canary = require "spec.support.canary"
local core = require "demilune.core"
local fake = require "spec.scope.fake"

local null = core.json.null

local FIELDS = {
  "sandbox_id", "template", "status", "region", "started_at", "end_at", "cpu_count", "memory_mb", "disk_size_mb",
}

--- What services know beside that, all of it secret here.
local function talkative(secret)
  return {
    token = secret, envdAccessToken = secret, envs = { A = secret }, metadata = { a = secret }, owner = secret, url = secret,
    lifecycle = { secret }, account = secret, client_id = secret, domain = secret, secret = secret,
  }
end

local function keys_of(object)
  local names = {}
  for name in pairs(object) do names[#names + 1] = name end
  table.sort(names)
  return names
end

describe("metadata", function()
  local world, secret
  before_each(fake.run(function()
    world = fake.world()
    secret = canary.new()
    world.provider:add("x1", talkative(secret))
  end))

  it("is exactly nine fields in get and list", fake.run(function()
    local expected = table.move(FIELDS, 1, #FIELDS, 1, {})
    table.sort(expected)
    local got = assert(world:call("get_sandbox", { sandbox_id = "x1" }))
    assert.are.same(expected, keys_of(got))
    local listed = assert(world:call("list_sandboxes"))
    assert.are.same({ "limit", "offset", "sandboxes" }, keys_of(listed))
    assert.are.same(expected, keys_of(listed.sandboxes[1]))
    assert.is_nil(canary.find(core.json.encode(got) .. core.json.encode(listed), secret))
  end))

  it("says null where the service does not say", fake.run(function()
    world.provider.sandboxes = { x1 = { id = "x1", status = "running" } }
    for _, got in ipairs {
      assert(world:call("get_sandbox", { sandbox_id = "x1" })), assert(world:call("list_sandboxes")).sandboxes[1],
    } do
      for _, field in ipairs(FIELDS) do
        if field ~= "sandbox_id" and field ~= "status" then assert.are.equal(null, got[field], field) end
      end
    end
  end))

  it("of a created sandbox is what the contract lists", fake.run(function()
    local result = assert(world:call("create_sandbox", { envs = { A = secret } }))
    assert.are.same({
      "cpu_count", "end_at", "memory_mb", "network", "sandbox_id", "status", "template", "url", "workdir",
    }, keys_of(result))
    assert.is_nil(canary.find(core.json.encode(result), secret))
  end))

  it("is an empty list, not an object, where there is none", fake.run(function()
    world.provider.sandboxes = {}
    assert.truthy(core.json.encode(assert(world:call("list_sandboxes"))):find('"sandboxes":[]', 1, true))
  end))
end)

describe("errors", function()
  it("hold nothing of what a provider raised beside our own fields", fake.run(function()
    local world, secret = fake.world(), canary.new()
    world.provider.fail.create = {
      category = "provider_rejected", message = "The provider refused the request.", retryable = false, status = 422,
      body = secret, url = secret, headers = { secret }, trace = secret, raw = secret,
    }
    local _, err = world:call("create_sandbox", { envs = { A = secret } })
    assert.are.same({ "category", "message", "retryable", "status" }, keys_of(err))
    assert.is_nil(canary.find(core.json.encode(err), secret))
  end))

  it("hold no argument's value, whatever is wrong with it", fake.run(function()
    local world, secret = fake.world(), canary.new()
    for tool, arguments in pairs {
      create_sandbox = { envs = { ["A=" .. secret] = secret }, template = secret }, run_code = { code = "1",
        language = secret },
      run_command = { command = secret .. "\0" }, get_sandbox = { sandbox_id = secret }, list_sandboxes = { status = secret },
      cancel_background_task = { task_id = "bt_" .. secret }, get_background_task = { task_id = secret },
      upload_file = { path = "a", content_base64 = secret }, read_file = { path = secret, encoding = secret },
      set_sandbox_timeout = { timeout = secret }, kill_sandbox = { sandbox_id = "cloud:" .. secret },
    } do
      local result, err = world:call(tool, arguments)
      assert.is_nil(result, tool)
      assert.is_nil(canary.find(core.json.encode(err), secret), tool)
    end
  end))

  it("of a failed command hold its output only where the operator made it an error", fake.run(function()
    local world = fake.world { config = { nonzero_exit_is_error = true } }
    world.provider.outcome = { exit_code = 3, stdout = { head = "said", total = 4 } }
    local result, err, partial = world:call("run_command", { command = "a" })
    assert.is_nil(result)
    assert.are.same({ "command_failed", false }, { err.category, err.retryable })
    assert.are.same({ "said", 3 }, { partial.stdout, partial.exit_code })
    local shown = core.json.decode(world.app:encode_result(world.app.tools_by_name.run_command, nil, err, partial, true))
    assert.is_true(shown.isError)
    assert.is_nil(shown.structuredContent)
    assert.are.same(err, shown._meta["dev.demilune/error"])
    local text = core.json.decode(shown.content[1].text)
    assert.are.same({ err, "said", 3 }, { text.error, text.stdout, text.exit_code })
    world.provider.outcome = { timed_out = true }
    for tool, arguments in pairs { run_command = { command = "a" }, run_code = { code = "1" } } do
      result, err = world:call(tool, arguments)
      assert.are.same({ nil, "command_timeout" }, { result, err.category })
    end
    world.provider.outcome = { exit_code = 0 }
    assert(world:call("run_command", { command = "a" }))
  end))
end)
