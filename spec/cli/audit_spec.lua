-- timeout: 120
--- `demilune audit`: what it shows of a file, and the file that a real server writes.

local cjson = require "cjson"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local lfs = require "lfs"

local DAY_MS = 86400000

local home, count

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function iso(ago_ms) return core.task.iso(core.task.epoch_ms() - (ago_ms or 0)) end

--- The lines of a decision and its outcome.
local function call(more)
  count = count + 1
  local record = {
    time = iso(), id = "id" .. count, principal = "local:me", client = "spec", transport = "stdio", tool = "run_command",
    args_digest = ("0"):rep(64), decision = "allow", policy_version = "v", implicit = false,
  }
  for key, value in pairs(more or {}) do record[key] = value end
  return cjson.encode(record) .. "\n"
end

local function outcome(word, more)
  local record = { time = iso(), id = "id" .. count, outcome = word, duration_ms = 7 }
  for key, value in pairs(more or {}) do record[key] = value end
  return cjson.encode(record) .. "\n"
end

local function audit(...)
  return demilune.run({ "audit", ... }, { home = home, config = 'return { audit = "audit.jsonl" }' })
end

local function records(...)
  local result = audit("--json", ...)
  assert.are.equal(0, result.code, result.stderr)
  assert.are.equal(1, select(2, result.stdout:gsub("\n", "")))
  local decoded = cjson.decode(result.stdout)
  return decoded.records, decoded
end

local function field_of(list, key)
  local values = {}
  for i, record in ipairs(list) do values[i] = record[key] end
  return table.concat(values, " ")
end

