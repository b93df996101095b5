--- The channel to an agent that lies: a bad frame ends the channel, and nothing else.

local core = require "demilune.core"
local os_calls = require "spec_os"
local wire = require "spec.agent.wire"

local agent, sys, task = core.agent, core.sys, core.task
local frame = wire.frame

local SOON_MS = 2000

--- Writes all, while the channel takes it.
local function say_all(fd, bytes)
  local from, deadline = 1, task.now_ms() + SOON_MS
  while from <= #bytes and task.now_ms() < deadline do
    local n, _, errno = os_calls.write(fd, bytes, from)
    if not n and errno ~= 11 then return end
    from = from + (n or 0)
    if from <= #bytes then task.sleep(1) end
  end
end

--- A case that plays the agent itself: body(channel, say), say(bytes) writes what an agent would.
local function lying(body)
  return function()
    local ok, err = pcall(task.run, function()
      local ours, theirs = sys.socketpair()
      os_calls.set_nonblocking(theirs)
      local channel = agent.attach(ours)
      local fine, why = pcall(body, channel, function(bytes) say_all(theirs, bytes) end)
      channel:close()
      sys.close(theirs)
      if not fine then error(why, 0) end
    end)
    if not ok then error(err, 0) end
  end
end

--- The results of `fn` in a task of its own, waited for later.
local function ask(fn, ...) return task.spawn(fn, ...) end

local function code_of(handle)
  local fine, result, err = handle:wait(SOON_MS)
  assert.is_true(fine, tostring(result))
  assert.is_nil(result)
  return err.code
end

local STARTED = { { "PID", 77 } }

describe("a channel", function()
  it("is ready once the agent has said its version", lying(function(channel, say)
    local waiting = ask(channel.ready, channel, SOON_MS)
    task.sleep(5)
    say(wire.HELLO)
    assert.are.same({ true, true }, { waiting:wait(SOON_MS) })
    assert.is_true(channel:ready(0))
    assert.are.same({ nil, "timeout" }, { channel:closed(10) })
  end))

  it("says when an agent keeps silent", lying(function(channel)
    local ok, err = channel:ready(20)
    assert.is_nil(ok)
    assert.are.equal("timeout", err.code)
  end))

  it("gives every waiter an error when it is closed", lying(function(channel, say)
    say(wire.HELLO)
    assert.is_true(channel:ready(SOON_MS))
    local waits = { ask(channel.stat, channel, "/"), ask(channel.list, channel, "/"),
      ask(channel.open_read, channel, "/x"), ask(channel.open_write, channel, "/x"),
      ask(channel.start, channel, { cmd = "x" }) }
    local ended = ask(channel.closed, channel)
    task.sleep(5)
    channel:close()
    for _, wait in ipairs(waits) do assert.are.equal("closed", code_of(wait)) end
    assert.are.same({ true, true }, { ended:wait(SOON_MS) })
    channel:close()
    assert.are.equal("closed", select(2, channel:ready(0)).code)
  end))

  it("refuses a descriptor that is none", function()
    assert.has_error(function() agent.attach(-1) end)
    assert.has_error(function() agent.attach(99999) end)
  end)

  it("lets only a task wait", lying(function(channel)
    local thread = coroutine.create(function() return channel:stat("/") end)
    assert.is_false((coroutine.resume(thread)))
  end))
end)

