--- A state folder below one that another user may rename got another's socket in the engine's place, and with it every
--- command and variable. Now ancestors are checked, and the other end of a unix socket before a byte is sent.

local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

local NOBODY = 65534
local LISTENER = [[
import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])
os.setgid(%d); os.setuid(%d)
s.listen(5); s.settimeout(5)
print("ready", flush=True)
c, _ = s.accept(); c.settimeout(5); print("got %%d bytes" %% len(c.recv(100)), flush=True)
]]

local is_root = os_calls.getuid and os_calls.getuid() == 0 or io.popen("id -u"):read("l") == "0"

describe("a foreign user above the state folder", function()
  local home

  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  it("is refused by name, without a step further", function()
    if not is_root then return pending("only root can make a folder of another user") end
    os.execute(("chown %d %s/state"):format(NOBODY, home))
    local pipe = io.popen(("XDG_STATE_HOME=%s/state %s call run_command '{\"command\":\"true\"}' 2>&1"):format(
      home, require("spec.support.build").dir .. "/demilune"))
    local text = pipe:read("a")
    local _, _, code = pipe:close()
    os.execute(("chown 0 %s/state"):format(home))
    assert.are.equal(1, code)
    assert.truthy(text:find("can be changed by other users", 1, true))
  end)

  it("who listens on a socket gets no byte of a request", function()
    if not is_root then return pending("only root can become another user") end
    local core = require "demilune.core"
    local script = home .. "/listen.py"
    local file = assert(io.open(script, "w"))
    file:write(LISTENER:format(NOBODY, NOBODY))
    file:close()
    local pipe = io.popen(("python3 %s %s/s 2>&1"):format(script, home))
    local first = pipe:read("l")
    assert.are.equal("ready", first, first ~= "ready" and pipe:read("a") or nil)
    core.task.run(function()
      local res, err = core.http.request {
        method = "GET", url = "http://localhost/", unix_socket = home .. "/s", headers = {}, timeout_ms = 2000,
        max_body_bytes = 1000,
      }
      assert.is_nil(res)
      assert.are.equal("connection_failed", err.category)
      core.http.close_idle()
    end)
    assert.are.equal("got 0 bytes", pipe:read("l"))
    pipe:close()
  end)
end)
