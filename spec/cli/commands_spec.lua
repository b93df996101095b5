--- The commands as a tired user types them: what needs no sandbox.

local cjson = require "cjson"
local build = require "spec.support.build"
local demilune = require "spec.support.demilune"
local lfs = require "lfs"

local COMMANDS = {
  "serve", "call", "tools", "ls", "exec", "kill", "engine", "reload", "approve", "refuse", "check", "explain", "policy-test",
  "audit", "repl", "doctor", "demo",
}

local home

local function run(args, options)
  options = options or {}
  options.home = home
  return demilune.run(args, options)
end

--- Runs a line of shell with $D as the program.
local function shell(line, env)
  return demilune.run({}, { home = home, env = env, argv = { "/bin/bash", "-c", "D='" .. build.program .. "'; " .. line } })
end

--- One line on stderr that begins with the program's name, nothing on stdout.
local function assert_refused(result, code, pattern)
  assert.are.equal(code, result.code, result.stderr)
  assert.are.equal("", result.stdout)
  assert.is_truthy(result.stderr:find "^demilune: [^\n]+\n$", result.stderr)
  assert.is_truthy(result.stderr:find(pattern), result.stderr)
end

local function has_engine()
  return run({ "engine", "--status" }).code == 0
end

describe("the command line", function()
  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  it("helps with every command, on stdout, in lines that fit", function()
    local list = run { "--help" }
    assert.are.equal(0, list.code)
    for _, name in ipairs(COMMANDS) do
      assert.is_truthy(list.stdout:find("\n  " .. name .. " ", 1, true), name)
      local help = run { name, "--help" }
      assert.are.equal(0, help.code)
      assert.are.equal("", help.stderr)
      assert.is_truthy(help.stdout:find("Usage: demilune " .. name, 1, true), help.stdout)
      for line in help.stdout:gmatch "[^\n]+" do assert.is_true(utf8.len(line) <= 110, line) end
    end
  end)

  it("names the nearest command, tool and option", function()
    assert_refused(run { "tolls" }, 2, "perhaps tools")
    assert_refused(run { "call", "run_comand", "{}" }, 2, "perhaps run_command")
    assert_refused(run { "tools", "--jsno" }, 2, "no option %-%-jsno")
  end)

  it("refuses arguments that mean nothing, with exit 2", function()
    assert_refused(run { "call" }, 2, "name of a tool")
    assert_refused(run { "call", "run_command", "{" }, 2, "not JSON")
    assert_refused(run { "call", "run_command", "[]" }, 2, "JSON object")
    assert_refused(run { "call", "run_command", '{"command":', '"a"}' }, 2, "one JSON text")
    assert_refused(run { "call", "get_sandbox", '{"a":1e999}' }, 2, "out of range")
    assert_refused(run { "exec" }, 2, "%-%-help")
    assert_refused(run { "exec", "abc" }, 2, "a command")
    assert_refused(run { "exec", "--timeout", "soon", "abc", "--", "ls" }, 2, "from 1 to 86400")
    assert_refused(run { "exec", "--timeout", "0", "abc", "--", "ls" }, 2, "from 1 to 86400")
    assert_refused(run { "kill" }, 2, "id of a sandbox")
    for _, name in ipairs { "tools", "ls", "doctor", "demo", "serve", "engine" } do
      assert_refused(run { name, "x" }, 2, "no arguments")
    end
    for _, option in ipairs { "--status", "--stop" } do
      assert_refused(run { "engine", "x", option }, 2, "no arguments")
      assert_refused(run { "engine", option, "x" }, 2, "no arguments")
    end
    assert_refused(run { "tools", "--log-level", "loud" }, 2, "debug, info, warn, error, off")
  end)

  it("refuses a configuration that is wrong, with exit 2", function()
    for _, name in ipairs { "tools", "ls", "demo" } do
      assert_refused(run({ name }, { config = "return { lgo = {} }" }), 2, "demilune%.lua:1: .*log")
    end
  end)

  it("reads arguments from stdin, within a bound", function()
    assert_refused(run({ "call", "get_sandbox", "-" }, { input = '{"sandbox_id":""}' }), 1, "sandbox_id")
    assert_refused(run({ "call", "get_sandbox", "-" }, { input = " \n" }), 1, "no default sandbox")
    local config = "return { limits = { message = 1 } }"
    assert_refused(run({ "call", "get_sandbox", "-" }, { input = (" "):rep(1100000), config = config }), 2, "more than 1 MB")
  end)

  it("says what a tool says, in one line and as JSON", function()
    assert_refused(run { "call", "get_sandbox" }, 1, "no default sandbox")
    assert_refused(run { "call", "get_sandbox", '{"id":"x"}' }, 1, "Right would be: sandbox_id")
    assert_refused(run { "call", "create_sandbox", '{"template":"bse"}' }, 1, "base")
    local result = run { "call", "get_sandbox", "--json" }
    assert.are.equal(1, result.code)
    assert.are.equal("no_default_sandbox", cjson.decode(result.stdout).error.category)
    assert.is_false(has_engine())
  end)

  it("lists the tools as clients see them", function()
    local tools = cjson.decode(run({ "tools", "--json" }).stdout)
    assert.are.equal(15, #tools)
    local table_of = run { "tools" }
    local _, lines = table_of.stdout:gsub("\n", "")
    assert.are.equal(15, lines)
    for _, tool in ipairs(tools) do
      assert.is_truthy(tool.inputSchema and tool.outputSchema and tool.annotations and tool.title, tool.name)
      assert.is_truthy(table_of.stdout:find("%f[%w_]" .. tool.name .. "%s"), tool.name)
    end
  end)

  it("starts no engine to look", function()
    assert.are.equal("No sandboxes.\n", run({ "ls" }).stdout)
    assert.are.equal("[]\n", run({ "ls", "--json" }).stdout)
    local gone = run { "kill", "abc" }
    assert.are.equal(0, gone.code)
    assert.are.equal("abc was gone already\n", gone.stdout)
    assert_refused(run { "exec", "abc", "--", "true" }, 1, "no such sandbox")
    assert.is_false(has_engine())
  end)

  it("writes no colour and nothing of control into a pipe", function()
    for _, args in ipairs { { "tools" }, { "doctor" }, { "ls" }, { "--help" } } do
      assert.is_nil(run(args, { env = { TERM = "xterm" } }).stdout:find "[\1-\9\11-\31]")
    end
  end)

  it("is quiet when its reader leaves, and not when the disk is full", function()
    for _, args in ipairs { "tools --json", "tools", "ls", "doctor", "--help", "call --help" } do
      local result = shell("set -o pipefail; $D " .. args .. " | true")
      assert.are.equal("", result.stderr, args)
      assert.are.equal(0, result.code, args)
    end
    local full = shell "$D tools >/dev/full"
    assert_refused(full, 1, "cannot be written")
    assert.are.equal(0, shell("$D tools >&-").code)
  end)

  it("says what is wrong with the state folder, and what does without", function()
    local without = { HOME = false, XDG_STATE_HOME = false }
    assert.are.equal(0, run({ "tools" }, { env = without }).code)
    local too_long = { XDG_STATE_HOME = home .. "/" .. ("x"):rep(100) }
    for _, args in ipairs { { "ls" }, { "kill", "abc" }, { "demo" }, { "call", "run_command", '{"command":"true"}' } } do
      assert_refused(run(args, { env = too_long }), 1, "XDG_STATE_HOME")
      assert_refused(run(args, { env = { XDG_STATE_HOME = "/proc" } }), 1, "/proc/demilune")
    end
    local as_json = run({ "call", "run_command", '{"command":"true"}', "--json" }, { env = { XDG_STATE_HOME = "/proc" } })
    assert.are.equal("internal", cjson.decode(as_json.stdout).error.category)
    assert.is_nil(as_json.stdout:find("/proc", 1, true))
    assert.is_truthy(as_json.stderr:find("/proc/demilune", 1, true))
    local doctor = run({ "doctor" }, { env = { XDG_STATE_HOME = "/proc" } })
    assert.are.equal(1, doctor.code)
    assert.is_truthy(doctor.stdout:find "state +FAIL")
  end)
end)

describe("demilune doctor", function()
  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  it("says the same to people and to programs, and starts no engine", function()
    local as_json = run { "doctor", "--json" }
    local report = cjson.decode(as_json.stdout)
    assert.are.equal(report.ok and 0 or 1, as_json.code)
    assert.is_true(#report.checks >= 5)
    for _, check in ipairs(report.checks) do
      assert.is_true(check.ok or (check.cause ~= nil and check.fix ~= nil), check.name)
    end
    assert.are.equal(demilune.state_dir(home), report.state.path)
    assert.is_false(report.engine.running)
    assert.is_false(has_engine())
    local shown = run { "doctor" }
    assert.are.equal(as_json.code, shown.code)
    for _, word in ipairs { "limits", "state", "engine", "bubblewrap", "libraries" } do
      assert.is_truthy(shown.stdout:find("\n  " .. word, 1, true), word)
    end
  end)

  it("tells of a configuration that cannot be read instead of ending at it", function()
    local result = run({ "doctor" }, { config = "return {" })
    assert.are.equal(1, result.code)
    assert.is_truthy(result.stdout:find "configuration +FAIL [^\n]*demilune%.lua:1")
  end)

  it("names the cause and what mends it where sandboxes cannot be", function()
    if lfs.attributes("/usr/bin/unshare", "mode") ~= "file" then return pending "unshare is not installed" end
    local probe = shell "unshare -rm true"
    if probe.code ~= 0 then return pending "user namespaces are not to be had" end
    -- In a namespace of one user id a root engine has none to give away.
    local result = shell "unshare -rm $D doctor"
    assert.are.equal(1, result.code)
    assert.is_truthy(result.stdout:find "FAIL  ")
    assert.is_truthy(result.stdout:find "cannot work here")
    assert.is_truthy(result.stdout:find "mend it: ")
    local demo = shell "unshare -rm $D demo; rc=$?; unshare -rm $D engine --stop; exit $rc"
    assert.are.equal(1, demo.code)
    assert.is_truthy(demo.stdout:find "mend it: ")
    assert.is_truthy(demo.stderr:find "^demilune: The demo ended early: [^\n]+\n$", demo.stderr)
    assert.is_truthy(lfs.attributes(home))
  end)
end)
