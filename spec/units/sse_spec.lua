--- Server-sent events, wherever the borders of chunks fall.

local sse = require "demilune.sse"

--- All events of a stream, fed in pieces of `size` bytes.
local function events_of(bytes, size)
  local parser, events = sse.parser(), {}
  for at = 1, #bytes, size do
    parser:feed(bytes:sub(at, at + size - 1))
    for event in function() return parser:next() end do events[#events + 1] = event end
  end
  return events
end

local function data_of(events)
  local data = {}
  for i, event in ipairs(events) do data[i] = event.data end
  return data
end

describe("sse", function()
  local STREAM = "\xEF\xBB\xBFevent: message\r\nid: 7\r\ndata: {\"a\":1}\r\n\r\n: a comment\r\rdata:one\rdata\rdata:  two\r\r"
    .. "retry: 5\nevent: other\ndata: x\n\ndata: not ended"

  it("gives the same events whatever the borders of the chunks are", function()
    local whole = events_of(STREAM, #STREAM)
    assert.are.same({ '{"a":1}', "one\n\n two", "x" }, data_of(whole))
    for size = 1, #STREAM do assert.are.same(whole, events_of(STREAM, size), "size " .. size) end
  end)

  it("tells type and id", function()
    local events = events_of(STREAM, 3)
    assert.are.same({ "message", "message", "other" }, { events[1].type, events[2].type, events[3].type })
    assert.are.same({ "7", "7", "7" }, { events[1].id, events[2].id, events[3].id })
  end)

  it("takes LF, CR and CRLF for line ends, also mixed, and one CRLF over two chunks for one", function()
    for _, line_end in ipairs { "\n", "\r", "\r\n" } do
      assert.are.same({ "a\nb" }, data_of(events_of("data: a" .. line_end .. "data: b" .. line_end .. line_end, 1)))
    end
    local parser = sse.parser()
    for _, piece in ipairs { "data: a\r", "\ndata: b\r", "\n", "\r", "\n" } do parser:feed(piece) end
    assert.are.equal("a\nb", parser:next().data)
    assert.is_nil(parser:next())
  end)

  it("gives no event for comments, priming events without data, and what has no end", function()
    assert.are.same({}, events_of(": keep-alive\n\nid: 1\ndata:\n\nevent: x\n\ndata: half\n", 4))
  end)

  it("takes one space after the colon away, and knows a field without a colon", function()
    assert.are.same({ " two\n:b" }, data_of(events_of("data:  two\ndata::b\n\n", 2)))
    assert.are.same({ "\nx" }, data_of(events_of("data\ndata:x\n\n", 2)))
  end)

  it("passes over fields that it does not know, and ids with NUL", function()
    local events = events_of("id: 1\nfoo: bar\ndatabase: no\nid: a\0b\ndata: y\n\n", 5)
    assert.are.same({ { type = "message", data = "y", id = "1" } }, events)
  end)

  it("takes a byte order mark at the very start alone", function()
    assert.are.same({ "a" }, data_of(events_of("\xEF\xBB\xBFdata:a\n\n", 1)))
    assert.are.same({ "b" }, data_of(events_of("data:b\n\n\xEF\xBB\xBFdata:c\n\n", 1)))
  end)
end)
