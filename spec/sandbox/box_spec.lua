-- timeout: 120
--- The life of a sandbox: started, ended from inside and outside, and nothing left of it whatever happens.

local cjson = require "cjson"
local core = require "demilune.core"
local build = require "spec.support.build"
local leftovers = require "spec.support.leftovers"
local os_calls = require "spec_os"
local probe = require "spec.sandbox.probe"

local isolation, task = core.isolation, core.task
local AGENT = build.dir .. "/demilune-agent"
local SIGKILL = 9

local function open(agent_path)
  return assert(isolation.open { state_dir = "/tmp", agent_path = agent_path or AGENT })
end

local function options(name, more)
  local all = { name = name, disk_mb = 16, memory_mb = 128, cpu = 1, pids = 64 }
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

local function first_child(pid)
  local file = io.open(("/proc/%d/task/%d/children"):format(pid, pid))
  local text = file and file:read("a") or ""
  if file then file:close() end
  return math.tointeger(tonumber(text:match("%d+")))
end

--- Starts a box and waits for its agent; returns the box, the channel and the pid of the agent on the host.
local function start(iso, name, more)
  local box = assert(iso:start(options(name, more)))
  local channel = core.agent.attach(box:take_fd())
  assert(channel:ready(5000))
  return box, channel, assert(first_child(box.pid))
end

local function is_gone(pid) return leftovers.process(pid) == nil end

local function all_gone(pids)
  for _, pid in ipairs(pids) do
    if not is_gone(pid) then return false end
  end
  return true
end

local function kernel_uid(pid)
  local file = assert(io.open(("/proc/%d/status"):format(pid)))
  local uid = file:read("a"):match("\nUid:%s*(%d+)")
  file:close()
  return tonumber(uid)
end

