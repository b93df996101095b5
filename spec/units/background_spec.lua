--- The records of background tasks, and how a look into a task's folder is read.

local core = require "demilune.core"
local errors = require "demilune.errors"
local seen_of = require "demilune.background_seen"
local state = require "demilune.state"
local store = require "demilune.background_store"

local function record_of(principal, fields)
  local record = store.new { principal = principal, provider = "local", sandbox_id = "s1", command = "a", timeout_s = 5,
    dir = "/d" }
  for key, value in pairs(fields or {}) do record[key] = value end
  store.save(record)
  return record
end

local function names_of(principal)
  local names = {}
  for i, record in ipairs(store.list(principal)) do names[i] = record.name end
  return names
end

describe("the store of tasks", function()
  it("finds what it made by the sealed id alone", function()
    local record = record_of "a"
    assert.are.equal(record.name, store.find(record.id).name)
    assert.is_nil(record.id:find(record.name, 1, true))
    for _, id in ipairs { "", "bt_", record.name, "bt_" .. record.name, record.id .. "=", record.id:upper() } do
      assert.is_nil(store.find(id))
    end
    -- Sealed with the key, but no name of a record.
    for _, name in ipairs { "../key", "", "x/y", "aaaa" } do
      assert.is_nil(store.find("bt_" .. core.crypto.seal(state.key(), name)))
    end
    store.remove(record)
    assert.is_nil(store.find(record.id))
  end)

  it("lists a principal's own, newest first, and drops the old ones of all", function()
    local now = core.task.epoch_ms()
    local second = record_of("b", { started_ms = now - 1000 })
    local first = record_of("b", { started_ms = now - 2000 })
    local other = record_of "c"
    local old = record_of("b", { started_ms = now - 8 * 86400 * 1000 })
    assert.are.same({ second.name, first.name }, names_of "b")
    assert.are.same({ other.name }, names_of "c")
    assert.is_nil(store.find(old.id))
  end)

  it("passes over files that are no records", function()
    local record = record_of "d"
    local folder = state.path("tasks", true)
    for name, text in pairs {
      ["aaaa.json"] = "{", ["bbbb.json"] = "[]", ["cccc.json"] = '{"name":"other","principal":"d"}',
      ["dddd.json"] = '{"name":"dddd","principal":7}', ["eeee.json"] = '{"name":"eeee","principal":"d","sealed":"x"}',
      ["ffff.json"] = ("x"):rep(100000), ["GGGG.json"] = "{}", ["hhhh.txt"] = "{}",
    } do
      assert(core.fs.write(folder .. "/" .. name, text))
    end
    assert.are.same({ record.name }, names_of "d")
  end)
end)

