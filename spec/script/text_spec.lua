--- core.text against an independent reading of UTF-8: Lua's own decoder, tried on every piece.

local core = require "demilune.core"
local text = core.text

local CONTINUATIONS = { "\x80", "\x8F", "\x90", "\x9F", "\xA0", "\xBF" }

--- Whether more bytes could make the piece one character.
local function can_begin(piece, missing)
  if utf8.len(piece) == 1 then return true end
  if missing == 0 then return false end
  for _, byte in ipairs(CONTINUATIONS) do
    if can_begin(piece .. byte, missing - 1) then return true end
  end
  return false
end

--- Every maximal part that could begin a character, or else one byte, becomes U+FFFD (Unicode 15 §3.9).
local function mend(bytes)
  local out, at = {}, 1
  while at <= #bytes do
    local size
    for n = 1, 4 do
      local piece = bytes:sub(at, at + n - 1)
      if #piece == n and utf8.len(piece) == 1 then size = n end
      if size then break end
    end
    if size then
      out[#out + 1] = bytes:sub(at, at + size - 1)
    else
      size = 1
      for n = 3, 2, -1 do
        local piece = bytes:sub(at, at + n - 1)
        if #piece == n and can_begin(piece, 4 - n) then
          size = n
          break
        end
      end
      out[#out + 1] = "\u{FFFD}"
    end
    at = at + size
  end
  return table.concat(out)
end

--- Bytes that are nearly UTF-8 more often than chance would have it.
local function random_bytes(length)
  local pieces = {}
  for i = 1, length do
    local kind = math.random(6)
    if kind == 1 then pieces[i] = string.char(math.random(0, 127))
    elseif kind == 2 then pieces[i] = string.char(math.random(0x80, 0xBF))
    elseif kind == 3 then pieces[i] = string.char(math.random(0xC0, 0xFF))
    elseif kind == 4 then pieces[i] = utf8.char(math.random(0x80, 0xD7FF))
    elseif kind == 5 then pieces[i] = utf8.char(math.random(0x10000, 0x10FFFF))
    else pieces[i] = utf8.char(math.random(0x800, 0xFFFD), math.random(0, 0x7F)):sub(1, math.random(4)) end
  end
  return table.concat(pieces)
end

describe("text.mend", function()
  local CASES = {
    { "", "" }, { "a", "a" }, { "\xFF", "\u{FFFD}" }, { "\x80\x80", "\u{FFFD}\u{FFFD}" }, { "\xC0\x80", "\u{FFFD}\u{FFFD}" },
    { "\xE2\x82", "\u{FFFD}" }, { "\xE2\x82A", "\u{FFFD}A" }, { "\xF0\x9F\x98", "\u{FFFD}" }, { "\xF0\x9F\x98\x80", "😀" },
    { "\xED\xA0\x80", "\u{FFFD}\u{FFFD}\u{FFFD}" }, { "\xF4\x90\x80\x80", ("\u{FFFD}"):rep(4) }, { "\xE0\x80", "\u{FFFD}\u{FFFD}" },
    { "\xF8\x88\x80\x80\x80", ("\u{FFFD}"):rep(5) }, { "12345678\xFF12345678", "12345678\u{FFFD}12345678" }, { "\0\xFF\0",
      "\0\u{FFFD}\0" },
  }
  for _, case in ipairs(CASES) do
    it(("makes %q of %q"):format(case[2], case[1]), function()
      assert.are.equal(case[2], text.mend(case[1]))
      assert.are.equal(case[2], mend(case[1]))
    end)
  end

  it("agrees with an independent implementation on random bytes", function()
    math.randomseed(41)
    local differing = 0
    for _ = 1, 2000 do
      local bytes = random_bytes(math.random(0, 40))
      local mended = text.mend(bytes)
      if mended ~= mend(bytes) then differing = differing + 1 end
      assert.are.equal(utf8.len(bytes) ~= nil, text.is_utf8(bytes))
      assert.is_true(text.is_utf8(mended))
    end
    assert.are.equal(0, differing)
  end)

  it("grows to three times the length at most", function()
    assert.are.equal(("\u{FFFD}"):rep(10000), text.mend(("\xFF"):rep(10000)))
  end)
end)

describe("text.head and text.tail", function()
  it("cut no character in two, lose no byte that fits, and stay within the limit", function()
    math.randomseed(42)
    for _ = 1, 500 do
      local pieces = {}
      for i = 1, math.random(0, 12) do
        pieces[i] = utf8.char(math.random(4) == 1 and math.random(0x10000, 0x10FFFF) or math.random(0, 0xD7FF))
      end
      local whole = table.concat(pieces)
      for max = 0, #whole + 1 do
        local head, tail = text.head(whole, max), text.tail(whole, max)
        assert.is_true(#head <= max and #tail <= max)
        assert.is_true(#head > math.min(max, #whole) - 4 and #tail > math.min(max, #whole) - 4)
        assert.are.equal(head, whole:sub(1, #head))
        assert.are.equal(tail, whole:sub(#whole - #tail + 1))
        assert.truthy(utf8.len(head) and utf8.len(tail))
      end
    end
  end)

  it("cut bytes that are no text where they are told", function()
    local bytes = ("\x80"):rep(20)
    assert.are.equal(5, #text.head(bytes, 5))
    assert.are.equal(5, #text.tail(bytes, 5))
  end)
end)

describe("text.latin1", function()
  it("makes UTF-8 of all 256 bytes", function()
    for byte = 0, 255 do assert.are.equal(utf8.char(byte), text.latin1(string.char(byte))) end
  end)
end)
