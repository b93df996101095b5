--- app.lua - one configured server: providers, tools and what is shared by all its calls. Every door has one.
local background = require "demilune.background"
local calls = require "demilune.call"
local core = require "demilune.core"
local deferred = require "demilune.deferred"
local errors = require "demilune.errors"
local gate = require "demilune.gate"
local interpreters = require "demilune.interpreters"
local providers = require "demilune.providers"
local scopes = require "demilune.scope"
local tools = require "demilune.tools"
local vault = require "demilune.config.vault"

local app = {}

--- Requests of calls to sandboxes at a time. The HTTP client has 1,024 for all: the control plane and the leases have what
--- is left, so that they never wait behind commands.
app.PLACES = 768
--- How long a request waits for a place. With the default timeout of a command it stays below what clients wait.
local PLACE_WAIT_MS = 5000

---@class demilune.App
---@field config table
---@field providers table[]
---@field tools table[]
---@field tools_by_name table<string, table>
---@field background table
---@field deferred demilune.Deferred
---@field has_vault boolean  there is something to keep secret
---@field call_count integer   since its start
---@field metrics? demilune.Metrics  nil where nobody can ask for them
---@field policy? demilune.Policy  nil where neither a policy nor an audit is configured
local App = {}
App.__index = App

--- What descriptions and schemas need to know of the configuration.
local function environment(self)
  local ids, templates, has_network, has_kernel, has_veryfront, most = {}, {}, false, false, false, 1
  for i, provider in ipairs(self.providers) do
    ids[i] = provider.id
    for _, name in ipairs(provider:template_names()) do
      templates[#templates + 1] = i == self.default_index and name or name .. " (" .. provider.id .. ")"
    end
    has_network = has_network or provider:has_network()
    has_kernel = has_kernel or (provider.supports or {}).kernel == true
    has_veryfront = has_veryfront or provider.config.type == "veryfront"
    most = math.max(most, provider.config.max_lifetime)
  end
  return {
    provider_ids = ids, template_names = table.concat(templates, ", "), languages = interpreters.NAMES,
    has_network = has_network, has_kernel = has_kernel, has_veryfront = has_veryfront,
    has_default = self.config.default_sandbox ~= "off", max_lifetime = most, annotations = self.config.annotations,
    output = self.config.output,
  }
end

--- Builds it. Nothing is connected, nothing started but what reads the policy, and no credential read but from the
--- environment. Raises where the vault cannot be had and where the policy is wrong.
---@async
---@param config table  of config.load
---@return demilune.App
function app.new(config)
  local has_vault, err = vault.open(config)
  if err then error(err, 0) end
  local self = setmetatable({ config = config, has_vault = has_vault, providers = {}, providers_by_id = {}, call_count = 0 }, App)
  local places = gate.new(app.PLACES, PLACE_WAIT_MS)
  for i, entry in ipairs(config.providers) do
    local provider = providers.new(entry, config.output, places, config)
    self.providers[i] = provider
    self.providers_by_id[provider.id] = provider
    if provider.id == config.default_provider then self.default_provider, self.default_index = provider, i end
  end
  self.environment = environment(self)
  local list, by_name = self:build_tools()
  if not list then error(errors.new("invalid_argument", { message = "A tool cannot be used: " .. by_name, is_usage = true }), 0) end
  self.tools, self.tools_by_name = list, by_name
  self.background, self.deferred = background.new(self), deferred.new(self)
  if config.policy or config.audit then self.policy = require("demilune.policy").open(self) end
  return self
end

--- The tools as they are configured now.
---@return table[]? list
---@return table<string, table>|string by_name  or what is wrong with the operator's own
function App:build_tools()
  local own, fault = tools.load_own(self.config.tools)
  if not own then return nil, fault end
  return tools.build(self.environment, own)
end

--- A new scope for a principal.
---@param principal string
---@return demilune.Scope
function App:new_scope(principal)
  return scopes.new(self, principal)
end

--- The provider with that id, or the default one. The id is checked by the schema.
---@param id? string
---@return table
function App:provider(id)
  return id and self.providers_by_id[id] or self.default_provider
end

--- The first provider of a type, nil where none is configured.
---@param kind string
---@return table?
function App:provider_of_type(kind)
  for _, provider in ipairs(self.providers) do
    if provider.config.type == kind then return provider end
  end
end

--- Splits "provider:id" or "id". Raises `not_found` for a provider that is not configured, `invalid_argument` for an id
--- that the driver's pattern refuses.
---@param sandbox_id string
---@return table provider
---@return string id
function App:split_id(sandbox_id)
  local head, rest = sandbox_id:match "^([^:]*):(.*)$"
  local provider = head and self.providers_by_id[head]
  local id = rest
  if not provider then provider, id = self.default_provider, sandbox_id end
  if provider:is_id(id) then return provider, id end
  if head and id == sandbox_id and head:find "^%l[%l%d_-]*$" then
    errors.raise("not_found", {
      field = "sandbox_id", allowed = self.environment.provider_ids, message = "No provider of that name is configured.",
    })
  end
  errors.raise("invalid_argument", {
    field = "sandbox_id", expected = "id of a sandbox", message = "sandbox_id is not the id of a sandbox.",
  })
end

--- The form of an id that callers can pass back: bare for the default provider, unless that would parse as another's.
---@param provider table
---@param id string
---@return string
function App:public_id(provider, id)
  local head = id:match "^([^:]*):"
  if provider == self.default_provider and not (head and self.providers_by_id[head]) then return id end
  return provider.id .. ":" .. id
end

--- Loads the operator's tools and policy again, and reads the credentials again that have been read. Nothing changes where
--- one of the files is wrong.
---@async
---@return {version?: string, digest?: string, is_new: boolean, keeps_name: boolean, fault?: string}  is_new: the policy is another;
---  keeps_name: but calls itself the same
function App:reload()
  local list, by_name = self:build_tools()
  local policy, state = self.policy, nil
  local fault = not list and by_name or nil
  if list and policy and policy.state then state, fault = policy:prepare(list) end
  if policy and policy.audit then policy.audit:reopen() end
  vault.reload(self.config)
  local version, digest = policy and policy:version(), policy and policy:digest()
  if fault then return { version = version, digest = digest, is_new = false, keeps_name = false, fault = fault } end
  self.tools, self.tools_by_name = list, by_name
  if not state then return { version = version, digest = digest, is_new = false, keeps_name = false } end
  policy:install(state)
  local is_new = state.digest ~= digest
  return { version = state.version, digest = state.digest, is_new = is_new, keeps_name = is_new and state.version == version }
end

--- Runs a tool. Returns its result, or nil and the error (and, for failed commands, the partial output).
---@param tool table  entry of self.tools
---@param arguments table
---@param fields {scope: demilune.Scope, principal: string, client?: string, transport: string, send_progress?: function}
---@return table? result
---@return demilune.Error? err
---@return table? partial
function App:call(tool, arguments, fields)
  self.call_count = self.call_count + 1
  fields.app = self
  fields.tool = tool
  return calls.run(fields, arguments)
end

--- Ends what it holds: the policy's process, the audit's file.
function App:close()
  if self.policy then self.policy:close() end
end

--- The result, or the error, of a tool as MCP's CallToolResult.
---@param tool table
---@param result? table
---@param err? demilune.Error
---@param partial? table
---@param has_structured boolean  the revision knows structuredContent
---@param meta? table  what the revision puts into `_meta`
---@return string json
function App:encode_result(tool, result, err, partial, has_structured, meta) -- luacheck: ignore 212/self
  local json = core.json
  if err then
    local bare = json.encode(err)
    local shown = '{"error":' .. bare .. "}"
    if partial then
      local beside = { error = err }
      for key, value in pairs(partial) do beside[key] = value end
      shown = json.encode(beside)
    end
    local more = meta and "," .. json.encode(meta):sub(2, -2) or ""
    return '{"_meta":{"dev.demilune/error":' .. bare .. more .. '},"content":[{"text":' .. json.encode(shown)
      .. ',"type":"text"}],"isError":true}'
  end
  local structured = json.encode(result)
  local text = structured
  local without = tool.tool.text_without
  if without and has_structured then
    local shown = {}
    for key, value in pairs(result) do
      if not without[key] then shown[key] = value end
    end
    text = json.encode(shown)
  end
  local head = meta and '{"_meta":' .. json.encode(meta) .. "," or "{"
  local content = head .. '"content":[{"text":' .. json.encode(text) .. ',"type":"text"}],"isError":false'
  if not has_structured then return content .. "}" end
  return content .. ',"structuredContent":' .. structured .. "}"
end

return app
