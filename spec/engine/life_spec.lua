-- timeout: 120
--- The engine's life: one a user, its end, what a dead one leaves, who may talk to it, its commands.

local build = require "spec.support.build"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local leftovers = require "spec.support.leftovers"
local lfs = require "lfs"
local os_calls = require "spec_os"
local support = require "spec.engine.support"

local function mode_of(path) return lfs.attributes(path, "permissions") end

describe("the life of the engine", function()
  local home

  before_each(function() home = demilune.home() end)
  after_each(function()
    support.stop_all()
    os.execute("rm -rf '" .. home .. "'")
  end)

  local function command(args, options)
    options = options or {}
    options.home = home
    return demilune.run(args, options)
  end

  it("is one a user: a second one leaves at once, the first goes on", function()
    local engine = support.start { home = home }
    local second = command { "engine" }
    assert.are.equal(3, second.code)
    assert.truthy(second.stderr:find("another engine runs", 1, true))
    support.run(function() assert.are.equal(200, (engine:call("GET", "/demilune"))) end)
    assert.are.same({ code = 0 }, engine:stop(true))
  end)

  it("starts once for two that start at the same time", function()
    local programs = {}
    for i = 1, 3 do programs[i] = demilune.start { args = { "engine" }, home = home } end
    os_calls.sleep_ms(1500)
    local living = {}
    for _, program in ipairs(programs) do
      local ended = program:wait(0)
      if ended then assert.are.equal(3, ended.code) else living[#living + 1] = program end
    end
    assert.are.equal(1, #living)
    assert.are.equal(0, command({ "engine", "--stop" }).code)
    assert.are.same({ code = 0 }, living[1]:wait(2000))
    for _, program in ipairs(programs) do program:stop() end
  end)

  it("keeps its files to itself and removes its socket at the end", function()
    local engine = support.start { home = home }
    local state = demilune.state_dir(home)
    assert.are.equal("rwx------", mode_of(state))
    assert.truthy(mode_of(engine.socket):find "^rw.%-%-%-%-%-%-$")
    assert.are.equal("rw-------", mode_of(state .. "/engine.lock"))
    assert.are.equal("rw-------", mode_of(state .. "/log/engine.log"))
    assert.are.same({ code = 0 }, engine:stop(true))
    assert.is_nil(mode_of(engine.socket))
  end)

  it("answers --status and --stop", function()
    local none = command { "engine", "--status" }
    assert.are.same({ 1, "no engine runs\n" }, { none.code, none.stdout })
    assert.are.equal(0, command({ "engine", "--stop" }).code)
    local engine = support.start { home = home }
    local inside
    support.run(function()
      engine:create()
      inside = leftovers.tree(engine.program.pid)
    end)
    assert.is_true(#inside >= 3)
    local status = command { "engine", "--status" }
    assert.are.equal(0, status.code)
    local line = ("engine %s, process %d, sandboxes: 1\n"):format(core.sys.version, engine.program.pid)
    assert.are.equal(line, status.stdout)
    assert.are.equal(0, command({ "engine", "--stop" }).code)
    assert.are.same({ code = 0 }, engine.program:wait(1000))
    assert.are.same({}, leftovers.alive(inside))
    assert.are.equal(1, command({ "engine", "--status" }).code)
    engine.program:stop()
  end)

  it("ends all sandboxes and leaves with 0 on SIGTERM and SIGINT", function()
    for _, signo in ipairs { 15, 2 } do
      local engine = support.start { home = home }
      local tree
      support.run(function()
        for _ = 1, 3 do engine:create() end
        tree = leftovers.tree(engine.program.pid)
      end)
      local before_ms = os_calls.now_ms()
      engine.program:signal(signo)
      assert.are.same({ code = 0 }, engine.program:wait(6000))
      assert.is_true(os_calls.now_ms() - before_ms < 1500)
      assert.are.same({}, leftovers.alive(tree))
      engine.program:stop()
    end
  end)

  it("stops by itself when nobody needs it, and not before", function()
    local engine = support.start { home = home, args = { "--idle-seconds", "1" } }
    support.run(function()
      local sandbox = engine:create { timeout = 60 }
      local lease = engine:lease(("b"):rep(20))
      os_calls.sleep_ms(1300)
      sandbox:kill()
      core.task.sleep(1300)
      assert.are.equal(200, (engine:call("GET", "/demilune")))
      lease:close()
    end)
    local before_ms = os_calls.now_ms()
    assert.are.same({ code = 0 }, engine.program:wait(3000))
    assert.is_true(os_calls.now_ms() - before_ms > 700)
    engine.program:stop()
  end)

  it("dies with kill -9 and takes every process along; the next one starts over", function()
    local engine = support.start { home = home }
    local tree
    support.run(function()
      for _ = 1, 3 do engine:create():open("process.Process/Start", support.shell "sleep 83") end
      tree = leftovers.tree(engine.program.pid)
    end)
    assert.is_true(#tree >= 7)
    local groups = leftovers.cgroups "demilune"
    engine:kill()
    local alive
    for _ = 1, 200 do
      alive = leftovers.alive(tree)
      if #alive == 0 then break end
      os_calls.sleep_ms(10)
    end
    assert.are.same({}, alive)
    local next_engine = support.start { home = home }
    support.run(function()
      local _, listed = next_engine:call("GET", "/v2/sandboxes")
      assert.are.same({}, listed)
      assert.are.equal("hi\n", next_engine:create():start("echo hi").stdout)
    end)
    local still = {}
    for _, path in ipairs(leftovers.cgroups "demilune") do still[path] = true end
    assert.are.same({ code = 0 }, next_engine:stop(true))
    -- Groups of sandboxes of the dead one; those of engines, which others may run, are shared.
    for _, path in ipairs(groups) do
      if path:find "/i[a-z2-7]+$" then assert.is_nil(still[path], path) end
    end
  end)

  it("starts detached, tells when it is ready, and reopens its log", function()
    local run = command({ "engine", "--detach" }, { timeout_ms = 5000 })
    assert.are.equal(0, run.code)
    local ready
    for _ = 1, 100 do
      ready = command { "engine", "--status" }
      if ready.code == 0 then break end
      os_calls.sleep_ms(20)
    end
    assert.are.equal(0, ready.code)
    local pid = tonumber(ready.stdout:match "process (%d+)")
    local log = demilune.state_dir(home) .. "/log/engine.log"
    assert.is_true(os.rename(log, log .. ".old"))
    os_calls.kill(pid, 1)
    os_calls.sleep_ms(100)
    assert.are.equal(0, command({ "engine", "--stop" }).code)
    assert.is_string(mode_of(log))
  end)

  it("writes one byte to --ready-fd, and says what is wrong with an argument", function()
    local script = ('exec 3>"%s/ready"; "%s" engine --ready-fd 3 --idle-seconds 0'):format(home, build.program)
    local run = demilune.run({}, { home = home, argv = { "/bin/sh", "-c", script } })
    assert.are.equal(0, run.code)
    local file = assert(io.open(home .. "/ready"))
    assert.are.equal("1", file:read "a")
    file:close()
    for _, args in ipairs { { "--ready-fd", "x" }, { "--ready-fd", "0" }, { "--idle-seconds", "-1" } } do
      local bad = command { "engine", table.unpack(args) }
      assert.are.equal(2, bad.code)
      assert.truthy(bad.stderr:find "^demilune[^\n]*%-%-[^\n]*\n$")
    end
  end)

  it("refuses peers of other users and peers in a nested pid namespace", function()
    if not os.execute "command -v curl >/dev/null" then return pending "curl is not installed" end
    local engine = support.start { home = home }
    -- Debian's curl hangs where the address sanitizer is preloaded.
    local curl = "env -u LD_PRELOAD curl -s -o /dev/null -w '%{http_code}' http://x/demilune --unix-socket "
      .. engine.socket
    local function status_of(prefix)
      local pipe = assert(io.popen(prefix .. " " .. curl .. " 2>/dev/null"))
      local text = pipe:read "a"
      pipe:close()
      return text
    end
    assert.are.equal("200", status_of "")
    local is_root = core.sys.uid() == 0
    local nested = is_root and "unshare --pid --fork" or "unshare --user --map-root-user --pid --fork"
    if status_of(nested) ~= "" then assert.are.equal("403", status_of(nested)) end
    if is_root then
      -- A mistake with modes must not be enough.
      local open = "chmod 711 '%s' '%s/state' '%s/state/demilune' && chmod 666 '%s'"
      assert(os.execute(open:format(home, home, home, engine.socket)))
      local parent = home:match "^(.*)/[^/]+$"
      if parent ~= "/tmp" then os.execute("chmod 711 '" .. parent .. "'") end
      assert.are.equal("403", status_of "setpriv --reuid=65534 --regid=65534 --clear-groups")
    end
    assert.are.same({ code = 0 }, engine:stop(true))
  end)
end)
