--- What the handler of an operator's tool says to its client beside its result, and asks of the person there.
local core = require "demilune.core"
local wire = require "spec.mcp.wire"

local json = core.json
local FORMS = { elicitation = { form = json.decode "{}" } }
local EMPTY = json.decode "{}"

local folder = os.getenv "DML_SPEC_TMP" or "/tmp"

local function file(name, body)
  local path = ("%s/%s.lua"):format(folder, name)
  local out = assert(io.open(path, "w"))
  local text = 'return { name = %q, description = "For a spec.", effect = "read", handler = function(call) %s end }'
  out:write(text:format(name, body))
  out:close()
  return path
end

local TOOLS = {
  file("greet", [[
    local answer = call:elicit("Who is there?", { name = { type = "string", minLength = 1 } }, { "name" })
    local more = call:elicit("How old?", { age = { type = "integer", minimum = 0 } })
    return { text = "Hello, " .. answer.name .. ", " .. tostring(more.age) }]]),
  file("chatty", [[ call:log("info", "one\nline") call:log("warn", "two") return { text = "said" } ]]),
  file("wrong", [[ call:elicit("x", { deep = { type = "object" } }) ]]),
}
local OPTIONS = { config = { tools = TOOLS } }

local function call(name) return { name = name, arguments = EMPTY } end

local function category(result) return result.isError and result._meta["dev.demilune/error"].category or "ok" end

describe("a handler", function()
  it("asks the person at a client of a session, more than once", wire.case(function(one)
    one:initialize("2025-11-25", FORMS)
    local id = one:ask("tools/call", call "greet")
    local first = one:receive()
    assert.are.same({ "elicitation/create", "Who is there?" }, { first.method, first.params.message })
    one:send { id = first.id, result = { action = "accept", content = { name = "Ann" } } }
    local second = one:receive()
    one:send { id = second.id, result = { action = "accept", content = { age = 7 } } }
    local done = one:receive()
    assert.are.same({ id, "Hello, Ann, 7" }, { done.id, done.result.structuredContent.text })
  end, OPTIONS))

  it("asks one of 2026-07-28 in rounds, and begins anew with each answer", wire.case(function(one)
    local params, rounds = call "greet", {}
    local result = one:modern("tools/call", params, FORMS).result
    for _, content in ipairs { { name = "Ann" }, { age = 7 } } do
      assert.are.equal("input_required", result.resultType)
      local key, wanted = next(result.inputRequests)
      rounds[#rounds + 1] = wanted.params.message
      params.requestState = result.requestState
      params.inputResponses = { [key] = { action = "accept", content = content } }
      result = one:modern("tools/call", params, FORMS).result
    end
    assert.are.same({ "Who is there?", "How old?" }, rounds)
    assert.are.same({ "complete", "Hello, Ann, 7" }, { result.resultType, result.structuredContent.text })
  end, OPTIONS))

  it("is told what the person, or the client, would not do", wire.case(function(one)
    assert.are.equal("unsupported", category(one:modern("tools/call", call "greet").result))
    one:initialize("2025-11-25", FORMS)
    for action, wanted in pairs { decline = "approval_refused", cancel = "approval_required" } do
      one:ask("tools/call", call "greet")
      one:send { id = one:receive().id, result = { action = action } }
      assert.are.equal(wanted, category(one:receive().result))
    end
    one:ask("tools/call", call "greet")
    one:send { id = one:receive().id, result = { action = "accept", content = { name = 5 } } }
    assert.are.equal("unsupported", category(one:receive().result))
    assert.are.equal("internal", category(one:request("tools/call", call "wrong").result))
  end, OPTIONS))

  it("says lines to a client that wants to hear of their level", wire.case(function(one)
    one:initialize "2025-11-25"
    local function heard()
      one.others = {}
      assert.are.equal("said", one:request("tools/call", call "chatty").result.structuredContent.text)
      local lines = {}
      for _, message in ipairs(one.others) do
        if type(message.params.data) == "string" then lines[#lines + 1] = message.params.level .. ": " .. message.params.data end
      end
      return lines
    end
    assert.are.same({}, heard())
    one:request("logging/setLevel", { level = "info" })
    assert.are.same({ "info: one line", "warning: two" }, heard())
    one:request("logging/setLevel", { level = "warning" })
    assert.are.same({ "warning: two" }, heard())
    one.others = {}
    one:modern("tools/call", call "chatty", nil, { ["io.modelcontextprotocol/logLevel"] = "info" })
    assert.are.equal("info", one.others[1].params.level)
  end, OPTIONS))
end)
