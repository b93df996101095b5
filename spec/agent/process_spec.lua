--- Commands in the sandbox: start, output, end, signals, followers.

local core = require "demilune.core"
local harness = require "spec.agent.harness"
local os_calls = require "spec_os"

local run, finish, with = harness.run, harness.finish, harness.with
local task = core.task

local SIGKILL, SIGTERM = 9, 15

local function is_alive(pid) return os_calls.kill(pid, 0) ~= nil end

local function wait_until(condition, timeout_ms)
  local deadline = task.now_ms() + timeout_ms
  while not condition() do
    if task.now_ms() > deadline then return false end
    task.sleep(5)
  end
  return true
end

--- The error of a start that must fail.
local function refusal(channel, options)
  local proc, err = channel:start(options)
  assert.is_nil(proc)
  assert.are.equal("agent", err.category)
  return { code = err.code, field = err.field }
end

describe("a command of the agent", function()
  it("gives both outputs and its exit code", with(function(channel)
    local result = run(channel, "echo out; echo err >&2; exit 3")
    assert.are.equal("out\n", result.stdout)
    assert.are.equal("err\n", result.stderr)
    assert.are.same({ type = "exit", code = 3, timed_out = false }, result.exit)
  end))

  it("gives the signal that ended it", with(function(channel)
    assert.are.same({ type = "exit", signal = SIGTERM, timed_out = false }, run(channel, "kill -TERM $$").exit)
  end))

  it("says nothing after its exit but that it is closed", with(function(channel)
    local proc = assert(channel:start { cmd = "true" })
    finish(proc)
    local event, err = proc:next()
    assert.is_nil(event)
    assert.are.equal("closed", err.code)
  end))

  it("is found by the PATH it is given", with(function(channel, place)
    harness.spill(place .. "/thing", "#!/bin/sh\necho found\n")
    os_calls.chmod(place .. "/thing", tonumber("755", 8))
    local proc = assert(channel:start { cmd = "thing", envs = { "PATH=/nowhere:" .. place } })
    assert.are.equal("found\n", finish(proc).stdout)
  end))

  it("says whether the command or its directory is missing", with(function(channel, place)
    harness.spill(place .. "/plain", "x")
    assert.are.same({ code = "not_found", field = "cmd" }, refusal(channel, { cmd = "no-such-command" }))
    assert.are.same({ code = "not_found", field = "cmd" }, refusal(channel, { cmd = "" }))
    assert.are.same({ code = "not_found", field = "cmd" }, refusal(channel, { cmd = "./plane", cwd = place }))
    assert.are.same({ code = "permission", field = "cmd" }, refusal(channel, { cmd = "./plain", cwd = place }))
    assert.are.same({ code = "not_found", field = "cwd" }, refusal(channel, { cmd = "true", cwd = place .. "/no" }))
    assert.are.same({ code = "not_a_directory", field = "cwd" },
      refusal(channel, { cmd = "true", cwd = place .. "/plain" }))
  end))

  it("runs in its cwd with a default environment, its own on top", with(function(channel, place)
    local result = run(channel, "pwd; env | sort", { cwd = place, envs = { "LANG=C", "EXTRA=a=b" } })
    assert.are.equal(place, result.stdout:match("^[^\n]*"))
    for _, line in ipairs { "EXTRA=a=b", "HOME=/home/user", "LANG=C", "LOGNAME=user", "USER=user" } do
      assert.truthy(("\n" .. result.stdout):find("\n" .. line .. "\n", 1, true), line)
    end
    assert.truthy(result.stdout:find("\nPATH=/usr/local/sbin:", 1, true))
    assert.is_nil(result.stdout:find("DML_BUILD_DIR", 1, true))
  end))

  it("has stdin from /dev/null, default signals and no other descriptor", with(function(channel)
    local result = run(channel, [[
      readlink /proc/self/fd/0; ls /proc/$$/fd | tr '\n' ' '; echo
      grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\n'; echo; ps -o pid=,pgid=,sid= -p $$]])
    local stdin, fds, signals, ids = result.stdout:match("([^\n]*)\n([^\n]*)\n([^\n]*)\n%s*([^\n]*)")
    assert.are.equal("/dev/null", stdin)
    assert.are.equal("0 1 2 ", fds)
    assert.are.equal("SigBlk:\t0000000000000000SigIgn:\t0000000000000000", signals)
    local pid, group, session = ids:match("(%d+)%s+(%d+)%s+(%d+)")
    assert.are.same({ pid, pid }, { group, session })
  end))

  it("reads the stdin it is written, to the end that it is told", with(function(channel)
    local proc = assert(channel:start { cmd = "sha256sum", stdin = true })
    local bytes = harness.noise(3000000)
    assert.is_true(proc:write(bytes))
    assert.is_true(proc:close_stdin())
    assert.are.equal(core.crypto.sha256(bytes), finish(proc).stdout:match("^%x+"))
    assert.are.equal("closed", select(2, proc:write("late")).code)
  end))

  it("does not hold up a writer whose reader has gone", with(function(channel)
    local proc = assert(channel:start { cmd = "sh", args = { "-c", "exec <&-; sleep 0.2" }, stdin = true })
    proc:write(("x"):rep(2000000))
    assert.are.equal(0, finish(proc).exit.code)
  end))

  it("makes a writer wait while the command does not read, and frees it at the end", with(function(channel)
    local proc = assert(channel:start { cmd = "sleep", args = { "0.2" }, stdin = true })
    local began = task.now_ms()
    local ok, err = proc:write(("x"):rep(2000000))
    assert.is_true(ok or err.code == "closed")
    local took = task.now_ms() - began
    assert.is_true(took >= 150 and took < 2000, took .. " ms")
  end))

  it("is stopped by its full pipe while nobody reads", with(function(channel, place)
    local proc = assert(channel:start { cmd = "sh",
      args = { "-c", "head -c 2000000 /dev/zero; echo done >" .. place .. "/done" } })
    task.sleep(150)
    assert.is_nil(harness.slurp(place .. "/done"))
    assert.are.equal(2000000, #finish(proc).stdout)
    assert.are.equal("done\n", harness.slurp(place .. "/done"))
  end))

  it("is over when the shell is, though a child still holds its pipes", with(function(channel, place)
    local began = task.now_ms()
    local result = run(channel,
      ("(sleep 0.3; head -c 300000 /dev/zero; echo $? >%s/status) & echo first"):format(place))
    assert.are.equal("first\n", result.stdout)
    assert.is_true(task.now_ms() - began < 250)
    -- the child is neither blocked nor killed by its pipe
    assert.is_true(wait_until(function() return harness.slurp(place .. "/status") end, 5000))
    task.sleep(10)
    assert.are.equal("0\n", harness.slurp(place .. "/status"))
  end))

  it("loses nothing that it wrote before it ended", with(function(channel)
    for _ = 1, 50 do assert.are.equal(60000, #run(channel, "head -c 60000 /dev/zero").stdout) end
  end))

  it("is killed with its whole group at its timeout", with(function(channel, place)
    local began = task.now_ms()
    local result = run(channel, ("echo begun; sleep 60 & echo $! >%s/child; sleep 60"):format(place),
      { timeout_ms = 150 })
    local took = task.now_ms() - began
    assert.are.same({ type = "exit", signal = SIGKILL, timed_out = true }, result.exit)
    assert.are.equal("begun\n", result.stdout)
    assert.is_true(took >= 150 and took < 1000, took .. " ms")
    local child = tonumber(harness.slurp(place .. "/child"))
    assert.is_true(wait_until(function() return not is_alive(child) end, 1000))
  end))

  it("gets signals as a group", with(function(channel, place)
    local proc = assert(channel:start { cmd = "sh",
      args = { "-c", ("sleep 60 & echo $! >%s/child; echo up; wait"):format(place) } })
    assert.are.equal("up\n", proc:next(2000).data)
    local child = tonumber(harness.slurp(place .. "/child"))
    assert.is_true(channel:signal(proc.pid, SIGTERM))
    assert.are.equal(SIGTERM, finish(proc).exit.signal)
    assert.is_true(wait_until(function() return not is_alive(child) end, 1000))
    assert.are.equal("not_found", select(2, channel:signal(proc.pid, SIGTERM)).code)
    assert.are.equal("not_found", select(2, channel:signal(999999999, SIGTERM)).code)
  end))

  it("can be followed by pid and by tag, from then on", with(function(channel)
    local proc = assert(channel:start { cmd = "sh", args = { "-c", "echo one; read x; echo $x; exit 5" }, stdin = true,
      tag = "job" })
    assert.are.equal("one\n", proc:next(2000).data)
    local by_pid, by_tag = assert(channel:connect(proc.pid)), assert(channel:connect("job"))
    assert.are.equal(proc.pid, by_tag.pid)
    by_tag:write("two\n")
    for _, follower in ipairs { proc, by_pid, by_tag } do
      local result = finish(follower)
      assert.are.equal("two\n", result.stdout)
      assert.are.equal(5, result.exit.code)
    end
  end))

  it("takes no more writers once a megabyte waits for its stdin", with(function(channel)
    local proc = assert(channel:start { cmd = "sleep", args = { "60" }, stdin = true })
    local writers = 0
    local writer, err = channel:connect(proc.pid)
    while writer do
      writers = writers + 1
      assert.is_true(writer:write(("x"):rep(200000)))
      writer:detach()
      writer, err = channel:connect(proc.pid)
    end
    assert.are.equal("exhausted", err.code)
    assert.is_true(writers >= 5 and writers <= 7, writers .. " writers")
    channel:signal(proc.pid, SIGKILL)
    assert.are.equal(SIGKILL, finish(proc).exit.signal)
  end))

  it("leaves its exit for those who come a little late", with(function(channel)
    local proc = assert(channel:start { cmd = "sh", args = { "-c", "exit 7" }, tag = "late" })
    finish(proc)
    assert.are.equal(7, finish(assert(channel:connect("late"))).exit.code)
    assert.are.equal("not_found", select(2, channel:connect("other")).code)
    assert.are.equal("not_found", select(2, channel:connect(999999999)).code)
  end))

  it("runs on when it is let go, and its output goes nowhere", with(function(channel, place)
    local proc = assert(channel:start { cmd = "sh",
      args = { "-c", "head -c 1000000 /dev/zero; echo done >" .. place .. "/done" } })
    proc:detach()
    assert.are.equal("closed", select(2, proc:next()).code)
    assert.is_true(wait_until(function() return harness.slurp(place .. "/done") end, 3000))
  end))

  it("is listed while it runs", with(function(channel, place)
    local args = { "-c", "sleep 60", "" }
    local proc = assert(channel:start { cmd = "sh", args = args, cwd = place, tag = "s", envs = { "A=secret" } })
    assert.are.same({ { pid = proc.pid, cmd = "sh", args = args, cwd = place, tag = "s" } }, channel:processes())
    channel:signal(proc.pid, SIGKILL)
    finish(proc)
    assert.are.same({}, channel:processes())
    local bare = assert(channel:start { cmd = "cat", stdin = true })
    assert.are.same({ { pid = bare.pid, cmd = "cat", args = {} } }, channel:processes())
    bare:close_stdin()
    finish(bare)
  end))

  it("may run a hundred times at once", with(function(channel)
    local procs = {}
    for i = 1, 100 do
      local script = "read x; echo " .. i .. "; exit " .. i
      procs[i] = assert(channel:start { cmd = "sh", args = { "-c", script }, stdin = true })
    end
    assert.are.equal(100, #channel:processes())
    for i = 1, 100 do procs[i]:close_stdin() end
    for i = 1, 100 do
      local result = finish(procs[i])
      assert.are.equal(i .. "\n", result.stdout)
      assert.are.equal(i, result.exit.code)
    end
  end))

  it("takes two megabytes of arguments and variables, no more", with(function(channel)
    local envs = {}
    for i = 1, 40 do envs[i] = ("V%d=%s"):format(i, ("x"):rep(32768)) end
    assert.are.equal("32768\n", run(channel, "printf %s \"$V40\" | wc -c", { envs = envs }).stdout)
    for i = 41, 70 do envs[i] = ("V%d=%s"):format(i, ("x"):rep(32768)) end
    assert.are.equal("too_large", refusal(channel, { cmd = "true", envs = envs }).code)
    assert.are.same({ code = "too_large", field = "cmd" },
      refusal(channel, { cmd = "true", args = { ("x"):rep(200000) } }))
  end))

  it("is refused when its environment is none", with(function(channel)
    assert.are.equal("invalid", refusal(channel, { cmd = "true", envs = { "NAME" } }).code)
    assert.are.equal("invalid", refusal(channel, { cmd = "true", envs = { "=value" } }).code)
  end))

  it("has the limits that the agent was given", with({ limits = { "--nofile", "77", "--fsize-bytes", "4096" } },
    function(channel, place)
      assert.are.equal("77\n8\n0\n", run(channel, "ulimit -n; ulimit -f; ulimit -c").stdout)
      local result = run(channel, "head -c 9000 /dev/zero >big; wc -c <big", { cwd = place })
      assert.are.equal("4096\n", result.stdout)
    end))

  it("ends with the agent's channel, in whatever group it is", function()
    local pids = {}
    with(function(channel, place)
      run(channel, "setsid sh -c 'echo $$ >a; sleep 60' & sleep 60 & echo $! >b; sleep 0.1", { cwd = place })
      assert(channel:start { cmd = "sh", args = { "-c", ("echo $$ >%s/c; exec sleep 60"):format(place) } })
      assert.is_true(wait_until(function()
        for i, name in ipairs { "a", "b", "c" } do pids[i] = tonumber(harness.slurp(place .. "/" .. name) or "") end
        return #pids == 3
      end, 2000))
    end)()
    for _, pid in ipairs(pids) do assert.is_false(is_alive(pid)) end
  end)

  it("gives its waiter an error when the agent dies", with(function(channel, _, child)
    local proc = assert(channel:start { cmd = "sleep", args = { "60" } })
    local waiter = task.spawn(function() return proc:next() end)
    task.sleep(10)
    child:kill(SIGKILL)
    local _, event, err = waiter:wait(2000)
    assert.is_nil(event)
    assert.are.equal("closed", err.code)
    assert.is_true(channel:closed(1000))
    assert.are.equal("closed", select(2, channel:stat("/")).code)
  end))

  it("goes on when the task that waits for it is cancelled", with(function(channel)
    local proc = assert(channel:start { cmd = "sh", args = { "-c", "sleep 0.1; echo late" } })
    local waiter = task.spawn(function() return proc:next() end)
    task.sleep(10)
    waiter:cancel()
    assert.is_false((waiter:wait(1000)))
    assert.are.equal("late\n", finish(proc).stdout)
  end))

  it("is written to by one task while another, that reads, is cancelled", with(function(channel)
    local proc = assert(channel:start { cmd = "sh", args = { "-c", "sleep 0.1; wc -c" }, stdin = true })
    local writer = task.spawn(function() return proc:write(("x"):rep(1000000)) end)
    local reader = task.spawn(function() return proc:next() end)
    task.sleep(10)
    reader:cancel()
    assert.are.same({ true, true }, { writer:wait(5000) })
    proc:close_stdin()
    assert.are.equal("1000000\n", finish(proc).stdout)
  end))

  it("waits no longer than it is told", with(function(channel)
    local proc = assert(channel:start { cmd = "sleep", args = { "0.3" } })
    local began = task.now_ms()
    local event, why = proc:next(50)
    local took = task.now_ms() - began
    assert.is_nil(event)
    assert.are.equal("timeout", why)
    assert.is_true(took >= 45 and took < 250, took .. " ms")
    assert.are.equal(0, finish(proc).exit.code)
  end))
end)
