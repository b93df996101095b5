--- The helpers of the specs: a check that never fails checks nothing.

local build = require "spec.support.build"
local canary = require "spec.support.canary"
local demilune = require "spec.support.demilune"
local leftovers = require "spec.support.leftovers"
local os_calls = require "spec_os"
local sources = require "spec.support.sources"

local function run(text, extension)
  local path = os.tmpname() .. (extension or "_spec.lua")
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  if extension == ".sh" then os_calls.chmod(path, tonumber("755", 8)) end
  local pipe = assert(io.popen(("cd '%s' && lua5.4 spec/run.lua --build '%s' %s 2>&1; echo exit $?"):format(
    build.root, build.dir, path)))
  local output = pipe:read("a")
  pipe:close()
  os.remove(path)
  return output
end

describe("spec/run.lua", function()
  it("counts what passes, fails and is skipped, with the reason", function()
    local output = run([[describe("a", function()
      it("passes", function() assert.is_true(true) end)
      it("fails", function() assert.is_true(false) end)
      it("waits", function() pending("no such device") end)
    end)]])
    assert.truthy(output:find("skip: .*a waits: no such device\n"))
    assert.truthy(output:find("\n1 passed, 1 failed\nexit 1\n"))
  end)

  it("takes a crash, a syntax error and an empty file for failures", function()
    local crash = "it('ends', function() require('spec_os').kill(select(3, require('spec_os').ids()), 9) end)"
    assert.truthy(run(crash):find("ended without its closing line.*\n0 passed, 1 failed\nexit 1\n"))
    assert.truthy(run("it('"):find("\n0 passed, 1 failed\nexit 1\n"))
    assert.truthy(run("local _ = 1"):find("\n0 passed, 1 failed\nexit 1\n"))
  end)

  it("takes a case that asserts nothing for a failure", function()
    local output = run("it('looks', function() local _ = 1 end) it('tells', function() assert(true) end)")
    assert.truthy(output:find("FAILED looks\n  it asserts nothing\n"))
    assert.truthy(output:find("\n1 passed, 1 failed\n"))
  end)

  it("stops a file that hangs", function()
    assert.truthy(run("-- timeout: 1\nit('hangs', function() while true do end end)"):find("stopped after"))
  end)

  it("takes a descriptor and a child left behind for failures", function()
    local output = run([[it("leaks", function()
      assert.is_true(true)
      local spec_os = require "spec_os"
      leaked = { spec_os.pipe() }
      spec_os.spawn({ "/bin/sleep", "3" }, {}, nil, -1, -1, -1)
    end)]])
    assert.truthy(output:find("descriptor %d+ is open"))
    assert.truthy(output:find("child %d+ is there: sleep"))
    assert.truthy(output:find("\n1 passed, 3 failed\n"))
  end)

  it("counts programs by their closing line and doubts one that ends badly after it", function()
    local good = run("#!/bin/sh\necho 'skip: no disk'; echo '3 passed, 0 failed'\n", ".sh")
    assert.truthy(good:find("skip: .*no disk\n3 passed, 0 failed\nexit 0"))
    assert.truthy(run("#!/bin/sh\necho '3 passed, 0 failed'; exit 9\n", ".sh"):find("\n3 passed, 1 failed\nexit 1"))
  end)
end)

