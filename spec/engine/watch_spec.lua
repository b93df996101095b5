-- timeout: 90
--- Watchers of filesystem.Filesystem: the stream and the polled form.

local core = require "demilune.core"
local support = require "spec.engine.support"

local task = core.task

describe("watchers of the engine", function()
  local engine, sandbox

  setup(function()
    engine = support.start()
    support.run(function()
      sandbox = engine:create()
      sandbox:start "mkdir -p w/sub f; : >file"
    end)
  end)
  teardown(function() engine:stop() end)

  local function within(fn) return function() support.run(fn) end end

  --- Opens WatchDir and takes its start event.
  local function watch(message, headers)
    local res, next_frame = sandbox:open("filesystem.Filesystem/WatchDir", message, headers)
    assert.are.same({ start = {} }, next_frame().message)
    return res, next_frame
  end

  --- Events as "name TYPE" until `last`.
  local function collect(next_frame, last)
    local said = {}
    for frame in next_frame do
      local event = frame.message.filesystem
      said[#said + 1] = event and event.name .. " " .. event.type:gsub("EVENT_TYPE_", "") or frame
      if said[#said] == last then break end
    end
    return said
  end

  local function ending_of(message, headers)
    local res, next_frame = sandbox:open("filesystem.Filesystem/WatchDir", message, headers)
    local frame = next_frame()
    while frame.flags ~= 2 do frame = next_frame() end
    res:close()
    return frame.message.error
  end

  it("stream what happens in a folder", within(function()
    local res, next_frame = watch { path = "w" }
    sandbox:start "cd w; echo 1 >a; chmod 600 a; mv a b; rm b; echo 1 >sub/deep; mkdir end"
    assert.are.same({ "a CREATE", "a WRITE", "a CHMOD", "a RENAME", "b CREATE", "b REMOVE", "end CREATE" },
      collect(next_frame, "end CREATE"))
    res:close()
  end))

  it("go down folders, and show entries, where they are asked to", within(function()
    local res, next_frame = watch { path = "/home/user/w", recursive = true, includeEntry = true }
    sandbox:write("w/sub/deep2", "12345")
    sandbox:start "mkdir w/sub/new; sleep 0.1; echo 12 >w/sub/new/f; rm w/sub/new/f"
    local entry, removed
    for frame in next_frame do
      local event = frame.message.filesystem
      if event.name == "sub/new/f" and event.entry then entry = event.entry end
      removed = event.name == "sub/new/f" and event.type == "EVENT_TYPE_REMOVE" and event
      if removed then break end
    end
    assert.is_nil(removed.entry)
    assert.is_true(entry == nil or entry.path == "/home/user/w/sub/new/f")
    sandbox:write("w/sub/whole", "12345")
    for frame in next_frame do
      local event = frame.message.filesystem
      if event.name == "sub/whole" then
        assert.are.same({ "whole", "/home/user/w/sub/whole", "5", "FILE_TYPE_FILE" },
          { event.entry.name, event.entry.path, event.entry.size, event.entry.type })
        break
      end
    end
    res:close()
  end))

  it("stay alive, and end at a deadline", within(function()
    local began = task.now_ms()
    local res, next_frame = watch({ path = "w" }, { ["Keepalive-Ping-Interval"] = "1", ["Connect-Timeout-Ms"] = "1500" })
    assert.are.same({ keepalive = {} }, next_frame().message)
    assert.is_true(task.now_ms() - began > 900)
    local last = next_frame()
    assert.are.same({ 2, "deadline_exceeded" }, { last.flags, last.message.error.code })
    assert.is_true(task.now_ms() - began < 2500)
    res:close()
  end))

  it("end with their folder, and with their sandbox", within(function()
    sandbox:start "mkdir short"
    local res, next_frame = watch { path = "short" }
    sandbox:start "rmdir short"
    local said = collect(next_frame)
    assert.are.same({ ". REMOVE", { flags = 2, message = {} } }, { said[#said - 1], said[#said] })
    res:close()
    local other = engine:create()
    local res2, next2 = other:open("filesystem.Filesystem/WatchDir", { path = "/home/user" })
    assert.are.same({ start = {} }, next2().message)
    other:kill()
    local last = next2()
    assert.are.same({ 2, "unavailable", "sandbox_gone" }, { last.flags, last.message.error.code, last.message.error.error_code })
    res2:close()
  end))

  local FLOOD = "for i in $(seq 1 8); do seq -f 'a-name-that-is-rather-long-for-a-file-%.0f' 1 9000 "
    .. "| (cd f; xargs touch; ls | xargs rm); done"

  it("tell that events were lost, and end", within(function()
    local res, next_frame = sandbox:open("filesystem.Filesystem/WatchDir", { path = "f" })
    assert.are.same({ start = {} }, next_frame().message)
    sandbox:start(FLOOD) -- nobody reads meanwhile
    local last
    for frame in next_frame do last = frame end
    assert.are.same({ 2, "resource_exhausted" }, { last.flags, last.message.error.code })
    res:close()
  end))

  it("are refused with a reason", within(function()
    local CASES = {
      { { path = "no" }, "not_found" }, { { path = "file" }, "invalid_argument" }, { {}, "invalid_argument" },
      { { path = "/root" }, "not_found", "permission_denied" }, { { path = "w", recursive = 1 }, "invalid_argument" },
    }
    for i, case in ipairs(CASES) do
      local code = ending_of(case[1]).code
      assert.is_true(code == case[2] or code == case[3], i .. " " .. code)
    end
    assert.are.equal("invalid_argument", ending_of({ path = "w" }, { ["Keepalive-Ping-Interval"] = "x" }).code)
  end))

  local function call(name, message) return sandbox:unary("filesystem.Filesystem/" .. name, message) end

  local function names(body)
    local list = {}
    for i, event in ipairs(body.events) do list[i] = event.name .. " " .. event.type:gsub("EVENT_TYPE_", "") end
    return list
  end

  it("collect events between polls", within(function()
    local status, made = call("CreateWatcher", { path = "w" })
    assert.are.equal(200, status)
    assert.truthy(made.watcherId:find "^[a-z2-7]+$")
    assert.are.same({ 200, {} }, { (call("GetWatcherEvents", { watcherId = made.watcherId })),
      names(select(2, call("GetWatcherEvents", { watcherId = made.watcherId }))) })
    sandbox:start "cd w; : >p; rm p"
    assert.are.same({ "p CREATE", "p REMOVE" }, names(select(2, call("GetWatcherEvents", { watcherId = made.watcherId }))))
    assert.are.same({}, names(select(2, call("GetWatcherEvents", { watcherId = made.watcherId }))))
    assert.are.equal(200, (call("RemoveWatcher", { watcherId = made.watcherId })))
    for _, name in ipairs { "GetWatcherEvents", "RemoveWatcher" } do
      local gone, body = call(name, { watcherId = made.watcherId })
      assert.are.same({ 404, "not_found" }, { gone, body.code })
    end
    assert.are.equal(400, (call("GetWatcherEvents", {})))
  end))

  it("are of one sandbox alone", within(function()
    local other = engine:create()
    local _, made = call("CreateWatcher", { path = "w" })
    assert.are.equal(404, (other:unary("filesystem.Filesystem/GetWatcherEvents", { watcherId = made.watcherId })))
    call("RemoveWatcher", made)
    other:kill()
  end))

  it("keep only so much for nobody, and say so", within(function()
    local _, made = call("CreateWatcher", { path = "f" })
    sandbox:start(FLOOD)
    local count = 0
    for _ = 1, 200 do
      local status, body = call("GetWatcherEvents", made)
      if status ~= 200 then
        assert.are.same({ 503, "resource_exhausted" }, { status, body.code })
        break
      end
      assert.is_true(#body.events <= 8000, #body.events)
      count = count + #body.events
      task.sleep(5)
    end
    assert.is_true(count > 5000 and count < 100000, count)
    assert.are.equal(503, (call("GetWatcherEvents", made)))
    assert.are.equal(200, (call("RemoveWatcher", made)))
  end))

  it("are 32 at a time, of both forms, and room comes back", within(function()
    local res = watch { path = "w" }
    local made = {}
    for i = 1, 31 do made[i] = select(2, call("CreateWatcher", { path = "w" })) end
    local status, body = call("CreateWatcher", { path = "w" })
    assert.are.same({ 503, "resource_exhausted" }, { status, body.code })
    assert.are.equal("resource_exhausted", ending_of({ path = "w" }).code)
    res:close()
    local again = support.eventually(function()
      local worked, watcher = call("CreateWatcher", { path = "w" })
      return worked == 200 and watcher
    end)
    assert.truthy(again)
    made[#made + 1] = again
    for _, watcher in ipairs(made) do assert.are.equal(200, (call("RemoveWatcher", watcher))) end
  end))
end)
