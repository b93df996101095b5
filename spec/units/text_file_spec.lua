--- Pages of text files, against a naive model with the whole file in hand.

local core = require "demilune.core"
local errors = require "demilune.errors"
local text_file = require "demilune.text_file"

local function reader_of(bytes, most)
  local at = 1
  return {
    read = function()
      if at > #bytes then return nil end
      local chunk = bytes:sub(at, at + math.random(1, most or 20) - 1)
      at = at + #chunk
      return chunk
    end,
  }
end

local function page(bytes, args, most)
  local full = { start_line = 1, max_lines = 2000, max_bytes = 32768, encoding = "utf-8" }
  for key, value in pairs(args or {}) do full[key] = value end
  return text_file.page(reader_of(bytes, most), full)
end

--- Lines with their ends; the last may have none.
local function lines_of(bytes)
  local lines = {}
  for line in bytes:gmatch "[^\n]*\n?" do
    if line ~= "" then lines[#lines + 1] = line end
  end
  return lines
end

--- What a page should be, for lines that all fit into max_bytes.
local function model(bytes, args)
  local lines, kept, size = lines_of(bytes), {}, 0
  local at = args.start_line
  while lines[at] and #kept < args.max_lines and (#kept == 0 or size + #lines[at] <= args.max_bytes) do
    kept[#kept + 1], size = lines[at], size + #lines[at]
    at = at + 1
  end
  return {
    content = table.concat(kept), start_line = args.start_line, end_line = args.start_line + #kept - 1,
    next_line = lines[at] and at or nil, truncated = false,
  }
end

describe("text_file", function()
  math.randomseed(20260103)

  it("gives the pages of a naive reader", function()
    local words = { "a", "bc", "ä", "€", "😀", "\r", " ", "\t" }
    for _ = 1, 400 do
      local parts = {}
      for _ = 1, math.random(0, 30) do
        for _ = 1, math.random(0, 6) do parts[#parts + 1] = words[math.random(#words)] end
        if math.random(8) > 1 then parts[#parts + 1] = math.random(4) == 1 and "\r\n" or "\n" end
      end
      local bytes = table.concat(parts)
      local args = { start_line = math.random(1, 12), max_lines = math.random(1, 8), max_bytes = math.random(90, 200) }
      local longest = 0
      for _, line in ipairs(lines_of(bytes)) do longest = math.max(longest, #line) end
      if longest <= args.max_bytes then assert.are.same(model(bytes, args), page(bytes, args)) end
    end
  end)

  it("leads through a file without a gap or a repetition", function()
    local bytes = {}
    for i = 1, 500 do bytes[i] = ("line %d %s\n"):format(i, ("ä"):rep(i % 40)) end
    bytes = table.concat(bytes) .. "no end"
    local parts, at, count = {}, 1, 0
    while at do
      local got = page(bytes, { start_line = at, max_bytes = 256, max_lines = 7 }, 4096)
      parts[#parts + 1], at, count = got.content, got.next_line, count + 1
    end
    assert.are.equal(bytes, table.concat(parts))
    assert.is_true(count >= 72)
  end)

  it("knows the end: of an empty file, after the last line, beyond it", function()
    assert.are.same({ content = "", start_line = 1, end_line = 0, truncated = false }, page "")
    assert.are.same({ content = "a\n", start_line = 1, end_line = 1, truncated = false }, page "a\n")
    assert.are.same({ content = "\n", start_line = 2, end_line = 2, truncated = false }, page("a\n\n", { start_line = 2 }))
    assert.are.same({ content = "", start_line = 9, end_line = 8, truncated = false }, page("a\nb", { start_line = 9 }))
    assert.are.equal(2, page("a\nb", { max_lines = 1 }).next_line)
    assert.is_nil(page("a\n", { max_lines = 1 }).next_line)
    assert.are.equal("", page("a", { start_line = math.maxinteger }).content)
  end)

  it("cuts a line that is longer than the limit, at the border of a character", function()
    for _, character in ipairs { "a", "ä", "€", "😀" } do
      for most = 4, 9 do
        local got = page(character:rep(100) .. "\nnext\n", { max_bytes = most })
        assert.is_true(got.truncated)
        assert.are.equal(character:rep(most // #character), got.content)
        assert.are.same({ 1, 2 }, { got.end_line, got.next_line })
      end
    end
    local got = page("abc\n" .. ("x"):rep(50), { max_bytes = 10 })
    assert.are.same({ "abc\n", 2, false }, { got.content, got.next_line, got.truncated })
    got = page(("x"):rep(50), { max_bytes = 10 })
    assert.are.same({ ("x"):rep(10), true, nil }, { got.content, got.truncated, got.next_line })
    got = page("0123456789", { max_bytes = 10 })
    assert.are.same({ "0123456789", false }, { got.content, got.truncated })
  end)

  it("holds the limit of bytes for latin-1 too", function()
    local got = page(("\xe4"):rep(50) .. "\n", { max_bytes = 10, encoding = "latin-1" })
    assert.are.same({ ("ä"):rep(10), true }, { got.content, got.truncated })
  end)

  it("keeps line ends as they are, a byte order mark too", function()
    assert.are.equal("\u{FEFF}a\r\nb\rc\n", page("\u{FEFF}a\r\nb\rc\n").content)
  end)

  it("refuses what is not text in the encoding, on the page that has it", function()
    for _, bytes in ipairs { "a\0b", "\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80" } do
      local ok, err = pcall(page, bytes)
      assert.is_false(ok)
      assert.is_true(errors.is(err))
      assert.are.same({ "not_text", "path" }, { err.category, err.field })
    end
    assert.are.equal("fine\n", page("fine\n\xff\n", { max_lines = 1 }).content)
    assert.are.equal("äÿ", page("\xe4\xff", { encoding = "latin-1" }).content)
    assert.is_false((pcall(page, "a\0", { encoding = "latin-1" })))
  end)

  it("reads no further than a page needs", function()
    local reads = 0
    local reader = { read = function()
      reads = reads + 1
      return ("x"):rep(99) .. "\n"
    end }
    text_file.page(reader, { start_line = 5, max_lines = 3, max_bytes = 32768, encoding = "utf-8" })
    assert.is_true(reads <= 9)
  end)

  it("holds little of a line that never ends", function()
    local left = 2000
    local reader = { read = function()
      left = left - 1
      return left > 0 and ("x"):rep(65536) or nil
    end }
    collectgarbage()
    local before = collectgarbage "count"
    local got = text_file.page(reader, { start_line = 1, max_lines = 3, max_bytes = 100, encoding = "utf-8" })
    assert.are.same({ 100, true }, { #got.content, got.truncated })
    collectgarbage()
    assert.is_true(collectgarbage "count" - before < 2000)
    assert.is_not_nil(core)
  end)
end)
