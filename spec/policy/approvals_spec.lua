--- policy/approvals: one call, one answer, once, for a while.

local approvals = require "demilune.policy.approvals"

--- A book with a clock that the spec turns.
local function book(options)
  local now = { ms = 1000 }
  local made = { ttl_s = 300, clock = function() return now.ms end }
  for key, value in pairs(options or {}) do made[key] = value end
  return approvals.new(made), now
end

local CALL = {
  principal = "local:me", tool = "kill_sandbox", digest = "d1", rule = "careful", version = "v1", question = "Kill it?",
  shown = { tool = "kill_sandbox", arguments = "{}" },
}

local function call(fields)
  local out = {}
  for key, value in pairs(CALL) do out[key] = value end
  for key, value in pairs(fields or {}) do out[key] = value end
  return out
end

local function take(list, fields)
  local c = call(fields)
  return list:take(c.principal, c.tool, c.digest, c.rule, c.version)
end

describe("the book of approvals", function()
  it("gives an answer once, to the call it was given for", function()
    local list = book()
    assert.is_nil(take(list))
    local id = list:open(call())
    assert.is_truthy(id:find "^ap_%l?[%l2-7]+$" and #id == 19)
    assert.are.equal("pending", take(list))
    assert.is_true(list:decide(id, true))
    for name, value in pairs {
      principal = "local:other", tool = "run_command", digest = "d2", rule = "other", version = "v2",
    } do
      assert.is_nil(take(list, { [name] = value }), name)
    end
    assert.are.equal("approved", take(list))
    assert.is_nil(take(list))
    assert.are.same({ nil, "no such" }, { list:decide(id, true) })
  end)

  it("gives a refusal once too, and asks anew after it", function()
    local list = book()
    local id = list:open(call())
    assert.is_true(list:decide(id, false))
    assert.are.equal("refused", take(list))
    assert.is_nil(take(list))
    assert.are_not.equal(id, list:open(call()))
  end)

  it("does not mix up calls whose parts only join to the same text", function()
    local list = book()
    list:open(call { principal = "a", tool = "bc" })
    assert.is_nil(take(list, { principal = "ab", tool = "c" }))
  end)

  it("is one question for the same call, as long as it waits", function()
    local list, now = book()
    local id = list:open(call())
    assert.are.equal(id, list:open(call { question = "Really?" }))
    assert.are_not.equal(id, list:open(call { version = "v2" }))
    now.ms = now.ms + 300000
    assert.are_not.equal(id, list:open(call()))
  end)

  it("is decided once, and by an id that is there", function()
    local list = book()
    local id = list:open(call())
    assert.are.same({ nil, "no such" }, { list:decide("ap_none", true) })
    assert.is_true(list:decide(id, false))
    assert.are.same({ nil, "decided already" }, { list:decide(id, true) })
    assert.are.equal("refused", take(list))
  end)

  it("expires: the question, and then the answer", function()
    local list, now = book()
    local id = list:open(call())
    now.ms = now.ms + 299999
    assert.are.equal(1, list:list()[1].expires_in)
    now.ms = now.ms + 1
    assert.are.equal(0, #list:list())
    assert.is_nil(take(list))
    assert.are.same({ nil, "expired" }, { list:decide(id, true) })
    now.ms = now.ms + 300000
    assert.are.same({ nil, "no such" }, { list:decide(id, true) })
    local late = list:open(call())
    now.ms = now.ms + 299999
    assert.is_true(list:decide(late, true))
    now.ms = now.ms + 299999
    assert.are.equal("approved", take(list))
    local lost = list:open(call())
    assert.is_true(list:decide(lost, true))
    now.ms = now.ms + 300000
    assert.is_nil(take(list))
  end)

  it("has a size: what is over goes first, then the oldest question, and answers last", function()
    local list, now = book { max = 3 }
    local ids = {}
    for i = 1, 3 do ids[i] = list:open(call { digest = "d" .. i }) end
    assert.is_true(list:decide(ids[1], true))
    ids[4] = list:open(call { digest = "d4" })
    assert.are.same({ nil, "no such" }, { list:decide(ids[2], true) })
    assert.are.equal("pending", take(list, { digest = "d3" }))
    now.ms = now.ms + 299999
    assert.is_true(list:decide(ids[4], true))
    now.ms = now.ms + 1
    list:open(call { digest = "d5" })
    assert.are.equal("approved", take(list, { digest = "d4" }))
    for i = 1, 10 do list:open(call { digest = "e" .. i }) end
    assert.are.equal(3, #list:list())
    assert.are.equal("pending", take(list, { digest = "e10" }))
  end)

  it("lists what waits, oldest first, and keeps no more of the arguments than a person reads", function()
    local list = book()
    list:open(call())
    local long = call { digest = "d2", shown = { tool = "write_file", arguments = ("x"):rep(1024 * 1024) } }
    list:open(long)
    list:decide(list:open(call { digest = "d3" }), true)
    local shown = list:list()
    assert.are.equal(2, #shown)
    assert.are.equal("Kill it?", shown[1].question)
    assert.are.same({ tool = "kill_sandbox", arguments = "{}" }, shown[1].shown)
    assert.are.equal(16 * 1024, #shown[2].shown.arguments)
    assert.are.equal(1024 * 1024, shown[2].shown.arguments_bytes)
    assert.are.equal(1024 * 1024, #long.shown.arguments)
  end)
end)
