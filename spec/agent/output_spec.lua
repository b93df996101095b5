-- timeout: 120
--- Output that is sent only in part: head, tail, spool file, progress lines.

local core = require "demilune.core"
local harness = require "spec.agent.harness"
local os_calls = require "spec_os"

local run, finish = harness.run, harness.finish
local task = core.task

local MIB = 1024 * 1024
local SPOOL = { stdout_live = 4096, stdout_tail = 12288, stderr_live = 2048, stderr_tail = 6144 }

--- Boxed, for the spool's place is /tmp.
local function boxed(body) return harness.with({ is_boxed = true }, body) end

local function spool(script, channel, options)
  local all = { spool = SPOOL }
  for key, value in pairs(options or {}) do all[key] = value end
  return run(channel, script, all)
end

local function numbers(n)
  local lines = {}
  for i = 1, n do lines[i] = i .. "\n" end
  return table.concat(lines)
end

local function resident_kb(channel)
  return tonumber(run(channel, "grep VmRSS /proc/1/status").stdout:match("%d+"))
end

describe("the output of a command with a spool", function()
  it("comes whole and without a file while it is no more than the live bytes", boxed(function(channel)
    local result = spool("seq 1 500; echo e >&2", channel)
    assert.are.equal(numbers(500), result.stdout)
    assert.are.equal("e\n", result.stderr)
    assert.are.same({ total = #numbers(500), tail = "" }, result.output.stdout)
    assert.are.same({ total = 2, tail = "" }, result.output.stderr)
  end))

  it("has a tail of what came after the live bytes, and a file with everything", boxed(function(channel)
    local whole = numbers(30000)
    local result = spool("seq 1 30000", channel)
    local output = result.output.stdout
    assert.are.equal(whole:sub(1, 4096), result.stdout)
    assert.are.equal(whole:sub(-12288), output.tail)
    assert.are.equal(#whole, output.total)
    assert.truthy(output.path:match("^/tmp/%.demilune/out/[%w%-]+%.stdout$"), output.path)
    assert.are.equal(whole, harness.read(channel, output.path))
    assert.is_nil(result.output.stderr.path)
    assert.are.equal("600 1\n", run(channel, "stat -c '%a %h' " .. output.path).stdout)
    assert.are.equal("700\n700\n", run(channel, "stat -c %a /tmp/.demilune /tmp/.demilune/out").stdout)
  end))

  it("is whole in head and tail when both hold it", boxed(function(channel)
    local whole = numbers(3000)
    local result = spool("seq 1 3000", channel)
    assert.are.equal(whole, result.stdout .. result.output.stdout.tail)
  end))

  it("has a file from just the byte on that spool_at names", boxed(function(channel)
    local limits = { stdout_live = 100, stdout_tail = 100, stdout_spool_at = 150, stderr_live = 0, stderr_tail = 0 }
    local below = run(channel, "head -c 150 /dev/zero", { spool = limits })
    assert.is_nil(below.output.stdout.path)
    local script = "head -c 100 /dev/zero; sleep 0.02; head -c 51 /dev/zero | tr '\\0' x"
    local above = run(channel, script, { spool = limits })
    assert.are.equal(("\0"):rep(100) .. ("x"):rep(51), harness.read(channel, above.output.stdout.path))
  end))

  it("keeps the two outputs apart", boxed(function(channel)
    local result = spool("seq 1 30000; seq 1 20000 >&2", channel)
    assert.are.equal(numbers(20000):sub(1, 2048), result.stderr)
    assert.are.equal(numbers(20000):sub(-6144), result.output.stderr.tail)
    assert.truthy(result.output.stderr.path:match("%.stderr$"))
    assert.are.equal(numbers(20000), harness.read(channel, result.output.stderr.path))
    assert.are.equal(numbers(30000), harness.read(channel, result.output.stdout.path))
  end))

  it("runs at the speed of a pipe, in constant memory, and the file ends at 64 MiB", boxed(function(channel)
    local before = resident_kb(channel)
    local began = task.now_ms()
    local result = spool("head -c 1000000000 /dev/zero; echo end", channel)
    local took = task.now_ms() - began
    assert.are.equal(1000000004, result.output.stdout.total)
    assert.are.equal("end\n", result.output.stdout.tail:sub(-4))
    assert.are.equal(64 * MIB .. "\n", run(channel, "stat -c %s " .. result.output.stdout.path).stdout)
    assert.is_true(took < 20000, took .. " ms")
    assert.is_true(resident_kb(channel) - before < 1024)
  end))

  it("loses its oldest files when all are over 256 MiB", boxed(function(channel)
    local paths = {}
    for i = 1, 5 do paths[i] = spool("head -c 70000000 /dev/zero", channel).output.stdout.path end
    assert.are.equal("not_found", select(2, channel:stat(paths[1])).code)
    for i = 2, 5 do assert.are.equal(64 * MIB, channel:stat(paths[i]).size) end
  end))

  it("does without its file when the disk is full", function()
    if os_calls.ids() ~= 0 then return pending("only root can mount a small disk") end
    harness.with(function(channel)
      local script = "exec 4<" .. harness.path
        .. " && mount -t tmpfs -o size=64k none /tmp && exec /proc/self/fd/4 run --channel 3"
      local ours, theirs = core.sys.socketpair()
      local child = assert(core.process.start { argv = { "/usr/bin/unshare", "-m", "sh", "-c", script },
        fds = { [3] = theirs } })
      core.sys.close(theirs)
      local small = core.agent.attach(ours)
      assert.is_true(small:ready(5000))
      local result = spool("seq 1 100000", small)
      assert.are.equal(0, result.exit.code)
      assert.are.equal(#numbers(100000), result.output.stdout.total)
      assert.is_nil(result.output.stdout.path)
      assert.are.equal(numbers(100000):sub(-12288), result.output.stdout.tail)
      assert.are.equal("0\n", run(small, "ls /tmp/.demilune/out | wc -l").stdout)
      small:close()
      assert.truthy(child:wait(2000))
      assert.truthy(channel)
    end)()
  end)

  it("does without its file when something else is in its place", boxed(function(channel, place)
    run(channel, "ln -s " .. place .. " /tmp/.demilune")
    local result = spool("seq 1 30000", channel)
    assert.are.equal(0, result.exit.code)
    assert.is_nil(result.output.stdout.path)
    assert.are.equal("0\n", run(channel, "ls -A " .. place .. " | wc -l").stdout)
    run(channel, "rm /tmp/.demilune; echo >/tmp/.demilune")
    assert.is_nil(spool("seq 1 30000", channel).output.stdout.path)
  end))

  it("gives its file up, and the command runs on, when it is let go", boxed(function(channel)
    local proc = assert(channel:start { cmd = "sh", args = { "-c", "seq 1 30000; sleep 0.1; echo >/tmp/done" },
      spool = SPOOL })
    task.sleep(50)
    proc:detach()
    task.sleep(200)
    assert.truthy(channel:stat("/tmp/done"))
    assert.are.equal("0\n", run(channel, "ls /tmp/.demilune/out | wc -l").stdout)
  end))
end)

describe("progress lines", function()
  it("are the newest whole lines once the live bytes are used up, five a second", boxed(function(channel)
    local script = "for i in $(seq 1 50); do echo line $i; sleep 0.02; done; printf unfinished"
    local limits = { stdout_live = 16, stdout_tail = 100, stderr_live = 0, stderr_tail = 0 }
    local result = run(channel, script, { spool = limits, progress = true })
    assert.is_true(#result.lines >= 3 and #result.lines <= 9, #result.lines .. " lines")
    local last = 2
    for _, line in ipairs(result.lines) do
      local number = tonumber(line:match("^line (%d+)$"))
      assert.is_true(number > last)
      last = number
    end
  end))

  it("are cut at a character border, without their line break", boxed(function(channel)
    local limits = { stdout_live = 0, stdout_tail = 100, stderr_live = 0, stderr_tail = 0 }
    local result = run(channel, "perl -e 'print \"x\", \"\\xc3\\xa9\" x 200, \"\\r\\n\\n\"'; sleep 0.3",
      { spool = limits, progress = true })
    assert.are.same({ "x" .. ("é"):rep(99) }, result.lines)
  end))

  it("are not sent unless they are asked for", boxed(function(channel)
    assert.are.same({}, spool("for i in 1 2 3; do seq 1 3000; sleep 0.05; done", channel).lines)
  end))
end)

describe("live output", function()
  it("comes byte for byte, 100 MB of it", boxed(function(channel, place)
    local bytes = harness.noise(10000000)
    harness.spill(place .. "/noise", bytes)
    local proc = assert(channel:start { cmd = "sh", cwd = place,
      args = { "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do cat noise; done" } })
    local began = task.now_ms()
    local result = finish(proc)
    local took = task.now_ms() - began
    assert.are.equal(core.crypto.sha256(bytes:rep(10)), core.crypto.sha256(result.stdout))
    assert.is_true(took < 20000, took .. " ms")
  end))
end)
