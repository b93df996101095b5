-- timeout: 120
--- One client with a thousand commands at work took every connection that its server could make: no sandbox could be
--- created, listed or ended any more, by it or with it. Commands have a bounded number of places now, and only they.

local cjson = require "cjson"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

local PLACES = 768
local CALLS = 900
local SANDBOXES = 6

describe("a server with more commands than it has places", function()
  local server

  teardown(function() if server then server:stop() end end)

  it("refuses what is too much, and starts, lists and ends sandboxes meanwhile", function()
    server = demilune.start {
      config = 'return { providers = { { id = "local", type = "local", templates = { base = { disk = 16, pids = 4096 } } } } }',
    }
    server:initialize()
    local ids = {}
    for i = 1, SANDBOXES do
      local content, err = server:call("create_sandbox", {}, 30000)
      if not content then return pending("no sandbox here: " .. err.category) end
      ids[i] = content.sandbox_id
    end
    local sent = {}
    for i = 1, CALLS do
      sent[i] = server:send("tools/call", {
        name = "run_command", arguments = { command = "exec sleep 600", timeout = 600, sandbox_id = ids[i % SANDBOXES + 1] },
      })
    end
    local refused = 0
    for i = PLACES + 1, CALLS do
      local result = server:receive(sent[i], 60000).result
      assert.are.equal("quota_exceeded", result._meta["dev.demilune/error"].category)
      refused = refused + 1
    end
    assert.are.equal(CALLS - PLACES, refused)
    local from = os_calls.now_ms()
    assert.are.equal(SANDBOXES, #assert(server:call "list_sandboxes").sandboxes)
    assert(server:call("create_sandbox", {}, 10000))
    local other = demilune.start { home = server.home }
    other:initialize()
    local content, err = other:call("run_command", { command = "echo here" }, 10000)
    assert.are.equal("here\n", content and content.stdout, err and cjson.encode(err))
    other:stop()
    for _, id in ipairs(ids) do assert.is_true(assert(server:call("kill_sandbox", { sandbox_id = id }, 10000)).existed) end
    assert.is_true(os_calls.now_ms() - from < 20000)
    for i = 1, PLACES do
      assert.are.equal("sandbox_gone", server:receive(sent[i], 20000).result._meta["dev.demilune/error"].category)
    end
  end)
end)
