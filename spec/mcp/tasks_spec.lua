--- mcp/tasks: calls behind a handle, in the shape of each revision, and nobody else's.
local core = require "demilune.core"
local deferred = require "demilune.deferred"
local wire = require "spec.mcp.wire"

local json, task = core.json, core.task

local TAKES = { extensions = { ["io.modelcontextprotocol/tasks"] = json.decode "{}" } }
local EMPTY = json.decode "{}"

local function run_command(command)
  return { name = "run_command", arguments = { command = command or "true" } }
end

--- Lets a provider's run wait until the returned event is set.
local function hold(one)
  one.world.provider.hold.run = task.event()
  return one.world.provider.hold.run
end

local function eventually(check)
  local until_ms = task.now_ms() + 5000
  while not check() do
    assert(task.now_ms() < until_ms, "it did not happen in time")
    task.sleep(5)
  end
end

local function as_task(ttl)
  local params = run_command()
  params.task = { ttl = ttl }
  return params
end

describe("tasks of 2025-11-25", function()
  it("are declared by server and tools, to that revision alone", wire.case(function(one)
    assert.are.same({ list = {}, cancel = {}, requests = { tools = { call = {} } } },
      one:initialize("2025-11-25").capabilities.tasks)
    local support = {}
    for _, tool in ipairs(one:request("tools/list").result.tools) do
      support[tool.name] = tool.execution and tool.execution.taskSupport
    end
    assert.are.same({ run_command = "optional", run_code = "optional", create_sandbox = "optional" }, support)
  end))

  it("are unknown to the revisions before", wire.case(function(one)
    assert.is_nil(one:initialize("2025-06-18").capabilities.tasks)
    for _, tool in ipairs(one:request("tools/list").result.tools) do assert.is_nil(tool.execution) end
    for _, method in ipairs { "get", "list", "cancel", "result" } do
      assert.are.equal(-32601, one:request("tasks/" .. method, { taskId = "x" }).error.code)
    end
    assert.is_false(one:request("tools/call", as_task()).result.isError)
  end))

  it("answer at once, and give the result to whoever waits for it", wire.case(function(one)
    one:initialize "2025-11-25"
    local held = hold(one)
    local made = one:request("tools/call", as_task(120000)).result.task
    assert.are.same({ "working", 120000, 1000 }, { made.status, made.ttl, made.pollInterval })
    assert.is_truthy(made.createdAt:find "^%d%d%d%d%-%d%d%-%d%dT")
    local id = made.taskId
    assert.are.equal("working", one:request("tasks/get", { taskId = id }).result.status)
    local waiting = one:ask("tasks/result", { taskId = id })
    task.sleep(20)
    held:set()
    local done
    repeat
      done = assert(one:receive())
      one.others[#one.others + 1] = done
    until done.id == waiting
    assert.is_false(done.result.isError)
    assert.are.equal(id, done.result._meta["io.modelcontextprotocol/related-task"].taskId)
    assert.are.equal(0, done.result.structuredContent.exit_code)
    assert.are.equal("completed", one:request("tasks/get", { taskId = id }).result.status)
    assert.are.same(done.result, one:request("tasks/result", { taskId = id }).result)
    local told = {}
    for _, message in ipairs(one.others) do
      if message.method == "notifications/tasks/status" then told[#told + 1] = message.params.status end
    end
    assert.are.same({ "completed" }, told)
  end))

  it("keep a tool's error as a result", wire.case(function(one)
    one:initialize "2025-11-25"
    one.world.provider.fail.run = "unavailable"
    local id = one:request("tools/call", as_task()).result.task.taskId
    assert.is_true(one:request("tasks/result", { taskId = id }).result.isError)
    assert.are.equal("completed", one:request("tasks/get", { taskId = id }).result.status)
  end))

  it("are stopped by tasks/cancel, once", wire.case(function(one)
    one:initialize "2025-11-25"
    hold(one)
    local id = one:request("tools/call", as_task()).result.task.taskId
    eventually(function() return one.world.provider:called "run" == 1 end)
    assert.are.equal("cancelled", one:request("tasks/cancel", { taskId = id }).result.status)
    assert.are.equal(-32602, one:request("tasks/cancel", { taskId = id }).error.code)
    assert.are.equal("cancelled", one:request("tasks/get", { taskId = id }).result.status)
    assert.is_table(one:request("tasks/result", { taskId = id }).error)
    eventually(function() return one.world.app.deferred:running_count(one.world.principal) == 0 end)
  end))

  it("are refused where the tool does not allow them, or the arguments are none", wire.case(function(one)
    one:initialize "2025-11-25"
    local params = { name = "get_sandbox", arguments = EMPTY, task = EMPTY }
    assert.are.equal(-32601, one:request("tools/call", params).error.code)
    assert.are.equal(-32602, one:request("tools/call", { name = "none", arguments = EMPTY, task = EMPTY }).error.code)
    for _, wrong in ipairs { json.array {}, 1, "x", { ttl = "1" }, { ttl = -1 } } do
      params = run_command()
      params.task = wrong
      assert.are.equal(-32602, one:request("tools/call", params).error.code)
    end
    for _, id in ipairs { 1, "x", EMPTY } do
      for _, method in ipairs { "get", "cancel", "result" } do
        assert.are.equal(-32602, one:request("tasks/" .. method, { taskId = id }).error.code)
      end
    end
    assert.are.equal(0, #one:request("tasks/list").result.tasks)
  end))

  it("are as many as background tasks may be, together", wire.case(function(one)
    one:initialize "2025-11-25"
    hold(one)
    for _ = 1, 2 do assert.is_table(one:request("tools/call", as_task()).result.task) end
    assert.are.equal(-32603, one:request("tools/call", as_task()).error.code)
    local started = one:request("tools/call", { name = "start_background_task", arguments = { command = "true" } }).result
    assert.are.equal("quota_exceeded", started._meta["dev.demilune/error"].category)
    assert.are.equal(2, #one:request("tasks/list").result.tasks)
  end, { config = { limits = { message = 16, tasks = 2 } } }))

  it("are listed newest first, in pages", wire.case(function(one)
    one:initialize "2025-11-25"
    local ids = {}
    for i = 1, 3 do ids[i] = one:request("tools/call", as_task()).result.task.taskId end
    local listed = {}
    for i, entry in ipairs(one:request("tasks/list").result.tasks) do listed[i] = entry.taskId end
    table.sort(ids)
    table.sort(listed)
    assert.are.same(ids, listed)
    assert.are.equal(-32602, one:request("tasks/list", { cursor = "x" }).error.code)
  end))

  it("end with their scope", wire.case(function(one)
    one:initialize "2025-11-25"
    hold(one)
    local id = one:request("tools/call", as_task()).result.task.taskId
    eventually(function() return one.world.provider:called "run" == 1 end)
    one.world.scope:close(1000)
    assert.are.equal(-32602, one:request("tasks/get", { taskId = id }).error.code)
    assert.are.equal(0, one.world.app.deferred:running_count(one.world.principal))
  end))
end)

describe("tasks of 2026-07-28", function()
  it("are an extension that the server declares", wire.case(function(one)
    local found = one:modern("server/discover").result.capabilities
    assert.are.same({}, found.extensions["io.modelcontextprotocol/tasks"])
    assert.is_nil(found.tasks)
  end))

  it("are given to none that does not take them", wire.case(function(one)
    assert.are.equal("complete", one:modern("tools/call", run_command()).result.resultType)
    for _, method in ipairs { "get", "update", "cancel" } do
      local err = one:modern("tasks/" .. method, { taskId = "x", inputResponses = EMPTY }).error
      assert.are.equal(-32021, err.code)
      assert.are.same(TAKES, err.data.requiredCapabilities)
    end
    for _, method in ipairs { "list", "result" } do
      assert.are.equal(-32601, one:modern("tasks/" .. method, { taskId = "x" }, TAKES).error.code)
    end
  end, { config = { task_after = 0 } }))

  it("are not made of what is quick", wire.case(function(one)
    local result = one:modern("tools/call", run_command(), TAKES).result
    assert.are.same({ "complete", false }, { result.resultType, result.isError })
  end))

  it("are made of what takes long, and hold the result", wire.case(function(one)
    local held = hold(one)
    local made = one:modern("tools/call", run_command(), TAKES).result
    assert.are.same({ "task", "working", 3600000, 1000 }, { made.resultType, made.status, made.ttlMs, made.pollIntervalMs })
    local working = one:modern("tasks/get", { taskId = made.taskId }, TAKES).result
    assert.are.same({ "complete", "working" }, { working.resultType, working.status })
    assert.is_nil(working.result)
    held:set()
    local done
    eventually(function()
      done = one:modern("tasks/get", { taskId = made.taskId }, TAKES).result
      return done.status == "completed"
    end)
    assert.are.equal(0, done.result.structuredContent.exit_code)
    assert.is_false(done.result.isError)
  end, { config = { task_after = 0 } }))

  it("go on when the request that they began with is taken back", wire.case(function(one)
    local held = hold(one)
    local made = one:modern("tools/call", run_command(), TAKES).result
    one:send { method = "notifications/cancelled", params = { requestId = one.id } }
    held:set()
    local found
    eventually(function()
      found = one:modern("tasks/get", { taskId = made.taskId }, TAKES).result
      return found.status ~= "working"
    end)
    assert.are.equal("completed", found.status)
  end, { config = { task_after = 0 } }))

  it("that are none yet end with their request", wire.case(function(one)
    hold(one)
    local params = run_command()
    params._meta = { ["io.modelcontextprotocol/protocolVersion"] = wire.MODERN,
      ["io.modelcontextprotocol/clientCapabilities"] = TAKES }
    local id = one:ask("tools/call", params)
    eventually(function() return one.world.provider:called "run" == 1 end)
    one:send { method = "notifications/cancelled", params = { requestId = id } }
    task.sleep(50)
    assert.are.equal(0, one.world.app.deferred:running_count(one.world.principal))
    one.world.provider.hold.run = nil
    assert.are.equal("complete", one:modern("tools/call", run_command(), TAKES).result.resultType)
  end))

  it("are stopped by tasks/cancel, which is taken any time", wire.case(function(one)
    hold(one)
    local id = one:modern("tools/call", run_command(), TAKES).result.taskId
    for _ = 1, 2 do
      local ack = one:modern("tasks/cancel", { taskId = id }, TAKES).result
      ack._meta = nil
      assert.are.same({ resultType = "complete" }, ack)
    end
    assert.are.equal("cancelled", one:modern("tasks/get", { taskId = id }, TAKES).result.status)
    assert.are.equal(-32602, one:modern("tasks/cancel", { taskId = "x" }, TAKES).error.code)
  end, { config = { task_after = 0 } }))

  it("are none of a session's", wire.case(function(one)
    hold(one)
    local id = one:modern("tools/call", run_command(), TAKES).result.taskId
    one:initialize "2025-11-25"
    assert.are.equal(-32602, one:request("tasks/get", { taskId = id }).error.code)
    assert.are.equal(0, #one:request("tasks/list").result.tasks)
  end, { config = { task_after = 0 } }))

  it("that find no place answer when they have ended", wire.case(function(one)
    local held = hold(one)
    for _ = 1, 2 do assert.are.equal("task", one:modern("tools/call", run_command(), TAKES).result.resultType) end
    task.spawn(function()
      task.sleep(50)
      held:set()
    end)
    assert.are.equal("complete", one:modern("tools/call", run_command(), TAKES).result.resultType)
  end, { config = { task_after = 0, limits = { message = 16, tasks = 2 } } }))
end)

--- Every run_command asks the person at the client first, and is refused without an answer of yes.
local function asking(one)
  local errors = require "demilune.errors"
  one.world.app.policy = {
    decide = function(_, call, args)
      if call.tool.name ~= "run_command" then return args end
      local shown = { tool = "run_command", arguments = "{}" }
      if call.ask_person("Run it?", shown, 60000) == "accept" then return args end
      errors.raise "approval_refused"
    end,
    shows = function() return true end, after = function(_, _, result) return result end, finish = function() end,
    sandbox_ended = function() end, sandbox_extended = function() end,
  }
end

describe("a question of a task", function()
  local FORMS = { elicitation = { form = EMPTY } }
  local YES, NO = { action = "accept", content = { approve = true } }, { action = "decline" }

  it("reaches a client of 2025-11-25 with the request for its result", wire.case(function(one)
    asking(one)
    one:initialize("2025-11-25", FORMS)
    for answer, category in pairs { [YES] = "ok", [NO] = "approval_refused" } do
      local id = one:request("tools/call", as_task()).result.task.taskId
      eventually(function() return one:request("tasks/get", { taskId = id }).result.status == "input_required" end)
      -- A request for the result that is taken back leaves the question to the next.
      local first = one:ask("tasks/result", { taskId = id })
      local asked
      repeat asked = assert(one:receive()) until asked.method == "elicitation/create"
      one:send { method = "notifications/cancelled", params = { requestId = first } }
      local second = one:ask("tasks/result", { taskId = id })
      repeat asked = assert(one:receive()) until asked.method == "elicitation/create"
      assert.are.equal(id, asked.params._meta["io.modelcontextprotocol/related-task"].taskId)
      one:send { id = asked.id, result = answer }
      local done
      repeat done = assert(one:receive()) until done.id == second
      local err = done.result._meta["dev.demilune/error"]
      assert.are.equal(category, err and err.category or "ok")
    end
  end))

  it("is shown to a client of 2026-07-28 that looks, and answered with an update", wire.case(function(one)
    asking(one)
    local takes = { extensions = TAKES.extensions, elicitation = FORMS.elicitation }
    for answer, category in pairs { [YES] = "ok", [NO] = "approval_refused" } do
      local id = one:modern("tools/call", run_command(), takes).result.taskId
      local found
      local function look(status)
        eventually(function()
          found = one:modern("tasks/get", { taskId = id }, takes).result
          return found.status == status
        end)
      end
      look "input_required"
      local key, wanted = next(found.inputRequests)
      assert.are.equal("elicitation/create", wanted.method)
      one:modern("tasks/update", { taskId = id, inputResponses = { other = YES, [key] = { action = "none" } } }, takes)
      eventually(function()
        found = one:modern("tasks/get", { taskId = id }, takes).result
        return found.status == "input_required" and not found.inputRequests[key]
      end)
      local ack = one:modern("tasks/update", { taskId = id, inputResponses = { [next(found.inputRequests)] = answer } }, takes)
      assert.are.equal("complete", ack.result.resultType)
      look "completed"
      local err = found.result._meta["dev.demilune/error"]
      assert.are.equal(category, err and err.category or "ok")
    end
    assert.are.equal(-32602, one:modern("tasks/update", { taskId = "x", inputResponses = EMPTY }, takes).error.code)
  end, { config = { task_after = 0 } }))
end)

describe("the records of deferred calls", function()
  --- `body(records, scope)` with an app's registry.
  local function case(body)
    return wire.case(function(one) body(one.world.app.deferred, one.world.scope) end)
  end

  local function add(records, scope, ttl_ms)
    return records:add { scope = scope, principal = "local:spec", era = "2026", ttl_ms = ttl_ms }
  end

  it("live within bounds", case(function(records, scope)
    assert.are.equal(deferred.TTL_MIN_MS, add(records, scope, 0).ttl_ms)
    assert.are.equal(deferred.TTL_MAX_MS, add(records, scope, 1e300).ttl_ms)
    assert.are.equal(deferred.TTL_MS, add(records, scope).ttl_ms)
  end))

  it("go when their time is over, and what works for them is stopped", case(function(records, scope)
    local record, was_cancelled = add(records, scope), false
    record.handle = { cancel = function() was_cancelled = true end }
    record.created_ms = record.created_ms - record.ttl_ms
    assert.is_nil(records:find(record.id, scope, "2026"))
    assert.is_true(was_cancelled)
    assert.are.same({}, records.records)
  end))

  it("are kept in a number and a size that is bounded, the newest", case(function(records, scope)
    local newest
    for i = 1, deferred.KEPT_MAX + 5 do
      newest = add(records, scope)
      newest.updated_ms = i
      newest:finish { result = "{}" }
      newest.updated_ms = i
    end
    add(records, scope)
    assert.are.equal(deferred.KEPT_MAX + 1, #records:list(scope, "2026"))
    assert.are.equal(newest, records:find(newest.id, scope, "2026"))
    local large = add(records, scope)
    large:finish { result = ("x"):rep(deferred.KEPT_BYTES_MAX + 1) }
    add(records, scope)
    assert.is_nil(records:find(large.id, scope, "2026"))
  end))

  it("do not change once they have ended", case(function(records, scope)
    local record = add(records, scope)
    record:cancel()
    record:finish { result = "{}" }
    assert.are.same({ "cancelled", nil }, { record.status, record.outcome })
    record:answer("x", 1)
    assert.are.equal("cancelled", record.status)
  end))

  it("ask, and take each answer once", case(function(records, scope)
    local record = add(records, scope)
    local worker = task.spawn(function() return record:ask("name", { method = "m" }) end)
    eventually(function() return record.status == "input_required" end)
    record:answer("other", "wrong")
    assert.are.equal("input_required", record.status)
    record:answer("name", "Ann")
    record:answer("name", "Bob")
    assert.are.same({ true, "Ann" }, { worker:wait(1000) })
    assert.are.equal("working", record.status)
  end))
end)