describe("demilune audit", function()
  before_each(function() home, count = demilune.home(), 0 end)
  after_each(function() demilune.remove_home(home) end)

  local function put(...) write(home .. "/audit.jsonl", table.concat { ... }) end

  it("shows decisions with their outcomes as a table", function()
    put(call { time = "2026-11-30T09:00:00.123Z", rule = "paced", sandbox_id = "abc" }, outcome "ok",
      call { time = "2026-11-30T09:00:01.000Z", tool = "kill_sandbox", decision = "deny", rule = "no-kill" },
      outcome "policy_denied",
      call { time = "2026-11-30T09:00:02.000Z", tool = "create_sandbox", implicit = true })
    local result = audit()
    assert.are.equal("", result.stderr)
    assert.are.equal(table.concat {
      "TIME (UTC)           PRINCIPAL  TOOL                       DECISION  RULE     SANDBOX  OUTCOME        MS\n",
      "2026-11-30 09:00:00  local:me   run_command                allow     paced    abc      ok             7\n",
      "2026-11-30 09:00:01  local:me   kill_sandbox               deny      no-kill  -        policy_denied  7\n",
      "2026-11-30 09:00:02  local:me   create_sandbox (implicit)  allow     -        -        -              -\n",
    }, result.stdout)
    assert.are.equal(0, result.code)
  end)

  it("joins outcomes that come later, and in another order", function()
    local first, first_outcome = call { tool = "a" }, outcome("ok", { sandbox_id = "found" })
    local second, second_outcome = call { tool = "b" }, outcome "not_found"
    put(first, second, second_outcome, first_outcome)
    local list = records()
    assert.are.equal("a b", field_of(list, "tool"))
    assert.are.equal("ok not_found", field_of(list, "outcome"))
    assert.are.equal("found", list[1].sandbox_id)
    assert.are.equal(7, list[1].duration_ms)
  end)

  it("shows a question and its answer as one", function()
    local function asked(decision, ending, more)
      local lines = call { decision = "ask", rule = "careful" } .. outcome "approval_required"
      if not decision then return lines end
      count = count - 1
      return lines .. call { decision = decision, answered_by = "operator", approval_id = "ap_x", rule = more } .. outcome(ending)
    end
    put(asked("allow", "ok"), asked("deny", "approval_refused"), asked(), asked("deny", "rate_limited", "paced"))
    local list = records()
    assert.are.equal("allow deny ask deny", field_of(list, "decision"))
    assert.are.equal("ok approval_refused approval_required rate_limited", field_of(list, "outcome"))
    assert.are.same({ true, "operator", "ap_x", "careful" },
      { list[1].asked, list[1].answered_by, list[1].approval_id, list[1].rule })
    assert.are.equal("paced", list[4].rule)
    assert.is_truthy(audit().stdout:find("ask, allow by operator", 1, true))
    assert.are.equal("id2 id3 id4", field_of(records "--denied", "id"))
  end)

  it("filters by time, tool and denial", function()
    put(call { tool = "run_command", time = iso(3 * DAY_MS) }, outcome "ok", call { tool = "run_code", time = iso(3 * 3600000) },
      outcome "ok", call { tool = "kill_sandbox", decision = "deny", time = iso(60000) }, outcome "policy_denied",
      call { tool = "read_file", time = iso(1000) }, outcome "policy_denied", call { tool = "list_files" }, outcome "ok")
    local rows = {
      { {}, "id1 id2 id3 id4 id5" }, { { "--since", "2h" }, "id3 id4 id5" }, { { "--since", "90m" }, "id3 id4 id5" },
      { { "--since", "2d" }, "id2 id3 id4 id5" }, { { "--since", "30s" }, "id4 id5" },
      { { "--since", "1w" }, "id1 id2 id3 id4 id5" },
      { { "--since", iso(2 * DAY_MS):sub(1, 10) }, "id2 id3 id4 id5" },
      { { "--since", iso(120000) }, "id3 id4 id5" }, { { "--since", iso(120000):sub(1, 19) .. "Z" }, "id3 id4 id5" },
      { { "--since", "2099-01-01" }, "" }, { { "--tool", "run_*" }, "id1 id2" }, { { "--tool", "read_file" }, "id4" },
      { { "--tool", "{read,list}_*" }, "id4 id5" }, { { "--tool", "Run_*" }, "" }, { { "--denied" }, "id3 id4" },
      { { "--denied", "--tool", "kill*", "--since", "1h" }, "id3" },
    }
    for _, row in ipairs(rows) do
      assert.are.equal(row[2], field_of(records(table.unpack(row[1])), "id"), table.concat(row[1], " "))
    end
    assert.are.equal("No records.\n", audit("--tool", "nothing").stdout)
  end)

  it("refuses what is no time, no glob and no option", function()
    put()
    for _, text in ipairs { "yesterday", "2h30m", "-1h", "5", "h", "2026-13-01", "2026-02-30", "2026-11-30T25:00:00Z",
      "2026-11-30T09:00:00", "2026-11-30T09:00:00+01:00", "9999999h", "" } do
      local result = audit("--since", text)
      assert.are.equal(2, result.code, text)
      assert.is_truthy(result.stderr:find("--since takes a time like 2h", 1, true))
    end
    for _, text in ipairs { "run_[", "@execute" } do
      local result = audit("--tool", text)
      assert.are.equal(2, result.code, text)
      assert.is_truthy(result.stderr:find("--tool takes the name of a tool", 1, true))
    end
    assert.are.equal(2, audit("--allowed").code)
    assert.are.equal(2, audit("word").code)
  end)

  it("says where there is no audit, nothing in it yet, and where it cannot be read", function()
    local none = demilune.run({ "audit" }, { home = home, config = "return {}" })
    assert.are.equal(1, none.code)
    assert.is_truthy(none.stderr:find('audit = "audit.jsonl"', 1, true))
    assert.are.same({ 0, "No records.\n" }, { audit().code, audit().stdout })
    assert(lfs.mkdir(home .. "/audit.jsonl"))
    local folder = audit()
    assert.are.equal(1, folder.code)
    assert.is_truthy(folder.stderr:find("cannot be read: it is a folder.", 1, true), folder.stderr)
  end)

  it("waits for no pipe, and reads no device", function()
    assert(os.execute(("mkfifo '%s/audit.jsonl'"):format(home)))
    local pipe = audit()
    assert.are.equal(1, pipe.code)
    assert.is_truthy(pipe.stderr:find("cannot be read: it is no ordinary file.", 1, true), pipe.stderr)
    for path, why in pairs { ["/dev/zero"] = "it is no ordinary file", ["/dev/null/audit.jsonl"] = "is not a directory.\n" } do
      local result = demilune.run({ "audit" }, { home = home, config = ('return { audit = "%s" }'):format(path) })
      assert.are.equal(1, result.code)
      assert.is_truthy(result.stderr:find(why, 1, true), result.stderr)
    end
  end)

  it("reads rotated files too, oldest first", function()
    write(home .. "/audit.jsonl.2", call { tool = "one" })
    write(home .. "/audit.jsonl.1", outcome "ok" .. call { tool = "two" })
    write(home .. "/audit.jsonl.4", call { tool = "behind a gap" })
    count = 2
    put(outcome "ok", call { tool = "three" })
    count = 1
    local list = records()
    assert.are.equal("one two three", field_of(list, "tool"))
    assert.are.equal("ok ok", field_of(list, "outcome"))
    assert.is_nil(lfs.attributes(home .. "/audit.jsonl.lock"))
    assert(lfs.touch(home .. "/audit.jsonl.2", os.time() - 7200))
    assert.are.equal("two three", field_of(records("--since", "1h"), "tool"))
  end)

  it("counts lines that are no records, and passes over them", function()
    local good = call { tool = "good" }
    put("\n", "{", good:sub(1, 50), "\n", good, '"text"\n', "null\n", "[]\n",
      '{"id":5,"time":"x","decision":"allow","tool":"t"}\n',
      '{"id":"x","time":"x"}\n', "\255\254\0\n",
      ("x"):rep(3 << 20), "\n", call { tool = "better" }, call { tool = "last" }:sub(1, 60))
    local list, decoded = records()
    assert.are.equal("good better", field_of(list, "tool"))
    assert.are.same({ 10, 0 }, { decoded.damaged, decoded.left_out })
    assert.is_truthy(audit().stderr:find("demilune: 10 lines could not be read", 1, true))
  end)

  it("takes a last line without its end", function()
    put(call { tool = "a" }, (call { tool = "b" }:gsub("\n", "")))
    assert.are.equal("a b", field_of(records(), "tool"))
  end)

  it("shows the newest thousand, and says how many it left out", function()
    local lines = {}
    for i = 1, 2500 do
      local is_denied = i % 2 == 0
      lines[#lines + 1] = call { decision = is_denied and "deny" or "allow", tool = "t" .. i }
        .. outcome(is_denied and "policy_denied" or "ok")
    end
    put(table.concat(lines))
    local list, decoded = records()
    assert.are.same({ 1000, "t1501", "t2500", 1500 }, { #list, list[1].tool, list[1000].tool, decoded.left_out })
    list, decoded = records "--denied"
    assert.are.same({ 1000, "t502", "t2500", 250 }, { #list, list[1].tool, list[1000].tool, decoded.left_out })
    local result = audit()
    assert.are.equal(1001, select(2, result.stdout:gsub("\n", "")))
    assert.is_truthy(result.stderr:find("demilune: 1500 older ones are not shown", 1, true))
  end)

  it("gives a terminal nothing of a client's but letters", function()
    put(call { tool = "a\27[31m\n\u{202E}b", principal = ("p"):rep(200), rule = 5, sandbox_id = {} }, outcome "o\7k")
    local result = audit()
    assert.are.equal(2, select(2, result.stdout:gsub("\n", "")))
    assert.is_nil(result.stdout:find "[\27\7]")
    assert.is_truthy(result.stdout:find("a\\u{1B}[31m\\u{A}\\u{202E}b", 1, true), result.stdout)
    assert.is_nil(result.stdout:find(("p"):rep(30), 1, true))
  end)

  it("is quiet about a reader that has left", function()
    local lines = {}
    for i = 1, 1000 do lines[i] = call() end
    put(table.concat(lines))
    write(home .. "/demilune.lua", 'return { audit = "audit.jsonl" }')
    local build = require "spec.support.build"
    local result = demilune.run(nil, {
      home = home,
      argv = { "/bin/sh", "-c", ("%s audit --config %s/demilune.lua | head -1"):format(build.program, home) },
    })
    assert.are.same({ 0, "" }, { result.code, result.stderr })
    assert.is_truthy(result.stdout:find "^TIME")
  end)
end)

describe("the audit of a server", function()
  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  local function read()
    local list = {}
    for line in io.lines(home .. "/audit.jsonl") do list[#list + 1] = cjson.decode(line) end
    return list
  end

  --- Runs `body(server)` with a server of this configuration.
  local function serve(config, body)
    local server = demilune.start { home = home, config = config }
    server:initialize()
    local ok, err = xpcall(body, debug.traceback, server)
    server:stop()
    if not ok then error(err, 0) end
  end

  it("has the decision before the call runs, and the outcome after it", function()
    serve('return { audit = "audit.jsonl" }', function(server)
      assert(server:call("create_sandbox", {}))
      local id = server:send("tools/call", '{"name":"run_command","arguments":{"command":"echo up; sleep 30","timeout":60}}')
      local deadline = core.task.now_ms() + 10000
      local list
      repeat
        list = read()
        assert(core.task.now_ms() < deadline, "no record of the call that runs")
        server:pump(20)
      until list[#list].tool == "run_command"
      local last = list[#list]
      assert.are.same({ "allow", "spec", "stdio", "local" }, { last.decision, last.client, last.transport, last.provider })
      assert.is_nil(last.outcome)
      server:notify("notifications/cancelled", { requestId = id })
      deadline = core.task.now_ms() + 10000
      repeat
        list = read()
        assert(core.task.now_ms() < deadline, "no record of the end")
        server:pump(20)
      until list[#list].outcome
      assert.are.same({ last.id, "stopped" }, { list[#list].id, list[#list].outcome })
    end)
    local shown = audit().stdout
    assert.is_truthy(shown:find("create_sandbox +allow +%- +%w+ +ok"), shown)
    assert.is_truthy(shown:find("run_command +allow +%- +%w+ +stopped"), shown)
  end)

  it("has the creation that another call needs", function()
    serve('return { audit = "audit.jsonl" }', function(server) assert(server:call("run_command", { command = "true" })) end)
    local list = records()
    assert.are.equal("run_command create_sandbox", field_of(list, "tool"))
    assert.are.same({ false, true }, { list[1].implicit, list[2].implicit })
    assert.are.equal(list[1].sandbox_id, list[2].sandbox_id)
    assert.are.equal("ok ok", field_of(list, "outcome"))
  end)

  it("names the rule of a denial, and the version of the policy", function()
    write(home .. "/policy.lua", [[return { default = "allow", version = "v7", rules = {
      { name = "no-kill", match = "kill_sandbox", deny = "no" },
      { name = "paced", match = "list_sandboxes", rate = { calls = 1, per = 60 } },
    } }]])
    serve('return { policy = "policy.lua", audit = "audit.jsonl" }', function(server)
      assert.are.equal("policy_denied", select(2, server:call("kill_sandbox", { sandbox_id = "x" })).category)
      assert(server:call("list_sandboxes", {}))
      assert.are.equal("rate_limited", select(2, server:call("list_sandboxes", {})).category)
    end)
    local list = records()
    assert.are.equal("deny allow deny", field_of(list, "decision"))
    assert.are.equal("v7 v7 v7", field_of(list, "policy_version"))
    assert.are.equal("policy_denied ok rate_limited", field_of(list, "outcome"))
    assert.are.equal("no-kill paced", list[1].rule .. " " .. list[3].rule)
    assert.are.equal(2, #records "--denied")
  end)

  it("has a question, and that nobody has answered it", function()
    write(home .. "/policy.lua", [[return { default = "allow", rules = {
      { name = "careful", match = "kill_sandbox", ask = "Kill?" },
    } }]])
    serve('return { policy = "policy.lua", audit = "audit.jsonl" }', function(server)
      assert.are.equal("approval_required", select(2, server:call("kill_sandbox", { sandbox_id = "x" })).category)
    end)
    local list = records "--denied"
    assert.are.same({ "ask", "careful", "approval_required" }, { list[1].decision, list[1].rule, list[1].outcome })
  end)

  it("denies calls while its file is gone, without its path, and goes on after a SIGHUP", function()
    serve('return { audit = "audit.jsonl" }', function(server)
      assert(server:call("list_sandboxes", {}))
      assert(os.remove(home .. "/audit.jsonl"))
      local _, err = server:call("list_sandboxes", {})
      assert.are.same({ "policy_denied", "audit", "no record of the call can be written: the file is gone" },
        { err.category, err.rule, err.reason })
      assert.is_nil(server.stdout:find(home, 1, true))
      local log = assert(io.open(("%s/log/serve-%d.log"):format(demilune.state_dir(home), server.pid)))
      assert.is_truthy(log:read("a"):find(home .. "/audit.jsonl cannot be written: the file is gone; put it back", 1, true))
      log:close()
      server:signal(1)
      local deadline = core.task.now_ms() + 10000
      repeat
        assert(core.task.now_ms() < deadline, "SIGHUP did not open the file")
        server:pump(20)
      until lfs.attributes(home .. "/audit.jsonl")
      assert(server:call("list_sandboxes", {}))
      assert.are.equal(2, #read())
    end)
  end)

  it("lets calls run where it is not required", function()
    serve('return { audit = { file = "audit.jsonl", required = false } }', function(server)
      assert(os.remove(home .. "/audit.jsonl"))
      assert(server:call("list_sandboxes", {}))
    end)
  end)

  it("has arguments where that is configured", function()
    serve('return { audit = { file = "audit.jsonl", arguments = true, sync = "call" } }', function(server)
      assert(server:call("list_sandboxes", { limit = 5 }))
    end)
    assert.are.equal(5, records()[1].arguments.limit)
  end)
end)
