-- timeout: 170
--- The fifteen tools over the REST API as far as it is known, with commands that really run.

local core = require "demilune.core"
local support = require "spec.veryfront.support"

local json = core.json
local NOBODY = "0a1b2c3d-0000-4000-8000-0123456789ab"

describe("the fifteen", function()
  local vf, why = support.open()
  if not vf then
    it("are tried", function() pending(why) end)
    return
  end
  teardown(function() vf:close() end)

  local function shell(command, more)
    local arguments = { command = command }
    for key, value in pairs(more or {}) do arguments[key] = value end
    return vf:must("run_command", arguments)
  end

  it("create what was asked for: the platform's lifetime, or whole hours", function()
    vf:run(function()
      vf:set { pending = 1 }
      local made = vf:must("create_sandbox", {})
      assert.are.same({ "running", "/workspace", "provider" }, { made.status, made.workdir, made.network })
      assert.are.same({ ttl_mode = "default" }, vf:requests("POST /sandbox%-sessions$")[1].body)
      assert.is_true(#vf:requests "GET /sandbox%-sessions/[%x-]+$" >= 1)
      assert.are.equal(1, #vf:requests "GET /sandbox%-sessions/[%x-]+/commands$")
      made = vf:must("create_sandbox", { timeout = 7200 })
      assert.are.same({ ttl_mode = "duration", ttl_hours = 2 }, vf:requests("POST /sandbox%-sessions$")[2].body)
      assert.is_true(made.end_at > "2026")
    end)
    vf:run(function()
      vf:must("create_sandbox", {})
      assert.are.equal(support.PROJECT, vf:requests("POST /sandbox%-sessions$")[1].body.project_id)
    end, { project = support.PROJECT })
  end)

  it("refuse what the API is not known to do, before any request", vf:test(function()
    for field, arguments in pairs {
      template = { template = "base" }, cpu = { cpu = 2 }, memory = { memory = 512 }, region = { region = "eu" },
      envs = { envs = { A = "1" } }, timeout = { timeout = 5000 },
    } do
      local err = vf:fault("create_sandbox", arguments)
      assert.are.same({ "unsupported", field }, { err.category, err.field })
    end
    assert.are.equal("unsupported", vf:fault("list_sandboxes", { region = "eu" }).category)
    assert.are.equal("sandbox_id", vf:fault("get_sandbox", { sandbox_id = "not-a-uuid" }).field)
    assert.are.same({}, vf:seen().requests)
    vf:build { project = "shop" }
    assert.are.equal("provider", vf:fault("create_sandbox", {}).field)
    assert.are.same({}, vf:seen().requests)
  end))

  it("leave nothing behind where a creation does not come to its end", vf:test(function()
    vf:set { pending = 1, outcome = "error" }
    assert.are.equal("no_capacity", vf:fault("create_sandbox", {}).category)
    assert.are.equal(1, #vf:requests "^DELETE")
    for status, category in pairs { [503] = "no_capacity", [402] = "quota_exceeded", [400] = "provider_rejected",
      [500] = "unavailable" } do
      vf:set { reset = true, faults = json.array { { path = "sandbox-sessions$", http = "POST", status = status, times = 1 } } }
      assert.are.equal(category, vf:fault("create_sandbox", {}).category)
      assert.are.equal(1, #vf:requests "POST /sandbox%-sessions$")
    end
    vf:set { reset = true, faults = json.array { { path = "sandbox-sessions$", http = "POST", status = 201, times = 1,
      type = "application/json", body = '{"id":"x","status":"running"}' } } }
    assert.are.equal("invalid_response", vf:fault("create_sandbox", {}).category)
    -- Cancelled while it waits: the creation is killed as soon as it can be.
    vf:set { reset = true, pending = 3 }
    local job = core.task.spawn(function() return vf:call("create_sandbox", {}) end)
    assert(support.eventually(function() return #vf:requests "POST /sandbox%-sessions$" == 1 end))
    job:cancel()
    assert(support.eventually(function() return #vf:requests "^DELETE" >= 1 end, 12000))
  end))

  it("wait for a data plane that is not there yet", vf:test(function()
    vf:set { faults = json.array { { path = "/commands$", http = "GET", status = 502, times = 1 } } }
    vf:must("create_sandbox", {})
    assert.are.equal(2, #vf:requests "GET /sandbox%-sessions/[%x-]+/commands$")
  end))

  it("list by pages, whether the service gives cursors or links", function()
    for _, link in ipairs { false, true } do
      vf:run(function()
        for _ = 1, 5 do vf:must("create_sandbox", {}) end
        vf:set { link = link, pageSize = 2 }
        local all = vf:must("list_sandboxes", { limit = 100 }).sandboxes
        assert.is_true(#all >= 5)
        local rest = vf:must("list_sandboxes", { limit = 2, offset = 3 }).sandboxes
        assert.are.same({ all[4].sandbox_id, all[5].sandbox_id }, { rest[1].sandbox_id, rest[2].sandbox_id })
        assert.are.same({}, table.move(vf:must("list_sandboxes", { status = "paused" }).sandboxes, 1, 9, 1, {}))
        assert.are.equal(0, #vf:must("list_sandboxes", { status = "error" }).sandboxes)
        for _, request in ipairs(vf:requests "GET /sandbox%-sessions%?") do
          assert.truthy(request.path:find "limit=100")
        end
      end)
    end
  end)

  it("list within one deadline, however many pages there are", vf:test(function()
    local veryfront = require "demilune.providers.veryfront"
    local usual = veryfront.LIST_MS
    veryfront.LIST_MS = 0
    local ok, err = pcall(vf.fault, vf, "list_sandboxes", {})
    veryfront.LIST_MS = usual
    assert.is_true(ok, err)
    assert.are.equal("provider_timeout", err.category)
  end))

  it("look, end and keep alive by the control plane alone", vf:test(function()
    local made = vf:must("create_sandbox", {})
    vf:must("get_sandbox", {})
    local err = vf:fault("set_sandbox_timeout", { timeout = 60 })
    assert.are.same({ "unsupported", "timeout" }, { err.category, err.field })
    assert.truthy(err.suggestion:find(support.UPDATE, 1, true))
    vf.provider:renew(made.sandbox_id)
    assert.are.equal(1, #vf:requests "POST /sandbox%-sessions/[%x-]+/heartbeat")
    assert.is_true(vf:must("kill_sandbox", {}).existed)
    assert.is_false(vf:must("kill_sandbox", { sandbox_id = made.sandbox_id }).existed)
    assert.are.equal("sandbox_gone", vf:fault("get_sandbox", { sandbox_id = made.sandbox_id }).category)
    assert.are.equal("not_found", vf:fault("get_sandbox", { sandbox_id = NOBODY }).category)
  end))

  it("run commands: output, exit code, working directory, stderr", vf:test(function()
    vf:set { exec = "extra" }
    local run = shell "echo out; echo wrong >&2; pwd; exit 3"
    assert.are.same({ "out\n/workspace\n", "wrong\n", 3, false }, { run.stdout, run.stderr, run.exit_code, run.timed_out })
    assert.are.equal("/tmp\n", shell("pwd", { cwd = "/tmp" }).stdout)
    local err = vf:fault("run_command", { command = "true", cwd = "/nowhere" })
    assert.are.same({ "file_not_found", "cwd" }, { err.category, err.field })
    assert.are.equal("it's \"a\" $x\n", shell("x='it'\"'\"'s \"a\" $x'; echo \"$x\"").stdout)
    assert.are.equal(199, shell("exit 199").exit_code)
    local body = vf:requests("commands/stream")[1].body
    assert.are.equal(60, body.timeout_seconds)
    assert.are.equal(127, shell("exit 127").exit_code)
    vf:set { exec = "drip" }
    run = shell "printf 'häß€😀'"
    assert.are.same({ "häß€😀", 0 }, { run.stdout, run.exit_code })
  end))

  it("cut long outputs, and take commands longer than an argument may be", vf:test(function()
    local run = shell "head -c 300000 /dev/zero | tr '\\0' a; echo end"
    assert.is_true(run.stdout_truncated)
    assert.is_true(#run.stdout <= 17000)
    assert.truthy(run.stdout:find "end\n$")
    assert.are.equal(json.null, run.stdout_path)
    run = shell("# " .. ("'"):rep(200000) .. "\necho ok; ls -A /workspace /tmp/.demilune/code")
    assert.are.equal("ok", run.stdout:match "^%l+")
    assert.is_nil(run.stdout:find "%.demilune%-")
  end))

  it("end a command at its timeout, all of it, with what it said so far", vf:test(function()
    local run = shell("echo before; sleep 50 & sleep 60", { timeout = 1 })
    assert.are.same({ true, json.null, "before\n" }, { run.timed_out, run.exit_code, run.stdout })
    assert(support.eventually(function() return vf:seen().running == 0 end))
    -- Nothing of ours is left either: no watch that sleeps on.
    shell("true", { timeout = 3000 })
    run = shell "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 300[0]' || true"
    assert.are.equal("0\n", run.stdout)
  end))

  it("keep the sandbox from counting as idle while a command runs, and not longer", vf:test(function()
    local runs = require "demilune.veryfront.run"
    local every_ms = runs.HEARTBEAT_MS
    finally(function() runs.HEARTBEAT_MS = every_ms end)
    runs.HEARTBEAT_MS = 60
    vf:must("create_sandbox", {})
    vf:set { faults = json.array { { path = "heartbeat$", status = 400, times = 1 } } }
    shell "sleep 0.5"
    local beats = #vf:requests "heartbeat$"
    assert.is_true(beats >= 3 and beats <= 10, beats)
    core.task.sleep(200)
    assert.are.equal(beats, #vf:requests "heartbeat$")
  end))

  it("end a command whose call is cancelled", vf:test(function()
    vf:must("create_sandbox", {})
    local job = core.task.spawn(function() return vf:call("run_command", { command = "sleep 40; echo no" }) end)
    assert(support.eventually(function() return vf:seen().running == 1 end))
    core.task.sleep(200)
    job:cancel()
    assert(support.eventually(function() return vf:seen().running == 0 end))
    assert.are.equal("ok\n", shell("echo ok").stdout)
  end))

  it("say what is wrong with a stream", vf:test(function()
    vf:must("create_sandbox", {})
    for mode, category in pairs {
      garbage = "invalid_response", noexit = "invalid_response", reset = "invalid_response", error = "provider_rejected",
    } do
      vf:set { exec = mode }
      assert.are.equal(category, vf:fault("run_command", { command = "true" }).category, mode)
    end
    vf:set { exec = "" }
    for status, category in pairs { [401] = "authentication_failed", [429] = "quota_exceeded", [500] = "unavailable",
      [404] = "provider_rejected" } do
      vf:set { faults = json.array { { path = "commands/stream", status = status } } }
      assert.are.equal(category, vf:fault("run_command", { command = "true" }).category, status)
    end
  end))

  it("tell a sandbox that has ended from a failure, and clear the default", vf:test(function()
    local made = vf:must("create_sandbox", {})
    vf.provider:kill(made.sandbox_id)
    local err = vf:fault("run_command", { command = "true" })
    assert.are.same({ "sandbox_gone", true }, { err.category, err.default_cleared })
    assert.are.equal("not_found", vf:fault("run_command", { command = "true", sandbox_id = NOBODY }).category)
    assert.is_true(shell("true").created)
  end))

  it("write and read files whole, with their parents, and bytes as they are", vf:test(function()
    vf:must("write_file", { path = "a/b/täxt.txt", content = "häß\n€ two\n" })
    for _, raw in ipairs { false, true } do
      vf:set { raw = raw }
      local page = vf:must("read_file", { path = "a/b/täxt.txt" })
      assert.are.same({ "häß\n€ two\n", 14, 2 }, { page.content, page.size, page.end_line })
    end
    local bytes = ""
    for i = 0, 255 do bytes = bytes .. string.char(i) end
    bytes = bytes:rep(40)
    local up = vf:must("upload_file", { path = "/tmp/bin", content_base64 = core.crypto.base64(bytes) })
    assert.are.equal(#bytes, up.size)
    local down = vf:must("download_file", { path = "/tmp/bin", offset = 250, length = 20 })
    assert.are.equal(bytes:sub(251, 270), core.crypto.unbase64(down.content_base64))
    assert.are.same({ 20, #bytes, 270 }, { down.bytes_read, down.size, down.next_offset })
    assert.are.equal(json.null, vf:must("download_file", { path = "/tmp/bin", offset = 99999999 }).next_offset)
    up = vf:must("upload_file", { path = "/tmp/bin", content_base64 = core.crypto.base64 "more", offset = #bytes })
    assert.are.equal(#bytes + 4, up.size)
    local err = vf:fault("upload_file", { path = "/tmp/bin", content_base64 = "", offset = 5 })
    assert.are.same({ "conflict", #bytes + 4 }, { err.category, err.size })
    assert.are.equal("not_text", vf:fault("read_file", { path = "/tmp/bin" }).category)
    assert.are.equal("", shell("ls -A /workspace | grep demilune || true").stdout)
  end))

  it("keep a file's mode and follow its link, and leave the old file where writing fails", vf:test(function()
    shell "echo old >real; chmod 750 real; ln -s real link; mkdir dir; echo x >plain"
    vf:must("write_file", { path = "link", content = "new\r\n" })
    assert.are.equal("750 new\r\n", shell("stat -c %a real | tr '\\n' ' '; cat real; test -L link").stdout)
    assert.are.equal("is_directory", vf:fault("write_file", { path = "dir", content = "" }).category)
    assert.are.equal("not_a_directory", vf:fault("write_file", { path = "plain/x", content = "" }).category)
    assert.are.equal("unsupported", vf:fault("write_file", { path = "/dev/null", content = "" }).category)
    for path, category in pairs {
      nothing = "file_not_found", ["plain/x"] = "not_a_directory", dir = "is_directory", ["/dev/null"] = "unsupported",
    } do
      for _, tool in ipairs { "read_file", "download_file" } do
        local err = vf:fault(tool, { path = path })
        assert.are.same({ category, "path" }, { err.category, err.field }, tool .. " " .. path)
      end
    end
    assert.are.equal("", shell("find / -xdev -name '*.new' -path '*demilune*' 2>/dev/null").stdout)
  end))

  it("list a directory by name, with types and sizes", vf:test(function()
    shell "mkdir -p d/sub; printf abc >'d/a b'; ln -s nowhere d/l; mkfifo d/p; : >d/.h; : >\"d/$(printf 'x\\ny')\""
    local listed = vf:must("list_files", { path = "d" })
    local rows = {}
    for i, file in ipairs(listed.files) do
      rows[i] = ("%s %s %s %s"):format(file.name, file.path, file.type, file.size == json.null and "-" or file.size)
    end
    assert.are.same({
      ".h /workspace/d/.h file 0", "a b /workspace/d/a b file 3", "l /workspace/d/l symlink -", "p /workspace/d/p other -",
      "sub /workspace/d/sub directory -",
    }, rows)
    listed = vf:must("list_files", { path = "d", limit = 2 })
    assert.are.same({ 2, 5, true }, { #listed.files, listed.total, listed.truncated })
    assert.are.equal(0, vf:must("list_files", { path = "d/sub" }).total)
    assert.are.equal("file_not_found", vf:fault("list_files", { path = "e" }).category)
    assert.are.equal("not_a_directory", vf:fault("list_files", { path = "d/a b" }).category)
  end))

  it("run code, and report the files that it made", vf:test(function()
    local run = vf:must("run_code", { code = "open('made.csv','w').write('1')\nprint(6*7)" })
    assert.are.same({ "42\n", 0 }, { run.stdout, run.exit_code })
    assert.are.same({ { name = "made.csv", path = "/workspace/made.csv", size = 1, mime = "text/csv" } },
      table.move(run.output_files, 1, 9, 1, {}))
    local err = vf:fault("run_code", { code = "1", language = "r" })
    assert.are.same({ "unsupported", "language" }, { err.category, err.field })
  end))
end)
