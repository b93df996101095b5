--- core.fs: the state folder. Modes, links, locks between processes.

local build = require "spec.support.build"
local core = require "demilune.core"
local harness = require "spec.script.harness"
local lfs = require "lfs"
local os_calls = require "spec_os"
local fs = core.fs

local function octal(text) return tonumber(text, 8) end

describe("core.fs", function()
  local dir

  before_each(function() dir = assert(os_calls.mkdtemp((os.getenv "DML_SPEC_TMP" or "/tmp") .. "/fs-XXXXXX")) end)
  after_each(function() os.execute("rm -rf '" .. dir .. "'") end)

  local function put(name, text, mode)
    local file = assert(io.open(dir .. "/" .. name, "wb"))
    file:write(text)
    file:close()
    if mode then os_calls.chmod(dir .. "/" .. name, octal(mode)) end
  end

  local function category(ok, err)
    assert.is_nil(ok)
    assert.is_boolean(err.retryable)
    return err.category
  end

  describe("make_dir", function()
    it("makes a folder of mode 0700, once", function()
      assert.is_true(fs.make_dir(dir .. "/a"))
      assert.are.equal(octal "700", fs.stat(dir .. "/a").mode)
      assert.is_true(fs.make_dir(dir .. "/a"))
    end)

    it("refuses a link, a file, and a folder that others may write to", function()
      assert(lfs.mkdir(dir .. "/real"))
      assert(lfs.link(dir .. "/real", dir .. "/link", true))
      put("file", "")
      assert(lfs.mkdir(dir .. "/open"))
      assert.are.equal("not_a_directory", category(fs.make_dir(dir .. "/link")))
      assert.are.equal("not_a_directory", category(fs.make_dir(dir .. "/file")))
      for _, mode in ipairs { "770", "702", "777" } do
        os_calls.chmod(dir .. "/open", octal(mode))
        assert.are.equal("file_permission", category(fs.make_dir(dir .. "/open")))
      end
      assert.are.equal("file_not_found", category(fs.make_dir(dir .. "/none/deeper")))
      assert.are.equal("not_a_directory", category(fs.make_dir(dir .. "/file/deeper")))
    end)

    it("refuses a folder of somebody else", function()
      if os_calls.ids() ~= 0 then pending "only root can give folders away" end
      assert(lfs.mkdir(dir .. "/theirs"))
      assert(os.execute("chown 12345 '" .. dir .. "/theirs'"))
      assert.are.equal("file_permission", category(fs.make_dir(dir .. "/theirs")))
    end)
  end)

  describe("write", function()
    it("gives mode 0600 to a new file and to one that was more open", function()
      put("old", "x", "666")
      for _, name in ipairs { "new", "old" } do
        assert.is_true(fs.write(dir .. "/" .. name, "a\0\xFF"))
        assert.are.equal(octal "600", fs.stat(dir .. "/" .. name).mode)
        assert.are.equal("a\0\xFF", fs.read(dir .. "/" .. name, 10))
      end
    end)

    it("replaces a link and leaves what it pointed to", function()
      put("target", "kept")
      assert(lfs.link(dir .. "/target", dir .. "/link", true))
      assert.is_true(fs.write(dir .. "/link", "new"))
      assert.are.equal("file", lfs.symlinkattributes(dir .. "/link", "mode"))
      assert.are.equal("kept", fs.read(dir .. "/target", 10))
    end)

    it("is not misled by what lies in the way of its temporary file", function()
      local _, _, pid = os_calls.ids()
      put("target", "kept")
      assert(lfs.link(dir .. "/target", ("%s/a.%d.new"):format(dir, pid), true))
      assert.is_true(fs.write(dir .. "/a", "1"))
      put(("a.%d.new"):format(pid), "stale", "666")
      assert.is_true(fs.write(dir .. "/a", "2"))
      assert.are.equal(octal "600", fs.stat(dir .. "/a").mode)
      assert.are.equal("kept", fs.read(dir .. "/target", 10))
    end)

    it("leaves the old file and nothing else when it fails", function()
      assert(lfs.mkdir(dir .. "/folder"))
      assert.are.equal("is_directory", category(fs.write(dir .. "/folder", "x")))
      assert.are.equal("file_not_found", category(fs.write(dir .. "/none/x", "x")))
      assert.are.equal("too_large", category(fs.write(dir .. "/" .. ("n"):rep(300), "x")))
      assert.are.equal("too_large", category(fs.write(("/x"):rep(3000), "x")))
      if io.open "/dev/full" then
        local names = fs.list(dir)
        assert.are.same({ "folder" }, names)
      end
    end)
  end)

  describe("read", function()
    it("gives the whole file up to the limit, and refuses one byte more", function()
      put("a", "12345")
      assert.are.equal("12345", fs.read(dir .. "/a", 5))
      assert.are.equal("too_large", category(fs.read(dir .. "/a", 4)))
      put("empty", "")
      assert.are.equal("", fs.read(dir .. "/empty", 0))
    end)

    it("refuses what is no file, without waiting for it", function()
      assert(os.execute("mkfifo '" .. dir .. "/pipe'"))
      assert.are.equal("unsupported", category(fs.read(dir .. "/pipe", 10)))
      assert.are.equal("unsupported", category(fs.read("/dev/zero", 10)))
      assert.are.equal("is_directory", category(fs.read(dir, 10)))
      assert.are.equal("file_not_found", category(fs.read(dir .. "/none", 10)))
    end)
  end)

  describe("remove, list and stat", function()
    it("agree on what is there", function()
      put("a", "xy", "640")
      put("b", "")
      local names = fs.list(dir)
      table.sort(names)
      assert.are.same({ "a", "b" }, names)
      local stat = fs.stat(dir .. "/a")
      assert.are.equal("file", stat.type)
      assert.are.equal(2, stat.size)
      assert.are.equal(octal "640", stat.mode)
      assert.are.equal((os_calls.ids()), stat.uid)
      assert.is_true(math.abs(stat.mtime - os.time()) < 60)
      assert.are.equal("directory", fs.stat(dir).type)
      assert.are.equal("other", fs.stat("/dev/null").type)
      assert.is_true(fs.remove(dir .. "/a"))
      assert.is_true(fs.remove(dir .. "/a"))
      assert.are.same({ "b" }, fs.list(dir))
      assert.are.equal("is_directory", category(fs.remove(dir)))
      assert.are.equal("file_not_found", category(fs.stat(dir .. "/a")))
      assert.are.equal("not_a_directory", category(fs.list(dir .. "/b")))
    end)
  end)

  describe("lock", function()
    --- Another process that takes the lock, says so, and holds it until its stdin ends.
    local function other_process()
      local code = ([[package.cpath = %q
        local fs = require("demilune.core").fs
        local lock, err = fs.lock(%q)
        print(lock and "held" or err.category)
        io.stdout:flush()
        io.read "a"]]):format(build.dir .. "/spec/?.so", dir .. "/lock")
      put("other.lua", code)
      local fifo = dir .. "/hold"
      os.execute("test -p '" .. fifo .. "' || mkfifo '" .. fifo .. "'")
      local pipe = assert(io.popen(("%s '%s/other.lua' <'%s'"):format(harness.interpreter(), dir, fifo)))
      local hold = assert(io.open(fifo, "w"))
      return pipe:read "l", function()
        hold:close()
        pipe:close()
      end
    end

    it("is had by one process at a time, and free when its holder has died", function()
      local mine = assert(fs.lock(dir .. "/lock"))
      assert.are.equal(octal "600", fs.stat(dir .. "/lock").mode)
      local said, finish = other_process()
      assert.are.equal("conflict", said)
      finish()
      assert.are.equal("conflict", category(fs.lock(dir .. "/lock")))
      mine:release()
      mine:release()
      said, finish = other_process()
      assert.are.equal("held", said)
      assert.are.equal("conflict", category(fs.lock(dir .. "/lock")))
      finish()
      assert(fs.lock(dir .. "/lock")):release()
    end)

    it("ends with its scope and with its garbage", function()
      do
        local _ <close> = assert(fs.lock(dir .. "/lock"))
        assert.are.equal("conflict", category(fs.lock(dir .. "/lock")))
      end
      assert(fs.lock(dir .. "/lock"))
      collectgarbage()
      assert(fs.lock(dir .. "/lock")):release()
    end)

    it("follows no link and makes no folder", function()
      put("target", "")
      assert(lfs.link(dir .. "/target", dir .. "/link", true))
      assert.is_nil((fs.lock(dir .. "/link")))
      assert.are.equal("file_not_found", category(fs.lock(dir .. "/none/lock")))
    end)
  end)
end)