describe("a look at a task", function()
  local record = { started_ms = core.task.epoch_ms() }

  local function read(line, body, err)
    return seen_of.read(record, { stdout = { head = line .. "\n" .. (body or "") }, stderr = { head = err or "" } })
  end

  it("reads states, codes, sizes and times", function()
    for line, expected in pairs {
      ["running  0 0 "] = { "running" }, ["starting  0 0 "] = { "running" }, ["missing  0 0 "] = { "lost" },
        ["lost  5 6 "] = { "lost" },
      ["ended 0 5 6 1700000000"] = { "succeeded", 0 }, ["ended 143 5 6 17"] = { "failed", 143 },
        ["timedout 143 5 6 17"] = { "timed_out", 143 },
      ["cancelled 0 5 6 17"] = { "cancelled", 0 },
    } do
      local seen = read(line)
      assert.are.same(expected, { seen.status, seen.exit_code }, line)
    end
    local seen = read("ended 0 5 6 1700000000", "12345", "abcdef")
    assert.are.same({ 5, 6, "12345", "abcdef" }, { seen.out_size, seen.err_size, seen.out, seen.err })
  end)

  it("believes no end before the beginning or after now, and no exit code that there cannot be", function()
    local now_ms = core.task.epoch_ms()
    local old = { started_ms = now_ms - 60999 }
    local function finished_ms(seconds)
      return seen_of.read(old, { stdout = { head = "ended 0 0 0 " .. seconds .. "\n" }, stderr = { head = "" } }).finished_ms
    end
    assert.are.equal(old.started_ms, finished_ms(old.started_ms // 1000))
    assert.are.equal(old.started_ms, finished_ms(0))
    assert.are.equal((now_ms // 1000 - 10) * 1000, finished_ms(now_ms // 1000 - 10))
    for _, late in ipairs { now_ms // 1000 + 60, "9223372036854775807", "99999999999999999999", "" } do
      local ms = finished_ms(late)
      assert.is_true(ms >= now_ms and ms <= core.task.epoch_ms(), late)
    end
    for _, code in ipairs { "256", "-1", "99999999999999999999" } do
      local seen = read("ended " .. code .. " 0 0 17")
      assert.are.same({ "failed" }, { seen.status, seen.exit_code }, code)
    end
  end)

  it("says so when the sandbox did not answer", function()
    local ok, err = pcall(seen_of.read, record, { timed_out = true, stdout = { head = "" }, stderr = { head = "" } })
    assert.are.same({ false, "provider_timeout" }, { ok, err.category })
  end)

  it("takes a task that never began for lost after a minute", function()
    local late = { started_ms = core.task.epoch_ms() - 61000 }
    local seen = seen_of.read(late, { stdout = { head = "starting  0 0 \n" }, stderr = { head = "" } })
    assert.are.equal("lost", seen.status)
  end)

  it("refuses what the script would never say", function()
    for _, line in ipairs { "", "x", "ended", "ended a 0 0 ", "dancing  0 0 ", "running  -1 0 ", "ended 0 0 0 0 0",
      "Ended 0 0 0 0",
      "running  99999999999999999999 0 " } do
      local ok, err = pcall(read, line)
      assert.is_false(ok)
      assert.is_true(errors.is(err), line)
      assert.are.equal("invalid_response", err.category)
    end
  end)

  --- `bytes`: those from the offset on; so many before them come too.
  local function show(bytes, size, offset, status)
    bytes = ("."):rep(math.min(offset or 0, size, seen_of.AROUND_BYTES)) .. bytes
    return seen_of.show({ out = bytes, out_size = size, status = status or "running" }, "out", offset, 16, "/d")
  end

  it("shows from an offset on, and leaves a character that is not all there for the next time", function()
    assert.are.same({ "abc", 8, true, "/d/stdout" }, { show("abc", 10, 5) })
    assert.are.same({ "abc", 10, false, "/d/stdout" }, { show("abc", 10, 7) })
    for cut = 1, 3 do
      local part = ("a😀"):sub(1, 1 + cut)
      assert.are.same({ "a", 1, true, "/d/stdout" }, { show(part, #part, 0) })
    end
    assert.are.same({ "a€", 4, false, "/d/stdout" }, { show("a€", 4, 0) })
    assert.are.same({ "", 0, true, "/d/stdout" }, { show("\xe2\x82", 2, 0) })
    assert.are.same({ "a\u{FFFD}", 2, false, "/d/stdout" }, { show("a\xc3", 2, 0, "succeeded") })
    assert.are.same({ "a\u{FFFD}", 2, false, "/d/stdout" }, { show("a\xff", 2, 0) })
    assert.are.same({ "", 10, false, "/d/stdout" }, { show("", 10, 99) })
    assert.are.same({ "", 0, false }, { show("", 0, 7) })
  end)

  it("shows at most 16 KiB from an offset on, whatever there is and whatever mending makes of it", function()
    for _, unit in ipairs { "a", "ä", "€", "😀", "\xff", "\xc3", "a\xff" } do
      local all = unit:rep(40000 // #unit)
      local parts, offset = {}, 0
      repeat
        local shown, next_offset, truncated = show(all:sub(offset + 1), #all, offset, "succeeded")
        assert.is_true(#shown <= 16384 and next_offset > offset)
        assert.are.equal(next_offset < #all, truncated)
        parts[#parts + 1], offset = shown, next_offset
      until offset == #all
      assert.are.equal(core.text.mend(all), table.concat(parts))
    end
  end)

  it("shows head and tail without an offset, and where to go on", function()
    assert.are.same({ "0123456789", 10, false, "/d/stdout" }, { show("0123456789", 10) })
    local shown, next_offset, truncated = show(("a"):rep(16) .. ("z"):rep(16), 1000)
    assert.are.same({ "aaaa\n[984 bytes left out; all of it is in /d/stdout]\nzzzzzzzzzzzz", 1000, true },
      { shown, next_offset, truncated })
    shown = show(("a"):rep(8) .. ("z"):rep(12), 20)
    assert.are.equal("aaaa\n[4 bytes left out; all of it is in /d/stdout]\nzzzzzzzzzzzz", shown)
  end)
end)
