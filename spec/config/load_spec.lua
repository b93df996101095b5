--- Which file is the configuration, and how its text is evaluated.

local config = require "demilune.config"
local core = require "demilune.core"
local support = require "spec.config.support"

local TMP = os.getenv("DML_SPEC_TMP") or "/tmp"

--- Runs `fn` with these variables in place of the environment's.
local function with_environment(variables, fn)
  local real_env, real_home = core.sys.env, core.sys.home
  core.sys.env = function(name) return variables[name] end
  core.sys.home = function() return variables.home_of_user end
  local ok, err = pcall(fn)
  core.sys.env, core.sys.home = real_env, real_home
  if not ok then error(err, 0) end
end

local function make_usual(folder, text)
  assert(os.execute(("mkdir -p '%s/demilune'"):format(folder)))
  local file = assert(io.open(folder .. "/demilune/demilune.lua", "w"))
  file:write(text)
  file:close()
  return folder .. "/demilune/demilune.lua"
end

describe("config.load", function()
  it("takes the file that it is given", function()
    local path = support.file('return { annotations = "sandboxed" }')
    local loaded = assert(config.load(path))
    assert.are.equal("sandboxed", loaded.annotations)
    assert.are.equal(path, loaded.path)
    assert.are.equal(TMP, loaded.dir)
  end)

  it("takes $DEMILUNE_CONFIG, then $XDG_CONFIG_HOME, then ~/.config, then the user database's home", function()
    local named = support.file("return { limits = { tasks = 1 } }")
    make_usual(TMP .. "/xdg", "return { limits = { tasks = 2 } }")
    make_usual(TMP .. "/home/.config", "return { limits = { tasks = 3 } }")
    make_usual(TMP .. "/user/.config", "return { limits = { tasks = 4 } }")
    local variables = {
      DEMILUNE_CONFIG = named, XDG_CONFIG_HOME = TMP .. "/xdg", HOME = TMP .. "/home", home_of_user = TMP .. "/user",
    }
    with_environment(variables, function()
      assert.are.equal(1, config.load().limits.tasks)
      variables.DEMILUNE_CONFIG = ""
      assert.are.equal(2, config.load().limits.tasks)
      variables.XDG_CONFIG_HOME = "relative"
      assert.are.equal(3, config.load().limits.tasks)
      variables.XDG_CONFIG_HOME = nil
      assert.are.equal(TMP .. "/home/.config/demilune", config.load().dir)
      variables.HOME = nil
      assert.are.equal(4, config.load().limits.tasks)
    end)
  end)

  it("gives the defaults where there is no file, no folder or no home", function()
    with_environment({ HOME = TMP .. "/nowhere" }, function() assert.are.same(config.defaults(), config.load()) end)
    local plain = support.file("")
    with_environment({ XDG_CONFIG_HOME = plain }, function() assert.are.same(config.defaults(), config.load()) end)
    with_environment({}, function() assert.are.same(config.defaults(), config.load()) end)
  end)

  it("does not pass over a usual file that is faulty or no file", function()
    local path = make_usual(TMP .. "/faulty", "return {\n polcy = 1 }")
    with_environment({ XDG_CONFIG_HOME = TMP .. "/faulty" }, function()
      local loaded, message = config.load()
      assert.is_nil(loaded)
      assert.are.equal(path .. ":2: polcy is not a key; did you mean `policy`?", message)
      os.remove(path)
      assert(os.execute(("mkdir '%s'"):format(path)))
      loaded, message = config.load()
      assert.is_nil(loaded)
      assert.are.equal(path .. ": it is a folder, not a file; mend or remove it", message)
    end)
  end)

  it("refuses a named file that is not there, and says who named it", function()
    local loaded, message = config.load(TMP .. "/absent.lua")
    assert.is_nil(loaded)
    assert.are.equal(TMP .. "/absent.lua: there is no such file; name another file with --config, "
      .. "or leave the option out", message)
    with_environment({ DEMILUNE_CONFIG = TMP .. "/absent.lua" }, function()
      loaded, message = config.load()
      assert.is_nil(loaded)
      assert.truthy(message:find("there is no such file; change or unset $DEMILUNE_CONFIG", 1, true))
    end)
  end)

  it("refuses what is no ordinary file of at most 1 MB, without waiting for it", function()
    local pipe = TMP .. "/pipe"
    assert(os.execute(("mkfifo '%s'"):format(pipe)))
    for path, words in pairs {
      [TMP] = "it is a folder",
      [pipe] = "it is not an ordinary file",
      ["/dev/null"] = "it is not an ordinary file",
      [support.file("return {}" .. (" "):rep(1 << 20))] = "it has more than 1 MB",
    } do
      local loaded, message = config.load(path)
      assert.is_nil(loaded)
      assert.truthy(message:find(words, 1, true), message)
    end
  end)

  it("resolves relative paths from the file's folder", function()
    local loaded = assert(support.load('return { log = { file = "log/a.log" } }'))
    assert.are.equal(TMP .. "/log/a.log", loaded.log.file)
    assert.are.equal("/var/a.log", support.load('return { log = { file = "/var/a.log" } }').log.file)
    assert.are.equal("/b", config.resolve({ dir = "/" }, "b"))
    assert.are.equal("./b", config.resolve({ dir = "." }, "b"))
  end)

  it("passes over a byte order mark and a first line that starts with #", function()
    assert(support.load("\xEF\xBB\xBFreturn {}"))
    assert(support.load("#!/usr/bin/env lua5.4 'return\nreturn {}"))
    assert.are.equal("2: foo is not a key", support.fault("#!/usr/bin/lua '\nreturn { foo = 1 }"):match("^[^;]+"))
  end)

  it("raises when it is given no string", function()
    assert.has_error(function() config.load(1) end)
  end)
end)

