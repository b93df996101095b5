--- core.task: what is promised of tasks that wait, end, fail and are cancelled.

local build = require "spec.support.build"
local core = require "demilune.core"
local harness = require "spec.script.harness"
local task = core.task

--- What a piece of Lua says on stderr when it runs as a program of its own with the core.
local function stderr_of(code)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(('package.cpath = %q\nlocal task = require("demilune.core").task\n'):format(build.dir .. "/spec/?.so"), code)
  file:close()
  local pipe = assert(io.popen(harness.interpreter() .. " " .. path .. " 2>&1 >/dev/null; echo exit $?"))
  local text = pipe:read "a"
  pipe:close()
  os.remove(path)
  return text
end

describe("task.run", function()
  it("returns all results, nils among them", function()
    assert.are.same({ n = 3, 1, nil, 3 }, table.pack(task.run(function(...) return ... end, 1, nil, 3)))
    assert.are.equal(0, select("#", task.run(function() end)))
    assert.are.equal(5000, select("#", task.run(function() return table.unpack({}, 1, 5000) end)))
  end)

  it("raises what the task raised, of any type", function()
    local object = setmetatable({}, { __tostring = function() return "o" end })
    for _, value in ipairs { object, 7, true, task.CANCELLED, print } do
      local ok, err = pcall(task.run, function() error(value, 0) end)
      assert.is_false(ok)
      assert.are.equal(value, err)
    end
    local ok, err = pcall(task.run, function() error() end)
    assert.is_false(ok)
    assert.is_nil(err)
    ok, err = pcall(task.run, function() task.sleep(1) error("late") end)
    assert.is_false(ok)
    assert.truthy(err:find "late\nstack traceback:")
  end)

  it("is refused inside a task, and inside a handler of an event", function()
    local ok, err = pcall(task.run, function() return task.run(function() end) end)
    assert.is_false(ok)
    assert.truthy(err:find "task.run is for the main thread")
    assert.are.equal(1, task.run(function() return 1 end))
  end)

  it("says so when nothing can ever wake the task", function()
    local ok, err = pcall(task.run, function() task.event():wait() end)
    assert.is_false(ok)
    assert.truthy(err:find "never come")
  end)

  it("takes a function and nothing else", function()
    for _, bad in ipairs { 1, "x", {}, setmetatable({}, { __call = print }) } do
      assert.has_error(function() task.run(bad) end)
      assert.has_error(function() task.spawn(bad) end)
    end
  end)

  it("survives a task that recurses without end", function()
    local function down() return 1 + down() end
    local ok, err = pcall(task.run, down)
    assert.is_false(ok)
    assert.truthy(err:find "stack overflow")
    ok, err = pcall(task.run, function()
      local handle = task.spawn(down)
      return select(2, handle:wait())
    end)
    assert.is_true(ok)
    assert.truthy(err:find "stack overflow")
  end)
end)

describe("waiting", function()
  it("is refused outside a task and in a coroutine of a task", function()
    local event = task.event()
    for _, wait in ipairs {
      function() task.sleep(1) end, function() event:wait() end, function() task.spawn(task.sleep, 1):wait() end,
    } do
      local ok, err = pcall(wait)
      assert.is_false(ok)
      assert.truthy(err:find "only a task can wait")
      ok, err = task.run(function() return coroutine.resume(coroutine.create(wait)) end)
      assert.is_false(ok)
      assert.truthy(err:find "only a task can wait")
    end
    task.run(function() task.sleep(5) end)
  end)

  it("ends a task that yields by itself, and its clean-up runs", function()
    local text = stderr_of [[
      local closed
      task.run(function()
        local handle = task.spawn(function()
          local guard <close> = setmetatable({}, { __close = function() closed = true end })
          coroutine.yield(1)
        end)
        local ok, err = handle:wait()
        assert(ok == false and err == task.CANCELLED and closed and handle:status() == "failed")
      end)
    ]]
    assert.truthy(text:find "error a task yielded outside a wait and was ended")
    assert.truthy(text:find "exit 0")
  end)
end)

