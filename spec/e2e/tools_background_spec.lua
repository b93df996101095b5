-- timeout: 150
--- Background tasks with real sandboxes: output, ends, and life across servers.

local cjson = require "cjson"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"
local support = require "spec.e2e.tools_support"

local must, fault, shell = support.must, support.fault, support.shell

local KEEP = "return { keep_on_exit = true }"

local function start(server, command, fields)
  local arguments = { command = command }
  for key, value in pairs(fields or {}) do arguments[key] = value end
  return must(server, "start_background_task", arguments).task_id
end

local function look(server, task_id, fields)
  local arguments = { task_id = task_id }
  for key, value in pairs(fields or {}) do arguments[key] = value end
  return must(server, "get_background_task", arguments, 40000)
end

local function ended(server, task_id)
  local seen
  support.eventually(function()
    seen = look(server, task_id, { wait = 2 })
    return seen.status ~= "running"
  end, 15000)
  return seen
end

describe("background tasks", function()
  local server
  setup(function() server = support.server() end)
  teardown(function() server:stop() end)

  it("start at once in a sandbox of their own making, and end as they end", function()
    local from = os_calls.now_ms()
    local begun = must(server, "start_background_task", { command = "echo out; echo err >&2; sleep 0.3; exit 3" })
    assert.is_true(os_calls.now_ms() - from < 2000)
    assert.are.same({ true, "running" }, { begun.created, begun.status })
    assert.truthy(begun.task_id:find "^bt_[%w_-]+$")
    assert.is_true(#begun.task_id >= 35)
    local seen = ended(server, begun.task_id)
    assert.are.same({ "failed", 3, "out\n", "err\n", begun.sandbox_id, begun.started_at },
      { seen.status, seen.exit_code, seen.stdout, seen.stderr, seen.sandbox_id, seen.started_at })
    assert.truthy(seen.finished_at:find "^%d+%-%d+%-%d+T[%d:.]+Z$")
    seen = ended(server, start(server, "true"))
    assert.are.same({ "succeeded", 0, "", cjson.null }, { seen.status, seen.exit_code, seen.stdout, seen.stdout_path })
    seen = ended(server, start(server, "kill -9 $$"))
    assert.are.same({ "failed", 137 }, { seen.status, seen.exit_code })
  end)

  it("run like commands: login bash, working directory, cwd, nothing on stdin", function()
    shell(server, "mkdir -p sub")
    local seen = ended(server, start(server, "pwd; shopt -q login_shell && echo login; cat; ls -A", { cwd = "sub" }))
    assert.are.equal("/home/user/sub\nlogin\n", seen.stdout)
    local err = fault(server, "start_background_task", { command = "true", cwd = "nowhere" })
    assert.are.same({ "file_not_found", "cwd" }, { err.category, err.field })
    for _, task in ipairs(must(server, "get_background_task", {}).tasks) do assert.are_not.equal("true ", task.command) end
  end)

  it("take commands of 1 MiB", function()
    local command = "echo long\n"
    command = command .. "#" .. ("y"):rep((1 << 20) - #command - 1)
    assert.are.equal("long\n", ended(server, start(server, command)).stdout)
  end)

  it("show output while they run, from offsets on, without a gap", function()
    local task = start(server, "for i in $(seq 1 30); do echo line $i; sleep 0.05; done")
    local parts, offset, looks = {}, 0, 0
    repeat
      local seen = look(server, task, { stdout_offset = offset, wait = 5 })
      parts[#parts + 1], offset, looks = seen.stdout, math.tointeger(seen.stdout_next_offset), looks + 1
    until seen.status ~= "running" and seen.stdout == ""
    local expected = {}
    for i = 1, 30 do expected[i] = "line " .. i .. "\n" end
    assert.are.equal(table.concat(expected), table.concat(parts))
    assert.is_true(looks >= 3)
  end)

  it("show long output in slices of 16 KiB, characters whole", function()
    local task = start(server, "for i in $(seq 1 20000); do printf 'ä€'; done; printf 'end'")
    ended(server, task)
    local parts, offset = {}, 0
    repeat
      local seen = look(server, task, { stdout_offset = offset })
      assert.is_true(#seen.stdout <= 16384)
      assert.are.equal(math.tointeger(seen.stdout_next_offset) < 100003, seen.stdout_truncated)
      parts[#parts + 1], offset = seen.stdout, math.tointeger(seen.stdout_next_offset)
    until seen.stdout == ""
    assert.are.equal(("ä€"):rep(20000) .. "end", table.concat(parts))
    local seen = look(server, task)
    assert.are.same({ true, 100003 }, { seen.stdout_truncated, seen.stdout_next_offset })
    assert.truthy(seen.stdout:find "^ä€ä€.*%[%d+ bytes left out; all of it is in /tmp/%.demilune/[^%]]+%]\n.*ä€end$")
    assert.are.equal("100003\n", shell(server, "stat -c %s " .. seen.stdout_path))
    for _, far in ipairs { "100003", "100004", "9223372036854775807" } do
      local content = server:call("get_background_task", ('{"task_id":"%s","stdout_offset":%s}'):format(task, far))
      assert.are.same({ "", 100003, "" }, { content.stdout, content.stdout_next_offset, content.stderr })
    end
  end)

  it("keep 64 MiB of output and let the command go on", function()
    local task = start(server, "head -c 100000000 /dev/zero; echo done >&2")
    local seen = ended(server, task)
    assert.are.same({ "succeeded", "done\n", 64 << 20 }, { seen.status, seen.stderr, seen.stdout_next_offset })
    shell(server, "rm " .. seen.stdout_path)
  end)

  it("wait for news and return with it", function()
    local task = start(server, "sleep 0.5; echo news; sleep 30")
    local from = os_calls.now_ms()
    local seen = look(server, task, { wait = 20, stdout_offset = 0 })
    assert.are.equal("news\n", seen.stdout)
    assert.is_true(os_calls.now_ms() - from < 5000)
    from = os_calls.now_ms()
    seen = look(server, task, { wait = 1, stdout_offset = 5 })
    assert.are.same({ "running", "" }, { seen.status, seen.stdout })
    assert.is_true(os_calls.now_ms() - from >= 900)
    must(server, "cancel_background_task", { task_id = task }, 20000)
  end)

  it("are cancelled with their group: TERM first, KILL after two seconds", function()
    local polite = start(server, "trap 'echo bye; exit 0' TERM; sleep 4751 & wait")
    local stubborn = start(server, "trap '' TERM; sleep 4752; sleep 4753")
    assert.is_true(support.eventually(function() return shell(server, "pgrep -c -f '^sleep 475[12]'; true") == "2\n" end))
    local done = must(server, "cancel_background_task", { task_id = polite }, 20000)
    assert.are.same({ polite, "cancelled", true }, { done.task_id, done.status, done.success })
    assert.are.equal("bye\n", look(server, polite).stdout)
    local from = os_calls.now_ms()
    assert.are.equal("cancelled", must(server, "cancel_background_task", { task_id = stubborn }, 20000).status)
    local took = os_calls.now_ms() - from
    assert.is_true(took >= 1800 and took < 5000, took)
    assert.are.equal("0\n", shell(server, "pgrep -c -f '^sleep 475[123]'; true"))
    for _, task in ipairs { polite, stubborn } do
      local seen = look(server, task)
      assert.are.same({ "cancelled", cjson.null }, { seen.status, seen.exit_code })
      assert.is_string(seen.finished_at)
    end
  end)

  it("stay as they ended when they are cancelled after that", function()
    for command, status in pairs { ["exit 0"] = "succeeded", ["exit 4"] = "failed" } do
      local task = start(server, command)
      ended(server, task)
      local done = must(server, "cancel_background_task", { task_id = task })
      assert.are.same({ status, true }, { done.status, done.success })
      assert.are.equal(status, look(server, task).status)
    end
  end)

  it("end at their deadline, the group with them, also what ignores TERM", function()
    local task = start(server, "echo begun; (trap '' TERM; sleep 4761; sleep 4761) & sleep 4762", { timeout = 1 })
    local seen = ended(server, task)
    assert.are.same({ "timed_out", cjson.null, "begun\n" }, { seen.status, seen.exit_code, seen.stdout })
    assert.is_true(support.eventually(function() return shell(server, "pgrep -c -f '^sleep 476'; true") == "0\n" end, 4000))
  end)

  it("are not held up by what they leave behind", function()
    local seen = ended(server, start(server, "sleep 4771 & echo started"))
    assert.are.same({ "succeeded", "started\n" }, { seen.status, seen.stdout })
    assert.are.equal("1\n", shell(server, "pgrep -c -f '^sleep 4771'; pkill -f '^sleep 4771'"))
  end)

  it("are lost when their wrapper is killed", function()
    local task = start(server, "sleep 4781")
    assert.is_true(support.eventually(function() return shell(server, "pgrep -c -f '^sleep 4781'; true") == "1\n" end))
    shell(server, "kill -9 $(cat /tmp/.demilune/tasks/*/wrapper) 2>/dev/null; pkill -f '^sleep 4781'; true")
    assert.are.equal("lost", ended(server, task).status)
  end)

  it("work whatever the sandbox's variables are", function()
    must(server, "create_sandbox", { envs = { PATH = "/nowhere", IFS = "x", LANG = "xx" } })
    local seen = ended(server, start(server, "echo $PATH; type -t printf"))
    assert.are.same({ "succeeded", "/nowhere\nbuiltin\n" }, { seen.status, seen.stdout })
  end)

  it("are unknown by ids that nobody gave", function()
    local real = start(server, "true")
    local forged = {
      "bt_", "bt_x", real:sub(4), "bt_" .. ("A"):rep(75), real .. "A", real:sub(1, -2), real .. "=", "BT_" .. real:sub(4),
      real:sub(1, 10) .. (real:sub(11, 11) == "A" and "B" or "A") .. real:sub(12), "bt_../../key", (real:gsub("[-_]", "+"))
        .. "+",
    }
    -- The last character of unpadded base64 has bits that mean nothing.
    for byte in ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"):gmatch "." do
      if byte ~= real:sub(-1) then forged[#forged + 1] = real:sub(1, -2) .. byte end
    end
    for _, id in ipairs(forged) do
      if id ~= real then
        for _, tool in ipairs { "get_background_task", "cancel_background_task" } do
          local err = fault(server, tool, { task_id = id })
          assert.are.same({ "not_found", "task_id" }, { err.category, err.field }, id)
        end
      end
    end
  end)

  it("are listed newest first with their commands cut", function()
    local task = start(server, "echo " .. ("ä"):rep(200))
    local listed = must(server, "get_background_task", {}).tasks
    assert.are.same({ task, "echo " .. ("ä"):rep(115) }, { listed[1].task_id, listed[1].command })
    assert.is_true(#listed <= 50)
    for i = 2, #listed do assert.is_true(listed[i - 1].started_at >= listed[i].started_at) end
    for _, entry in ipairs(listed) do
      local names = {}
      for name in pairs(entry) do names[#names + 1] = name end
      table.sort(names)
      assert.are.equal("command sandbox_id started_at status task_id", table.concat(names, " "))
    end
  end)

  it("are lost when their sandbox is gone", function()
    local begun = must(server, "start_background_task", { command = "sleep 100" })
    must(server, "kill_sandbox", { sandbox_id = begun.sandbox_id })
    local seen = look(server, begun.task_id)
    assert.are.same({ "lost", cjson.null, cjson.null }, { seen.status, seen.stdout, seen.exit_code })
    assert.are.equal("lost", must(server, "cancel_background_task", { task_id = begun.task_id }).status)
  end)
end)

describe("background tasks of a principal", function()
  it("run sixteen at a time, over all its servers", function()
    local server = support.server()
    local tasks = {}
    for i = 1, 16 do tasks[i] = start(server, "sleep 100") end
    local other = support.server { home = server.home }
    for _, one in ipairs { server, other } do
      local err = fault(one, "start_background_task", { command = "true" })
      assert.are.same({ "quota_exceeded", false }, { err.category, err.retryable })
    end
    must(server, "cancel_background_task", { task_id = tasks[3] }, 20000)
    start(other, "true")
    other:stop()
    server:stop()
  end)

  it("run as many as the operator says", function()
    local server = support.server { config = "return { limits = { tasks = 1 } }" }
    local task = start(server, "sleep 100")
    assert.are.equal("quota_exceeded", fault(server, "start_background_task", { command = "true" }).category)
    must(server, "cancel_background_task", { task_id = task }, 20000)
    ended(server, start(server, "true"))
    server:stop()
  end)

  it("outlive the server, even one that is killed, while their sandbox lives", function()
    local home = demilune.home()
    local first = support.server { home = home, config = KEEP }
    local task = start(first, "echo one; sleep 1; echo two; sleep 100")
    local sandbox_id = look(first, task).sandbox_id
    assert.is_true(support.eventually(function() return look(first, task).stdout == "one\n" end))
    first:signal(9)
    first:stop()
    local second = support.server { home = home, config = KEEP }
    assert.is_true(support.eventually(function() return look(second, task, { wait = 2 }).stdout == "one\ntwo\n" end))
    local seen = look(second, task, { stdout_offset = 4 })
    assert.are.same({ "running", "two\n", 8, sandbox_id },
      { seen.status, seen.stdout, seen.stdout_next_offset, seen.sandbox_id })
    assert.are.equal(task, must(second, "get_background_task", {}).tasks[1].task_id)
    assert.are.equal("cancelled", must(second, "cancel_background_task", { task_id = task }, 20000).status)
    second:stop()
    demilune.remove_home(home)
  end)

  it("are lost with their sandbox when a server ends that does not keep it", function()
    local home = demilune.home()
    local first = support.server { home = home }
    local task = start(first, "sleep 100")
    first:stop()
    local second = support.server { home = home }
    assert.are.equal("lost", look(second, task).status)
    second:stop()
    demilune.remove_home(home)
  end)

  it("are nobody else's, and their records private", function()
    local home = demilune.home()
    local server = support.server { home = home }
    local task = start(server, "sleep 100")
    local folder = demilune.state_dir(home) .. "/tasks"
    local lfs = require "lfs"
    local record
    for name in lfs.dir(folder) do
      if name:find "%.json$" then record = folder .. "/" .. name end
    end
    assert.are.same({ "rw-------", "rwx------" }, { lfs.attributes(record, "permissions"), lfs.attributes(folder,
      "permissions") })
    -- What a server of another principal would read.
    local file = assert(io.open(record))
    local text = file:read "a"
    file:close()
    file = assert(io.open(record, "w"))
    file:write((text:gsub('"principal":"[^"]*"', '"principal":"local:other"')))
    file:close()
    for _, tool in ipairs { "get_background_task", "cancel_background_task" } do
      local err = fault(server, tool, { task_id = task })
      assert.are.same({ "not_found", "task_id" }, { err.category, err.field })
    end
    assert.are.same({}, must(server, "get_background_task", {}).tasks)
    file = assert(io.open(record, "w"))
    file:write "{ not json"
    file:close()
    assert.are.equal("not_found", fault(server, "get_background_task", { task_id = task }).category)
    assert.are.same({}, must(server, "get_background_task", {}).tasks)
    server:stop()
    demilune.remove_home(home)
  end)

  it("keep their sandbox alive as long as they may take", function()
    local server = support.server()
    must(server, "create_sandbox", { timeout = 60 })
    local id = start(server, "sleep 1", { timeout = 5000 })
    assert.is_not_nil(id)
    local info = must(server, "get_sandbox", {})
    local function seconds(iso)
      local y, mo, d, h, mi, s = iso:match "(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)"
      return os.time { year = y, month = mo, day = d, hour = h, min = mi, sec = s }
    end
    local lives = seconds(info.end_at) - seconds(info.started_at)
    assert.is_true(lives >= 5000 and lives < 5100, lives)
    assert.is_not_nil(core)
    server:stop()
  end)
end)
