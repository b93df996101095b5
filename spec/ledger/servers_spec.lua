-- timeout: 180
--- Counters of a policy through real servers: two of one user, a restart, a kill, a damaged file.

local demilune = require "spec.support.demilune"
local lfs = require "lfs"

local SIGKILL = 9

local home, servers

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function policy(text) write(home .. "/policy.lua", text) end

local function rules(text) policy(('return { default = "allow", rules = { %s } }'):format(text)) end

local function serve()
  local server = demilune.start { home = home, config = 'return { policy = "policy.lua" }' }
  servers[#servers + 1] = server
  server:initialize()
  return server
end

local function must(server, name, arguments)
  local content, err = server:call(name, arguments or {})
  if not content then error(("%s: %s (%s %s)"):format(name, err.category, err.rule or "", err.reason or ""), 2) end
  return content
end

local function fault(server, name, arguments)
  local content, err = server:call(name, arguments or {})
  if content then error(name .. " worked", 2) end
  return err
end

local function ledger_file()
  local dir = demilune.state_dir(home) .. "/ledger"
  for name in lfs.dir(dir) do
    if name:find "%.json$" then return dir .. "/" .. name end
  end
end

describe("the counters of servers", function()
  before_each(function() home, servers = demilune.home(), {} end)
  after_each(function()
    for _, server in ipairs(servers) do server:stop() end
    demilune.remove_home(home)
  end)

  it("are the same for all servers of a configuration, and last", function()
    rules '{ name = "paced", match = "list_sandboxes", rate = { calls = 3, per = 3600 } }'
    local one, two = serve(), serve()
    must(one, "list_sandboxes")
    must(two, "list_sandboxes")
    must(one, "list_sandboxes")
    for _, server in ipairs { one, two } do
      local err = fault(server, "list_sandboxes")
      assert.are.same({ "rate_limited", "paced", "at most 3 calls in 3600 s" }, { err.category, err.rule, err.reason })
      assert.is_true(err.retry_after > 3500 and err.retry_after <= 3661)
    end
    one:stop()
    two:stop()
    assert.are.equal("rate_limited", fault(serve(), "list_sandboxes").category)
  end)

  it("free the place of a sandbox that was killed, and of those that ended with their server", function()
    rules '{ name = "few", match = "@create", quota = { sandboxes = 1 } }'
    local one, two = serve(), serve()
    local made = must(one, "create_sandbox")
    assert.are.same({ "quota_exceeded", "few" }, { fault(two, "create_sandbox").category, fault(two, "create_sandbox").rule })
    assert.are.equal("few", fault(two, "run_command", { command = "true" }).rule)
    must(one, "kill_sandbox", { sandbox_id = made.sandbox_id })
    must(two, "run_command", { command = "true" })
    assert.are.equal("few", fault(one, "create_sandbox").rule)
    two:stop()
    must(one, "create_sandbox")
  end)

  it("free the place of a creation that failed", function()
    rules '{ name = "few", match = "@create", quota = { sandboxes = 1 } }'
    local server = serve()
    assert.are_not.equal("quota_exceeded", fault(server, "create_sandbox", { template = "nosuch" }).category)
    must(server, "create_sandbox")
  end)

  it("are told to a policy's functions", function()
    policy [[
      local policy = { default = "allow", rules = {} }
      function policy.before(call)
        local counts = call.counts
        if call.tool == "list_sandboxes" then
          return deny(("%d %d %d"):format(counts.sandboxes, counts.tasks, counts.calls))
        end
      end
      return policy
    ]]
    local server = serve()
    must(server, "create_sandbox")
    must(server, "run_command", { command = "true" })
    assert.are.equal("1 0 2", fault(server, "list_sandboxes").reason)
    server:signal(SIGKILL)
    server:wait()
  end)

  it("deny what they should count while their file is damaged", function()
    policy [[
      local policy = { default = "allow", rules = {
        { name = "paced", match = "list_sandboxes", rate = { calls = 3, per = 3600 } },
      } }
      function policy.before(call)
        if call.tool == "get_sandbox" then return call.counts.sandboxes < 5 end
      end
      return policy
    ]]
    local server = serve()
    must(server, "list_sandboxes")
    local path = ledger_file()
    local file = assert(io.open(path))
    local good = file:read "a"
    file:close()
    write(path, good:sub(1, -2))
    local err = fault(server, "list_sandboxes")
    assert.are.same({ "policy_denied", "policy-error" }, { err.category, err.rule })
    assert.are.equal("policy-error", fault(server, "get_sandbox", { sandbox_id = "x" }).rule)
    assert.is_nil(server.stdout:find(home, 1, true))
    local log = assert(io.open(("%s/log/serve-%d.log"):format(demilune.state_dir(home), server.pid)))
    assert.is_truthy(log:read("a"):find(path .. " are damaged; calls that they should count are denied until", 1, true))
    log:close()
    local explained = demilune.run({ "explain", "list_sandboxes" }, { home = home, config = 'return { policy = "policy.lua" }' })
    assert.is_truthy((explained.stdout .. explained.stderr):find "counters", explained.stdout .. explained.stderr)
    write(path, good)
    must(server, "list_sandboxes")
  end)
end)
