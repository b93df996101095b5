-- timeout: 120
--- Long names of control characters in one sandbox became hundreds of megabytes of JSON in the engine, which all sandboxes
--- share, and kept it from serving the others for seconds.

-- Under a sanitizer memory says nothing.
local IS_MEASURED = require("spec.support.build").sanitize == ""

local core = require "demilune.core"
local support = require "spec.engine.support"

--- Resident MiB of a process.
local function resident_mb(pid)
  for line in io.lines("/proc/" .. pid .. "/status") do
    local kib = line:match "^VmRSS:%s+(%d+) kB"
    if kib then return math.tointeger(kib) // 1024 end
  end
end

local PLANT = [[
import os
d = '/home/user'
for i in range(5):
  d += '/' + '\x01' * 255
  os.mkdir(d)
os.chdir(d)
for i in range(5000): open('%05d' % i + '\x01' * 250, 'w').close()
]]

describe("listings of hostile names", function()
  local engine
  setup(function() engine = support.start() end)
  teardown(function() engine:stop() end)

  local LIST = "filesystem.Filesystem/ListDir"

  it("are bounded, leave the engine small, and do not hold up other sandboxes", function()
    support.run(function()
      local hostile, other = engine:create(), engine:create()
      local run = hostile:start({ process = { cmd = "/usr/bin/python3", args = core.json.array { "-c", PLANT } }, stdin = false })
      assert.are.equal("", run.stderr)
      local lists, slowest_ms, peak_mb, is_over = {}, 0, 0, false
      for i = 1, 6 do
        lists[i] = core.task.spawn(function()
          local res = assert(hostile:request("POST", "/" .. LIST, {
            headers = { ["Content-Type"] = "application/json" }, body = '{"path":"/home/user","depth":64,"limit":10000}',
            timeout_ms = 60000,
          }))
          return res.status, #res.body, core.json.decode(res.body)
        end)
      end
      local prober = core.task.spawn(function()
        while not is_over do
          local from = core.task.now_ms()
          assert(other:start("true")["end"])
          slowest_ms = math.max(slowest_ms, core.task.now_ms() - from)
          peak_mb = math.max(peak_mb, resident_mb(engine.program.pid))
        end
      end)
      for _, list in ipairs(lists) do
        local ok, status, size, body = list:wait()
        assert.are.same({ true, 200 }, { ok, status })
        assert.is_true(size <= 3 * 1024 * 1024 + 100, size)
        assert.is_true(#body.entries > 0 and #body.entries < 5005)
        assert.are.equal(5005, body.total)
      end
      is_over = true
      assert.is_true((prober:wait()))
      local after_mb
      support.eventually(function()
        after_mb = resident_mb(engine.program.pid)
        return after_mb < 24 or not IS_MEASURED
      end)
      print(("note: engine among hostile names: slowest call beside it %d ms, peak %d MiB, after it %d MiB"):format(
        slowest_ms, peak_mb, after_mb))
      assert.is_true(slowest_ms < 1000, slowest_ms)
      if IS_MEASURED then
        assert.is_true(peak_mb < 120, peak_mb)
        assert.is_true(after_mb < 24, after_mb)
      end
      hostile:kill()
      other:kill()
    end)
  end)

  it("are whole for ordinary names", function()
    support.run(function()
      local sandbox = engine:create()
      assert.are.equal(0, sandbox:start("seq -f 'file-%05.0f.txt' 1 9000 | xargs touch")["end"].exitCode or 0)
      local status, body = sandbox:unary(LIST, { path = "/home/user", depth = 64, limit = 10000 })
      assert.are.same({ 200, 9000, 9000 }, { status, #body.entries, body.total })
      sandbox:kill()
    end)
  end)

  it("wait for each other in one sandbox, and stop waiting when their client goes", function()
    support.run(function()
      local sandbox = engine:create()
      assert(sandbox:start("seq 1 9000 | xargs touch")["end"])
      local lists = {}
      for i = 1, 12 do
        lists[i] = core.task.spawn(function()
          return (sandbox:unary(LIST, { path = "/home/user", depth = 64, limit = 10000 }))
        end)
      end
      core.task.sleep(20)
      for i = 1, 12, 2 do lists[i]:cancel() end
      for i = 2, 12, 2 do assert.are.same({ true, 200 }, { lists[i]:wait() }) end
      assert.are.equal(200, (sandbox:unary(LIST, { path = "/home/user", depth = 64, limit = 10000 })))
      sandbox:kill()
    end)
  end)
end)