describe("the text of a configuration", function()
  it("is refused with the line where the syntax is wrong", function()
    assert.are.equal("3: unexpected symbol near '='; mend the syntax there", support.fault("return {\n\n = 1\n}"))
    assert.are.equal("1: unexpected symbol near <eof>; mend the syntax there", support.fault("return {"))
    assert.are.equal("1: C stack overflow", support.fault("return " .. ("{"):rep(1000)):match("^[^;(]*w"))
    assert.are.equal("2: unfinished string; mend the syntax there", support.fault("\nreturn 'a\n"))
  end)

  it("is refused with the line where it fails, wherever the failure comes from", function()
    assert.are.equal("2: boom; mend what it does there", support.fault("local x\nerror('boom')"))
    assert.are.equal("2: the file raised a table; mend what it does there", support.fault("\nerror({})"))
    assert.are.equal("2: the file raised a nil; mend what it does there", support.fault("\nerror(nil)"))
    local message = support.fault("\n\nrequire 'no_such_module_here'\nreturn {}")
    assert.are.equal("3: module 'no_such_module_here' not found:", message:match("^[^:]+: [^:]+:"))
    assert.falsy(message:find "\n")
    message = support.fault("local function f()\n return 1 + f() end f()")
    assert.are.equal("2: stack overflow", message:match("^[^;(]*w"))
  end)

  it("is refused when it never ends", function()
    assert.are.equal("2: it does not come to an end; mend what it does there",
      support.fault("local x\nwhile true do end"))
  end)

  it("is refused when it yields", function()
    assert.are.equal("2: the file must not yield; return the table at its end",
      support.fault("\ncoroutine.yield()\nreturn {}"))
  end)

  it("is refused when it is bytecode", function()
    assert.are.equal("1: the file is compiled Lua; write its source there instead",
      support.fault(string.dump(load("return {}"))))
  end)

  it("is refused when it returns anything but one table", function()
    for text, what in pairs {
      [""] = "nothing", ["return"] = "nothing", ["return nil"] = "a nil", ["return 'x'"] = "a string",
      ["return {}, {}"] = "several values", ["return print"] = "a function",
    } do
      local line = "1: the file must return one table, not " .. what .. "; end it with return { … }"
      assert.are.equal(line, support.fault(text))
    end
    assert.are.equal("3", support.fault("\n\nreturn 1"):match("^%d+"))
  end)

  it("is refused when it reads a name that is not defined", function()
    assert.are.equal("2: the name off is not defined; put a word in quotes",
      support.fault("return {\n default_sandbox = off }"))
  end)

  it("has the libraries, and globals of its own", function()
    local loaded = assert(support.load([[
function tasks() return tonumber(os.date("%Y")) > 2000 and 3 or 4 end
return { limits = { tasks = tasks() } }]]))
    assert.are.equal(3, loaded.limits.tasks)
    assert.is_nil(rawget(_G, "tasks"))
  end)

  it("is refused in one line of text, whatever bytes its message has", function()
    local message = support.fault("error('a\\n\\r\\0b\\200\\27[1m' .. ('x'):rep(100000))")
    assert.falsy(message:find "%c")
    assert.is_number(utf8.len(message))
    assert.is_true(#message < 600)
    message = support.fault("error(('é'):rep(1000))")
    assert.is_number(utf8.len(message))
  end)

  it("of the example is fine", function()
    local loaded = assert(require("demilune.config").load("examples/demilune.lua"))
    assert.are.equal(64, loaded.providers[1].templates.small.disk)
  end)
end)
