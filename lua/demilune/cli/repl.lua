--- cli/repl.lua - `demilune repl`: a Lua prompt with the server's own parts at hand.
--
-- What is typed is the operator's, so it is trusted; calls of tools still go the one call path, with the policy and the audit.
-- What is created ends with the prompt.
local core = require "demilune.core"
local dry = require "demilune.cli.dry"
local errors = require "demilune.errors"
local explain = require "demilune.cli.explain"
local ledger_file = require "demilune.policy.ledger_file"
local output = require "demilune.cli.output"
local rehearsal = require "demilune.policy.rehearsal"
local session = require "demilune.cli.session"
local style = require "demilune.cli.style"
local values = require "demilune.cli.values"

local STDIN = 0
local CHUNK_BYTES_MAX = 1 << 20
local MESSAGE_CHARACTERS = 500
local GREETING = "demilune %s. call(\"run_command\", { command = \"uname\" }), explain { tool = … }, app, policy, providers, tools."
  .. " Ctrl-D ends.\n"

-- ---- reading ----

--- A function that gives the next line without its end, nil at the end of input. What can be polled is read without holding
--- up the loop; a file is read at once.
local function lines_of_stdin()
  local reader = core.sys.reader(STDIN)
  if not reader then return function() return io.stdin:read "l" end end
  local rest, is_over = "", false
  return function()
    while true do
      local line, after = rest:match "^([^\n]*)\n(.*)$"
      if line then
        rest = after
        return line
      end
      if is_over or #rest > CHUNK_BYTES_MAX then
        line, rest = rest ~= "" and rest or nil, ""
        return line
      end
      local bytes, err = reader:read()
      if err then session.misuse "stdin cannot be read" end
      if bytes then rest = rest .. bytes else is_over = true end
    end
  end
end

-- ---- running ----

--- One line for what was raised.
local function message_of(raised)
  if raised == core.task.CANCELLED then error(raised, 0) end
  if errors.is(raised) then return dry.words(raised) end
  local text = type(raised) == "string" and raised or ("a %s was raised"):format(type(raised))
  return style.short(text:gsub("\nstack traceback:.*", ""), MESSAGE_CHARACTERS)
end

local function complain(raised)
  output.note(message_of(raised))
end

--- The chunk as an expression, else as statements; nil and Lua's message where it is neither.
local function compiled(text, env)
  local chunk = load("return " .. text, "=repl", "t", env)
  if chunk then return chunk end
  return load(text, "=repl", "t", env)
end

local function show(results)
  if results.n == 0 then return end
  local words = {}
  for i = 1, results.n do words[i] = values.text(results[i]) end
  output.line(table.concat(words, "\t"))
end

--- Runs a chunk and shows what it gives.
---@return boolean ok
local function run_chunk(chunk)
  local results = table.pack(pcall(chunk))
  if not results[1] then
    complain(results[2])
    return false
  end
  show(table.pack(table.unpack(results, 2, results.n)))
  return true
end

local function is_unfinished(message) return message:find("<eof>", 1, true) ~= nil end

--- Reads and runs until the end of input. In a batch the first failure makes the exit 1; at a prompt nothing does.
local function loop(env, next_line, prompt)
  local pending, failures = nil, 0
  while true do
    prompt(pending ~= nil)
    local line = next_line()
    if not line then break end
    local text = pending and pending .. "\n" .. line or line
    local chunk, message = compiled(text, env)
    if chunk then
      pending = nil
      if text:find "%S" and not run_chunk(chunk) then failures = failures + 1 end
    elseif is_unfinished(message) and #text <= CHUNK_BYTES_MAX then
      pending = text
    else
      pending = nil
      failures = failures + 1
      complain(message)
    end
  end
  if pending then
    failures = failures + 1
    complain "repl: the input ends in the middle"
  end
  return failures
end

-- ---- what is at hand ----

--- explain{…} with the policy that is in force; the text is printed.
local function explainer(self)
  return function(call)
    local policy = self.app.policy
    if type(call) ~= "table" then session.misuse 'explain takes a table: explain { tool = "kill_sandbox" }' end
    if not (policy and policy.state) then
      output.line "No policy is configured, so every call is allowed."
      return
    end
    local asked = { principal = self.principal }
    for key, value in pairs(call) do asked[key] = value end
    if type(asked.time) == "string" then asked.time = dry.seconds(asked.time) end
    local counters = policy.ledger and not asked.time and ledger_file.glance(policy.ledger) or nil
    output.write(explain.text(explain.account(rehearsal.new(self.app, policy.state, counters), asked)))
  end
end

local function caller(self)
  return function(name, args)
    if not self.app.tools_by_name[name] then
      session.misuse(("there is no tool %s; see tools"):format(style.short(tostring(name), 64)))
    end
    local result, err = self:call(name, args or {})
    if not result then session.fail(err) end
    return result
  end
end

local function definitions(app)
  local out = {}
  for _, tool in ipairs(app.tools) do out[tool.name] = tool.definition end
  return out
end

--- The globals of the prompt over Lua's own.
local function environment(self)
  local app = self.app
  local env = {
    app = app, core = core, call = caller(self), explain = explainer(self), providers = app.providers_by_id,
    tools = definitions(app), policy = app.policy and app.policy.state and app.policy.state.data,
  }
  env.print = function(...)
    local words = table.pack(...)
    for i = 1, words.n do words[i] = type(words[i]) == "string" and words[i] or values.text(words[i]) end
    output.line(table.concat(words, "\t", 1, words.n))
  end
  return setmetatable(env, { __index = _G })
end

local function prompt_for(is_person)
  if not is_person then return function() end end
  output.write(GREETING:format(core.sys.version))
  return function(is_pending) output.write(is_pending and ">> " or "> ") end
end

local function run(options)
  return session.run(options, function(self)
    local env = environment(self)
    if options.eval then
      local chunk, message = compiled(options.eval, env)
      if not chunk then
        complain(message)
        return 1
      end
      return run_chunk(chunk) and 0 or 1
    end
    local is_person = core.sys.isatty(STDIN)
    local failures = loop(env, lines_of_stdin(), prompt_for(is_person))
    if is_person then output.write "\n" end
    return (failures > 0 and not is_person) and 1 or 0
  end)
end

return {
  name = "repl",
  summary = "A Lua prompt with the server's parts at hand.",
  usage = "repl [-e CODE]",
  help = [[
Expressions are printed, tables to a depth of three; a line that is not finished
goes on in the next one. What is kept between lines is global: x = 1, not local.

  call("run_command", { command = "uname" })    a tool, as a client would call it
  explain { tool = "kill_sandbox" }             what the policy would do, and why
  app, policy, providers, tools, core           the server's parts

Sandboxes made here end with the prompt. Lines from a pipe are run one by one.

  -e CODE, --eval CODE    run this and end

Exit: 0 done, 1 a line of a pipe, or CODE, failed.]],
  options = { "eval:" },
  short = { ["-e"] = "--eval" },
  run = run,
}
