-- timeout: 900
--- Many calls of a provider leave memory and descriptors where they were.

local cloud = require "spec.support.cloud"
local steady = require "spec.support.steady"

describe("a server with a cloud provider", function()
  local service, server

  before_each(function()
    if not cloud.node() then return end
    service = cloud.start()
    service:tell { record = false }
    server = service:serve()
  end)

  after_each(function()
    if not service then return end
    server:stop()
    service:stop()
    service, server = nil, nil
  end)

  it("keeps its size over 10,000 calls", function()
    if not service then return pending "spec/peers is not installed" end
    assert(server:call("create_sandbox"))
    steady.check("calls of a provider", server.pid, 500, 10000, function(i)
      local kind = i % 5
      if kind == 0 then
        assert(server:call("get_sandbox"))
      elseif kind == 1 then
        assert(server:call("write_file", { path = "f" .. i % 10, content = ("x"):rep(i % 2000) }))
      elseif kind == 2 then
        assert(server:call("read_file", { path = "f" .. (i - 1) % 10 }))
      elseif kind == 3 then
        assert(server:call("list_files", { path = "/home/user" }))
      else
        assert.are.equal("hi\n", assert(server:call("run_command", { command = "echo hi" })).stdout)
      end
    end)
  end)

  it("keeps its size over 2,000 sandboxes, each with a token of its own", function()
    if not service then return pending "spec/peers is not installed" end
    steady.check("sandboxes of a provider", server.pid, 300, 2000, function()
      assert(server:call("create_sandbox"))
      assert(server:call("kill_sandbox"))
    end)
    assert.are.equal(0, #service:tell { get = "ids" })
  end)

  it("keeps its size over 2,000 calls that a provider fails", function()
    if not service then return pending "spec/peers is not installed" end
    assert(server:call("create_sandbox"))
    local faults = {
      { status = 500 }, { status = 429 }, { status = 400, body = { code = 400 } }, { reset = "body" }, { truncate = 10 },
    }
    for at, fault in ipairs(faults) do
      fault.op = "read"
      service:tell { faults = { fault } }
      steady.check("failed calls, form " .. at, server.pid, 100, 400, function()
        assert.is_nil((server:call("download_file", { path = "/etc/passwd" })))
      end)
    end
    service:tell { faults = {} }
  end)
end)
