--- What is cut is masked before: half a secret never shows, wherever the border falls.

local background_seen = require "demilune.background_seen"
local calls = require "demilune.call"
local collector = require "demilune.collector"
local core = require "demilune.core"
local errors = require "demilune.errors"
local os_calls = require "spec_os"
local outcome = require "demilune.outcome"
local progress = require "demilune.progress"
local text_file = require "demilune.text_file"

--- No five characters of it stand in anything else here.
local SECRET = "Sq7/Zw9+Kx3vJp5mBt8nRc2dLy6hGf4s"
local PIECE_BYTES = 5

local function has_piece(text)
  for at = 1, #SECRET - PIECE_BYTES + 1 do
    if text:find(SECRET:sub(at, at + PIECE_BYTES - 1), 1, true) then return true end
  end
  return false
end

--- A file with a secret; its path.
local function put(name, secret)
  local path = (os.getenv("DML_SPEC_TMP") or "/tmp") .. "/" .. name
  local file = assert(io.open(path, "wb"))
  file:write(secret)
  file:close()
  assert(os_calls.chmod(path, tonumber("600", 8)))
  return path
end

setup(function()
  local path = put("cuts-secret", SECRET)
  assert(core.vault.define("cuts", "file:" .. path))
  assert(core.vault.load "cuts")
  os.remove(path)
end)

