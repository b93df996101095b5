--- What the results of the operator's functions mean; the worker is a stand-in that answers as the spec says.

local core = require "demilune.core"
local hooks = require "demilune.policy.hooks"

local array, null = core.json.array, core.json.null

local TOOLS = {
  run_command = {
    name = "run_command", groups = { ["@execute"] = true, ["@all"] = true },
    input = { properties = { command = { type = "string" }, envs = { type = "object" }, list = { type = "array" } } },
    output = {
      type = "object", required = { "stdout", "files" },
      properties = { stdout = { type = "string" }, exit_code = { type = { "integer", "null" } },
        files = { type = "array", items = { type = "object" } } },
    },
  },
}

local VIEW = {
  tool = "run_command", group = TOOLS.run_command.groups, args = { command = "ls" }, principal = "local:me", implicit = true,
  client = { name = "spec" }, transport = "stdio", time = 0, lifetime_s = 5,
}

--- A state whose worker answers a call with `answer`, or with what the function `answer` returns.
local function state_of(answer, seen)
  local fence = {}
  function fence.call(_, name, ...)
    if seen then seen.name, seen.arguments = name, { ... } end
    if type(answer) == "function" then return answer(...) end
    if answer.kind then return nil, answer end
    answer.args = answer.args or { ... }
    return answer
  end
  return { fence = fence, data = {}, tools_by_name = TOOLS }
end

local function before(answer) return hooks.before(state_of(answer), VIEW) end

