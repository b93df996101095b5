--- The shell scripts that the e2b driver runs beside a command, on real processes.

local core = require "demilune.core"
local processes = require "demilune.e2b.processes"
local sweep = require "demilune.e2b.sweep"
local text = require "demilune.text"

--- Runs a shell command and returns what it prints.
local function sh(command)
  local pipe = assert(io.popen("exec 2>/dev/null; " .. command))
  local out = pipe:read "a"
  pipe:close()
  return out
end

local function script(source, ...)
  local words = { "timeout 20 /bin/sh -c", text.quote(source), "sh" }
  for _, word in ipairs { ... } do words[#words + 1] = text.quote(word) end
  return sh(table.concat(words, " "))
end

--- Ended ones may stand there until somebody waits for them.
local function is_alive(pid) return sh(("grep '^State:.[^ZX]' /proc/%d/status"):format(pid)) ~= "" end

--- Whether it has ended by now or soon: a signal takes its time.
local function ends(pid)
  for _ = 1, 200 do
    if not is_alive(pid) then return true end
    os.execute "sleep 0.01"
  end
  return false
end

--- Starts `command` as a driver does, with a mark in its environment; its pid, and those that it prints, one a line.
local function start(mark, command, count)
  local file = os.tmpname()
  local words = text.quote("echo $$; " .. command)
  os.execute(("DEMILUNE_RUN=%s setsid sh -c %s >%s 2>/dev/null </dev/null &"):format(mark, words, file))
  local pids = {}
  for _ = 1, 200 do
    pids = {}
    for line in sh("cat " .. file):gmatch "%d+" do pids[#pids + 1] = math.tointeger(tonumber(line)) end
    if #pids == count + 1 then break end
    os.execute "sleep 0.01"
  end
  os.remove(file)
  assert.are.equal(count + 1, #pids)
  return pids
end

describe("the sweep", function()
  it("ends a shell and all that came of it, wherever that went, and nothing else", function()
    local pids = start("markone", [[sleep 61 & echo $!; setsid sleep 62 & echo $!; (sleep 63 & echo $!)
      env -i sleep 64 & echo $!; env -i sh -c 'sleep 65 & echo $!; wait' & echo $!; wait]], 6)
    local others = start("marktwo", "wait; sleep 66 & echo $!; wait", 1)
    os.execute "sleep 0.05"
    script(sweep.SCRIPT, "markone", sweep.SCRIPT)
    for i, pid in ipairs(pids) do assert.is_true(ends(pid), i) end
    for i, pid in ipairs(others) do assert.is_true(is_alive(pid), i) end
    script(sweep.SCRIPT, "marktwo", sweep.SCRIPT)
    for i, pid in ipairs(others) do assert.is_true(ends(pid), i) end
  end)

  it("ends what the shell left behind", function()
    local pids = start("markthree", "sleep 67 & echo $!; exit 3", 1)
    assert.is_true(is_alive(pids[2]))
    script(sweep.SCRIPT, "markthree", sweep.SCRIPT)
    assert.is_true(ends(pids[2]))
  end)

  it("is over at once where there is nothing", function()
    local from = core.task.now_ms()
    assert.are.equal("", script(sweep.SCRIPT, "no-such-mark", sweep.SCRIPT))
    assert.is_true(core.task.now_ms() - from < 2000)
  end)
end)

describe("the look at a process", function()
  it("tells the wait status of one that has ended and was not waited for", function()
    local parent = [[import os, sys, time
for how in (3, 0, None):
    pid = os.fork()
    if pid == 0:
        os._exit(how) if how is not None else os.kill(os.getpid(), 9)
    print(pid, flush=True)
time.sleep(20)]]
    local file = os.tmpname()
    os.execute(("timeout 20 python3 -c %s >%s & echo $! >%s.pid"):format(text.quote(parent), file, file))
    local pids
    for _ = 1, 300 do
      pids = {}
      for pid in sh("cat " .. file):gmatch "%d+" do pids[#pids + 1] = pid end
      if #pids == 3 and script(processes.LOOK, pids[3]) ~= "" then break end
      os.execute "sleep 0.01"
    end
    local said = { script(processes.LOOK, pids[1]), script(processes.LOOK, pids[2]), script(processes.LOOK, pids[3]) }
    os.execute(("kill $(cat %s.pid); rm -f %s %s.pid"):format(file, file, file))
    assert.are.same({ "ended 768\n", "ended 0\n", "ended 9\n" }, said)
  end)

  it("tells nothing of one that runs, nor of one that is not there", function()
    assert.are.equal("", script(processes.LOOK, "1"))
    assert.are.equal("", script(processes.LOOK, "4999999"))
  end)
end)

describe("the question why nothing starts", function()
  it("names the directory or the program", function()
    for _, row in ipairs {
      { "/nope", "/bin/sh", "cwd file_not_found\n" }, { "/etc/passwd", "/bin/sh", "cwd not_a_directory\n" },
      { "/", "/bin/no-such-shell", "program\n" }, { "/", "/bin/sh", "" }, { "-x", "/bin/sh", "cwd file_not_found\n" },
    } do
      assert.are.equal(row[3], script(processes.WHY, row[1], row[2]), row[1] .. " " .. row[2])
    end
  end)
end)
