--- A policy's file becomes a loaded policy, or faults with their places; its functions run in the real fence.

local core = require "demilune.core"
local hooks = require "demilune.policy.hooks"
local leftovers = require "spec.support.leftovers"
local load = require "demilune.policy.load"

local TMP = os.getenv "DML_SPEC_TMP" or "/tmp"
local folder

local TOOLS = {}
for _, name in ipairs { "run_command", "kill_sandbox", "read_file", "create_sandbox" } do
  TOOLS[#TOOLS + 1] = {
    name = name, tool = {},
    input = {
      type = "object",
      properties = { command = { type = "string" }, timeout = { type = "integer" }, path = { type = "string" } },
    },
    output = { type = "object", properties = { stdout = { type = "string" } }, required = { "stdout" } },
    definition = { name = name, description = "A tool." },
  }
end

--- A policy of every kind of rule.
local WHOLE = [[
local policy = {
  default = "allow",
  rules = {
    { name = "small", match = "@create", limit = { timeout = { max = 3600, default = 900 } } },
    { name = "set", match = "run_command", when = { provider = "local" }, set = { timeout = 5 },
      only = { command = { "ls", "ls *" } } },
    { name = "no-keys", match = { "@read", "@write" }, path = { deny = { "/home/*/.ssh/**", "**/*.pem" } } },
    { name = "paced", match = "@execute", rate = { calls = 60, per = 60 } },
    { name = "few", match = "@create", quota = { sandboxes = 5, sandbox_seconds = 36000, per = "day" } },
    { name = "office", match = "@create", when = { outside = "mon-fri 08:00-18:00" }, deny = "office hours only" },
    { name = "careful", match = "kill_sandbox", when = { principal = "ci-*" }, ask = "Kill this sandbox?" },
    { name = "masked", match = "@all", redact = { "AKIA[0-9A-Z]{16}" } },
  },
}
function policy.before(call)
  if call.group["@execute"] and call.args.command:find("curl", 1, true) then
    return deny "no downloads here"
  end
end
return policy
]]

local VIEW = {
  tool = "run_command", group = { ["@execute"] = true }, args = { command = "ls" }, principal = "local:me",
  client = { name = "spec" }, transport = "stdio", time = 0, counts = {},
}

local function write(name, text)
  local path = folder .. "/" .. name
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

local function env(more)
  local out = { tools = TOOLS, provider_ids = { "local" } }
  for key, value in pairs(more or {}) do out[key] = value end
  return out
end

--- Loads a text and gives what `work` makes of the state; the state is closed.
local function with(text, work, more)
  local path = write("policy.lua", text)
  return core.task.run(function()
    local state, faults = load.run(path, env(more))
    if not state then error("was refused: " .. load.line_of(faults[1])) end
    local results = table.pack(pcall(work, state))
    state:close()
    if not results[1] then error(results[2], 0) end
    return table.unpack(results, 2, results.n)
  end)
end

--- The faults of a text, as lines without the folder.
local function faults_of(text, name)
  local path = name or write("policy.lua", text)
  return core.task.run(function()
    local state, faults = load.run(path, env())
    assert(not state, "was taken")
    local lines = {}
    for i, fault in ipairs(faults) do lines[i] = load.line_of(fault):gsub("^" .. folder:gsub("%p", "%%%0") .. "/", "") end
    return lines
  end)
end

local function fences()
  local count = 0
  for _, process in ipairs(leftovers.tree(require("demilune.core").sys.pid())) do
    if process.name:find "^demilune%-fence" then count = count + 1 end
  end
  return count
end

