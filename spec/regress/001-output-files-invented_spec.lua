-- timeout: 120
--- run_code compared two listings that were cut: files that had long been there were reported as made by the run, and
--- files below six folders never were.

local support = require "spec.e2e.tools_support"

local must, shell = support.must, support.shell

describe("the files that run_code reports", function()
  local server
  setup(function() server = support.server() end)
  teardown(function() server:stop() end)

  local function paths(run)
    local found = {}
    for i, file in ipairs(run.output_files) do found[i] = file.path end
    return found
  end

  it("are found however deep they lie", function()
    local run = must(server, "run_code", { language = "shell", code = "mkdir -p a/b/c/d/e/f/g && echo 1 >a/b/c/d/e/f/g/h.txt" })
    assert.are.same({ "/home/user/a/b/c/d/e/f/g/h.txt" }, paths(run))
    assert.is_nil(run.note)
  end)

  it("are right among thousands of others", function()
    shell(server, "mkdir m && cd m && seq -f 'f%05.0f' 1 6000 | xargs touch")
    local run = must(server, "run_code", { language = "shell", code = "rm -f m/f010*; echo 1 >new" })
    assert.are.same({ "/home/user/new" }, paths(run))
  end)

  it("are none, with a note, where there are more than can be listed", function()
    shell(server, "cd m && seq -f 'g%05.0f' 1 6000 | xargs touch")
    for _, code in ipairs { "rm -f m/f02*; echo done", "rm -rf m; echo done" } do
      local run = must(server, "run_code", { language = "shell", code = code })
      assert.are.same({ "done\n", {} }, { run.stdout, run.output_files })
      assert.truthy(run.note:find("holds too many", 1, true))
    end
    local run = must(server, "run_code", { language = "shell", code = "echo 1 >again" })
    assert.are.same({ "/home/user/again" }, paths(run))
  end)
end)
