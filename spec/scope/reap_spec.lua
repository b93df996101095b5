--- What a service has not ended by the time the scope must be over goes to a process that outlives it.

local core = require "demilune.core"
local fake = require "spec.scope.fake"
local reap = require "demilune.reap"

local json = core.json

describe("what a scope leaves to be reaped", function()
  local world, started, original
  before_each(fake.run(function()
    started = {}
    original, reap.start = reap.start, function(jobs)
      started[#started + 1] = jobs
      return true
    end
    world = fake.world { providers = { { is_reaped = true }, { id = "leased", prefix = "l" } } }
    core.log.set_level "off"
  end))
  after_each(function()
    core.log.set_level "info"
    reap.start = original
  end)

  it("is nothing when every kill was answered", fake.run(function()
    assert(world:call "create_sandbox")
    world.scope:close(500)
    assert.are.same({ {}, {} }, { started, world.provider.sandboxes })
  end))

  it("is what withstood, by provider, and never what a lease ends", fake.run(function()
    assert(world:call "create_sandbox")
    assert(world:call "create_sandbox")
    assert(world:call("create_sandbox", { provider = "leased" }))
    for _, provider in ipairs(world.app.providers) do provider.fail.kill = "connection_failed" end
    world.scope:close(200)
    assert.are.equal(1, #started)
    local job = started[1][1]
    table.sort(job.ids)
    assert.are.same({ 1, "local", { "s1", "s2" }, {} },
      { #started[1], job.entry.id, { table.unpack(job.ids) }, { table.unpack(job.stamps) } })
  end))

  it("is the stamp of a creation that was not answered", fake.run(function()
    world.provider.hold.create = core.task.event()
    local creating = world:spawn "create_sandbox"
    world:until_called "create"
    world.scope:close(100)
    local sent = world.provider:last "create"
    assert.are.same({ sent.stamp }, { table.unpack(started[1][1].stamps) })
    assert.is_truthy(#sent.stamp >= 16)
    world.provider.hold.create:set()
    creating:wait(1000)
  end))

  it("is the stamp of a creation that failed without a word of what became of it, while it is looked for", fake.run(function()
    world.provider.fail.create = "provider_timeout"
    world.provider.hold.kill_by_stamp = core.task.event()
    local _, err = world:call "create_sandbox"
    assert.are.equal("provider_timeout", err.category)
    world:until_called "kill_by_stamp"
    local sent = world.provider:last "create"
    assert.are.equal(sent.stamp, (world.provider:last "kill_by_stamp"))
    world.scope:close(100)
    assert.are.same({ sent.stamp }, { table.unpack(started[1][1].stamps) })
  end))

  it("is nothing of a creation that was refused", fake.run(function()
    for _, category in ipairs { "provider_rejected", "quota_exceeded", "authentication_failed", "not_found", "unsupported" } do
      world.provider.fail.create = category
      local _, err = world:call "create_sandbox"
      assert.are.equal(category, err.category)
    end
    fake.settle()
    world.scope:close(100)
    assert.are.same({ 0, {} }, { world.provider:called "kill_by_stamp", started })
  end))

  it("is nothing with keep_on_exit", fake.run(function()
    world = fake.world { providers = { { is_reaped = true } }, config = { keep_on_exit = true } }
    assert(world:call "create_sandbox")
    world.scope:close(100)
    assert.are.same({}, started)
  end))
end)

describe("reap.work", function()
  local made
  local fakes = package.loaded["demilune.providers.fake"]

  local function job(fields)
    local one = { entry = { id = "cloud", type = "fake" }, ids = json.array {}, stamps = json.array {} }
    for key, value in pairs(fields) do one[key] = value end
    return json.encode(one)
  end

  local function prepare(fn)
    local new = fakes.new
    return fake.run(function()
      fakes.new = function(entry)
        made = new(entry)
        made:add("a")
        made:add("b", { stamp = "stamp" })
        return made
      end
      local ok, err = pcall(fn)
      fakes.new = new
      if not ok then error(err, 0) end
    end)
  end

  it("ends what has these ids and these stamps", prepare(function()
    local asked, done = reap.work(job { ids = json.array { "a", "gone" }, stamps = json.array { "stamp" } })
    assert.are.same({ 3, 3, {} }, { asked, done, made.sandboxes })
  end))

  it("tries again, and gives up at the end of its time", prepare(function()
    local before = reap.TIME_MS
    reap.TIME_MS = 1300
    local new, failures = fakes.new, 1
    fakes.new = function(entry)
      local provider = new(entry)
      provider.fail.kill = function()
        failures = failures - 1
        return failures >= 0 and "unavailable" or nil
      end
      provider.fail.kill_by_stamp = "unavailable"
      return provider
    end
    local from = core.task.now_ms()
    local asked, done = reap.work(job { ids = json.array { "a" }, stamps = json.array { "stamp" } })
    reap.TIME_MS = before
    assert.are.same({ 2, 1 }, { asked, done })
    assert.is_true(core.task.now_ms() - from < 3000)
    assert.is_nil(made.sandboxes.a)
  end))

  it("does nothing with what is no job", prepare(function()
    for _, text in ipairs { "", "[]", "{}", '{"entry":7}', '{"entry":{}}', job { ids = json.array { 7 } }, job { ids = "a" } } do
      assert.are.same({ 0, 0 }, { reap.work(text) })
    end
    assert.are.same({ 0, 0 }, { reap.work(job { ids = json.array { "../x" } }) })
  end))
end)