describe("spec.support.demilune", function()
  local function start(script) return demilune.start({ argv = { "/bin/sh", "-c", script } }) end

  it("reads lines, keeps what came before an answer, and sees the end", function()
    local program = start([[echo '{"method":"n"}'; echo '{"id":7,"result":{}}'
      echo '{"id":"x","result":{}}'; echo odd >&2]])
    assert.are.equal("x", program:receive("x").id)
    assert.are.equal(7, program:receive(7).id)
    assert.are.equal("n", program.notifications[1].method)
    assert.are.same({ nil, "eof" }, { program:read_line() })
    assert.are.same({ code = 0 }, program:wait())
    assert.are.equal("odd\n", program.stderr)
    program:stop()
  end)

  it("writes more than a pipe holds to a program that answers as much", function()
    local program = start("cat")
    local line = ("x"):rep(1 << 20)
    assert.is_true(program:send_line(line))
    assert.are.equal(#line, #program:read_line())
    assert.are.same({ code = 0 }, (program:stop()))
  end)

  it("gives up at its deadlines and ends what does not end", function()
    local program = start("trap '' TERM; while :; do sleep 0.1; done")
    assert.are.same({ nil, "timeout" }, { program:read_line(30) })
    assert.has_error(function() program:receive(1, 30) end)
    local tree = leftovers.tree(program.pid)
    assert.is_true(#tree >= 1)
    local ended, was_slow = program:stop()
    assert.are.same({ code = nil, signal = 9 }, { code = ended.code, signal = ended.signal })
    assert.is_true(was_slow)
    os_calls.sleep_ms(20)
    assert.are.same({}, leftovers.alive(tree))
  end)

  it("puts the _meta of a modern client into params", function()
    local program = start("cat")
    program.meta = '{"a":1}'
    program:send("m")
    program:send("m", { b = 2 })
    assert.are.equal('"params":{"_meta":{"a":1}}}', program:read_line():match('"params".*'))
    assert.are.equal('"params":{"_meta":{"a":1},"b":2}}', program:read_line():match('"params".*'))
    program:stop()
  end)

  it("gives each program a home that is gone afterwards", function()
    local program = start("test -d $XDG_STATE_HOME && echo $HOME")
    local home = program:read_line()
    assert.are.equal(program.home, home)
    assert.is_true(#home < 60)
    program:stop()
    assert.is_nil(io.open(home))
  end)
end)

describe("spec.support.leftovers", function()
  it("finds processes by a word in their environment", function()
    local word = canary.new()
    local pid = os_calls.spawn({ "/bin/sleep", "5" }, { "A=" .. word }, nil, -1, -1, -1)
    os_calls.sleep_ms(20)
    local found = leftovers.mentioning(word)
    assert.are.equal(1, #found)
    assert.are.equal(pid, found[1].pid)
    os_calls.kill(pid, 9)
    while os_calls.wait(pid) == false do os_calls.sleep_ms(1) end
    assert.are.same({}, leftovers.alive(found))
  end)
end)

describe("spec.support.canary", function()
  it("finds a secret in every form, wherever it stands", function()
    local secret = "cn/0123456789abcdef+ü"
    local encoders = {
      function(s) return s end,
      function(s) return (s:gsub(".", function(c) return ("%02X"):format(c:byte()) end)) end,
      function(s) return (s:gsub("[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end)) end,
      function(s)
        local path = os.tmpname()
        local file = assert(io.open(path, "w"))
        file:write(s)
        file:close()
        local pipe = assert(io.popen("base64 -w0 " .. path))
        local text = pipe:read("a")
        pipe:close()
        os.remove(path)
        return text
      end,
    }
    for number, encode in ipairs(encoders) do
      for before = 0, 4 do
        local text = encode(("q"):rep(before) .. secret .. "tail")
        assert.truthy(canary.find(text, secret), ("encoder %d, %d bytes before"):format(number, before))
      end
    end
    assert.is_nil(canary.find("cn/0123456789abcdee+ü", secret))
  end)

  it("searches folders, and raises when it cannot", function()
    local secret, home = canary.new(), demilune.home()
    assert.is_nil(canary.find_in(home, secret))
    local file = assert(io.open(home .. "/state/log", "w"))
    file:write("x" .. secret)
    file:close()
    assert.are.equal(home .. "/state/log: plain", canary.find_in(home, secret))
    assert.has_error(function() canary.find_in(home .. "/nothing", secret) end)
    demilune.remove_home(home)
  end)
end)

describe("spec.support.sources", function()
  it("measures C functions, one-liners and heads over several lines", function()
    local path = "spec/support/os.c"
    local by_name = {}
    for _, fn in ipairs(sources.c_functions(path)) do by_name[fn.name] = fn.lines end
    assert.are.equal(7, by_name.fail)
    assert.are.equal(1, by_name.check_fd)
    assert.is_true(by_name.luaopen_spec_os > 20)
    assert.is_nil(by_name.functions)
  end)

  it("blanks comments and strings of C, not code", function()
    assert.are.equal('a("     ");    \n b', sources.bare_c('a("\\"x/*");// c\n b'))
    assert.are.equal("a    \n    b", sources.bare_c("a/* c\n */ b"))
  end)
end)
