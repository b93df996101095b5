-- timeout: 120
--- The worker's life: when there is one, what ends it, and that nothing is left.

local build = require "spec.support.build"
local core = require "demilune.core"
local fences = require "spec.fence.fences"
local leftovers = require "spec.support.leftovers"
local task = core.task

local SLOW = [[return {
  f = function(n) for i = 1, n or 0 do local s = ("x"):rep(100) end return n end,
  echo = function(x) return x end,
}]]
local LIMITS = { instructions = 1000000000, cpu_ms = 10000, wall_ms = 20000 }

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

describe("a fence", function()
  it("has a process from load to stop", function()
    task.run(function()
      local fence = assert(core.fence.start())
      assert.are.same({ is_running = false, restarts = 0, memory_bytes = 0 }, fence:status())
      assert(fence:load("return {}", "p.lua", function() end))
      local status = fence:status()
      assert.is_true(status.is_running)
      assert.is_truthy(leftovers.process(status.pid))
      assert.is_true(status.memory_bytes > 10000 and status.memory_bytes < 200000)
      fence:stop()
      fence:stop()
      assert.is_false(fence:status().is_running)
      assert.is_nil(leftovers.process(status.pid, true))
    end)
  end)

  it("has none after a load that failed", function()
    task.run(function()
      local fence = assert(core.fence.start())
      assert.is_nil(fence:load("error 'x'", "p.lua", function() end))
      assert.is_false(fence:status().is_running)
      assert.has_error(function() fence:call "f" end)
    end)
  end)

  it("ends its process when it is collected", function()
    local pid
    task.run(function()
      local fence = assert(core.fence.start())
      assert(fence:load("return {}", "p.lua", function() end))
      pid = fence:status().pid
    end)
    collectgarbage()
    collectgarbage()
    assert.is_nil(leftovers.process(pid, true))
  end)

  it("starts again when its process was killed", function()
    fences.with(SLOW, function(fence)
      for i = 1, 3 do
        local pid = fence:status().pid
        os.execute("kill -9 " .. pid)
        task.sleep(50)
        assert.is_false(fence:status().is_running)
        assert.are.equal(i, fence:call("f", i).value)
        assert.are.equal(i, fence:status().restarts)
      end
    end)
  end)

  it("says that a call was lost when its process dies in it", function()
    fences.with(SLOW, function(fence)
      local pid = fence:status().pid
      task.spawn(function() os.execute("kill -9 " .. pid) end)
      local _, fault = fence:call("f", 10000000)
      assert.are.same({ kind = "crash", text = "the policy's worker ended unexpectedly" }, fault)
      assert.are.equal(1, fence:call("f", 1).value)
    end, { limits = LIMITS })
  end)

  it("loads again from what was loaded, without find", function()
    local asked = 0
    local function find()
      asked = asked + 1
      return asked == 1 and "return { n = 7 }" or error "asked again"
    end
    fences.with("local m = require 'm' return { f = function() return m.n end, loop = function() while true do end end }",
      function(fence)
      assert.is_nil(fence:call "loop")
      assert.are.equal(7, fence:call("f").value)
      assert.are.equal(1, asked)
    end, { find = find })
  end)

  it("kills a worker that does not come back", function()
    fences.with(SLOW, function(fence)
      os.execute("kill -STOP " .. fence:status().pid)
      local started = task.now_ms()
      local _, fault = fence:call("f", 1)
      local took = task.now_ms() - started
      assert.are.same({ kind = "limit", limit = "wall", text = "it took too long" }, fault)
      assert.is_true(took >= 190 and took < 2000)
      assert.are.equal(1, fence:call("f", 1).value)
    end, { limits = { wall_ms = 200 } })
  end)

  it("faults what waits when it is stopped, and all after it", function()
    fences.with(SLOW, function(fence)
      local faults, tasks = {}, {}
      for i = 1, 5 do
        tasks[i] = task.spawn(function() faults[i] = select(2, fence:call("f", 100000000)) end)
      end
      task.sleep(20)
      fence:stop()
      for _, each in ipairs(tasks) do each:wait() end
      for i = 1, 5 do assert.are.same({ kind = "crash", text = "the fence was stopped" }, faults[i]) end
      assert.are.equal("the fence was stopped", select(2, fence:call "f").text)
    end, { limits = LIMITS })
  end)

  it("can be stopped by find", function()
    task.run(function()
      local fence = assert(core.fence.start())
      local _, fault = fence:load("require 'm'", "p.lua", function()
        fence:stop()
        return "return 1"
      end)
      assert.are.equal("the fence was stopped", fault.text)
      assert.are.equal("the fence was stopped", select(2, pcall(fence.call, fence, "f")) and fault.text)
    end)
  end)
end)

