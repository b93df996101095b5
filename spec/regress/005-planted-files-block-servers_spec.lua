-- timeout: 120
--- Pipes that a sandbox planted where its tasks keep their files held whoever looked for 15 s each, and other servers of
--- the user with them, since tasks were looked at one by one, under the lock of the list.

local background = require "demilune.background"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local errors = require "demilune.errors"
local os_calls = require "spec_os"
local store = require "demilune.background_store"
local support = require "spec.e2e.tools_support"

local must, fault, shell = support.must, support.fault, support.shell

local CONFIG = "return { limits = { tasks = 8 } }"

describe("files planted among those of tasks", function()
  local home, server, tasks
  setup(function()
    home = demilune.home()
    server = support.server { home = home, config = CONFIG }
    tasks = {}
    for i = 1, 8 do tasks[i] = must(server, "start_background_task", { command = "echo out; sleep 1000" }).task_id end
    assert.is_true(support.eventually(function()
      return must(server, "get_background_task", { task_id = tasks[8] }).stdout == "out\n"
    end))
  end)
  teardown(function()
    server:stop()
    demilune.remove_home(home)
  end)

  local function took(fn)
    local from = os_calls.now_ms()
    fn()
    return os_calls.now_ms() - from
  end

  it("do not hold up a look, the list or a start, whatever they are", function()
    for _, plant in ipairs { 'mkfifo "$f"', 'mkdir "$f"', 'ln -s /proc/kmsg "$f"', 'mkfifo "$f.p"; ln -s "$f.p" "$f"' } do
      shell(server, ("for d in /tmp/.demilune/tasks/*; do for n in wrapper exit stdout stderr; do f=$d/$n; "
        .. 'rm -rf "$f" "$f.p"; %s; done; done'):format(plant))
      assert.is_true(took(function()
        local seen = must(server, "get_background_task", { task_id = tasks[1] }, 30000)
        assert.are.same({ "running", "" }, { seen.status, seen.stdout })
      end) < 3000)
      assert.is_true(took(function()
        assert.are.equal(8, #must(server, "get_background_task", {}, 60000).tasks)
      end) < 5000)
      local other = support.server { home = home, config = CONFIG }
      assert.is_true(took(function()
        assert.are.equal("quota_exceeded", fault(other, "start_background_task", { command = "true" }, 60000).category)
      end) < 6000)
      other:stop()
    end
  end)

  it("do not keep a task from being cancelled", function()
    shell(server, "for d in /tmp/.demilune/tasks/*; do for n in pid cancelled; do rm -rf $d/$n; mkfifo $d/$n; done; done")
    assert.is_true(took(function() must(server, "cancel_background_task", { task_id = tasks[2] }, 30000) end) < 12000)
    assert.are.equal("7\n", shell(server, "pgrep -c -f '^sleep 1000'"))
  end)
end)

describe("sandboxes that do not answer", function()
  local LIMIT = 12

  --- The tasks of a principal, each in a sandbox of which no command ends, but one that ended its task.
  local function stuck(principal)
    local provider = { id = "local" }
    function provider:run(sandbox) -- luacheck: ignore 212/self
      if sandbox.id ~= "s1" then core.task.sleep(60000) end
      return { stdout = { head = "ended 0 0 0 1\n" }, stderr = { head = "" } }
    end
    function provider:with_envs(_, command) return command end -- luacheck: ignore 212/self
    function provider:write() end -- luacheck: ignore 212/self
    function provider:start_detached() end -- luacheck: ignore 212/self
    for i = 1, LIMIT do
      store.save(store.new {
        principal = principal, provider = "local", sandbox_id = "s" .. i, dir = "/d", command = "x", timeout_s = 5,
      })
    end
    local app = { config = { limits = { tasks = LIMIT } }, providers_by_id = { ["local"] = provider } }
    function app:public_id(_, id) return id end -- luacheck: ignore 212/self
    app.deferred = require("demilune.deferred").new(app)
    local call = { principal = principal, scope = { sandboxes = {} } }
    return background.new(app), call, require("demilune.sandbox").new(provider, "s2", "s2")
  end

  it("hold up the list for five seconds, all together", function()
    core.task.run(function()
      local tasks, call = stuck "a"
      local from = core.task.now_ms()
      local running = 0
      for _, task in ipairs(tasks:list(call).tasks) do
        if task.status == "running" then running = running + 1 else assert.are.equal("succeeded", task.status) end
      end
      local took = core.task.now_ms() - from
      assert.are.equal(LIMIT - 1, running)
      assert.is_true(took >= 4000 and took < 6000, took)
    end)
  end)

  it("hold up a start where there are too many, but never the lock of the list", function()
    core.task.run(function()
      local tasks, call, sandbox = stuck "b"
      local starting = core.task.spawn(tasks.start, tasks, call, sandbox, { command = "true", timeout = 5 })
      core.task.sleep(500)
      local from = core.task.now_ms()
      store.lock():release()
      assert.is_true(core.task.now_ms() - from < 500)
      local ok, record = starting:wait(8000)
      assert.are.same({ true, "b" }, { ok, record.principal })
      local err
      ok, err = pcall(tasks.start, tasks, call, sandbox, { command = "true", timeout = 5 })
      assert.is_false(ok)
      assert.are.equal("quota_exceeded", errors.is(err) and err.category)
    end)
  end)
end)