describe("before", function()
  setup(function() core.log.set_level "off" end)
  teardown(function() core.log.set_level "info" end)

  it("goes on for nothing, nil, true and allow() alone", function()
    for _, answer in ipairs { { is_nothing = true }, {}, { value = null }, { value = true }, { decision = "allow" } } do
      assert.are.equal("go", before(answer).verdict)
    end
  end)

  it("denies for false, a string and deny()", function()
    local said = before { value = "no downloads" }
    assert.are.same({ "deny", "no downloads" }, { said.verdict, said.reason })
    assert.are.same({ "deny", "not now" }, { before({ decision = "deny", reason = "not now" }).verdict,
      before({ decision = "deny", reason = "not now" }).reason })
    assert.are.equal("deny", before({ value = false }).verdict)
    assert.is_nil(before({ value = false }).rule)
    for _, reason in ipairs { "", null, 5 } do
      assert.are.equal("string", type(before({ decision = "deny", reason = reason }).reason))
    end
  end)

  it("asks for ask() alone", function()
    local said = before { decision = "ask", reason = "Really?" }
    assert.are.same({ "ask", "Really?" }, { said.verdict, said.reason })
    assert.are.same({ command = "ls" }, said.args)
    assert.are.equal("string", type(before({ decision = "ask" }).reason))
  end)

  it("denies as policy-error for anything else", function()
    for _, answer in ipairs {
      { value = 0 }, { value = 1 }, { value = {} }, { value = array {} }, { value = { "deny" } },
      { value = { decision = "allow" } },
      { decision = "maybe" , value = 5 }, { kind = "error", text = "x" }, { kind = "limit", limit = "cpu", text = "x" },
      { kind = "crash", text = "x" }, { kind = "value", text = "x" }, function() error "a bug" end,
      function() return nil, { text = "x", file = "policy.lua", line = 3 } end,
    } do
      local said = before(answer)
      assert.are.same({ "deny", hooks.ERROR_RULE }, { said.verdict, said.rule })
      assert.is_nil(said.args)
      assert.are.equal("the policy's `before` failed on this call", said.reason)
      assert.are.equal("string", type(said.fault))
    end
    local said = before { kind = "error", text = "attempt to index", file = "policy.lua", line = 3 }
    assert.are.equal("policy.lua:3: attempt to index", said.fault)
  end)

  it("denies when the arguments are none any more", function()
    for _, args in ipairs { {}, { 5 }, { {} }, { { args = 5 } }, { { args = array { 1 } } }, { null } } do
      local said = before { is_nothing = true, args = args }
      assert.are.same({ "deny", hooks.ERROR_RULE }, { said.verdict, said.rule })
    end
  end)

  it("takes the arguments as they were left, and empty tables as the schema has them", function()
    local said = before { args = { { args = { command = "x", envs = array {}, list = {} } } } }
    assert.are.equal("x", said.args.command)
    assert.are.equal('{"command":"x","envs":{},"list":[]}', core.json.encode(said.args))
    assert.are.same({}, before({ args = { { args = array {} } } }).args)
  end)

  it("shows the function what the contract names, and no more", function()
    local seen = {}
    hooks.before(state_of({ is_nothing = true }, seen), VIEW)
    assert.are.equal("before", seen.name)
    assert.are.equal("local:me", seen.arguments[1].principal)
    assert.is_nil(seen.arguments[1].lifetime_s)
    assert.is_nil(seen.arguments[1].implicit)
  end)

  it("passes on what it cost, and a cancel", function()
    local said = before { value = true, instructions = 12, cpu_us = 3 }
    assert.are.same({ 12, 3 }, { said.instructions, said.cpu_us })
    assert.are.equal(7, before({ value = {}, instructions = 7 }).instructions)
    local ok, raised = pcall(before, function() error(core.task.CANCELLED, 0) end)
    assert.is_false(ok)
    assert.are.equal(core.task.CANCELLED, raised)
  end)

  it("cuts a reason and mends its bytes", function()
    local said = before { value = ("é"):rep(5000) .. "\255" }
    assert.is_true(#said.reason <= 1030)
    assert.is_truthy(utf8.len(said.reason))
    assert.is_truthy(utf8.len(before({ value = "\255x" }).reason))
  end)
end)

describe("after", function()
  local RESULT = { stdout = "secret", files = array {}, exit_code = 0 }

  setup(function() core.log.set_level "off" end)
  teardown(function() core.log.set_level "info" end)

  local function after(answer) return hooks.after(state_of(answer), VIEW, RESULT) end

  it("gives the result as it was left", function()
    assert.are.equal(RESULT, (after { is_nothing = true }))
    local changed = { stdout = "[masked]", files = {}, exit_code = null }
    local result = after { value = true, args = { {}, changed } }
    assert.are.equal('{"exit_code":null,"files":[],"stdout":"[masked]"}', core.json.encode(result))
  end)

  it("refuses for false, a string and deny()", function()
    for _, answer in ipairs { { value = false }, { value = "no" }, { decision = "deny", reason = "no" } } do
      local result, refusal = after(answer)
      assert.is_nil(result)
      assert.are.same({ "deny", "policy_denied" }, { refusal.verdict, refusal.category })
      assert.is_nil(refusal.rule)
    end
  end)

  it("refuses as policy-error what does not fit, asks, or fails", function()
    for _, answer in ipairs {
      { args = { {}, { files = array {} } } }, { args = { {}, { stdout = 5, files = array {} } } }, { args = { {}, 5 } },
      { args = { {} } },
      { args = { {}, { stdout = "x", files = { a = 1 } } } }, { args = { {}, { stdout = "x", files = array { 1 } } } },
      { decision = "ask", reason = "?" }, { value = {} }, { value = 1 }, { kind = "error", text = "x" },
      { kind = "limit", text = "x" },
    } do
      local result, refusal = after(answer)
      assert.is_nil(result)
      assert.are.equal(hooks.ERROR_RULE, refusal.rule)
      assert.are.equal("the policy's `after` failed on this call", refusal.reason)
    end
  end)
end)

describe("list", function()
  setup(function() core.log.set_level "off" end)
  teardown(function() core.log.set_level "info" end)

  local function list(answer, seen)
    return hooks.list(state_of(answer, seen), { name = "run_command", title = "Run" }, { principal = "p", scopes = array {} })
  end

  it("hides for false, deny(), a text, and whatever is no answer", function()
    for _, answer in ipairs { { value = false }, { decision = "deny" }, { value = "no" }, { value = 1 }, { value = {} },
      { decision = "ask" }, { kind = "error", text = "x" }, { kind = "limit", text = "x" } } do
      assert.is_false((list(answer)))
    end
    assert.are.equal("x", select(2, list { kind = "error", text = "x" }))
  end)

  it("shows for true, nothing and allow()", function()
    local seen = {}
    for _, answer in ipairs { { value = true }, { is_nothing = true }, { decision = "allow" } } do
      assert.is_true((list(answer, seen)))
    end
    assert.are.equal("run_command", seen.arguments[1].name)
    assert.is_true(seen.arguments[1].group["@execute"])
  end)
end)
