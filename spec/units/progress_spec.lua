--- What is said while a call runs: at most five a second, never silent for 15 s, nothing after the end.

local core = require "demilune.core"
local progress = require "demilune.progress"

local task = core.task

describe("progress", function()
  local now, real_now, real_spawn, sent

  before_each(function()
    now, sent = 1000000, {}
    real_now, real_spawn = task.now_ms, task.spawn
    task.now_ms = function() return now end
    -- The ticker is turned by hand.
    task.spawn = function() return { cancel = function() end } end
  end)
  after_each(function() task.now_ms, task.spawn = real_now, real_spawn end)

  local function start()
    return progress.start(function(count, message) sent[#sent + 1] = { at = now, count = count, message = message } end)
  end

  --- Lets `ms` pass in steps of one tick.
  local function pass(one, ms, on_step)
    local stop = now + ms
    while now < stop do
      now = now + 50
      if on_step then on_step() end
      if now % 200 == 0 then one:tick() end
    end
  end

  it("sends at most five a second, the newest each time, and counts up", function()
    local one, n = start(), 0
    pass(one, 10000, function()
      for _ = 1, 7 do
        n = n + 1
        one:line("line " .. n)
      end
    end)
    for i = 6, #sent do assert.is_true(sent[i].at - sent[i - 5].at >= 1000) end
    for i, message in ipairs(sent) do assert.are.equal(i, message.count) end
    assert.is_true(#sent >= 45)
    assert.is_true(tonumber(sent[#sent].message:match "%d+") > 1300)
  end)

  it("is never silent for longer than 15 s", function()
    local one, from = start(), now
    pass(one, 60000)
    assert.are.equal(4, #sent)
    local last = from
    for i, message in ipairs(sent) do
      assert.is_true(message.at - last <= 15000)
      last = message.at
      assert.are.equal(i, message.count)
    end
    for i, message in ipairs(sent) do
      local seconds = math.tointeger(message.message:match "^running, (%d+) s$")
      assert.is_true(math.abs(seconds - 15 * i) <= 1)
    end
  end)

  it("sends a line that had to wait with the next tick", function()
    local one = start()
    one:line "first"
    one:line "second"
    pass(one, 400)
    assert.are.same({ "first", "second" }, { sent[1].message, sent[2].message })
  end)

  it("cuts lines to 200 characters and mends them", function()
    local one = start()
    one:line(("€"):rep(300))
    now = now + 1000
    one:line "a\xffb"
    assert.is_true(utf8.len(sent[1].message) <= 200)
    assert.are.equal("a\u{FFFD}b", sent[2].message)
  end)

  it("says nothing for empty lines, and nothing more at the end", function()
    local one = start()
    one:line ""
    assert.are.same({}, sent)
    one:line "a"
    one:line "b"
    one:stop()
    assert.are.equal(1, #sent)
  end)
end)

describe("a call's progress", function()
  it("stops with the call", function()
    local fake = require "spec.scope.fake"
    fake.run(function()
      local world, count = fake.world(), 0
      assert(world:call("run_command", { command = "a" }, { send_progress = function() count = count + 1 end }))
      assert.are.equal(1, count)
      task.sleep(500)
      assert.are.equal(1, count)
    end)()
  end)

  it("is not begun for a call that is refused", function()
    local fake = require "spec.scope.fake"
    fake.run(function()
      local world, count = fake.world(), 0
      local _, err = world:call("run_command", {}, { send_progress = function() count = count + 1 end })
      assert.are.same({ "invalid_argument", 0 }, { err.category, count })
    end)()
  end)
end)
