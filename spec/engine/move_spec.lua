-- timeout: 60
--- filesystem.Filesystem/Move, within a file system and over its end.

local support = require "spec.engine.support"

describe("Move", function()
  local engine, sandbox

  setup(function()
    engine = support.start()
    support.run(function() sandbox = engine:create { demilune = { template = { disk = 64 } }, templateID = "small" } end)
  end)
  teardown(function() engine:stop() end)

  local function within(fn) return function() support.run(fn) end end

  local function sh(command) return sandbox:start(command).stdout end

  local function move(source, destination)
    return sandbox:unary("filesystem.Filesystem/Move", { source = source, destination = destination })
  end

  it("renames, makes the parents, and says what is there then", within(function()
    sandbox:write("a", "hello")
    local status, body = move("a", "new/folder/b")
    assert.are.equal(200, status)
    local entry = body.entry
    assert.are.same({ "b", "/home/user/new/folder/b", "FILE_TYPE_FILE", "5", 420, "-rw-r--r--", "user" },
      { entry.name, entry.path, entry.type, entry.size, entry.mode, entry.permissions, entry.owner })
    assert.are.same({ 404, 200 }, { sandbox:read("a").status, sandbox:read("new/folder/b").status })
    sh "mkdir -p tree/x; echo 1 >tree/x/f"
    assert.are.equal("FILE_TYPE_DIRECTORY", (select(2, move("tree", "~/moved/"))).entry.type)
    assert.are.equal("1\n", sandbox:read("moved/x/f").body)
  end))

  it("replaces a file and no directory", within(function()
    sh "echo 1 >f; echo 2 >g; mkdir -p dir empty; touch dir/x"
    assert.are.equal(200, (move("f", "g")))
    assert.are.equal("1\n", sandbox:read("g").body)
    for _, destination in ipairs { "dir", "empty", "/tmp" } do
      local status, body = move("g", destination)
      assert.are.same({ 409, "already_exists", "exists" }, { status, body.code, body.error_code })
    end
  end))

  it("copies over to another file system, and then removes", within(function()
    sh [[mkdir -p far/d; echo 1 >far/d/f; chmod 640 far/d/f; ln -s f far/d/l; touch -d @1700000000 far/d/f; echo old >/tmp/file]]
    local status, body = move("far", "/tmp/made/far")
    assert.are.same({ 200, "/tmp/made/far" }, { status, body.entry.path })
    assert.are.equal("640 1700000000 f\n", sh "stat -c '%a %Y' /tmp/made/far/d/f | tr '\\n' ' '; readlink /tmp/made/far/d/l")
    assert.are.equal("gone\n", sh "test -e far || echo gone")
    sandbox:write("-odd 'name\n", "new")
    assert.are.equal(200, (move("-odd 'name\n", "/tmp/file")))
    assert.are.equal("new", sandbox:read("/tmp/file").body)
    assert.are.equal("", sh "find / -name '.demilune-*' 2>/dev/null")
  end))

  it("leaves all as it was where the copy fails", within(function()
    sh "mkdir /tmp/big; head -c 20000000 /dev/zero >/tmp/big/a; head -c 50000000 /dev/zero >hog"
    local status, body = move("/tmp/big", "big")
    assert.are.same({ 507, "resource_exhausted", "disk_full" }, { status, body.code, body.error_code })
    assert.are.equal("20000000\n", sh "stat -c %s /tmp/big/a; find . -name 'big*' -o -name '.demilune-*'")
    sh "rm hog; mkdir shut; echo x >shut/f; chmod 0 shut/f"
    status, body = move("shut/f", "/tmp/f")
    assert.are.same({ 403, "file_permission" }, { status, body.error_code })
  end))

  it("is refused with a reason", within(function()
    local CASES = {
      { "no", "x", 404, "file_not_found" }, { "/etc/passwd", "/etc/x", 403, "file_permission" },
      { "new", "new/inside", 400, "invalid_argument" }, { "g", "g/x", 400, "not_a_directory" },
      { nil, "x", 400, "invalid_argument" }, { "x", nil, 400, "invalid_argument" },
      { "x\0", "x", 400, "invalid_argument" }, { "g", ("x"):rep(5000), 400, "invalid_argument" },
    }
    for i, case in ipairs(CASES) do
      local status, body = move(case[1], case[2])
      assert.are.same({ i, case[3], case[4] }, { i, status, body.error_code })
    end
  end))
end)
