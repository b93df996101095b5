-- timeout: 60
--- get_background_task with an offset gave as much as the configuration shows of an output, not 16 KiB; its `wait` did not
--- look at the stream that had no offset; and a short task had finished before it began.

local os_calls = require "spec_os"
local support = require "spec.e2e.tools_support"

local must = support.must

describe("get_background_task", function()
  local server
  setup(function() server = support.server { config = "return { output = { stdout = 65536, stderr = 65536 } }" } end)
  teardown(function() server:stop() end)

  local function start(command)
    return must(server, "start_background_task", { command = command }).task_id
  end

  it("gives at most 16 KiB from an offset on, whatever is shown without one", function()
    local task = start("seq 1 20000; seq 1 20000 >&2")
    support.eventually(function() return must(server, "get_background_task", { task_id = task }).status ~= "running" end)
    local seen = must(server, "get_background_task", { task_id = task, stdout_offset = 100, stderr_offset = 0 })
    assert.are.same({ 16384, 16484, true, 16384, 16384 }, { #seen.stdout, seen.stdout_next_offset, seen.stdout_truncated,
      #seen.stderr, seen.stderr_next_offset })
    seen = must(server, "get_background_task", { task_id = task, stdout_offset = 100 })
    assert.are.equal(16384, #seen.stdout)
    assert.is_true(#seen.stderr > 60000)
  end)

  it("waits for news of the other stream too", function()
    local task = start("sleep 0.7; echo oops >&2; sleep 30")
    local from = os_calls.now_ms()
    local seen = must(server, "get_background_task", { task_id = task, stdout_offset = 0, wait = 10 }, 20000)
    assert.are.same({ "oops\n", "running" }, { seen.stderr, seen.status })
    assert.is_true(os_calls.now_ms() - from < 5000)
    must(server, "cancel_background_task", { task_id = task }, 20000)
  end)

  it("tells no end before the beginning", function()
    for _ = 1, 4 do
      local task, seen = start("true"), nil
      support.eventually(function()
        seen = must(server, "get_background_task", { task_id = task })
        return seen.status ~= "running"
      end)
      assert.is_true(seen.finished_at >= seen.started_at)
    end
  end)
end)
