--- mcp/elicit: the person at the client is asked in the way of each revision, and hostile answers allow nothing.

local core = require "demilune.core"
local elicit = require "demilune.mcp.elicit"
local fake = require "spec.scope.fake"
local mcp = require "demilune.mcp"

local json, task = core.json, core.task

local MODERN = "2026-07-28"
local FORMS = { elicitation = { form = json.decode "{}" } }
local META = "io.modelcontextprotocol/"

--- A policy that asks before every run_command, and notes what it was told.
local function asking_policy(world, question)
  local told = {}
  world.app.policy = {
    decide = function(_, call, args)
      if call.tool.name ~= "run_command" then return args end
      told.has_asker = call.ask_person ~= nil
      local shown = { tool = call.tool.name, provider = "local", sandbox = "a new one", arguments = json.encode(args) }
      local answer = call.ask_person and call.ask_person(question or "Run it?", shown, 60000)
      told.answer, told.client, told.client_version = answer, call.client, call.client_version
      if answer == "accept" then return args end
      error(require("demilune.errors").new(answer == "decline" and "approval_refused" or "approval_required"), 0)
    end,
    shows = function() return true end,
    after = function(_, _, result) return result end,
    finish = function() end, sandbox_ended = function() end, sandbox_extended = function() end,
  }
  return told
end

--- A conversation over core.stdio and pipes with an app that asks.
---@return table wire  send(value), receive(), request(method, params) -> message, told
local function conversation(body, options)
  options = options or {}
  return fake.run(function()
    local world = options.world or fake.world()
    local wire = { told = asking_policy(world, options.question), world = world }
    local in_read, in_write = assert(core.sys.pipe())
    local out_read, out_write = assert(core.sys.pipe())
    local reader, rest, id = assert(core.sys.reader(out_read)), "", 0
    local talk = mcp.new(world.app, { scope = world.scope, principal = world.principal, transport = "stdio" })
    talk.drained = task.event()
    talk.io = assert(core.stdio.serve {
      in_fd = in_read, out_fd = out_write, on_request = function(...) talk:on_request(...) end,
      on_notification = function(...) talk:on_notification(...) end,
    })
    wire.talk = talk
    function wire.send(value)
      value.jsonrpc = "2.0"
      assert(core.sys.write(in_write, json.encode(value) .. "\n"))
    end
    function wire.receive(timeout_ms)
      while not rest:find "\n" do
        local chunk, err = reader:read(timeout_ms or 5000)
        if not chunk then return nil, err and err.category end
        rest = rest .. chunk
      end
      local line
      line, rest = rest:match "^([^\n]*)\n(.*)$"
      return json.decode(line)
    end
    function wire.ask(method, params)
      id = id + 1
      wire.send { id = id, method = method, params = params }
      return id
    end
    local ok, err = pcall(body, wire)
    talk.io:close()
    reader:close()
    core.sys.close(in_write)
    if not ok then error(err, 0) end
  end)
end

local function initialize(wire, revision, capabilities)
  wire.ask("initialize", {
    protocolVersion = revision, capabilities = capabilities or FORMS, clientInfo = { name = "spec", version = "7.1" },
  })
  return assert(wire.receive().result)
end

local function run(wire, command)
  return wire.ask("tools/call", { name = "run_command", arguments = { command = command or "true" } })
end

local function category(message)
  local result = assert(message.result, json.encode(message))
  return result.isError and result._meta["dev.demilune/error"].category or "ok"
end

