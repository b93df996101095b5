-- timeout: 120
--- The lifecycle tools with real sandboxes, the habits of the configuration, and what must never get out.

local canary = require "spec.support.canary"
local cjson = require "cjson"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"
local support = require "spec.e2e.tools_support"

local must, fault, shell = support.must, support.fault, support.shell

local function seconds(iso)
  local y, mo, d, h, mi, s = iso:match "^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)"
  return os.time { year = y, month = mo, day = d, hour = h, min = mi, sec = s }
end

local function lifetime(info) return seconds(info.end_at) - seconds(info.started_at) end

local function count(server) return #must(server, "list_sandboxes", {}).sandboxes end

describe("the life of a sandbox", function()
  local server
  before_each(function() server = support.server() end)
  after_each(function() server:stop() end)

  it("begins as it was asked for and is told by nine fields", function()
    local wanted = { template = "base", timeout = 600, memory = 300, envs = { GREETING = "hällo" } }
    if must(server, "create_sandbox", {}).memory_mb == cjson.null then
      local err = fault(server, "create_sandbox", wanted) -- no limits here: what cannot hold is not promised
      assert.are.same({ "unsupported", "memory" }, { err.category, err.field })
      wanted.memory = nil
    end
    must(server, "kill_sandbox", {})
    local made = must(server, "create_sandbox", wanted)
    assert.are.same({ "running", "base", cjson.null, "/home/user", "none" },
      { made.status, made.template, made.url, made.workdir, made.network })
    assert.are.equal(wanted.memory or cjson.null, made.memory_mb)
    local info = must(server, "get_sandbox", {})
    assert.are.same({ made.sandbox_id, "base", "running", cjson.null, 1024 },
      { info.sandbox_id, info.template, info.status, info.region, info.disk_size_mb })
    assert.are.equal(600, lifetime(info))
    local fields = 0
    for _ in pairs(info) do fields = fields + 1 end
    assert.are.equal(9, fields)
    assert.are.equal("hällo\n", shell(server, "echo $GREETING"))
    must(server, "kill_sandbox", {})
  end)

  it("lasts an hour when nobody says otherwise, and what is said from now on", function()
    must(server, "create_sandbox", {})
    local lives = lifetime(must(server, "get_sandbox", {}))
    assert.is_true(lives >= 3600 and lives <= 3603, lives)
    local set = must(server, "set_sandbox_timeout", { timeout = 100 })
    assert.are.same({ true, 100 }, { set.success, set.timeout })
    local info = must(server, "get_sandbox", {})
    assert.is_true(lifetime(info) >= 100 and lifetime(info) <= 103)
    must(server, "set_sandbox_timeout", { timeout = 86300 })
    assert.is_true(lifetime(must(server, "get_sandbox", {})) >= 86300)
    os_calls.sleep_ms(1100)
    local err = fault(server, "set_sandbox_timeout", { timeout = 86400 })
    assert.are.same({ "quota_exceeded", "timeout" }, { err.category, err.field })
  end)

  it("ends at its time, and the next call says so and may start afresh", function()
    local first = must(server, "create_sandbox", { timeout = 1 }).sandbox_id
    assert.is_true(support.eventually(function() return count(server) == 0 end))
    local err = fault(server, "get_sandbox", {})
    assert.are.same({ "sandbox_gone", true, false }, { err.category, err.default_cleared, err.retryable })
    assert.are.equal("no_default_sandbox", fault(server, "get_sandbox", {}).category)
    assert.are.equal("sandbox_gone", fault(server, "run_command", { command = "true", sandbox_id = first }).category)
    assert.is_true(must(server, "run_command", { command = "true" }).created)
    must(server, "kill_sandbox", {})
  end)

  it("ends under a running command as sandbox_gone", function()
    for _, tool in ipairs { "run_command", "run_code" } do
      must(server, "create_sandbox", {})
      local id = server:send("tools/call", { name = tool, arguments = tool == "run_command" and { command = "sleep 50" }
        or { code = "import time; time.sleep(50)" } })
      os_calls.sleep_ms(200)
      must(server, "kill_sandbox", {})
      local err = cjson.decode(server:receive(id).result.content[1].text).error
      assert.are.equal("sandbox_gone", err.category, tool)
    end
  end)

  it("is not ended by what a command kills inside", function()
    for _, command in ipairs { "kill -9 -1", "kill -9 1", "kill -TERM 1", "kill -STOP 1" } do
      must(server, "run_command", { command = command, timeout = 5 })
      assert.are.equal("here\n", shell(server, "echo here"), command)
    end
  end)

  it("ends with its engine, even one that is killed, and the next call starts both afresh", function()
    must(server, "run_command", { command = "echo x > file" })
    local pid
    for line in demilune.run({ "engine", "--status" }, { home = server.home }).stdout:gmatch "[^\n]+" do
      pid = tonumber(line:match "process (%d+)")
    end
    os_calls.kill(pid, 9)
    local err = fault(server, "read_file", { path = "file" })
    assert.are.same({ "sandbox_gone", true }, { err.category, err.default_cleared })
    local run = must(server, "run_command", { command = "ls" })
    assert.are.same({ true, "" }, { run.created, run.stdout })
    must(server, "kill_sandbox", {})
    demilune.stop_engine(server.home)
    assert.are.same({}, must(server, "list_sandboxes", {}).sandboxes)
    assert.are.equal("sandbox_gone", fault(server, "get_sandbox", { sandbox_id = run.sandbox_id }).category)
    assert.are.equal("not_found", fault(server, "get_sandbox", { sandbox_id = "unknown" }).category)
    assert.is_false(must(server, "kill_sandbox", { sandbox_id = "unknown" }).existed)
  end)

  it("is listed newest first, by pages and status, whoever made it", function()
    local other = support.server { home = server.home }
    local ids = {}
    for i = 1, 5 do ids[i] = must(i % 2 == 0 and other or server, "create_sandbox", {}).sandbox_id end
    local function page(arguments)
      local found = {}
      for i, info in ipairs(must(server, "list_sandboxes", arguments).sandboxes) do found[i] = info.sandbox_id end
      return found
    end
    assert.are.same({ ids[5], ids[4], ids[3], ids[2], ids[1] }, page {})
    assert.are.same({ ids[4], ids[3] }, page { limit = 2, offset = 1 })
    assert.are.same({}, page { offset = 5 })
    assert.are.same(page {}, page { status = "running" })
    for _, status in ipairs { "creating", "paused", "stopping", "stopped", "error" } do
      assert.are.same({}, page { status = status }, status)
    end
    local err = fault(server, "list_sandboxes", { region = "eu" })
    assert.are.same({ "unsupported", "region" }, { err.category, err.field })
    must(server, "run_command", { command = "echo x > seen", sandbox_id = ids[2] })
    assert.are.equal("x\n", must(other, "read_file", { path = "seen", sandbox_id = ids[2] }).content)
    other:stop()
    assert.is_true(support.eventually(function() return count(server) == 3 end))
  end)

  it("is refused where the wish cannot be had", function()
    for _, one in ipairs {
      { { template = "none" }, "not_found", "template" }, { { region = "eu" }, "unsupported", "region" },
      { { timeout = 86401 }, "invalid_argument", "timeout" }, { { memory = 1 }, "unsupported", "memory" },
    } do
      local err = fault(server, "create_sandbox", one[1])
      assert.are.same({ one[2], one[3] }, { err.category, err.field })
    end
    assert.are.equal(0, count(server))
  end)

  it("takes 1 MiB of variables", function()
    local envs = {}
    for i = 1, 33 do envs["V" .. i] = ("x"):rep(31000) end
    must(server, "create_sandbox", { envs = envs })
    assert.are.equal("31000\n", must(server, "run_command", { command = "echo ${#V33}" }).stdout)
    assert.are.equal("31000\n", must(server, "run_code", { code = "import os; print(len(os.environ['V1']))" }).stdout)
    assert.are.equal("31000\n", must(server, "run_code", { code = "echo ${#V1}", language = "shell" }).stdout)
    must(server, "kill_sandbox", {})
  end)
end)

