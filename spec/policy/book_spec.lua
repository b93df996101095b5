--- The counters of rehearsed calls.

local book = require "demilune.policy.book"

local ME, OTHER = { principal = "me" }, { principal = "other" }
local NOON = 1796040000 - 1796040000 % 86400 + 43200

local function rate(most, per_s, scope) return { kind = "rate", rule = "r", most = most, per_s = per_s, scope = scope } end

describe("demilune.policy.book", function()
  it("counts calls in any window, by principal or of all", function()
    local counters = book.new(NOON)
    for _ = 1, 2 do assert.is_truthy(counters:reserve({ rate(2, 60) }, ME)) end
    local ticket, refusal = counters:reserve({ rate(2, 60) }, ME)
    assert.is_nil(ticket)
    assert.are.same({ rule = "r", kind = "rate", most = 2, retry_after = 60, category = "rate_limited" }, refusal)
    assert.is_truthy(counters:reserve({ rate(2, 60) }, OTHER))
    counters.now_s = NOON + 59
    assert.are.equal(1, select(2, counters:reserve({ rate(2, 60) }, ME)).retry_after)
    counters.now_s = NOON + 60
    assert.is_truthy(counters:reserve({ rate(2, 60) }, ME))
    counters = book.new(NOON)
    assert.is_truthy(counters:reserve({ rate(1, 60, "server") }, ME))
    assert.is_nil((counters:reserve({ rate(1, 60, "server") }, OTHER)))
  end)

  it("takes all places or none", function()
    local counters = book.new(NOON)
    local none = { kind = "sandboxes", rule = "s", most = 0 }
    local ticket, refusal = counters:reserve({ rate(1, 60), none }, ME)
    assert.is_nil(ticket)
    assert.are.same({ "s", "quota_exceeded" }, { refusal.rule, refusal.category })
    assert.are.equal(0, counters:spent(rate(1, 60), ME))
  end)

  it("counts sandboxes while they live, and what they have lived today", function()
    local counters = book.new(NOON)
    local alive, lived = { kind = "sandboxes", rule = "s", most = 1 }, { kind = "sandbox_seconds", rule = "t", most = 500 }
    local ticket = assert(counters:reserve({ alive, lived }, ME))
    ticket:keep { principal = "me", created_s = NOON, ends_s = NOON + 600 }
    ticket:keep { principal = "me", created_s = NOON, ends_s = NOON + 600 }
    assert.are.same({ 1, 0 }, { counters:spent(alive, ME), counters:spent(lived, ME) })
    counters.now_s = NOON + 499
    assert.are.equal("s", select(2, counters:reserve({ alive }, ME)).rule)
    assert.are.equal(499, counters:spent(lived, ME))
    assert.are.equal(0, counters:spent(lived, OTHER))
    counters.now_s = NOON + 600
    assert.are.same({ 0, 600 }, { counters:spent(alive, ME), counters:spent(lived, ME) })
    assert.are.equal("t", select(2, counters:reserve({ alive, lived }, ME)).rule)
    counters.now_s = NOON + 43200
    assert.are.equal(0, counters:spent(lived, ME), "a new day")
  end)

  it("lets one end, counts tasks, and gives back", function()
    local counters = book.new(NOON)
    counters:reserve({}, ME):keep { principal = "me", created_s = NOON - 10, ends_s = NOON + 600 }
    counters:reserve({}, ME):give_back()
    counters:end_one "other"
    assert.are.equal(1, counters:counts(ME).sandboxes)
    counters:end_one "me"
    counters:task_started "me"
    assert.are.same({ sandboxes = 0, tasks = 1, calls = 0, sandbox_seconds_today = 10 }, counters:counts(ME))
    assert.are.equal("q", select(2, counters:reserve({ { kind = "tasks", rule = "q", most = 1 } }, ME)).rule)
  end)
end)