describe("a legacy client", function()
  for _, revision in ipairs { "2025-06-18", "2025-11-25" } do
    it("of " .. revision .. " is sent a form, and its answer decides", conversation(function(wire)
      initialize(wire, revision)
      for _, case in ipairs {
        { { action = "accept", content = { approve = true } }, "ok", "accept" },
        { { action = "accept", content = { approve = false } }, "approval_refused", "decline" },
        { { action = "decline" }, "approval_refused", "decline" },
        { { action = "cancel" }, "approval_required", nil },
      } do
        local id = run(wire)
        local asked = wire.receive()
        assert.are.equal("elicitation/create", asked.method)
        assert.are.equal(revision >= "2025-11-25" and "form" or nil, asked.params.mode)
        assert.are.equal("object", asked.params.requestedSchema.type)
        assert.are.same({ "approve" }, { table.unpack(asked.params.requestedSchema.required) })
        assert.are.equal("boolean", asked.params.requestedSchema.properties.approve.type)
        wire.send { id = asked.id, result = case[1] }
        local done = wire.receive()
        assert.are.same({ id, case[2], case[3] }, { done.id, category(done), wire.told.answer })
      end
      assert.are.same({ "spec", "7.1" }, { wire.told.client, wire.told.client_version })
    end))
  end

  it("that shows no forms is never asked", conversation(function(wire)
    for _, case in ipairs {
      { "2025-11-25", {} }, { "2025-11-25", { elicitation = { url = json.decode "{}" } } }, { "2025-11-25", { elicitation = 7 } },
      { "2025-11-25", { elicitation = json.array { "form" } } }, { "2025-11-25", { elicitation = json.null } },
      { "2025-03-26", FORMS }, { "2024-11-05", FORMS },
    } do
      wire.talk.revision = nil
      initialize(wire, case[1], case[2])
      run(wire)
      assert.are.equal("approval_required", category(wire.receive()))
      assert.is_false(wire.told.has_asker)
    end
  end))

  it("may declare forms by an empty object", conversation(function(wire)
    initialize(wire, "2025-11-25", { elicitation = json.decode "{}" })
    run(wire)
    assert.are.equal("elicitation/create", wire.receive().method)
  end))

  it("that answers nonsense has not answered", conversation(function(wire)
    initialize(wire, "2025-11-25")
    for _, result in ipairs {
      json.decode "{}", { action = "yes" }, { action = true }, { action = "accept" },
      { action = "accept", content = json.array { true } },
      { action = "accept", content = {} }, { action = "accept", content = { approve = "true" } },
      { action = "accept", content = { approve = 1 } }, { action = "accept", content = { Approve = true } },
      { action = "accept", content = { approve = json.null } },
    } do
      run(wire)
      wire.send { id = wire.receive().id, result = result }
      assert.are.equal("approval_required", category(wire.receive()), json.encode(result))
    end
    run(wire)
    wire.send { id = wire.receive().id, error = { code = -1, message = "canary-words" } }
    local done = wire.receive()
    assert.are.equal("approval_required", category(done))
    assert.is_nil(json.encode(done):find("canary", 1, true))
  end))

  it("shows the question, then the call with all that is hidden written out, and no more than fits", conversation(function(wire)
    initialize(wire, "2025-11-25")
    run(wire, "echo \27[2K\u{202E}evil\u{200B}" .. ("x"):rep(3000))
    local message = wire.receive().params.message
    local head = "Run\\u{1B} it?\n\ntool: run_command\nprovider: local\nsandbox: a new one\narguments: {"
    assert.are.equal(head, message:sub(1, #head))
    assert.is_nil(message:find "\27")
    assert.is_nil(message:find("\u{202E}", 1, true))
    assert.is_truthy(message:find("\\u{202E}evil\\u{200B}", 1, true))
    assert.is_truthy(#message < 3000 and message:find "bytes more are not shown")
  end, { question = "Run\27 it?" }))

  it("is told that the list of tools has changed once it is initialized", conversation(function(wire)
    wire.talk:tools_changed()
    assert.is_true(initialize(wire, "2025-11-25").capabilities.tools.listChanged)
    wire.talk:tools_changed()
    wire.send { method = "notifications/initialized" }
    wire.ask "ping"
    assert.is_nil(wire.receive().method)
    wire.talk:tools_changed()
    assert.are.equal("notifications/tools/list_changed", wire.receive().method)
  end))
end)

--- Parameters of a call of 2026-07-28.
local function modern(fields, capabilities)
  local params = {
    name = "run_command", arguments = { command = "true" },
    _meta = { [META .. "protocolVersion"] = MODERN, [META .. "clientCapabilities"] = capabilities or FORMS },
  }
  for key, value in pairs(fields or {}) do params[key] = value end
  return params
end

local function exchange(wire, fields, capabilities)
  wire.ask("tools/call", modern(fields, capabilities))
  return wire.receive()
end

--- Makes the call for the first time: the key of its question and the state.
local function first(wire, fields)
  local result = exchange(wire, fields).result
  assert.are.equal("input_required", result.resultType)
  local key = next(result.inputRequests)
  assert.is_nil(next(result.inputRequests, key))
  return key, result.requestState, result
end

local YES = { action = "accept", content = { approve = true } }

describe("a client of 2026-07-28", function()
  it("is told what is missing and calls again", conversation(function(wire)
    local key, state, result = first(wire)
    assert.are.equal("demilune", result._meta[META .. "serverInfo"].name)
    local asked = result.inputRequests[key]
    assert.are.same({ "elicitation/create", "form" }, { asked.method, asked.params.mode })
    assert.is_truthy(asked.params.message:find "^Run it%?")
    local done = exchange(wire, { requestState = state, inputResponses = { [key] = YES, extra = { 7 } } })
    assert.are.same({ "complete", "ok" }, { done.result.resultType, category(done) })
    key, state = first(wire)
    done = exchange(wire, { requestState = state, inputResponses = { [key] = { action = "decline" } } })
    assert.are.equal("approval_refused", category(done))
    assert.are.equal(1, wire.world.provider:called "run")
  end))

  it("is asked again for what it did not answer, or answered badly", conversation(function(wire)
    local key, state = first(wire)
    for _, given in ipairs { {}, { other = YES }, { [key] = 7 }, { [key] = json.null }, { [key] = { action = "accept" } } } do
      local result = exchange(wire, { requestState = state, inputResponses = next(given) and given or json.decode "{}" }).result
      assert.are.equal("input_required", result.resultType)
      assert.is_truthy(result.inputRequests[key])
      assert.are_not.equal(state, result.requestState)
      state = result.requestState
    end
    assert.are.equal("input_required", exchange(wire, { requestState = state }).result.resultType)
    assert.are.equal("input_required", exchange(wire, { inputResponses = { [key] = YES } }).result.resultType)
    assert.are.equal(0, wire.world.provider:called "run")
  end))

  it("cannot use a state twice, for another call, changed, made up or of another principal", conversation(function(wire)
    local key, state = first(wire)
    local answers = { [key] = YES }
    local _, foreign = first(wire, { arguments = { command = "false" } })
    local flipped = state:sub(1, 40) .. (state:sub(41, 41) == "A" and "B" or "A") .. state:sub(42)
    local sealed = core.crypto.seal(require("demilune.state").key(), '{"kind":"task"}')
    for name, wrong in pairs {
      foreign = foreign, flipped = flipped, empty = "", text = "state", long = ("x"):rep(30000), sealed = sealed,
      cut = state:sub(1, -2),
    } do
      local refused = exchange(wire, { requestState = wrong, inputResponses = answers })
      assert.are.equal(-32602, refused.error and refused.error.code, name)
      assert.is_truthy(refused.error.message:find "^requestState is not one", name)
    end
    for _, wrong in ipairs { 7, true, json.null, json.decode "{}" } do
      assert.are.equal(-32602, exchange(wire, { requestState = wrong }).error.code)
    end
    for _, wrong in ipairs { 7, "x", json.array {}, json.null } do
      assert.are.equal(-32602, exchange(wire, { requestState = state, inputResponses = wrong }).error.code)
    end
    wire.talk.principal = "local:other"
    assert.are.equal(-32602, exchange(wire, { requestState = state, inputResponses = answers }).error.code)
    wire.talk.principal = wire.world.principal
    assert.are.equal("ok", category(exchange(wire, { requestState = state, inputResponses = answers })))
    local again = exchange(wire, { requestState = state, inputResponses = answers })
    assert.is_truthy(again.error.message:find "used before")
    assert.are.equal(1, wire.world.provider:called "run")
  end))

  it("has an hour", conversation(function(wire)
    local key, state = first(wire)
    local real = task.now_ms
    local later = real() + 60 * 60 * 1000
    task.now_ms = function() return later end -- luacheck: ignore 122
    local ok, refused = pcall(exchange, wire, { requestState = state, inputResponses = { [key] = YES } })
    task.now_ms = real -- luacheck: ignore 122
    assert.is_true(ok, refused)
    assert.is_truthy(refused.error.message:find "expired")
  end))

  it("answers one question after the other, and what was answered stays answered", conversation(function(wire)
    local world = wire.world
    world.app.policy.decide = function(_, call, args)
      if call.ask_person("About " .. call.tool.name, { tool = call.tool.name, arguments = json.encode(args) }, 1) ~= "accept" then
        error(require("demilune.errors").new "approval_refused", 0)
      end
      return args
    end
    local key, state = first(wire)
    local second = exchange(wire, { requestState = state, inputResponses = { [key] = YES } }).result
    assert.are.equal("input_required", second.resultType)
    assert.is_nil(second.inputRequests[key])
    local other = next(second.inputRequests)
    assert.is_truthy(second.inputRequests[other].params.message:find "^About create_sandbox")
    -- The first answer is in the state; a later word about it counts for nothing.
    local later = { [other] = YES, [key] = { action = "decline" } }
    local done = exchange(wire, { requestState = second.requestState, inputResponses = later })
    assert.are.equal("ok", category(done))
    assert.are.equal(1, world.provider:called "create")
  end))

  it("that shows no forms is not asked", conversation(function(wire)
    for _, capabilities in ipairs { json.decode "{}", { elicitation = { url = json.decode "{}" } } } do
      assert.are.equal("approval_required", category(exchange(wire, nil, capabilities)))
      assert.is_false(wire.told.has_asker)
    end
  end))

  it("is asked anew when the call's arguments are others by then", conversation(function(wire)
    local first_key = first(wire)
    local other_key = first(wire, { arguments = { command = "other" } })
    assert.are_not.equal(first_key, other_key)
  end))
end)

describe("a form", function()
  it("gives only what its schema names, in its types", fake.run(function()
    local schema = {
      type = "object", required = json.array { "n" },
      properties = { n = { type = "integer" }, s = { type = "string", enum = json.array { "a", "b" } } },
    }
    local function ask(content)
      local request = {
        revision = "2025-11-25", capabilities = FORMS,
        call = { request = function() return { action = "accept", content = content } end },
      }
      return elicit.form(request, "m", schema, 1000)
    end
    assert.are.same({ "accept", { n = 3, s = "a" } }, { ask { n = 3.0, s = "a", x = "left out" } })
    for _, content in ipairs { { n = "3" }, { n = 3, s = "c" }, { s = "a" }, { n = 1.5 } } do
      assert.are.same({ nil, "unsupported" }, { ask(content) })
    end
  end))
end)