describe("task.spawn", function()
  it("runs tasks in the order they came, after the one that spawned them", function()
    local order = {}
    task.run(function()
      for i = 1, 3 do task.spawn(function(n) order[#order + 1] = n end, i) end
      order[#order + 1] = 0
      task.sleep(0)
    end)
    assert.are.same({ 0, 1, 2, 3 }, order)
  end)

  it("hands over arguments and results as they are", function()
    local packed = task.run(function()
      return table.pack(task.spawn(function(...) task.sleep(0) return select("#", ...), ... end, nil, false, nil):wait())
    end)
    assert.are.same({ n = 5, true, 3, nil, false, nil }, packed)
  end)

  it("has a thousand tasks asleep at once, and wakes each at its time", function()
    local awake, early = 0, 0
    task.run(function()
      local handles = {}
      for i = 1, 1000 do
        handles[i] = task.spawn(function()
          local before, ms = task.now_ms(), 5 + i % 40
          task.sleep(ms)
          awake = awake + 1
          if task.now_ms() - before < ms - 1 then early = early + 1 end
        end)
      end
      for _, handle in ipairs(handles) do assert(handle:wait()) end
    end)
    assert.are.equal(1000, awake)
    assert.are.equal(0, early)
  end)

  it("lets timers and descriptors have their turn while tasks spawn tasks without end", function()
    local turns = 0
    task.run(function()
      local over = false
      local function again()
        turns = turns + 1
        if not over then task.spawn(again) end
      end
      task.spawn(again)
      task.sleep(20)
      over = true
    end)
    assert.is_true(turns > 256)
  end)

  it("logs an error that nobody waits for, of any type, with its place", function()
    local text = stderr_of [[
      local raised = { "plain", setmetatable({}, { __tostring = function() return "object says" end }),
        setmetatable({}, { __tostring = function() error("worse") end }), require("demilune.core").status.new "conflict" }
      task.run(function()
        for i = 1, #raised do task.spawn(function() error(raised[i], 0) end) end
        task.spawn(function() local x = nil; return x.y end)
        task.spawn(function() error() end)
        task.sleep(5)
      end)
    ]]
    for _, words in ipairs {
      "error plain", "error object says", "error an error whose __tostring fails", "error conflict: ",
      "attempt to index a nil value.-stack traceback", "error nil\n", "exit 0",
    } do assert.truthy(text:find(words), words .. "\n" .. text) end
  end)

  it("does not log an error that somebody waits for, or a cancel", function()
    local text = stderr_of [[
      task.run(function()
        local waited = task.spawn(function() task.sleep(1) error("waited for") end)
        assert(waited:wait() == false)
        local cancelled = task.spawn(function() task.sleep(1000) end)
        task.sleep(1)
        cancelled:cancel()
      end)
    ]]
    assert.are.equal("exit 0\n", text)
  end)
end)

describe("handle:wait", function()
  it("tells success, failure and the end of its patience apart", function()
    task.run(function()
      local slow = task.spawn(function() task.sleep(30) return "done", nil end)
      local r = table.pack(slow:wait(5))
      assert.are.same({ n = 2, nil, "timeout" }, r)
      assert.are.equal("running", slow:status())
      assert.are.same({ n = 3, true, "done", nil }, table.pack(slow:wait(1000)))
      assert.are.same({ n = 3, true, "done", nil }, table.pack(slow:wait()))
      assert.are.equal("done", slow:status())
      local failing = task.spawn(function() error("x", 0) end)
      local ok, err = failing:wait()
      assert.is_false(ok)
      assert.truthy(err:find "^x")
      assert.are.equal("failed", failing:status())
    end)
  end)

  it("gives every waiter the same, and one that is cancelled drops out", function()
    local got = {}
    task.run(function()
      local target = task.spawn(function() task.sleep(20) return "v" end)
      local waiters = {}
      for i = 1, 5 do
        waiters[i] = task.spawn(function() got[i] = select(2, target:wait(1000)) end)
      end
      task.sleep(1)
      waiters[3]:cancel()
      waiters[1]:cancel()
      target:wait()
      task.sleep(1)
    end)
    assert.are.same({ [2] = "v", [4] = "v", [5] = "v" }, got)
  end)

  it("refuses a task's wait for its own end", function()
    local ok, err = pcall(task.run, function() return task.current():wait() end)
    assert.is_false(ok)
    assert.truthy(err:find "its own end")
  end)

  it("takes times of any size", function()
    task.run(function()
      for _, ms in ipairs { 0, -0.0, 0.5 } do
        assert.are.equal("timeout", select(2, task.spawn(function() task.sleep(20) end):wait(ms)))
      end
      for _, ms in ipairs { -1, 0 / 0, math.huge, 1e300, math.maxinteger } do
        assert.is_true((task.spawn(function() task.sleep(1) end):wait(ms)))
        local event = task.event()
        task.spawn(function() event:set() end)
        assert.is_true((event:wait(ms)))
      end
    end)
  end)

  it("counts from now, however long the task worked before it", function()
    task.run(function()
      local sleeper = task.spawn(function() task.sleep(500) end)
      local until_ms = task.now_ms() + 60
      while task.now_ms() < until_ms do end
      local before = task.now_ms()
      sleeper:wait(40)
      assert.is_true(task.now_ms() - before >= 39)
      sleeper:cancel()
    end)
  end)
end)

describe("handle:cancel", function()
  it("raises CANCELLED at the wait, and the task may clean up", function()
    task.run(function()
      local seen
      local handle = task.spawn(function()
        local ok, err = pcall(task.sleep, 10000)
        seen = { ok, err }
        task.sleep(5)
        return "cleaned"
      end)
      task.sleep(1)
      local before = task.now_ms()
      handle:cancel()
      assert.are.same({ true, "cleaned" }, { handle:wait() })
      assert.are.same({ false, task.CANCELLED }, seen)
      assert.is_true(task.now_ms() - before < 1000)
    end)
  end)

  it("fails a task that does not catch it, with CANCELLED, which is an error of the table", function()
    task.run(function()
      local handle = task.spawn(task.sleep, 10000)
      task.sleep(1)
      handle:cancel()
      assert.are.same({ false, task.CANCELLED }, { handle:wait() })
      assert.are.equal("stopped", task.CANCELLED.category)
      assert.is_false(task.CANCELLED.retryable)
      assert.are.equal("cancelled", tostring(task.CANCELLED))
    end)
  end)

  it("keeps a task that has not begun from running at all", function()
    task.run(function()
      local ran = false
      local handle = task.spawn(function() ran = true end)
      handle:cancel()
      assert.are.same({ false, task.CANCELLED }, { handle:wait() })
      assert.is_false(ran)
    end)
  end)

  it("reaches the next wait of a task that runs, and of the task itself", function()
    task.run(function()
      local handle = task.spawn(function()
        task.current():cancel()
        local ok, err = pcall(task.sleep, 1)
        assert(not ok and err == task.CANCELLED)
        task.sleep(1) -- once only
        return "on"
      end)
      assert.are.same({ true, "on" }, { handle:wait() })
    end)
  end)

  it("does nothing to a task that has ended, and nothing the second time", function()
    task.run(function()
      local handle = task.spawn(function() return 1 end)
      handle:wait()
      handle:cancel()
      assert.are.equal("done", handle:status())
      local count = 0
      local other = task.spawn(function()
        for _ = 1, 2 do
          if not pcall(task.sleep, 20) then count = count + 1 end
        end
      end)
      task.sleep(1)
      other:cancel()
      other:cancel()
      other:wait()
      assert.are.equal(1, count)
    end)
  end)

  it("loses nothing that had already arrived when it came", function()
    task.run(function()
      local event, got = task.event(), nil
      local handle = task.spawn(function()
        got = event:wait()
        task.sleep(1)
      end)
      task.sleep(1)
      event:set()
      handle:cancel()
      assert.are.same({ false, task.CANCELLED }, { handle:wait() })
      assert.is_true(got)
    end)
  end)

  it("ends a task hard that cleans up for more than two seconds; its <close> variables run", function()
    task.run(function()
      local closed, error_seen, waited = false, nil, nil
      local handle = task.spawn(function()
        local _ <close> = setmetatable({}, { __close = function(_, err)
          closed, error_seen = true, err
          waited = pcall(task.sleep, 1)
        end })
        while true do pcall(task.sleep, 50) end
      end)
      local brief = task.spawn(function()
        if not pcall(task.sleep, 10000) then task.sleep(1500) end
        return "in time"
      end)
      task.sleep(1)
      local before = task.now_ms()
      handle:cancel()
      brief:cancel()
      assert.are.same({ true, "in time" }, { brief:wait() })
      assert.are.same({ false, task.CANCELLED }, { handle:wait() })
      local took = task.now_ms() - before
      assert.is_true(took >= 1900 and took < 2600, took)
      assert.is_true(closed)
      assert.is_false(waited)
      assert.are.equal("failed", handle:status())
      assert.is_true(error_seen == nil or error_seen == task.CANCELLED)
    end)
  end)

  it("comes through a thousand races with the wake", function()
    math.randomseed(3)
    task.run(function()
      local ended, wrong = 0, 0
      for _ = 1, 1000 do
        local event, sleeper = task.event(), nil
        local handle = task.spawn(function()
          local ok, err = pcall(function()
            event:wait(math.random(0, 2))
            sleeper = task.spawn(task.sleep, math.random(0, 1))
            sleeper:wait()
          end)
          if not ok and err ~= task.CANCELLED then wrong = wrong + 1 end
        end)
        for _ = 1, math.random(0, 2) do task.spawn(function() task.sleep(math.random(0, 1)) event:set() end) end
        if math.random() < 0.3 then task.sleep(0) end
        if math.random() < 0.5 then event:set() end
        if math.random() < 0.7 then handle:cancel() end
        task.spawn(function()
          handle:wait()
          ended = ended + 1
        end)
      end
      local deadline = task.now_ms() + 5000
      while ended < 1000 and task.now_ms() < deadline do task.sleep(5) end
      assert.are.equal(1000, ended)
      assert.are.equal(0, wrong)
    end)
  end)
end)

describe("task.event", function()
  it("wakes all who wait, stays set, and can be cleared", function()
    task.run(function()
      local event, woken = task.event(), 0
      assert.is_false(event:is_set())
      for _ = 1, 10 do
        task.spawn(function()
          if event:wait() then woken = woken + 1 end
        end)
      end
      task.sleep(1)
      event:set()
      event:clear()
      assert.are.equal(0, woken)
      task.sleep(0)
      assert.are.equal(10, woken)
      assert.are.same({ n = 2, nil, "timeout" }, table.pack(event:wait(1)))
      event:set()
      event:set()
      assert.is_true(event:wait())
      assert.is_true(event:is_set())
    end)
  end)

  it("may be garbage while nobody waits for it, and not while somebody does", function()
    task.run(function()
      local woken
      local weak = setmetatable({}, { __mode = "v" })
      weak[1] = task.event()
      local waiter = task.spawn(function() woken = weak[1]:wait(30) == nil end)
      task.sleep(1)
      collectgarbage()
      assert.is_not_nil(weak[1])
      waiter:wait()
      assert.is_true(woken)
      collectgarbage()
      assert.is_nil(weak[1])
    end)
  end)
end)

describe("a task that ended", function()
  it("is garbage, with what it held", function()
    task.run(function()
      local weak = setmetatable({}, { __mode = "k" })
      for _ = 1, 100 do
        local held = {}
        weak[held] = true
        local handle = task.spawn(function() return held end)
        weak[handle] = true
        if math.random() < 0.5 then handle:cancel() end
      end
      task.sleep(5)
      collectgarbage()
      collectgarbage()
      assert.is_nil(next(weak))
    end)
  end)

  it("is not task.current, which is nil outside tasks", function()
    assert.is_nil(task.current())
    task.run(function()
      local me = task.current()
      assert.are.equal(me, task.current())
      local other = select(2, task.spawn(function() return task.current() end):wait())
      assert.are_not.equal(me, other)
    end)
  end)
end)

describe("a program that ends", function()
  it("leaves tasks that wait behind without running them, and its clean-up does not fail", function()
    local text = stderr_of [[
      local core = require "demilune.core"
      for i = 1, 50 do
        task.spawn(function() task.sleep(1e6) error("never") end)
        task.spawn(function() task.event():wait(1e6) end)
        local other = task.spawn(function() task.event():wait() end)
        task.spawn(function() other:wait(1e6) end)
      end
      task.run(function()
        local child = core.process.start { argv = { "/bin/sleep", "100" } }
        task.spawn(function() child:wait(1e6) end)
        local reader = core.sys.reader((core.sys.pipe()))
        task.spawn(function() reader:read(1e6) end)
        core.sys.on_signal("HUP", print)
        task.sleep(5)
      end)
    ]]
    assert.are.equal("exit 0\n", text)
  end)
end)