describe("demilune.policy.load", function()
  setup(function()
    core.log.set_level "off"
    folder = TMP .. "/load-" .. core.crypto.id(8)
    assert(core.fs.make_dir(folder))
  end)
  teardown(function()
    core.log.set_level "info"
    os.execute("rm -rf '" .. folder .. "'")
  end)

  it("gives data, compiled rules and the paths of its files", function()
    write("more.lua", 'return { { name = "a", match = "kill_sandbox", deny = "no" } }')
    assert(core.fs.make_dir(folder .. "/lib"))
    write("lib/words.lua", 'return "no"')
    with('local w = require "lib.words"\nreturn { default = "deny", version = "v1", rules = require "more" }', function(state)
      assert.are.equal("deny", state.data.default)
      assert.are.equal("a", state.data.rules[1].name)
      assert.are.equal("v1", state.version)
      assert.are.same({ folder .. "/policy.lua", folder .. "/lib/words.lua", folder .. "/more.lua" }, state.files)
      assert.are.equal("table", type(state.compiled))
      assert.are.same({}, state.warnings)
    end)
  end)

  it("keeps no process where there is no function", function()
    with('return { default = "allow" }', function(state)
      assert.is_nil(state.fence)
      assert.are.equal(0, fences())
    end)
    with('return { default = "allow", before = function() end }', function(state)
      assert.is_true(hooks.before(state, VIEW).verdict == "go")
      assert.are.equal(1, fences())
    end)
    assert.are.equal(0, fences())
  end)

  it("leaves no process behind a fault", function()
    faults_of "return {"
    faults_of 'return { default = 5, before = function() end }'
    faults_of "while true do end"
    assert.are.equal(0, fences())
  end)

  it("has a version that follows every file", function()
    local function version()
      return with('return { default = "allow", rules = require "more" }', function(state) return state.version end)
    end
    write("more.lua", "return {}")
    local first = version()
    assert.is_truthy(first:find "^%x+$")
    assert.are.equal(16, #first)
    assert.are.equal(first, version())
    write("more.lua", "return { }")
    assert.are_not.equal(first, version())
  end)

  it("tells what is wrong with a required file by that file's name", function()
    write("more.lua", "return {\n  x = \n}")
    local line = faults_of('return { default = "allow", rules = require "more" }')[1]
    assert.are.equal("more.lua:3:", line:match "^more%.lua:%d+:", line)
    write("more.lua", "\27Lua")
    line = faults_of('\nreturn { default = "allow", rules = require "more" }')[1]
    assert.is_truthy(line:find "more%.lua: it is compiled Lua", line)
    line = faults_of('return { default = "allow", rules = require "nosuch" }')[1]
    assert.is_truthy(line:find "nosuch%.lua: there is no such file; ", line)
    line = faults_of('return { default = "allow", rules = require "../policy" }')[1]
    assert.is_truthy(line:find "^policy%.lua:1: ", line)
  end)

  it("has a limit for every call, as the configuration says", function()
    local loop = 'return { default = "allow", before = function() for i = 1, 1e5 do end end }'
    assert.are.equal("go", with(loop, function(state) return hooks.before(state, VIEW).verdict end))
    local said = with(loop, function(state) return hooks.before(state, VIEW) end,
      { limits = { instructions = 1000, memory = 8, cpu_ms = 50, wall_ms = 1000 } })
    assert.are.same({ "deny", "policy-error" }, { said.verdict, said.rule })
    assert.is_truthy(said.fault:find "limit: instructions", said.fault)
  end)

  it("runs before, after and list in the worker", function()
    with([[
local policy = { default = "allow" }
function policy.before(call)
  if call.args.command == "bad" then return nil .. "x" end
  if call.args.command == "no" then return deny "not that" end
  if call.args.command == "ask" then return ask "That?" end
  call.args.timeout = (call.args.timeout or 0) + 5
end
function policy.after(call, result)
  result.stdout = result.stdout:gsub("key", "[masked]")
end
function policy.list(tool, who) return tool.name ~= "kill_sandbox" or who.principal == "local:me" end
return policy]], function(state)
      local function before(command)
        local view = setmetatable({ args = { command = command } }, { __index = VIEW })
        return hooks.before(state, view)
      end
      local said = before "ls"
      assert.are.same({ command = "ls", timeout = 5 }, said.args)
      assert.is_true(said.instructions >= 0 and said.cpu_us >= 0)
      assert.are.equal("not that", before("no").reason)
      assert.are.same({ "ask", "That?" }, { before("ask").verdict, before("ask").reason })
      said = before "bad"
      assert.are.equal("policy-error", said.rule)
      assert.is_truthy(said.fault:find "^policy%.lua:3: ", said.fault)
      assert.are.equal("go", before("ls").verdict, "the next call is right")
      assert.are.equal("a [masked]", hooks.after(state, VIEW, { stdout = "a key" }).stdout)
      assert.is_true((hooks.list(state, TOOLS[2].definition, { principal = "local:me" })))
      assert.is_false((hooks.list(state, TOOLS[2].definition, { principal = "guest" })))
    end)
  end)

  it("has a line with a way out for whatever a slip of the hand makes of a policy", function()
    math.randomseed(7)
    local words = {}
    for word in WHOLE:gmatch "%s*[%w_]+" do words[#words + 1] = word end
    for _, sign in ipairs { ",", "{", "}", "=", "==", '"', "nil", "function", "end", "5", "true", "@", ":", "[", "--" } do
      words[#words + 1] = sign
    end
    local path, refused = folder .. "/policy.lua", 0
    for _ = 1, 250 do
      local at = math.random(#WHOLE)
      local text = WHOLE:sub(1, at - 1) .. (math.random(2) == 1 and words[math.random(#words)] or "")
        .. WHOLE:sub(at + math.random(0, 6))
      write("policy.lua", text)
      core.task.run(function()
        local state, faults = load.run(path, env())
        if state then return state:close() end
        refused = refused + 1
        for _, fault in ipairs(faults) do
          local line = load.line_of(fault)
          assert.is_truthy(line:find "; ." and not line:find "0x%x%x%x" and not line:find "traceback", line .. "\n" .. text)
          assert.is_truthy(utf8.len(line) and not line:find "%c", line)
          assert.is_true(fault.line == nil or (fault.line >= 1 and fault.line <= 30), line)
        end
      end)
    end
    assert.is_true(refused > 100, refused .. " were refused")
    assert.are.equal(0, fences())
  end)

  it("takes any bytes without raising", function()
    math.randomseed(4)
    for _ = 1, 60 do
      local bytes = {}
      for i = 1, math.random(0, 200) do bytes[i] = string.char(math.random(0, 255)) end
      assert.is_truthy(faults_of(table.concat(bytes))[1]:find "; ")
    end
    for _, cut in ipairs { 1, 9, 20, 40, 60 } do
      local whole = 'return { default = "allow", rules = { { name = "a", match = "kill_sandbox" } } }'
      assert.is_truthy(faults_of(whole:sub(1, cut))[1])
    end
  end)
end)
