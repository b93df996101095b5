--- rules.lua - the one decision about a call: match, rewrite, check, decide, count, in this order and nowhere else.
--
-- Calls, lists, resources, tasks and explain all come here. It knows no files and no network: what it needs of the world it is
-- handed. Whatever goes wrong in it, and whatever cannot be decided, denies.
local compile = require "demilune.policy.compile"
local core = require "demilune.core"
local counters = require "demilune.policy.counters"
local steps = require "demilune.policy.steps"
local time = require "demilune.time"
local when = require "demilune.policy.when"

local rules = {}

--- The rule under which a policy's own fault is reported.
rules.ERROR_RULE = "policy-error"
--- What decided where no rule did.
rules.DEFAULT_RULE = "default"
--- What decided where the function `before` did.
rules.BEFORE_RULE = "before"

local LIFETIME_SLACK_S = 10
local DEFAULT_REASON = "no rule allows this call"
local DEFAULT_QUESTION = "May this call run?"
local NO_ARGUMENTS = "the rewritten arguments are none that the tool takes"
local NO_ARGUMENT = "%s is rewritten to what the tool does not take"
local HIDDEN_REASON = "there is no such tool"

---@class demilune.policy.Compiled
---@field default "allow"|"deny"|"ask"
---@field by_tool table<string, table[]>  for each tool its rules in file order
---@field hides table<string, table[]>
---@field rules table[]
---@field counts boolean  some rule reserves
---@field warnings { path: (string|integer)[], text: string }[]

---@class demilune.policy.World
---@field before? fun(view: table): demilune.policy.Verdict  nil where the policy has no such function
---@field validate? fun(tool: string, args: table): table   raises what schema.check raises
---@field real_path? fun(view: table, path: string): string?  where a path, as the call has it, leads; nil: cannot be told
---@field reserve? fun(list: table[]): table?, table?         ticket, or nil and a refusal of the ledger
---@field honours? fun(view: table, argument: string): boolean  nil: the provider takes every argument
---@field trace? table  filled with steps { step, rule?, text }; `trace.all` also asks for what did not match

---@class demilune.policy.Decision
---@field verdict "allow"|"deny"|"ask"
---@field rule? string       who decided; ERROR_RULE, DEFAULT_RULE, BEFORE_RULE beside names of rules
---@field reason? string     of a denial
---@field question? string   of a question
---@field category? string   of a denial: "policy_denied", "quota_exceeded" or "rate_limited"
---@field field? string
---@field expected? string
---@field allowed? string[]
---@field retry_after? integer  seconds
---@field args table         rewritten; the caller's own table where nothing was
---@field ticket? table      of the ledger, for an allowed call that counts
---@field redact? table[]    regular expressions for what leaves
---@field limits? { rule: string, argument: string, max: number }[]  see after_creation
---@field lifetime_s? integer  how long from its creation the sandbox may live, the smallest of all matching quotas
---@field matched string[]   names of rules
---@field is_hidden? boolean  the tool does not exist for the principal
---@field entries? table[]   for `count`

--- Compiles a policy that was checked against keys.lua. Waits where `env.zone` does.
---@async
---@param data table
---@param env { tools: table[], provider_ids?: string[], principals?: string[], zone?: fun(name: string): table?, string?,
---  glob?: function, regex?: function }  tools: entries of tools.build; zone: of demilune.zone; glob, regex: of core.regex
---@return demilune.policy.Compiled? compiled
---@return { path: (string|integer)[], text: string }[]? faults  "what is wrong; the way out"
function rules.compile(data, env) return compile.run(data, env) end

-- ---- steps ----

local function denial(ctx, refusal, rule)
  return {
    verdict = "deny", category = refusal.category or "policy_denied", rule = rule, reason = refusal.reason,
    field = refusal.field, expected = refusal.expected, allowed = refusal.allowed, retry_after = refusal.retry_after,
    args = ctx.args, matched = ctx.matched or {},
  }
end

local function failure(ctx, reason)
  return denial(ctx, { reason = reason }, rules.ERROR_RULE)
end

