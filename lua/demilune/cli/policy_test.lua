--- cli/policy_test.lua - `demilune policy-test`: the operator's own cases, counted.
local cases = require "demilune.policy.cases"
local dry = require "demilune.cli.dry"
local load = require "demilune.policy.load"
local output = require "demilune.cli.output"
local session = require "demilune.cli.session"
local style = require "demilune.cli.style"

---@class demilune.cli.Tally
---@field passed integer
---@field failed integer
---@field states table<string, demilune.policy.State|false>  by path; false: it is wrong, and that was said

local function fail(tally, line)
  output.line("FAIL " .. style.plain(line))
  tally.failed = tally.failed + 1
end

--- A policy is loaded once, however many files are about it.
local function policy_at(tally, config, app, path)
  local state = tally.states[path]
  if state ~= nil then return state end
  local faults
  state, faults = dry.load(config, app, path)
  if not state then dry.print(faults) end
  tally.states[path] = state or false
  return state
end

local function run_file(tally, config, app, path, named)
  local file, fault = cases.read(path)
  if not file then return fail(tally, load.line_of(fault)) end
  local policy = dry.policy_path(config, named or file.policy)
  if not policy then
    return fail(tally, path .. ': no policy is named; write policy = "policy.lua" in it, or name one with --policy')
  end
  local state = policy_at(tally, config, app, policy)
  if not state then return fail(tally, ("%s: the policy %s is wrong, so no case of it was run"):format(path, policy)) end
  local passed, failures = cases.run(file, app, state)
  tally.passed = tally.passed + passed
  for _, failure in ipairs(failures) do
    fail(tally, ("%s:%d: %s: %s"):format(failure.file, failure.line, failure.name, failure.text))
  end
end

local function run(options, rest)
  if #rest == 0 then session.misuse "policy-test takes files of cases; see demilune policy-test --help" end
  local config = session.config(options)
  local app = dry.app(config)
  local tally = { passed = 0, failed = 0, states = {} }
  local ok, err = pcall(function()
    for _, path in ipairs(rest) do run_file(tally, config, app, path, options.policy) end
  end)
  for _, state in pairs(tally.states) do
    if state then state:close() end
  end
  if not ok then error(err, 0) end
  output.line(("%d passed, %d failed"):format(tally.passed, tally.failed))
  return tally.failed > 0 and 1 or 0
end

return {
  name = "policy-test",
  summary = "Run your own cases against the policy.",
  usage = "policy-test FILE... [--policy FILE]",
  help = [[
A file of cases is Lua that returns a list:

  return {
    policy = "policy.lua",      -- beside this file; the configuration's without it
    { call = { tool = "kill_sandbox", sandbox = "owned" }, expect = "deny", rule = "no-kill" },
    function(t) assert(t.decide({ tool = "list_sandboxes" }).verdict == "allow") end,
  }

A call may have args, principal, client, transport, provider, sandbox ("owned",
"foreign", "none") and time ("2026-11-30T09:00:00Z"); a case may expect a rule, a
reason, and args as they are after rewriting. Rates and quotas count within a file.

  --policy FILE    test this policy instead

Exit: 0 all passed, 1 one failed.]],
  options = { "policy:" },
  takes_arguments = true,
  run = run,
}
