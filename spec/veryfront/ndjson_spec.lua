--- A command's stream of lines, wherever the borders of chunks fall.

local core = require "demilune.core"
local errors = require "demilune.errors"
local ndjson = require "demilune.veryfront.ndjson"

local function events_of(bytes, size)
  local reader, events = ndjson.reader(), {}
  for at = 1, #bytes, size do reader:feed(bytes:sub(at, at + size - 1)) end
  reader:finish()
  for event in function() return reader:next() end do events[#events + 1] = event end
  return events
end

local function fault_of(bytes)
  local ok, err = pcall(events_of, bytes, 7)
  assert.is_false(ok, bytes)
  assert.is_true(errors.is(err))
  return err.category
end

local SOON = core.task.now_ms() + 60000

--- A stream of these chunks; a function among them raises or returns what reading does.
local function stream(chunks)
  local at = 0
  return { read = function()
    at = at + 1
    local chunk = chunks[at]
    if type(chunk) == "function" then return chunk() end
    return chunk
  end }
end

describe("lines of a command", function()
  it("are the same events whatever the borders of the chunks are, the last one also without its end", function()
    local bytes = '{"type":"stdout","data":"h\u{e4}\u{1F600}"}\n\n \r\n{"type":"stderr","data":""}\r\n{"type":"stdout"}\n'
      .. '{"type":"heartbeat","data":{}}\n{"type":"exit","exitCode":3}'
    local whole = events_of(bytes, #bytes)
    assert.are.same({
      { type = "stdout", data = "h\u{e4}\u{1F600}" }, { type = "stderr", data = "" }, { type = "exit", code = 3 },
    }, whole)
    for size = 1, 40 do assert.are.same(whole, events_of(bytes, size)) end
  end)

  it("are refused where they are none of the protocol", function()
    for _, line in ipairs {
      "no", "[]", "7", "{}", '{"type":7}', '{"type":"stdout","data":7}', '{"type":"exit"}', '{"type":"exit","exitCode":"0"}',
      '{"type":"exit","exitCode":-1}', '{"type":"exit","exitCode":256}', '{"type":"exit","exitCode":1.5}',
      '{"type":"stdout","data":"\xFF"}',
    } do
      assert.are.equal("invalid_response", fault_of(line .. "\n"), line)
    end
    assert.are.equal("invalid_response", fault_of('{"type":"stdout","data":"' .. ("x"):rep(8 << 20)))
  end)

  it("are read until one is enough, or the stream is over", function()
    local seen = {}
    local function note(event) seen[#seen + 1] = event.type; return event.type == "exit" end
    assert.is_true(ndjson.each(stream { '{"type":"stdout","data":"a"}\n{"type":"ex', 'it","exitCode":0}\n', function()
      error "read after the exit"
    end }, SOON, note))
    assert.are.same({ "stdout", "exit" }, seen)
    assert.is_true(ndjson.each(stream { '{"type":"exit","exitCode":0}' }, SOON, note))
    assert.is_false(ndjson.each(stream { '{"type":"stdout","data":"a"}\n' }, SOON, note))
    local ok, err = pcall(ndjson.each, stream { function() return nil, errors.new "provider_timeout" end }, SOON, note)
    assert.are.same({ false, "provider_timeout" }, { ok, err.category })
    -- A stream that always has more does not put the deadline off.
    local endless = { read = function() return '{"type":"stdout","data":"a"}\n' end }
    ok, err = pcall(ndjson.each, endless, core.task.now_ms() + 30, function() end)
    assert.are.same({ false, "provider_timeout" }, { ok, err.category })
  end)
end)
