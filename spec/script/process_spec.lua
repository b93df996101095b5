--- core.process: children have what they were given and nothing else, and leave nothing.

local core = require "demilune.core"
local harness = require "spec.script.harness"
local leftovers = require "spec.support.leftovers"
local os_calls = require "spec_os"
local process, sys, task = core.process, core.sys, core.task

--- Runs a shell line with stdout on a pipe; returns its output and its end.
local function run(line, options)
  return task.run(function()
    local read_fd, write_fd = assert(sys.pipe())
    local start = { argv = { "/bin/sh", "-c", line }, fds = { [1] = write_fd } }
    for key, value in pairs(options or {}) do start[key] = value end
    local child, err = process.start(start)
    sys.close(write_fd)
    if not child then
      sys.close(read_fd)
      return nil, err
    end
    local reader, parts = assert(sys.reader(read_fd)), {}
    for chunk in function() return (reader:read(10000)) end do parts[#parts + 1] = chunk end
    reader:close()
    return table.concat(parts), child:wait(10000)
  end)
end

if harness.is_valgrind() then
  describe("core.process", function()
    it("is tested without valgrind", function() pending "this valgrind does not know pidfd_open(2)" end)
  end)
  return
end

describe("process.start", function()
  it("reports exit codes and signals as they were", function()
    for _, code in ipairs { 0, 1, 42, 255 } do
      assert.are.same({ code = code }, select(2, run("exit " .. code)))
    end
    for _, signal in ipairs { 9, 15, 12 } do
      assert.are.same({ signal = signal }, select(2, run("kill -" .. signal .. " $$")))
    end
  end)

  it("gives the descriptors that were named and no other", function()
    local extra = { os_calls.pipe() } -- CLOEXEC
    local leaked = assert(io.popen("cat", "w")) -- not CLOEXEC, with a number that stays small
    local line = "ls /proc/self/fd | tr '\\n' ' '; readlink /proc/self/fd/0 /proc/self/fd/2 | tr '\\n' ' '"
    local out = run(line)
    leaked:close()
    for _, fd in ipairs(extra) do os_calls.close(fd) end
    -- ls itself has one more for the folder that it reads.
    assert.are.equal("0 1 2 3 /dev/null /dev/null ", out)
  end)

  it("puts descriptors where they are wanted, even onto each other's numbers", function()
    task.run(function()
      -- Six open files with small numbers, handed over in reverse order onto these very numbers.
      local readers, fds = {}, {}
      for i = 1, 6 do
        local read_fd, write_fd = assert(sys.pipe())
        assert(sys.write(write_fd, "pipe" .. i))
        sys.close(write_fd)
        readers[i] = read_fd
      end
      for i = 1, 6 do fds[readers[7 - i]] = readers[i] end
      local read_fd, write_fd = assert(sys.pipe())
      fds[1] = write_fd
      local words = {}
      for i = 1, 6 do words[i] = ("cat <&%d; echo"):format(readers[i]) end
      local child = assert(process.start { argv = { "/bin/bash", "-c", table.concat(words, "; ") }, fds = fds })
      for i = 1, 6 do sys.close(readers[i]) end
      sys.close(write_fd)
      local reader = assert(sys.reader(read_fd))
      local out = ""
      for chunk in function() return (reader:read(5000)) end do out = out .. chunk end
      reader:close()
      assert.are.same({ code = 0 }, child:wait(5000))
      assert.are.equal("pipe6\npipe5\npipe4\npipe3\npipe2\npipe1\n", out)
    end)
  end)

  it("gives exactly the environment that was named, or ours", function()
    assert.are.equal("A=1\nB=x y=z\n", (run("/usr/bin/env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= | sort", { env = { A = "1",
      B = "x y=z" } })))
    assert.are.equal(os.getenv "HOME" .. "\n", (run "echo $HOME"))
  end)

  it("starts children with default signals and nothing blocked", function()
    local out = run "grep -E '^Sig(Blk|Ign)' /proc/self/status"
    -- 32 and 33 are glibc's own: no program of it can name them, so they stay as whoever started us had them.
    local internal = 3 << 31
    for _, name in ipairs { "SigBlk", "SigIgn" } do
      assert.are.equal(0, tonumber(out:match(name .. ":%s*(%x+)"), 16) & ~internal)
    end
  end)

  it("makes a group or a session where it is asked to", function()
    local function ids(options)
      local pid, group, session = run("read p r < /proc/self/stat; echo $$ $(cut -d' ' -f5,6 /proc/$$/stat)", options)
        :match "(%d+) (%d+) (%d+)"
      return { group = pid == group, session = pid == session }
    end
    assert.are.same({ group = false, session = false }, ids())
    assert.are.same({ group = true, session = false }, ids { group = true })
    assert.are.same({ group = true, session = true }, ids { session = true })
  end)

  it("fails with the world's reason, and leaves nothing", function()
    assert.is_nil((process.start { argv = { "/bin/true" }, fds = { [64] = 0 } }))
    assert.is_nil((process.start { argv = { "/bin/true" }, fds = { [3] = 1000 } }))
    for path, category in pairs { ["/no/such"] = "file_not_found", ["/etc/passwd"] = "file_permission",
      ["/"] = "file_permission" } do
      local child, err = process.start { argv = { path } }
      assert.is_nil(child)
      assert.are.equal(category, err.category)
    end
    assert.are.same({}, leftovers.children())
  end)

  it("raises for what exec(3) would take for something else", function()
    for _, options in ipairs {
      {}, { argv = {} }, { argv = { "/bin/true\0x" } }, { argv = { "/bin/true", "a\0b" } }, { argv = { "/bin/true", {} } },
      { argv = { "/bin/true" }, env = { A = "a\0b" } }, { argv = { "/bin/true" }, env = { ["A\0"] = "x" } },
      { argv = { "/bin/true" }, env = { [1] = "A=1" } }, { argv = { "/bin/true" }, env = { A = true } },
      { argv = { "/bin/true" }, fds = { a = 1 } }, { argv = "x" },
    } do assert.has_error(function() process.start(options) end) end
    assert.are.same({}, leftovers.children())
  end)
end)

describe("a child", function()
  it("can be waited for again and again, with patience or without", function()
    task.run(function()
      local child = process.start { argv = { "/bin/sleep", "0.05" } }
      assert.are.same({ n = 2, nil, "timeout" }, table.pack(child:wait(1)))
      assert.are.same({ code = 0 }, child:wait(math.huge))
      assert.are.same({ code = 0 }, child:wait(0))
      assert.are.same({ code = 0 }, child:wait())
    end)
  end)

  it("has one waiter at a time, who may be cancelled", function()
    task.run(function()
      local child = process.start { argv = { "/bin/sleep", "100" } }
      local waiter = task.spawn(function() child:wait() end)
      task.sleep(1)
      local ok, err = pcall(child.wait, child)
      assert.is_false(ok)
      assert.truthy(err:find "another task waits")
      waiter:cancel()
      assert.are.same({ false, task.CANCELLED }, { waiter:wait() })
      child:kill()
      assert.are.same({ signal = 9 }, child:wait(5000))
    end)
  end)

  it("takes signals while it lives; afterwards nobody does", function()
    task.run(function()
      local child = process.start { argv = { "/bin/sleep", "100" } }
      local pid = child:pid()
      assert.is_table(leftovers.process(pid))
      child:kill(0)
      child:kill(999)
      child:kill(15)
      assert.are.same({ signal = 15 }, child:wait(5000))
      child:kill()
      assert.is_nil(leftovers.process(pid, true))
    end)
  end)

  it("is killed and reaped when its handle is garbage", function()
    local pid = task.run(function() return process.start({ argv = { "/bin/sleep", "100" } }):pid() end)
    collectgarbage()
    collectgarbage()
    assert.is_nil(leftovers.process(pid, true))
  end)

  it("leaves no zombie, however many there are and in whatever order they end", function()
    task.run(function()
      local children = {}
      for i = 1, 60 do children[i] = process.start { argv = { "/bin/sleep", ("0.0%d"):format(i % 7) } } end
      for i = 1, 60 do assert.are.same({ code = 0 }, children[61 - i]:wait(10000)) end
    end)
    assert.are.same({}, leftovers.children())
  end)
end)
