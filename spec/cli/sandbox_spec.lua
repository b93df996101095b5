-- timeout: 120
--- The commands with real sandboxes: made, used, listed, ended, and none left over.

local cjson = require "cjson"
local build = require "spec.support.build"
local demilune = require "spec.support.demilune"
local leftovers = require "spec.support.leftovers"
local os_calls = require "spec_os"

local SIGINT, SIGTERM = 2, 15

local home

local function run(args, options)
  options = options or {}
  options.home = home
  return demilune.run(args, options)
end

local function call(tool, arguments)
  local result = run { "call", tool, cjson.encode(arguments or {}), "--json" }
  assert.are.equal(0, result.code, result.stderr)
  return cjson.decode(result.stdout)
end

local function create()
  return call("create_sandbox", { timeout = 600 }).sandbox_id
end

local function ids()
  local list = {}
  for _, sandbox in ipairs(cjson.decode(run({ "ls", "--json" }).stdout)) do list[#list + 1] = sandbox.sandbox_id end
  return list
end

local function eventually(check)
  local deadline = os_calls.now_ms() + 5000
  repeat
    if check() then return true end
    os_calls.sleep_ms(20)
  until os_calls.now_ms() > deadline
  return false
end

describe("demilune with sandboxes", function()
  setup(function() home = demilune.home() end)
  teardown(function() demilune.remove_home(home) end)
  after_each(function()
    for _, id in ipairs(ids()) do run { "kill", id } end
  end)

  it("keeps what create_sandbox makes until kill", function()
    local id = create()
    local listed = run { "ls" }
    assert.is_truthy(listed.stdout:find("\n" .. id .. "  base +running  %d+ min "), listed.stdout)
    local one = run { "call", "get_sandbox", cjson.encode { sandbox_id = id } }
    assert.is_truthy(one.stdout:find("sandbox_id +" .. id), one.stdout)
    assert.are.equal(id .. " ended\n", run({ "kill", id }).stdout)
    local again = run { "kill", id }
    assert.are.same({ 0, id .. " was gone already\n" }, { again.code, again.stdout })
  end)

  it("ends a sandbox that a call made in passing", function()
    local result = run { "call", "run_command", '{"command":"echo made; exit 4"}' }
    assert.are.equal(0, result.code)
    assert.is_truthy(result.stdout:find "^stdout\n  made\n" or result.stdout:find "stdout +made")
    assert.is_truthy(result.stdout:find "exit_code +4")
    assert.is_truthy(result.stdout:find "ended with it")
    assert.are.same({}, ids())
  end)

  it("makes partial output and a failed command of nonzero_exit_is_error an error", function()
    local result = run({ "call", "run_command", '{"command":"echo part; exit 4"}' },
      { config = "return { nonzero_exit_is_error = true }" })
    assert.are.equal(1, result.code)
    assert.are.equal("part\n", result.stdout)
    assert.is_truthy(result.stderr:find "^demilune: The command ended")
  end)

  it("passes words, output and the exit code of exec through", function()
    local id = create()
    local words = run { "exec", id, "--", "printf", "<%s>", "a  b", "$HOME", "'", "*", "--json" }
    assert.are.equal("<a  b><$HOME><'><*><--json>", words.stdout)
    local both = run { "exec", id, "--", "sh", "-c", "echo out; echo err >&2; exit 7" }
    assert.are.same({ 7, "out\n", "err\n" }, { both.code, both.stdout, both.stderr })
    local as_json = run { "exec", id, "--json", "--", "sh", "-c", "echo out; exit 7" }
    assert.are.equal(7, as_json.code)
    assert.are.equal("out\n", cjson.decode(as_json.stdout).stdout)
    assert.are.equal(127, run({ "exec", id, "--", "no-such-program" }).code)
    run { "kill", id }
  end)

  it("relays long outputs whole", function()
    local id = create()
    local result = run { "exec", id, "--", "sh", "-c", "seq 1 300000; seq 1 200000 >&2" }
    local _, lines = result.stdout:gsub("\n", "")
    local _, err_lines = result.stderr:gsub("\n", "")
    assert.are.same({ 0, 300000, 200000 }, { result.code, lines, err_lines })
    assert.is_truthy(result.stdout:find "\n150000\n150001\n")
    local line = "'%s' exec %s -- sh -c 'head -c 70000000 /dev/zero | tr \"\\\\0\" a' | wc -c"
    local more = run({}, { argv = { "/bin/bash", "-c", line:format(build.program, id) } })
    assert.are.equal("67108864\n", more.stdout)
    assert.is_truthy(more.stderr:find "^demilune: stdout ends here[^\n]*\n$", more.stderr)
    run { "kill", id }
  end)

  it("stops a command at its timeout with exit 124", function()
    local id = create()
    local result = run { "exec", "--timeout", "1", id, "--", "sh", "-c", "echo begun; sleep 60" }
    assert.are.equal(124, result.code)
    assert.are.equal("begun\n", result.stdout)
    assert.is_truthy(result.stderr:find "^demilune: the command was stopped after 1 s[^\n]*\n$", result.stderr)
    run { "kill", id }
  end)

  it("ends the command of an interrupted exec, not the sandbox", function()
    local id = create()
    for _, signal in ipairs { SIGINT, SIGTERM } do
      local mark = ("300.%06d"):format(math.random(999999))
      local program = demilune.start { args = { "exec", id, "--", "sleep", mark }, home = home }
      -- Its own arguments hold the words as well.
      assert.is_true(eventually(function() return #leftovers.mentioning("sleep\0" .. mark) > 1 end))
      program:signal(signal)
      assert.are.same({ code = 128 + signal }, program:wait())
      assert.are.equal("", program.stderr)
      assert.is_true(eventually(function() return #leftovers.mentioning("sleep\0" .. mark) == 0 end))
      program:stop()
    end
    assert.are.same({ id }, ids())
    run { "kill", id }
  end)

  it("leaves nothing of a call that is interrupted or killed", function()
    for _, signal in ipairs { SIGINT, 9 } do
      local program = demilune.start { args = { "call", "run_command", '{"command":"sleep 300"}' }, home = home }
      assert.is_true(eventually(function() return #ids() == 1 end))
      program:signal(signal)
      program:wait()
      program:stop()
      assert.is_true(eventually(function() return #ids() == 0 end), "after signal " .. signal)
    end
  end)

  it("leaves nothing of an interrupted create_sandbox", function()
    for delay_ms = 5, 40, 5 do
      local program = demilune.start { args = { "call", "create_sandbox", "--json" }, home = home }
      os_calls.sleep_ms(delay_ms)
      program:signal(SIGINT)
      program:wait()
      -- What was told is kept; what was not told is nobody's.
      local told = program.stdout:match '"sandbox_id":"([^"]+)"'
      program:stop()
      if told then run { "kill", told } end
      assert.is_true(eventually(function() return #ids() == 0 end), delay_ms .. " ms")
    end
  end)

  it("shows no control character of a sandbox in readable results", function()
    local result = run { "call", "run_command", [[{"command":"printf '\\033]0;x\\007\\n\\033[2J'"}]] }
    assert.is_nil(result.stdout:find "[\1-\9\11-\31]")
    assert.is_truthy(result.stdout:find "%?%]0;x%?")
  end)
end)

describe("demilune demo", function()
  local function demo(options)
    return demilune.run({ "demo" }, options)
  end

  it("plays a whole session that a person can read at a glance, and leaves nothing", function()
    home = demilune.home()
    local result = demo { home = home }
    assert.are.equal(0, result.code, result.stdout .. result.stderr)
    assert.are.equal("", result.stderr)
    local lines = 0
    for line in result.stdout:gmatch "([^\n]*)\n" do
      lines = lines + 1
      if not line:find(build.dir, 1, true) then assert.is_true(utf8.len(line) <= 80, line) end
    end
    assert.is_true(lines <= 40, lines .. " lines")
    assert.is_nil(result.stdout:find "[\1-\9\11-\31]")
    for _, step in ipairs { "initialize", "tools/list", "create_sandbox", "run_command", "run_code", "write_file", "read_file",
      "upload_file", "download_file", "start_background_task", "get_background_task", "end of stdin", "nothing left" } do
      assert.is_truthy(result.stdout:find("\n" .. step, 1, true), step)
    end
    -- Under a sanitizer the end of a process takes its time.
    assert.is_true(eventually(function() return #leftovers.mentioning(home) == 0 end))
    demilune.remove_home(home)
  end)

  it("leaves an engine that ran before alone, and others' sandboxes in it", function()
    home = demilune.home()
    local id = create()
    local result = demo { home = home }
    assert.are.equal(0, result.code, result.stderr)
    assert.are.same({ id }, ids())
    demilune.remove_home(home)
  end)

  it("goes on quietly when its reader leaves", function()
    home = demilune.home()
    local result = demo { home = home,
      argv = { "/bin/bash", "-c", "set -o pipefail; '" .. build.program .. "' demo | head -1" } }
    assert.are.equal("", result.stderr)
    assert.are.equal(0, result.code)
    -- Its server sees the end of its input and ends by itself.
    assert.is_true(eventually(function() return #leftovers.mentioning(home) == 0 end))
    demilune.remove_home(home)
  end)
end)
