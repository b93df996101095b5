--- The gate: so many at a time, the others in order and for a bounded time.

local core = require "demilune.core"
local gate = require "demilune.gate"

local task = core.task

local function within(fn) return function() task.run(fn) end end

describe("demilune.gate", function()
  it("lets in as many as it has places, and the rest in order as places come free", within(function()
    local one, order, places = gate.new(2, 5000), {}, {}
    places[1], places[2] = one:enter(), one:enter()
    assert.are.same({ 2, 0 }, { #places, one.free })
    local waiting = {}
    for i = 1, 3 do
      waiting[i] = task.spawn(function()
        places[2 + i] = one:enter()
        order[#order + 1] = i
      end)
      task.sleep(1)
    end
    assert.are.same({}, order)
    for i = 1, 3 do
      places[i]:leave()
      places[i]:leave()
      waiting[i]:wait(1000)
      assert.are.same({ i, i }, { #order, order[i] })
    end
    assert.are.equal(0, one.free)
    places[4]:leave()
    places[5]:leave()
    assert.are.equal(2, one.free)
  end))

  it("lets nobody wait longer than it says, and forgets who gave up", within(function()
    local one = gate.new(1, 30)
    local place = one:enter()
    local from = task.now_ms()
    assert.is_nil(one:enter())
    assert.is_true(task.now_ms() - from >= 25 and task.now_ms() - from < 1000)
    place:leave()
    assert.are.equal(1, one.free)
  end))

  it("lets somebody wait less long than the others, and not longer", within(function()
    local one = gate.new(1, 40)
    local place = one:enter()
    for _, case in ipairs { { 0, 0 }, { 15, 10 }, { 5000, 35 } } do
      local from = task.now_ms()
      assert.is_nil(one:enter(case[1]))
      assert.is_true(task.now_ms() - from >= case[2] and task.now_ms() - from < 1000)
    end
    place:leave()
    assert.are.same({ 1, 0 }, { one.free, #one.queue })
  end))

  it("keeps no place for a task that is cancelled, before its turn or right after", within(function()
    local one = gate.new(1, 5000)
    for _, is_late in ipairs { false, true } do
      local first = one:enter()
      local job = task.spawn(function()
        local place <close> = one:enter() -- luacheck: ignore 211
        task.sleep(5000)
      end)
      task.sleep(1)
      if is_late then first:leave() end
      job:cancel()
      job:wait(1000)
      first:leave()
      assert.are.same({ 1, 0 }, { one.free, #one.queue })
    end
  end))

  it("has the place back that somebody dropped", within(function()
    local one = gate.new(1, 5000)
    one:enter()
    collectgarbage()
    assert.are.equal(1, one.free)
  end))
end)
