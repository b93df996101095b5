-- timeout: 120
--- run_command and run_code in real sandboxes: results, deadlines, output, cancels.

local cjson = require "cjson"
local os_calls = require "spec_os"
local support = require "spec.e2e.tools_support"

local must, fault, shell = support.must, support.fault, support.shell

describe("run_command", function()
  local server
  setup(function() server = support.server() end)
  teardown(function() server:stop() end)

  it("starts a sandbox by itself, in an empty working directory, as a login bash", function()
    local run = must(server, "run_command", { command = "pwd; ls -A; shopt -q login_shell && echo login; echo $BASH_VERSION" })
    assert.is_true(run.created)
    assert.truthy(run.stdout:find "^/home/user\nlogin\n5%.")
    assert.are.same({ 0, false, false, "" }, { run.exit_code, run.timed_out, run.stdout_truncated, run.stderr })
    assert.is_nil(must(server, "run_command", { command = "true" }).created)
  end)

  it("takes a non-zero exit for a result, and no exit code for a signal", function()
    local run = must(server, "run_command", { command = "echo out; echo err >&2; exit 7" })
    assert.are.same({ 7, "out\n", "err\n" }, { run.exit_code, run.stdout, run.stderr })
    assert.are.equal(cjson.null, must(server, "run_command", { command = "kill -9 $$" }).exit_code)
    assert.are.equal(127, must(server, "run_command", { command = "no-such-command" }).exit_code)
    assert.are.equal(2, must(server, "run_command", { command = "if (" }).exit_code)
  end)

  it("is a new shell each time", function()
    shell(server, "cd /tmp; export A=1; echo x > ~/kept")
    assert.are.equal("/home/user\n\nx\n", shell(server, "pwd; echo $A; cat kept"))
  end)

  it("takes cwd, relative and absolute, and tells one that is missing", function()
    shell(server, "mkdir -p 'dir/with space'")
    assert.are.equal("/home/user/dir/with space\n", must(server, "run_command", { command = "pwd",
      cwd = "dir/with space" }).stdout)
    assert.are.equal("/usr\n", must(server, "run_command", { command = "pwd", cwd = "/usr" }).stdout)
    for _, cwd in ipairs { "nowhere", "/nowhere", "kept", "~" } do
      local err = fault(server, "run_command", { command = "pwd", cwd = cwd })
      assert.are.same({ "file_not_found", "cwd" }, { err.category, err.field })
    end
  end)

  it("kills the whole group at its timeout and succeeds with what there was", function()
    local mark = "731"
    local run = must(server, "run_command", { command = ("echo begun; (sleep 4%s; echo never) & sleep 4%s"):format(mark,
      mark), timeout = 1 })
    assert.are.same({ true, cjson.null, "begun\n" }, { run.timed_out, run.exit_code, run.stdout })
    assert.is_true(run.duration_ms >= 900 and run.duration_ms < 2500)
    assert.truthy(run.note:find("start_background_task", 1, true))
    assert.are.equal("0\n", shell(server, "pgrep -fc '^sleep 4" .. mark .. "' || true"))
  end)

  it("returns when the shell has exited though a child holds the pipes, which lives on", function()
    local run = must(server, "run_command", { command = "sleep 4732 & echo started" }, 3000)
    assert.are.same({ "started\n", 0 }, { run.stdout, run.exit_code })
    assert.is_true(run.duration_ms < 2000)
    assert.are.equal("1\n", shell(server, "pgrep -c -f '^sleep 4732'; pkill -f '^sleep 4732'"))
  end)

  it("drains the pipes of a child that outlives its shell", function()
    must(server, "run_command", { command = "(sleep 0.3; head -c 1000000 /dev/zero; touch drained) & echo x" })
    assert.is_true(support.eventually(function()
      return must(server, "run_command", { command = "test -e drained" }).exit_code == 0
    end))
  end)

  it("has no stdin to hang on", function()
    assert.are.equal("end\n", must(server, "run_command", { command = "cat; echo end", timeout = 5 }).stdout)
  end)

  it("runs commands in one sandbox beside each other", function()
    local ids, from = {}, os_calls.now_ms()
    for i = 1, 8 do
      ids[i] = server:send("tools/call", { name = "run_command", arguments = { command = "sleep 0.5; echo " .. i } })
    end
    for i, id in ipairs(ids) do
      assert.are.equal(i .. "\n", server:receive(id).result.structuredContent.stdout)
    end
    assert.is_true(os_calls.now_ms() - from < 2500)
  end)

  it("lets a hundred calls wait at once, and answers pings meanwhile", function()
    local ids, from = {}, os_calls.now_ms()
    for i = 1, 100 do
      ids[i] = server:send("tools/call", { name = "run_command", arguments = { command = "sleep 1; echo " .. i } })
    end
    local pinged = os_calls.now_ms()
    assert.is_table(server:receive(server:send("ping")).result)
    assert.is_true(os_calls.now_ms() - pinged < 500)
    for i, id in ipairs(ids) do
      assert.are.equal(i .. "\n", server:receive(id, 20000).result.structuredContent.stdout)
    end
    assert.is_true(os_calls.now_ms() - from < 15000)
  end)

  it("takes commands of 1 MiB, by a script file that does not stay", function()
    local filler = (": '%s'\n"):format(("x"):rep(1000)):rep(1000)
    for _, size in ipairs { 96 * 1024 - 10, 96 * 1024, 96 * 1024 + 1, 130000, 1 << 20 } do
      local command = "echo long; " .. filler:sub(1, math.max(0, (size // 1006 - 1) * 1006))
      command = command .. "#" .. ("y"):rep(size - #command - 1)
      assert.are.equal(size, #command)
      assert.are.equal("long\n", must(server, "run_command", { command = command }).stdout, size)
    end
    assert.are.equal("0\n", shell(server, "ls /tmp/.demilune/code | wc -l"))
  end)

  it("shows bytes that are no UTF-8 as U+FFFD, and characters whole", function()
    local run = must(server, "run_command", { command = [[printf 'a\377b\303'; sleep 0.1; printf '\244\0c']] })
    assert.are.equal("a\u{FFFD}bä\0c", run.stdout)
  end)

  it("notes that there is no network when that is why a command failed, and fails at once", function()
    local from = os_calls.now_ms()
    local run = must(server, "run_command", { command =
      "python3 -c 'import socket; socket.create_connection((\"example.com\", 80))'" })
    assert.is_true(os_calls.now_ms() - from < 5000)
    assert.are_not.equal(0, run.exit_code)
    assert.are.equal("This sandbox has no network.", run.note)
    assert.is_nil(must(server, "run_command", { command = "ls /nowhere" }).note)
  end)
end)

describe("long output", function()
  local server
  setup(function() server = support.server() end)
  teardown(function() server:stop() end)

  it("is whole up to the limit and cut beyond, with all of it in a file", function()
    for _, size in ipairs { 16383, 16384 } do
      local run = must(server, "run_command", { command = ("head -c %d /dev/zero | tr '\\0' a"):format(size) })
      assert.are.same({ size, false, cjson.null }, { #run.stdout, run.stdout_truncated, run.stdout_path })
    end
    for _, size in ipairs { 16385, 20000, 28672, 28673, 40000, 1000000 } do
      local run = must(server, "run_command", { command = ("seq 1 1000000 | head -c %d"):format(size) })
      assert.is_true(run.stdout_truncated)
      local head, count, path, tail = run.stdout:match "^(.-)\n?%[(%d+) bytes left out; all of it is in ([^%]]+)%]\n(.*)$"
      assert.are.same({ 12288, path }, { #tail, run.stdout_path })
      assert.are.equal(size - 16384, math.tointeger(count))
      local whole = must(server, "run_command", { command = ("stat -c %%s %s; head -c 4096 %s | md5sum"):format(path,
        path) }).stdout
      assert.truthy(whole:find("^" .. size .. "\n"))
      local last = must(server, "download_file", { path = path, offset = size - 12288, length = 12288 })
      assert.are.equal(tail, require("demilune.core").crypto.unbase64(last.content_base64))
      assert.truthy(head:find "^1\n2\n3\n")
    end
  end)

  it("is cut on both streams, each by its own limit", function()
    local run = must(server, "run_command", { command =
      "head -c 50000 /dev/zero | tr '\\0' Q; head -c 50000 /dev/zero | tr '\\0' Z >&2" })
    assert.are.same({ 16384, 8192 }, { select(2, run.stdout:gsub("Q", "")), select(2, run.stderr:gsub("Z", "")) })
    assert.are_not.equal(run.stdout_path, run.stderr_path)
    assert.are.equal("50000\n", shell(server, "stat -c %s " .. run.stderr_path))
  end)

  it("of a command that is stopped at its timeout is kept too", function()
    local run = must(server, "run_command", { command = "seq 1 20000; sleep 30", timeout = 1 })
    assert.is_true(run.timed_out and run.stdout_truncated)
    assert.truthy(run.stdout:find "^1\n2\n")
    assert.truthy(run.stdout:find "\n20000\n$")
    assert.are.equal("20000\n", shell(server, "wc -l <" .. run.stdout_path))
  end)

  it("of a gigabyte leaves the server small", function()
    local run = must(server, "run_command", { command = "yes 0123456789abcde | head -c 1073741824", timeout = 60 }, 60000)
    assert.are.equal(0, run.exit_code)
    assert.truthy(run.stdout:find(("[%d bytes left out; its first 64 MiB are in "):format((1 << 30) - 16384), 1, true))
    assert.are.equal(tostring(64 << 20) .. "\n", shell(server, "stat -c %s " .. run.stdout_path))
    print(("note: 1 GiB of output: %d ms, server peak %d MiB"):format(run.duration_ms, support.peak_mb(server.pid)))
    assert.is_true(support.peak_mb(server.pid) < 64)
  end)
end)

describe("run_code", function()
  local server
  setup(function() server = support.server() end)
  teardown(function() server:stop() end)

  it("runs a program with line numbers and reports the files it made", function()
    local run = must(server, "run_code", { code =
      "open('a.csv','w').write('1,2')\nopen('b.PNG','wb').write(b'x'*10)\nprint('ok')" })
    assert.are.same({ "ok\n", cjson.null, true }, { run.stdout, run.result, run.created })
    assert.are.same({
      { name = "a.csv", path = "/home/user/a.csv", size = 3, mime = "text/csv" },
      { name = "b.PNG", path = "/home/user/b.PNG", size = 10, mime = "image/png" },
    }, run.output_files)
    run = must(server, "run_code", { code = "\n\nraise ValueError('x')" })
    assert.are.equal(1, run.exit_code)
    assert.truthy(run.stderr:find("line 3", 1, true))
    assert.are.same({}, run.output_files)
  end)

  it("is fresh each time, and leaves nothing of its own behind", function()
    assert.truthy(must(server, "run_code", { code = "x = 1" }).exit_code == 0)
    assert.truthy(must(server, "run_code", { code = "print(x)" }).stderr:find "NameError")
    shell(server, "echo 'v = 5' > mod.py")
    assert.are.equal("5\n/home/user\n", must(server, "run_code",
      { code = "import mod, os\nprint(mod.v)\nprint(os.getcwd())" }).stdout)
    assert.are.equal("0\n", shell(server, "ls /tmp/.demilune/code | wc -l"))
  end)

  it("speaks shell and JavaScript where there is an interpreter, and names those that there are", function()
    assert.are.equal("hi /home/user\n", must(server, "run_code", { language = "shell", code = "echo hi $PWD" }).stdout)
    local run = must(server, "run_code", { language = "shell", code = "\nnope" })
    assert.truthy(run.stderr:find("line 2", 1, true))
    local err = fault(server, "run_code", { language = "r", code = "1" })
    assert.are.same({ "unsupported", "language", false }, { err.category, err.field, err.retryable })
    local allowed = table.concat(err.allowed, " ")
    assert.truthy(allowed:find "python" and allowed:find "shell")
    assert.is_nil(allowed:find("%f[%w]r%f[%W]"))
    if allowed:find "javascript" then
      run = must(server, "run_code", { language = "javascript", code = "console.log([1,2].map(x => x * 2))" })
      assert.are.equal("[ 2, 4 ]\n", run.stdout)
    end
  end)

  it("stops at its timeout", function()
    local run = must(server, "run_code", { code = "import time\nprint('a', flush=True)\ntime.sleep(60)", timeout = 1 })
    assert.are.same({ true, "a\n", cjson.null }, { run.timed_out, run.stdout, run.exit_code })
  end)

  it("takes code of 1 MiB and reports at most a hundred files", function()
    local code = "for i in range(150): open('f%03d' % i, 'w').close()\nprint('x')\n"
    code = code .. "#" .. ("y"):rep((1 << 20) - #code - 1)
    local run = must(server, "run_code", { code = code })
    assert.are.same({ "x\n", 100 }, { run.stdout, #run.output_files })
    assert.are.same({ "f000", "application/octet-stream" }, { run.output_files[1].name, run.output_files[1].mime })
  end)
end)

describe("cancelling", function()
  local server
  setup(function()
    server = support.server()
    shell(server, "true")
  end)
  teardown(function() server:stop() end)

  it("kills the process group within a second, without an answer, and leaves the rest usable", function()
    for _, one in ipairs {
      { "run_command", { command = "(sleep 4741; true) & sleep 4741" } },
      { "run_code", { code = "import subprocess\nsubprocess.run(['sleep','4741'])" } },
    } do
      local id = server:send("tools/call", { name = one[1], arguments = one[2] })
      assert.is_true(support.eventually(function()
        return must(server, "run_command", { command = "pgrep -f '^sleep 4741'" }).exit_code == 0
      end))
      server:notify("notifications/cancelled", { requestId = id })
      local from = os_calls.now_ms()
      assert.is_true(support.eventually(function()
        return must(server, "run_command", { command = "pgrep -f '^sleep 4741'" }).exit_code == 1
      end, 2000))
      assert.is_true(os_calls.now_ms() - from < 1000)
      assert.are.equal("fine\n", shell(server, "echo fine"))
      assert.is_nil(server.answers[tostring(id)])
    end
  end)

  it("of a call that creates its sandbox leaves none", function()
    local fresh = support.server { home = server.home }
    local id = fresh:send("tools/call", { name = "run_command", arguments = { command = "sleep 5" } })
    fresh:notify("notifications/cancelled", { requestId = id })
    assert.is_true(support.eventually(function() return #must(fresh, "list_sandboxes", {}).sandboxes == 1 end))
    fresh:stop()
  end)
end)

describe("progress", function()
  local server
  setup(function()
    server = support.server()
    shell(server, "true")
  end)
  teardown(function() server:stop() end)

  local function call_with(token, command)
    server.notifications = {}
    local params = [[{"name":"run_command","arguments":{"command":%s},"_meta":{"progressToken":%s}}]]
    local id = server:send("tools/call", params:format(cjson.encode(command), token))
    assert.is_table(server:receive(id, 20000).result)
    local found = {}
    for _, message in ipairs(server.notifications) do
      if message.method == "notifications/progress" then found[#found + 1] = message.params end
    end
    return found
  end

  it("is the newest line, counts up, at most five a second, for any token", function()
    for _, token in ipairs { "0", '"t"', "7" } do
      local from = os_calls.now_ms()
      local found = call_with(token, "for i in $(seq 1 100); do echo line $i; sleep 0.01; done")
      local seconds = (os_calls.now_ms() - from) / 1000
      assert.is_true(#found >= 2 and #found <= 5 * seconds + 1, #found .. " in " .. seconds)
      for i, params in ipairs(found) do
        assert.are.equal(i, params.progress)
        assert.truthy(params.message:find "^line %d+$")
        assert.are.equal(cjson.decode("[" .. token .. "]")[1], params.progressToken)
      end
    end
  end)

  it("goes on when the output is longer than what is shown", function()
    local found = call_with('"t"', "head -c 200000 /dev/zero | tr '\\0' x; echo;"
      .. " for i in 1 2 3 4 5; do echo late $i; sleep 0.3; done")
    assert.truthy(found[#found].message:find "^late %d$")
  end)

  it("is not sent without a token", function()
    server.notifications = {}
    shell(server, "for i in 1 2 3; do echo $i; sleep 0.1; done")
    assert.are.same({}, server.notifications)
  end)
end)
