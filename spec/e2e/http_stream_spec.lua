-- timeout: 180
--- `demilune serve --http`: streams of events: what comes before a result, what is taken up again, what is taken back.

local client = require "spec.e2e.http_client"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

local json, task = core.json, core.task
local SIGHUP = 1
local TOOL = [[
return {
  name = "count", description = "%s", effect = "read",
  input = { properties = { to = { type = "integer" }, wait_ms = { type = "integer" } } },
  handler = function(call, args)
    for i = 1, args.to or 3 do
      call:progress("step " .. i)
      call:sleep((args.wait_ms or 250) / 1000)
    end
    return { text = "counted" }
  end,
}
]]
local POLICY = [[
return { default = "allow", rules = { { name = "careful", match = "list_sandboxes", ask = "May it be listed?" } } }
]]

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function count(arguments, id, token)
  local body = client.call("count", arguments, id)
  body.params._meta = { progressToken = token or "t" }
  return body
end

describe("streams of serve --http", function()
  local home, server

  setup(function()
    home = demilune.home()
    write(home .. "/count.lua", TOOL:format "Counts.")
    write(home .. "/policy.lua", POLICY)
    server = client.start { home = home,
      config = ("return { tools = { %q }, policy = %q }"):format(home .. "/count.lua", home .. "/policy.lua") }
  end)

  teardown(function()
    server:stop()
    demilune.remove_home(home)
  end)

  local function open(headers, body)
    return client.open(server, "POST", client.with(client.PLAIN, headers), body)
  end

  local function listen(headers, event_id)
    return client.open(server, "GET", client.with(headers, { Accept = "text/event-stream", ["Last-Event-ID"] = event_id }))
  end

  it("begin as soon as a call has something to say, with an empty event where the client knows those", function()
    client.run(function()
      for revision, has_priming in pairs { ["2025-06-18"] = false, ["2025-11-25"] = true } do
        local _, headers = client.session(server, revision)
        local stream = open(headers, count { to = 2 })
        assert.are.equal(200, stream.status)
        assert.are.equal("text/event-stream", stream.headers["content-type"])
        assert.are.equal("no", stream.headers["x-accel-buffering"])
        local first = stream:next()
        assert.are.equal(has_priming, first.data == "")
        if has_priming then
          assert.is_truthy(first.id and first.retry)
          first = stream:next()
        end
        assert.are.equal("notifications/progress", first.message.method)
        assert.are.equal("t", first.message.params.progressToken)
        local last
        repeat last = stream:next() until last.message.result
        assert.are.equal("counted", last.message.result.structuredContent.text)
        assert.is_nil(stream:next())
      end
    end)
  end)

  it("are not begun for a call that has nothing to say, nor for a client that takes none", function()
    client.run(function()
      local send = client.session(server)
      local res = send(client.call("count", { to = 1, wait_ms = 1 }))
      assert.are.equal("application/json", res.headers["content-type"])
      res = send(count { to = 1, wait_ms = 300 }, { Accept = "application/json" })
      assert.are.equal("application/json", res.headers["content-type"])
      assert.are.equal("counted", json.decode(res.body).result.structuredContent.text)
    end)
  end)

  it("are taken up where their connection broke, each alone, and again", function()
    client.run(function()
      local _, headers = client.session(server)
      local one, two = open(headers, count({ to = 4 }, 11, "one")), open(headers, count({ to = 4 }, 12, "two"))
      local event
      repeat event = one:next() until event.message
      one:close()
      repeat local other = two:next() until other.message
      two:close()
      for _ = 1, 2 do
        local again, seen = listen(headers, event.id), 0
        local last
        for got in function() return again:next() end do
          last = got
          if got.message.method then
            assert.are.equal("one", got.message.params.progressToken)
            seen = seen + 1
          end
        end
        assert.are.same({ 11, "counted" }, { last.message.id, last.message.result.structuredContent.text })
        assert.is_true(seen >= 1)
      end
      assert.are.equal(400, listen(headers, "99-1").status)
      assert.are.equal(400, listen(headers, "nonsense").status)
      local _, others = client.session(server)
      assert.are.equal(400, listen(others, event.id).status)
    end)
  end)

  it("of a session tell what belongs to no call, to one reader at a time", function()
    client.run(function()
      local _, headers = client.session(server)
      local news = listen(headers)
      assert.are.equal("", news:next().data)
      assert.are.equal(409, listen(headers).status)
      write(home .. "/count.lua", TOOL:format "Counts, differently.")
      server:signal(SIGHUP)
      assert.are.equal("notifications/tools/list_changed", news:next().message.method)
      news:close()
    end)
  end)

  it("carry questions to the person at the client, whose answer is a request of its own", function()
    client.run(function()
      local send, headers = client.session(server, "2025-11-25", { elicitation = { form = json.decode "{}" } })
      for answer, category in pairs { accept = false, decline = "approval_refused" } do
        local stream = open(headers, client.call("list_sandboxes", {}, 5))
        local asked
        repeat asked = stream:next() until asked.message
        assert.are.equal("elicitation/create", asked.message.method)
        assert.are.equal(202, send {
          jsonrpc = "2.0", id = asked.message.id,
          result = { action = answer, content = answer == "accept" and { approve = true } or nil },
        }.status)
        local done = stream:next().message
        assert.are.equal(5, done.id)
        local err = done.result._meta and done.result._meta["dev.demilune/error"]
        assert.are.equal(category, err and err.category or false)
      end
    end)
  end)

  it("end without an answer when the client takes its call back", function()
    client.run(function()
      local send, headers = client.session(server)
      local stream = open(headers, count({ to = 40 }, "long"))
      repeat local event = stream:next() until event.message
      assert.are.equal(202, send {
        jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = "long" },
      }.status)
      local from = os_calls.now_ms()
      local event
      repeat
        event = stream:next()
        assert.is_nil(event and event.message and event.message.result)
      until not event
      assert.is_true(os_calls.now_ms() - from < 3000)
      assert.are.equal(200, send(client.message "ping").status)
    end)
  end)

  it("of 2026-07-28 have no ids, and whoever closes one takes the call back", function()
    client.run(function()
      local function ask(tool, arguments, token)
        return client.modern("tools/call", {
          name = tool, arguments = arguments, _meta = { progressToken = token },
        }, tool)
      end
      local body, headers = ask("count", { to = 2 }, "m")
      local stream = open(headers, body)
      local event = stream:next()
      assert.are.equal("notifications/progress", event.message.method)
      assert.is_nil(event.id)
      repeat event = stream:next() until event.message.result
      assert.are.equal("complete", event.message.result.resultType)
      assert.is_nil(stream:next())

      local function command(text)
        local asked, fields = ask("run_command", { command = text })
        return json.decode(client.post(server, asked, fields).body).result
      end
      if command("true").isError then pending "this machine cannot isolate a sandbox" end
      body, headers = ask("run_command", { command = "echo begun; exec sleep 97" }, "x")
      stream = open(headers, body)
      repeat event = stream:next() until event.message.method == "notifications/progress"
      stream:close()
      local left
      local deadline = os_calls.now_ms() + 3000
      repeat
        task.sleep(100)
        left = command("pgrep -cf '[s]leep 97'").structuredContent.stdout
      until left == "0\n" or os_calls.now_ms() > deadline
      assert.are.equal("0\n", left)
    end)
  end)
end)
