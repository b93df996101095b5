-- timeout: 120
--- How the program begins and ends: stdin of every kind, a client that goes away, signals.

local build = require "spec.support.build"
local cjson = require "cjson"
local demilune = require "spec.support.demilune"
local leftovers = require "spec.support.leftovers"
local os_calls = require "spec_os"

local SIGHUP, SIGINT, SIGTERM = 1, 2, 15
local EXIT_MS = 1800
local PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
local PONG = '{"jsonrpc":"2.0","id":1,"result":{}}\n'
local HELLO = '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}\n'

--- Milliseconds until the program ended, and how.
local function ended_after(server, from)
  local ended = server:wait(EXIT_MS + 3000)
  return os_calls.now_ms() - from, ended
end

local function assert_ends_well(server, act)
  local from = os_calls.now_ms()
  act()
  local took, ended = ended_after(server, from)
  assert.are.same({ code = 0 }, ended)
  assert.is_true(took < EXIT_MS, took .. " ms")
  return took
end

--- Runs `demilune serve` behind a shell with the redirections given; returns stdout and the exit code.
local function shell(line, home)
  local pipe = assert(io.popen(("cd '%s' && export HOME='%s' XDG_STATE_HOME='%s/state'; B='%s'; ( %s ); echo \"exit $?\""):format(
    home, home, home, build.program, line)))
  local text = pipe:read "a"
  pipe:close()
  return text
end

