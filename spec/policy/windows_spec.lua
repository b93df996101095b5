--- Time windows: how they are written, and when they hold.

local support = require "spec.policy.support"
local windows = require "demilune.policy.windows"

--- Each text with times that are in it and times that are not, as "day hour:minute" with Monday as day 1.
local HOLDS = {
  { "mon-fri 08:00-18:00", "1 08:00 | 5 17:59 | 3 12:00", "1 07:59 | 1 18:00 | 6 12:00 | 7 08:00" },
  { "mon 00:00-24:00", "1 00:00 | 1 23:59", "2 00:00 | 7 23:59" },
  { "sat,sun 10:00-12:00", "6 10:00 | 7 11:59", "5 10:00 | 6 12:00 | 1 10:00" },
  { "mon,wed,fri 9:00-10:00", "1 09:00 | 3 09:30 | 5 09:59", "2 09:30 | 4 09:30 | 5 10:00" },
  { "fri 22:00-06:00", "5 22:00 | 5 23:59 | 6 00:00 | 6 05:59", "5 05:00 | 6 06:00 | 6 22:00" },
  { "sun 22:00-02:00", "7 22:30 | 1 01:59", "1 02:00 | 7 01:00" },
  { "fri-mon 08:00-09:00", "5 08:00 | 6 08:00 | 7 08:00 | 1 08:59", "2 08:00 | 4 08:30" },
  { "mon-sun 12:00-13:00", "1 12:00 | 7 12:59", "1 11:59 | 4 13:00" },
  { "mon-fri 08:00-12:00, mon-fri 13:00-18:00, sat 10:00-12:00", "1 08:00 | 2 13:00 | 6 11:00", "1 12:30 | 6 13:00" },
  { "Mon-FRI 08:00-18:00", "1 08:00", "6 08:00" },
  { " mon - fri  08:00 - 18:00 ", "1 08:00", "6 08:00" },
}

local WRONG = {
  "", " ", "08:00-18:00", "mon-fri", "mon", "monday 08:00-18:00", "mon-fri 8-18", "mon-fri 25:00-26:00", "mon 08:60-09:00",
  "mon 24:01-24:02", "mon 08:00-08:00", "mon-fri 08:00", "mon; tue 08:00-09:00", "mon-fri 08:00-18:00,", "mon,,tue 08:00-09:00",
  "mon-fri 08:00-18:00, tue", "mo-fr 08:00-18:00", "mon-fri-sun 08:00-09:00", "mon-fri 08:00-18:00 sat 10:00-12:00", "always",
}

local function each(text, fn)
  for day, hour, minute in text:gmatch "(%d) (%d%d):(%d%d)" do fn(tonumber(day), hour * 60 + minute, day, hour, minute) end
end

describe("a time window", function()
  for _, row in ipairs(HOLDS) do
    it(("%q"):format(row[1]), function()
      local list = assert(windows.parse(row[1]))
      each(row[2], function(day, minute) assert.is_true(windows.hold(list, day, minute), row[2]) end)
      each(row[3], function(day, minute) assert.is_false(windows.hold(list, day, minute), row[3]) end)
    end)
  end

  it("says what is wrong with it, and what would be right", function()
    for _, text in ipairs(WRONG) do
      local list, why = windows.parse(text)
      assert.is_nil(list, text)
      assert.truthy(why:find("mon%-fri 08:00%-18:00") or why:find("00:00%-24:00"), text .. " -> " .. why)
    end
  end)

  it("meets another or does not", function()
    local office, night = windows.parse "mon-fri 08:00-18:00", windows.parse "mon-sun 22:00-06:00"
    assert.is_true(windows.meet(office, night))
    assert.is_true(windows.meet(office, nil))
    assert.is_true(windows.meet(nil, office))
    assert.is_false(windows.meet(office, office))
    assert.is_false(windows.meet(office, windows.parse "mon-sun 00:00-24:00"))
  end)
end)

describe("a rule with a window", function()
  --- Berlin in winter.
  local BERLIN = { local_time = function(_, s)
    s = s + 3600
    return { wday = (s // 86400 + 3) % 7 + 1, minute_of_day = s % 86400 // 60 }
  end }
  local env = support.env { zone = function(name)
    if name == "Europe/Berlin" then return BERLIN end
    return nil, "there is no time zone " .. name
  end }
  -- 2026-11-30, a Monday, at midnight UTC.
  local MONDAY = 1796000000 // 86400 * 86400

  it("is about the time in its zone", function()
    local monday = MONDAY
    while (monday // 86400 + 3) % 7 ~= 0 do monday = monday + 86400 end
    local compiled = support.rules({
      { match = "@create", when = { outside = "mon-fri 08:00-18:00", tz = "Europe/Berlin" }, deny = "closed" },
    }, "allow", env)
    for _, row in ipairs { { 7, "allow" }, { 6, "deny by r1" }, { 16, "allow" }, { 17, "deny by r1" }, { 24 * 5 + 9,
      "deny by r1" } } do
      local decision = support.decide(compiled, "create_sandbox", nil, { time = monday + row[1] * 3600 })
      assert.are.equal(row[2], support.words(decision), row[1])
    end
  end)

  it("takes UTC without a zone, fails closed without a time, and refuses a zone that there is not", function()
    local compiled = support.rules {
      { match = "@create", when = { within = "thu 00:00-01:00" }, deny = "closed" },
      { match = "kill_sandbox", when = { within = "thu 00:00-01:00" }, allow = true },
    }
    assert.are.equal("deny by r1", support.words(support.decide(compiled, "create_sandbox", nil, { time = 60 })))
    assert.are.equal("allow", support.words(support.decide(compiled, "create_sandbox", nil, { time = 3600 })))
    assert.are.equal("deny by r1", support.words(support.decide(compiled, "create_sandbox", nil, { time = false })))
    assert.are.equal("default", support.decide(compiled, "kill_sandbox", nil, { time = false }).rule)
    assert.are.equal("r2", support.decide(compiled, "kill_sandbox", nil, { time = 60 }).rule)
    local _, faults = support.compile({ default = "allow", rules = {
      { name = "a", match = "@all", deny = "x", when = { within = "mon 08:00-09:00", tz = "Mars/Base" } },
    } }, env)
    assert.are.same({ "rules.1.when.tz: there is no time zone Mars/Base" }, faults)
  end)
end)