--- Step 1.
local function match(ctx, list)
  local matched, names, count = {}, {}, 0
  for i = 1, #list do
    local entry = list[i]
    local holds = true
    local conditions = entry.conditions
    if conditions then
      local which
      holds, which = when.holds(conditions, ctx)
      if ctx.trace then steps.condition(ctx, entry, holds, which) end
      -- What the call lacks: an `allow` does not match, every other rule does.
      if holds == nil then holds = not entry.allows end
    elseif ctx.trace then
      steps.matches(ctx, entry)
    end
    if holds then
      count = count + 1
      matched[count], names[count] = entry, entry.name
    end
  end
  ctx.matched = names
  return matched
end

local function copy_of(value)
  if type(value) ~= "table" then return value end
  local out = setmetatable({}, getmetatable(value))
  for key, entry in pairs(value) do out[key] = copy_of(entry) end
  return out
end

--- Whether the caller left an argument out. Schemas fill in their defaults before rules are asked, so that a value which is
--- the default counts as left out too, unless the view says what was given.
local function is_left_out(ctx, item)
  local view = ctx.view
  local value = view.args[item.name]
  if value == nil then return true end
  if view.given then return not view.given[item.name] end
  return value == item.default
end

local function set(ctx, entry, item, args)
  if not is_left_out(ctx, item) then
    if ctx.trace then steps.note(ctx, "rewrite", entry, ("set %s: not needed, the caller gave it"):format(item.name)) end
  elseif ctx.io.honours and not ctx.io.honours(ctx.view, item.name) then
    if ctx.trace then
      steps.note(ctx, "rewrite", entry, ("set %s: skipped, the provider %s has no such thing"):format(item.name,
        tostring(ctx.view.provider)))
    end
  else
    args[item.name] = copy_of(item.value)
    if ctx.trace then steps.value(ctx, entry, "set", item) end
  end
end

local function force(ctx, entry, item, args)
  args[item.name] = copy_of(item.value)
  if ctx.trace then steps.value(ctx, entry, "force", item) end
end

--- Runs `set` or `force` of the matching rules, on a copy that is made when the first of them has something to say.
local function fill(ctx, matched, key, apply, args)
  for i = 1, #matched do
    local entry = matched[i]
    local items = entry[key]
    if items then
      args = args or copy_of(ctx.view.args)
      for k = 1, #items do apply(ctx, entry, items[k], args) end
    end
  end
  return args
end

local function ask_before(ctx)
  local view = {}
  for key, value in pairs(ctx.view) do view[key] = value end
  view.args = ctx.args
  local result = ctx.io.before(view)
  if type(result) ~= "table" then return nil end
  return result
end

--- Asks the function `before`, where there is one. Returns a denial, or nothing and what it said.
local function consult(ctx)
  if not ctx.io.before then return nil end
  local said = ask_before(ctx)
  if not said then return failure(ctx, "`before` gave no verdict") end
  if ctx.trace then steps.before(ctx, said) end
  if said.verdict ~= "go" and said.verdict ~= "ask" then
    return denial(ctx, { reason = said.reason }, said.rule or rules.BEFORE_RULE)
  end
  if said.args ~= nil then ctx.args = said.args end
  return nil, said
end

--- Holds rewritten arguments against the tool's schema. Returns a denial, or nothing.
local function validate(ctx)
  if type(ctx.args) ~= "table" then return failure(ctx, NO_ARGUMENTS) end
  if not ctx.io.validate then return nil end
  local ok, out = pcall(ctx.io.validate, ctx.view.tool, ctx.args)
  if ok and type(out) == "table" then
    ctx.args = out
    return nil
  end
  if out == core.task.CANCELLED then error(out, 0) end
  local field = type(out) == "table" and type(out.field) == "string" and out.field or nil
  local reason = field and NO_ARGUMENT:format(field) or NO_ARGUMENTS
  if ctx.trace then steps.note(ctx, "rewrite", nil, reason) end
  return denial(ctx, { reason = reason, field = field, expected = field and out.expected }, rules.ERROR_RULE)
end

--- Step 2. Returns a denial, or nothing and what `before` said.
local function rewrite(ctx, matched)
  local args = fill(ctx, matched, "set", set, nil)
  args = fill(ctx, matched, "force", force, args)
  if args then ctx.args = args end
  local refused, said = consult(ctx)
  if refused then return refused end
  -- What nobody touched was checked before the call came here.
  if args or (said and said.args ~= nil) then refused = validate(ctx) end
  return refused, said
end

