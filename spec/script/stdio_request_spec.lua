--- core.stdio, what a call asks its client: the answer finds its way, whatever else comes, and nothing waits for ever.

local cjson = require "cjson"
local core = require "demilune.core"
local stdio, sys, task = core.stdio, core.sys, core.task

local RPC = '{"jsonrpc":"2.0",'

--- Runs `body(wire)` beside a connection whose requests run `handler(call, method, params)`. wire: send(line),
--- receive(timeout_ms?) -> message, quiet() (nothing comes), finish() (end of input), io.
local function connected(handler, body, options)
  return task.run(function()
    local in_read, in_write = assert(sys.pipe())
    local out_read, out_write = assert(sys.pipe())
    local reader, rest, wire = assert(sys.reader(out_read)), "", {}
    local start = { in_fd = in_read, out_fd = out_write, on_request = handler }
    for key, value in pairs(options or {}) do start[key] = value end
    wire.io = assert(stdio.serve(start))
    function wire.receive(timeout_ms)
      while not rest:find "\n" do
        local chunk, err = reader:read(timeout_ms or 5000)
        if not chunk then return nil, err and err.category or "end" end
        rest = rest .. chunk
      end
      local line
      line, rest = rest:match "^([^\n]*)\n(.*)$"
      return cjson.decode(line)
    end
    function wire.send(line) assert(sys.write(in_write, RPC .. line .. "}\n")) end
    function wire.raw(bytes) assert(sys.write(in_write, bytes)) end
    function wire.quiet()
      local message, why = wire.receive(30)
      assert.are.equal("provider_timeout", why, message and cjson.encode(message))
    end
    function wire.finish()
      if in_write then sys.close(in_write) end
      in_write = nil
    end
    local ok, err = pcall(body, wire)
    wire.io:close()
    reader:close()
    wire.finish()
    if not ok then error(err, 0) end
  end)
end

--- A handler that asks once and answers with what came of it.
local function asking(timeout_ms)
  return function(call)
    local result, err = call:request("elicitation/create", '{"message":"m"}', timeout_ms or 5000)
    call:reply(core.json.encode { result = result, err = err and err.category })
  end
end

local function answer(id, rest) return ('"id":"%s",%s'):format(id, rest) end