describe("a server", function()
  local server
  before_each(function() server = demilune.start() end)
  after_each(function() server:stop() end)

  it("ends at the end of stdin", function()
    assert.is_true(assert_ends_well(server, function() server:close_stdin() end) < 1000)
  end)

  it("answers what it read before the end, a last line without a line break too", function()
    server:write(HELLO .. PING:rep(200) .. PING:sub(1, -2))
    assert_ends_well(server, function() server:close_stdin() end)
    local count = select(2, server.stdout:gsub('"id":1,"result":{}}\n', ""))
    assert.are.equal(201, count)
  end)

  it("hands over all it has to say to a client that reads only after the end", function()
    server:write(HELLO)
    for id = 1, 60 do server:write(('{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n'):format(id)) end
    server:close_stdin()
    os_calls.sleep_ms(400) -- the pipe has been full since long
    server:wait(3000)
    local seen = {}
    for line in server.stdout:gmatch "[^\n]+" do seen[cjson.decode(line).id] = true end
    for id = 0, 60 do assert.is_true(seen[id], "no answer to " .. id) end
  end)

  it("does not wait for a client that does not read", function()
    server:write(HELLO)
    for id = 1, 60 do server:write(('{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n'):format(id)) end
    local from = os_calls.now_ms()
    server:close_stdin()
    local ended
    repeat
      os_calls.sleep_ms(10)
      ended = os_calls.wait(server.pid)
    until ended or os_calls.now_ms() - from > 4000
    server.ended = ended or nil
    assert.are.same({ code = 0 }, ended)
    assert.is_true(os_calls.now_ms() - from < EXIT_MS)
  end)

  for name, signo in pairs { SIGTERM = SIGTERM, SIGINT = SIGINT } do
    it("ends at " .. name .. ", and the second does no harm", function()
      server:request "ping"
      assert_ends_well(server, function()
        server:signal(signo)
        server:signal(signo)
      end)
    end)
  end

  it("lives on at SIGHUP, and opens its log again", function()
    server:initialize()
    local dir = demilune.state_dir(server.home) .. "/log"
    local path = ("%s/serve-%d.log"):format(dir, server.pid)
    assert(os.rename(path, path .. ".moved"))
    for _ = 1, 3 do
      server:signal(SIGHUP)
      assert.are.same({}, server:request "ping")
    end
    local before = os_calls.now_ms()
    while not io.open(path) and os_calls.now_ms() - before < 2000 do os_calls.sleep_ms(5) end
    assert.truthy(io.open(path))
    assert_ends_well(server, function() server:signal(SIGTERM) end)
  end)

  it("ends when nobody reads its stdout any more, without being killed by the signal", function()
    server:initialize()
    os_calls.close(server.fds.stdout)
    server.fds.stdout = nil
    assert_ends_well(server, function() server:write(PING) end)
  end)

  it("ends when nobody reads its stdout while much waits for it", function()
    server:initialize()
    for id = 1, 300 do server:write(('{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n'):format(id)) end
    os_calls.sleep_ms(100)
    assert_ends_well(server, function()
      os_calls.close(server.fds.stdout)
      server.fds.stdout = nil
    end)
  end)

  it("does not mind that nobody reads its stderr", function()
    os_calls.close(server.fds.stderr)
    server.fds.stderr = nil
    server:initialize()
    for _ = 1, 20 do server:request "ping" end
    assert_ends_well(server, function() server:close_stdin() end)
  end)

  it("answers calls that run as stopped, and takes its sandboxes with it", function()
    server:initialize()
    local content, err = server:call("create_sandbox", {}, 30000)
    if not content then pending("no sandbox here: " .. err.category) end
    local id = server:send("tools/call", { name = "run_command", arguments = { command = "sleep 4711" } })
    os_calls.sleep_ms(300)
    local tree = leftovers.mentioning(server.home)
    assert_ends_well(server, function() server:close_stdin() end)
    local stopped
    for line in server.stdout:gmatch "[^\n]+" do
      local message = cjson.decode(line)
      if message.id == id then stopped = message end
    end
    assert.is_true(stopped.result.isError)
    assert.are.equal("stopped", stopped.result._meta["dev.demilune/error"].category)
    assert.is_true(#tree >= 1)
    local other = demilune.start { home = server.home }
    other:initialize()
    local before = os_calls.now_ms()
    while #other:call("list_sandboxes").sandboxes > 0 and os_calls.now_ms() - before < 3000 do os_calls.sleep_ms(20) end
    assert.are.same({}, other:call("list_sandboxes").sandboxes)
    other:stop()
  end)
end)

describe("stdin", function()
  local home
  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  local function put(name, text)
    local file = assert(io.open(home .. "/" .. name, "wb"))
    file:write(text)
    file:close()
  end

  it("may be a file, of any length", function()
    put("in", HELLO .. PING)
    local text = shell('timeout 10 "$B" serve <in', home)
    assert.is_truthy(text:find(PONG, 1, true))
    assert.truthy(text:find "exit 0\n$")
    put("many", HELLO .. ('{"jsonrpc":"2.0","id":7,"method":"tools/list"}\n'):rep(3000))
    text = shell('timeout 30 "$B" serve <many | grep -c \'"id":7,"result":\'', home)
    assert.are.equal("3000\nexit 0\n", text)
  end)

  for _, case in ipairs {
    { "/dev/null", "</dev/null" }, { "closed", "<&-" }, { "empty", "<empty" }, { "a folder", "<." },
    { "/dev/null with stdout closed", "</dev/null >&-" }, { "closed with everything else", "<&- >&- 2>&-" },
    { "closed, and stderr too", "<&- 2>&-" },
  } do
    it("that is " .. case[1] .. " ends the program at once", function()
      put("empty", "")
      local before = os_calls.now_ms()
      assert.are.equal("exit 0\n", shell('timeout 5 "$B" serve ' .. case[2], home))
      assert.is_true(os_calls.now_ms() - before < 1500)
    end)
  end

  it("may be the end of a socket that is stdout too", function()
    local ours, theirs = assert(os_calls.socketpair())
    local pid = assert(os_calls.spawn({ build.program, "serve" }, { "HOME=" .. home, "XDG_STATE_HOME=" .. home .. "/state",
      "ASAN_OPTIONS=detect_leaks=0" }, nil, theirs, theirs, -1))
    os_calls.close(theirs)
    assert(os_calls.write(ours, HELLO .. PING))
    local text, before = "", os_calls.now_ms()
    while not text:find(PONG, 1, true) and os_calls.now_ms() - before < 5000 do
      if next(os_calls.poll({ [ours] = "r" }, 100)) then text = text .. os_calls.read(ours, 65536) end
    end
    assert.truthy(text:find(PONG, 1, true))
    os_calls.close(ours)
    local ended
    before = os_calls.now_ms()
    repeat
      ended = os_calls.wait(pid)
      os_calls.sleep_ms(5)
    until ended or os_calls.now_ms() - before > 3000
    assert.are.same({ code = 0 }, ended)
  end)

  it("is given back as it was: not in non-blocking mode", function()
    local text = shell('mkfifo p; sleep 0.5 >p & { "$B" serve >/dev/null; grep flags /proc/self/fdinfo/0; } <p', home)
    local flags = tonumber(text:match "flags:%s*(%d+)", 8)
    assert.are.equal(0, flags & tonumber("4000", 8))
  end)
end)

describe("stdout", function()
  it("may be a file, and a full disk ends the program", function()
    local home = demilune.home()
    local text = shell(("printf '%%s' '%s' | timeout 5 \"$B\" serve >out; cat out"):format(HELLO .. PING), home)
    assert.truthy(text:find(PONG, 1, true))
    text = shell(("(printf '%%s' '%s'; sleep 10) | timeout 5 \"$B\" serve >/dev/full"):format(PING), home)
    assert.are.equal("exit 0\n", text)
    demilune.remove_home(home)
  end)
end)