--- Step 3.
local function check(ctx, matched)
  for i = 1, #matched do
    local entry = matched[i]
    local list = entry.checks
    if list then
      for k = 1, #list do
        local refusal = list[k].run(ctx)
        if ctx.trace then steps.check(ctx, entry, list[k].key, refusal) end
        if refusal then return denial(ctx, refusal, entry.name) end
      end
    end
  end
  return nil
end

--- Step 4: the verdict, whose it is, and the question.
local function decide_by(ctx, compiled, matched, said)
  if said and said.verdict == "ask" then return "ask", rules.BEFORE_RULE, said.reason or DEFAULT_QUESTION end
  for i = 1, #matched do
    local entry = matched[i]
    if entry.decides then return entry.decides, entry.name, entry.question end
  end
  return compiled.default, rules.DEFAULT_RULE, DEFAULT_QUESTION
end

local function gather(matched, key)
  local all
  for i = 1, #matched do
    local list = matched[i][key]
    if list then
      if all then
        all = table.move(list, 1, #list, #all + 1, all)
      else
        all = table.move(list, 1, #list, 1, {})
      end
    end
  end
  return all
end

local function smallest_lifetime(matched)
  local least
  for i = 1, #matched do
    local limit = matched[i].lifetime
    if limit and (not least or limit.most < least) then least = limit.most end
  end
  return least
end

--- Step 5: a refusal, or nothing and the ticket.
local function count(ctx, matched)
  for i = 1, #matched do
    local limit = matched[i].lifetime
    local refusal = limit and counters.lifetime_refusal(limit, ctx.args, ctx.view)
    if limit and ctx.trace then steps.lifetime(ctx, matched[i], limit, refusal) end
    if refusal then return refusal end
  end
  local list = gather(matched, "reservations")
  if not list then return nil end
  if ctx.trace then steps.reservations(ctx, list) end
  if not ctx.io.reserve then return { rule = rules.ERROR_RULE, reason = "there are no counters" } end
  local ticket, refused = ctx.io.reserve(list)
  if ticket then return nil, ticket end
  local refusal = counters.refusal(refused or {}, list)
  refusal.rule = refusal.rule or rules.ERROR_RULE
  if ctx.trace then steps.refused(ctx, refusal) end
  return refusal
end

--- The rule that hides a tool from a principal; what is undecided hides.
local function hider(compiled, tool, view)
  local list = compiled.hides[tool]
  if not list then return rules.ERROR_RULE end
  local ctx = { view = view }
  for i = 1, #list do
    local conditions = list[i].conditions
    if not conditions or when.holds(conditions, ctx) ~= false then return list[i].name end
  end
  return nil
end

local function run(ctx, compiled)
  local view = ctx.view
  if type(view.args) ~= "table" then return failure(ctx, "the call has no arguments that could be judged") end
  local hidden = hider(compiled, view.tool, view)
  if hidden then
    if ctx.trace then steps.hidden(ctx, hidden) end
    local decision = denial(ctx, { reason = HIDDEN_REASON }, hidden)
    decision.is_hidden = true
    return decision
  end
  if ctx.trace then steps.others(ctx, compiled) end
  local matched = match(ctx, compiled.by_tool[view.tool])
  local refused, said = rewrite(ctx, matched)
  refused = refused or check(ctx, matched)
  if refused then return refused end
  local verdict, rule, question = decide_by(ctx, compiled, matched, said)
  if ctx.trace then steps.decided(ctx, verdict, rule, question) end
  if verdict == "deny" then return denial(ctx, { reason = DEFAULT_REASON }, rule) end
  local decision = {
    verdict = verdict, rule = rule, args = ctx.args, matched = ctx.matched, redact = gather(matched, "redact"),
    limits = gather(matched, "limits"), lifetime_s = smallest_lifetime(matched),
  }
  if verdict == "ask" then
    decision.question, decision.entries = question, matched
    if ctx.trace then steps.note(ctx, "count", nil, "nothing is counted before the question is answered") end
    return decision
  end
  local refusal, ticket = count(ctx, matched)
  if refusal then return denial(ctx, refusal, refusal.rule) end
  decision.ticket = ticket
  return decision
end

--- What is left when something in here failed: a denial. The cancel of the caller's own task goes on.
local function failed(ctx, err)
  if err == core.task.CANCELLED then error(err, 0) end
  core.log.error("a call is denied, since deciding it failed: " .. tostring(err))
  if ctx.trace then steps.note(ctx, "decide", nil, "deciding failed, so the call is denied") end
  return failure(ctx, "the policy could not be applied")
end

local function context(view, io) return { view = view, args = view.args, io = io, trace = io.trace } end

--- Decides a call. Never raises, but for the cancel of its own task; every failure is a denial under ERROR_RULE. Waits where
--- what it is handed waits.
---@async
---@param compiled demilune.policy.Compiled
---@param view table  of the call; stays as it is. `given` (set of names) says which arguments the caller gave, `workdir`
---  where relative paths start (paths.WORKDIR without it), `lifetime_s` how long a sandbox of the provider lives by default
---@param io demilune.policy.World
---@return demilune.policy.Decision
function rules.decide(compiled, view, io)
  local ctx = context(view, io)
  local ok, decision = pcall(run, ctx, compiled)
  if ok then return decision end
  return failed(ctx, decision)
end

--- Counts a call that was asked about and approved. Changes the decision: to "allow" with a ticket, or to a denial.
---@async
---@param compiled demilune.policy.Compiled
---@param view table
---@param decision demilune.policy.Decision  with the verdict "ask"
---@param io demilune.policy.World
function rules.count(compiled, view, decision, io) -- luacheck: ignore 212/compiled
  local ctx = context(view, io)
  ctx.args, ctx.matched = decision.args, decision.matched
  local ok, refusal, ticket = pcall(count, ctx, decision.entries)
  local denied
  if not ok then denied = failed(ctx, refusal) elseif refusal then denied = denial(ctx, refusal, refusal.rule) end
  decision.entries = nil
  if not denied then
    decision.verdict, decision.ticket = "allow", ticket
    return
  end
  decision.question = nil
  for key, value in pairs(denied) do decision[key] = value end
end

--- What a creation gave, by the argument that asks for it; nil where the service does not say.
local OF_METADATA = {
  cpu = function(info) return info.cpu_count end,
  memory = function(info) return info.memory_mb end,
  disk = function(info) return info.disk_size_mb end,
  timeout = function(info)
    if not (time.iso(info.started_at) and time.iso(info.end_at)) then return nil end
    -- Services begin to count a little after they began.
    return (time.epoch_ms(info.end_at) - time.epoch_ms(info.started_at)) / 1000 - LIFETIME_SLACK_S
  end,
}

--- Holds what a creation gave against the limits under which it was allowed. What the service does not say passes.
---@param decision demilune.policy.Decision
---@param info table  of the sandbox: cpu_count, memory_mb, disk_size_mb, started_at, end_at
---@return demilune.policy.Decision? refusal  the sandbox is to be killed
function rules.after_creation(decision, info)
  for _, limit in ipairs(decision.limits or {}) do
    local read = OF_METADATA[limit.argument]
    local value = read and read(info)
    if math.type(value) and (value > limit.max or value ~= value) then
      return {
        verdict = "deny", category = "policy_denied", rule = limit.rule, field = limit.argument,
        expected = ("at most %.14g"):format(limit.max), args = decision.args, matched = decision.matched,
        reason = ("the sandbox came back with more %s than is allowed"):format(limit.argument),
      }
    end
  end
  return nil
end

--- Whether a tool exists for somebody: what a list shows, and what may be called.
---@param compiled demilune.policy.Compiled
---@param tool string  its name
---@param who { principal: string }
---@return boolean is_shown
---@return string? rule  that hides it
function rules.shows(compiled, tool, who)
  local ok, hidden = pcall(hider, compiled, tool, who)
  if not ok then return false, rules.ERROR_RULE end
  return hidden == nil, hidden
end

--- Whether list_sandboxes shows a principal only its own sandboxes. What cannot be told does.
---@param compiled demilune.policy.Compiled
---@param view table  of the call of list_sandboxes
---@return boolean
function rules.lists_own(compiled, view)
  local ctx = { view = view }
  for _, entry in ipairs(compiled.by_tool[view.tool] or {}) do
    if entry.is_own_list then
      local ok, holds = pcall(when.holds, entry.conditions or {}, ctx)
      if not ok or holds ~= false then return true end
    end
  end
  return false
end

return rules