describe("variables of a sandbox", function()
  it("win over the login shell's, those of the template too, in every way to run something", function()
    local server = support.server { config = [[return { providers = { { id = "local", type = "local",
      templates = { base = { env = { PS4 = "template", HISTSIZE = "1" } } } } } }]] }
    must(server, "create_sandbox", { envs = { PATH = "/usr/bin:/bin:/mine", A = "quo'te \"$x\" `y` \\ \n nl",
      HISTSIZE = "2" } })
    shell(server, "echo 'export PATH=/profile A=profile PS4=profile HISTSIZE=profile' > ~/.profile;"
      .. " cp ~/.profile ~/.bash_profile")
    local expected = "/usr/bin:/bin:/mine|quo'te \"$x\" `y` \\ \n nl|template|2\n"
    local command = [[printf '%s|%s|%s|%s\n' "$PATH" "$A" "$PS4" "$HISTSIZE"]]
    assert.are.equal(expected, must(server, "run_command", { command = command }).stdout)
    assert.are.equal(expected, must(server, "run_code", { code = command, language = "shell" }).stdout)
    assert.are.equal(expected, must(server, "run_code", { code = "import os; print(*(os.environ[n] for n in "
      .. "('PATH', 'A', 'PS4', 'HISTSIZE')), sep='|')" }).stdout)
    local task = must(server, "start_background_task", { command = command }).task_id
    assert.are.equal(expected, support.eventually(function()
      local seen = must(server, "get_background_task", { task_id = task, wait = 2 })
      return seen.status == "succeeded" and seen.stdout
    end))
    local wrong = must(server, "run_command", { command = "if (" })
    assert.is_nil(wrong.stderr:find("template", 1, true))
    -- So they do for a server that did not create it.
    local id = must(server, "get_sandbox", {}).sandbox_id
    local other = support.server { home = server.home }
    assert.are.equal(expected, must(other, "run_command", { command = command, sandbox_id = id }).stdout)
    assert.are.equal(expected, must(other, "run_code", { code = command, language = "shell", sandbox_id = id }).stdout)
    for _, result in ipairs { must(other, "get_sandbox", { sandbox_id = id }), must(other, "list_sandboxes", {}) } do
      assert.is_nil(cjson.encode(result):find("/mine", 1, true))
    end
    other:stop()
    server:stop()
  end)
end)

