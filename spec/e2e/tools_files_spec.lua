-- timeout: 90
--- The file tools in a real sandbox: whole or old, never half; every documented error; large transfers.

local cjson = require "cjson"
local core = require "demilune.core"
local support = require "spec.e2e.tools_support"

local must, fault, shell = support.must, support.fault, support.shell
local base64, unbase64 = core.crypto.base64, core.crypto.unbase64

describe("files", function()
  local server
  setup(function()
    server = support.server()
    shell(server, "true")
  end)
  teardown(function() server:stop() end)

  it("come back as they were written, parents made, whatever the name", function()
    for _, path in ipairs { "a", "d/e/f", "/tmp/x/y", "with space", "ümläut/€", "q'uo\"te", "new\nline", "%41", "-dash",
      "~/t", "a?b&c#d" } do
      local wrote = must(server, "write_file", { path = path, content = "content of " .. path })
      local absolute = path:sub(1, 1) == "/" and path or "/home/user/" .. path
      assert.are.same({ true, absolute, #("content of " .. path) }, { wrote.success, wrote.path, wrote.bytes_written })
      assert.are.equal("content of " .. path, must(server, "read_file", { path = path }).content)
    end
    assert.are.equal("", must(server, "write_file", { path = "empty", content = "" }) and must(server, "read_file",
      { path = "empty" }).content)
    assert.are.equal("0\n", shell(server, "find / -name '.demilune-*' 2>/dev/null | grep -v ^/proc | wc -l"))
  end)

  it("keep mode and place of what they replace: a final symlink is followed", function()
    shell(server, "mkdir -p real; echo old > real/file; chmod 750 real/file; ln -s real/file link; ln -s nowhere dangling")
    must(server, "write_file", { path = "link", content = "new" })
    local seen = shell(server, "stat -c '%a' real/file | tr '\\n' ' '; cat real/file; echo; readlink link")
    assert.are.equal("750 new\nreal/file\n", seen)
    must(server, "write_file", { path = "dangling", content = "made" })
    assert.are.equal("made", shell(server, "cat nowhere; test -L dangling"))
  end)

  it("are replaced at once: a reader sees the old file or the new one", function()
    local old, new = ("a"):rep(500000), ("b"):rep(500000)
    must(server, "write_file", { path = "atomic", content = old })
    local id = server:send("tools/call", { name = "run_command", arguments = { command =
      "for i in $(seq 1 400); do md5sum <atomic; done | sort -u | wc -l; ls | grep -c atomic" } })
    for i = 1, 10 do must(server, "write_file", { path = "atomic", content = i % 2 == 1 and new or old }) end
    local seen = server:receive(id).result.structuredContent.stdout
    assert.truthy(seen == "2\n1\n" or seen == "1\n1\n" or seen:find "^[12]\n", seen)
    assert.are.equal(#old, must(server, "download_file", { path = "atomic", length = 1 }).size)
  end)

  it("are read in pages of lines", function()
    shell(server, "seq 1 5000 > lines; printf 'a\\r\\nb' > crlf; printf '\\344\\n' > latin; printf 'x\\0y' > binary")
    local page = must(server, "read_file", { path = "lines" })
    assert.are.same({ 1, 2000, 2001, 23893, false }, { page.start_line, page.end_line, page.next_line, page.size,
      page.truncated })
    page = must(server, "read_file", { path = "lines", start_line = 4999 })
    assert.are.same({ "4999\n5000\n", 5000, cjson.null }, { page.content, page.end_line, page.next_line })
    page = must(server, "read_file", { path = "lines", max_bytes = 10 })
    assert.are.same({ "1\n2\n3\n4\n5\n", 6 }, { page.content, page.next_line })
    assert.are.equal("a\r\nb", must(server, "read_file", { path = "crlf" }).content)
    assert.are.equal("ä\n", must(server, "read_file", { path = "latin", encoding = "latin-1" }).content)
    for _, path in ipairs { "latin", "binary" } do
      local err = fault(server, "read_file", { path = path })
      assert.are.same({ "not_text", "path" }, { err.category, err.field })
      assert.truthy(err.suggestion:find("download_file", 1, true))
    end
    local small = must(server, "read_file", { path = "/proc/version" })
    assert.truthy(small.content:find "^Linux")
    assert.are.equal(#small.content, small.size)
  end)

  it("are listed by the bytes of their names, with type and size, and counted beyond the limit", function()
    shell(server, "mkdir ls; cd ls; mkdir sub; echo 12345 > file; ln -s file link; mkfifo pipe; touch B a ä;"
      .. " printf '' > \"$(printf 'bad\\377')\"")
    local listed = must(server, "list_files", { path = "ls" })
    local seen = {}
    for i, entry in ipairs(listed.files) do
      seen[i] = entry.name .. ":" .. entry.type .. ":" .. tostring(entry.size ~= cjson.null and math.tointeger(entry.size))
    end
    assert.are.same({ "B:file:0", "a:file:0", "bad\u{FFFD}:file:0", "file:file:6", "link:symlink:false", "pipe:other:false",
      "sub:directory:false", "ä:file:0" }, seen)
    assert.are.same({ "/home/user/ls", 8, false }, { listed.path, listed.total, listed.truncated })
    assert.are.equal("/home/user/ls/B", listed.files[1].path)
    listed = must(server, "list_files", { path = "ls", limit = 2 })
    assert.are.same({ 2, 8, true, "B" }, { #listed.files, listed.total, listed.truncated, listed.files[1].name })
    assert.are.equal(0, #must(server, "list_files", { path = "ls/sub" }).files)
    shell(server, "mkdir many; cd many; seq 1 5000 | xargs touch")
    listed = must(server, "list_files", { path = "many", limit = 2000 })
    assert.are.same({ 2000, 5000, true }, { #listed.files, listed.total, listed.truncated })
    assert.are.equal(200, #must(server, "list_files", { path = "many" }).files)
  end)

  it("that cannot be had are told apart", function()
    shell(server, "mkdir -p dir; echo x > plain; mkfifo -m 666 fifo; touch shut; chmod 000 shut; mkdir -m 500 closed")
    for _, one in ipairs {
      { "read_file", "missing", "file_not_found" }, { "read_file", "dir", "is_directory" }, { "read_file", "plain/x",
        "not_a_directory" },
      { "read_file", "shut", "file_permission" }, { "read_file", "fifo", "unsupported" }, { "read_file", "/dev/zero",
        "unsupported" },
      { "download_file", "missing", "file_not_found" }, { "download_file", "dir", "is_directory" },
      { "download_file", "fifo", "unsupported" }, { "download_file", "/dev/zero", "unsupported" },
      { "download_file", "shut", "file_permission" },
      { "list_files", "missing", "file_not_found" }, { "list_files", "plain", "not_a_directory" },
      { "write_file", "dir", "is_directory" }, { "write_file", "plain/x", "not_a_directory" },
      { "write_file", "/usr/x", "file_permission" }, { "write_file", "closed/x", "file_permission" },
      { "write_file", "fifo", "unsupported" }, { "write_file", "/dev/null", "unsupported" },
      { "upload_file", "dir", "is_directory" }, { "upload_file", "/usr/x", "file_permission" }, { "upload_file", "fifo",
        "unsupported" },
    } do
      local arguments = { path = one[2] }
      if one[1] == "write_file" then arguments.content = "x" end
      if one[1] == "upload_file" then arguments.content_base64 = "eA==" end
      local err = fault(server, one[1], arguments)
      assert.are.same({ one[3], "path", false }, { err.category, err.field, err.retryable }, one[1] .. " " .. one[2])
    end
    assert.are.equal("x\n", shell(server, "cat plain"))
  end)

  it("of odd names and places are a plain answer in every tool, never a fault of ours", function()
    shell(server, "ln -s circle circle; ln -s / root")
    local plain = {
      file_not_found = true, is_directory = true, not_a_directory = true, file_permission = true, unsupported = true,
      too_large = true, conflict = true, not_text = true, invalid_argument = true,
    }
    for _, path in ipairs {
      ("x"):rep(4096), ("x"):rep(256), ("d/"):rep(2000), "dir/", "/", "//", "..", "../..", "root/..", "circle", "circle/x",
        "a\\b",
      "\r", "\t", "/proc/1/mem", "/proc/self/environ", "/proc/self/fd/0", "/proc/kmsg", "/dev/null", "/dev/tty", "/dev/full",
        "/sys",
      "/tmp/.demilune/out", "/etc/passwd", "/run/x", "/dev/shm/x",
    } do
      for tool, arguments in pairs {
        write_file = { content = "hi" }, read_file = {}, list_files = {}, download_file = {},
        upload_file = { content_base64 = "aGk=", offset = 2 },
      } do
        arguments.path = path
        local content, err = server:call(tool, arguments)
        assert.is_true(content ~= nil or plain[err.category] or false, tool .. " " .. path:sub(1, 20) .. " "
          .. (err.category or ""))
      end
      local content, err = server:call("run_command", { command = "true", cwd = path })
      assert.is_true(content ~= nil or err.field == "cwd", path:sub(1, 20))
    end
    shell(server, "rm circle root")
  end)

  it("grow by slices that fit, and no others", function()
    local parts, size = {}, 0
    for i = 1, 5 do
      local slice = (string.char(64 + i)):rep(1000)
      local wrote = must(server, "upload_file", { path = "slices", content_base64 = base64(slice), offset = size,
        sha256 = core.crypto.sha256(slice) })
      size = size + #slice
      parts[i] = slice
      assert.are.same({ 1000, size, core.crypto.sha256(slice) }, { wrote.bytes_written, wrote.size, wrote.sha256 })
    end
    for _, offset in ipairs { 1, size - 1, size + 1 } do
      local err = fault(server, "upload_file", { path = "slices", content_base64 = "eA==", offset = offset })
      assert.are.same({ "conflict", "offset", size, false }, { err.category, err.field, err.size, err.retryable })
    end
    assert.are.equal(table.concat(parts), unbase64(must(server, "download_file", { path = "slices" }).content_base64))
    local err = fault(server, "upload_file", { path = "slices", content_base64 = "eA==", sha256 = core.crypto.sha256 "y" })
    assert.are.same({ "invalid_argument", "sha256" }, { err.category, err.field })
    assert.are.equal(size, must(server, "download_file", { path = "slices", length = 1 }).size)
    must(server, "upload_file", { path = "slices", content_base64 = "" })
    assert.are.equal(0, must(server, "download_file", { path = "slices" }).size)
  end)

  it("go up and down whole, 4 MiB at a time", function()
    local large = support.server()
    local bytes = {}
    for i = 1, 65536 do bytes[i] = string.pack("<I8I8I8I8I8I8I8I8", i, i * 7, ~i, i << 32, i ~ 0x5555, i, 0, i) end
    bytes = table.concat(bytes)
    local wrote = must(large, "upload_file", { path = "large", content_base64 = base64(bytes) }, 30000)
    assert.are.same({ 4194304, core.crypto.sha256(bytes) }, { wrote.size, wrote.sha256 })
    local got = must(large, "download_file", { path = "large", length = 4194304 }, 30000)
    assert.are.same({ 4194304, cjson.null, core.crypto.sha256(bytes) }, { got.bytes_read, got.next_offset, got.sha256 })
    assert.is_true(unbase64(got.content_base64) == bytes)
    local from, parts = 4000000, { bytes:sub(1, 4000000) }
    while from do
      got = must(large, "download_file", { path = "large", offset = from, length = 70000 })
      parts[#parts + 1] = unbase64(got.content_base64)
      from = got.next_offset ~= cjson.null and math.tointeger(got.next_offset) or nil
    end
    assert.is_true(table.concat(parts) == bytes)
    assert.are.equal(24576, must(large, "download_file", { path = "large" }).bytes_read)
    for _, offset in ipairs { "4194304", "9223372036854775807" } do
      local content = large:call("download_file", ('{"path":"large","offset":%s}'):format(offset))
      assert.are.same({ 0, "", cjson.null }, { content.bytes_read, content.content_base64, content.next_offset })
    end
    large:stop()
  end)

  it("leave the old file when the disk is full", function()
    local small = support.server { config = [[return { providers = { { id = "local", type = "local",
      templates = { base = { disk = 32 } } } } }]] }
    must(small, "write_file", { path = "precious", content = "old" })
    local run = must(small, "run_command", { command = "head -c 64M /dev/zero > filler" })
    assert.are.equal(1, run.exit_code)
    local bytes = base64(("x"):rep(3 << 20))
    local err = fault(small, "upload_file", { path = "precious", content_base64 = bytes }, 20000)
    assert.are.same({ "disk_full", false }, { err.category, err.retryable })
    assert.are.equal("old", must(small, "read_file", { path = "precious" }).content)
    assert.are.equal("disk_full", fault(small, "write_file", { path = "fresh", content = ("x"):rep(1 << 20) }).category)
    shell(small, "rm filler; test ! -e fresh")
    must(small, "upload_file", { path = "precious", content_base64 = bytes }, 20000)
    small:stop()
  end)

  it("make a sandbox when written, none when read", function()
    local fresh = support.server()
    for _, tool in ipairs { "read_file", "download_file" } do
      assert.are.equal("no_default_sandbox", fault(fresh, tool, { path = "a" }).category)
    end
    assert.are.equal("no_default_sandbox", fault(fresh, "list_files").category)
    assert.is_true(must(fresh, "upload_file", { path = "a", content_base64 = "aGk=" }).created)
    assert.are.equal("hi", must(fresh, "read_file", { path = "a" }).content)
    fresh:stop()
  end)
end)
