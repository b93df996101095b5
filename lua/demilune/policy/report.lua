--- policy/report.lua - what was decided and why, in words for a person.
local core = require "demilune.core"
local counters = require "demilune.policy.counters"

local report = {}

local STEPS = { "match", "rewrite", "check", "decide", "count" }
local ARGUMENTS_BYTES_MAX = 2000

--- Text that may hold a client's words, on one line.
local function line_of(text)
  return (core.text.mend(tostring(text)):gsub("%c", "?"))
end

--- What a decision comes to, as the last line of explain has it: `allowed`, `denied by RULE: reason`, `asks: question`.
---@param decision table  of rules.decide
---@return string
function report.verdict(decision)
  if decision.verdict == "allow" then return "allowed" end
  if decision.verdict == "ask" then return "asks: " .. line_of(decision.question or decision.reason or "may this call run?") end
  local by = line_of(decision.rule or "default")
  return ("denied by %s: %s"):format(by, line_of(decision.reason or "no reason is given"))
end

local function sandbox_words(view)
  local sandbox = view.sandbox
  if not sandbox then return nil end
  if not sandbox.id then return "in a sandbox that is made first" end
  return sandbox.owned and "in a sandbox of its own" or "in somebody else's sandbox"
end

--- Who calls what, where and when.
---@param view table
---@return string
function report.call(view)
  local words = { ("%s by %s over %s"):format(view.tool, line_of(view.principal), view.transport) }
  if view.provider then words[#words + 1] = "at " .. view.provider end
  words[#words + 1] = sandbox_words(view)
  words[#words + 1] = core.task.iso(view.time * 1000):gsub("%.%d+Z$", "Z")
  return table.concat(words, ", ")
end

--- Arguments as JSON, cut.
---@param args table
---@return string
function report.arguments(args)
  local text = next(args) == nil and "{}" or core.json.encode(args)
  if #text <= ARGUMENTS_BYTES_MAX then return text end
  return core.text.mend(text:sub(1, ARGUMENTS_BYTES_MAX)) .. "…"
end

--- What a call of `before` cost, nil where that is not known.
---@param said demilune.policy.Verdict
---@return string?  "12 instructions, 40 µs"
function report.cost(said)
  if not said.instructions then return nil end
  local time = said.cpu_us and (", %d µs"):format(said.cpu_us) or ""
  return ("%d instructions%s"):format(said.instructions, time)
end

--- A step with what only the one who ran it knows: what `before` cost, how much of a counter was spent.
local function completed(entry, said)
  local text, rule = entry.text, entry.rule
  if entry.step == "rewrite" and said.before and not rule and text:find "^`before`" then
    local cost = report.cost(said.before)
    return { step = entry.step, rule = "before", text = cost and ("%s (%s)"):format(text, cost) or text }
  end
  for _, counter in ipairs(entry.step == "count" and said.counters or {}) do
    if counter.item.rule == rule and counter.spent and counters.words(counter.item) == text then
      text = ("%s; %d so far"):format(text, counter.spent)
    end
  end
  return { step = entry.step, rule = rule, text = text }
end

--- The entries of `match` as the rules stand in the file, whatever order they were looked at in.
local function by_file(trace, rules)
  local rank, entries, out = {}, {}, {}
  for i, rule in ipairs(rules) do rank[rule.name] = i end
  for i, entry in ipairs(trace) do
    entries[i] = { entry = entry, place = entry.step == "match" and rank[entry.rule or ""] or 0, at = i }
  end
  table.sort(entries, function(a, b)
    if a.place ~= b.place then return a.place < b.place end
    return a.at < b.at
  end)
  for i, item in ipairs(entries) do out[i] = item.entry end
  return out
end

--- The steps of a decision in the order of the contract.
---@param trace demilune.policy.Step[]
---@param said { before?: demilune.policy.Verdict, counters?: table[] }  of Rehearsal:decide
---@param rules { name: string }[]  of the policy
---@return { step: string, rule?: string, text: string }[]
function report.steps(trace, said, rules)
  local out = {}
  trace = by_file(trace, rules)
  for _, step in ipairs(STEPS) do
    for _, entry in ipairs(trace) do
      if entry.step == step then out[#out + 1] = completed(entry, said) end
    end
  end
  return out
end

return report