describe("the end of a server", function()
  it("ends what it owns within 1.8 s, in the middle of anything", function()
    for _, how in ipairs { "stdin", "TERM", "KILL" } do
      local watcher = support.server()
      local server = support.server { home = watcher.home }
      must(server, "create_sandbox", {})
      must(server, "create_sandbox", {})
      server:send("tools/call", { name = "run_command", arguments = { command = "sleep 100" } })
      server:send("tools/call", { name = "create_sandbox", arguments = cjson.decode "{}" })
      os_calls.sleep_ms(30)
      local from = os_calls.now_ms()
      if how == "stdin" then server:close_stdin() else server:signal(how == "TERM" and 15 or 9) end
      local ended = server:wait(3000)
      assert.is_true(os_calls.now_ms() - from < 1800, how)
      assert.are.equal(how == "KILL" and 9 or nil, ended.signal)
      assert.is_true(support.eventually(function() return count(watcher) == 0 end, 5000), how)
      server:stop()
      watcher:stop()
    end
  end)

  it("leaves sandboxes alone with keep_on_exit, and those that were only used", function()
    local watcher = support.server()
    local keeper = support.server { home = watcher.home, config = "return { keep_on_exit = true }" }
    local kept = must(keeper, "create_sandbox", {}).sandbox_id
    shell(keeper, "echo x > kept")
    keeper:stop()
    assert.are.equal("x\n", must(watcher, "read_file", { path = "kept", sandbox_id = kept }).content)
    watcher:stop()
  end)

  it("ends what it adopted by use", function()
    local watcher = support.server()
    local id = must(watcher, "create_sandbox", {}).sandbox_id
    local adopter = support.server { home = watcher.home, config = "return { adopt_by_use = true }" }
    must(adopter, "get_sandbox", { sandbox_id = id })
    must(adopter, "run_command", { command = "true", sandbox_id = id })
    adopter:stop()
    assert.is_true(support.eventually(function() return count(watcher) == 0 end))
    watcher:stop()
  end)
end)

