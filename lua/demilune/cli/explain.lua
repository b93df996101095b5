--- cli/explain.lua - `demilune explain`: what the policy would do with a call, step by step.
local connect = require "demilune.connect"
local core = require "demilune.core"
local dry = require "demilune.cli.dry"
local errors = require "demilune.errors"
local grid = require "demilune.cli.grid"
local ledger_file = require "demilune.policy.ledger_file"
local output = require "demilune.cli.output"
local rehearsal = require "demilune.policy.rehearsal"
local report = require "demilune.policy.report"
local session = require "demilune.cli.session"
local style = require "demilune.cli.style"

local json = core.json
local explain = {}

local STEP_WORDS = { match = "1 match", rewrite = "2 rewrite", check = "3 check", decide = "4 decide", count = "5 count" }

local function arguments_of(text)
  local value, fault = json.decode(text or "{}")
  if fault or not connect.is_object(value) then
    session.misuse "the arguments are no JSON object; quote them for the shell: '{\"path\": \"a b\"}'"
  end
  return value
end

--- Decides a call and tells how.
---@async
---@param bench demilune.policy.Rehearsal
---@param call demilune.policy.Call
---@return table account  { view, decision, said, steps }
function explain.account(bench, call)
  local view = bench:view(call)
  local trace = { all = true }
  local decision, said = bench:decide(view, trace)
  return { view = view, decision = decision, said = said, steps = report.steps(trace, said, bench.state.data.rules or {}) }
end

local function rows_of(account)
  local rows, last = {}, nil
  for i, entry in ipairs(account.steps) do
    local label = entry.step ~= last and (STEP_WORDS[entry.step] or entry.step) or ""
    rows[i] = { label, style.plain(entry.rule or ""), style.plain(entry.text) }
    last = entry.step
  end
  return rows
end

--- An account as text; its last line is what the decision comes to.
---@param account table    of explain.account
---@param policy? string   which policy that was
---@return string
function explain.text(account, policy)
  local view, decision = account.view, account.decision
  local lines = { report.call(view) }
  if policy then lines[#lines + 1] = policy end
  lines[#lines + 1] = "arguments  " .. style.plain(report.arguments(view.args))
  local head = table.concat(lines, "\n") .. "\n\n"
  local rewritten = ""
  if decision.args and report.arguments(decision.args) ~= report.arguments(view.args) then
    rewritten = "\narguments, rewritten  " .. style.plain(report.arguments(decision.args)) .. "\n"
  end
  local note = ""
  if view.sandbox and not view.sandbox.id and decision.verdict == "allow" then
    note = "\nThe sandbox that is made first is a call of create_sandbox, which is decided by itself.\n"
  end
  for _, entry in ipairs(account.steps) do
    if view.sandbox and view.sandbox.id and entry.step == "check" and entry.text == "`path` passes" then
      note = "\nLinks are followed in the sandbox when the call is made: where the path leads must pass as well.\n"
    end
  end
  local rows = rows_of(account)
  if #rows > 0 then head = head .. grid.render(rows, { wraps = style.is_terminal() }) end
  return head .. rewritten .. note .. "\n" .. style.plain(report.verdict(decision)) .. "\n"
end

--- An account as plain data.
local function data_of(account, state)
  local decision, before = account.decision, account.said.before
  local steps = json.array {}
  for i, entry in ipairs(account.steps) do steps[i] = { step = entry.step, rule = entry.rule, text = entry.text } end
  return {
    verdict = decision.verdict, rule = decision.rule, reason = decision.reason, question = decision.question,
    category = decision.category, field = decision.field, expected = decision.expected, retry_after = decision.retry_after,
    args = decision.args, steps = steps, policy = state.path, version = state.version, text = report.verdict(decision),
    before = before and { verdict = before.verdict, instructions = before.instructions, cpu_us = before.cpu_us,
      fault = before.fault } or nil,
  }
end

--- What a person wrote wrong in the call is a misuse, whoever found it.
local function accounted(bench, call)
  local ok, account = pcall(explain.account, bench, call)
  if ok then return account end
  if errors.is(account) and account.category == "invalid_argument" then account.is_usage = true end
  error(account, 0)
end

--- The counters as they are, where the configuration's policy is asked about now; else nothing is spent.
local function counters_of(options, config, state)
  if options.policy or options.at or not (state.compiled.counts or state.data.before) then return nil end
  return ledger_file.look(config)
end

--- Decides the call; the state is closed.
local function explained(config, app, state, options, call)
  local ok, account = pcall(function()
    return accounted(rehearsal.new(app, state, counters_of(options, config, state)), call)
  end)
  state:close()
  if not ok then error(account, 0) end
  return account
end

local function call_of(options, rest)
  return {
    tool = rest[1], args = arguments_of(rest[2]), principal = options.as or "local:" .. core.sys.user(),
    provider = options.provider, sandbox = options.sandbox, time = options.at and dry.seconds(options.at) or nil,
  }
end

local function run(options, rest)
  if not rest[1] then session.misuse "explain takes the name of a tool and its arguments as JSON; see demilune explain --help" end
  if #rest > 2 then session.misuse "explain takes one tool and one JSON text; quote the JSON for the shell" end
  local config = session.config(options)
  local call = call_of(options, rest)
  local path = dry.policy_path(config, options.policy)
  local app = dry.app(config)
  if not path then
    output.line "No policy is configured, so every call is allowed; name one with policy = \"policy.lua\"."
    output.line "allowed"
    return 0
  end
  local state, faults = dry.load(config, app, path)
  if not state then
    dry.print(faults)
    return 1
  end
  local account = explained(config, app, state, options, call)
  if options.json then
    output.line(json.encode(data_of(account, state)))
  else
    output.write(explain.text(account, ("policy %s, version %s"):format(path, state.version)))
  end
  return 0
end

explain.name = "explain"
explain.summary = "Say what the policy would do with a call, and why."
explain.usage = "explain TOOL [JSON] [--as P] [--provider X] [--sandbox owned|foreign|none] [--at TIME]"
explain.help = [[
Decides the call as a server would and shows the five steps: which rules match and
which do not, what is rewritten, each check, what decides, and the counters, of
which nothing is spent. The last line is the answer: `allowed`,
`denied by RULE: reason`, or `asks: question`.

  demilune explain kill_sandbox '{}' --as ci-7 --sandbox foreign

  --as P          the principal who calls; local: and your name without it
  --provider X    the provider that the call goes to
  --sandbox S     owned, foreign or none: whose sandbox it is about
  --at TIME       when, as 2026-11-30T09:00:00Z, with nothing spent; now without it
  --policy FILE   another policy than the configuration's
  --json          print the same as one line of JSON

Exit: 0 it was decided, either way, 1 the policy is wrong, 2 no such tool or not JSON.]]
explain.options = { "as:", "provider:", "sandbox:", "at:", "policy:", "json" }
explain.takes_arguments = true
explain.run = run

return explain