describe("call:request", function()
  it("sends a request with an id of ours and gives its result", function()
    connected(asking(), function(wire)
      wire.send '"id":"dml-1","method":"m"'
      local asked = wire.receive()
      assert.are.same({ jsonrpc = "2.0", id = "dml-1", method = "elicitation/create", params = { message = "m" } }, asked)
      wire.send(answer("dml-1", '"result":{"action":"accept","n":[1.5,null]}'))
      local done = wire.receive()
      assert.are.equal("dml-1", done.id) -- the client's own id, which may look as it likes
      assert.are.same({ action = "accept", n = { 1.5, cjson.null } }, done.result.result)
      wire.send '"id":2,"method":"m"'
      assert.are.equal("dml-2", wire.receive().id)
    end)
  end)

  it("takes an error for an error, keeps none of its words, and takes no result that is no object", function()
    for rest, category in pairs {
      ['"error":{"code":-32601,"message":"canary-words"}'] = "provider_rejected",
      ['"error":"canary-words"'] = "provider_rejected",
      ['"result":[]'] = "invalid_response", ['"result":"canary-words"'] = "invalid_response",
      ['"result":null'] = "invalid_response", ['"result":{},"error":{}'] = "invalid_response",
    } do
      connected(asking(), function(wire)
        wire.send '"id":1,"method":"m"'
        wire.send(answer(wire.receive().id, rest))
        local done = wire.receive()
        assert.are.equal(category, done.result.err, rest)
        assert.is_nil(cjson.encode(done):find("canary", 1, true))
      end)
    end
  end)

  it("ignores answers to nothing, of other types, twice and after the end", function()
    connected(asking(), function(wire)
      wire.send(answer("dml-1", '"result":{}')) -- before anything was asked
      wire.send '"id":1,"method":"m"'
      assert.are.equal("dml-1", wire.receive().id)
      for _, line in ipairs {
        '"id":"dml-2","result":{}', '"id":1,"result":{}', '"id":null,"result":{}', '"result":{}', '"id":"","error":{}',
        '"id":"dml-1\\u0000","result":{}', '"id":["dml-1"],"result":{}', '"id":"DML-1","result":{}',
      } do
        wire.send(line)
        wire.quiet()
      end
      wire.send(answer("dml-1", '"result":{"first":true}'))
      wire.send(answer("dml-1", '"result":{"first":false}'))
      assert.is_true(wire.receive().result.result.first)
      wire.send(answer("dml-1", '"result":{}'))
      wire.quiet()
    end)
  end)

  it("ends at its deadline and tells the client", function()
    connected(asking(20), function(wire)
      wire.send '"id":1,"method":"m"'
      local id = wire.receive().id
      assert.are.same({ jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = id } }, wire.receive())
      assert.are.equal("provider_timeout", wire.receive().result.err)
      wire.send(answer(id, '"result":{}'))
      wire.quiet()
    end)
  end)

  it("is taken back with the call that it belongs to", function()
    local seen = {}
    connected(function(call)
      local ok, err = pcall(call.request, call, "m", "{}", 5000)
      seen.raised = not ok and err
      seen.after, seen.err = call:request("m", "{}", 5000)
    end, function(wire)
      wire.send '"id":7,"method":"m"'
      assert.are.equal("dml-1", wire.receive().id)
      wire.send '"method":"notifications/cancelled","params":{"requestId":7}'
      assert.are.same({ requestId = "dml-1" }, wire.receive().params)
      wire.quiet()
      assert.are.equal(task.CANCELLED, seen.raised)
      assert.are.equal("stopped", seen.err.category)
    end)
  end)

  it("ends with the call when another task waits for it", function()
    local ended = {}
    connected(function(call)
      ended.task = task.spawn(function()
        local _, err = call:request("m", "{}", 5000)
        return err.category
      end)
      task.sleep(5)
      call:reply "{}"
    end, function(wire)
      wire.send '"id":1,"method":"m"'
      local messages = { wire.receive(), wire.receive(), wire.receive() }
      assert.are.equal("dml-1", messages[1].id)
      assert.are.equal(1, messages[2].id)
      assert.are.equal("dml-1", messages[3].params.requestId)
      local _, category = ended.task:wait(1000)
      assert.are.equal("connection_failed", category)
    end)
  end)

  it("ends when the client is gone, and when the connection is closed", function()
    for _, how in ipairs { "finish", "close" } do
      local category = task.event()
      local got
      connected(function(call)
        local _, err = call:request("m", "{}", 5000)
        got = err.category
        category:set()
      end, function(wire)
        wire.send '"id":1,"method":"m"'
        wire.receive()
        if how == "finish" then wire.finish() else wire.io:close() end
        assert.is_true(category:wait(1000))
        assert.are.equal("connection_failed", got)
      end)
    end
  end)

  it("has 64 waiting at a time", function()
    local counts = {}
    connected(function(call)
      for _ = 1, 65 do
        task.spawn(function()
          local _, err = call:request("m", "{}", 5000)
          counts[err.category] = (counts[err.category] or 0) + 1
        end)
      end
      task.sleep(20)
      call:reply "{}"
    end, function(wire)
      wire.send '"id":1,"method":"m"'
      for _ = 1, 64 do assert.are.equal("m", wire.receive().method) end
      assert.are.equal(1, wire.receive().id)
      task.sleep(5)
      assert.are.same({ quota_exceeded = 1, connection_failed = 64 }, counts)
    end)
  end)

  it("ends at an answer over the limit of a line, and others are refused as before", function()
    connected(asking(), function(wire)
      wire.send '"id":1,"method":"m"'
      local id = wire.receive().id
      wire.raw(RPC .. answer(id, ('"result":{"x":"%s"}}\n'):format(("y"):rep(2000))))
      assert.are.equal("too_large", wire.receive().result.err)
      wire.raw(RPC .. answer(id, ('"result":{"x":"%s"}}\n'):format(("y"):rep(2000))))
      local refused = wire.receive()
      assert.are.same({ id, -32600 }, { refused.id, refused.error.code })
    end, { line_max_bytes = 1000 })
  end)

  it("refuses what is no question", function()
    local faults = {}
    connected(function(call)
      for i, arguments in ipairs { { "m", "{}", 0 }, { "m", "{}", 1e12 }, { "m", ("x"):rep(1024 * 1024 + 1), 1 }, { "m" } } do
        faults[i] = not pcall(call.request, call, table.unpack(arguments))
      end
      call:reply "{}"
    end, function(wire)
      wire.send '"id":1,"method":"m"'
      assert.are.equal(1, wire.receive().id)
      assert.are.same({ true, true, true, true }, faults)
    end)
  end)

  it("works over a socket that is both descriptors, and closes it once", function()
    task.run(function()
      local ours, theirs = assert(sys.socketpair())
      local io = assert(stdio.serve { in_fd = ours, out_fd = ours, on_request = asking() })
      local reader = assert(sys.reader(theirs))
      assert(sys.write(theirs, RPC .. '"id":1,"method":"m"}\n'))
      assert.are.equal("dml-1", cjson.decode(reader:read(1000)).id)
      assert(sys.write(theirs, RPC .. answer("dml-1", '"result":{"a":1}') .. "}\n"))
      assert.are.equal(1, cjson.decode(reader:read(1000)).result.result.a)
      io:close()
      assert.is_nil((reader:read(1000)))
      reader:close()
    end)
  end)
end)