--- The groups of one engine, by its pid; others on this machine are not our business.
local function groups_of(pid)
  local found = {}
  for _, path in ipairs(leftovers.cgroups("demilune-")) do
    if path:match("/demilune%-%x+%-" .. ("%x"):format(pid) .. "%-") then found[#found + 1] = path end
  end
  return found
end

local SELF = select(3, os_calls.ids())

describe("isolation", function()
  teardown(function() probe.clear() end)

  it("starts a sandbox whose agent answers, and ends it on request", function()
    task.run(function()
      local iso = open()
      local box, channel, inner = start(iso, "alpha")
      local pid = box.pid
      assert.is_nil(box.fd)
      assert.are.same({ nil, "timeout" }, { box:wait(20) })
      box:kill()
      assert.is_true(box:wait(2000))
      assert.is_true(all_gone { pid, inner })
      assert.is_true(channel:closed(1000))
      assert.is_true(box:release())
      assert.is_true(box:release())
    end)
    assert.are.same({}, groups_of(SELF))
  end)

  it("wakes every task that waits for the end, and none twice", function()
    task.run(function()
      local iso = open()
      local box = start(iso, "waiters")
      local woken = 0
      local tasks = {}
      for i = 1, 5 do
        tasks[i] = task.spawn(function()
          assert(box:wait(2000))
          woken = woken + 1
          box:release()
        end)
      end
      local cancelled = task.spawn(function() box:wait() end)
      task.sleep(10)
      cancelled:cancel()
      box:kill()
      for _, one in ipairs(tasks) do assert.is_true((one:wait(3000))) end
      assert.are.equal(5, woken)
    end)
  end)

  it("ends with its first process, killed from outside", function()
    task.run(function()
      local iso = open()
      local box, channel, inner = start(iso, "inner")
      local proc = assert(channel:start { cmd = "/bin/sleep", args = { "60" }, cwd = "/" })
      local command
      probe.eventually(function()
        command = first_child(inner)
        return command ~= nil
      end)
      os_calls.kill(inner, SIGKILL)
      assert.is_true(box:wait(2000))
      assert.is_true(all_gone { box.pid, inner, command })
      assert.truthy(proc)
      box:release()
    end)
  end)

  it("ends with bubblewrap, killed from outside", function()
    task.run(function()
      local iso = open()
      local box, _, inner = start(iso, "outer")
      os_calls.kill(box.pid, SIGKILL)
      assert.is_true(box:wait(2000))
      assert.is_true(all_gone { inner })
      box:release()
    end)
  end)

  it("gives each sandbox of a root engine a uid of its own", function()
    if not probe.is_root() then return pending("not root") end
    task.run(function()
      local seen, boxes = {}, {}
      local engines = { open(), open() }
      for i = 1, 6 do
        local box, _, inner = start(engines[i % 2 + 1], "uid" .. i)
        local uid = kernel_uid(inner)
        assert.is_true(uid >= 1000)
        assert.is_nil(seen[uid])
        seen[uid], boxes[i] = true, box
      end
      for _, box in ipairs(boxes) do box:release() end
    end)
  end)

  it("leaves nothing of twenty sandboxes started at once, of which some fail", function()
    local before = leftovers.snapshot()
    task.run(function()
      local iso, broken = open(), open("/etc/passwd")
      local tasks, failed = {}, 0
      for i = 1, 20 do
        tasks[i] = task.spawn(function()
          -- Every fifth runs something that is no program, every fourth is killed at once, one name is used twice.
          local engine = i % 5 == 0 and broken or iso
          local box, err = engine:start(options(i == 7 and "many6" or "many" .. i))
          if not box then
            failed = failed + 1
            assert.truthy(err.category)
            return
          end
          if i % 4 == 0 then box:kill() end
          local channel = core.agent.attach(box:take_fd())
          if not channel:ready(5000) then failed = failed + 1 end
          channel:close()
          box:kill()
          assert(box:wait(3000))
          box:release()
        end)
      end
      for _, one in ipairs(tasks) do assert.is_true((one:wait(15000))) end
      assert.is_true(failed >= 8 and failed < 20, tostring(failed))
    end)
    assert.are.same({}, leftovers.since(before))
    assert.are.same({}, groups_of(SELF))
  end)

  it("ends and forgets a sandbox that nobody holds any more", function()
    local before = leftovers.snapshot()
    task.run(function()
      local iso = open()
      local pid = assert(iso:start(options("dropped"))).pid
      collectgarbage()
      collectgarbage()
      assert.is_true(is_gone(pid))
    end)
    assert.are.same({}, leftovers.since(before))
    assert.are.same({}, groups_of(SELF))
  end)

  it("refuses what is not valid", function()
    task.run(function()
      local iso = open()
      for _, name in ipairs { "", "../x", "A", "a b", ("a"):rep(65), "a\0b" } do
        local box, err = iso:start(options(name))
        assert.is_nil(box)
        assert.are.equal("invalid_argument", err.category)
      end
      for _, more in ipairs { { disk_mb = 0 }, { disk_mb = "many" }, { memory_mb = 1 }, { cpu = 0 / 0 }, { cpu = -1 },
        { pids = 0 } } do
        assert.has_error(function() iso:start(options("bad", more)) end)
      end
      assert.has_error(function() iso:start { name = "nodisk" } end)
      local box = assert(iso:start(options("taken")))
      assert.is_number(box.fd)
      os_calls.close(box:take_fd())
      assert.has_error(function() box:take_fd() end)
      box:release()
    end)
  end)

  it("says that an agent is missing when the engine starts", function()
    local iso, err = isolation.open { state_dir = "/tmp", agent_path = "/nonexistent" }
    assert.is_nil(iso)
    assert.are.equal("local_isolation_unavailable", err.category)
  end)

  for _, identity in ipairs(probe.identities()) do
    it("leaves no process when a " .. identity .. " engine is killed, and the next start reaps its groups", function()
      local reader, writer = os_calls.pipe()
      local engine = assert(os_calls.spawn(
        { "/bin/sh", "-c", "exec " .. probe.command(identity, "hold", { count = 3 }) }, {
          "PATH=/usr/local/bin:/usr/bin:/bin",
          "LD_PRELOAD=" .. (os.getenv("LD_PRELOAD") or ""),
          "ASAN_OPTIONS=" .. (os.getenv("ASAN_OPTIONS") or ""),
        }, nil, -1, writer, writer))
      os_calls.close(writer)
      local text = ""
      while not text:find("\n") do
        local more = os_calls.read(reader, 65536)
        assert(more and more ~= "", "the engine said: " .. text)
        text = text .. more
      end
      os_calls.close(reader)
      local held = cjson.decode(text:match("{.*}"))
      assert.are.equal(9, #held.pids)
      assert.is_false(all_gone { held.pids[1] })
      os_calls.kill(engine, SIGKILL)
      assert.is_true(probe.eventually(function() return os_calls.wait(engine) ~= false end))
      assert.is_true(probe.eventually(function() return all_gone(held.pids) end))
      if held.limits.kind ~= "none" then assert.is_true(#groups_of(engine) > 0) end
      task.run(function() open() end)
      assert.are.same({}, groups_of(engine))
    end)
  end

  it("leaves no process of engines killed while they start sandboxes", function()
    for round = 1, 12 do
      local engine = assert(os_calls.spawn(
        { "/bin/sh", "-c", "exec " .. probe.command("plain", "hold", { count = 8 }) },
        { "PATH=/usr/local/bin:/usr/bin:/bin" }, nil, -1, -1, -1))
      os_calls.sleep_ms(8 + round * 5)
      local tree = leftovers.tree(engine)
      os_calls.kill(engine, SIGKILL)
      assert.is_true(probe.eventually(function() return os_calls.wait(engine) ~= false end))
      -- The next engine reaps what --die-with-parent did not catch yet.
      probe.run("plain", "preflight", {})
      assert.is_true(probe.eventually(function() return #leftovers.alive(tree) == 0 end),
        cjson.encode(leftovers.alive(tree)))
    end
  end)
end)
