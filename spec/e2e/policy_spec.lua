-- timeout: 240
--- The operator's policy from end to end: the real server, real sandboxes, an ordinary client.

local core = require "demilune.core"
local demilune = require "spec.support.demilune"

local HUP = 1

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  return text
end

--- Runs `body(server, home)` with a server under a policy.
local function under(policy, body, options)
  options = options or {}
  local home = demilune.home()
  write(home .. "/policy.lua", policy)
  local config = options.config or 'policy = "policy.lua"'
  local server = demilune.start { home = home, config = "return { " .. config .. " }" }
  server:initialize(options.revision or "2025-11-25")
  local ok, err = xpcall(body, debug.traceback, server, home)
  server:stop()
  demilune.remove_home(home)
  if not ok then error(err, 0) end
end

local function rules(text, default) return ('return { default = "%s", rules = { %s } }'):format(default or "allow", text) end

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

local function shell(server, command) return must(server, "run_command", { command = command }) end

local function names(server)
  local set = {}
  for _, tool in ipairs(assert(server:request("tools/list")).tools) do set[tool.name] = true end
  return set
end

describe("rules of data", function()
  it("hide a tool, which then is not there for a call either", function()
    under(rules '{ name = "none", match = "kill_sandbox", hide = true }', function(server)
      local listed = names(server)
      assert.is_nil(listed.kill_sandbox)
      assert.is_true(listed.run_command)
      local result, err = server:request("tools/call", { name = "kill_sandbox", arguments = {} })
      assert.is_nil(result)
      local _, unknown = server:request("tools/call", { name = "no_such_tool", arguments = {} })
      assert.are.same(unknown, err)
      assert.are.equal(-32602, err.code)
    end)
  end)

  it("deny with their name and reason, and nothing is created for it", function()
    under(rules '{ name = "quiet", match = "@execute", deny = "not today" }', function(server)
      local err = fault(server, "run_command", { command = "true" })
      assert.are.same({ "policy_denied", "quiet", "not today", false }, { err.category, err.rule, err.reason, err.retryable })
      assert.are.equal(0, #must(server, "list_sandboxes").sandboxes)
    end)
  end)

  it("rewrite what a creation asks for, a creation that a call needs as well", function()
    under(rules '{ name = "small", match = "@create", limit = { memory = { max = 512, default = 256 } } }', function(server)
      shell(server, "true")
      assert.are.equal(256, must(server, "get_sandbox").memory_mb)
      assert.are.equal(512, must(server, "create_sandbox", { memory = 512 }).memory_mb)
      local err = fault(server, "create_sandbox", { memory = 513 })
      assert.are.same({ "policy_denied", "small", "memory" }, { err.category, err.rule, err.field })
    end)
  end)

  it("keep file tools from a path, as it is given and where its links lead", function()
    local rule = '{ name = "no-env", match = { "@read", "@write" }, path = { deny = { "**/.env", "/home/user/keys/**" } } }'
    under(rules(rule), function(server)
      shell(server, "mkdir keys; echo k > keys/a; echo s > .env; ln -s .env plain; ln -s keys/a b; echo ok > fine; ln -s fine link")
      for _, path in ipairs { ".env", "./x/../.env", "/home/user/.env", "plain", "b", "keys/a", "keys/new" } do
        local err = fault(server, "read_file", { path = path })
        assert.are.same({ "policy_denied", "no-env" }, { err.category, err.rule }, path)
      end
      assert.are.equal("no-env", fault(server, "list_files", { path = "keys" }).rule)
      assert.are.equal("no-env", fault(server, "write_file", { path = "plain", content = "x" }).rule)
      assert.are.equal("ok\n", must(server, "read_file", { path = "link" }).content)
      assert.are.equal("s\n", shell(server, "cat .env").stdout)
    end)
  end)

  it("mask what they name, before outputs are cut and whatever way it leaves", function()
    under(rules '{ name = "masked", match = "@all", redact = { "AKIA[0-9A-Z]{16}", "tok_\\\\w+" } }', function(server)
      local key = "AKIA0123456789ABCDEF"
      local run = shell(server, (("echo a KEY; echo tok_abc >&2; echo KEY > f; printf '%0300d KEY' 0 > g"):gsub("KEY", key)))
      assert.are.equal("a [masked]\n", run.stdout)
      assert.are.equal("[masked]\n", run.stderr)
      assert.are.equal("[masked]\n", must(server, "read_file", { path = "f" }).content)
      assert.is_nil(must(server, "read_file", { path = "g", max_bytes = 310 }).content:find("AKIA", 1, true))
      local part = must(server, "download_file", { path = "g", offset = 302, length = 12 })
      assert.are.equal(("*"):rep(12), core.crypto.unbase64(part.content_base64))
      local task = must(server, "start_background_task", { command = "echo " .. key })
      local seen = must(server, "get_background_task", { task_id = task.task_id, wait = 5 })
      assert.are.equal("[masked]\n", seen.stdout)
      assert.is_nil(server.stdout:find(key, 1, true))
    end)
  end)

  it("count sandboxes across calls, failures and servers of the same configuration", function()
    under(rules '{ name = "one", match = "@create", quota = { sandboxes = 1 } }', function(server, home)
      assert.are.equal("not_found", fault(server, "create_sandbox", { template = "nope" }).category)
      local first = must(server, "create_sandbox")
      local err = fault(server, "create_sandbox")
      assert.are.same({ "quota_exceeded", "one" }, { err.category, err.rule })
      local other = demilune.start { home = home, config = read(home .. "/demilune.lua") }
      other:initialize()
      assert.are.equal("one", fault(other, "run_command", { command = "true" }).rule)
      must(server, "kill_sandbox", { sandbox_id = first.sandbox_id })
      assert.are.equal("hi\n", shell(other, "echo hi").stdout)
      assert.are.equal("one", fault(server, "create_sandbox").rule)
      other:stop()
      must(server, "create_sandbox")
    end)
  end)

  it("pace calls, and say how long to wait", function()
    under(rules '{ name = "paced", match = "get_sandbox", rate = { calls = 2, per = 3600 } }', function(server)
      must(server, "create_sandbox")
      must(server, "get_sandbox")
      must(server, "get_sandbox")
      local err = fault(server, "get_sandbox")
      assert.are.same({ "rate_limited", "paced" }, { err.category, err.rule })
      assert.is_true(err.retry_after > 3000 and err.retry_after <= 3660)
      must(server, "list_sandboxes")
    end)
  end)

  it("show only a principal's own sandboxes", function()
    under(rules '{ name = "own", match = "list_sandboxes", list = "own" }', function(server)
      local made = must(server, "create_sandbox")
      local listed = must(server, "list_sandboxes").sandboxes
      assert.are.same({ 1, made.sandbox_id }, { #listed, listed[1].sandbox_id })
    end)
  end)

  it("bound a sandbox's life from its creation, and renewals too", function()
    under(rules '{ name = "short", match = "@lifetime", quota = { lifetime = 100 } }', function(server)
      local err = fault(server, "create_sandbox", { timeout = 101 })
      assert.are.same({ "quota_exceeded", "short", "timeout" }, { err.category, err.rule, err.field })
      must(server, "create_sandbox", { timeout = 100 })
      assert.are.equal("short", fault(server, "set_sandbox_timeout", { timeout = 101 }).rule)
      must(server, "set_sandbox_timeout", { timeout = 90 })
    end)
  end)
end)

local FUNCTIONS = [[
local policy = { default = "allow", rules = {} }
function policy.before(call)
  if call.tool == "create_sandbox" then return end
  local command = call.args.command or ""
  if command:find("curl", 1, true) then return deny "no downloads here" end
  if command:find("loop", 1, true) then while true do end end
  if command:find("boom", 1, true) then error { no = "text" } end
  if command == "counts" then return deny(("%d %d"):format(call.counts.sandboxes, call.counts.calls)) end
  call.args.timeout = math.min(call.args.timeout or 30, 60)
end
function policy.after(call, result)
  if result.stdout then result.stdout = result.stdout:gsub("secret", "[gone]") end
  if result.stdout == "never\n" then return deny "not to be shown" end
  if result.stdout == "bad\n" then result.exit_code = "zero" end
end
function policy.list(tool, who)
  return tool.name ~= "kill_sandbox"
end
return policy
]]

describe("functions", function()
  it("deny, rewrite, mask and hide, and their faults deny that call alone", function()
    under(FUNCTIONS, function(server)
      assert.is_nil(names(server).kill_sandbox)
      assert.are.equal("hi\n", shell(server, "echo hi").stdout)
      local err = fault(server, "run_command", { command = "curl x" })
      assert.are.same({ "policy_denied", "before", "no downloads here" }, { err.category, err.rule, err.reason })
      for _, command in ipairs { "loop", "boom" } do
        assert.are.equal("policy-error", fault(server, "run_command", { command = command }).rule)
        assert.are.equal("[gone]\n", shell(server, "echo secret").stdout)
      end
      assert.are.equal("not to be shown", fault(server, "run_command", { command = "echo never" }).reason)
      assert.are.equal("policy-error", fault(server, "run_command", { command = "echo bad" }).rule)
      assert.is_truthy(fault(server, "run_command", { command = "counts" }).reason:find "^1 %d+$")
      local late = shell(server, "exec sleep 0.1")
      assert.are.equal(0, late.exit_code)
    end)
  end)
end)

describe("a reload", function()
  it("puts a changed policy in force, tells the client, and keeps the old one where the new one is wrong", function()
    under(rules '{ name = "a", match = "get_sandbox", deny = "first" }', function(server, home)
      assert.are.equal("first", fault(server, "get_sandbox").reason)
      write(home .. "/policy.lua", rules [[
        { name = "b", match = "get_sandbox", deny = "second" },
        { name = "h", match = "run_code", hide = true }]])
      server:signal(HUP)
      for _ = 1, 200 do
        server:pump(20)
        if fault(server, "get_sandbox").reason == "second" then break end
      end
      assert.are.equal("second", fault(server, "get_sandbox").reason)
      assert.is_nil(names(server).run_code)
      assert.are.equal("notifications/tools/list_changed", server.notifications[#server.notifications].method)
      write(home .. "/policy.lua", "return { default = 'allow', rules = { { match = 'get_sandbox', deny = 'third' ")
      local ran = demilune.run({ "reload" }, { home = home })
      assert.are.equal(1, ran.code)
      assert.is_truthy((ran.stdout .. ran.stderr):find("policy.lua:1:", 1, true), ran.stdout .. ran.stderr)
      assert.are.equal("second", fault(server, "get_sandbox").reason)
    end)
  end)

  it("comes by itself where the file is watched", function()
    under(rules '{ name = "a", match = "get_sandbox", deny = "first" }', function(server, home)
      write(home .. "/policy.lua", rules '{ name = "b", match = "get_sandbox", deny = "second" }')
      local reason
      for _ = 1, 100 do
        reason = fault(server, "get_sandbox").reason
        if reason == "second" then break end
        server:pump(50)
      end
      assert.are.equal("second", reason)
    end, { config = 'policy = { file = "policy.lua", watch = true }' })
  end)

  it("leaves a call in flight under the policy that it began with", function()
    under(FUNCTIONS, function(server, home)
      shell(server, "true")
      local id = server:send("tools/call", { name = "run_command", arguments = { command = "sleep 1; echo secret" } })
      server:pump(200)
      write(home .. "/policy.lua", rules "")
      assert.are.equal(0, demilune.run({ "reload" }, { home = home }).code)
      assert.are.equal("secret\n", shell(server, "echo secret").stdout)
      assert.are.equal("[gone]\n", server:receive(id, 10000).result.structuredContent.stdout)
    end)
  end)
end)

describe("a policy that is wrong", function()
  it("keeps the server from starting, and says where", function()
    local home = demilune.home()
    write(home .. "/policy.lua", 'return { default = "allow", rules = {\n  { name = "x", match = "@exekute", deny = "no" },\n} }')
    local server = demilune.start { home = home, config = 'return { policy = "policy.lua" }' }
    local ended = server:wait(5000)
    assert.are.equal(1, ended and ended.code)
    assert.is_truthy(server.stderr:find("policy.lua:2: ", 1, true), server.stderr)
    assert.is_truthy(server.stderr:find("@execute", 1, true), server.stderr)
    assert.are.equal("", server.stdout)
    server:stop()
    demilune.remove_home(home)
  end)
end)
