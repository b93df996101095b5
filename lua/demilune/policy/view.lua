--- policy/view.lua - what the operator's rules and functions see of a call.
--
-- Plain data: the call as it came, with the provider and the sandbox that it is about already found. A sandbox that the call
-- would first have to make counts as owned and has no id.
local core = require "demilune.core"

local view = {}

--- Whose sandbox it is: this scope's, or, where that is counted, one that the same principal made through another.
local function is_owned(call, provider, sandbox, known)
  if known and known.is_owned then return true end
  local owner = call.app.policy:owner_of(provider, sandbox)
  return owner ~= nil and owner == call.principal
end

local function created_at(known)
  if not (known and known.created_ms) then return nil end
  return (core.task.epoch_ms() - (core.task.now_ms() - known.created_ms)) // 1000
end

local function existing(call, provider, id, known)
  return {
    id = call.app:public_id(provider, id), owned = is_owned(call, provider, id, known), created_at = created_at(known),
  }
end

--- The provider and the sandbox of a call whose tool takes `sandbox_id`.
local function of_sandbox(call, args)
  local app, scope = call.app, call.scope
  if args.sandbox_id then
    local provider, id = app:split_id(args.sandbox_id)
    return provider, existing(call, provider, id, scope.sandboxes[provider.id .. "\0" .. id])
  end
  if app.config.default_sandbox == "off" then return nil end
  local default = scope.default
  if default then return default.provider, existing(call, default.provider, default.id, default) end
  if call.tool.tool.creates_default then return app.default_provider, { owned = true } end
end

--- The same for a call about a background task: where it runs.
local function of_task(call, args)
  local provider, id = call.app.background:place_of(call, args.task_id)
  if provider then return provider, existing(call, provider, id, call.scope.sandboxes[provider.id .. "\0" .. id]) end
end

--- What a call is about.
---@param call demilune.Call
---@param args table
---@return table? provider
---@return table? sandbox  {id?, owned, created_at?}
local function target_of(call, args)
  local tool, properties = call.tool.tool, call.tool.input.properties
  if tool.provider_type then
    local provider = call.app:provider_of_type(tool.provider_type)
    return provider, provider and args.sandbox_id and existing(call, provider, args.sandbox_id) or nil
  end
  if properties.sandbox_id then return of_sandbox(call, args) end
  if args.task_id then return of_task(call, args) end
  if properties.provider or call.tool.groups["@create"] then return call.app:provider(args.provider), nil end
end

--- From which template a creation makes its sandbox; nil for a call that is none.
---@param tool table       entry of tools.build
---@param provider? table
---@param args table
---@return string?
function view.template_of(tool, provider, args)
  if not tool.groups["@create"] then return nil end
  if args.template or not provider then return args.template end
  return provider.default_template and provider:default_template() or provider:template_names()[1]
end

--- Arguments of a creation that only some services have.
local OPTIONAL = { region = true, cpu = true, memory = true }

--- Whether a provider can do something with an argument, so that a rule may fill it in.
---@param provider? table
---@param argument string
---@return boolean
function view.honours(provider, argument)
  if not (OPTIONAL[argument] and provider) then return true end
  return provider.supports == nil or provider.supports[argument] == true
end

--- The names of the arguments that the caller gave.
local function given_of(arguments)
  local given = {}
  for name, value in pairs(arguments) do given[name] = value ~= core.json.null or nil end
  return given
end

--- Finds provider and sandbox again, once the arguments were rewritten. Arguments that name none are the tool's to refuse.
---@param seen table  of view.of
---@param call demilune.Call
---@param args table
function view.renew(seen, call, args)
  local ok, provider, sandbox = pcall(target_of, call, args)
  if not ok then provider, sandbox = nil, nil end
  seen.provider, seen.sandbox = provider and provider.id, sandbox
end

--- The view of a call. Raises what looking for its sandbox raises (`not_found`, `invalid_argument`).
---@param call demilune.Call
---@param args table       checked
---@param arguments table  as they came
---@return table
function view.of(call, args, arguments)
  local provider, sandbox = target_of(call, args)
  return {
    tool = call.tool.name, group = call.tool.groups, args = args, principal = call.principal,
    client = { name = call.client, version = call.client_version }, transport = call.transport,
    provider = provider and provider.id, template = view.template_of(call.tool, provider, args), sandbox = sandbox,
    implicit = call.implicit, time = core.task.epoch_ms() // 1000, lifetime_s = provider and provider.config.lifetime,
    workdir = provider and provider.workdir, given = given_of(arguments),
  }
end

return view
