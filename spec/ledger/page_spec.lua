--- ledger/page.lua: counting as plain data, with a clock of the spec's.

local core = require "demilune.core"
local page = require "demilune.ledger.page"

local DAY_S = 86400
--- A Tuesday at noon.
local NOON_S = 20000 * DAY_S + DAY_S // 2

local function yes() return true end

local function item(kind, most, more)
  local made = { kind = kind, rule = "r", most = most, scope = "principal" }
  for key, value in pairs(more or {}) do made[key] = value end
  return made
end

local function rate(most, per_s, more)
  local made = item("rate", most, more)
  made.per_s = per_s
  return made
end

local ME, YOU = { principal = "me" }, { principal = "you" }

--- Reserves as the ledger does; the refusal, or nil.
local function take(data, list, who, now_ms, name)
  page.prune(data, now_ms, yes)
  local refusal = page.refusal(data, list, who, now_ms)
  if refusal then return refusal end
  page.spend(data, list, {
    name = name or "p" .. now_ms, owner = { principal = who.principal, pid = 1, start = "1", at_s = now_ms // 1000 },
  }, now_ms)
end

local function sandbox(data, id, created_s, ends_s, principal)
  data.sandboxes[page.key("local", id)] = { principal = principal or "me", created_s = created_s, ends_s = ends_s }
end

describe("a rate", function()
  --- Random calls against one rate; the times of those that were let through.
  local function play(most, per_s, random, seconds)
    local data, one, now_ms, taken = page.new(), rate(most, per_s), NOON_S * 1000 + random(999), {}
    local end_ms = now_ms + seconds * 1000
    while now_ms < end_ms and #taken < 400 do
      local refusal = take(data, { one }, ME, now_ms)
      if refusal then
        assert.are.equal("rate_limited", refusal.category)
        assert.is_true(refusal.retry_after >= 1 and refusal.retry_after <= per_s + per_s // 60 + 2)
        -- It is refused for calls of the stretch and one slice more, not for older ones.
        local slice_ms = (per_s * 1000 + 59) // 60
        local reason = taken[#taken - most + 1]
        assert.is_true(reason ~= nil and reason > now_ms - per_s * 1000 - 2 * slice_ms, "refused without a reason")
        -- Who waits as long as was said is let through.
        if random(4) == 1 then
          now_ms = now_ms + refusal.retry_after * 1000
          assert.is_nil(take(data, { one }, ME, now_ms), "refused after the wait")
          taken[#taken + 1] = now_ms
        end
      else
        taken[#taken + 1] = now_ms
      end
      -- Bursts, and pauses of all lengths.
      now_ms = now_ms + (random(3) == 1 and random(per_s * 400) or random(5) - 1)
    end
    return taken
  end

  it("lets through no more than its calls in any stretch", function()
    math.randomseed(20)
    for round = 1, 150 do
      local most, per_s = math.random(12), ({ 1, 2, 7, 59, 60, 61, 100, 3600, 86399, 86400 })[math.random(10)]
      local taken = play(most, per_s, math.random, per_s * 12)
      assert.is_true(#taken >= most)
      for i = most + 1, #taken do
        assert.is_true(taken[i] - taken[i - most] >= per_s * 1000,
          ("round %d: %d calls in %d ms, %d in %d s allowed"):format(round, most + 1, taken[i] - taken[i - most], most, per_s))
      end
    end
  end)

  it("counts each principal, each rule and each scope for itself", function()
    local data, now_ms = page.new(), NOON_S * 1000
    assert.is_nil(take(data, { rate(1, 60) }, ME, now_ms))
    assert.are.equal("r", take(data, { rate(1, 60) }, ME, now_ms).rule)
    assert.is_nil(take(data, { rate(1, 60) }, YOU, now_ms))
    assert.is_nil(take(data, { rate(1, 60, { rule = "other" }) }, ME, now_ms))
    assert.is_nil(take(data, { rate(2, 60, { rule = "all", scope = "server" }) }, ME, now_ms))
    assert.is_nil(take(data, { rate(2, 60, { rule = "all", scope = "server" }) }, YOU, now_ms))
    assert.are.equal("all", take(data, { rate(2, 60, { rule = "all", scope = "server" }) }, { principal = "he" }, now_ms).rule)
  end)

  it("says how long to wait", function()
    local data, now_ms = page.new(), NOON_S * 1000
    assert.is_nil(take(data, { rate(2, 60) }, ME, now_ms))
    assert.is_nil(take(data, { rate(2, 60) }, ME, now_ms + 30000))
    local refusal = take(data, { rate(2, 60) }, ME, now_ms + 31000)
    assert.are.same({ rule = "r", kind = "rate", most = 2, retry_after = 30, category = "rate_limited" }, refusal)
  end)

  it("counts on when a reload changes its numbers", function()
    local data, now_ms = page.new(), NOON_S * 1000
    for _ = 1, 5 do assert.is_nil(take(data, { rate(10, 60) }, ME, now_ms)) end
    assert.are.equal(5, page.spent(data, rate(10, 60), ME, now_ms))
    assert.are.equal(5, page.spent(data, rate(10, 3600), ME, now_ms))
    assert.are.equal(5, page.spent(data, rate(10, 10), ME, now_ms))
    assert.is_table(take(data, { rate(5, 30) }, ME, now_ms + 1))
    assert.is_nil(take(data, { rate(6, 30) }, ME, now_ms + 1))
    assert.are.equal(6, page.spent(data, rate(6, 3600), ME, now_ms + 1))
    -- A slice of an hour is a minute long: its calls count as late as they can have been.
    local late = page.new()
    assert.is_nil(take(late, { rate(10, 3600) }, ME, now_ms + 59999))
    assert.are.equal(1, page.spent(late, rate(10, 10), ME, now_ms + 59999 + 9999))
    assert.are.equal(0, page.spent(late, rate(10, 10), ME, now_ms + 59999 + 11000))
  end)

  it("forgets nothing when the clock is set back", function()
    local data, now_ms = page.new(), NOON_S * 1000
    for i = 1, 3 do assert.is_nil(take(data, { rate(3, 60) }, ME, now_ms + i)) end
    assert.is_table(take(data, { rate(3, 60) }, ME, now_ms - 20000))
    assert.is_nil(take(data, { rate(4, 60) }, ME, now_ms - 20000))
    assert.are.equal(4, page.spent(data, rate(4, 60), ME, now_ms - 10000))
    assert.is_true(page.is_one(core.json.decode(core.json.encode(data))))
  end)

  it("is dropped when its stretch is over", function()
    local data, now_ms = page.new(), NOON_S * 1000
    assert.is_nil(take(data, { rate(1, 60) }, ME, now_ms))
    page.prune(data, now_ms + 60000, yes)
    assert.is_truthy(next(data.rates))
    page.prune(data, now_ms + 62000, yes)
    assert.is_nil(next(data.rates))
  end)
end)

describe("a list of counters", function()
  it("is spent together or not at all", function()
    local data, now_ms = page.new(), NOON_S * 1000
    local list = { rate(5, 60), item("sandboxes", 1, { rule = "few" }) }
    assert.is_nil(take(data, list, ME, now_ms))
    local refusal = take(data, list, ME, now_ms + 1)
    assert.are.same({ "few", "sandboxes", "quota_exceeded" }, { refusal.rule, refusal.kind, refusal.category })
    assert.is_nil(refusal.retry_after)
    assert.are.equal(1, page.spent(data, list[1], ME, now_ms))
  end)

  it("names the first that has no place left", function()
    local data, now_ms = page.new(), NOON_S * 1000
    local list = { item("tasks", 2, { rule = "tasks" }), rate(1, 60) }
    assert.is_nil(take(data, list, { principal = "me", tasks = 1 }, now_ms))
    assert.are.equal("tasks", take(data, list, { principal = "me", tasks = 2 }, now_ms).rule)
    assert.are.equal("r", take(data, list, { principal = "me", tasks = 0 }, now_ms).rule)
  end)
end)

describe("sandboxes", function()
  it("count from their place on, until a little after their end", function()
    local data, list = page.new(), { item("sandboxes", 1) }
    assert.is_nil(take(data, list, ME, NOON_S * 1000, "place"))
    assert.is_table(take(data, list, ME, NOON_S * 1000))
    assert.is_nil(take(data, list, YOU, NOON_S * 1000))
    data.pending.place = nil
    sandbox(data, "a", NOON_S, NOON_S + 100)
    for seconds, is_free in pairs { [0] = false, [100] = false, [160] = false, [161] = true } do
      local copy = core.json.decode(core.json.encode(data))
      assert.are.equal(is_free, take(copy, list, ME, (NOON_S + seconds) * 1000) == nil, seconds .. " s")
    end
  end)

  it("of which no end is known count for a day", function()
    local data, list = page.new(), { item("sandboxes", 1) }
    sandbox(data, "a", NOON_S)
    assert.is_table(take(data, list, ME, (NOON_S + DAY_S + 60) * 1000))
    assert.is_nil(take(data, list, ME, (NOON_S + DAY_S + 61) * 1000))
  end)

  it("of all principals count for the scope of the server", function()
    local data, list = page.new(), { item("sandboxes", 2, { scope = "server" }) }
    sandbox(data, "a", NOON_S, NOON_S + 100, "you")
    assert.is_nil(take(data, list, ME, NOON_S * 1000, "place"))
    assert.are.equal(2, page.spent(data, list[1], YOU, NOON_S * 1000))
    assert.is_table(take(data, list, YOU, NOON_S * 1000))
  end)

  it("end with the server that holds them, which is asked for once", function()
    local data, asked = page.new(), 0
    for i = 1, 5 do
      sandbox(data, "held" .. i, NOON_S)
      data.sandboxes[page.key("local", "held" .. i)].pid, data.sandboxes[page.key("local", "held" .. i)].start = 7, "1"
    end
    sandbox(data, "free", NOON_S)
    page.prune(data, (NOON_S + 10) * 1000, yes)
    assert.are.equal(6, page.counts(data, ME, NOON_S * 1000).sandboxes)
    page.prune(data, (NOON_S + 20) * 1000, function(pid, start)
      asked = asked + 1
      return not (pid == 7 and start == "1")
    end)
    assert.are.same({ 1, 1 }, { asked, page.counts(data, ME, NOON_S * 1000).sandboxes })
    assert.are.equal(100, data.lived.me)
  end)

  it("lose the place of a process that is gone, and one that is too old", function()
    local data, list = page.new(), { item("sandboxes", 9) }
    take(data, list, ME, NOON_S * 1000, "place")
    page.prune(data, (NOON_S + 900) * 1000, yes)
    assert.is_truthy(data.pending.place)
    page.prune(data, NOON_S * 1000, function(pid, start) return pid == 1 and start ~= "1" end)
    assert.is_nil(data.pending.place)
    take(data, list, ME, NOON_S * 1000, "place")
    page.prune(data, (NOON_S + 901) * 1000, yes)
    assert.is_nil(data.pending.place)
  end)
end)

describe("seconds of sandboxes", function()
  local MIDNIGHT_S = NOON_S - DAY_S // 2
  local one = item("sandbox_seconds", 1000)

  local function spent(data, now_s, who, counter)
    page.prune(data, now_s * 1000, yes)
    return (page.spent(data, counter or one, who or ME, now_s * 1000))
  end

  it("are lived since midnight, by those that live and those that ended", function()
    local rows = {
      -- created, ends, looked at, seconds
      { NOON_S, NOON_S + 100, NOON_S, 0 },
      { NOON_S, NOON_S + 100, NOON_S + 40, 40 },
      { NOON_S, NOON_S + 100, NOON_S + 130, 100 },
      { NOON_S, NOON_S + 100, NOON_S + 5000, 100 },
      { MIDNIGHT_S - 50, NOON_S, MIDNIGHT_S + 10, 10 },
      { MIDNIGHT_S - 50, MIDNIGHT_S - 10, MIDNIGHT_S + 10, 0 },
      { MIDNIGHT_S - 500, MIDNIGHT_S - 400, MIDNIGHT_S + 10, 0 },
      { NOON_S + 50, NOON_S + 100, NOON_S, 0 },
    }
    for i, row in ipairs(rows) do
      local data = page.new()
      sandbox(data, "a", row[1], row[2])
      assert.are.equal(row[4], spent(data, row[3]), "row " .. i)
      assert.are.equal(0, spent(data, row[3], YOU), "row " .. i)
      assert.are.equal(row[4], spent(data, row[3], YOU, item("sandbox_seconds", 1, { scope = "server" })), "row " .. i)
    end
  end)

  it("stay counted when a sandbox is ended, and begin anew at midnight", function()
    local data = page.new()
    sandbox(data, "a", NOON_S, NOON_S + 5000)
    sandbox(data, "b", NOON_S + 100, NOON_S + DAY_S)
    page.prune(data, NOON_S * 1000, yes)
    page.end_sandbox(data, page.key("local", "a"), NOON_S + 300)
    page.end_sandbox(data, page.key("local", "a"), NOON_S + 400)
    assert.are.equal(300 + 200, spent(data, NOON_S + 300))
    assert.are.equal(60, spent(data, MIDNIGHT_S + DAY_S + 60))
    assert.are.same({}, data.lived)
  end)

  it("refuse a creation once they are spent, not before", function()
    local data = page.new()
    sandbox(data, "a", NOON_S, NOON_S + 5000)
    assert.is_nil(take(data, { one }, ME, (NOON_S + 999) * 1000))
    local refusal = take(data, { one }, ME, (NOON_S + 1000) * 1000)
    assert.are.same({ "sandbox_seconds", "quota_exceeded" }, { refusal.kind, refusal.category })
  end)
end)

describe("counts", function()
  it("are what a principal has and did today", function()
    local data = page.new()
    sandbox(data, "a", NOON_S, NOON_S + 5000)
    sandbox(data, "b", NOON_S, NOON_S + 5000, "you")
    take(data, { item("sandboxes", 9) }, ME, NOON_S * 1000, "place")
    page.add_calls(data, "me", 3)
    assert.are.same({ sandboxes = 2, tasks = 4, calls = 3, sandbox_seconds_today = 50 },
      page.counts(data, { principal = "me", tasks = 4 }, (NOON_S + 50) * 1000))
    page.prune(data, (NOON_S + DAY_S) * 1000, yes)
    assert.are.equal(0, page.counts(data, ME, (NOON_S + DAY_S) * 1000).calls)
  end)
end)

describe("a full page", function()
  local function fill(map, count, value)
    for i = 1, count do map[("name-%d"):format(i)] = value end
  end

  it("refuses what it could not keep, and goes on with what it has", function()
    local data, now_ms = page.new(), NOON_S * 1000
    take(data, { rate(9, 60) }, ME, now_ms)
    fill(data.rates, 4095, "1000 " .. NOON_S .. "=1")
    assert.is_nil(take(data, { rate(9, 60) }, ME, now_ms))
    assert.are.equal("rate_limited", take(data, { rate(9, 60) }, YOU, now_ms).category)
    fill(data.pending, 2048, { principal = "x", pid = 1, start = "1", at_s = NOON_S })
    assert.are.equal("quota_exceeded", take(data, { item("sandboxes", 9) }, ME, now_ms).category)
    assert.are.equal("quota_exceeded", take(data, { item("sandbox_seconds", 9) }, ME, now_ms).category)
    assert.is_nil(take(data, { item("tasks", 9) }, ME, now_ms))
  end)

  it("lets the sandbox that ends first give way to one that is there", function()
    local data = page.new()
    page.prune(data, NOON_S * 1000, yes)
    for i = 1, 10000 do sandbox(data, tostring(i), NOON_S - 10, NOON_S + 1000 + (i * 7919) % 10007) end
    local first
    for key, entry in pairs(data.sandboxes) do
      if not first or entry.ends_s < data.sandboxes[first].ends_s then first = key end
    end
    page.add_sandbox(data, "new", { principal = "me", created_s = NOON_S }, NOON_S)
    assert.is_nil(data.sandboxes[first])
    assert.is_table(data.sandboxes.new)
    assert.are.equal(10, data.lived.me)
  end)

  it("counts principals beyond the last one together", function()
    local data = page.new()
    page.prune(data, NOON_S * 1000, yes)
    for i = 1, 10000 do page.add_calls(data, "p" .. i, 1) end
    page.add_calls(data, "me", 2)
    page.add_calls(data, "you", 3)
    page.add_calls(data, "p1", 1)
    assert.are.equal(5, page.counts(data, ME, NOON_S * 1000).calls)
    assert.are.equal(2, page.counts(data, { principal = "p1" }, NOON_S * 1000).calls)
  end)

  it("can still be read", function()
    local data, long = page.new(), ("p"):rep(200)
    local slices = {}
    for i = 1, 61 do slices[i] = (NOON_S + i) .. "=1000000" end
    for i = 1, 10000 do
      data.sandboxes[page.key("local", ("%s-%d"):format(("s"):rep(64), i))] = {
        principal = long, created_s = NOON_S, ends_s = NOON_S, pid = 4194304, start = ("9"):rep(12),
      }
    end
    fill(data.pending, 2048, { principal = long, pid = 4194304, start = ("9"):rep(12), at_s = NOON_S })
    for i = 1, 4096 do data.rates[("%s\31%s%d"):format(("r"):rep(64), long, i)] = "1000 " .. table.concat(slices, " ") end
    for i = 1, 10001 do data.lived[long .. i], data.calls[long .. i] = 86400000, 86400000 end
    local text = core.json.encode(data)
    assert.is_true(#text < 16 * 1024 * 1024, #text .. " bytes")
    assert.is_true(page.is_one(core.json.decode(text)))
  end)
end)

describe("the form of a page", function()
  local function whole()
    return {
      rates = { ["r\31me"] = "1000 5=1 6=2" }, day = 7, lived = { me = 5 }, calls = { me = 1 },
      sandboxes = { ["local\31a"] = { principal = "me", created_s = 1, ends_s = 2 } },
      pending = { p = { principal = "me", pid = 1, start = "5", at_s = 1 } },
    }
  end

  it("is a page's own, empty or not", function()
    assert.is_true(page.is_one(page.new()))
    assert.is_true(page.is_one(whole()))
  end)

  it("is not that of anything else", function()
    for _, value in ipairs { 5, "page", true, {}, { rates = {} }, core.json.null } do assert.is_false(page.is_one(value)) end
    local wrong = {
      { "day", "7" }, { "day", -1 }, { "day", 1.5 }, { "rates", core.json.null }, { "rates", { x = {} } }, { "rates", { x = "" } },
      { "rates", { x = "0 5=1" } }, { "rates", { x = "1000" } }, { "rates", { x = "1000 5=1;" } },
      { "rates", { x = "1000 99999999999999999999=1" } }, { "rates", { "1000 5=1" } }, { "lived", { me = -1 } },
      { "lived", { me = "5" } }, { "lived", { me = math.maxinteger } }, { "calls", { me = 0.5 } }, { "sandboxes", { x = 5 } },
      { "sandboxes", { x = { principal = "me" } } }, { "sandboxes", { x = { principal = 1, created_s = 1 } } },
      { "sandboxes", { x = { principal = "me", created_s = 1, ends_s = "2" } } }, { "pending", { x = { principal = "me" } } },
      { "pending", { x = { principal = "me", pid = "1", start = "5", at_s = 1 } } },
      { "pending", { x = { principal = "me", pid = 1, start = 5, at_s = 1 } } }, { "pending", nil },
      { "sandboxes", { x = { principal = "me", created_s = 1, pid = 1 } } },
    }
    for i, row in ipairs(wrong) do
      local data = whole()
      data[row[1]] = row[2]
      assert.is_false(page.is_one(data), "row " .. i)
    end
  end)
end)
