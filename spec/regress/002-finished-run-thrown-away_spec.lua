-- timeout: 120
--- run_code answered with an error, about a `path` that nobody gave, when a listing or the clean-up failed though the run
--- itself was over.

local demilune = require "spec.support.demilune"
local support = require "spec.e2e.tools_support"

local must, fault, shell = support.must, support.fault, support.shell

describe("a finished run", function()
  local server
  setup(function() server = support.server() end)
  teardown(function() server:stop() end)

  it("counts though the working directory cannot be listed after it", function()
    local run = must(server, "run_code", { code = "import os\nprint('done')\nos.chmod('/home/user', 0)" })
    assert.are.same({ "done\n", 0, {} }, { run.stdout, run.exit_code, run.output_files })
    assert.truthy(run.note:find("cannot be listed", 1, true))
    -- The code is gone all the same, and what fails now fails for the directory, which is no argument.
    local err = fault(server, "run_code", { code = "1" })
    assert.are.same({ "file_permission", "The sandbox's working directory cannot be used." }, { err.category, err.message })
    assert.is_nil(err.field)
    assert.are.equal("0\n", must(server, "run_command", { cwd = "/tmp", command =
      "chmod 700 /home/user; ls /tmp/.demilune/code | wc -l" }).stdout)
  end)

  it("counts though names make the listing too large", function()
    local run = must(server, "run_code", { code = table.concat({
      "import os", "d = '/home/user'", "for i in range(5):", "  d += '/' + '\\x01' * 255", "  os.mkdir(d)", "os.chdir(d)",
      "for i in range(5000): open('%05d' % i + '\\x01' * 250, 'w').close()", "print('done')" }, "\n") })
    assert.are.same({ "done\n", {} }, { run.stdout, run.output_files })
    assert.truthy(run.note:find("holds too many", 1, true))
    shell(server, "find /home/user -mindepth 1 -delete")
  end)

  it("is had in spite of a folder of ours that was spoilt", function()
    for _, spoil in ipairs {
      "rm -rf /tmp/.demilune; echo x >/tmp/.demilune", "rm -rf /tmp/.demilune; mkfifo /tmp/.demilune",
      "rm -rf /tmp/.demilune; mkdir /tmp/.demilune; chmod 0 /tmp/.demilune",
      "rm -rf /tmp/.demilune; ln -s /nowhere/x /tmp/.demilune", "rm -rf /tmp/.demilune; ln -s .demilune /tmp/.demilune",
      "rm -rf /tmp/.demilune; mkdir /tmp/.demilune; touch /tmp/.demilune/code /tmp/.demilune/tasks",
    } do
      shell(server, spoil)
      for _, language in ipairs { "python", "shell" } do
        local run = must(server, "run_code", { language = language, code = language == "python" and "print(1)" or "echo 1" })
        assert.are.same({ "1\n", 0 }, { run.stdout, run.exit_code }, spoil)
      end
      local task = must(server, "start_background_task", { command = "echo out; sleep 0.1" })
      local seen
      support.eventually(function()
        seen = must(server, "get_background_task", { task_id = task.task_id, wait = 2 })
        return seen.status ~= "running"
      end)
      assert.are.same({ "succeeded", "out\n" }, { seen.status, seen.stdout }, spoil)
      assert.are.equal("out\n", shell(server, "cat " .. seen.stdout_path))
    end
    assert.are.equal("", shell(server, "ls -d /tmp/.demilune-code-* 2>/dev/null || true"))
  end)

  it("fails without naming an argument where /tmp cannot be used at all", function()
    local small = support.server { home = demilune.home() }
    if must(small, "run_command", { command = "chmod 0 /tmp" }).exit_code == 0 then
      for tool, arguments in pairs { run_code = { code = "1" }, start_background_task = { command = "true" } } do
        local err = fault(small, tool, arguments)
        assert.are.same({ "file_permission", "demilune cannot keep its own files in the sandbox's /tmp." },
          { err.category, err.message })
        assert.is_nil(err.field)
      end
    end
    assert.are.equal("on\n", must(small, "run_command", { command = "echo on" }).stdout)
    small:stop()
    demilune.remove_home(small.home)
  end)
end)
