-- timeout: 120
--- /files and filesystem.Filesystem: bytes both ways, ranges, appends, multipart bodies, and every way to fail.

local core = require "demilune.core"
local support = require "spec.engine.support"

local json = core.json

describe("/files of the engine", function()
  local engine, sandbox

  setup(function()
    engine = support.start()
    support.run(function()
      sandbox = engine:create { demilune = { template = { disk = 256 } }, templateID = "small" }
      sandbox:start "mkdir d; printf 0123456789 >digits; mkfifo pipe; : >empty; ln -s digits link; mkdir shut; chmod 0 shut"
    end)
  end)
  teardown(function() engine:stop() end)

  local function within(fn) return function() support.run(fn) end end

  it("writes and reads bytes of any kind, makes folders, and says where", within(function()
    local bytes = ("\0\1\255\r\n--x"):rep(1000)
    local status, body, res = sandbox:write("new/folder/ü x.bin", bytes)
    assert.are.equal(200, status)
    assert.are.same({ { name = "ü x.bin", type = "file", path = "/home/user/new/folder/ü x.bin" } },
      { { name = body[1].name, type = body[1].type, path = body[1].path } })
    assert.are.equal(tostring(#bytes), res.headers["x-demilune-size"])
    local read = sandbox:read "/home/user/new/folder/ü x.bin"
    assert.are.same({ 200, tostring(#bytes), "application/octet-stream" },
      { read.status, read.headers["content-length"], read.headers["content-type"] })
    assert.is_true(read.body == bytes)
    assert.are.equal("/home/user/x", (select(2, sandbox:write("~/x", "1")))[1].path)
    assert.are.equal("/home/user/x", (select(2, sandbox:write(".//./x", "1")))[1].path)
    assert.are.equal("", sandbox:read("empty").body)
    assert.are.equal(200, (sandbox:write("empty2", "")))
    assert.are.equal("", sandbox:read("empty2").body)
  end))

  it("sends files of /proc, which say that they are empty, as they come", within(function()
    local res = sandbox:read "/proc/self/status"
    assert.are.equal(200, res.status)
    assert.truthy(res.body:find "^Name:")
  end))

  it("sends ranges", within(function()
    local CASES = {
      { "bytes=0-3", 206, "0123", "bytes 0-3/10" },
      { "bytes=4-", 206, "456789", "bytes 4-9/10" },
      { "bytes=8-100", 206, "89", "bytes 8-9/10" },
      { "bytes=9-9", 206, "9", "bytes 9-9/10" },
      { "bytes=-3", 206, "789", "bytes 7-9/10" },
      { "bytes=-100", 206, "0123456789", "bytes 0-9/10" },
      { "bytes=10-", 416, nil, "bytes */10" },
      { "bytes=10-20", 416, nil, "bytes */10" },
      { "bytes=999999999999999999-", 416, nil, "bytes */10" },
      { "bytes=-0", 416, nil, "bytes */10" },
      -- Other forms are ignored (RFC 9110 §14.2).
      { "bytes=5-2", 200, "0123456789" },
      { "bytes=0-1,3-4", 200, "0123456789" },
      { "bytes=a-b", 200, "0123456789" },
      { "bytes=-", 200, "0123456789" },
      { "items=0-1", 200, "0123456789" },
      { "bytes=99999999999999999999-", 200, "0123456789" },
    }
    for _, case in ipairs(CASES) do
      local res = sandbox:read("digits", { Range = case[1] })
      assert.are.equal(case[2], res.status, case[1])
      if case[3] then assert.are.equal(case[3], res.body, case[1]) end
      assert.are.equal(case[4], res.headers["content-range"], case[1])
    end
    local empty = sandbox:read("empty", { Range = "bytes=0-" })
    assert.are.same({ 416, "bytes */0" }, { empty.status, empty.headers["content-range"] })
  end))

  it("appends where the size is the one that was named", within(function()
    assert.are.equal(200, (sandbox:write("log", "abc", { ["X-Demilune-Append"] = "0" })))
    local status, _, res = sandbox:write("log", "def", { ["X-Demilune-Append"] = "3" })
    assert.are.same({ 200, "6" }, { status, res.headers["x-demilune-size"] })
    local conflict, body = sandbox:write("log", "ghi", { ["X-Demilune-Append"] = "3" })
    assert.are.same({ 409, 409, "conflict", 6 }, { conflict, body.code, body.error_code, body.size })
    assert.are.equal("abcdef", sandbox:read("log").body)
    local missing, why = sandbox:write("nothing", "x", { ["X-Demilune-Append"] = "3" })
    assert.is_true(missing == 404 and why.error_code == "file_not_found" or missing == 409 and why.size == 0)
    for _, at in ipairs { "-1", "x", "1.5", ("9"):rep(30) } do
      assert.are.equal(400, (sandbox:write("log", "x", { ["X-Demilune-Append"] = at })), at)
    end
  end))

  it("keeps mode and links of what it replaces", within(function()
    sandbox:start "printf old >target; chmod 751 target; ln -s target alias"
    assert.are.equal(200, (sandbox:write("alias", "new")))
    assert.are.equal("new 751 symbolic link\n", sandbox:start("echo $(cat target) $(stat -c %a target) $(stat -c %F alias)").stdout)
  end))

  it("says what is wrong with a path", within(function()
    local CASES = {
      { "GET", "nothing", 404, "file_not_found" },
      { "GET", "digits/x", 400, "not_a_directory" },
      { "GET", "d", 400, "is_directory" },
      { "GET", "pipe", 400, "unsupported" },
      { "GET", "/dev/zero", 400, "unsupported" },
      { "GET", "shut/x", 403, "file_permission" },
      { "GET", "/etc/shadow", 404, "file_not_found" },
      { "GET", "/proc/1/environ", 403, "file_permission" },
      { "POST", "d", 400, "is_directory" },
      { "POST", "digits/x", 400, "not_a_directory" },
      { "POST", "pipe", 400, "unsupported" },
      { "POST", "/dev/null", 400, "unsupported" },
      { "POST", "shut/x", 403, "file_permission" },
      { "POST", "/usr/x", 403, "file_permission" },
      { "POST", ("x"):rep(300), 413, "too_large" },
      { "GET", ("x"):rep(5000), 400, "invalid_argument" },
      { "GET", "\255", 400, "invalid_argument" },
      { "POST", "a\255", 400, "invalid_argument" },
    }
    for _, case in ipairs(CASES) do
      local status, body
      if case[1] == "POST" then
        status, body = sandbox:write(case[2], "x")
      else
        local res = sandbox:read(case[2])
        status, body = res.status, json.decode(res.body)
      end
      local what = case[1] .. " " .. case[2]:sub(1, 30)
      if case[2] ~= "/etc/shadow" then
        assert.are.same({ case[3], case[4], case[3] }, { status, body.error_code, body.code }, what)
      else
        assert.is_true(status == 404 or status == 403, what)
      end
      assert.is_nil(body.message:find("home", 1, true), what)
    end
  end))

  it("refuses what is no request for a file", within(function()
    local function get(query) return assert(sandbox:request("GET", "/files" .. query)).status end
    assert.are.equal(400, get "")
    assert.are.equal(400, get "?path=%00")
    assert.are.equal(401, get "?path=digits&username=root")
    assert.are.equal(401, get "?path=digits&username=nobody")
    assert.are.equal(200, get "?path=digits&username=user")
    local function post(query, headers)
      return assert(sandbox:request("POST", "/files" .. query, { headers = headers, body = "x" })).status
    end
    assert.are.equal(415, post("?path=y", {}))
    assert.are.equal(415, post("?path=y", { ["Content-Type"] = "text/plain" }))
    assert.are.equal(415, post("?path=y", { ["Content-Type"] = "application/octet-stream", ["Content-Encoding"] = "gzip" }))
    assert.are.equal(400, post("", { ["Content-Type"] = "application/octet-stream" }))
    assert.are.equal(401, post("?path=y&username=root", { ["Content-Type"] = "application/octet-stream" }))
    assert.are.equal(405, assert(sandbox:request("PUT", "/files?path=y", { body = "x" })).status)
    assert.are.equal(404, sandbox:read("y").status)
  end))

  it("answers a full disk, and leaves the old file and nothing else", within(function()
    sandbox:write("big", "old")
    local status, body = sandbox:write("big", ("x"):rep(300 << 20))
    assert.are.same({ 507, "disk_full" }, { status, body.error_code })
    assert.are.equal("old", sandbox:read("big").body)
    assert.are.equal("0\n", sandbox:start("ls -A | grep -c demilune").stdout)
    assert.are.equal(200, (sandbox:write("big", ("x"):rep(100 << 20))))
    sandbox:start "rm big"
  end))

  it("leaves no half file of a client that goes away", within(function()
    sandbox:write("half", "old")
    local handle = core.task.spawn(function() sandbox:write("half", ("x"):rep(200 << 20)) end)
    core.task.sleep(20)
    handle:cancel()
    handle:wait()
    core.http.close_idle()
    local is_clean = support.eventually(function() return sandbox:start("ls -A | grep -c demilune").stdout == "0\n" end)
    assert.is_true(is_clean)
    local body = sandbox:read("half").body
    assert.is_true(body == "old" or #body == 200 << 20)
    sandbox:start "rm half"
  end))

  local function part(name, filename, bytes)
    local disposition = ('Content-Disposition: form-data; name="%s"'):format(name)
    if filename then disposition = disposition .. ('; filename="%s"'):format(filename) end
    return "--B\r\n" .. disposition .. "\r\nContent-Type: application/octet-stream\r\n\r\n" .. bytes .. "\r\n"
  end

  local function post_parts(query, body, content_type)
    local headers = { ["Content-Type"] = content_type or "multipart/form-data; boundary=B" }
    local res = assert(sandbox:request("POST", "/files" .. query, { headers = headers, body = body }))
    return res.status, json.decode(res.body)
  end

  it("takes multipart bodies, one file or many", within(function()
    local status, body = post_parts("?path=one.txt", part("file", "other", "hello") .. "--B--\r\n")
    assert.are.same({ 200, "/home/user/one.txt" }, { status, body[1].path })
    assert.are.equal("hello", sandbox:read("one.txt").body)
    local tricky = "\r\n--\r\n--A\r\n\r\n--" .. ("\r"):rep(70000) .. "\r\n-"
    local many = "preamble\r\n" .. part("file", "a%22.txt", "A") .. part("skip", nil, "not this") .. part("file", "dir/b", tricky)
      .. part("file", "/tmp/c", "") .. "--B--\r\nepilogue"
    status, body = post_parts("", many, 'multipart/form-data; charset=x; boundary="B"')
    assert.are.equal(200, status)
    assert.are.same({ "/home/user/a\".txt", "/home/user/dir/b", "/tmp/c" }, { body[1].path, body[2].path, body[3].path })
    assert.is_true(sandbox:read("dir/b").body == tricky)
    assert.are.equal("A", sandbox:read('a".txt').body)
    assert.are.equal("", sandbox:read("/tmp/c").body)
    local bulk = ("0123456789abcdef"):rep(1 << 19)
    assert.are.equal(200, (post_parts("?path=bulk", part("file", "x", bulk) .. "--B--\r\n")))
    assert.is_true(sandbox:read("bulk").body == bulk)
  end))

  it("refuses broken multipart bodies and keeps the old file", within(function()
    sandbox:write("kept", "old")
    local CASES = {
      { "", "multipart/form-data; boundary=B" },
      { part("file", "kept", "new"), "multipart/form-data" },
      { part("file", "kept", "new"), "multipart/form-data; boundary=" .. ("x"):rep(71) },
      { (part("file", "kept", "new"):gsub("\r\n$", "")), "multipart/form-data; boundary=B" },
      { "--B\r\n" .. ("x"):rep(10000), "multipart/form-data; boundary=B" },
      { "--B--\r\n", "multipart/form-data; boundary=B" },
      { part("other", "kept", "new") .. "--B--\r\n", "multipart/form-data; boundary=B" },
    }
    for i, case in ipairs(CASES) do
      local status = post_parts("?path=kept", case[1], case[2])
      assert.are.equal(400, status, "case " .. i)
      assert.are.equal("old", sandbox:read("kept").body, "case " .. i)
    end
  end))

  it("lists, stats, makes and removes", within(function()
    sandbox:start "mkdir -p tree/b/c; printf 12345 >tree/a; ln -s a tree/l; chmod 640 tree/a; touch -d @1700000000.25 tree/a"
    local status, body = sandbox:unary("filesystem.Filesystem/ListDir", { path = "tree", depth = 1 })
    assert.are.same({ 200, 3 }, { status, body.total })
    local names = {}
    for i, entry in ipairs(body.entries) do names[i] = entry.name end
    assert.are.same({ "a", "b", "l" }, names)
    assert.are.same({
      name = "a", path = "/home/user/tree/a", type = "FILE_TYPE_FILE", size = "5", mode = 416, permissions = "-rw-r-----",
      owner = "user", group = "user", modifiedTime = "2023-11-14T22:13:20.250Z",
    }, body.entries[1])
    assert.are.same({ "FILE_TYPE_DIRECTORY", "FILE_TYPE_SYMLINK", "a" },
      { body.entries[2].type, body.entries[3].type, body.entries[3].symlinkTarget })
    local _, deep = sandbox:unary("filesystem.Filesystem/ListDir", { path = "tree", depth = 3, limit = 2 })
    assert.are.same({ 2, 4 }, { #deep.entries, deep.total })
    local _, none = sandbox:unary("filesystem.Filesystem/ListDir", { path = "tree/b/c" })
    assert.are.same({ entries = {}, total = 0 }, { entries = { table.unpack(none.entries) }, total = none.total })

    local _, stat = sandbox:unary("filesystem.Filesystem/Stat", { path = "tree/b" })
    assert.are.same({ "b", "FILE_TYPE_DIRECTORY" }, { stat.entry.name, stat.entry.type })
    local _, pipe = sandbox:unary("filesystem.Filesystem/Stat", { path = "pipe" })
    assert.is_nil(pipe.entry.type)
    local made, dir = sandbox:unary("filesystem.Filesystem/MakeDir", { path = "tree/x/y" })
    assert.are.same({ 200, "/home/user/tree/x/y" }, { made, dir.entry.path })
    assert.are.equal(200, (sandbox:unary("filesystem.Filesystem/Remove", { path = "tree" })))
    assert.are.equal(200, (sandbox:unary("filesystem.Filesystem/Remove", { path = "tree" })))

    local CASES = {
      { "Stat", { path = "tree" }, 404, "not_found", "file_not_found" },
      { "ListDir", { path = "tree" }, 404, "not_found", "file_not_found" },
      { "ListDir", { path = "digits" }, 400, "invalid_argument", "not_a_directory" },
      { "ListDir", { path = "shut" }, 403, "permission_denied", "file_permission" },
      { "MakeDir", { path = "d" }, 409, "already_exists", "exists" },
      { "MakeDir", { path = "/usr/x" }, 403, "permission_denied", "file_permission" },
      { "Remove", { path = "/usr/bin" }, 403, "permission_denied", "file_permission" },
      { "Stat", {}, 400, "invalid_argument", "invalid_argument" },
      { "Stat", { path = 7 }, 400, "invalid_argument", "invalid_argument" },
      { "Stat", { path = "a\0b" }, 400, "invalid_argument", "invalid_argument" },
      { "ListDir", { path = "d", depth = -1 }, 400, "invalid_argument", "invalid_argument" },
      { "ListDir", { path = "d", depth = 65 }, 400, "invalid_argument", "invalid_argument" },
      { "ListDir", { path = "d", limit = 0 }, 400, "invalid_argument", "invalid_argument" },
    }
    for _, case in ipairs(CASES) do
      local code, fault = sandbox:unary("filesystem.Filesystem/" .. case[1], case[2])
      assert.are.same({ case[3], case[4], case[5] }, { code, fault.code, fault.error_code }, case[1] .. " " .. json.encode(case[2]))
    end
  end))

  it("moves bytes fast both ways", within(function()
    local bytes = ("0123456789abcdef"):rep(100 << 16)
    local function mb_per_second(fn)
      local before_ms = core.task.now_ms()
      fn()
      return #bytes / 1e6 / (core.task.now_ms() - before_ms) * 1000
    end
    sandbox:write("speed", bytes)
    local up = mb_per_second(function() assert.are.equal(200, (sandbox:write("speed", bytes))) end)
    local down = mb_per_second(function() assert.are.equal(#bytes, #sandbox:read("speed").body) end)
    print(("note: engine: /files takes %.0f MB/s and gives %.0f MB/s"):format(up, down))
    sandbox:start "rm speed"
    assert.is_true(up > 40 and down > 40)
  end))
end)
