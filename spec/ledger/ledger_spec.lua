-- timeout: 120
--- ledger.lua: counters in a real file, shared by real processes, and what happens when the file cannot be used.

local build = require "spec.support.build"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local errors = require "demilune.errors"
local harness = require "spec.script.harness"
local ledgers = require "demilune.ledger"
local os_calls = require "spec_os"
local task = core.task

local SIGKILL = 9
local ME = { principal = "me" }

describe("the ledger", function()
  local dir, path, others

  before_each(function()
    dir = assert(os_calls.mkdtemp((os.getenv "DML_SPEC_TMP" or "/tmp") .. "/ledger-XXXXXX"))
    path, others = dir .. "/counters.json", {}
  end)
  after_each(function()
    for _, other in ipairs(others) do
      other:signal(SIGKILL)
      other:stop()
    end
    os.execute("chmod 700 '" .. dir .. "'; rm -rf '" .. dir .. "'")
  end)

  local function put(text)
    local file = assert(io.open(path, "wb"))
    file:write(text)
    file:close()
  end

  local function contents()
    local file = assert(io.open(path, "rb"))
    local text = file:read "a"
    file:close()
    return text
  end

  local function rate(most, per_s, more)
    local item = { kind = "rate", rule = "paced", most = most, per_s = per_s, scope = "principal" }
    for key, value in pairs(more or {}) do item[key] = value end
    return item
  end

  local function few(most, more)
    local item = { kind = "sandboxes", rule = "few", most = most, scope = "principal" }
    for key, value in pairs(more or {}) do item[key] = value end
    return item
  end

  --- Runs a body as a task with a ledger of the file.
  local function with(body)
    local results = table.pack(task.run(function() return body(ledgers.open(path)) end))
    return table.unpack(results, 1, results.n)
  end

  local function born(id, more)
    local now_s = task.epoch_ms() // 1000
    local sandbox = { provider = "local", id = id, principal = "me", created_s = now_s, ends_s = now_s + 600 }
    for key, value in pairs(more or {}) do sandbox[key] = value end
    return sandbox
  end

  --- Another process with a ledger of the file, that runs the lines of `body` and gives what it prints.
  local function other(body, ...)
    local script = ("%s/other-%d.lua"):format(dir, #others + 1)
    local file = assert(io.open(script, "w"))
    file:write(("package.cpath = %q\npackage.path = %q\n"):format(build.dir .. "/spec/?.so",
      build.root .. "/lua/?.lua;" .. build.root .. "/lua/?/init.lua"), [[
      local core = require "demilune.core"
      local ledger = require("demilune.ledger").open(arg[1])
      local function say(...)
        print(...)
        io.stdout:flush()
      end
      core.task.run(function()
      ]], body, "\nend)\n")
    file:close()
    local words = { harness.interpreter(), "'" .. script .. "'", "'" .. path .. "'" }
    for _, word in ipairs { ... } do words[#words + 1] = "'" .. word .. "'" end
    local program = demilune.start { argv = { "/bin/sh", "-c", "exec " .. table.concat(words, " ") }, home = dir }
    others[#others + 1] = program
    return program
  end

  local function line_of(program)
    local line, why = program:read_line()
    return line or error(("%s: %s"):format(why, program.stderr))
  end

  local function refusal_of(ticket, refusal)
    assert.is_nil(ticket)
    return refusal
  end

  it("writes nothing for an empty list, and a private file for a full one", function()
    with(function(ledger)
      local ticket = assert(ledger:reserve({}, ME))
      ticket:keep()
      assert.are.same({ sandboxes = 0, tasks = 0, calls = 0, sandbox_seconds_today = 0 }, ledger:counts(ME))
      ledger:sandbox_ended("local", "unknown")
      ledger:sandbox_extended("local", "unknown", 5)
      assert.are.same({}, core.fs.list(dir))
      assert(ledger:reserve({ rate(2, 60) }, ME))
      assert.are.equal(384, core.fs.stat(path).mode)
    end)
  end)

  it("is kept across a restart", function()
    with(function(ledger)
      assert(ledger:reserve({ rate(2, 60) }, ME))
      assert(ledger:reserve({ few(1) }, ME)):keep(born "a")
      ledger:note_call "me"
      ledger:flush()
    end)
    with(function(ledger)
      assert(ledger:reserve({ rate(2, 60) }, ME))
      local refusal = refusal_of(ledger:reserve({ rate(2, 60) }, ME))
      assert.are.same({ "paced", "rate", "rate_limited", 2 }, { refusal.rule, refusal.kind, refusal.category, refusal.most })
      assert.is_true(refusal.retry_after >= 59 and refusal.retry_after <= 61)
      assert.are.equal("quota_exceeded", refusal_of(ledger:reserve({ few(1) }, ME)).category)
      assert.are.equal("me", ledger:owner("local", "a"))
      assert.is_nil(ledger:owner("cloud", "a"))
      local counts = ledger:counts(ME)
      assert.are.same({ 1, 1 }, { counts.sandboxes, counts.calls })
    end)
  end)

  it("frees the place of a creation that came to nothing, once", function()
    with(function(ledger)
      local ticket = assert(ledger:reserve({ few(1), rate(3, 60) }, ME))
      assert.are.equal("few", refusal_of(ledger:reserve({ few(1) }, ME)).rule)
      ticket:give_back()
      local next_one = assert(ledger:reserve({ few(1), rate(3, 60) }, ME))
      ticket:give_back()
      ticket:keep(born "never")
      assert.are.equal("few", refusal_of(ledger:reserve({ few(1) }, ME)).rule)
      assert.are.equal(2, (ledger:spent(rate(3, 60), ME)))
      next_one:keep(born "a")
      next_one:give_back()
      assert.are.equal("few", refusal_of(ledger:reserve({ few(1) }, ME)).rule)
      assert.are.equal(1, (ledger:spent(few(1), ME)))
      ledger:sandbox_ended("local", "a")
      assert.are.equal(0, (ledger:spent(few(1), ME)))
      assert.is_nil(ledger:owner("local", "a"))
    end)
  end)

  it("frees the place of a ticket that was forgotten", function()
    with(function(ledger)
      do
        local ticket = assert(ledger:reserve({ few(1) }, ME))
        assert.is_string(ticket.place)
      end
      collectgarbage()
      collectgarbage()
      assert(ledger:reserve({ few(1) }, ME))
    end)
  end)

  it("follows a sandbox whose end is moved, and forgets one whose end has passed", function()
    with(function(ledger)
      local now_s = task.epoch_ms() // 1000
      assert(ledger:reserve({ few(1) }, ME)):keep(born("a", { created_s = now_s - 500, ends_s = now_s - 30 }))
      assert.are.equal(1, ledger:counts(ME).sandboxes)
      ledger:sandbox_extended("local", "a", now_s - 100)
      assert.are.equal(0, ledger:counts(ME).sandboxes)
      assert(ledger:reserve({ few(1) }, ME))
    end)
  end)

  it("counts what several processes do", function()
    local body = [[
      local taken = 0
      say "ready"
      io.read "l"
      for _ = 1, 200 do
        local ticket, refusal = ledger:reserve({ { kind = "rate", rule = "paced", most = 150, per_s = 3600, scope = "principal" },
          { kind = "sandboxes", rule = "few", most = 120, scope = "server" } }, { principal = "me" })
        if ticket then
          taken = taken + 1
          if taken % 2 == 0 then ticket:give_back() else
            ticket:keep { provider = "local", id = arg[2] .. taken, principal = "me", created_s = core.task.epoch_ms() // 1000 }
          end
        elseif refusal.category ~= "rate_limited" then
          error(refusal.kind)
        end
      end
      say(taken)
    ]]
    local programs = {}
    for i, name in ipairs { "a", "b", "c" } do
      programs[i] = other(body, name)
      assert.are.equal("ready", line_of(programs[i]))
    end
    for _, program in ipairs(programs) do program:write "\n" end
    local taken, kept = 0, 0
    for _, program in ipairs(programs) do
      local count = math.tointeger(tonumber(line_of(program)))
      taken, kept = taken + count, kept + (count + 1) // 2
      assert.are.same({ code = 0 }, program:wait())
      assert.are.equal("", program.stderr)
    end
    assert.are.equal(150, taken)
    with(function(ledger)
      assert.are.equal(kept, ledger:counts(ME).sandboxes)
      assert.are.equal(150, (ledger:spent(rate(150, 3600), ME)))
    end)
  end)

  it("holds the place of a server that creates, and frees it when that is killed", function()
    local program = other [[
      assert(ledger:reserve({ { kind = "sandboxes", rule = "few", most = 1, scope = "principal" } }, { principal = "me" }))
      say "reserved"
      io.read "l"
    ]]
    assert.are.equal("reserved", line_of(program))
    with(function(ledger) assert.are.equal("few", refusal_of(ledger:reserve({ few(1) }, ME)).rule) end)
    program:signal(SIGKILL)
    assert.are.same({ signal = SIGKILL }, program:wait())
    with(function(ledger) assert(ledger:reserve({ few(1) }, ME)) end)
  end)

  it("forgets a sandbox that ends with its server when that is killed, and no other", function()
    local program = other [[
      for _, is_held in ipairs { false, true } do
        local few = { kind = "sandboxes", rule = "few", most = 2, scope = "principal" }
        local created_s = core.task.epoch_ms() // 1000 - 50
        local ticket = assert(ledger:reserve({ few }, { principal = "me" }))
        ticket:keep { provider = "local", id = tostring(is_held), principal = "me", created_s = created_s, is_held = is_held }
      end
      say "kept"
      io.read "l"
    ]]
    assert.are.equal("kept", line_of(program))
    with(function(ledger)
      assert.are.equal(2, ledger:counts(ME).sandboxes)
      program:signal(SIGKILL)
      program:wait()
      assert.are.equal(1, ledger:counts(ME).sandboxes)
      assert.are.equal("me", ledger:owner("local", "false"))
      assert.is_nil(ledger:owner("local", "true"))
    end)
  end)

  it("does not take another process of the same number for the one that created", function()
    with(function(ledger)
      assert(ledger:reserve({ few(1) }, ME))
      put((contents():gsub('"start":"%d+"', '"start":"1"')))
      assert(ledger:reserve({ few(1) }, ME))
    end)
  end)

  it("is whole after a server was killed while it wrote", function()
    for _ = 1, 5 do
      local program = other [[
        say "go"
        for i = 1, 1000000 do
          ledger:reserve({ { kind = "rate", rule = "r" .. i % 50, most = 1000000, per_s = 3600, scope = "principal" } },
            { principal = "me" })
        end
      ]]
      assert.are.equal("go", line_of(program))
      os_calls.sleep_ms(30)
      program:signal(SIGKILL)
      program:wait()
      with(function(ledger) assert(ledger:reserve({ rate(1000000, 60) }, ME)) end)
    end
  end)

  it("refuses while the file is damaged, changes nothing of it, and goes on when it is mended or removed", function()
    with(function(ledger)
      assert(ledger:reserve({ rate(5, 60), few(5) }, ME)):keep(born "a")
      local good = contents()
      for _, text in ipairs { "", "{", good:sub(1, -2), "null", "[]", (good:gsub('"day":%d+', '"day":null')),
        (good:gsub('"created_s":%d+', '"created_s":"x"')) } do
        put(text)
        for _, item in ipairs { rate(5, 60), few(5) } do
          assert.are.same({ rule = item.rule, kind = "unavailable", category = "policy_denied" },
            refusal_of(ledger:reserve({ item }, ME)))
        end
        assert.is_nil(ledger:spent(few(5), ME))
        assert.is_nil(ledger:owner("local", "a"))
        local ok, err = pcall(ledger.counts, ledger, ME)
        assert.is_false(ok)
        assert.are.equal("internal", err.category)
        assert.is_nil(err.message:find(dir, 1, true))
        assert.is_truthy(errors.detail(err):find(path .. " are damaged", 1, true))
        assert.are.equal(text, contents())
      end
      assert.is_truthy(ledger.fault:find("mended, or removed", 1, true))
      put(good)
      assert(ledger:reserve({ rate(5, 60) }, ME))
      assert.is_nil(ledger.fault)
      assert.are.equal("me", ledger:owner("local", "a"))
      put "{"
      refusal_of(ledger:reserve({ rate(5, 60) }, ME))
      os.remove(path)
      assert(ledger:reserve({ rate(1, 60) }, ME))
    end)
  end)

  it("refuses a file that is none", function()
    with(function(ledger)
      assert(core.fs.make_dir(path))
      assert.are.equal("unavailable", refusal_of(ledger:reserve({ rate(5, 60) }, ME)).kind)
      assert.is_truthy(ledger.fault:find("cannot be read", 1, true))
    end)
  end)

  it("refuses in a folder that is gone at once, and keeps what it owes", function()
    with(function(ledger)
      local ticket = assert(ledger:reserve({ few(2) }, ME))
      local lost = assert(ledger:reserve({ few(2) }, ME))
      assert(os.rename(dir, dir .. ".away"))
      local started_ms = task.now_ms()
      assert.are.equal("unavailable", refusal_of(ledger:reserve({ few(2) }, ME)).kind)
      ticket:keep(born "a")
      lost:give_back()
      assert.is_true(task.now_ms() - started_ms < 500)
      assert.is_truthy(ledger.fault:find("cannot be locked", 1, true))
      assert(os.rename(dir .. ".away", dir))
      local refusal = refusal_of(ledger:reserve({ few(1) }, ME))
      assert.are.equal("quota_exceeded", refusal.category)
      assert.are.equal(1, (ledger:spent(few(2), ME)))
      assert.are.equal("me", ledger:owner("local", "a"))
    end)
  end)

  it("does not lose the end of a sandbox whose beginning could not be written", function()
    with(function(ledger)
      local ticket = assert(ledger:reserve({ few(2) }, ME))
      assert(os.rename(dir, dir .. ".away"))
      ticket:keep(born "a")
      ledger:sandbox_ended("local", "a")
      assert(os.rename(dir .. ".away", dir))
      ledger:flush()
      assert.are.equal(0, ledger:counts(ME).sandboxes)
      assert.are.same({}, ledger.owed)
    end)
  end)

  --- The lines of `body` in a process whose files may grow to 1 KiB: the file of the counters cannot be written then.
  local function on_a_full_disk(body)
    local command = ("trap '' XFSZ; ulimit -f 2; exec %s '%s' '%s'"):format(harness.interpreter(), body, path)
    return demilune.run(nil, { home = dir, argv = { "/bin/sh", "-c", command } })
  end

  it("refuses on a full disk, and takes nothing from what is there", function()
    local script = dir .. "/full.lua"
    local file = assert(io.open(script, "w"))
    file:write(("package.cpath = %q\npackage.path = %q\n"):format(build.dir .. "/spec/?.so",
      build.root .. "/lua/?.lua;" .. build.root .. "/lua/?/init.lua"), [[
      local core = require "demilune.core"
      local ledger = require("demilune.ledger").open(arg[1])
      core.task.run(function()
        local taken, refusal = 0, nil
        repeat
          local ticket
          ticket, refusal = ledger:reserve({ { kind = "rate", rule = ("r"):rep(60) .. taken, most = 5, per_s = 60 } },
            { principal = "me" })
          if ticket then taken = taken + 1 end
        until not ticket
        local before = core.fs.read(arg[1], 100000)
        local ticket = assert(ledger:reserve({}, { principal = "me" }))
        ticket:keep { provider = "local", id = ("x"):rep(1000), principal = "me", created_s = core.task.epoch_ms() // 1000 }
        assert(before == core.fs.read(arg[1], 100000))
        print(taken, refusal.kind, refusal.category, #ledger.owed, ledger.fault)
      end)
    ]])
    file:close()
    local result = on_a_full_disk(script)
    local taken, kind, category, owed, fault = result.stdout:match "^(%d+)\t(%a+)\t([%a_]+)\t(%d+)\t(.*)\n$"
    assert.are.same({ "unavailable", "policy_denied", "1" }, { kind, category, owed }, result.stdout .. result.stderr)
    assert.is_truthy(fault:find("cannot be written", 1, true))
    assert.is_true(tonumber(taken) >= 5)
    -- Said once, not with every call.
    assert.are.equal(1, select(2, result.stderr:gsub("cannot be written", "")), result.stderr)
    assert.are.equal("counters.json counters.json.lock full.lua",
      table.concat((function()
        local names = core.fs.list(dir)
        table.sort(names)
        return names
      end)(), " "))
  end)

  it("refuses in a folder that may not be written", function()
    if os_calls.ids() == 0 then pending "root may write everywhere" end
    with(function(ledger)
      assert(ledger:reserve({ rate(5, 60) }, ME))
      os_calls.chmod(dir, 320) -- 0500
      assert.are.equal("unavailable", refusal_of(ledger:reserve({ rate(5, 60) }, ME)).kind)
      os_calls.chmod(dir, 448) -- 0700
      assert(ledger:reserve({ rate(5, 60) }, ME))
    end)
  end)

  it("waits a moment for a lock, and no longer", function()
    with(function(ledger)
      local held = assert(core.fs.lock(path .. ".lock"))
      local release = task.spawn(function()
        task.sleep(50)
        held:release()
      end)
      assert(ledger:reserve({ rate(5, 60) }, ME))
      release:wait()
      held = assert(core.fs.lock(path .. ".lock"))
      local started_ms = task.now_ms()
      assert.are.same({ rule = "paced", kind = "unavailable", category = "policy_denied" },
        refusal_of(ledger:reserve({ rate(5, 60) }, ME)))
      local waited_ms = task.now_ms() - started_ms
      assert.is_true(waited_ms >= 1000 and waited_ms < 3000, waited_ms .. " ms")
      assert.is_truthy(ledger.fault:find("stay locked", 1, true))
      held:release()
      assert(ledger:reserve({ rate(5, 60) }, ME))
    end)
  end)

  it("frees nothing and forgets nothing of a task that is cancelled while it waits for the lock", function()
    with(function(ledger)
      local ticket = assert(ledger:reserve({ few(1) }, ME))
      local held = assert(core.fs.lock(path .. ".lock"))
      local waiting = task.spawn(function() ticket:give_back() end)
      task.sleep(20)
      waiting:cancel()
      waiting:wait()
      held:release()
      assert(ledger:reserve({ few(1) }, ME))
    end)
  end)

  it("notes calls without writing each, and tells them at once", function()
    with(function(ledger)
      for _ = 1, 999 do ledger:note_call "me" end
      assert.are.equal(999, ledger:counts(ME).calls)
      assert.are.same({}, core.fs.list(dir))
      ledger:note_call "me"
      assert.is_truthy(contents():find('"calls":{"me":1000}', 1, true))
      ledger:note_call "me"
      assert(ledger:reserve({ rate(5, 60) }, ME))
      assert.is_truthy(contents():find('"calls":{"me":1001}', 1, true))
      assert.are.equal(1001, ledger:counts(ME).calls)
    end)
  end)

  it("is cheap", function()
    if harness.is_valgrind() then pending "valgrind takes its time" end
    local function microseconds(times, body)
      local started = os.clock()
      for _ = 1, times do body() end
      return (os.clock() - started) * 1e6 / times
    end
    local one, owner = with(function(ledger)
      local list = { rate(1000000, 60) }
      local reserve = microseconds(1000, function() assert(ledger:reserve(list, ME)) end)
      return reserve, microseconds(1000, function() ledger:owner("local", "a") end)
    end)
    print(("note: the ledger: %.0f us for one rate, %.0f us to look up an owner"):format(one, owner))
    assert.is_true(one < 5000)
  end)
end)
