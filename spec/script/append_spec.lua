--- core.fs.append: records of several writers stay whole; what a full disk cuts short is taken back.

local build = require "spec.support.build"
local core = require "demilune.core"
local harness = require "spec.script.harness"
local lfs = require "lfs"
local os_calls = require "spec_os"
local fs, task = core.fs, core.task

--- A Lua program that loads the core of this build, with arguments; returns what it printed.
local function other_lua(before, program, ...)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(("package.cpath = %q\n"):format(build.dir .. "/spec/?.so"), program)
  file:close()
  local words = { ... }
  for i, word in ipairs(words) do words[i] = "'" .. word .. "'" end
  local pipe = assert(io.popen(("%s %s %s %s 2>&1"):format(before, harness.interpreter(), path, table.concat(words, " "))))
  local said = pipe:read "a"
  pipe:close()
  os.remove(path)
  return said
end

describe("core.fs.append", function()
  local dir, path

  before_each(function()
    dir = assert(os_calls.mkdtemp((os.getenv "DML_SPEC_TMP" or "/tmp") .. "/append-XXXXXX"))
    path = dir .. "/log"
  end)
  after_each(function() os.execute("rm -rf '" .. dir .. "'") end)

  local function contents()
    local file = assert(io.open(path, "rb"))
    local text = file:read "a"
    file:close()
    return text
  end

  local function put(text)
    local file = assert(io.open(path, "wb"))
    file:write(text)
    file:close()
    os_calls.chmod(path, 384) -- 0600
  end

  local function category(ok, err)
    assert.is_nil(ok)
    return err.category
  end

  it("makes a file of mode 0600 and adds to it", function()
    local log = assert(fs.append(path))
    assert.are.equal(384, fs.stat(path).mode)
    assert.is_true(log:write "one\n")
    assert.is_true(log:write "")
    assert.is_true(log:write "two\n")
    assert.are.equal("one\ntwo\n", contents())
    assert.are.equal(8, log:size())
    log:close()
    log:close()
    assert.has_error(function() log:write "x" end)
    local again <close> = assert(fs.append(path))
    assert.is_true(again:write "three\n")
    assert.are.equal("one\ntwo\nthree\n", contents())
  end)

  it("refuses what is no private regular file", function()
    put ""
    for _, mode in ipairs { 432, 402, 438 } do -- 0660, 0622, 0666
      os_calls.chmod(path, mode)
      assert.are.equal("file_permission", category(fs.append(path)))
    end
    os_calls.chmod(path, 420) -- 0644: others may read
    assert(fs.append(path)):close()
    assert(lfs.link(path, dir .. "/link", true))
    assert.are.equal("file_permission", category(fs.append(dir .. "/link")))
    assert(os.execute("mkfifo '" .. dir .. "/fifo'"))
    assert.are.equal("unsupported", category(fs.append(dir .. "/fifo")))
    assert.are.equal("unsupported", category(fs.append "/dev/full"))
    assert.are.equal("is_directory", category(fs.append(dir)))
    assert.are.equal("file_not_found", category(fs.append(dir .. "/none/log")))
  end)

  it("refuses a file of somebody else", function()
    if os_calls.ids() ~= 0 then pending "only root can give files away" end
    put ""
    assert(os.execute("chown 12345 '" .. path .. "'"))
    assert.are.equal("file_permission", category(fs.append(path)))
  end)

  it("begins with a line end behind a piece of a record", function()
    put "whole\npie"
    local log <close> = assert(fs.append(path))
    assert.is_true(log:write "next\n")
    assert.is_true(log:write "more\n")
    assert.are.equal("whole\npie\nnext\nmore\n", contents())
  end)

  it("notices a rotation and goes on in the new file", function()
    local log <close> = assert(fs.append(path))
    assert.is_true(log:write "old\n")
    assert.is_true(log:is_current())
    assert(os.rename(path, path .. ".1"))
    assert.is_false(log:is_current())
    assert.is_true(log:write "still old\n")
    assert.is_true(log:reopen())
    assert.is_true(log:is_current())
    assert.is_true(log:write "new\n")
    assert.are.equal("new\n", contents())
    os.remove(path)
    assert.are.equal("file_not_found", category(log:write "lost\n"))
    assert.are.equal("file_not_found", category(log:write "lost\n"))
    assert(lfs.mkdir(path))
    assert.are.equal("is_directory", category(log:reopen()))
    assert(lfs.rmdir(path))
    assert.is_true(log:reopen())
    assert.is_true(log:write "found\n")
    assert.are.equal("found\n", contents())
  end)

  it("syncs, many at a time, and leaves a cancelled one alone", function()
    local log = assert(fs.append(path))
    assert.is_true(log:write "one\n")
    task.run(function()
      local syncs = {}
      for i = 1, 20 do syncs[i] = task.spawn(function() return log:sync() end) end
      for _, sync in ipairs(syncs) do assert.are.same({ true, true }, { sync:wait(10000) }) end
      local cancelled = task.spawn(function() return log:sync() end)
      task.sleep(0)
      cancelled:cancel()
      assert.is_false((cancelled:wait(1000)))
      local last = task.spawn(function() return log:sync() end)
      task.sleep(0)
      log:close() -- the sync has a descriptor of its own
      assert.are.same({ true, true }, { last:wait(10000) })
    end)
    assert.has_error(function() log:sync() end)
  end)

  it("ends its state in peace while a sync is under way", function()
    local said = other_lua("", [[
      local core = require "demilune.core"
      local log = assert(core.fs.append(arg[1]))
      log:write(("x"):rep(1 << 22) .. "\n")
      core.task.run(function()
        for _ = 1, 8 do core.task.spawn(function() log:sync() end) end
        core.task.sleep(0)
      end)
      io.write "end"
    ]], path)
    assert.are.equal("end", said)
  end)

  it("keeps the records of several writers whole", function()
    local program = [[
      local core = require "demilune.core"
      local log = assert(core.fs.append(arg[1]))
      local line = arg[2]:rep(200 + tonumber(arg[3]))
      for i = 1, 300 do assert(log:write(line .. "\n")) end
    ]]
    local path_of, pipes = os.tmpname(), {}
    local file = assert(io.open(path_of, "w"))
    file:write(("package.cpath = %q\n"):format(build.dir .. "/spec/?.so"), program)
    file:close()
    for i, letter in ipairs { "a", "b", "c" } do
      pipes[i] = assert(io.popen(("%s %s '%s' %s %d 2>&1"):format(harness.interpreter(), path_of, path, letter, i)))
    end
    for _, pipe in ipairs(pipes) do
      assert.are.equal("", pipe:read "a")
      pipe:close()
    end
    os.remove(path_of)
    local counts = {}
    for line in contents():gmatch "[^\n]*\n" do
      local letter, length = line:sub(1, 1), #line - 1
      assert.are.equal(letter:rep(length), line:sub(1, -2))
      assert.are.equal(200 + letter:byte() - 96, length)
      counts[letter] = (counts[letter] or 0) + 1
    end
    assert.are.same({ a = 300, b = 300, c = 300 }, counts)
  end)

  -- A limit of the file's size cuts a write short as a full disk does: the part that fits is written (write(2)).
  it("takes back a record that was cut short", function()
    local said = other_lua("trap '' XFSZ; ulimit -f 1;", [[
      local core = require "demilune.core"
      local log = assert(core.fs.append(arg[1]))
      io.write(tostring(log:write(("a"):rep(299) .. "\n")), ",")
      local ok, err = log:write(("b"):rep(5000) .. "\n")
      io.write(tostring(ok), ",", err.category, ",", log:size(), ",", tostring(log:write "c\n"))
    ]], path)
    assert.are.equal("true,nil,disk_full,300,true", said)
    assert.are.equal(("a"):rep(299) .. "\nc\n", contents())
  end)

  it("leaves a cut record that it may not take back, and begins anew behind it", function()
    local said = other_lua("trap '' XFSZ; ulimit -f 1;", [[
      local core = require "demilune.core"
      local log = assert(core.fs.append(arg[1]))
      local lock = assert(core.fs.lock(arg[1])) -- somebody holds the file: nothing is taken away under them
      local ok, err = log:write(("b"):rep(5000) .. "\n")
      io.write(tostring(ok), ",", err.category, ",", log:size() > 0 and "piece" or "nothing")
      lock:release()
    ]], path)
    assert.are.equal("nil,disk_full,piece", said)
    local log <close> = assert(fs.append(path))
    local piece = contents()
    assert.is_true(log:write "next\n")
    assert.are.equal(piece .. "\nnext\n", contents())
  end)

  it("says disk_full on a full disk and goes on when there is room", function()
    if os_calls.ids() ~= 0 then pending "only root can mount" end
    local script = ("mount -t tmpfs -o size=64k,mode=700 none '%s' 2>/dev/null || { printf unmounted; exit; };"):format(dir)
    local said = other_lua(("unshare -m sh -c '%s exec \"$@\"' sh"):format(script:gsub("'", [['"'"']])), [[
      local core = require "demilune.core"
      local log = assert(core.fs.append(arg[1]))
      local line, written, why = ("x"):rep(999) .. "\n", 0, nil
      for i = 1, 100 do
        local ok, err = log:write(line)
        if not ok then why = err.category break end
        written = i
      end
      local filler = io.open(arg[1]):read "a"
      io.write(why, ",", tostring(#filler == written * 1000))
    ]], path)
    if said == "unmounted" or said:find("unshare", 1, true) then pending "mounting is not allowed here" end
    assert.are.equal("disk_full,true", said)
  end)

  it("leaves no descriptor", function()
    local function count()
      local n = 0
      for _ in lfs.dir "/proc/self/fd" do n = n + 1 end
      return n
    end
    collectgarbage()
    local before = count()
    for _ = 1, 50 do
      local log = assert(fs.append(path))
      task.run(function() assert.is_true(log:sync()) end)
      log:reopen()
    end
    collectgarbage()
    collectgarbage()
    -- One of an earlier case may have been about to close.
    assert.is_true(count() <= before)
  end)
end)
