-- timeout: 120
--- A task that removed its own folder, or all of them, was told to end and did not: the shell of the wrapper left at the
--- failed note of the cancel.

local support = require "spec.e2e.tools_support"

local must, shell = support.must, support.shell

describe("a task that removes its own folder", function()
  local server
  setup(function() server = support.server() end)
  teardown(function() server:stop() end)

  local function count(mark) return shell(server, "pgrep -c -f '^sleep " .. mark .. "'; true") end

  it("is ended by its cancel all the same", function()
    for i, what in ipairs { "/tmp/.demilune/tasks", "$(dirname \"$(tr '\\0' '\\n' </proc/$$/cmdline | tail -n 1)\")" } do
      local mark = 4900 + i
      local task = must(server, "start_background_task", { command = "rm -rf " .. what .. "; sleep " .. mark }).task_id
      assert.is_true(support.eventually(function() return count(mark) == "1\n" end), what)
      must(server, "cancel_background_task", { task_id = task }, 30000)
      assert.is_true(support.eventually(function() return count(mark) == "0\n" end), what)
    end
  end)
end)
