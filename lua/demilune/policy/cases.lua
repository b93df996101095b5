--- policy/cases.lua - the operator's own cases: calls, and what has to be decided about them.
--
-- A file of cases is trusted Lua, like the configuration. Its calls count on each other, as calls of one day would: a rate that
-- one case spends is spent for the next. Each file begins with nothing spent.
local chunk = require "demilune.config.chunk"
local core = require "demilune.core"
local dates = require "demilune.time"
local errors = require "demilune.errors"
local nearest = require "demilune.nearest"
local rehearsal = require "demilune.policy.rehearsal"
local report = require "demilune.policy.report"
local source = require "demilune.config.source"

local cases = {}

local FILE_BYTES_MAX = 1 << 20
local CASES_MAX = 10000
local DEPTH_MAX = 16
local WORDS_BYTES_MAX = 500

local CASE_KEYS = { "name", "call", "expect", "rule", "reason", "args" }
local CALL_KEYS = { "tool", "args", "principal", "client", "transport", "provider", "sandbox", "time", "implicit" }
local VERDICTS = { "allow", "deny", "ask" }

---@class demilune.policy.CasesFile
---@field path string
---@field policy? string  path
---@field list { name: string, line: integer, case: table|function }[]

---@class demilune.policy.Failure
---@field file string
---@field line integer
---@field name string
---@field text string  what was expected and what came

local function is_one_of(name, names)
  for _, known in ipairs(names) do
    if name == known then return true end
  end
  return false
end

local function misspelt(what, key, names)
  local near = type(key) == "string" and nearest.of(key, names)
  return ("%s is no key of %s; %s"):format(tostring(key), what, near and ("did you mean %s?"):format(near)
    or "there are " .. table.concat(names, ", "))
end

local function strange_key(what, given, names)
  for key in pairs(given) do
    if not is_one_of(key, names) then return misspelt(what, key, names) end
  end
end

--- What is wrong with a case, nil where nothing is.
local function case_fault(case)
  if type(case) == "function" then return nil end
  if type(case) ~= "table" then return ("a case is a table or a function, not a %s"):format(type(case)) end
  local strange = strange_key("a case", case, CASE_KEYS)
  if strange then return strange end
  if type(case.call) ~= "table" then return 'a case has a call: call = { tool = "run_command" }' end
  if not is_one_of(case.expect, VERDICTS) then
    local near = type(case.expect) == "string" and nearest.of(case.expect, VERDICTS)
    return near and ('did you mean expect = "%s"?'):format(near) or 'a case says what it expects: expect = "allow", "deny" or "ask"'
  end
  return strange_key("a call", case.call, CALL_KEYS)
end

local function name_of(case, position)
  if type(case) == "function" then return ("case %s"):format(position) end
  if type(case) ~= "table" then return ("case %s"):format(position) end
  if type(case.name) == "string" then return case.name end
  local call = type(case.call) == "table" and case.call or {}
  local ok, args = pcall(core.json.encode, type(call.args) == "table" and next(call.args) and call.args or nil)
  return ("%s%s"):format(tostring(call.tool or "case " .. position), ok and args ~= "null" and " " .. args or "")
end

