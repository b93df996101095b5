--- core.sys.acceptor and core.sys.connect_unix: who is at the other end, and what happens when nobody is.

local build = require "spec.support.build"
local core = require "demilune.core"
local harness = require "spec.script.harness"
local lfs = require "lfs"
local os_calls = require "spec_os"
local sys, task = core.sys, core.task

describe("core.sys: a unix socket", function()
  local dir, path

  before_each(function()
    dir = assert(os_calls.mkdtemp((os.getenv "DML_SPEC_TMP" or "/tmp") .. "/unix-XXXXXX"))
    path = dir .. "/control.sock"
  end)
  after_each(function() os.execute("rm -rf '" .. dir .. "'") end)

  local function category(ok, err)
    assert.is_nil(ok)
    return err.category
  end

  it("hands on connections with who made them", function()
    task.run(function()
      local acceptor = assert(sys.acceptor(assert(sys.listen_unix(path))))
      for i = 1, 3 do
        local client = assert(sys.connect_unix(path))
        local fd, uid, pid = acceptor:accept(5000)
        assert.are.same({ sys.uid(), sys.pid() }, { uid, pid })
        assert.is_true(sys.write(client, "hello " .. i))
        local reader = assert(sys.reader(fd))
        assert.are.equal("hello " .. i, reader:read(5000))
        sys.close(client)
        assert.is_nil((reader:read(5000)))
        reader:close()
      end
      acceptor:close()
      acceptor:close()
    end)
  end)

  it("waits for a connection, as long as it was told", function()
    task.run(function()
      local acceptor = assert(sys.acceptor(assert(sys.listen_unix(path))))
      local before = task.now_ms()
      assert.are.equal("provider_timeout", category(acceptor:accept(50)))
      assert.is_true(task.now_ms() - before >= 50)
      local client
      task.spawn(function()
        task.sleep(20)
        client = assert(sys.connect_unix(path))
      end)
      local fd = assert(acceptor:accept(5000))
      sys.close(fd)
      sys.close(client)
      acceptor:close()
    end)
  end)

  it("lets one task wait, and a cancelled one go", function()
    task.run(function()
      local acceptor = assert(sys.acceptor(assert(sys.listen_unix(path))))
      local waiting = task.spawn(function() return acceptor:accept() end)
      task.sleep(0)
      assert.has_error(function() acceptor:accept(10) end)
      assert.has_error(function() acceptor:close() end)
      waiting:cancel()
      assert.is_false((waiting:wait(1000)))
      local client = assert(sys.connect_unix(path))
      local fd = assert(acceptor:accept(5000))
      sys.close(fd)
      sys.close(client)
      acceptor:close()
      assert.has_error(function() acceptor:accept(10) end)
    end)
  end)

  it("says why it does not connect", function()
    assert.are.equal("file_not_found", category(sys.connect_unix(path)))
    sys.close(assert(sys.listen_unix(path)))
    assert.are.equal("connection_failed", category(sys.connect_unix(path)))
    assert.are.equal("too_large", category(sys.connect_unix(("x"):rep(108))))
    assert.are.equal("too_large", category(sys.connect_unix ""))
    assert.are.equal("file_not_found", category(sys.connect_unix(dir .. "/none/x")))
  end)

  it("goes to no listener of another user", function()
    if os_calls.ids() ~= 0 then pending "only root can be somebody else" end
    local open_dir = assert(os_calls.mkdtemp "/tmp/unix-XXXXXX") -- the specs' own folder lies below private ones
    os_calls.chmod(open_dir, tonumber("777", 8))
    local theirs = open_dir .. "/s"
    local other = assert(io.popen(("exec python3 -c '%s' '%s'"):format([[
import os, socket, sys
os.setgid(12345); os.setuid(12345)
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(8)
os.chmod(sys.argv[1], 0o777)
print("ready", flush=True)
s.settimeout(20)
c, _ = s.accept()
print(len(c.recv(10)), flush=True)]], theirs)))
    assert.are.equal("ready", other:read "l")
    assert.are.equal("file_permission", category(sys.connect_unix(theirs)))
    assert.are.equal("0", other:read "l")
    other:close()
    os.execute("rm -rf '" .. open_dir .. "'")
  end)

  it("neither fails nor spins while descriptors are used up", function()
    local program = [[
      local core = require "demilune.core"
      local sys, task = core.sys, core.task
      local acceptor = assert(sys.acceptor(assert(sys.listen_unix(arg[1]))))
      task.run(function()
        local client = assert(sys.connect_unix(arg[1]))
        local held = {}
        while true do
          local a, b = sys.pipe()
          if not a then break end
          held[#held + 1] = a
          held[#held + 1] = b
        end
        -- a pipe takes two: the odd one is taken too
        local odd = sys.take(0)
        local spent = os.clock()
        local waiting = task.spawn(function() return acceptor:accept(5000) end)
        local _, early = waiting:wait(600)
        spent = os.clock() - spent
        for _, fd in ipairs(held) do sys.close(fd) end
        local ok, fd = waiting:wait(3000)
        io.write(tostring(early), ",", tostring(ok), ",", math.type(fd) or type(fd), ",", spent < 0.2 and "calm" or "spins")
      end)
    ]]
    local file_path = os.tmpname()
    local file = assert(io.open(file_path, "w"))
    file:write(("package.cpath = %q\n"):format(build.dir .. "/spec/?.so"), program)
    file:close()
    local pipe = assert(io.popen(("ulimit -n 64; %s %s '%s' 2>&1"):format(harness.interpreter(), file_path, path)))
    assert.are.equal("timeout,true,integer,calm", pipe:read "a")
    pipe:close()
    os.remove(file_path)
  end)

  it("leaves no descriptor", function()
    local function count()
      local n = 0
      for _ in lfs.dir "/proc/self/fd" do n = n + 1 end
      return n
    end
    collectgarbage()
    local before = count()
    for _ = 1, 20 do
      local fd = assert(sys.listen_unix(path))
      assert(sys.acceptor(fd))
      sys.connect_unix(dir .. "/none")
      collectgarbage()
      task.run(function() task.sleep(1) end)
    end
    collectgarbage()
    -- One of an earlier case may have been about to close.
    assert.is_true(count() <= before)
  end)
end)
