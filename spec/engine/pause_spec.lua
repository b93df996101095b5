--- Sandboxes that are paused and go on: every process stands, nothing is lost, and a paused one can be ended.

local core = require "demilune.core"
local leftovers = require "spec.support.leftovers"
local os_calls = require "spec_os"
local support = require "spec.engine.support"

local task = core.task

describe("pause and resume of the engine", function()
  local engine, base

  setup(function()
    engine = support.start()
    base = {}
    for _, process in ipairs(leftovers.tree(engine.program.pid)) do base[process.pid] = true end
  end)
  teardown(function() engine:stop() end)

  -- What a case that failed left would spoil the next.
  after_each(function()
    support.run(function()
      for _, sandbox in ipairs(select(2, engine:call("GET", "/v2/sandboxes"))) do
        engine:call("DELETE", "/sandboxes/" .. sandbox.sandboxID)
      end
    end)
  end)

  local function within(fn) return function() support.run(fn) end end

  --- The processes of all sandboxes of the engine.
  local function inside()
    local found = {}
    for _, process in ipairs(leftovers.tree(engine.program.pid)) do
      if not base[process.pid] then found[#found + 1] = process end
    end
    return found
  end

  --- The processor time of them all.
  local function ticks()
    local sum = 0
    for _, process in ipairs(inside()) do
      local file = io.open(("/proc/%d/stat"):format(process.pid))
      local fields = {}
      for field in (file and file:read "a" or ""):gsub("^.*%) ", ""):gmatch "%S+" do fields[#fields + 1] = field end
      if file then file:close() end
      sum = sum + (tonumber(fields[12]) or 0) + (tonumber(fields[13]) or 0)
    end
    return sum
  end

  local function path_of(sandbox, rest) return "/sandboxes/" .. sandbox.id .. (rest or "") end

  local function pause(sandbox) return (engine:call("POST", path_of(sandbox, "/pause"), {})) end

  local function state_of(sandbox)
    local status, shown = engine:call("GET", path_of(sandbox))
    return status == 200 and shown.state or status
  end

  local COUNT = "i=0; while :; do i=$((i+1)); echo $i > n; done"

  --- Starts a command that is left running.
  local function leave(sandbox, command)
    local res, next_frame = sandbox:open("process.Process/Start", support.shell(command))
    assert.is_true(next_frame().message.event.start.pid > 0)
    return res, next_frame
  end

  it("stops every process, also of groups and sessions of their own, and goes on where they were", within(function()
    local sandbox = engine:create()
    local stream = leave(sandbox, COUNT)
    leave(sandbox, "setsid sh -c 'while :; do :; done' & (trap '' TERM TSTP; while :; do :; done) & sleep 900"):close()
    task.sleep(100)
    assert.are.equal(204, pause(sandbox))
    assert.are.equal("paused", state_of(sandbox))
    local processes = inside()
    assert.is_true(#processes >= 6)
    local before = ticks()
    task.sleep(200)
    assert.are.equal(before, ticks())
    local _, known = engine:call("GET", "/demilune")
    if known.pause == "signals" then
      for _, process in ipairs(processes) do assert.are.equal("T", process.state, process.name) end
    end
    assert.are.equal(201, (engine:call("POST", path_of(sandbox, "/connect"), { timeout = 60 })))
    assert.are.equal("running", state_of(sandbox))
    local first = tonumber(sandbox:read("n").body) or 0
    assert.is_true(support.eventually(function() return (tonumber(sandbox:read("n").body) or 0) > first end))
    assert.is_true(support.eventually(function() return ticks() > before end))
    stream:close()
    sandbox:kill()
  end))

  it("stops what forks and ends without pause", within(function()
    local sandbox = engine:create()
    leave(sandbox, "export c='echo x >> log; exec setsid sh -c \"$c\" & '; sh -c \"$c\"; sleep 900"):close()
    task.sleep(100)
    assert.are.equal(204, pause(sandbox))
    local before, count = ticks(), #inside()
    task.sleep(200)
    assert.are.same({ before, count }, { ticks(), #inside() })
    assert.are.equal(204, (sandbox:kill()))
    assert.is_true(support.eventually(function() return #inside() == 0 end, 2000))
  end))

  it("lets a stopped job stay stopped, and tells a shell nothing", within(function()
    local sandbox = engine:create()
    local _, next_frame = leave(sandbox, [[
      set -m
      sleep 901 & job=$!
      kill -STOP $job
      (sleep 0.4; echo woke) & wait $!; echo "waited $?"
      grep State /proc/$job/status
      kill -KILL $job]])
    task.sleep(150)
    assert.are.equal(204, pause(sandbox))
    task.sleep(500)
    assert.are.equal(201, (engine:call("POST", path_of(sandbox, "/connect"), { timeout = 60 })))
    local text = ""
    for frame in next_frame do
      if frame.flags == 2 then break end
      local data = frame.message.event.data
      if data and data.stdout then text = text .. core.crypto.unbase64(data.stdout) end
    end
    assert.truthy(text:find "woke")
    assert.truthy(text:find "waited 0")
    assert.truthy(text:find "State:%s+T")
    sandbox:kill()
  end))

  it("answers as E2B does while it stands, and twice", within(function()
    local sandbox = engine:create()
    assert.are.equal(204, pause(sandbox))
    local status, fault = engine:call("POST", path_of(sandbox, "/pause"), {})
    assert.are.same({ 409, "conflict" }, { status, fault.error_code })
    for _, call in ipairs { "timeout", "refreshes" } do
      assert.are.equal(409, (engine:call("POST", path_of(sandbox, "/" .. call), { timeout = 5, duration = 5 })))
    end
    local refused, why = sandbox:unary("process.Process/List")
    assert.are.same({ 502, "The sandbox was not found", "sandbox_paused", sandbox.id },
      { refused, why.message, why.error_code, why.sandboxId })
    assert.are.equal(502, assert(sandbox:request("GET", "/health")).status)
    assert.are.equal(502, sandbox:read("x").status)
    local _, running = engine:call("GET", "/v2/sandboxes?state=running")
    local _, paused = engine:call("GET", "/v2/sandboxes?state=paused")
    local _, both = engine:call("GET", "/v2/sandboxes")
    assert.are.same({ 0, 1, 1 }, { #running, #paused, #both })
    assert.are.equal("paused", paused[1].state)
    assert.are.same({}, (select(2, engine:call("GET", "/sandboxes"))))
    assert.are.equal(201, (engine:call("POST", path_of(sandbox, "/resume"), { timeout = 30 })))
    assert.are.equal(409, (engine:call("POST", path_of(sandbox, "/resume"), { timeout = 30 })))
    assert.are.equal(200, (engine:call("POST", path_of(sandbox, "/connect"), { timeout = 30 })))
    assert.are.equal("x\n", sandbox:start("echo x").stdout)
    for _, body in ipairs { { memory = false }, { memory = 1 } } do
      assert.are.equal(400, (engine:call("POST", path_of(sandbox, "/pause"), body)))
    end
    assert.are.equal(404, (engine:call("POST", "/sandboxes/iaaaaaaaaaaaaaaaaaaa/pause", {})))
    sandbox:kill()
    assert.are.equal(404, (engine:call("POST", path_of(sandbox, "/pause"), {})))
  end))

  it("keeps a paused sandbox past its time, and gives it the time that a resume says", within(function()
    local sandbox = engine:create { timeout = 1 }
    assert.are.equal(204, pause(sandbox))
    task.sleep(1300)
    local _, shown = engine:call("GET", path_of(sandbox))
    assert.are.equal("paused", shown.state)
    assert.is_true(shown.endAt > task.iso(task.epoch_ms() + 86000 * 1000))
    assert.is_true(shown.endAt < task.iso(task.epoch_ms() + 86401 * 1000))
    assert.are.equal(201, (engine:call("POST", path_of(sandbox, "/connect"), { timeout = 1 })))
    assert.is_true(support.eventually(function() return state_of(sandbox) == 404 end, 2500))
  end))

  it("pauses at the end of its time what asked for it, and wakes what asked for that", within(function()
    local plain = engine:create { timeout = 1, autoPause = true }
    local waking = engine:create { timeout = 1, autoPause = true, autoResume = { enabled = true } }
    local _, shown = engine:call("GET", path_of(waking))
    assert.are.same({ autoResume = true, onTimeout = "pause" }, shown.lifecycle)
    assert.is_true(support.eventually(function()
      return state_of(plain) == "paused" and state_of(waking) == "paused"
    end, 3000))
    assert.are.equal(502, assert(plain:request("GET", "/health")).status)
    local starts = {}
    for i = 1, 4 do starts[i] = task.spawn(function() return waking:start("echo woken").stdout end) end
    for _, handle in ipairs(starts) do assert.are.equal("woken\n", (select(2, handle:wait()))) end
    assert.are.equal("running", state_of(waking))
    assert.is_true(support.eventually(function() return state_of(waking) == "paused" end, 3000))
    plain:kill()
    waking:kill()
    assert.is_true(support.eventually(function() return #inside() == 0 end, 2000))
  end))

  it("ends a paused sandbox at once: a kill, a broken lease, the agent's death", within(function()
    local id = ("b"):rep(16)
    local lease, hello = engine:lease(id)
    assert.are.equal("ok\n", hello)
    local leased, killed = engine:create { demilune = { lease = id } }, engine:create()
    for _, sandbox in ipairs { leased, killed } do
      leave(sandbox, COUNT):close()
      assert.are.equal(204, pause(sandbox))
    end
    assert.are.equal(204, (killed:kill()))
    assert.are.equal(404, state_of(killed))
    assert.are.equal("paused", state_of(leased))
    lease:close()
    assert.is_true(support.eventually(function() return state_of(leased) == 404 and #inside() == 0 end, 3000))
    local shot = engine:create()
    assert.are.equal(204, pause(shot))
    for _, process in ipairs(inside()) do
      if process.name ~= "bwrap" then os_calls.kill(process.pid, 9) end
    end
    assert.is_true(support.eventually(function() return state_of(shot) == 404 and #inside() == 0 end, 3000))
  end))

  it("serves many that pause, resume and end at the same time, and leaves nothing", within(function()
    local handles = {}
    for i = 1, 6 do
      handles[i] = task.spawn(function()
        local sandbox = engine:create()
        leave(sandbox, COUNT):close()
        local calls = {}
        for n = 1, 6 do
          local call = n % 2 == 0 and "/pause" or "/connect"
          calls[n] = task.spawn(function()
            return (engine:call("POST", path_of(sandbox, call), { timeout = 60 }))
          end)
        end
        for _, call in ipairs(calls) do
          local _, status = call:wait()
          assert.is_true(status == 200 or status == 201 or status == 204 or status == 409, tostring(status))
        end
        local dying = task.spawn(pause, sandbox)
        sandbox:kill()
        dying:wait()
        assert.are.equal(404, state_of(sandbox))
      end)
    end
    for _, handle in ipairs(handles) do assert(handle:wait()) end
    assert.is_true(support.eventually(function() return #inside() == 0 end, 5000))
    local _, known = engine:call("GET", "/demilune")
    assert.are.equal(0, known.sandboxes)
  end))

  it("does not leave it half stopped when the client goes away", within(function()
    local sandbox = engine:create()
    local handle = task.spawn(pause, sandbox)
    task.sleep(1)
    handle:cancel()
    handle:wait()
    assert.is_true(support.eventually(function()
      local state = state_of(sandbox)
      if state == "paused" then engine:call("POST", path_of(sandbox, "/connect"), { timeout = 60 }) end
      return state == "running" and sandbox:start("echo on").stdout == "on\n"
    end, 3000))
    sandbox:kill()
  end))

  it("takes paused sandboxes along when the engine is killed", function()
    local own = support.start()
    local tree
    support.run(function()
      local sandbox = own:create()
      leave(sandbox, COUNT):close()
      assert.are.equal(204, (own:call("POST", "/sandboxes/" .. sandbox.id .. "/pause", {})))
      tree = leftovers.tree(own.program.pid)
    end)
    assert.is_true(#tree >= 4)
    own:kill()
    assert.is_true(support.run(function()
      return support.eventually(function() return #leftovers.alive(tree) == 0 end, 3000)
    end))
    os.execute("rm -rf '" .. own.home .. "'")
  end)
end)