describe("habits of the configuration", function()
  it("serve two local providers, whose ids come back qualified", function()
    local server = support.server { config = [[return { default_provider = "a", providers = {
      { id = "a", type = "local" }, { id = "b", type = "local", lifetime = 77, max_lifetime = 100 } } }]] }
    local id = must(server, "create_sandbox", { provider = "b" }).sandbox_id
    assert.truthy(id:find "^b:i")
    assert.are.equal(id, must(server, "run_command", { command = "true" }).sandbox_id)
    -- It counts from when the sandbox is there, a moment after its start.
    local lives = lifetime(must(server, "get_sandbox", { sandbox_id = id }))
    assert.is_true(lives >= 77 and lives <= 80, lives)
    local err = fault(server, "set_sandbox_timeout", { timeout = 5000, sandbox_id = id })
    assert.are.same({ "quota_exceeded", "timeout" }, { err.category, err.field })
    assert.truthy(err.expected:find "^integer from 1 to %d+$")
    err = fault(server, "create_sandbox", { provider = "b", timeout = 101 })
    assert.are.same({ "invalid_argument", "timeout", "integer from 1 to 100" }, { err.category, err.field, err.expected })
    err = fault(server, "get_sandbox", { sandbox_id = "c:x" })
    assert.are.same({ "not_found", "sandbox_id", { "a", "b" } }, { err.category, err.field, err.allowed })
    must(server, "kill_sandbox", { sandbox_id = id })
    server:stop()
  end)

  it("make failed commands errors, with what they said beside", function()
    local server = support.server { config = "return { nonzero_exit_is_error = true }" }
    local _, err, result = server:call("run_command", { command = "echo said; exit 3" })
    assert.are.equal("command_failed", err.category)
    local text = cjson.decode(result.content[1].text)
    assert.are.same({ "said\n", 3 }, { text.stdout, text.exit_code })
    assert.are.equal("command_timeout", fault(server, "run_command", { command = "sleep 9", timeout = 1 }).category)
    assert.are.equal("ok\n", shell(server, "echo ok"))
    server:stop()
  end)

  it("hide other principals' sandboxes under tenancy by principal", function()
    local plain = support.server()
    local id = must(plain, "create_sandbox", {}).sandbox_id
    local strict = support.server { home = plain.home, config =
      [[return { providers = { { id = "local", type = "local", tenancy = "principal" } } }]] }
    assert.are.equal(id, must(strict, "get_sandbox", { sandbox_id = id }).sandbox_id)
    assert.are.equal(1, count(strict))
    local own = must(strict, "create_sandbox", {}).sandbox_id
    assert.are.equal("x\n", must(strict, "run_command", { command = "echo x", sandbox_id = own }).stdout)
    strict:stop()
    plain:stop()
  end)

  it("keep no default where it is off", function()
    local server = support.server { config = [[return { default_sandbox = "off" }]] }
    local id = must(server, "create_sandbox", {}).sandbox_id
    for _, tool in ipairs { "run_command", "start_background_task" } do
      assert.are.equal("no_default_sandbox", fault(server, tool, { command = "true" }).category)
    end
    assert.are.equal(0, must(server, "run_command", { command = "true", sandbox_id = id }).exit_code)
    server:stop()
  end)

  it("bound output by their own numbers", function()
    local server = support.server { config = "return { output = { stdout = 1024, stderr = 1048576 } }" }
    local command = "head -c 2000 /dev/zero | tr '\\0' Q; head -c 900000 /dev/zero | tr '\\0' Z >&2"
    local run = must(server, "run_command", { command = command })
    assert.are.same({ 1024, true, 900000, false },
      { select(2, run.stdout:gsub("Q", "")), run.stdout_truncated, #run.stderr, run.stderr_truncated })
    assert.are.equal("2000\n", shell(server, "stat -c %s " .. run.stdout_path))
    run = must(server, "run_command", { command = "head -c 1100000 /dev/zero | tr '\\0' Z >&2" })
    assert.are.same({ 1048576, true }, { select(2, run.stderr:gsub("Z", "")), run.stderr_truncated })
    local task = must(server, "start_background_task", { command = "head -c 1100000 /dev/zero | tr '\\0' Z >&2" }).task_id
    local seen = support.eventually(function()
      local one = must(server, "get_background_task", { task_id = task, wait = 2 })
      return one.status == "succeeded" and one
    end)
    assert.is_true(seen.stderr_truncated and #seen.stderr > 400000)
    server:stop()
  end)
end)

describe("secrets", function()
  it("planted in arguments, variables and files are in no error, log or task record", function()
    local secret = canary.new()
    local server = support.server()
    must(server, "create_sandbox", { envs = { SECRET = secret } })
    local spoken = {}
    for _, one in ipairs {
      { "run_command", { command = "x", cwd = secret } }, { "run_command", { command = secret .. "\0" } },
      { "read_file", { path = secret } }, { "read_file", { path = secret .. "/x", encoding = secret } },
      { "write_file", { path = "/usr/" .. secret, content = secret } }, { "list_files", { path = secret } },
      { "download_file", { path = "/" .. secret } }, { "upload_file", { path = "a", content_base64 = secret } },
      { "upload_file", { path = secret, content_base64 = "eA==", offset = 5 } },
      { "run_code", { code = secret, language = secret } }, { "run_code", { code = secret, language = "r" } },
      { "get_sandbox", { sandbox_id = secret } }, { "create_sandbox", { template = secret } },
      { "create_sandbox", { region = secret } }, { "create_sandbox", { envs = { [secret] = secret } } },
      { "get_background_task", { task_id = secret } }, { "start_background_task", { command = secret, cwd = secret } },
      { "set_sandbox_timeout", { timeout = secret } }, { "kill_sandbox", { sandbox_id = "cloud:" .. secret } },
    } do
      local content, err, result = server:call(one[1], one[2])
      assert.is_nil(content, one[1])
      spoken[#spoken + 1] = cjson.encode(err) .. cjson.encode(result)
    end
    assert.is_nil(canary.find(table.concat(spoken), secret))
    must(server, "run_command", { command = "echo $SECRET >/dev/null" })
    must(server, "write_file", { path = "s", content = secret })
    must(server, "list_sandboxes", {})
    must(server, "get_sandbox", {})
    server:close_stdin()
    server:wait(3000)
    assert.is_nil(canary.find(server.stderr, secret))
    assert.is_nil(canary.find_in(demilune.state_dir(server.home) .. "/log", secret))
    server:stop()
  end)
end)

describe("stdout", function()
  it("carries messages alone, whatever sandboxes print", function()
    local server = support.server()
    must(server, "run_command", { command = "echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}';"
      .. " head -c 5000 /dev/urandom; echo x >/dev/tty; true" })
    must(server, "run_code", { code = "import sys; sys.stdout.write('a\\nb\\x00\\u2028')" })
    must(server, "start_background_task", { command = "yes | head -c 100000" })
    fault(server, "read_file", { path = "nope" })
    server:close_stdin()
    server:wait(3000)
    local lines = 0
    for line in server.stdout:gmatch "[^\n]+" do
      local message = cjson.decode(line)
      assert.are.equal("2.0", message.jsonrpc)
      assert.is_not_nil(utf8.len(line))
      lines = lines + 1
    end
    assert.is_true(lines >= 5 and server.stdout:sub(-1) == "\n")
    server:stop()
  end)
end)
