--- `demilune-agent launch`: the last step on the host before bubblewrap.

local core = require "demilune.core"
local harness = require "spec.agent.harness"
local os_calls = require "spec_os"

local process, sys, task = core.process, core.sys, core.task

local USAGE, LAUNCH, EXEC = 2, 125, 126
local ID = "65533"

--- Runs `launch` with the arguments: how it ended, its stdout, its stderr.
local function launch(arguments, fds)
  local out_read, out_write = sys.pipe()
  local err_read, err_write = sys.pipe()
  local given = { [1] = out_write, [2] = err_write }
  for child_fd, fd in pairs(fds or {}) do given[child_fd] = fd end
  local argv = { harness.path, "launch", table.unpack(arguments) }
  local ended, stdout, stderr
  task.run(function()
    local child = assert(process.start { argv = argv, fds = given })
    sys.close(out_write)
    sys.close(err_write)
    ended = assert(child:wait(5000))
    stdout, stderr = os_calls.read(out_read), os_calls.read(err_read)
    sys.close(out_read)
    sys.close(err_read)
  end)
  return ended, stdout, stderr
end

local function as_root(body)
  return function()
    if os_calls.ids() ~= 0 then return pending("only root can change to another uid") end
    body()
  end
end

describe("launch", function()
  it("runs the program with its arguments and an empty environment", function()
    local ended, stdout = launch { "--", "/usr/bin/env" }
    assert.are.same({ code = 0 }, { code = ended.code })
    assert.are.equal("", stdout)
    assert.are.equal("a b\n", select(2, launch { "--", "/bin/echo", "a b" }))
  end)

  it("says what cannot be run", function()
    local ended, stdout, stderr = launch { "--", "/no/such/program" }
    assert.are.equal(EXEC, ended.code)
    assert.are.equal("", stdout)
    assert.are.equal("demilune-agent: cannot execute: No such file or directory\n", stderr)
  end)

  it("refuses arguments that are none", function()
    for _, arguments in ipairs { {}, { "--" }, { "--uid", "5", "--", "/bin/true" }, { "--uid", "x", "--" },
      { "--gid", "5", "--", "/bin/true" }, { "--uid", "-1", "--gid", "1", "--", "/bin/true" },
      { "--nonsense", "1", "--", "/bin/true" }, { "--uid" } } do
      assert.are.equal(USAGE, launch(arguments).code)
    end
  end)

  it("takes the uid and gid for good, and no other group", as_root(function()
    local _, stdout = launch { "--uid", ID, "--gid", ID, "--", "/bin/sh", "-c",
      "grep -E '^(Uid|Gid|Groups|CapEff|CapPrm)' /proc/self/status" }
    assert.are.equal(("Uid:\t%s\t%s\t%s\t%s\nGid:\t%s\t%s\t%s\t%s\nGroups:\t \n"):format(ID, ID, ID, ID, ID, ID, ID, ID)
      .. "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n", stdout)
  end))

  it("refuses root as the one to become", as_root(function()
    assert.are.equal(LAUNCH, launch({ "--uid", "0", "--gid", ID, "--", "/bin/true" }).code)
    assert.are.equal(LAUNCH, launch({ "--uid", ID, "--gid", "0", "--", "/bin/true" }).code)
  end))

  it("enters the cgroups it is given and closes them", function()
    -- a pipe stands for cgroup.procs: what counts is what is written there
    local read_end, write_end = sys.pipe()
    local _, stdout = launch({ "--cgroup-procs", "7", "--", "/bin/sh", "-c", "ls /proc/self/fd | tr '\\n' ' '" },
      { [7] = write_end })
    sys.close(write_end)
    assert.are.equal("0", os_calls.read(read_end))
    assert.is_nil(stdout:find("7", 1, true))
    sys.close(read_end)
  end)

  it("fails when a cgroup cannot be entered", function()
    assert.are.equal(LAUNCH, launch({ "--cgroup-procs", "9", "--", "/bin/true" }).code)
  end)

  it("does not outlive its parent, whatever uid it has", function()
    local self = tostring(core.sys.pid())
    assert.are.equal(0, launch({ "--parent", self, "--", "/bin/true" }).code)
    assert.are.equal(LAUNCH, launch({ "--parent", "1", "--", "/bin/true" }).code)
    -- a shell that starts it and is killed takes it along
    local ids = os_calls.ids() == 0 and { "--uid", ID, "--gid", ID } or {}
    local script = ("%s launch %s -- /bin/sleep 60 & echo $!; wait"):format(harness.path, table.concat(ids, " "))
    local out_read, out_write = sys.pipe()
    task.run(function()
      local shell = assert(process.start { argv = { "/bin/sh", "-c", script }, fds = { [1] = out_write } })
      sys.close(out_write)
      local pid
      while not pid do
        task.sleep(5)
        pid = tonumber((os_calls.read(out_read) or ""):match("%d+"))
      end
      task.sleep(50)
      assert.are.equal(0, os_calls.kill(pid, 0))
      shell:kill()
      shell:wait(2000)
      task.sleep(50)
      local stat = harness.slurp(("/proc/%d/stat"):format(pid))
      assert.is_true(stat == nil or stat:match("%) (%a)") == "Z")
      sys.close(out_read)
    end)
  end)
end)

describe("the agent program", function()
  it("says its version", function()
    local pipe = io.popen(harness.path .. " --version")
    assert.truthy(pipe:read("a"):match("^demilune%-agent %d+%.%d+%.%d+\n$"))
    assert.is_true(pipe:close())
  end)

  it("refuses arguments that are none", function()
    for _, arguments in ipairs { "", "walk", "run", "run --channel", "run --channel x", "run --channel 2",
      "run --nproc 5", "run --channel 3 --unknown 1" } do
      local ok, how, code = os.execute(harness.path .. " " .. arguments .. " 2>/dev/null </dev/null")
      assert.are.same({ nil, "exit", USAGE }, { ok, how, code })
    end
  end)

  it("is one static file, loaded at an address of its own", function()
    local pipe = io.popen("readelf -hl " .. harness.path)
    local text = pipe:read("a")
    pipe:close()
    assert.truthy(text:find("Type:%s+DYN"))
    assert.is_nil(text:find("INTERP", 1, true))
  end)

  it("takes little memory when idle", harness.with(function(channel, place, child)
    for _ = 1, 20 do harness.run(channel, "head -c 300000 /dev/zero") end
    assert.truthy(harness.write(channel, place .. "/f", ("x"):rep(3000000)))
    assert.are.equal(3000000, #harness.read(channel, place .. "/f"))
    task.sleep(1300)
    local status = harness.slurp(("/proc/%d/status"):format(child:pid()))
    local resident_kb = tonumber(status:match("VmRSS:%s+(%d+)"))
    assert.is_true(resident_kb <= 1024, resident_kb .. " kB")
  end))
end)
