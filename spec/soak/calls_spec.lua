-- timeout: 600
--- Many calls leave memory and descriptors where they were, in the server and in the engine.

local demilune = require "spec.support.demilune"
local leftovers = require "spec.support.leftovers"
local steady = require "spec.support.steady"

local function engine_of(server)
  for _, process in ipairs(leftovers.mentioning(server.home)) do
    if process.pid ~= server.pid then return process.pid end
  end
  return nil
end

describe("a server", function()
  local server

  before_each(function()
    server = demilune.start()
    server:initialize("2025-11-25")
  end)

  after_each(function() server:stop() end)

  it("keeps its size over 10,000 calls that fail and as many lists and pings", function()
    steady.check("calls of get_sandbox", server.pid, 2000, 10000, function()
      local content, err = server:call("get_sandbox")
      assert.is_nil(content)
      assert.are.equal("no_default_sandbox", err.category)
    end)
    steady.check("pings", server.pid, 100, 10000, function() assert(server:request("ping")) end)
    steady.check("tools/list", server.pid, 100, 2000, function() assert(server:request("tools/list")) end)
  end)

  it("keeps its size over lines that are no messages", function()
    steady.check("bad lines", server.pid, 500, 10000, function(i)
      server:send_line(i % 2 == 0 and "no json" or '{"jsonrpc":"2.0","id":null,"method":7}')
      assert.is_table(server:read_message().error)
    end)
  end)

  it("keeps its size and the engine's over 10,000 calls that work", function()
    assert(server:call("create_sandbox"))
    local engine = assert(engine_of(server))
    local engine_before
    steady.check("calls in a sandbox", server.pid, 400, 10000, function(i)
      if i == 1 then engine_before = steady.measure(engine) end
      local kind = i % 4
      if kind == 0 then
        assert(server:call("get_sandbox"))
      elseif kind == 1 then
        assert(server:call("write_file", { path = "f" .. i % 10, content = ("x"):rep(i % 2000) }))
      elseif kind == 2 then
        assert(server:call("read_file", { path = "f" .. (i - 1) % 10 }))
      else
        assert.are.equal("hi\n", assert(server:call("run_command", { command = "echo hi" })).stdout)
      end
    end)
    local engine_after = steady.measure(engine)
    print(("note: the engine meanwhile: %d -> %d KB"):format(engine_before.kb, engine_after.kb))
    assert.is_true(engine_after.kb - engine_before.kb <= steady.GROWTH_MAX_KB)
    assert.are.equal(engine_before.fds, engine_after.fds)
  end)

  it("keeps its size and the engine's over 300 sandboxes", function()
    assert(server:call("create_sandbox"))
    local engine = assert(engine_of(server))
    assert(server:call("kill_sandbox"))
    local before
    steady.check("sandboxes", server.pid, 30, 300, function(i)
      if i == 1 then before = steady.measure(engine) end
      assert(server:call("create_sandbox"))
      assert(server:call("run_command", { command = "true" }))
      assert(server:call("kill_sandbox"))
    end)
    local after = steady.measure(engine)
    assert.is_true(after.kb - before.kb <= steady.GROWTH_MAX_KB, ("the engine grew by %d KB"):format(after.kb - before.kb))
    assert.are.equal(before.fds, after.fds)
  end)
end)
