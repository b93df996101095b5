-- timeout: 120
--- A task that wrote its own end into its folder was believed, and cancel let go of it while it ran on.

local cjson = require "cjson"
local support = require "spec.e2e.tools_support"

local must, shell = support.must, support.shell

describe("a task that forges its end", function()
  local server
  setup(function() server = support.server() end)
  teardown(function() server:stop() end)

  local FOLDER = "d=$(dirname \"$(tr '\\0' '\\n' </proc/$$/cmdline | tail -n 1)\"); "

  local function start(command)
    return must(server, "start_background_task", { command = FOLDER .. command }).task_id
  end

  local function look(task_id) return must(server, "get_background_task", { task_id = task_id }) end

  local function count(mark) return shell(server, "pgrep -c -f '^sleep " .. mark .. "'; true") end

  it("is ended by cancel all the same, and stays as it said that it ended", function()
    for i, forged in ipairs {
      "echo '0 17' >$d/exit", "echo '0 17' >$d/exit; rm -f $d/pid", "echo '3 17' >$d/exit; echo 99999999 >$d/pid",
      "trap '' TERM; echo '0 17' >$d/exit; rm -f $d/pid; mkfifo $d/pid",
    } do
      local mark = 4800 + i
      local task = start(forged .. "; sleep " .. mark .. "; sleep " .. mark)
      assert.is_true(support.eventually(function() return count(mark) == "1\n" and look(task).status ~= "running" end), forged)
      local status = look(task).status
      local done = must(server, "cancel_background_task", { task_id = task }, 30000)
      assert.are.same({ status, true }, { done.status, done.success })
      assert.are.equal("0\n", count(mark), forged)
    end
  end)

  it("is not believed more than can be", function()
    local task = start("echo '300 99999999999' >$d/exit; sleep 4811")
    assert.is_true(support.eventually(function() return look(task).status == "failed" end))
    local seen = look(task)
    assert.are.equal(cjson.null, seen.exit_code)
    assert.is_true(seen.finished_at >= seen.started_at)
    must(server, "cancel_background_task", { task_id = task }, 30000)
    for _, forged in ipairs { "$(rm -rf /); x", "a b c", "* *", "-1 -1", "" } do
      task = start(("echo '%s' >$d/exit; sleep 4812"):format(forged))
      assert.is_true(support.eventually(function() return look(task).status == "failed" end), forged)
      must(server, "cancel_background_task", { task_id = task }, 30000)
    end
    assert.are.equal("0\n", count(481))
  end)

  it("that stops its wrapper is ended too", function()
    local task = start("kill -STOP $PPID; echo '0 17' >$d/exit; sleep 4821")
    assert.is_true(support.eventually(function() return look(task).status == "succeeded" end))
    must(server, "cancel_background_task", { task_id = task }, 30000)
    assert.are.equal("0\n", count(4821))
  end)
end)
