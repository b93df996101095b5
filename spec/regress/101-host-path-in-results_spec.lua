--- A state folder that cannot be used put its path on this machine into tool results, where models and their clients read
--- it. Paths are for the log and the command line.

local cjson = require "cjson"
local demilune = require "spec.support.demilune"

local PATH = "/proc/demilune"

describe("a state folder that cannot be used", function()
  it("is named in the server's log and in no result", function()
    local home = demilune.home()
    local server = demilune.start {
      home = home, env = { XDG_STATE_HOME = "/proc" }, config = ("return { log = { file = %q } }"):format(home .. "/serve.log"),
    }
    server:initialize()
    for name, arguments in pairs {
      run_command = { command = "true" }, create_sandbox = {}, list_sandboxes = {}, get_sandbox = { sandbox_id = "abc" },
      get_background_task = {}, run_code = { code = "1" },
    } do
      local content, err, result = server:call(name, arguments)
      assert.is_nil(content, name)
      assert.are.equal("internal", err.category, name)
      assert.are.equal("demilune's state folder cannot be used; `demilune doctor` says why.", err.message, name)
      assert.is_nil(cjson.encode(result):find("/proc", 1, true), name)
    end
    server:stop()
    assert.is_nil(server.stdout:find("/proc", 1, true))
    local log = assert(io.open(home .. "/serve.log")):read "a"
    assert.is_truthy(log:find(PATH, 1, true))
    demilune.remove_home(home)
  end)

  it("is named to whoever sits at the machine", function()
    local home = demilune.home()
    for _, args in ipairs { { "call", "run_command", '{"command":"true"}' }, { "ls" }, { "serve" } } do
      local ran = demilune.run(args, { home = home, env = { XDG_STATE_HOME = "/proc" } })
      assert.are.equal(1, ran.code)
      assert.are.equal("", ran.stdout)
      assert.is_truthy(ran.stderr:find(PATH, 1, true), ran.stderr)
    end
    demilune.remove_home(home)
  end)
end)
