--- policy/rehearsal.lua - a call that is decided and not run: for explain, check and the operator's own cases.
--
-- It goes through the functions that real calls go through; only what is about the world is as the operator says: who calls,
-- whose sandbox it is, what time it is. Nothing is connected and nothing is spent.
local book = require "demilune.policy.book"
local core = require "demilune.core"
local errors = require "demilune.errors"
local groups = require "demilune.policy.groups"
local hooks = require "demilune.policy.hooks"
local nearest = require "demilune.nearest"
local rules = require "demilune.policy.rules"
local schema = require "demilune.schema"
local views = require "demilune.policy.view"

local rehearsal = {}

--- The id of the sandbox that a rehearsed call is about.
rehearsal.SANDBOX_ID = "rehearsed"

local SANDBOXES = { "owned", "foreign", "none" }

---@class demilune.policy.Call
---@field tool string
---@field args? table
---@field principal? string
---@field client? string|table    its name, or { name, version }
---@field transport? string
---@field provider? string
---@field sandbox? string|table   "owned", "foreign", "none", or { id, owned, created_at }
---@field time? integer           seconds since 1970
---@field implicit? boolean

---@class demilune.policy.Rehearsal
---@field app demilune.App
---@field state demilune.policy.State
---@field book demilune.policy.Book|demilune.policy.Glance
---@field start_s integer  the time of calls that name none
local Rehearsal = {}
Rehearsal.__index = Rehearsal

--- A rehearsal; its counters begin with nothing spent, unless there are some to look at.
---@param app demilune.App  its policy is not asked
---@param state demilune.policy.State
---@param counters? demilune.policy.Glance
---@return demilune.policy.Rehearsal
function rehearsal.new(app, state, counters)
  local now_s = core.task.epoch_ms() // 1000
  return setmetatable({ app = app, state = state, start_s = now_s, book = counters or book.new(now_s) }, Rehearsal)
end

local function refuse(message)
  errors.raise("invalid_argument", { message = message, is_usage = true })
end

local function one_of(what, name, names)
  local near = nearest.of(name, names)
  refuse(("there is no %s %q; %s"):format(what, name, near and ("did you mean %s?"):format(near)
    or "there are " .. table.concat(names, ", ")))
end

local function tool_of(self, name)
  if type(name) ~= "string" then refuse 'a call names its tool: tool = "run_command"' end
  local tool = self.app.tools_by_name[name]
  if tool then return tool end
  local names = {}
  for i, known in ipairs(self.app.tools) do names[i] = known.name end
  one_of("tool", name, names)
end

local function provider_of(self, tool, name)
  if name == nil then
    local properties = tool.input.properties
    local has_one = properties.provider or properties.sandbox_id or properties.task_id or groups.of_entry(tool)["@create"]
    if tool.tool.provider_type then return self.app:provider_of_type(tool.tool.provider_type) end
    return has_one and self.app.default_provider or nil
  end
  local provider = self.app.providers_by_id[name]
  if not provider then one_of("provider", tostring(name), self.app.environment.provider_ids) end
  return provider
end

--- Whether a call of the tool is about a sandbox that is there.
local function works_in_one(tool)
  local properties = tool.input.properties
  return properties.sandbox_id ~= nil or properties.task_id ~= nil
end

local function sandbox_of(tool, args, given, time)
  if type(given) == "table" then return given end
  if given ~= nil and given ~= "owned" and given ~= "foreign" and given ~= "none" then
    one_of("sandbox", tostring(given), SANDBOXES)
  end
  if not works_in_one(tool) then return nil end
  if given == "none" or (given == nil and not args.sandbox_id and tool.tool.creates_default) then
    return tool.tool.creates_default and { owned = true } or nil
  end
  return { id = args.sandbox_id or rehearsal.SANDBOX_ID, owned = given ~= "foreign", created_at = time }
end

local function client_of(given)
  if type(given) == "table" then return given end
  return { name = given or "demilune" }
end

--- What the policy is to see of a call. Raises `invalid_argument` where the call is none.
---@param call demilune.policy.Call
---@return table view
function Rehearsal:view(call)
  local tool = tool_of(self, call.tool)
  local args = schema.check(tool.input, call.args or {})
  local time = call.time or self.start_s
  local provider = provider_of(self, tool, call.provider or args.provider)
  local given = {}
  for name in pairs(call.args or {}) do given[name] = true end
  return {
    given = given, tool = tool.name, group = groups.of_entry(tool), args = args, principal = call.principal or "local:me",
    client = client_of(call.client), transport = call.transport or "stdio", provider = provider and provider.id,
    template = views.template_of(tool, provider, args), sandbox = sandbox_of(tool, args, call.sandbox, time),
    implicit = call.implicit, time = time, lifetime_s = provider and provider.config.lifetime,
  }
end

--- What rules.decide needs of the world. What `before` said is left in `said`.
local function world(self, view, said, trace)
  local counts = self.book:counts(view)
  return {
    before = self.state.data.before and function(shown)
      shown.counts = counts
      said.before = hooks.before(self.state, shown)
      return said.before
    end or nil,
    validate = function(tool, args) return schema.check(self.app.tools_by_name[tool].input, args) end,
    real_path = function(_, path) return path end,
    honours = function(shown, argument) return views.honours(self.app.providers_by_id[shown.provider], argument) end,
    reserve = function(list)
      said.counters = {}
      for i, item in ipairs(list) do said.counters[i] = { item = item, spent = self.book:spent(item, view) } end
      return self.book:reserve(list, view)
    end,
    trace = trace,
  }
end

--- A tool that the function `list` hides does not exist for the principal; what rules hide, rules.decide says.
local function hidden(self, view)
  local who = { principal = view.principal, scopes = core.json.array {} }
  if not (self.state.data.list and rules.shows(self.state.compiled, view.tool, who)) then return nil end
  local is_shown, fault = hooks.list(self.state, self.app.tools_by_name[view.tool].definition, who)
  if is_shown then return nil end
  return {
    verdict = "deny", is_hidden = true, rule = fault and hooks.ERROR_RULE or "list", args = view.args,
    reason = fault and "`list` failed: " .. fault or "`list` hides the tool from this principal",
  }
end

--- Decides a call. Never raises, but for the cancel of its own task.
---@async
---@param view table    of Rehearsal:view
---@param trace? table  is filled with steps, see rules.decide
---@return table decision  of rules.decide; `is_hidden` where the tool does not exist for the principal
---@return { before?: demilune.policy.Verdict, counters?: { item: table, spent?: integer }[] } said
function Rehearsal:decide(view, trace)
  self.book.now_s = view.time
  local said = {}
  local decision = hidden(self, view)
  if decision then return decision, said end
  return rules.decide(self.state.compiled, view, world(self, view, said, trace)), said
end

--- Counts what an allowed call would have done, for the calls that follow in the same book.
---@param view table
---@param decision table
function Rehearsal:keep(view, decision)
  if decision.verdict ~= "allow" then return end
  local made
  if view.group["@create"] then
    local lifetime = math.tointeger(decision.args.timeout) or view.lifetime_s or 3600
    made = { principal = view.principal, created_s = view.time, ends_s = view.time + lifetime }
  end
  if decision.ticket then decision.ticket:keep(made) elseif made then table.insert(self.book.sandboxes, made) end
  if view.group["@destroy"] then self.book:end_one(view.principal) end
  if view.tool == "start_background_task" then self.book:task_started(view.principal) end
end

return rehearsal
