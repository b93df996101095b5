--- The collector and the shown form of an output, against naive models with all of the output in hand.

local collector = require "demilune.collector"
local core = require "demilune.core"
local outcome = require "demilune.outcome"

local text = core.text

--- Random bytes of one of several kinds: plain, lines, characters of all lengths, anything at all.
local function random_output(size)
  local kinds = {
    { "a" }, { "ab", "\n", "c\r\n" }, { "ä", "€", "😀", "x", "\n" },
    { "\xff", "\xc3", "\xe2\x82", "\x80", "ok", "😀", "\0" },
  }
  local kind, parts, bytes = kinds[math.random(#kinds)], {}, 0
  while bytes < size do
    local piece = kind[math.random(#kind)]
    parts[#parts + 1], bytes = piece, bytes + #piece
  end
  return table.concat(parts):sub(1, size)
end

local function feed_in_pieces(one, output)
  local at = 1
  while at <= #output do
    local length = math.random(1, math.random(2) == 1 and 3 or 4096)
    one:feed(output:sub(at, at + length - 1))
    at = at + length
  end
end

local function is_utf8(bytes) return utf8.len(bytes) ~= nil end

describe("collector", function()
  math.randomseed(20260101)

  it("keeps head and tail of any output in any pieces", function()
    for _ = 1, 300 do
      local window = { live = math.random(1, 300), tail = math.random(1, 300) }
      local output = random_output(math.random(0, 900))
      local one = collector.new(window)
      feed_in_pieces(one, output)
      local kept = one:finish()
      assert.are.equal(#output, kept.total)
      if #output <= window.live then
        assert.are.same({ output, nil }, { kept.head, kept.tail })
      else
        assert.are.same({ output:sub(1, window.live), output:sub(-window.tail) }, { kept.head, kept.tail })
      end
    end
  end)

  it("joins what a driver cut by itself", function()
    for _ = 1, 300 do
      local window = { live = math.random(1, 300), tail = math.random(1, 300) }
      local output = random_output(math.random(1, 900))
      local one = collector.new(window)
      feed_in_pieces(one, output:sub(1, window.live))
      local rest = output:sub(window.live + 1)
      local kept = one:finish { total = #output, tail = rest:sub(-window.tail), path = "/p" }
      assert.are.equal(#output, kept.total)
      assert.are.equal(output:sub(1, window.live), kept.head)
      assert.are.equal(#output > window.live and output:sub(-window.tail) or nil, kept.tail)
    end
  end)

  it("holds memory and time for one byte at a time", function()
    local one = collector.new { live = 100, tail = 16384 }
    local from = core.task.now_ms()
    for _ = 1, 400000 do one:feed "x" end
    assert.is_true(core.task.now_ms() - from < 5000)
    local kept = one:finish()
    assert.are.same({ 100, 16384, 400000 }, { #kept.head, #kept.tail, kept.total })
    local pieces = 0
    for _ in pairs(one.tail) do pieces = pieces + 1 end
    assert.is_true(pieces <= 16384)
  end)

  it("tells the newest whole line of what it is fed, across pieces", function()
    local lines = {}
    local one = collector.new({ live = 10, tail = 10 }, function(line) lines[#lines + 1] = line end)
    for _, piece in ipairs { "on", "e", "\ntw", "o\nthree\nfo", "ur", "", "\n", "x" } do one:feed(piece) end
    assert.are.same({ "one", "three", "four" }, lines)
    one:feed(("y"):rep(100000))
    one:feed "\n"
    assert.is_true(#lines[4] < 50000)
  end)
end)

describe("outcome.show", function()
  math.randomseed(20260102)

  local function shown_of(output, limit, path)
    local one = collector.new(outcome.window(limit))
    feed_in_pieces(one, output)
    local kept = one:finish()
    kept.path = path
    return outcome.show(kept, limit)
  end

  it("shows all of what fits, to the last byte", function()
    for _, limit in ipairs { 8, 1024, 16384 } do
      for size = limit - 3, limit do
        local output = ("a"):rep(size)
        assert.are.same({ output, false }, { shown_of(output, limit) })
      end
    end
  end)

  it("shows a quarter from the start and three from the end of what does not, and counts the rest", function()
    local shown, truncated = shown_of(("a"):rep(16385), 16384, "/tmp/p")
    assert.is_true(truncated)
    assert.are.equal(("a"):rep(4096) .. "\n[1 bytes left out; all of it is in /tmp/p]\n" .. ("a"):rep(12288), shown)
    shown = shown_of(("a"):rep(1000000), 16384)
    assert.are.equal(("a"):rep(4096) .. "\n[983616 bytes left out]\n" .. ("a"):rep(12288), shown)
    shown = shown_of(("a\n"):rep(10000), 8192)
    assert.are.equal(("a\n"):rep(1024) .. "[11808 bytes left out]\n" .. ("a\n"):rep(3072), shown)
  end)

  it("cuts at the borders of characters, and counts what that leaves out too", function()
    for _, character in ipairs { "ä", "€", "😀" } do
      for shift = 0, 4 do
        local output = ("x"):rep(shift) .. character:rep(1000)
        local shown, truncated = shown_of(output, 256)
        assert.is_true(truncated)
        assert.is_nil(shown:find("\u{FFFD}", 1, true))
        local left_out = math.tointeger(shown:match "%[(%d+) bytes left out%]")
        local kept = shown:gsub("\n%[%d+ bytes left out%]\n", "")
        assert.are.equal(#output - #kept, left_out)
        assert.is_true(#kept <= 256 and #kept > 256 - 8)
      end
    end
  end)

  it("is valid UTF-8 within its limit whatever the bytes", function()
    for _ = 1, 300 do
      local limit = math.random(16, 600)
      local output = random_output(math.random(0, 3 * limit))
      local shown, truncated = shown_of(output, limit)
      assert.is_true(is_utf8(shown))
      local kept = shown:gsub("\n?%[%d+ bytes left out%]\n", "")
      assert.is_true(#kept <= limit)
      local mended = text.mend(output)
      assert.are.equal(#output > limit or #mended > limit, truncated)
      if not truncated then assert.are.equal(mended, shown) end
    end
  end)

  it("mends bytes that come apart in pieces only after joining them", function()
    local one = collector.new(outcome.window(1024))
    for byte in ("ä€😀"):rep(20):gmatch "." do one:feed(byte) end
    assert.are.equal(("ä€😀"):rep(20), (outcome.show(one:finish(), 1024)))
    one = collector.new(outcome.window(1024))
    one:feed "a\xe2"
    one:feed "b"
    assert.are.equal("a\u{FFFD}b", (outcome.show(one:finish(), 1024)))
  end)
end)

describe("outcome.result", function()
  local function note_of(run, info)
    local call = { app = { config = require("demilune.config").defaults() } }
    local stream = { head = "", total = 0 }
    run.stdout, run.stderr = run.stdout or stream, run.stderr or stream
    run.timed_out, run.duration_ms, run.timeout_s = run.timed_out or false, 1, 9
    local sandbox = { public_id = "s1", info = info or {}, provider = { network = function() return "none" end } }
    return outcome.result(call, sandbox, run).note
  end

  local function said(words) return { head = words, total = #words } end

  it("notes a missing network when a command failed with the usual words in stderr", function()
    for _, words in ipairs {
      "curl: (6) Could not resolve host: x", "fatal: Temporary failure in name resolution", "Name or service not known",
      "connect: Network is unreachable", "getaddrinfo EAI_AGAIN registry", "getaddrinfo ENOTFOUND x",
    } do
      assert.truthy(note_of({ exit_code = 1, stderr = said(words) }):find "no network")
      assert.is_nil(note_of { exit_code = 0, stderr = said(words) })
      assert.is_nil(note_of { exit_code = 1, stdout = said(words) })
      assert.is_nil(note_of({ exit_code = 1, stderr = said(words) }, { network = "provider" }))
    end
    assert.is_nil(note_of { exit_code = 1, stderr = said "no such file" })
    local long = { head = ("x"):rep(100), tail = "x Could not resolve host: y", total = 100000 }
    assert.truthy(note_of { exit_code = 1, stderr = long })
  end)

  it("notes the way out after a timeout", function()
    assert.truthy(note_of({ timed_out = true }):find "start_background_task")
  end)
end)
