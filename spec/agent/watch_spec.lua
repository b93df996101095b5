-- timeout: 120
--- Watched folders: what is told, when it ends, and what a hostile agent may say.

local core = require "demilune.core"
local harness = require "spec.agent.harness"
local os_calls = require "spec_os"
local wire = require "spec.agent.wire"

local with, frame = harness.with, wire.frame
local sys, task = core.sys, core.task

local WAIT_MS = 5000

local function sh(command) assert(os.execute(command), command) end

local function code(result, err)
  assert.is_nil(result)
  assert.are.equal("agent", err.category)
  return err.code
end

--- Events as "type name", until `last` was among them or nothing comes any more.
local function collect(watcher, last)
  local said = {}
  while true do
    local events, why = watcher:next(WAIT_MS)
    if not events then
      said[#said + 1] = why == nil and "(end)" or type(why) == "table" and "(" .. why.code .. ")" or "(" .. why .. ")"
      return said
    end
    for _, event in ipairs(events) do
      said[#said + 1] = event.type .. " " .. event.name
      if said[#said] == last then return said end
    end
  end
end

local function has(said, what)
  for _, one in ipairs(said) do
    if one == what then return true end
  end
  return false
end

describe("watch", function()
  it("tells what happens in a folder, in order", with(function(channel, place)
    sh(("cd %s; echo x >there; mkdir sub"):format(place))
    local watcher = assert(channel:watch(place))
    sh(("cd %s; echo 1 >a; chmod 600 a; mv a b; mv b sub/c; echo 2 >>there; rm there; mkdir d; echo x >sub/deep; : >end")
      :format(place))
    local said = collect(watcher, "create end")
    assert.are.same({ "create a", "write a", "chmod a", "rename a", "create b", "rename b", "write there",
      "remove there", "create d", "create end" }, said)
    watcher:close()
    assert.are.equal("closed", code(watcher:next(0)))
  end))

  it("says nothing where nothing happens, and wakes when something does", with(function(channel, place)
    local watcher = assert(channel:watch(place))
    assert.are.same({ nil, "timeout" }, { watcher:next(10) })
    task.spawn(function()
      task.sleep(30)
      sh("touch " .. place .. "/later")
    end)
    assert.are.same({ { type = "create", name = "later" } }, { assert(watcher:next(WAIT_MS))[1] })
  end))

  it("follows a symlink to the folder, and a path from the working directory", with({ is_boxed = true },
    function(channel, place)
      harness.run(channel, "mkdir d; ln -s d l", { cwd = place })
      local by_link, relative = assert(channel:watch(place .. "/l")), assert(channel:watch "d")
      harness.run(channel, ": >d/x", { cwd = place })
      assert.are.same({ "create x" }, collect(by_link, "create x"))
      assert.are.same({ "create x" }, collect(relative, "create x"))
    end))

  it("goes down all folders when it is recursive, new ones too", with(function(channel, place)
    sh(("mkdir -p %s/a/b/c %s/z"):format(place, place))
    local watcher = assert(channel:watch(place .. "/", { recursive = true }))
    sh(("echo 1 >%s/a/b/c/f"):format(place))
    assert.are.same({ "create a/b/c/f", "write a/b/c/f" }, collect(watcher, "write a/b/c/f"))
    sh(("mkdir -p %s/new/deep/er; echo 1 >%s/new/deep/er/f"):format(place, place))
    assert.is_true(has(collect(watcher, "create new/deep/er/f"), "create new"))
    sh(("sleep 0.1; echo 1 >%s/new/deep/er/g; : >%s/end"):format(place, place))
    assert.is_true(has(collect(watcher, "create end"), "create new/deep/er/g"))
  end))

  it("keeps its folders when they move within, and lets those go that leave", with(function(channel, place)
    sh(("mkdir -p %s/in/a/b %s/in/other %s/out"):format(place, place, place))
    local watcher = assert(channel:watch(place .. "/in", { recursive = true }))
    sh(("mv %s/in/a %s/in/other/moved; echo 1 >%s/in/other/moved/b/f"):format(place, place, place))
    assert.are.same({ "rename a", "create other/moved", "create other/moved/b/f", "write other/moved/b/f" },
      collect(watcher, "write other/moved/b/f"))
    sh(("mv %s/in/other/moved %s/out/gone; echo 1 >%s/out/gone/b/f; : >%s/in/end1"):format(place, place, place, place))
    assert.are.same({ "rename other/moved", "create end1" }, collect(watcher, "create end1"))
    sh(("mv %s/out/gone %s/in/back"):format(place, place))
    collect(watcher, "create back/b/f")
    sh(("sleep 0.1; echo 2 >%s/in/back/b/f; rm -r %s/in/back; : >%s/in/end2"):format(place, place, place))
    local said = collect(watcher, "create end2")
    assert.is_true(has(said, "write back/b/f") and has(said, "remove back/b/f") and has(said, "remove back"))
  end))

  it("tells of files that the agent writes as of those that others write", with(function(channel, place)
    local watcher = assert(channel:watch(place, { recursive = true }))
    for _ = 1, 2 do
      local writer = assert(channel:open_write(place .. "/f"))
      writer:write "1"
      writer:commit()
    end
    local dropped = assert(channel:open_write(place .. "/g"))
    dropped:write "1"
    dropped:abort()
    sh(("cd %s; mkdir .demilune-x; : >.demilune-x/in; mv .demilune-x d; : >d/later; : >.demilune; : >end"):format(place))
    assert.are.same({ "create f", "write f", "write f", "create d", "create d/later", "create .demilune", "create end" },
      collect(watcher, "create end"))
  end))

  it("ends when its folder is removed or renamed", with(function(channel, place)
    sh(("mkdir %s/d %s/e"):format(place, place))
    local removed, renamed = assert(channel:watch(place .. "/d")), assert(channel:watch(place .. "/e"))
    sh(("rmdir %s/d; mv %s/e %s/f"):format(place, place, place))
    local said = collect(removed)
    assert.are.same({ "remove .", "(end)" }, { said[#said - 1], said[#said] })
    assert.are.same({ "rename .", "(end)" }, collect(renamed))
    assert.is_nil((renamed:next(0)))
  end))

  it("tells that something was lost, after what was not", with(function(channel, place)
    local watcher = assert(channel:watch(place))
    -- far more than the channel, the agent and the kernel keep together
    sh(("cd %s; for i in $(seq 1 3); do seq -f 'some-rather-long-name-of-a-file-%%.0f' 1 15000 | xargs touch; "
      .. "find . -name 'some*' -delete; done"):format(place))
    local said = collect(watcher)
    assert.are.equal("(exhausted)", said[#said])
    assert.is_true(#said > 5000 and #said < 90000, #said .. " events")
    assert.are.equal("create some-rather-long-name-of-a-file-1", said[1])
    assert.are.equal("exhausted", code(watcher:next(0)))
    assert.truthy(channel:stat(place))
  end))

  it("stays responsive while it walks a large tree", with(function(channel, place)
    sh(("cd %s; for d in $(seq 1 40); do for e in $(seq 1 20); do mkdir -p $d/$e; done; done; "
      .. "(cd 1; seq 1 5000 | xargs touch)"):format(place))
    local watching = task.spawn(function() return channel:watch(place, { recursive = true }) end)
    local slowest = 0
    while watching:status() == "running" do
      local began = task.now_ms()
      assert(channel:stat(place))
      slowest = math.max(slowest, task.now_ms() - began)
    end
    assert.is_true(slowest < 200, slowest .. " ms")
    local _, watcher = watching:wait()
    sh(": >" .. place .. "/40/20/x")
    assert.are.same({ "create 40/20/x" }, collect(watcher, "create 40/20/x"))
  end))

  it("takes so many folders, levels and watchers, and says so", with(function(channel, place)
    sh(("mkdir -p %s/%s %s/ok"):format(place, ("d/"):rep(70), place))
    assert.are.equal("exhausted", code(channel:watch(place, { recursive = true })))
    local kept = {}
    for i = 1, 32 do kept[i] = assert(channel:watch(place .. "/ok")) end
    assert.are.equal("exhausted", code(channel:watch(place .. "/ok")))
    kept[1]:close()
    assert(channel:watch(place .. "/ok"))
    for _, watcher in ipairs(kept) do watcher:close() end
    sh(("cd %s/ok; mkdir a; seq 1 4200 | (cd a; xargs mkdir)"):format(place))
    assert.are.equal("exhausted", code(channel:watch(place .. "/ok", { recursive = true })))
    sh("rm -r " .. place .. "/ok/a")
    local watcher = assert(channel:watch(place .. "/ok", { recursive = true }))
    sh(("mkdir %s/ok/b; seq 1 4200 | (cd %s/ok/b; xargs mkdir)"):format(place, place))
    local said = collect(watcher)
    assert.are.equal("(exhausted)", said[#said])
    assert(channel:watch(place .. "/ok/b")) -- room is back
  end))

  it("is refused with a reason", with({ is_boxed = true }, function(channel, place)
    harness.run(channel, ": >f; mkdir shut; chmod 0 shut", { cwd = place })
    assert.are.equal("not_found", code(channel:watch(place .. "/no")))
    assert.are.equal("not_a_directory", code(channel:watch(place .. "/f")))
    assert.are.equal("permission", code(channel:watch(place .. "/shut")))
    assert.are.equal("invalid", code(channel:watch ""))
    assert.has_error(function() channel:watch(place, 1) end)
    harness.run(channel, "chmod 700 shut", { cwd = place })
  end))

  it("leaves out folders that the user may not read", with({ is_boxed = true }, function(channel, place)
    harness.run(channel, "mkdir -p shut/in ok; chmod 0 shut", { cwd = place })
    local watcher = assert(channel:watch(place, { recursive = true }))
    harness.run(channel, ": >ok/x; chmod 700 shut", { cwd = place })
    assert.are.same({ "create ok/x", "chmod shut" }, collect(watcher, "chmod shut"))
  end))

  it("gives back everything at its end", with(function(channel, place)
    sh(("mkdir -p %s/a/b"):format(place))
    for _ = 1, 300 do assert(channel:watch(place, { recursive = true })):close() end
    local watchers = {}
    for i = 1, 32 do watchers[i] = assert(channel:watch(place, { recursive = true })) end
    for _, watcher in ipairs(watchers) do watcher:close() end
    assert.truthy(channel:watch(place))
  end))
end)

describe("a watcher of a hostile agent", function()
  --- A channel whose agent has said `after_open` as soon as a watch was asked for.
  local function with_words(words, body)
    return function()
      task.run(function()
        local ours, theirs = sys.socketpair()
        local channel = core.agent.attach(ours)
        os_calls.write(theirs, wire.HELLO)
        assert(channel:ready(WAIT_MS))
        local asking = task.spawn(function() return channel:watch "/x" end)
        task.sleep(1)
        os_calls.write(theirs, words)
        local _, watcher, err = asking:wait(WAIT_MS)
        local ok, raised = pcall(body, channel, watcher, err)
        channel:close()
        sys.close(theirs)
        if not ok then error(raised, 0) end
      end)
    end
  end

  local function event(kind, name) return wire.fields { { "EVENT", kind }, { "NAME", name } } end
  local OPENED = frame("OPENED", 1)

  it("takes events of its own form", with_words(OPENED .. frame("DATA", 1, event(0, "a\255") .. event(4, "b")),
    function(_, watcher)
      assert.are.same({ { type = "create", name = "a\255" }, { type = "chmod", name = "b" } }, watcher:next(WAIT_MS))
    end))

  local BAD = {
    { "an event of no kind", event(5, "a") }, { "a negative kind", event(-1, "a") },
    { "a kind without a name", wire.fields { { "EVENT", 0 } } }, { "a name alone", wire.fields { { "NAME", "x" } } },
    { "a name that is too long", event(0, ("x"):rep(5000)) }, { "half an event", event(0, "abc"):sub(1, -2) },
    { "a name with a NUL", event(0, "a\0b") },
  }
  for _, case in ipairs(BAD) do
    it("shuts the channel at " .. case[1], with_words(OPENED .. frame("DATA", 1, case[2]), function(channel, watcher)
      assert.are.equal("closed", code(watcher:next(WAIT_MS)))
      assert.is_true(channel:closed(WAIT_MS))
      assert.are.equal("closed", code(watcher:next(0)))
    end))
  end

  local WRONG = {
    { "data before it is open", frame("DATA", 1, event(0, "a")) }, { "an empty frame", OPENED .. frame("DATA", 1, "") },
    { "flags", OPENED .. frame("DATA", 1, event(0, "a"), 1) }, { "an answer that opens twice", OPENED .. OPENED },
    { "an opening with words", frame("OPENED", 1, { { "SIZE", 1 } }) }, { "an entry", OPENED .. frame("ENTRY", 1, "") },
    { "more than its window", OPENED .. frame("DATA", 1, event(0, "a")):rep(3300) },
  }
  for _, case in ipairs(WRONG) do
    it("shuts the channel at " .. case[1], with_words(case[2], function(channel)
      assert.is_true(channel:closed(WAIT_MS))
    end))
  end
end)