--- The entries in their order: the list, then those with names.
local function entries_of(given, tokens)
  local list, names = {}, {}
  for position, case in ipairs(given) do
    list[position] = { name = name_of(case, position), case = case, line = source.line_of(tokens, { position }) }
  end
  for name, case in pairs(given) do
    if type(name) == "string" and name ~= "policy" then names[#names + 1] = { name = name, case = case } end
  end
  table.sort(names, function(a, b) return a.name < b.name end)
  for _, entry in ipairs(names) do
    entry.line = source.line_of(tokens, { entry.name })
    list[#list + 1] = entry
  end
  return list
end

local function fault_at(path, line, text) return { file = path, line = line, text = text } end

--- Reads a file of cases.
---@param path string
---@return demilune.policy.CasesFile? file
---@return demilune.policy.Fault? fault
function cases.read(path)
  local bytes, err = core.fs.read(path, FILE_BYTES_MAX)
  if not bytes then
    return nil, fault_at(path, nil, require("demilune.policy.advice").of_reading(err))
  end
  local text = bytes:gsub("^\xEF\xBB\xBF", ""):gsub("^#[^\n]*", "")
  local given, fault = chunk.run(text)
  if not given then return nil, fault_at(path, fault.line, fault.text) end
  if type(given) == "table" and type(given.rules) == "table" and given.default ~= nil then
    return nil, fault_at(path, nil, "it is a policy; name a file of cases, and the policy in it or with --policy")
  end
  local list = entries_of(given, source.tokens(text))
  if #list == 0 then return nil, fault_at(path, nil, "there is no case in it; write one, { call = …, expect = … }") end
  if #list > CASES_MAX then return nil, fault_at(path, nil, ("there are more than %d cases; split the file"):format(CASES_MAX)) end
  local policy = rawget(given, "policy")
  if policy ~= nil and type(policy) ~= "string" then
    return nil, fault_at(path, nil, 'policy is the path of one, policy = "policy.lua"')
  end
  if policy and policy:sub(1, 1) ~= "/" then policy = (path:match "^(.*/)[^/]*$" or "") .. policy end
  return { path = path, policy = policy, list = list }
end

-- ---- one case ----

local function seconds_of(time)
  if type(time) == "number" then return math.tointeger(time) or math.floor(time) end
  if dates.iso(time) then return dates.epoch_ms(time) // 1000 end
  errors.raise("invalid_argument", { message = 'a time is written as "2026-11-30T09:00:00Z", in UTC, or as seconds since 1970' })
end

--- Decides a call and keeps what it would have done.
local function decide(bench, call)
  if type(call) ~= "table" then errors.raise("invalid_argument", { message = 'a call is a table: { tool = "run_command" }' }) end
  local strange = strange_key("a call", call, CALL_KEYS)
  if strange then errors.raise("invalid_argument", { message = strange }) end
  local asked = {}
  for key, value in pairs(call) do asked[key] = value end
  asked.time = call.time ~= nil and seconds_of(call.time) or nil
  local view = bench:view(asked)
  local decision, said = bench:decide(view)
  bench:keep(view, decision)
  return decision, said
end

--- Whether what is wanted is there; where not, at which key, what and what not.
local function difference(wanted, given, path, depth)
  if type(wanted) ~= "table" or type(given) ~= "table" then
    if wanted == given then return nil end
    return ("%s = %s"):format(path, type(given) == "string" and ("%q"):format(given) or tostring(given))
  end
  if depth > DEPTH_MAX then return path .. " is nested too deep" end
  for key, value in pairs(wanted) do
    local found = difference(value, given[key], ("%s.%s"):format(path, tostring(key)), depth + 1)
    if found then return found end
  end
end

local function expected_words(case)
  local words = case.expect
  if case.rule then words = words .. " by " .. tostring(case.rule) end
  if case.reason then words = words .. ": " .. tostring(case.reason) end
  return words
end

--- What differs from what a case expects, nil where nothing does.
local function mismatch(case, decision, said)
  local reason = decision.question or decision.reason
  local is_right = decision.verdict == case.expect and (case.rule == nil or decision.rule == case.rule)
    and (case.reason == nil or reason == case.reason)
  if not is_right then
    local fault = said.before and said.before.fault
    return ("expected %s; got %s%s%s"):format(expected_words(case), report.verdict(decision),
      decision.verdict == "allow" and (" by " .. (decision.rule or "default")) or "", fault and (" (%s)"):format(fault) or "")
  end
  if case.args == nil then return nil end
  local found = difference(case.args, decision.args or {}, "args", 1)
  return found and ("it is %s as expected, but with %s"):format(case.expect == "allow" and "allowed" or case.expect, found)
end

local function one_line(raised, path)
  if raised == core.task.CANCELLED then error(raised, 0) end
  local text = errors.is(raised) and raised.message or tostring(raised)
  text = text:gsub("^configuration:", path .. ":"):gsub("%s*\n.*", "")
  return core.text.mend(text:sub(1, WORDS_BYTES_MAX))
end

--- What a test function gets.
local function face(bench)
  return {
    decide = function(call)
      local decision = decide(bench, call)
      return {
        verdict = decision.verdict, rule = decision.rule, reason = decision.question or decision.reason, args = decision.args,
        category = decision.category, text = report.verdict(decision),
      }
    end,
  }
end

local function run_case(bench, case)
  if type(case) == "function" then
    case(face(bench))
    return nil
  end
  local decision, said = decide(bench, case.call)
  return mismatch(case, decision, said)
end

--- Runs the cases of a file, one after the other.
---@async
---@param file demilune.policy.CasesFile
---@param app demilune.App
---@param state demilune.policy.State
---@return integer passed
---@return demilune.policy.Failure[] failures
function cases.run(file, app, state)
  local bench = rehearsal.new(app, state)
  local passed, failures = 0, {}
  for _, entry in ipairs(file.list) do
    local fault = case_fault(entry.case)
    if not fault then
      local ok, found = pcall(run_case, bench, entry.case)
      fault = ok and found or not ok and one_line(found, file.path) or nil
    end
    if fault then
      failures[#failures + 1] = { file = file.path, line = entry.line, name = entry.name, text = fault }
    else
      passed = passed + 1
    end
  end
  return passed, failures
end

return cases