-- Each: what the agent says, what is asked of it first.
local LIES = {
  { "another version", frame("HELLO", 0, { { "VERSION", 1 } }), silent = true },
  { "a version twice", wire.HELLO },
  { "anything before its version", frame("DONE", 1), silent = true },
  { "a length over the limit", "\255\255\255\255" .. ("\0"):rep(8) },
  { "a length just over the limit", ("<I4BBI2I4"):pack(262145, 40, 0, 0, 1) },
  { "reserved bits", ("<I4BBI2I4"):pack(0, 40, 0, 1, 1) },
  { "a type that it does not have", frame(99, 1) },
  { "a request of ours", frame("STAT", 1, { { "PATH", "/" } }) },
  { "a stream that was never opened", frame("DONE", 2) },
  { "stream zero", frame("DONE", 0) },
  { "an answer of another kind", frame("STARTED", 1, STARTED) },
  { "fields that end too soon", frame("DONE", 1, "\22\255\0\0\0x") },
  { "a field that is out of place", frame("DONE", 1, { { "PATH", "/" } }) },
  { "a number of seven bytes", frame("DONE", 1, ("<Bs4"):pack(22, "1234567")) },
  { "an entry too many", frame("ENTRY", 1, "") .. frame("ENTRY", 1, "") },
  { "credit beyond the window", frame("CREDIT", 1, "\1\0\0\0") },
  { "credit of three bytes", frame("CREDIT", 1, "\0\0\0") },
  { "data for a question", frame("DATA", 1, "x") },
  { "an entry that is none", frame("ENTRY", 1, "x") .. frame("DONE", 1) },
  { "no entry", frame("DONE", 1) },
  { "a type of entry that is none", frame("ENTRY", 1, { { "TYPE", 4 } }) .. frame("DONE", 1) },
}

describe("an agent loses its channel when it says", function()
  for _, lie in ipairs(LIES) do
    it(lie[1], lying(function(channel, say)
      if not lie.silent then say(wire.HELLO) end
      local question = ask(channel.stat, channel, "/")
      task.sleep(1)
      say(lie[2])
      assert.is_true(channel:closed(SOON_MS))
      assert.are.equal("closed", code_of(question))
    end))
  end

  local PROCESS_LIES = {
    { "that it has started twice", frame("STARTED", 1, STARTED) },
    { "an exit that is no number", frame("EXIT", 1, { { "CODE", "x" } }) },
    { "output of a third kind", frame("DATA", 1, "x", 3) },
    { "more than the window lets it", frame("DATA", 1, ("x"):rep(65536), 1):rep(5) },
    { "more frames than the window lets it", frame("DATA", 1, "", 1):rep(4101) },
    { "more data than fits a frame of it", frame("DATA", 1, ("x"):rep(65537), 1) },
    { "a line that is too long", frame("LINE", 1, ("x"):rep(201)) },
    { "a line of nothing", frame("LINE", 1) },
    { "a tail longer than was asked for", frame("TAIL", 1, ("x"):rep(11), 1) },
    { "a tail after its end", frame("OUTPUT", 1, {}, 1) .. frame("TAIL", 1, "x", 1) },
    { "an output twice", frame("OUTPUT", 1, {}, 1):rep(2) },
    { "a path with a NUL", frame("OUTPUT", 1, ("<Bs4"):pack(16, "a\0b\0"), 1) },
    { "a path without its end", frame("OUTPUT", 1, ("<Bs4"):pack(16, "ab"), 1) },
  }
  for _, lie in ipairs(PROCESS_LIES) do
    it(lie[1], lying(function(channel, say)
      say(wire.HELLO)
      local spool = { stdout_live = 10, stdout_tail = 10, stderr_live = 0, stderr_tail = 0 }
      local starting = ask(channel.start, channel, { cmd = "x", spool = spool })
      task.sleep(1)
      say(frame("STARTED", 1, STARTED))
      local _, proc = starting:wait(SOON_MS)
      assert.are.equal(77, proc.pid)
      say(lie[2])
      assert.is_true(channel:closed(SOON_MS))
      local event, err
      repeat event, err = proc:next(SOON_MS) until not event
      assert.are.equal("closed", err.code)
    end))
  end
end)

