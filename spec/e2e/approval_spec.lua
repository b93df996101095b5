-- timeout: 120
--- A policy that asks, from end to end: the real server, the person at a terminal, the person at the client.

local build = require "spec.support.build"
local demilune = require "spec.support.demilune"

local RULE = 'return { version = "%s", default = "allow", rules = { { name = "careful", match = "run_command", ask = "%s" } } }'

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

--- A server with a policy that asks; the home is removed by `stop`.
local function start(version)
  local home = demilune.home()
  write(home .. "/policy.lua", RULE:format(version or "v1", "Run this?"))
  local server = demilune.start { home = home, config = 'return { policy = "policy.lua" }' }
  server:initialize "2025-11-25"
  return server, home
end

local function finish(server, home)
  server:stop()
  demilune.remove_home(home)
end

--- What the terminal showed, and the exit code.
local function at_terminal(home, answer, args)
  local argv = { "/usr/bin/python3", "spec/control/terminal.py", answer, build.program }
  table.move(args, 1, #args, #argv + 1, argv)
  local ran = demilune.run({}, { home = home, argv = argv, timeout_ms = 20000 })
  return ran.stdout, ran.code
end

local function run(server, command)
  local content, err = server:call("run_command", { command = command })
  return content and content.stdout, err
end

local function pending(server, command)
  local stdout, err = run(server, command)
  assert.is_nil(stdout)
  assert.are.equal("approval_required", err.category)
  return err.approval_id
end

describe("a call that a person must approve", function()
  it("runs once when an operator has approved exactly it", function()
    local server, home = start()
    local id = pending(server, "echo one")
    assert.are.equal(id, pending(server, "echo one"))
    local shown, code = at_terminal(home, "y", { "approve", id })
    assert.are.equal(0, code, shown)
    assert.is_truthy(shown:find('{"command":"echo one"', 1, true), shown)
    local other = pending(server, "echo two")
    assert.are_not.equal(id, other)
    assert.are.equal("one\n", (run(server, "echo one")))
    assert.are_not.equal(id, pending(server, "echo one"))
    finish(server, home)
  end)

  it("is refused once", function()
    local server, home = start()
    local shown, code = at_terminal(home, "y", { "refuse", pending(server, "echo one") })
    assert.are.equal(0, code, shown)
    local stdout, err = run(server, "echo one")
    assert.is_nil(stdout)
    assert.are.equal("careful", err.rule)
    assert.are_not.equal("approval_required", err.category)
    pending(server, "echo one")
    finish(server, home)
  end)

  it("must be asked about again under another policy", function()
    local server, home = start()
    local id = pending(server, "echo one")
    local shown, code = at_terminal(home, "y", { "approve", id })
    assert.are.equal(0, code, shown)
    write(home .. "/policy.lua", RULE:format("v2", "Run this?"))
    local ran = demilune.run({ "reload" }, { home = home })
    assert.are.equal(0, ran.code, ran.stderr)
    assert.is_truthy(ran.stdout:find("the policy is v2 now", 1, true), ran.stdout)
    assert.are_not.equal(id, pending(server, "echo one"))
    finish(server, home)
  end)
end)
