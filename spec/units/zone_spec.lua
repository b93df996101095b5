--- lua/demilune/zone.lua and the process that it asks, against Python's zoneinfo.

local core = require "demilune.core"
local zone = require "demilune.zone"
local task = core.task

local function load(...)
  return task.run(function(...) return zone.load(...) end, ...)
end

local function at(loaded, epoch_s)
  return task.run(function() return loaded:local_time(epoch_s) end)
end

--- "WDAY HOUR MIN" of Python for each of the times in a zone.
local function python_times(name, times)
  local program = [[
import sys, datetime, zoneinfo
z = zoneinfo.ZoneInfo(sys.argv[1])
for e in sys.argv[2:]:
    t = datetime.datetime.fromtimestamp(int(e), z)
    print(t.isoweekday(), t.hour, t.minute)]]
  local words = {}
  for i, time in ipairs(times) do words[i] = tostring(time) end
  local pipe = assert(io.popen(("python3 -c '%s' '%s' %s"):format(program, name, table.concat(words, " "))))
  local lines = {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  pipe:close()
  return lines
end

describe("zone", function()
  it("UTC needs no process and has no end", function()
    local utc = assert(zone.load "UTC")
    assert.are.same({ wday = 4, hour = 0, min = 0, minute_of_day = 0 }, utc:local_time(0))
    assert.are.same({ wday = 3, hour = 23, min = 59, minute_of_day = 1439 }, utc:local_time(-1))
    assert.are.same({ wday = 7, hour = 12, min = 30, minute_of_day = 750 }, utc:local_time(1767530000 - 1767530000 % 86400 + 45000))
  end)

  it("knows when clocks change, to the second", function()
    local berlin = assert(load("Europe/Berlin", 1767225600)) -- 2026
    assert.are.same({ wday = 7, hour = 1, min = 59, minute_of_day = 119 }, at(berlin, 1774745999))
    assert.are.same({ wday = 7, hour = 3, min = 0, minute_of_day = 180 }, at(berlin, 1774746000))
    assert.are.same({ wday = 7, hour = 2, min = 59, minute_of_day = 179 }, at(berlin, 1792889999))
    assert.are.same({ wday = 7, hour = 2, min = 0, minute_of_day = 120 }, at(berlin, 1792890000))
  end)

  it("agrees with another reading of the same data", function()
    math.randomseed(11)
    local times = {}
    for i = 1, 300 do times[i] = 1767225600 + math.random(0, 799 * 86400) end
    for _, name in ipairs { "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Africa/Casablanca", "Australia/Lord_Howe",
      "Pacific/Apia", "America/New_York", "Etc/GMT+12" } do
      local expected = python_times(name, times)
      if #expected == 0 then pending "this Python has no zoneinfo" end
      local loaded = assert(load(name, 1767225600))
      for i, time in ipairs(times) do
        local found = at(loaded, time)
        assert.are.equal(expected[i], ("%d %d %d"):format(found.wday, found.hour, found.min), name .. " at " .. time)
        assert.are.equal(found.hour * 60 + found.min, found.minute_of_day)
      end
    end
  end)

  it("loads more years when it is asked for them", function()
    local berlin = assert(load("Europe/Berlin", 1767225600))
    assert.are.equal(14, at(berlin, 2056276800 + 12 * 3600 - 2056276800 % 86400 + 180 * 86400).hour) -- a summer's noon, 2035
    assert.are.equal(13, at(berlin, 946728000).hour) -- 2000-01-01
    assert.are.equal(4, at(berlin, 1767225600).wday) -- and back
    assert.is_nil((at(berlin, 1 << 60)))
    local never, why = berlin:local_time(4000000000)
    assert.is_nil(never)
    assert.is_string(why)
  end)

  it("says that a zone is none", function()
    for _, name in ipairs { "Europe/Atlantis", "Europe", "", "../../etc/passwd", "/etc/localtime", "leapseconds", "EST5EDT4",
      "Europe/Berlin\n", "a b", ("x"):rep(65), ":UTC", "<A>5" } do
      local loaded, why = load(name)
      assert.is_nil(loaded)
      assert.is_truthy(why:find("there is no time zone", 1, true))
      assert.is_truthy(why:find('write one such as "Europe/Berlin"', 1, true))
    end
    assert.is_nil((load(12)))
  end)

  it("leaves the process's own time alone", function()
    local before = os.date("%H", 0)
    assert(load("Asia/Tokyo"))
    assert.are.equal(before, os.date("%H", 0))
  end)
end)

describe("demilune-fence --zone", function()
  local program = core.sys.library_dir() .. "/demilune-fence"

  local function run(arguments)
    local pipe = assert(io.popen(("%s --zone %s 2>/dev/null"):format(program, arguments)))
    local said = pipe:read "a"
    local _, _, code = pipe:close()
    return said, code
  end

  it("prints the first second and the changes", function()
    assert.are.same({ "1767225600 3600\n1774746000 7200\n", 0 }, { run "Europe/Berlin 1767225600 1774746000" })
    assert.are.same({ "1774746000 7200\n", 0 }, { run "Europe/Berlin 1774746000 1774746000" })
    assert.are.same({ "-62135596800 0\n", 0 }, { run "Etc/UTC -62135596800 -62135596800" })
  end)

  it("has codes for what is wrong", function()
    assert.are.same({ "", 2 }, { run "Europe/Atlantis 0 1" })
    for _, arguments in ipairs { "", "Europe/Berlin", "Europe/Berlin 0", "Europe/Berlin 1 0", "Europe/Berlin 0 345600001",
      "Europe/Berlin x 1", "Europe/Berlin 0 1x", "Europe/Berlin 0 99999999999999999999", "Europe/Berlin 0 1 2" } do
      assert.are.same({ "", 64 }, { run(arguments) })
    end
    assert.are.equal(74, select(2, run "Europe/Berlin 0 1 >/dev/full"))
  end)
end)
