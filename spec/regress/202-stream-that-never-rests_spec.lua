-- timeout: 90
--- A provider whose stream always had more to say kept the loop from everything else: no deadline, no cancel, no other
--- call, no end of stdin and no signal was seen any more.

local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

describe("a stream that never rests", function()
  local server, pid, port

  setup(function()
    local out = os.tmpname()
    local fd = assert(io.open(out, "w"))
    fd:close()
    pid = assert(os_calls.spawn({ "/bin/sh", "-c", "exec /usr/bin/python3 spec/regress/flood.py >" .. out },
      { "PATH=/usr/bin:/bin" }, nil, -1, -1, 2))
    local deadline = os_calls.now_ms() + 10000
    repeat
      os_calls.sleep_ms(20)
      port = io.lines(out)()
    until port or os_calls.now_ms() > deadline
    os.remove(out)
    server = demilune.start {
      env = { SPEC_FLOOD_KEY = "e2b_0123456789abcdef0123456789abcdef" },
      config = ([[return {
        providers = { { id = "c", type = "e2b", credential = "k",
          api_url = "http://127.0.0.1:%s", sandbox_url = "http://127.0.0.1:%s" } },
        credentials = { k = { source = "env:SPEC_FLOOD_KEY" } } }]]):format(port, port),
    }
    server:initialize()
  end)

  teardown(function()
    server:stop()
    os_calls.kill(-pid, 9)
    while not os_calls.wait(pid) do os_calls.sleep_ms(1) end
  end)

  it("keeps no other call waiting, ends at its deadline, and lets the server go", function()
    assert(server:call("create_sandbox", {}))
    local id = server:send("tools/call", { name = "run_command", arguments = { command = "yes", timeout = 1 } })
    for _ = 1, 10 do
      local from = os_calls.now_ms()
      assert(server:request("ping", nil, 5000))
      assert.is_true(os_calls.now_ms() - from < 2000)
      os_calls.sleep_ms(100)
    end
    local answer = assert(server:receive(id, 30000))
    assert.is_true(answer.result.isError)
    server:send("tools/call", { name = "run_command", arguments = { command = "yes" } })
    os_calls.sleep_ms(300)
    local from = os_calls.now_ms()
    server:close_stdin()
    assert(server:wait(5000))
    assert.is_true(os_calls.now_ms() - from < 3000)
  end)
end)
