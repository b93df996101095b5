--- Directories in the sandbox: stat, list, mkdir, remove, move.

local core = require "demilune.core"
local harness = require "spec.agent.harness"
local lfs = require "lfs"

local run, slurp, spill, with = harness.run, harness.slurp, harness.spill, harness.with
local task = core.task

local function sh(command) assert(os.execute(command), command) end

local function code(result, err)
  assert.is_nil(result)
  assert.are.equal("agent", err.category)
  return err.code
end

--- Paths below `place`, in the order they came.
local function paths(place, entries)
  local list = {}
  for i, entry in ipairs(entries) do list[i] = entry.path:sub(#place + 2) end
  return list
end

describe("stat", function()
  it("tells what a file is", with({ is_boxed = true }, function(channel, place)
    run(channel, "printf abc >f; chmod 640 f; touch -d @1700000000.25 f; ln -s f l; mkfifo p", { cwd = place })
    local user, group = run(channel, "stat -c '%U %G' f", { cwd = place }).stdout:match("(%S+) (%S+)")
    assert.are.same({ name = "f", path = place .. "/f", type = "file", size = 3, mode = tonumber("640", 8),
      mtime_ms = 1700000000250, owner = user, group = group }, channel:stat(place .. "/f"))
    local link = channel:stat(place .. "/l")
    assert.are.same({ "symlink", "f" }, { link.type, link.target })
    assert.are.equal("other", channel:stat(place .. "/p").type)
    local directory = channel:stat(place .. "/")
    assert.are.same({ "directory", place }, { directory.type, directory.path })
    assert.are.equal("/", channel:stat("/").name)
  end))

  it("knows the names of owners", with(function(channel)
    local entry = channel:stat("/etc/passwd")
    assert.are.same({ "root", "root" }, { entry.owner, entry.group })
  end))

  it("takes a relative path from the working directory", with({ is_boxed = true }, function(channel, place)
    spill(place .. "/here", "x")
    assert.are.equal(1, channel:stat("here").size)
  end))

  it("is refused with a reason", with(function(channel, place)
    spill(place .. "/f", "x")
    assert.are.equal("not_found", code(channel:stat(place .. "/no")))
    assert.are.equal("not_a_directory", code(channel:stat(place .. "/f/x")))
    assert.are.equal("invalid", code(channel:stat("")))
  end))
end)

describe("list", function()
  it("gives a directory's entries in the order of their bytes", with(function(channel, place)
    for _, name in ipairs { "b", "B", "a", "é", "a b", "\255", ".h", "Z\n" } do spill(place .. "/" .. name, "x") end
    local entries, total = channel:list(place, 1, 100)
    assert.are.same({ ".h", "B", "Z\n", "a", "a b", "b", "é", "\255" }, paths(place, entries))
    assert.are.equal(8, total)
    assert.are.same({ "file", 1 }, { entries[1].type, entries[1].size })
  end))

  it("goes as deep as it is told and follows no symlink", with(function(channel, place)
    sh(("cd %s; mkdir -p a/b/c d; touch a/f a/b/g a/b/c/h; ln -s ../a d/up; ln -s . self"):format(place))
    local function listed(depth) return paths(place, (channel:list(place, depth, 100))) end
    assert.are.same({ "a", "d", "self" }, listed(1))
    assert.are.same({ "a", "a/b", "a/f", "d", "d/up", "self" }, listed(2))
    assert.are.same({ "a", "a/b", "a/b/c", "a/b/c/h", "a/b/g", "a/f", "d", "d/up", "self" }, listed(64))
    assert.are.same({ "up" }, paths(place .. "/self/d", (channel:list(place .. "/self/d"))))
  end))

  it("counts all and gives the first", with(function(channel, place)
    sh(("cd %s; seq -f f%%05g 1 3000 | xargs touch"):format(place))
    local entries, total = channel:list(place, 1, 5)
    assert.are.same({ "f00001", "f00002", "f00003", "f00004", "f00005" }, paths(place, entries))
    assert.are.equal(3000, total)
    entries = channel:list(place, 1, 10000)
    assert.are.equal(3000, #entries)
    for i, path in ipairs(paths(place, entries)) do assert.are.equal(("f%05d"):format(i), path) end
  end))

  it("passes over what may not be read", with({ is_boxed = true }, function(channel, place)
    run(channel, "mkdir -p a/x b/y; chmod 0 a", { cwd = place })
    assert.are.same({ "a", "b", "b/y" }, paths(place, (channel:list(place, 9, 100))))
    assert.are.equal("permission", code(channel:list(place .. "/a", 1, 1)))
  end))

  it("is refused with a reason", with(function(channel, place)
    spill(place .. "/f", "x")
    assert.are.equal("not_a_directory", code(channel:list(place .. "/f", 1, 1)))
    assert.are.equal("not_found", code(channel:list(place .. "/no", 1, 1)))
    assert.has_error(function() channel:list(place, 0, 1) end)
    assert.has_error(function() channel:list(place, 1, 10001) end)
  end))
end)

describe("mkdir", function()
  it("makes a directory and those above", with(function(channel, place)
    assert.is_true(channel:mkdir(place .. "/a/b/c/"))
    assert.are.equal("directory", lfs.attributes(place .. "/a/b/c", "mode"))
  end))

  it("is refused with a reason", with(function(channel, place)
    spill(place .. "/f", "x")
    assert.are.equal("exists", code(channel:mkdir(place)))
    assert.are.equal("exists", code(channel:mkdir(place .. "/f")))
    assert.are.equal("not_a_directory", code(channel:mkdir(place .. "/f/x")))
    assert.are.equal("not_found", code(channel:mkdir("/proc/no/x")))
  end))
end)

describe("remove", function()
  it("takes files, links and whole trees, and nothing behind a link", with(function(channel, place)
    sh(("cd %s; mkdir -p t/a/b k; echo keep >k/f; ln -s ../k t/link; ln -s ../../k/f t/a/l; mkfifo t/p; "
      .. "touch t/a/b/f; ln -s k lk"):format(place))
    assert.is_true(channel:remove(place .. "/t/"))
    assert.is_nil(lfs.symlinkattributes(place .. "/t"))
    assert.is_true(channel:remove(place .. "/lk"))
    assert.are.equal("keep\n", slurp(place .. "/k/f"))
  end))

  it("leaves the channel responsive while it takes a large tree", with(function(channel, place)
    sh(("cd %s; for d in $(seq 1 40); do mkdir -p t/$d/x; (cd t/$d; seq 1 500 | xargs touch); done"):format(place))
    local removal = task.spawn(function() return channel:remove(place .. "/t") end)
    local slowest = 0
    while removal:status() == "running" do
      local began = task.now_ms()
      assert(channel:stat(place))
      slowest = math.max(slowest, task.now_ms() - began)
    end
    assert.is_true(select(2, removal:wait()))
    assert.is_true(slowest < 200, slowest .. " ms")
    assert.is_nil(lfs.attributes(place .. "/t"))
  end))

  it("goes 256 levels deep and no deeper", with(function(channel, place)
    local function nest(levels) sh(("mkdir -p %s/%s"):format(place, ("d/"):rep(levels))) end
    nest(256)
    assert.is_true(channel:remove(place .. "/d"))
    nest(300)
    assert.are.equal("too_large", code(channel:remove(place .. "/d")))
  end))

  it("stops where the user may not", with({ is_boxed = true }, function(channel, place)
    run(channel, "mkdir -p t/a; touch t/a/f; chmod 555 t/a", { cwd = place })
    assert.are.equal("permission", code(channel:remove(place .. "/t")))
    assert.are.equal("permission", code(channel:remove("/etc/passwd")))
    assert.are.equal("permission", code(channel:remove("/usr")))
  end))

  it("is refused with a reason", with(function(channel, place)
    assert.are.equal("not_found", code(channel:remove(place .. "/no")))
    for _, path in ipairs { "/", ".", "..", place .. "/.", place .. "/..", "//" } do
      assert.are.equal("invalid", code(channel:remove(path)))
    end
    assert.are.equal("directory", lfs.attributes(place, "mode"))
  end))

  it("is stopped with the task that asked for it", with(function(channel, place)
    sh(("cd %s; for d in $(seq 1 60); do mkdir -p t/$d; (cd t/$d; seq 1 500 | xargs touch); done"):format(place))
    local removal = task.spawn(function() return channel:remove(place .. "/t") end)
    task.sleep(2)
    removal:cancel()
    removal:wait(1000)
    assert.truthy(channel:stat(place))
  end))
end)

describe("move", function()
  it("renames what is there, of any kind", with(function(channel, place)
    sh(("cd %s; mkdir -p d/e; echo 1 >f; ln -s nowhere l; mkfifo p; echo x >d/e/x"):format(place))
    assert.is_true(channel:move(place .. "/f", place .. "/g"))
    assert.are.equal("1\n", slurp(place .. "/g"))
    assert.is_true(channel:move(place .. "/d/", place .. "/dd/"))
    assert.are.equal("x\n", slurp(place .. "/dd/e/x"))
    assert.is_true(channel:move(place .. "/l", place .. "/l2"))
    assert.are.equal("nowhere", channel:stat(place .. "/l2").target)
    assert.is_true(channel:move(place .. "/p", place .. "/p2"))
    for _, name in ipairs { "f", "d", "l", "p" } do assert.is_nil(lfs.symlinkattributes(place .. "/" .. name)) end
  end))

  it("makes the parents of the destination, and replaces a file there", with(function(channel, place)
    sh(("cd %s; echo new >f; echo old >g; ln -s g l"):format(place))
    assert.is_true(channel:move(place .. "/f", place .. "/a/b/c"))
    assert.are.equal("new\n", slurp(place .. "/a/b/c"))
    assert.is_true(channel:move(place .. "/a/b/c", place .. "/l"))
    assert.are.equal("file", lfs.symlinkattributes(place .. "/l", "mode"))
    assert.are.equal("old\n", slurp(place .. "/g"))
    assert.is_true(channel:move(place .. "/g", place .. "/g"))
  end))

  it("is refused with a reason", with(function(channel, place)
    sh(("cd %s; mkdir -p d/in full empty; echo x >f; echo x >full/x"):format(place))
    assert.are.equal("not_found", code(channel:move(place .. "/no", place .. "/made/x")))
    assert.is_nil(lfs.attributes(place .. "/made"))
    assert.are.equal("exists", code(channel:move(place .. "/d", place .. "/full")))
    assert.are.equal("exists", code(channel:move(place .. "/d", place .. "/empty")))
    assert.are.equal("exists", code(channel:move(place .. "/f", place .. "/d")))
    assert.are.equal("not_a_directory", code(channel:move(place .. "/f", place .. "/full/x/y")))
    assert.are.equal("not_a_directory", code(channel:move(place .. "/d", place .. "/f")))
    assert.are.equal("invalid", code(channel:move(place .. "/d", place .. "/d/in/d")))
    assert.are.equal("too_large", code(channel:move(place .. "/f", place .. "/" .. ("x"):rep(256))))
    assert.are.equal("invalid", code(channel:move(place .. "/f", "")))
    assert.are.equal("invalid", code(channel:move("", place .. "/f")))
    assert.are.equal("invalid", code(channel:move(place .. "/f", "/a\0b")))
    assert.are.equal("x\n", slurp(place .. "/f"))
  end))

  it("stops where the user may not, and at the end of a file system", with({ is_boxed = true }, function(channel, place)
    run(channel, "echo x >f; mkdir shut; chmod 555 shut", { cwd = place })
    assert.are.equal("permission", code(channel:move(place .. "/f", place .. "/shut/f")))
    assert.are.equal("permission", code(channel:move("/etc/passwd", "/etc/f")))
    assert.are.equal("cross_device", code(channel:move(place .. "/f", "/tmp/f")))
    assert.are.equal("x\n", slurp(place .. "/f"))
  end))
end)
