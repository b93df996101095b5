-- timeout: 120
--- process.Process: Start, Connect, List, SendSignal, SendInput, CloseStdin, and the engine's additions.

local core = require "demilune.core"
local connect = require "demilune.connect"
local support = require "spec.engine.support"

local task, json = core.task, core.json

describe("process.Process of the engine", function()
  local engine, sandbox

  setup(function()
    engine = support.start()
    support.run(function() sandbox = engine:create { envVars = { FROM_SANDBOX = "yes", BOTH = "sandbox" } } end)
  end)
  teardown(function() engine:stop() end)

  local function within(fn) return function() support.run(fn) end end

  --- Whether a process whose command line holds `word` runs in the sandbox.
  local function is_running(word)
    local run = sandbox:start(("for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done | grep -c '%s'")
      :format(word:gsub("^(.)", "[%1]")))
    return tonumber(run.stdout) > 0
  end

  it("runs a command to its end as envd does", within(function()
    local run = sandbox:start "echo out; echo err >&2"
    assert.are.equal(200, run.status)
    assert.is_true(run.pid > 0)
    assert.are.same({ "out\n", "err\n" }, { run.stdout, run.stderr })
    assert.are.same({ exited = true, status = "exit status 0" }, run["end"])
    assert.is_true(run.is_whole)
    assert.is_nil(run.error)
    local failed = sandbox:start "exit 3"
    assert.are.same({ exitCode = 3, exited = true, status = "exit status 3", error = "exit status 3" }, failed["end"])
    local killed = sandbox:start "kill -9 $$"
    assert.are.same({ exitCode = -1, status = "signal: killed", error = "signal: killed" }, killed["end"])
  end))

  it("gives the variables of the sandbox, then those of the call, and the working directory", within(function()
    local command = 'echo "$FROM_SANDBOX $BOTH $MINE $HOME $USER $(pwd)"'
    local run = sandbox:start(support.shell(command, { envs = { BOTH = "call", MINE = "a b" }, cwd = "/tmp" }))
    assert.are.equal("yes call a b /home/user user /tmp\n", run.stdout)
    assert.are.equal("/home/user\n", sandbox:start("pwd").stdout)
    sandbox:start "mkdir -p sub"
    assert.are.equal("/home/user/sub\n", sandbox:start(support.shell("pwd", { cwd = "sub" })).stdout)
  end))

  it("carries bytes of any kind, and more of them than any buffer holds", within(function()
    local run = sandbox:start [[printf '\000\377\303\050\r\n']]
    assert.are.equal("\0\255\195(\r\n", run.stdout)
    local long = sandbox:start "head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2"
    assert.are.same({ 5000000, 3000000 }, { #long.stdout, #long.stderr })
  end))

  local STARTS = {
    { '{"process":{"cmd":"/nowhere/x"}}', "not_found", "command_not_found" },
    { '{"process":{"cmd":"nosuchcommand"}}', "not_found", "command_not_found" },
    { '{"process":{"cmd":"/etc/passwd"}}', "permission_denied", "command_not_runnable" },
    { '{"process":{"cmd":"/bin/true","cwd":"/nowhere"}}', "invalid_argument", "cwd_not_found", "cwd" },
    { '{"process":{"cmd":"/bin/true","cwd":"/etc/passwd"}}', "invalid_argument", "cwd_not_found", "cwd" },
    { '{"process":{"cmd":"/bin/true"},"pty":{"size":{"cols":80,"rows":24}}}', "unimplemented", "unimplemented", "pty" },
    { "{}", "invalid_argument", "invalid_argument", "process" },
    { "[]", "invalid_argument", "invalid_argument" },
    { "{", "invalid_argument", "invalid_argument" },
    { "", "invalid_argument", "invalid_argument" },
    { '{"process":[]}', "invalid_argument", "invalid_argument", "process" },
    { '{"process":{}}', "invalid_argument", "invalid_argument", "cmd" },
    { '{"process":{"cmd":""}}', "invalid_argument", "invalid_argument", "cmd" },
    { '{"process":{"cmd":"a\\u0000b"}}', "invalid_argument", "invalid_argument", "cmd" },
    { '{"process":{"cmd":"x","args":{}}}', "invalid_argument", "invalid_argument", "args" },
    { '{"process":{"cmd":"x","args":[1]}}', "invalid_argument", "invalid_argument", "args" },
    { '{"process":{"cmd":"x","args":[null]}}', "invalid_argument", "invalid_argument", "args" },
    { '{"process":{"cmd":"x","args":["\\u0000"]}}', "invalid_argument", "invalid_argument", "args" },
    { '{"process":{"cmd":"x","envs":{"A=":"1"}}}', "invalid_argument", "invalid_argument", "envs" },
    { '{"process":{"cmd":"x","envs":{"A":1}}}', "invalid_argument", "invalid_argument", "envs" },
    { '{"process":{"cmd":"x","cwd":7}}', "invalid_argument", "invalid_argument", "cwd" },
    { '{"process":{"cmd":"x"},"stdin":"yes"}', "invalid_argument", "invalid_argument", "stdin" },
    { '{"process":{"cmd":"x"},"tag":{}}', "invalid_argument", "invalid_argument", "tag" },
  }

  it("answers what cannot be started with one frame", within(function()
    for _, case in ipairs(STARTS) do
      local run = sandbox:start { raw = case[1] }
      assert.are.equal(200, run.status)
      assert.is_nil(run.pid, case[1])
      assert.are.same({ case[2], case[3], case[4] }, { run.error.code, run.error.error_code, run.error.field }, case[1])
    end
  end))

  it("refuses other bodies, types, users and protocol versions", within(function()
    local frame = connect.frame(0, '{"process":{"cmd":"/bin/true"}}')
    local function post(body, headers)
      local all = { ["Content-Type"] = "application/connect+json" }
      for name, value in pairs(headers or {}) do all[name] = value end
      local res = assert(sandbox:request("POST", "/process.Process/Start", { headers = all, body = body }))
      local decoder = connect.decoder(1 << 20)
      decoder:feed(res.body)
      local _, payload = decoder:next()
      local message = res.status == 200 and json.decode(payload)
      return res.status, message and message.error and message.error.code or nil
    end
    assert.are.same({ 415 }, { post(frame, { ["Content-Type"] = "application/json" }) })
    for _, body in ipairs { "", "\0\0", frame .. frame, frame:sub(1, -2), "\1" .. frame:sub(2), "\2" .. frame:sub(2),
      "\0\255\255\255\255" } do
      assert.are.same({ 200, "invalid_argument" }, { post(body) })
    end
    assert.are.same({ 200, "invalid_argument" }, { post(frame, { ["Connect-Protocol-Version"] = "2" }) })
    assert.are.same({ 200, "unimplemented" }, { post(frame, { ["Connect-Content-Encoding"] = "gzip" }) })
    local root = { Authorization = "Basic " .. core.crypto.base64 "root:" }
    assert.are.same({ 200, "unauthenticated" }, { post(frame, root) })
    assert.are.same({ 200, "unauthenticated" }, { post(frame, { Authorization = "Bearer x" }) })
    for _, timeout in ipairs { "x", "-1", "12345678901", "1.5" } do
      assert.are.same({ 200, "invalid_argument" }, { post(frame, { ["Connect-Timeout-Ms"] = timeout }) })
    end
    for _, spool in ipairs { "1,2,3", "1,2,3,4,5", "1,2,3,9999999", "a,b,c,d", "1,2,3,-4" } do
      assert.are.same({ 200, "invalid_argument" }, { post(frame, { ["X-Demilune-Spool"] = spool }) })
    end
    local run = sandbox:start("true", { Authorization = "Basic " .. core.crypto.base64 "user:" })
    assert.is_true(run["end"].exited)
  end))

  it("kills the whole group at the deadline", within(function()
    local before_ms = task.now_ms()
    local run = sandbox:start("echo begun; sleep 71 & sleep 72; echo never", { ["Connect-Timeout-Ms"] = "200" })
    assert.is_true(task.now_ms() - before_ms < 2000)
    assert.are.equal("begun\n", run.stdout)
    assert.is_nil(run["end"])
    assert.are.equal("deadline_exceeded", run.error.code)
    assert.is_false(is_running "sleep 71")
    assert.is_false(is_running "sleep 72")
    assert.are.equal("deadline_exceeded", sandbox:start("true", { ["Connect-Timeout-Ms"] = "0" }).error.code)
  end))

  it("leaves a process running when its stream is closed, and keeps its deadline", within(function()
    local res, next_frame = sandbox:open("process.Process/Start", support.shell "sleep 73")
    local pid = next_frame().message.event.start.pid
    res:close()
    local brief = { ["Connect-Timeout-Ms"] = "300" }
    local short, next_short = sandbox:open("process.Process/Start", support.shell "sleep 74", brief)
    assert.is_true(next_short().message.event.start.pid > 0)
    short:close()
    task.sleep(50)
    assert.is_true(is_running "sleep 73")
    assert.is_true(is_running "sleep 74")
    assert.is_true(support.eventually(function() return not is_running "sleep 74" end, 2000))
    local signal = { process = { pid = pid }, signal = "SIGNAL_SIGTERM" }
    assert.are.equal(200, (sandbox:unary("process.Process/SendSignal", signal)))
    assert.is_true(support.eventually(function() return not is_running "sleep 73" end, 2000))
  end))

  it("kills a process with its stream for those who ask for it", within(function()
    local bound = { ["X-Demilune-Kill-On-Close"] = "1" }
    local res, next_frame = sandbox:open("process.Process/Start", support.shell "sleep 75 & sleep 76; true", bound)
    assert.is_true(next_frame().message.event.start.pid > 0)
    assert.is_true(is_running "sleep 75")
    res:close()
    assert.is_true(support.eventually(function() return not is_running "sleep 7[56]" end, 2000))
    -- One that floods its stream, and one whose client is gone before the agent has answered.
    local flood = sandbox:open("process.Process/Start", support.shell "exec yes flood77", bound)
    task.sleep(50)
    flood:close()
    local handle = task.spawn(function() sandbox:start("sleep 78", bound) end)
    task.sleep(0)
    handle:cancel()
    handle:wait()
    local function are_over() return not is_running "flood77" and not is_running "sleep 78" end
    assert.is_true(support.eventually(are_over, 2000))
  end))

  it("lists processes and connects to them by pid and tag", within(function()
    local message = support.shell("sleep 0.3; echo late; exit 4", { tag = "mine", envs = { A = "1" }, cwd = "/tmp" })
    local res, next_frame = sandbox:open("process.Process/Start", message)
    local pid = next_frame().message.event.start.pid
    local status, listed = sandbox:unary("process.Process/List", {})
    assert.are.equal(200, status)
    assert.are.equal(1, #listed.processes)
    local shown = listed.processes[1]
    assert.are.same({ pid, "mine", "/bin/sh", "/tmp", 2 },
      { shown.pid, shown.tag, shown.config.cmd, shown.config.cwd, #shown.config.args })
    local function follow(selector)
      local other, next_other = sandbox:open("process.Process/Connect", { process = selector })
      local seen = {}
      for frame in next_other do
        seen[#seen + 1] = frame
        if frame.flags == 2 then break end
      end
      other:close()
      return seen
    end
    local handles = {}
    for i, selector in ipairs { { pid = pid }, { tag = "mine" } } do
      handles[i] = task.spawn(follow, selector)
    end
    for _, handle in ipairs(handles) do
      local _, seen = handle:wait()
      assert.are.equal(pid, seen[1].message.event.start.pid)
      assert.are.equal("late\n", core.crypto.unbase64(seen[2].message.event.data.stdout))
      assert.are.equal(4, seen[3].message.event["end"].exitCode)
      assert.are.equal(2, seen[4].flags)
    end
    res:close()
    assert.are.equal(4, follow({ pid = pid })[2].message.event["end"].exitCode)
    local gone = follow { pid = 4000000 }
    assert.are.same({ 1, "not_found", "process_not_found" },
      { #gone, gone[1].message.error.code, gone[1].message.error.error_code })
  end))

  it("ends a Connect stream at its deadline and leaves the process alone", within(function()
    local res, next_frame = sandbox:open("process.Process/Start", support.shell "sleep 79")
    local pid = next_frame().message.event.start.pid
    local brief = { ["Connect-Timeout-Ms"] = "100" }
    local other, next_other = sandbox:open("process.Process/Connect", { process = { pid = pid } }, brief)
    assert.are.equal(pid, next_other().message.event.start.pid)
    assert.are.equal("deadline_exceeded", next_other().message.error.code)
    other:close()
    assert.is_true(is_running "sleep 79")
    sandbox:unary("process.Process/SendSignal", { process = { pid = pid }, signal = 9 })
    assert.are.equal("signal: killed", next_frame().message.event["end"].status)
    res:close()
  end))

  it("signals groups, and says what it cannot", within(function()
    local message = support.shell("sleep 80 & sleep 81; true", { tag = "group" })
    local res, next_frame = sandbox:open("process.Process/Start", message)
    next_frame()
    local signal = { process = { tag = "group" }, signal = "SIGNAL_SIGKILL" }
    assert.are.equal(200, (sandbox:unary("process.Process/SendSignal", signal)))
    assert.are.equal("signal: killed", next_frame().message.event["end"].status)
    res:close()
    assert.is_false(is_running "sleep 8[01]")
    local CASES = {
      { '{"process":{"pid":4000000},"signal":"SIGNAL_SIGKILL"}', 404, "not_found", "process_not_found" },
      { '{"process":{"tag":"nobody"},"signal":"SIGNAL_SIGKILL"}', 404, "not_found", "process_not_found" },
      { '{"process":{"pid":1},"signal":"SIGNAL_SIGKILL"}', 404, "not_found", "process_not_found" },
      { '{"process":{"pid":1},"signal":"SIGNAL_SIGINT"}', 501, "unimplemented", "unimplemented" },
      { '{"process":{"pid":1}}', 501, "unimplemented", "unimplemented" },
      { '{"process":{"pid":-1},"signal":"SIGNAL_SIGKILL"}', 400, "invalid_argument", "invalid_argument" },
      { '{"process":{"pid":"1"},"signal":"SIGNAL_SIGKILL"}', 400, "invalid_argument", "invalid_argument" },
      { '{"signal":"SIGNAL_SIGKILL"}', 400, "invalid_argument", "invalid_argument" },
      { "[]", 400, "invalid_argument", "invalid_argument" },
    }
    for _, case in ipairs(CASES) do
      local status, body = sandbox:unary("process.Process/SendSignal", case[1])
      assert.are.same({ case[2], case[3], case[4] }, { status, body.code, body.error_code }, case[1])
    end
  end))

  it("writes to stdin and closes it", within(function()
    local message = support.shell("cat; echo end", { stdin = true })
    local res, next_frame = sandbox:open("process.Process/Start", message)
    local pid = next_frame().message.event.start.pid
    local input = { process = { pid = pid }, input = { stdin = core.crypto.base64 "one\0two\n" } }
    assert.are.equal(200, (sandbox:unary("process.Process/SendInput", input)))
    assert.are.equal("one\0two\n", core.crypto.unbase64(next_frame().message.event.data.stdout))
    assert.are.equal(200, (sandbox:unary("process.Process/CloseStdin", { process = { pid = pid } })))
    assert.are.equal("end\n", core.crypto.unbase64(next_frame().message.event.data.stdout))
    assert.is_true(next_frame().message.event["end"].exited)
    res:close()
    for _, text in ipairs { "not base64!", "QQ", core.json.null } do
      local bad = { process = { pid = pid }, input = { stdin = text } }
      assert.are.equal(400, (sandbox:unary("process.Process/SendInput", bad)))
    end
    input.process.pid = 4000000
    assert.are.equal(404, (sandbox:unary("process.Process/SendInput", input)))
    assert.are.equal(404, (sandbox:unary("process.Process/CloseStdin", { process = { pid = 4000000 } })))
  end))

  it("keeps an idle stream alive", within(function()
    local run = sandbox:start("sleep 2.2", { ["Keepalive-Ping-Interval"] = "1" })
    assert.are.equal(2, run.keepalives)
    assert.is_true(run.is_whole)
  end))

  it("sends at most what a spool lets live, then totals, tails and where the rest is", within(function()
    local headers = { ["X-Demilune-Spool"] = "10,20,10,20" }
    local run = sandbox:start("seq 1 10000; printf abc >&2; exit 5", headers)
    assert.are.equal("1\n2\n3\n4\n5\n", run.stdout)
    assert.are.equal("abc", run.stderr)
    assert.are.equal(48894, run.output.stdout.total)
    assert.are.equal("997\n9998\n9999\n10000\n", core.crypto.unbase64(run.output.stdout.tail))
    assert.are.same({ 3, "", json.null }, { run.output.stderr.total, run.output.stderr.tail, run.output.stderr.path })
    assert.are.equal(5, run["end"].exitCode)
    assert.truthy(run.output.stdout.path:find "^/tmp/%.demilune/")
    local kept = sandbox:read(run.output.stdout.path)
    assert.are.same({ 200, 48894 }, { kept.status, #kept.body })
    headers["Connect-Timeout-Ms"] = "300"
    local late = sandbox:start("seq 1 10000; sleep 60", headers)
    assert.are.same({ 48894, "deadline_exceeded" }, { late.output.stdout.total, late.error.code })
  end))

  it("reports the newest line once past what is live", within(function()
    local headers = { ["X-Demilune-Spool"] = "4,16,4,16", ["X-Demilune-Progress"] = "1" }
    local run = sandbox:start("for i in 1 2 3 4 5 6; do echo line $i; sleep 0.15; done", headers)
    assert.is_true(#run.lines >= 2 and #run.lines <= 6)
    for _, line in ipairs(run.lines) do assert.truthy(line:find "^line %d$") end
    assert.are.same({}, sandbox:start("seq 1 1000", { ["X-Demilune-Spool"] = "4,16,4,16" }).lines)
  end))

  it("ends a sandbox whose agent is killed from inside, at once", within(function()
    local other = engine:create()
    local before_ms = task.now_ms()
    local run = other:start "kill -9 1; kill -9 -1; kill -9 2; sleep 20"
    -- The first process of the sandbox cannot be killed from inside: pid namespaces protect it.
    assert.is_true(task.now_ms() - before_ms < 15000)
    local status = engine:call("GET", "/sandboxes/" .. other.id)
    if status == 404 then
      assert.is_true(run.error == nil or run.error.error_code == "sandbox_gone")
    else
      assert.are.equal("signal: killed", run["end"].status)
      assert.are.equal("alive\n", other:start("echo alive").stdout)
      other:kill()
    end
  end))

  it("answers 502 for sandboxes it does not know, other ports, and calls under way when one ends", within(function()
    local other = engine:create()
    local res, next_frame = other:open("process.Process/Start", support.shell "sleep 82")
    assert.is_true(next_frame().message.event.start.pid > 0)
    assert.are.equal(204, (other:kill()))
    local last = next_frame()
    assert.are.same({ 2, "unavailable", "sandbox_gone" },
      { last.flags, last.message.error.code, last.message.error.error_code })
    res:close()
    for _, id in ipairs { other.id, "nothing", "", "i" .. ("a"):rep(19) } do
      local headers = { ["E2b-Sandbox-Id"] = id, ["E2b-Sandbox-Port"] = "49983", ["Content-Type"] = "application/json" }
      for _, path in ipairs { "/health", "/files?path=x", "/process.Process/List" } do
        local method = path:find "Process" and "POST" or "GET"
        local status, body = engine:call(method, path, method == "POST" and "{}" or nil, headers)
        assert.are.same({ 502, 502, "The sandbox was not found" }, { status, body.code, body.message }, path)
        assert.are.equal(#id == 20 and id or "", body.sandboxId)
      end
    end
    local res2 = assert(sandbox:request("GET", "/health", { headers = { ["E2b-Sandbox-Port"] = "3000" } }))
    assert.are.same({ 502, 3000 }, { res2.status, json.decode(res2.body).port })
    assert.are.equal(204, assert(sandbox:request("GET", "/health")).status)
    assert.are.equal(502, assert(engine:request("GET", "/health")).status)
  end))

  it("answers methods that it does not have as Connect does", within(function()
    for _, method in ipairs { "process.Process/Update", "process.Process/StreamInput", "process.Process/Nope", "a.B/C" } do
      local status, body = sandbox:unary(method, {})
      assert.are.same({ 501, "unimplemented" }, { status, body.code }, method)
    end
    local _, next_frame = sandbox:open("process.Process/Other", { path = "/" })
    assert.are.equal("unimplemented", next_frame().message.error.code)
    assert.are.equal(415, (sandbox:unary("process.Process/List", {}, { ["Content-Type"] = "application/proto" })))
  end))

  it("starts `true` and ends its stream in little time", within(function()
    local message = { process = { cmd = "/bin/true" }, stdin = false }
    for _ = 1, 5 do sandbox:start(message) end
    local before_ms = task.now_ms()
    for _ = 1, 100 do sandbox:start(message) end
    local each_ms = (task.now_ms() - before_ms) / 100
    print(("note: engine: Start of true to the end of its stream takes %.1f ms"):format(each_ms))
    assert.is_true(each_ms < 25)
  end))
end)