describe("an agent keeps its channel when", function()
  it("it speaks of a stream that has ended meanwhile", lying(function(channel, say)
    say(wire.HELLO)
    local question = ask(channel.mkdir, channel, "/x")
    task.sleep(1)
    say(frame("DONE", 1))
    assert.are.same({ true, true }, { question:wait(SOON_MS) })
    say(frame("DONE", 1) .. frame("DATA", 1, "late", 1) .. frame("CREDIT", 1, "\1\0\0\0"))
    assert.are.same({ nil, "timeout" }, { channel:closed(20) })
  end))

  it("its answer is too large in all, which only fails the question", lying(function(channel, say)
    say(wire.HELLO)
    local question = ask(channel.list, channel, "/", 1, 10000)
    task.sleep(1)
    local entry = frame("ENTRY", 1, { { "NAME", ("n"):rep(60000) } })
    for _ = 1, 300 do
      say(entry)
      task.sleep(0)
      if question:status() ~= "running" then break end
    end
    assert.are.equal("too_large", code_of(question))
    assert.are.same({ nil, "timeout" }, { channel:closed(20) })
  end))

  it("its frames come in pieces", lying(function(channel, say)
    local bytes = wire.HELLO .. frame("ENTRY", 1, { { "NAME", "n" }, { "TYPE", 1 } }) .. frame("DONE", 1)
    local question = ask(channel.stat, channel, "/n")
    for i = 1, #bytes do
      say(bytes:sub(i, i))
      if i % 16 == 0 then task.sleep(0) end
    end
    local _, entry = question:wait(SOON_MS)
    assert.are.same({ name = "n", type = "directory" }, entry)
  end))
end)

describe("frames from a random agent", function()
  local function conversation()
    return { wire.HELLO, frame("STARTED", 1, STARTED), frame("DATA", 1, "some output\n", 1), frame("DATA", 1, "", 2),
      frame("LINE", 1, "a line"), frame("TAIL", 1, "tail", 1), frame("OUTPUT", 1, { { "TOTAL", 20 } }, 1),
      frame("OUTPUT", 1, { { "TOTAL", 2 }, { "PATH", "/tmp/x" } }, 2),
      frame("ENTRY", 2, { { "NAME", "n" }, { "PATH", "/n" }, { "TYPE", 0 }, { "SIZE", 1 }, { "MODE", 420 } }),
      frame("DONE", 2), frame("ENTRY", 3, { { "PID", 5 }, { "CMD", "x" }, { "ARG", "a" }, { "ARG", "b" } }),
      frame("DONE", 3, { { "TOTAL", 4 } }), frame("OPENED", 4, { { "SIZE", 9 }, { "MODE", 420 } }),
      frame("DATA", 4, "contents"), frame("DONE", 4), frame("OPENED", 5), frame("CREDIT", 5, "\0\0\0\0"),
      frame("ERROR", 5, { { "CODE", 9 }, { "SIZE", 3 } }), frame("EXIT", 1, { { "CODE", 0 }, { "TIMED_OUT", 0 } }) }
  end

  local function use(channel)
    return {
      ask(function()
        local proc = channel:start { cmd = "x", stdin = true, progress = true,
          spool = { stdout_live = 9, stdout_tail = 9, stderr_live = 9, stderr_tail = 9 } }
        if proc then
          proc:write("input")
          repeat until not proc:next(SOON_MS)
        end
      end),
      ask(channel.stat, channel, "/n"),
      ask(channel.processes, channel),
      ask(function()
        local reader = channel:open_read("/n")
        if reader then repeat until not reader:read() end
      end),
      ask(function()
        local writer = channel:open_write("/n")
        if writer then writer:write(("x"):rep(400000)) end
        if writer then writer:commit() end
      end),
    }
  end

  it("end nothing but their own channel, and every wait ends with it", function()
    local random = wire.random(20261130)
    local rounds, survived = 400, 0
    for _ = 1, rounds do
      lying(function(channel, say)
        local tasks = use(channel)
        task.sleep(0)
        local frames = conversation()
        for _ = 1, random:below(3) do
          local at = random:below(#frames)
          frames[at] = random:below(6) == 1 and random:bytes(random:below(60)) or random:mutate(frames[at])
          if random:below(4) == 1 then table.insert(frames, random:below(#frames), frames[at]) end
        end
        for _, bytes in ipairs(frames) do
          say(bytes)
          if random:below(3) == 1 then task.sleep(0) end
        end
        task.sleep(1)
        if not channel:closed(0) then survived = survived + 1 end
        channel:close()
        for _, handle in ipairs(tasks) do assert.is_not_nil((handle:wait(SOON_MS))) end
      end)()
    end
    -- both outcomes are really tried
    assert.is_true(survived > rounds // 20 and survived < rounds, survived .. " survived")
  end)
end)
