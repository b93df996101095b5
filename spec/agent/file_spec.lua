--- Contents of files in the sandbox: read, replace, append, and what goes wrong.

local core = require "demilune.core"
local harness = require "spec.agent.harness"
local lfs = require "lfs"
local os_calls = require "spec_os"

local read, write, slurp, spill, with = harness.read, harness.write, harness.slurp, harness.spill, harness.with
local task = core.task

local function mode(path)
  local pipe = io.popen("stat -c %a '" .. path .. "'")
  local text = pipe:read("l")
  pipe:close()
  return text
end

local function sh(command) assert(os.execute(command), command) end

local function names(path)
  local list = {}
  for name in lfs.dir(path) do
    if name ~= "." and name ~= ".." then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

--- The code of an error that must come.
local function code(result, err)
  assert.is_nil(result)
  assert.are.equal("agent", err.category)
  return err.code
end

describe("reading a file", function()
  it("gives its bytes, size and mode", with(function(channel, place)
    local bytes = harness.noise(1000003)
    spill(place .. "/f", bytes)
    os_calls.chmod(place .. "/f", tonumber("640", 8))
    local got, reader = read(channel, place .. "/f")
    assert.are.equal(core.crypto.sha256(bytes), core.crypto.sha256(got))
    assert.are.equal(1000003, reader.size)
    assert.are.equal(tonumber("640", 8), reader.mode)
    assert.is_nil(reader.other)
  end))

  it("gives a part", with(function(channel, place)
    spill(place .. "/f", "0123456789")
    assert.are.equal("34", (read(channel, place .. "/f", 3, 2)))
    assert.are.equal("89", (read(channel, place .. "/f", 8, 100)))
    assert.are.equal("", (read(channel, place .. "/f", 10)))
    assert.are.equal("", (read(channel, place .. "/f", 1000)))
    assert.are.equal("", (read(channel, place .. "/f", 0, 0)))
  end))

  it("gives what /proc makes up, whatever size it claims", with(function(channel)
    local got, reader = read(channel, "/proc/self/status")
    assert.are.equal(0, reader.size)
    assert.truthy(got:find("^Name:"))
  end))

  it("is refused with a reason", with(function(channel, place)
    spill(place .. "/f", "x")
    sh("mkfifo " .. place .. "/fifo; ln -s loop " .. place .. "/loop")
    assert.are.equal("not_found", code(channel:open_read(place .. "/no")))
    assert.are.equal("not_a_directory", code(channel:open_read(place .. "/f/x")))
    assert.are.equal("is_directory", code(channel:open_read(place)))
    assert.are.equal("unsupported", code(channel:open_read(place .. "/fifo")))
    assert.are.equal("unsupported", code(channel:open_read("/dev/zero")))
    assert.are.equal("invalid", code(channel:open_read(place .. "/loop")))
    assert.are.equal("invalid", code(channel:open_read("")))
    assert.are.equal("invalid", code(channel:open_read("a\0b")))
    assert.are.equal("invalid", code(channel:open_read(("a"):rep(4097))))
    assert.are.equal("too_large", code(channel:open_read(("a"):rep(300))))
  end))

  it("is refused where the sandbox's user may not", with({ is_boxed = true }, function(channel)
    assert.are.equal("permission", code(channel:open_read("/etc/shadow")))
  end))

  it("may be left off in the middle", with(function(channel, place)
    spill(place .. "/f", harness.noise(3000000))
    local reader = assert(channel:open_read(place .. "/f"))
    assert.truthy(reader:read())
    reader:close()
    reader:close()
    assert.are.equal("closed", code(reader:read()))
    assert.are.equal(3000000, #read(channel, place .. "/f"))
  end))

  it("is paced by who takes it", with(function(channel, place)
    spill(place .. "/f", harness.noise(20000000))
    local readers = {}
    for i = 1, 20 do readers[i] = assert(channel:open_read(place .. "/f")) end
    task.sleep(50)
    assert.truthy(channel:stat(place .. "/f"))
    for _, reader in ipairs(readers) do
      local total = 0
      for chunk in function() return reader:read() end do total = total + #chunk end
      assert.are.equal(20000000, total)
    end
  end))
end)

describe("replacing a file", function()
  it("writes it and makes what directories are missing", with(function(channel, place)
    local bytes = harness.noise(1000003)
    assert.are.same({ size = 1000003 }, write(channel, place .. "/a/b/f", bytes))
    assert.are.equal(bytes, slurp(place .. "/a/b/f"))
    assert.are.equal("644", mode(place .. "/a/b/f"))
    assert.are.equal("755", mode(place .. "/a/b"))
    assert.are.same({ size = 0 }, write(channel, place .. "/a/b/f", ""))
    assert.are.equal("", slurp(place .. "/a/b/f"))
  end))

  it("keeps the mode, less set-id bits", with(function(channel, place)
    spill(place .. "/f", "old")
    for _, bits in ipairs { "755", "600" } do
      os_calls.chmod(place .. "/f", tonumber(bits, 8))
      assert.truthy(write(channel, place .. "/f", "new"))
      assert.are.equal(bits, mode(place .. "/f"))
    end
    os_calls.chmod(place .. "/f", tonumber("4755", 8))
    assert.truthy(write(channel, place .. "/f", "new"))
    assert.are.equal("755", mode(place .. "/f"))
  end))

  it("follows a final symlink, even one that points to nothing yet", with(function(channel, place)
    sh(("mkdir %s/d; ln -s d/target %s/link; ln -s link %s/twice; ln -s %s/abs %s/absolute"):format(place, place, place,
      place, place))
    assert.truthy(write(channel, place .. "/twice", "one"))
    assert.are.equal("one", slurp(place .. "/d/target"))
    assert.truthy(write(channel, place .. "/link", "two"))
    assert.are.equal("two", slurp(place .. "/d/target"))
    assert.truthy(write(channel, place .. "/absolute", "three"))
    assert.are.equal("three", slurp(place .. "/abs"))
    for _, name in ipairs { "link", "twice", "absolute" } do
      assert.are.equal("link", lfs.symlinkattributes(place .. "/" .. name, "mode"))
    end
  end))

  it("shows a reader the old file or the new one", with(function(channel, place)
    spill(place .. "/f", "old")
    local writer = assert(channel:open_write(place .. "/f"))
    assert.is_true(writer:write(harness.noise(500000)))
    assert.are.equal("old", slurp(place .. "/f"))
    assert.are.same({ size = 500000 }, writer:commit())
    assert.are.equal(500000, #slurp(place .. "/f"))
    assert.are.same({ "f" }, names(place))
    assert.are.equal("closed", code(writer:write("late")))
  end))

  it("leaves the old file and nothing else when it is given up", with(function(channel, place)
    spill(place .. "/f", "old")
    local writer = assert(channel:open_write(place .. "/f"))
    assert.is_true(writer:write(harness.noise(500000)))
    writer:abort()
    writer:abort()
    assert.are.equal("closed", code(writer:commit()))
    assert(channel:stat(place)) -- so that the abort is through
    assert.are.same({ "f" }, names(place))
    assert.are.equal("old", slurp(place .. "/f"))
  end))

  it("is given up with its writer, or with the task that writes", with(function(channel, place)
    local writer = assert(channel:open_write(place .. "/f"))
    assert.is_true(writer:write("x"))
    writer = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert(channel:stat(place))
    assert.are.same({}, names(place))
    do
      local closing <close> = assert(channel:open_write(place .. "/g"))
      assert.is_true(closing:write("x"))
    end
    assert(channel:stat(place))
    assert.are.same({}, names(place))
  end))

  it("is refused with a reason", with(function(channel, place)
    spill(place .. "/f", "x")
    sh("mkfifo " .. place .. "/fifo; ln -s loop " .. place .. "/loop; mkdir " .. place .. "/d")
    assert.are.equal("is_directory", code(channel:open_write(place .. "/d")))
    assert.are.equal("is_directory", code(channel:open_write(place .. "/new/")))
    assert.are.equal("not_a_directory", code(channel:open_write(place .. "/f/x")))
    assert.are.equal("unsupported", code(channel:open_write(place .. "/fifo")))
    assert.are.equal("unsupported", code(channel:open_write("/dev/null")))
    assert.are.equal("invalid", code(channel:open_write(place .. "/loop")))
    assert.are.equal("too_large", code(channel:open_write(place .. "/" .. ("n"):rep(300))))
  end))

  it("is refused where the user may not, and for a file made read-only", with({ is_boxed = true },
    function(channel, place)
      assert.are.equal("permission", code(channel:open_write("/etc/new")))
      assert.are.equal("permission", code(channel:open_write("/etc/passwd")))
      harness.run(channel, "echo old >f; chmod 444 f", { cwd = place })
      assert.are.equal("permission", code(channel:open_write(place .. "/f")))
      assert.are.equal("old\n", slurp(place .. "/f"))
    end))

  it("is done in place where no sibling can be made", with({ is_boxed = true }, function(channel, place)
    harness.run(channel, "mkdir d; echo older >d/f; chmod 666 d/f; chmod 555 d", { cwd = place })
    assert.are.same({ size = 3 }, write(channel, place .. "/d/f", "new"))
    assert.are.equal("new", slurp(place .. "/d/f"))
    assert.are.same({ "f" }, names(place .. "/d"))
    assert.are.equal("permission", code(channel:open_write(place .. "/d/g")))
  end))

  it("is done in place for a file that is mounted on its own", function()
    if os_calls.ids() ~= 0 then return pending("only root can mount") end
    with(function(channel, place)
      spill(place .. "/real", "old")
      spill(place .. "/point", "")
      sh(("mount --bind %s/real %s/point"):format(place, place))
      local done = write(channel, place .. "/point", "written")
      sh(("umount %s/point"):format(place))
      assert.are.same({ size = 7 }, done)
      assert.are.equal("written", slurp(place .. "/real"))
    end)()
  end)

  it("leaves the old file when the disk is full", function()
    if os_calls.ids() ~= 0 then return pending("only root can mount a small disk") end
    with(function(channel, place)
      sh("mount -t tmpfs -o size=256k none " .. place)
      spill(place .. "/f", "old")
      local done, err = write(channel, place .. "/f", harness.noise(2000000))
      local after, left = slurp(place .. "/f"), names(place)
      local appended, append_err = write(channel, place .. "/f", harness.noise(2000000), { append_at = 3 })
      local after_append = slurp(place .. "/f")
      sh("umount " .. place)
      assert.are.equal("no_space", code(done, err))
      assert.are.equal("old", after)
      assert.are.same({ "f" }, left)
      assert.are.equal("no_space", code(appended, append_err))
      assert.are.equal("old", after_append)
    end)()
  end)

  it("goes both ways at once without a standstill", with(function(channel, place)
    local bytes = harness.noise(20000000)
    spill(place .. "/from", bytes)
    local handles = {}
    for i = 1, 4 do
      handles[#handles + 1] = task.spawn(function() return #read(channel, place .. "/from") end)
      handles[#handles + 1] = task.spawn(function() return write(channel, place .. "/to" .. i, bytes).size end)
    end
    for _, handle in ipairs(handles) do assert.are.same({ true, 20000000 }, { handle:wait(20000) }) end
    assert.are.equal(core.crypto.sha256(bytes), core.crypto.sha256(slurp(place .. "/to4")))
  end))
end)

describe("appending to a file", function()
  it("adds at just the size that is there", with(function(channel, place)
    assert.are.same({ size = 3 }, write(channel, place .. "/d/f", "one", { append_at = 0 }))
    assert.are.same({ size = 6 }, write(channel, place .. "/d/f", "two", { append_at = 3 }))
    assert.are.equal("onetwo", slurp(place .. "/d/f"))
  end))

  it("is a conflict at any other size, which is told", with(function(channel, place)
    spill(place .. "/f", "12345")
    for _, at in ipairs { 0, 4, 6 } do
      local writer, err = channel:open_write(place .. "/f", { append_at = at })
      assert.is_nil(writer)
      assert.are.same({ "conflict", 5 }, { err.code, err.size })
    end
    assert.are.equal("not_found", code(channel:open_write(place .. "/new", { append_at = 5 })))
  end))

  it("is undone when it is given up", with(function(channel, place)
    spill(place .. "/f", "12345")
    local writer = assert(channel:open_write(place .. "/f", { append_at = 5 }))
    assert.is_true(writer:write("678"))
    writer:abort()
    assert.are.equal(5, channel:stat(place .. "/f").size)
  end))
end)
