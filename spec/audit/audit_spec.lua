-- timeout: 120
--- audit.lua: what stands in a record, and what becomes of records when the file does not do as it should.

local audits = require "demilune.audit"
local build = require "spec.support.build"
local core = require "demilune.core"
local errors = require "demilune.errors"
local harness = require "spec.script.harness"
local os_calls = require "spec_os"
local crypto, json, task = core.crypto, core.json, core.task

local KEY = ("k"):rep(32)

describe("the audit", function()
  local dir, path

  before_each(function()
    dir = assert(os_calls.mkdtemp((os.getenv "DML_SPEC_TMP" or "/tmp") .. "/audit-XXXXXX"))
    path = dir .. "/audit.jsonl"
  end)
  after_each(function() os.execute("rm -rf '" .. dir .. "'") end)

  local function options_of(more)
    local options = { file = path, required = true, sync = "none", arguments = false, max_size = 100, keep = 10 }
    for key, value in pairs(more or {}) do options[key] = value end
    return options
  end

  --- Runs a body as a task with an audit.
  local function with(more, body, env)
    task.run(function()
      local audit = assert(audits.open(options_of(more), env or { key = KEY }))
      body(audit)
      audit:close()
    end)
  end

  local function call(more)
    local fields = {
      principal = "local:me", client = "probe", transport = "stdio", tool = "run_command", arguments = { command = "ls" },
      decision = "allow", rule = "paced", policy_version = "v1", provider = "local", sandbox_id = "abc", implicit = false,
    }
    for key, value in pairs(more or {}) do fields[key] = value end
    return fields
  end

  local function lines_of(file_path)
    local file = assert(io.open(file_path or path, "rb"))
    local lines = {}
    for line in file:lines() do lines[#lines + 1] = assert(json.decode(line), line) end
    file:close()
    return lines
  end

  local function put(file_path, text)
    local file = assert(io.open(file_path, "wb"))
    file:write(text)
    file:close()
    os_calls.chmod(file_path, 384) -- 0600
  end

  local function keys_of(record)
    local keys = {}
    for key in pairs(record) do keys[#keys + 1] = key end
    table.sort(keys)
    return table.concat(keys, " ")
  end

  --- What a denied call is told, and that it names no path.
  local function denial_of(id, err)
    assert.is_nil(id)
    assert.are.same({ "policy_denied", "audit" }, { err.category, err.rule })
    for _, value in pairs(errors.public(err)) do assert.is_nil(tostring(value):find(dir, 1, true)) end
    assert.is_truthy(errors.detail(err):find(path, 1, true))
    return err.reason:match "^no record of the call can be written: (.*)$"
  end

  describe("a record", function()
    it("has a decision's keys, and an outcome's", function()
      with({}, function(audit)
        local before = task.iso(task.epoch_ms())
        local id = assert(audit:decision(call()))
        audit:outcome(id, "ok", 12, "abc")
        local decision, outcome = table.unpack(lines_of())
        assert.are.equal("args_digest client decision id implicit policy_version principal provider rule sandbox_id time tool"
          .. " transport", keys_of(decision))
        assert.is_true(before <= decision.time and decision.time <= outcome.time)
        assert.is_truthy(decision.time:find "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$")
        assert.is_truthy(decision.id:find "^[a-z2-7]+$" and #decision.id == 20)
        for key, value in pairs(call { arguments = false }) do
          if key ~= "arguments" then assert.are.equal(value, decision[key], key) end
        end
        assert.are.equal("duration_ms id outcome sandbox_id time", keys_of(outcome))
        assert.are.same({ id, id, "ok", 12, "abc" },
          { id, decision.id and outcome.id, outcome.outcome, outcome.duration_ms, outcome.sandbox_id })
      end)
    end)

    it("lacks what the call lacks", function()
      with({}, function(audit)
        assert(audit:decision { principal = "p", transport = "cli", tool = "t", arguments = {}, decision = "deny" })
        assert.are.equal("args_digest decision id implicit principal time tool transport", keys_of(lines_of()[1]))
        assert.is_false(lines_of()[1].implicit)
      end)
    end)

    it("has its question's id where it is the answer", function()
      with({}, function(audit)
        local id = assert(audit:decision(call { decision = "ask" }))
        assert.are.equal(id, audit:decision(call { decision = "allow", id = id, approval_id = "ap_x", answered_by = "operator" }))
        assert.are_not.equal(id, audit:decision(call()))
        audit:outcome(id, "ok", 1)
        local lines = lines_of()
        assert.are.same({ id, id, id }, { lines[1].id, lines[2].id, lines[4].id })
        assert.are.same({ "ap_x", "operator" }, { lines[2].approval_id, lines[2].answered_by })
        assert.is_nil(lines[4].sandbox_id)
      end)
    end)

    it("has a digest that tells arguments apart, and that only this install can make", function()
      with({}, function(audit)
        audit:decision(call { arguments = { a = 1, b = { c = 2, d = "x" } } })
        audit:decision(call { arguments = { b = { d = "x", c = 2 }, a = 1 } })
        audit:decision(call { arguments = { a = 1, b = { c = 2, d = "y" } } })
      end)
      with({}, function(audit) audit:decision(call { arguments = { a = 1, b = { c = 2, d = "x" } } }) end, { key = ("l"):rep(32) })
      local one, same, other, foreign = table.unpack(lines_of())
      assert.are.equal(crypto.hmac(KEY, '{"a":1,"b":{"c":2,"d":"x"}}'), one.args_digest)
      assert.are.equal(one.args_digest, same.args_digest)
      assert.are_not.equal(one.args_digest, other.args_digest)
      assert.are_not.equal(one.args_digest, foreign.args_digest)
      assert.is_nil(one.arguments)
    end)

    it("is one line of UTF-8, whatever a client calls itself", function()
      local names = {
        "a\nb\r\nc", '{"decision":"allow"}\n', ("x"):rep(1 << 20), ("\255"):rep(200), ("ä"):rep(40), "\0\27[2J\u{202E}\u{2028}",
        '"\\', "\xed\xa0\x80", "",
      }
      with({}, function(audit)
        for _, name in ipairs(names) do
          assert(audit:decision(call { client = name, tool = name, principal = name, sandbox_id = name }))
        end
      end)
      local file = assert(io.open(path, "rb"))
      local text = file:read "a"
      file:close()
      assert.are.equal(#names, select(2, text:gsub("\n", "")))
      assert.is_true(core.text.is_utf8(text))
      for i, record in ipairs(lines_of()) do
        assert.is_true(#record.client <= 64 and #record.tool <= 64, i .. ": " .. #record.client)
        assert.is_true(#record.principal <= 256 and #record.sandbox_id <= 256)
      end
      assert.are.equal("a\nb\r\nc", lines_of()[1].client)
      assert.are.equal(("ä"):rep(32), lines_of()[5].client)
    end)
  end)

  describe("with arguments", function()
    it("shows them masked", function()
      put(dir .. "/secret", "s3cr3t-of-the-audit-0123456789")
      with({ arguments = true }, function(audit)
        assert(core.vault.define("audit-spec", "file:" .. dir .. "/secret"))
        assert(core.vault.load "audit-spec")
        audit:decision(call { arguments = { command = "echo s3cr3t-of-the-audit-0123456789", n = 5 } })
      end)
      assert.are.same({ command = "echo [redacted]", n = 5 }, lines_of()[1].arguments)
    end)

    it("cuts those that are long", function()
      with({ arguments = true }, function(audit)
        audit:decision(call { arguments = { content = ("ä"):rep(100000) } })
        audit:decision(call { arguments = { content = ("x"):rep(16384 - 14) } })
      end)
      local cut, whole = lines_of()[1].arguments, lines_of()[2].arguments
      assert.are.equal(200014, cut.bytes)
      assert.is_true(#cut.cut <= 16384 and #cut.cut >= 16383)
      assert.are.equal(16384 - 14, #whole.content)
    end)
  end)

  describe("rotation", function()
    --- Another process that adds records to the file; it prints how many it has added.
    local function other(name, count, max_size)
      local script = dir .. "/" .. name .. ".lua"
      local file = assert(io.open(script, "w"))
      file:write(("package.cpath = %q\npackage.path = %q\n"):format(build.dir .. "/spec/?.so",
        build.root .. "/lua/?.lua;" .. build.root .. "/lua/?/init.lua"), [[
        local core = require "demilune.core"
        core.task.run(function()
          local options = { file = arg[1], required = true, sync = "batch", arguments = false, keep = 1000 }
          options.max_size = tonumber(arg[4])
          local audit = assert(require("demilune.audit").open(options, { key = ("k"):rep(32) }))
          for i = 1, tonumber(arg[3]) do
            local call = { principal = arg[2], tool = tostring(i), transport = "cli", arguments = {}, decision = "allow" }
            local id = assert(audit:decision(call))
            if i % 10 == 0 then core.task.sleep(0) end
            audit:outcome(id, "ok", i)
          end
          audit:close()
          print "done"
        end)
      ]])
      file:close()
      return assert(io.popen(("%s '%s' '%s' %s %d %s 2>&1"):format(harness.interpreter(), script, path, name, count, max_size)))
    end

    local function files()
      local list = { path }
      while core.fs.stat(path .. "." .. #list) do list[#list + 1] = path .. "." .. #list end
      return list
    end

    it("keeps so many files, the newest with the lowest number", function()
      with({ max_size = 0.001, keep = 3 }, function(audit)
        for i = 1, 40 do assert(audit:decision(call { tool = tostring(i) })) end
      end)
      local list, last = files(), 41
      assert.are.equal(4, #list)
      for _, file in ipairs(list) do
        assert.is_true(core.fs.stat(file).size < 0.001 * 1024 * 1024 + 500)
        assert.are.equal(384, core.fs.stat(file).mode)
        local lines = lines_of(file)
        for i = #lines, 1, -1 do
          last = last - 1
          assert.are.equal(tostring(last), lines[i].tool)
        end
      end
    end)

    it("never happens with a size of 0", function()
      with({ max_size = 0 }, function(audit)
        for _ = 1, 100 do assert(audit:decision(call())) end
      end)
      assert.are.equal(1, #files())
    end)

    it("loses no record of several servers", function()
      local names, pipes = { "a", "b", "c" }, {}
      for i, name in ipairs(names) do pipes[i] = other(name, 300, "0.01") end
      for _, pipe in ipairs(pipes) do
        assert.are.equal("done\n", pipe:read "a")
        pipe:close()
      end
      local seen, outcomes, list = { a = {}, b = {}, c = {} }, 0, files()
      -- While one of them rotates, the others write on: a file may be larger than it should.
      assert.is_true(#list > 5, #list .. " files")
      for _, file in ipairs(list) do
        for _, record in ipairs(lines_of(file)) do
          if record.outcome then outcomes = outcomes + 1
          else
            assert.is_nil(seen[record.principal][record.tool])
            seen[record.principal][record.tool] = true
          end
        end
      end
      assert.are.equal(900, outcomes)
      for _, name in ipairs(names) do
        for i = 1, 300 do assert.is_true(seen[name][tostring(i)]) end
      end
    end)

    it("lets the file grow, and nothing of the old ones get lost, where it cannot be done", function()
      assert(core.fs.make_dir(path .. ".1"))
      put(path .. ".1/full", "")
      put(path .. ".2", "old\n")
      with({ max_size = 0.0001, keep = 1 }, function(audit)
        for _ = 1, 5 do assert(audit:decision(call())) end
        assert.are.equal(5, #lines_of())
        assert.is_true(audit.cannot_rotate)
        os.execute("rm -r '" .. path .. ".1'")
        assert(audit:decision(call()))
        assert.are.equal(1, #lines_of())
        assert.are.equal(5, #lines_of(path .. ".1"))
      end)
    end)

    it("waits for nobody who holds the lock", function()
      with({ max_size = 0.0001 }, function(audit)
        local held = assert(core.fs.lock(path .. ".lock"))
        for _ = 1, 3 do assert(audit:decision(call())) end
        assert.are.equal(3, #lines_of())
        held:release()
        assert(audit:decision(call()))
        assert.are.equal(1, #lines_of())
      end)
    end)
  end)

  describe("a file that is moved away", function()
    it("is written on until we are told", function()
      with({}, function(audit)
        assert(audit:decision(call { tool = "1" }))
        assert(os.rename(path, dir .. "/moved"))
        assert(audit:decision(call { tool = "2" }))
        assert.is_nil(core.fs.stat(path))
        audit:reopen()
        assert(audit:decision(call { tool = "3" }))
        assert.are.equal(2, #lines_of(dir .. "/moved"))
        assert.are.equal("3", lines_of()[1].tool)
      end)
    end)

    it("is left when another is in its place", function()
      with({}, function(audit)
        assert(audit:decision(call { tool = "1" }))
        assert(os.rename(path, dir .. "/moved"))
        put(path, "")
        assert(audit:decision(call { tool = "2" }))
        assert.are.equal("2", lines_of()[1].tool)
      end)
    end)

    it("stays in use when another cannot be opened at once", function()
      with({}, function(audit)
        assert(os.rename(path, dir .. "/moved"))
        assert(core.fs.make_dir(path))
        audit:reopen()
        assert.are.equal("a folder is in its place", audit:fault())
        assert.are.equal("a folder is in its place", denial_of(audit:decision(call())))
        assert(os.remove(path))
        assert(audit:decision(call()))
        assert.is_nil(audit:fault())
        audit:reopen()
        assert(audit:decision(call()))
        assert.are.same({ 1, 1 }, { #lines_of(), #lines_of(dir .. "/moved") })
      end)
    end)
  end)

  describe("a call is denied", function()
    it("while the file is gone, until it is put back", function()
      with({}, function(audit)
        local id = assert(audit:decision(call()))
        assert(os.remove(path))
        assert.are.equal("the file is gone", denial_of(audit:decision(call())))
        assert.are.equal("the file is gone", audit:fault())
        audit:outcome(id, "ok", 1)
        put(path, "")
        assert(audit:decision(call()))
        assert.is_nil(audit:fault())
        assert(os.remove(path))
        denial_of(audit:decision(call()))
        audit:reopen()
        assert(audit:decision(call()))
        assert.are.equal(1, #lines_of())
      end)
    end)

    it("while others may write to the file, or a link is in its place", function()
      with({}, function(audit)
        assert(os.remove(path))
        put(path, "")
        os_calls.chmod(path, 438) -- 0666
        assert.are.equal("the file may not be written", denial_of(audit:decision(call())))
        assert(os.remove(path))
        put(dir .. "/elsewhere", "")
        assert(os.execute(("ln -s '%s/elsewhere' '%s'"):format(dir, path)))
        assert.are.equal("the file may not be written", denial_of(audit:decision(call())))
        assert(os.remove(path))
        put(path, "")
        assert(audit:decision(call()))
        assert.are.equal(0, core.fs.stat(dir .. "/elsewhere").size)
      end)
    end)

    --- Runs lines in a mount namespace of their own with a small disk at `disk`.
    local function on_a_disk(lines)
      if os_calls.ids() ~= 0 then pending "only root can mount" end
      local script = dir .. "/script.lua"
      local file = assert(io.open(script, "w"))
      file:write(("package.cpath = %q\npackage.path = %q\nlocal disk = %q\n"):format(build.dir .. "/spec/?.so",
        build.root .. "/lua/?.lua;" .. build.root .. "/lua/?/init.lua", dir .. "/disk"), [[
        local core = require "demilune.core"
        local audits = require "demilune.audit"
        local path = disk .. "/audit.jsonl"
        local function open(required)
          return audits.open({ file = path, required = required, sync = "batch", arguments = false, max_size = 1, keep = 3 },
            { key = "k" })
        end
        local function call()
          return { principal = "me", tool = "t", transport = "cli", arguments = {}, decision = "allow" }
        end
        core.task.run(function()
        ]], lines, "\nend)\n")
      file:close()
      assert(core.fs.make_dir(dir .. "/disk"))
      local pipe = assert(io.popen(([[unshare -m sh -c '
        mount -t tmpfs -o size=64k,mode=700 none "$1" 2>/dev/null || { printf unmounted; exit; }
        exec %s "$2"' sh '%s/disk' '%s' 2>&1]]):format((harness.interpreter():gsub("'", [['"'"']])), dir, script)))
      local said = pipe:read "a"
      pipe:close()
      if said == "unmounted" or said:find("unshare", 1, true) then pending "mounting is not allowed here" end
      return said:gsub("[^\n]*audit[^\n]* cannot be written[^\n]*\n", "")
    end

    it("while the disk is full, until there is room", function()
      assert.are.equal("ok,the disk is full,the disk is full,nil,whole\n", (on_a_disk [[
        local audit = assert(open(true))
        assert(audit:decision(call()))
        local filler = io.open(disk .. "/filler", "wb")
        filler:setvbuf "no"
        repeat local room = filler:write(("x"):rep(512)) until not room
        filler:close()
        local written, id, err = 1, nil, nil
        repeat
          id, err = audit:decision(call())
          if id then written = written + 1 end
        until not id
        local again, err_again = audit:decision(call())
        local function why(of) return of.reason:match ": (.*)$" end
        local size = core.fs.stat(path).size
        assert(os.remove(disk .. "/filler"))
        id = assert(audit:decision(call()))
        audit:outcome(id, "ok", 1)
        local lines = 0
        for line in io.lines(path) do
          assert(core.json.decode(line), line)
          lines = lines + 1
        end
        print(("ok,%s,%s,%s,%s"):format(why(err), why(err_again), audit:fault(), lines == written + 2 and again == nil and "whole"))
        audit:close()
      ]]))
    end)

    it("while the folder may not be written; a server that needs no audit starts, and writes when it may", function()
      assert.are.equal("invalid_argument,true,file,policy_denied,true\n", (on_a_disk [[
        assert(os.execute("mount -o remount,ro " .. disk))
        local none, err = open(true)
        local audit = assert(open(false))
        local id, denied = audit:decision(call())
        assert(not none and not id)
        local named = require("demilune.errors").detail(err):find(path, 1, true) ~= nil
        assert(os.execute("mount -o remount,rw " .. disk))
        local later = audit:decision(call())
        print(("%s,%s,%s,%s,%s"):format(err.category, named, core.fs.stat(path).type, denied.category, later ~= nil))
        audit:close()
      ]]))
    end)
  end)

  describe("forcing to the disk", function()
    --- A stand-in for core.fs.append that counts, and fails to sync while `disk.fails`.
    local function disk_of()
      local disk = { writes = 0, syncs = 0, closed = 0, opened = 0 }
      function disk.append()
        disk.opened = disk.opened + 1
        local file = { bytes = 0, is_open = true }
        function file:write(bytes)
          assert(self.is_open)
          self.bytes, disk.writes = self.bytes + #bytes, disk.writes + 1
          return true
        end
        function file:sync()
          assert(self.is_open)
          task.sleep(5)
          disk.syncs = disk.syncs + 1
          if disk.fails then return nil, errors.new "internal" end
          return true
        end
        function file:size() return self.bytes end
        function file:is_current() return self.is_open and not disk.moved end
        function file:close()
          self.is_open = false
          disk.closed = disk.closed + 1
        end
        return file
      end
      return disk
    end

    it("is left to the system with none", function()
      local disk = disk_of()
      with({ sync = "none" }, function(audit)
        for _ = 1, 5 do audit:outcome(assert(audit:decision(call())), "ok", 1) end
        task.sleep(1100)
      end, { key = KEY, append = disk.append })
      assert.are.same({ 10, 0, 1 }, { disk.writes, disk.syncs, disk.closed })
    end)

    it("is done once a second with batch, and at the end", function()
      local disk = disk_of()
      with({ sync = "batch" }, function(audit)
        for _ = 1, 50 do audit:outcome(assert(audit:decision(call())), "ok", 1) end
        assert.are.equal(0, disk.syncs)
        task.sleep(1200)
        assert.are.equal(1, disk.syncs)
        task.sleep(1100)
        assert.are.equal(1, disk.syncs)
        assert(audit:decision(call()))
      end, { key = KEY, append = disk.append })
      assert.are.equal(2, disk.syncs)
    end)

    it("is done before each call runs with call", function()
      local disk = disk_of()
      with({ sync = "call" }, function(audit)
        for i = 1, 3 do
          local id = assert(audit:decision(call()))
          assert.are.equal(i, disk.syncs)
          audit:outcome(id, "ok", 1)
          assert.are.equal(i, disk.syncs)
        end
      end, { key = KEY, append = disk.append })
      assert.are.equal(4, disk.syncs)
    end)

    it("denies the next calls where it failed, until it works", function()
      for _, sync in ipairs { "batch", "call" } do
        local disk = disk_of()
        with({ sync = sync }, function(audit)
          assert(audit:decision(call()))
          disk.fails = true
          local id = audit:decision(call())
          assert.are.equal(sync == "batch", id ~= nil)
          if sync == "batch" then
            task.sleep(1100)
            assert.are.equal("the file cannot be written", audit:fault())
          end
          local written = disk.writes
          assert.are.equal("the file cannot be written", denial_of(audit:decision(call())))
          assert.are.equal(written, disk.writes)
          disk.fails = false
          assert(audit:decision(call()))
          assert.is_nil(audit:fault())
        end, { key = KEY, append = disk.append })
      end
    end)

    it("is done for a file that is left, before it is closed", function()
      local disk = disk_of()
      with({ sync = "batch" }, function(audit)
        assert(audit:decision(call()))
        audit:reopen()
        assert(audit:decision(call()))
        audit:reopen()
        assert.are.same({ 3, 0, 0 }, { disk.opened, disk.syncs, disk.closed })
      end, { key = KEY, append = disk.append })
      assert.are.same({ 3, 2, 3 }, { disk.opened, disk.syncs, disk.closed })
    end)

    it("works with a real file", function()
      for _, sync in ipairs { "none", "batch", "call" } do
        with({ sync = sync }, function(audit)
          audit:outcome(assert(audit:decision(call())), "ok", 1)
        end)
      end
      assert.are.equal(6, #lines_of())
    end)
  end)
end)