describe("calls", function()
  it("run one after the other, in order", function()
    fences.with(SLOW, function(fence)
      local order, tasks = {}, {}
      for i = 1, 50 do
        tasks[i] = task.spawn(function()
          local outcome = fence:call("f", i)
          order[#order + 1] = outcome.value
        end)
      end
      for _, each in ipairs(tasks) do each:wait() end
      for i = 1, 50 do assert.are.equal(i, order[i]) end
    end)
  end)

  it("go on behind one that hits a limit", function()
    fences.with("return { f = function(n) if n % 3 == 0 then while true do end end return n end }", function(fence)
      local results, tasks = {}, {}
      for i = 1, 12 do
        tasks[i] = task.spawn(function()
          local outcome, fault = fence:call("f", i)
          results[i] = outcome and outcome.value or fault.limit
        end)
      end
      for _, each in ipairs(tasks) do each:wait() end
      for i = 1, 12 do assert.are.equal(i % 3 == 0 and "instructions" or i, results[i]) end
    end)
  end)

  it("beyond 1,024 that wait are refused", function()
    fences.with(SLOW, function(fence)
      local counts, tasks = { ok = 0, refused = 0 }, {}
      for i = 1, 1030 do
        tasks[i] = task.spawn(function()
          local outcome, fault = fence:call("f", i == 1 and 200000 or 1)
          local what = outcome and "ok" or fault.text == "too many calls wait for the policy's worker" and "refused" or fault.text
          counts[what] = (counts[what] or 0) + 1
        end)
      end
      for _, each in ipairs(tasks) do each:wait() end
      assert.are.same({ ok = 1025, refused = 5 }, counts)
    end, { limits = LIMITS })
  end)

  it("leave the queue when they are cancelled, and let the worker finish when they run", function()
    fences.with(SLOW, function(fence)
      local reached = {}
      local function start(n)
        return task.spawn(function()
          fence:call("f", n)
          reached[#reached + 1] = n
        end)
      end
      local running, second, third = start(300000), start(2), start(3)
      task.sleep(5)
      second:cancel()
      running:cancel()
      third:wait()
      running:wait()
      assert.are.same({ 3 }, reached)
      assert.are.equal("text", fence:call("echo", "text").value)
      assert.are.equal(0, fence:status().restarts)
    end, { limits = LIMITS })
  end)

  it("that are cancelled while they hit a limit hurt nobody", function()
    fences.with("return { loop = function() while true do end end, f = function(n) return n end }", function(fence)
      for i = 1, 5 do
        local lost = task.spawn(function() fence:call "loop" end)
        task.sleep(1)
        lost:cancel()
        assert.are.equal(i, assert(fence:call("f", i)).value)
      end
    end)
  end)

  it("that are cancelled while the policy loads leave a fence that can be stopped", function()
    task.run(function()
      local fence = assert(core.fence.start())
      local loading = task.spawn(function() fence:load("for i = 1, 1e6 do end return {}", "p.lua", function() end) end)
      task.sleep(1)
      loading:cancel()
      loading:wait()
      fence:stop()
    end)
  end)

  it("with long strings that are cancelled are forgotten", function()
    fences.with(SLOW, function(fence)
      local long = ("x"):rep(100000)
      local lost = task.spawn(function() fence:call("echo", long) end)
      task.sleep(0)
      lost:cancel()
      assert.are.equal(long, fence:call("echo", long).value)
    end)
  end)
end)

describe("the process", function()
  it("has the channel and nothing else", function()
    fences.with(SLOW, function(fence)
      local pid = fence:status().pid
      assert.are.equal("demilune-fence", (read(("/proc/%d/cmdline"):format(pid)):gsub("%z.*", "")))
      local status = read(("/proc/%d/status"):format(pid))
      assert.are.equal("1", status:match "NoNewPrivs:%s*(%d)")
      assert.are.equal("2", status:match "Seccomp:%s*(%d)")
      assert.are.equal("1", status:match "Threads:%s*(%d+)")
      if build.sanitize ~= "" then return end
      local listing = assert(io.popen(("ls /proc/%d/fd"):format(pid)))
      assert.are.equal("3\n", listing:read "a")
      listing:close()
      local limits = read(("/proc/%d/limits"):format(pid))
      for name, value in pairs {
        ["Max core file size"] = 0, ["Max file size"] = 0, ["Max open files"] = 0, ["Max processes"] = 0,
          ["Max address space"] = 536870912,
      } do
        assert.are.equal(tostring(value), limits:match(name .. "%s+(%d+)%s"))
        assert.are.equal(tostring(value), limits:match(name .. "%s+%d+%s+(%d+)%s"))
      end
    end)
  end)

  it("dies with its parent", function()
    local script = ([[
      package.cpath = %q
      local core = require "demilune.core"
      core.task.run(function()
        local fence = assert(core.fence.start())
        assert(fence:load("return {}", "p.lua", function() end))
        io.write(fence:status().pid, "\n") io.flush()
        os.execute "kill -9 $PPID"
      end)]]):format(package.cpath)
    local path = os.getenv "DML_SPEC_TMP" .. "/parent.lua"
    local file = assert(io.open(path, "w"))
    file:write(script)
    file:close()
    local pipe = assert(io.popen(require("spec.script.harness").interpreter() .. " " .. path .. " 2>/dev/null"))
    local pid = math.tointeger(pipe:read "n")
    pipe:close()
    for _ = 1, 100 do
      if not leftovers.process(pid) then break end
      task.run(function() task.sleep(20) end)
    end
    assert.is_nil(leftovers.process(pid))
  end)

  it("refuses to start by hand", function()
    assert.are.equal(64, select(3, os.execute(build.dir .. "/demilune-fence --what 2>/dev/null")))
    assert.are.equal(78, select(3, os.execute(build.dir .. "/demilune-fence 3</dev/null 2>/dev/null")))
  end)

  it("costs a few microseconds a call, and its memory stays", function()
    fences.with("return { before = function(call) call.args.timeout = 900 end }", function(fence)
      local view = { tool = "run_command", args = { command = "ls -l" }, principal = "local:me", group = { ["@execute"] = true } }
      for _ = 1, 2000 do assert(fence:call("before", view)) end
      local before, started = fence:status().memory_bytes, task.now_ms()
      for _ = 1, 5000 do fence:call("before", view) end
      local mean_us = (task.now_ms() - started) / 5
      print(("note: a call of the fence takes %.1f us"):format(mean_us))
      assert.is_true(fence:status().memory_bytes < before + 2 * 1024 * 1024)
      assert.is_true(mean_us < 2000)
    end)
  end)
end)
