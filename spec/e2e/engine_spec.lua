-- timeout: 120
--- Servers and the engine they share: one is started, whoever asks first, and nothing outlives a kill -9 of either.

local demilune = require "spec.support.demilune"
local leftovers = require "spec.support.leftovers"
local os_calls = require "spec_os"
local support = require "spec.e2e.tools_support"

local SIGKILL = 9
local SERVERS, EACH = 4, 5

local function server_in(home) return support.server { home = home } end

--- Engines of this home, by their command line.
local function engines(home)
  local found = {}
  for _, process in ipairs(leftovers.mentioning(home)) do
    local file = io.open(("/proc/%d/cmdline"):format(process.pid))
    local words = file and file:read("a") or ""
    if file then file:close() end
    if words:find("\0engine\0", 1, true) then found[#found + 1] = process.pid end
  end
  return found
end

describe("servers of one user", function()
  local home, servers

  before_each(function() home, servers = demilune.home(), {} end)
  after_each(function()
    for _, server in ipairs(servers) do server:stop() end
    demilune.stop_engine(home)
    demilune.remove_home(home)
  end)

  it("that create at once start one engine, and all of it works", function()
    local ids = {}
    for i = 1, SERVERS do servers[i] = server_in(home) end
    for i, server in ipairs(servers) do
      ids[i] = {}
      for k = 1, EACH do ids[i][k] = server:send("tools/call", { name = "create_sandbox", arguments = {} }) end
    end
    local made = {}
    for i, server in ipairs(servers) do
      for _, id in ipairs(ids[i]) do
        local answer = server:receive(id, 30000)
        assert.is_falsy(answer.result.isError, answer.result.content[1].text)
        made[answer.result.structuredContent.sandbox_id] = true
      end
    end
    local count = 0
    for _ in pairs(made) do count = count + 1 end
    assert.are.equal(SERVERS * EACH, count)
    assert.are.equal(1, #engines(home))
  end)

  it("leave nothing of 20 creations of which half are refused, and nothing at their end", function()
    local server = server_in(home)
    servers[1] = server
    local sent = {}
    for i = 1, 20 do
      local arguments = i % 2 == 0 and { template = "no-such-template" } or {}
      sent[i] = server:send("tools/call", { name = "create_sandbox", arguments = arguments })
    end
    local fine = 0
    for i = 1, 20 do
      local result = server:receive(sent[i], 30000).result
      if not result.isError then fine = fine + 1 end
    end
    assert.are.equal(10, fine)
    assert.are.equal(10, #support.must(server, "list_sandboxes", {}).sandboxes)
    local engine = engines(home)[1]
    server:close_stdin()
    server:wait(3000)
    assert.is_true(support.eventually(function() return #leftovers.tree(engine) <= 1 end))
  end)

  it("take their sandboxes along when they are killed, and so does the engine", function()
    for round = 1, 2 do
      local server = server_in(home)
      servers[#servers + 1] = server
      support.must(server, "create_sandbox", {})
      local engine = engines(home)[1]
      local inside = {}
      for _, process in ipairs(leftovers.tree(engine)) do
        if process.pid ~= engine then inside[#inside + 1] = process end
      end
      assert.is_true(#inside > 0)
      os_calls.kill(round == 1 and server.pid or engine, SIGKILL)
      assert.is_true(support.eventually(function() return #leftovers.alive(inside) == 0 end))
    end
    local after = server_in(home)
    servers[#servers + 1] = after
    assert.are.equal("hi\n", support.must(after, "run_command", { command = "echo hi" }).stdout)
    assert.are.equal(1, #support.must(after, "list_sandboxes", {}).sandboxes)
  end)
end)