describe("a long output", function()
  --- What is shown of `output` when it comes in pieces of `size` bytes.
  local function shown_of(output, limit, size)
    local kept = collector.new(outcome.window(limit))
    for at = 1, #output, size do kept:feed(output:sub(at, at + size - 1)) end
    return outcome.show(kept:finish(), limit)
  end

  it("shows no half of a secret at either border", function()
    local limit = 512
    for shift = 0, 1200, 7 do
      local output = ("."):rep(shift) .. SECRET .. ("."):rep(6000 - shift) .. SECRET .. ("."):rep(shift // 2)
      local shown = shown_of(output, limit, 100 + shift)
      assert.is_false(has_piece(shown), tostring(shift))
      assert.is_true(#shown <= limit + 100)
    end
  end)

  it("shows no half of the longest secret that there may be", function()
    local long = ("Yq8_Vt3-"):rep(1023) .. "Xc5.Zm1~"
    assert(core.vault.define("long", "file:" .. put("cuts-long", long)))
    assert(core.vault.load "long")
    for _, form in ipairs { long, (long:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) } do
      for limit = 1024, 16384, 15360 do
        for _, after in ipairs { 10, limit // 2, limit - limit // 4 - 200 } do
          local output = ("."):rep(limit // 4 - 200) .. form .. ("."):rep(limit * 3) .. form .. ("."):rep(after)
          local shown = shown_of(output, limit, 4000)
          assert.is_nil(shown:find(form:sub(1, 40), 1, true))
          assert.is_nil(shown:find(form:sub(-40), 1, true))
          assert.is_nil(shown:find(form:sub(4001, 4040), 1, true))
        end
      end
    end
  end)

  it("does not tell whether its last bytes begin a secret: whoever writes them could find one out", function()
    for length = 1, #SECRET - 1 do
      local like, other = SECRET:sub(1, length), ("!"):rep(length)
      local function show(bytes) return #outcome.show({ head = "a " .. bytes, total = 2 + length }, 100) end
      assert.are.equal(show(other), show(like), length)
    end
  end)

  it("is whole but for the mask when it is short", function()
    assert.are.same({ "a [redacted] b", false }, { outcome.show({ head = "a " .. SECRET .. " b", total = 36 }, 100) })
  end)
end)

describe("a look at a background task", function()
  --- What the script in the sandbox sends from an offset on.
  local function look(all, size, offset, status)
    local from = math.max(offset - background_seen.AROUND_BYTES, 0)
    local bytes = all:sub(from + 1, math.min(size, from + background_seen.SLICE_BYTES + 2 * background_seen.AROUND_BYTES))
    return background_seen.show({ out = bytes, out_size = size, status = status }, "out", offset, 1024, "/d")
  end

  it("shows the parts of a text as they are in the whole", function()
    for shift = 16340, 16390, 5 do
      local all = ("."):rep(shift) .. SECRET .. ("."):rep(16384 - 40) .. SECRET .. ("."):rep(100)
      local parts, offset = {}, 0
      repeat
        local part, next_offset = look(all, #all, offset, "succeeded")
        assert.is_true(next_offset > offset)
        parts[#parts + 1], offset = part, next_offset
      until offset == #all
      assert.are.equal(core.vault.redact(all), table.concat(parts))
    end
  end)

  it("does not tell, while the task runs, whether its last bytes begin a secret", function()
    for length = 1, #SECRET - 1 do
      for _, bytes in ipairs { SECRET:sub(1, length), ("!"):rep(length) } do
        local all = ("."):rep(50) .. bytes
        assert.are.same({ all, #all }, { (look(all, #all, 0, "running")), (select(2, look(all, #all, 0, "running"))) })
      end
    end
    local all = ("."):rep(50) .. SECRET .. "!"
    assert.are.equal(("."):rep(50) .. "[redacted]!", (look(all, #all, 0, "running")))
  end)

  it("shows no half of a secret in head and tail", function()
    for shift = 0, 600, 7 do
      local half = ("."):rep(8192 - shift)
      local bytes = half .. SECRET:sub(1, 20) .. SECRET:sub(12) .. half
      local shown = background_seen.show({ out = bytes, out_size = 100000, status = "running" }, "out", nil, 1024, "/d")
      assert.is_false(has_piece(shown))
    end
  end)
end)

describe("a page of a file", function()
  local function page(content, max_bytes)
    local given = false
    local reader = {
      read = function()
        if given then return nil end
        given = true
        return content
      end,
    }
    return text_file.page(reader, { start_line = 1, max_lines = 10, max_bytes = max_bytes, encoding = "utf-8" })
  end

  it("shows no half of a secret where a long line is cut", function()
    for length = 90, 150 do
      local got = page(("."):rep(100) .. SECRET .. ("."):rep(200), length)
      assert.is_true(got.truncated)
      assert.is_false(has_piece(got.content), tostring(length))
      assert.is_true(#got.content <= length)
    end
  end)

  it("does not tell whether what is cut begins a secret", function()
    for length = 1, #SECRET - 1 do
      local function cut(bytes) return #page(("."):rep(100) .. bytes .. ("."):rep(200), 100 + length).content end
      assert.are.equal(cut(("!"):rep(#SECRET)), cut(SECRET:sub(1, length) .. ("!"):rep(#SECRET - length)), length)
    end
  end)
end)

describe("progress", function()
  it("shows no half of a secret of a line that is cut", function()
    core.task.run(function()
      for length = 100, 230 do
        local said = {}
        local reporter <close> = progress.start(function(_, message) said[#said + 1] = message end)
        reporter:line(("."):rep(length) .. SECRET .. "!")
        reporter:tick()
        assert.is_true(#said >= 1)
        assert.is_false(has_piece(table.concat(said, " ")), tostring(length))
      end
    end)
  end)

  it("masks a secret in a short line", function()
    core.task.run(function()
      local said = {}
      local reporter <close> = progress.start(function(_, message) said[#said + 1] = message end)
      reporter:line("key=" .. SECRET)
      assert.are.same({ "key=[redacted]" }, said)
    end)
  end)
end)

describe("a call", function()
  local function run(handler)
    local tool = { tool = { name = "t", effect = "read" }, input = { type = "object", properties = {} }, handler = handler }
    tool.output = { nulls = { "missing" } }
    local scope = { knows = function() return false end }
    return core.task.run(function()
      return calls.run({
        tool = tool, app = { config = {} }, scope = scope, principal = "p", client = "c", transport = "cli",
      }, {})
    end)
  end

  it("masks its result, however deep, and leaves what the handler keeps", function()
    local kept = { url = "https://x/?k=" .. core.crypto.base64(SECRET) }
    local result = run(function() return { sandbox = kept, list = core.json.array { "a", SECRET }, n = 5 } end)
    assert.are.same({
      sandbox = { url = "https://x/?k=[redacted]=" }, list = core.json.array { "a", "[redacted]" }, n = 5,
      missing = core.json.null,
    }, result)
    assert.is_truthy(kept.url:find(core.crypto.base64(SECRET), 1, true))
  end)

  it("masks its error and what was done until then", function()
    local result, err, partial = run(function()
      errors.raise("command_failed", {
        message = "It said " .. SECRET .. ".", suggestion = SECRET, partial = { stdout = "x" .. SECRET },
      })
    end)
    assert.is_nil(result)
    assert.are.same({ "It said [redacted].", "[redacted]" }, { err.message, err.suggestion })
    assert.are.equal("x[redacted]", partial.stdout)
    local _, fault = run(function() error("a fault with " .. SECRET) end)
    assert.are.equal("internal", fault.category)
    assert.is_false(has_piece(tostring(fault)))
  end)
end)
