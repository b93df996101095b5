--- core.vault: names go in, handles and masks come out, and never a byte of a secret.

local build = require "spec.support.build"
local canary = require "spec.support.canary"
local core = require "demilune.core"
local harness = require "spec.script.harness"
local os_calls = require "spec_os"
local lfs = require "lfs"
local task, vault = core.task, core.vault

local folder = assert(os_calls.mkdtemp((os.getenv("DML_SPEC_TMP") or "/tmp") .. "/vault-XXXXXX"))

local function write(name, text, mode)
  local path = folder .. "/" .. name
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
  assert(os_calls.chmod(path, tonumber(mode or "600", 8)))
  return path
end

--- A program of its own; `body` is shell.
local function program(name, body)
  return write(name, "#!/bin/sh\n" .. body .. "\n", "700")
end

local function status_of(name)
  for _, credential in ipairs(vault.status().credentials) do
    if credential.name == name then return credential end
  end
end

--- Everything that Lua can learn of a credential, as one text.
local function all_of(value, seen)
  seen = seen or {}
  if type(value) ~= "table" or seen[value] then return tostring(value) end
  seen[value] = true
  local parts = {}
  for key, item in pairs(value) do parts[#parts + 1] = all_of(key, seen) .. "=" .. all_of(item, seen) end
  return table.concat(parts, " ")
end

teardown(function()
  for entry in lfs.dir(folder) do
    if entry ~= "." and entry ~= ".." then os.remove(folder .. "/" .. entry) end
  end
  lfs.rmdir(folder)
end)

describe("a credential", function()
  it("is read when it is first loaded, and again when it was rotated", function()
    local old, new = canary.new(), canary.new()
    local path = write("rotated", old .. "\n")
    assert.is_true(vault.define("rotated", "file:" .. path))
    assert.are.equal("unread", status_of("rotated").state)
    assert.are.equal(old, vault.redact(old))
    assert.is_true(vault.load "rotated")
    assert.are.same({ name = "rotated", kind = "file", state = "loaded" }, status_of "rotated")
    assert.are.equal("[redacted]", vault.redact(old))
    assert.is_false(vault.reload "rotated")
    write("rotated", new)
    assert.is_true(vault.load "rotated")
    assert.are.equal(new, vault.redact(new), "a loaded one is not read again")
    assert.is_true(vault.reload "rotated")
    assert.are.equal("[redacted]" .. old, vault.redact(new .. old))
  end)

  it("keeps its secret when it cannot be read again, and says why", function()
    local secret = canary.new()
    local path = write("kept", secret)
    assert.is_true(vault.define("kept", "file:" .. path))
    assert.is_true(vault.load "kept")
    assert(os_calls.chmod(path, tonumber("644", 8)))
    local changed, err = vault.reload "kept"
    assert.is_nil(changed)
    assert.are.equal("authentication_failed", err.category)
    assert.are.equal("loaded", status_of("kept").state)
    assert.is_truthy(status_of("kept").cause:find(path, 1, true))
    assert.are.equal("[redacted]", vault.redact(secret))
  end)

  it("that cannot be read names itself and the way out, but no path", function()
    assert.is_true(vault.define("missing", "file:" .. folder .. "/nowhere"))
    local done, err = vault.load "missing"
    assert.is_nil(done)
    assert.are.equal("The credential missing cannot be read; `demilune doctor` says why.", err.message)
    assert.are.equal("authentication_failed", err.category)
    assert.is_nil(all_of(err):find(folder, 1, true))
    assert.are.same({
      name = "missing", kind = "file", state = "failed", cause = "The file " .. folder .. "/nowhere is not there.",
    }, status_of "missing")
  end)

  it("is refused at once with a source that is none", function()
    for _, source in ipairs { "", "plain-text-secret", "env:", "file:x", "cmd:pass show", "cred:a/b", "env:A\0B" } do
      local done, err = vault.define("bad", source)
      assert.is_nil(done)
      assert.are.equal("invalid_argument", err.category)
      assert.is_nil(err.message:find("plain-text", 1, true))
    end
    assert.is_nil((vault.define("a b", "env:A")))
    assert.is_nil(status_of "bad")
    assert.has_error(function() vault.load "bad" end)
  end)

  it("shows nothing of its secret", function()
    local secret = canary.new()
    assert.is_true(vault.define("hidden", "file:" .. write("hidden", secret)))
    assert.is_true(vault.load "hidden")
    local handle = vault.bind("hidden", { header = "X-API-KEY", origins = { "https://api.e2b.app" } })
    assert.are.equal("credential(hidden)", tostring(handle))
    assert.are.equal("credential", getmetatable(handle))
    assert.has_error(function() return handle.secret end)
    assert.has_error(function() return #handle end)
    assert.has_error(function() setmetatable(handle, {}) end)
    assert.is_nil(canary.find(all_of(vault.status()) .. all_of(vault) .. tostring(handle), secret))
    assert.is_true(vault.allows(handle, "https://api.e2b.app/x"))
    assert.is_false(vault.allows(handle, "https://api.e2b.app.evil.x/"))
    assert.has_error(function() vault.allows({}, "https://api.e2b.app") end)
  end)
end)

if not harness.is_valgrind() then
  describe("a credential of a program", function()
    it("is the first line that it prints, without a shell", function()
      local secret = canary.new()
      local path = program("prints", ('printf "%%s\\n" "%s-$1-$#"; echo more'):format(secret))
      assert.is_true(vault.define("cmd", ("cmd:%s $HOME;x  b"):format(path)))
      assert.is_true(task.run(vault.load, "cmd"))
      assert.are.equal("[redacted]", vault.redact(secret .. "-$HOME;x-2"))
      assert.is_false(task.run(vault.reload, "cmd"))
    end)

    it("is read once for all that wait for it", function()
      local count = folder .. "/count"
      local path = program("counts", ('echo x >>%s; sleep 0.2; echo %s'):format(count, canary.new()))
      assert.is_true(vault.define("shared", "cmd:" .. path))
      task.run(function()
        local waiting = {}
        for i = 1, 5 do waiting[i] = task.spawn(vault.load, "shared") end
        for i = 1, 5 do assert.are.same({ true, true }, { waiting[i]:wait(5000) }) end
      end)
      assert.are.equal(2, lfs.attributes(count, "size"))
      os.remove(count)
    end)

    it("fails with a program that fails, prints nothing usable, or is not there", function()
      local cases = {
        ["echo long-enough-secret; exit 1"] = "ended with a failure",
        ["echo long-enough-secret; kill -9 $$"] = "ended by a signal",
        ["exit 0"] = "printed nothing",
        ["echo short"] = "shorter than 8 bytes",
        ["echo; echo long-enough-secret"] = "shorter than 8 bytes",
        ["printf 'tab\\tin-the-secret'"] = "control character",
        ["head -c 100000 /dev/zero | tr '\\0' x"] = "longer than 8192 bytes",
        ["cat; echo >&2 not-on-stdout"] = "printed nothing",
      }
      for body, cause in pairs(cases) do
        assert.is_true(vault.define("fails", "cmd:" .. program("fails", body)))
        local done, err = task.run(vault.load, "fails")
        assert.is_nil(done)
        assert.are.equal("authentication_failed", err.category)
        assert.is_truthy(status_of("fails").cause:find(cause, 1, true), body)
        assert.are.equal("long-enough-secret", vault.redact "long-enough-secret")
      end
      assert.is_true(vault.define("fails", "cmd:" .. folder .. "/not-there"))
      assert.is_nil((task.run(vault.load, "fails")))
      assert.are.equal("The program is not there.", status_of("fails").cause)
      assert.is_true(vault.define("fails", "cmd:" .. write("no-program", "x")))
      assert.is_nil((task.run(vault.load, "fails")))
      assert.are.equal("The program may not be run by this user.", status_of("fails").cause)
    end)

    it("does not hang on what the program leaves behind, and ends with whoever waits for it", function()
      local path = program("leaves", "sleep 30 & echo a-secret-of-a-parent")
      assert.is_true(vault.define("leaves", "cmd:" .. path))
      local before = task.now_ms()
      assert.is_true(task.run(vault.load, "leaves"))
      assert.is_true(task.now_ms() - before < 5000)
      local pid_file = folder .. "/pid"
      assert.is_true(vault.define("hangs", "cmd:" .. program("hangs", "echo $$ >" .. pid_file .. "; exec sleep 30")))
      task.run(function()
        local waiting = task.spawn(vault.load, "hangs")
        for _ = 1, 100 do
          task.sleep(20)
          if (lfs.attributes(pid_file, "size") or 0) > 0 then break end
        end
        waiting:cancel()
        assert.is_false((waiting:wait(5000)))
      end)
      local file = assert(io.open(pid_file))
      local pid = math.tointeger(file:read "n")
      file:close()
      assert.is_nil(lfs.attributes("/proc/" .. pid, "mode"))
    end)

    it("lets one that waits cancel the others, and a new source forget the old program", function()
      assert.is_true(vault.define("twice", "cmd:" .. program("twice", "sleep 0.1; echo a-secret-for-many")))
      task.run(function()
        local waiting = {}
        local function load_and_cancel()
          assert(vault.load "twice")
          for _, other in ipairs(waiting) do
            if other ~= task.current() then other:cancel() end
          end
          collectgarbage()
        end
        for i = 1, 4 do waiting[i] = task.spawn(load_and_cancel) end
        local done = 0
        for i = 1, 4 do done = done + (waiting[i]:wait(5000) and 1 or 0) end
        assert.are.equal(1, done)
        waiting = { task.spawn(vault.reload, "twice") }
        task.sleep(30)
        assert.is_true(vault.define("twice", "cmd:/bin/echo another-secret-now"))
        local _, changed, err = waiting[1]:wait(5000)
        assert.is_nil(changed)
        assert.are.equal("authentication_failed", err.category)
        assert.is_true(vault.load "twice")
      end)
      assert.are.equal("a-secret-for-many [redacted]", vault.redact "a-secret-for-many another-secret-now")
    end)

    it("is given up after ten seconds", function()
      assert.is_true(vault.define("slow", "cmd:" .. program("slow", "echo a-secret-too-late; exec sleep 60")))
      local before = task.now_ms()
      assert.is_nil((task.run(vault.load, "slow")))
      assert.is_true(task.now_ms() - before >= 9900)
      assert.are.equal("The program took longer than 10 s.", status_of("slow").cause)
    end)
  end)
end

describe("redaction", function()
  local secret = canary.new()

  setup(function()
    assert.is_true(vault.define("canary", "file:" .. write("canary", secret)))
    assert.is_true(vault.load "canary")
  end)

  it("masks every form and drops nothing else", function()
    for name, form in pairs(canary.forms(secret)) do
      local out = vault.redact("before|" .. form .. "|after")
      assert.is_nil(canary.find(out, secret), name)
      assert.are.equal("before|", out:sub(1, 7))
      assert.are.equal("|after", out:sub(-6))
    end
    local text = "nothing of it: " .. secret:sub(1, -2)
    assert.are.equal(text, vault.redact(text))
  end)

  it("goes through values without changing them", function()
    local inner = core.json.array { 1, true, "x" .. secret, core.json.null }
    local value = { a = inner, [secret] = { b = "kept" }, n = 1.5 }
    local out = vault.redact_all(value)
    local list = core.json.array { 1, true, "x[redacted]", core.json.null }
    assert.are.same({ a = list, ["[redacted]"] = { b = "kept" }, n = 1.5 }, out)
    assert.are.equal("x" .. secret, inner[3])
    assert.are.equal(getmetatable(inner), getmetatable(out.a))
    assert.are.equal(value[secret], out["[redacted]"])
    local clean = { a = { b = { "c" } } }
    assert.are.equal(clean, vault.redact_all(clean))
    assert.are.equal(5, vault.redact_all(5))
    local deep = {}
    for _ = 1, 1000 do deep = { deep } end
    assert.has_error(function() vault.redact_all(deep) end)
  end)

  it("works across pieces, and holds back no more than a beginning of a secret", function()
    local redactor = vault.redactor()
    assert.are.equal("some text ", redactor:feed "some text ")
    assert.are.equal("", redactor:feed(secret:sub(1, 20)))
    assert.are.equal("[redacted]", redactor:feed(secret:sub(21) .. "#"):sub(1, 10))
    local parts = { redactor:feed(secret:sub(1, 10)), redactor:feed "!", redactor:finish() }
    assert.is_truthy(table.concat(parts):find(secret:sub(1, 10) .. "!", 1, true))
  end)

  it("shows a text part by part as it would whole", function()
    local text = ("a"):rep(30) .. secret .. ("#"):rep(30) .. core.crypto.base64(secret) .. " end"
    local whole = vault.redact(text)
    for size = 1, 40, 3 do
      local parts, at = {}, 1
      while at <= #text do
        local part, ends = vault.redact_part(text, at, math.min(at + size - 1, #text))
        assert.are.equal(math.min(at + size - 1, #text), ends)
        parts[#parts + 1], at = part, ends + 1
      end
      assert.are.equal(whole, table.concat(parts))
    end
    local part, ends = vault.redact_part("###" .. secret:sub(1, 12), 1, 15, true)
    assert.are.same({ "###", 3 }, { part, ends })
    assert.has_error(function() vault.redact_part("abc", 0, 2) end)
    assert.has_error(function() vault.redact_part("abc", 2, 4) end)
    assert.are.same({ "", 2 }, { vault.redact_part("abc", 3, 2) })
  end)

  it("covers every record of the log", function()
    local log, path = folder .. "/log", write("log.lua", [[
      package.cpath = os.getenv "CHILD_CPATH"
      local core = require "demilune.core"
      local secret = os.getenv "CHILD_KEY"
      assert(core.log.open(arg[1]) and core.vault.define("key", "env:CHILD_KEY"))
      core.log.warn("key " .. secret .. " in a record")
      core.log.warn(("x"):rep(4050) .. secret)
      core.log.warn(("x"):rep(65530) .. secret)
      core.log.warn(secret:rep(2000))
      core.log.warn("base64 " .. core.crypto.base64("Bearer " .. secret))
      core.task.run(function()
        core.task.spawn(error, "a raise with " .. secret)
        core.task.sleep(10)
      end)
    ]])
    assert.is_true(os.execute(("CHILD_CPATH='%s' CHILD_KEY='%s' %s %s %s"):format(package.cpath, secret,
      harness.interpreter(), path, log)))
    assert.is_nil(canary.find_in(log, secret))
    local file = assert(io.open(log))
    local text = file:read "a"
    file:close()
    assert.is_truthy(text:find("key [redacted] in a record", 1, true))
    assert.is_truthy(text:find("a raise with [redacted]", 1, true))
    assert.is_nil(text:find(secret:sub(1, 6), 1, true), "half of one")
    assert.are.equal(6, select(2, text:gsub("\n", "")))
  end)
end)

describe("the vault", function()
  it("says whether its memory is locked, and how much of it is in use", function()
    local status = vault.status()
    assert.is_boolean(status.is_locked)
    assert.is_true(status.size_bytes >= 192 * 1024 and status.used_bytes > 0 and status.used_bytes < status.size_bytes)
    if status.is_locked then assert.is_true(vault.open { require_lock = true }) end
  end)

  it("hands loaded secrets to a child of ours through a pipe", function()
    if harness.is_valgrind() then pending "this valgrind does not know pidfd_open(2)" end
    local secret = canary.new()
    assert.is_true(vault.define("handed", "file:" .. write("handed", secret)))
    assert.is_true(vault.load "handed")
    local path = write("child.lua", [[
      package.cpath = os.getenv "CHILD_CPATH"
      local vault = require("demilune.core").vault
      assert(vault.redact(arg[1]) == arg[1])
      local names = assert(vault.take_over(0, 4))
      assert(#names == 1 and names[1] == "handed")
      local status = vault.status()
      assert(status.credentials[1].kind == "pipe" and status.credentials[1].state == "loaded")
      assert(vault.load "handed" and vault.reload "handed" == false)
      print(vault.redact(arg[1]))
    ]])
    local read_fd, write_fd = assert(core.sys.pipe())
    assert.is_true(vault.hand_over(write_fd, { "handed", "unknown" }))
    core.sys.close(write_fd)
    local out = folder .. "/out"
    local line = ("CHILD_CPATH='%s' %s %s '%s' <&%d >%s 2>&1"):format(package.cpath, harness.interpreter(), path, secret, 9, out)
    task.run(function()
      local argv, env = { "/bin/sh", "-c", line }, { PATH = os.getenv "PATH" }
      local child = assert(core.process.start { argv = argv, fds = { [9] = read_fd }, env = env })
      core.sys.close(read_fd)
      assert.are.same({ code = 0 }, child:wait(20000))
    end)
    local file = assert(io.open(out))
    assert.are.equal("[redacted]\n", file:read "a")
    file:close()
  end)

  it("leaves the environment of a host alone", function()
    local path = write("host.lua", [[
      package.cpath = os.getenv "CHILD_CPATH"
      local vault = require("demilune.core").vault
      assert(vault.open { require_lock = false } and vault.define("key", "env:CHILD_KEY"))
      assert(vault.redact(os.getenv "CHILD_KEY") == "[redacted]")
      assert(os.getenv "CHILD_KEY" == "a-key-of-the-host")
    ]])
    local line = ("CHILD_CPATH='%s' CHILD_KEY=a-key-of-the-host %s %s"):format(package.cpath, harness.interpreter(), path)
    assert.is_true(os.execute(line))
  end)

  it("refuses to open unlocked where the lock is required", function()
    if build.sanitize:find "address" then pending "the address sanitizer makes mlock(2) succeed" end
    local path = write("locked.lua", [[
      package.cpath = os.getenv "CHILD_CPATH"
      local vault = require("demilune.core").vault
      local done, err = vault.open { require_lock = true }
      assert(done == nil and err.category == "internal" and err.detail:find "ulimit")
      assert(vault.open {} and vault.status().is_locked == false)
      assert(vault.define("key", "env:CHILD_KEY") and vault.redact("a-key-of-the-host") == "[redacted]")
    ]])
    -- Root may lock what it likes, so it gives that up first.
    local drop = lfs.attributes("/usr/bin/setpriv", "mode") and "setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock " or ""
    local line = ("ulimit -l 0; CHILD_CPATH='%s' CHILD_KEY=a-key-of-the-host %s%s %s"):format(package.cpath, drop,
      harness.interpreter(), path)
    assert.is_true(os.execute(line))
  end)
end)
