--- providers/local.lua - sandboxes on this machine: the e2b driver on the engine's unix socket.
--
-- The engine is the user's daemon; it is started when none runs. Each scope holds a lease, a connection that lasts as long
-- as the scope: when it breaks, whatever the reason, the engine ends the scope's sandboxes.
local core = require "demilune.core"
local e2b = require "demilune.providers.e2b"
local engine_start = require "demilune.engine_start"
local errors = require "demilune.errors"
local state = require "demilune.state"

local local_driver = {}

local LEASE_ANSWER_MS = 5000
--- The engine says something every 30 s.
local LEASE_SILENCE_MS = 120000

---@class demilune.Local: demilune.E2b
local Local = setmetatable({}, { __index = e2b.class })
Local.__index = Local

--- Makes the provider; nothing is started.
---@param config table
---@return demilune.Local
function local_driver.new(config)
  local self = setmetatable(e2b.new(config, { url = "http://localhost" }), Local)
  self.leases = {}
  self.supports = { pause = true, cpu = true, memory = true }
  return self
end

--- Makes sure that an engine of our protocol runs.
function Local:ensure_engine()
  self.address.unix_socket = self.address.unix_socket or state.engine_socket()
  engine_start.ensure(self.address.unix_socket)
end

local function hold_lease(self, scope, lease)
  local res, err = core.http.request {
    method = "GET", url = self.address.url .. "/demilune/lease?id=" .. scope.id, unix_socket = self.address.unix_socket,
    headers = {}, timeout_ms = LEASE_ANSWER_MS, stream = true,
  }
  local first = res and res.status == 200 and res:read(LEASE_ANSWER_MS)
  lease.ok = first ~= nil and first ~= false
  lease.err = err
  lease.ready:set()
  while first and res:read(LEASE_SILENCE_MS) do end
  if res then res:close() end
  if self.leases[scope] == lease then self.leases[scope] = nil end
end

--- The scope's lease, taken where it is not held.
local function lease_of(self, scope)
  local lease = self.leases[scope]
  if not lease then
    lease = { ready = core.task.event() }
    self.leases[scope] = lease
    lease.task = core.task.spawn(hold_lease, self, scope, lease)
  end
  lease.ready:wait()
  if not lease.ok then
    if self.leases[scope] == lease then self.leases[scope] = nil end
    error(lease.err or errors.new "unavailable", 0)
  end
  return scope.id
end

--- Names of the configured templates, sorted.
---@return string[]
function Local:template_names()
  local names = {}
  for name in pairs(self.config.templates) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- The network of the sandboxes here.
---@return string
function Local:network() -- luacheck: ignore 212/self
  return "none"
end

--- Whether any template has a network.
---@return boolean
function Local:has_network() -- luacheck: ignore 212/self
  return false
end

--- The template to use when none is named: `base`, or the only one, or the first by name.
---@return string
function Local:default_template()
  if self.config.templates.base then return "base" end
  return self:template_names()[1]
end

--- What the engine takes (engine/create.lua); no configuration names a template beyond it.
local_driver.BOUNDS = { cpu = { 1, 4096 }, memory = { 16, 16 * 1024 * 1024 } }

local function check_bounds(opts)
  for _, name in ipairs { "cpu", "memory" } do
    local least, most = table.unpack(local_driver.BOUNDS[name])
    local value = opts[name]
    if value and (value < least or value > most) then
      local expected = ("integer from %d to %d"):format(least, most)
      errors.raise("unsupported", {
        field = name, expected = expected, message = ("%s must be an %s at this provider."):format(name, expected),
      })
    end
  end
end

local function resolve_template(self, opts)
  local name = opts.template or self:default_template()
  local configured = self.config.templates[name]
  if not configured then
    errors.raise("not_found", {
      field = "template", allowed = self:template_names(), message = "There is no such template.",
    })
  end
  local explicit = {}
  for key, value in pairs(configured.explicit or {}) do explicit[key] = value end
  if opts.cpu then explicit.cpu = true end
  if opts.memory then explicit.memory = true end
  return name, {
    disk = configured.disk, memory = opts.memory or configured.memory, cpu = opts.cpu or configured.cpu,
    pids = configured.pids, env = next(configured.env or {}) and configured.env or nil,
    explicit = next(explicit) and explicit or nil,
  }
end

local function merged(template_envs, envs)
  local all = {}
  for name, value in pairs(template_envs or {}) do all[name] = value end
  for name, value in pairs(envs or {}) do all[name] = value end
  return all
end

--- Creates a sandbox.
---@param opts table
---@return table info
function Local:create(opts)
  if opts.region then errors.raise("unsupported", { field = "region" }) end
  check_bounds(opts)
  local name, template = resolve_template(self, opts)
  self:ensure_engine()
  return self:post_creation({
    template = name, timeout_s = opts.timeout_s, envs = opts.envs, principal = opts.principal, scope = opts.scope,
  }, { demilune = { lease = not opts.keep and lease_of(self, opts.scope) or nil, template = template } }, function(answer)
    local ours = answer.demilune
    if type(ours) ~= "table" then errors.raise "invalid_response" end
    answer.startedAt, answer.endAt = ours.startedAt, ours.endAt
    answer.cpuCount, answer.memoryMB, answer.diskSizeMB = ours.cpuCount, ours.memoryMB, ours.diskSizeMB
    local info = self:info_of(answer)
    info.workdir, info.network, info.envs = self.workdir, "none", merged(template.env, opts.envs)
    return info
  end)
end

--- Without an engine there is no sandbox.
local function or_nothing(fn, nothing)
  return function(self, ...)
    self.address.unix_socket = self.address.unix_socket or state.engine_socket()
    local results = table.pack(pcall(fn, self, ...))
    if results[1] then return table.unpack(results, 2, results.n) end
    local err = results[2]
    if errors.is(err) and err.category == "connection_failed" and engine_start.is_gone() then
      return nothing()
    end
    error(err, 0)
  end
end

local function raise_not_found() errors.raise "not_found" end

Local.get = or_nothing(e2b.class.get, raise_not_found)
Local.kill = or_nothing(e2b.class.kill, function() return false end)
Local.set_timeout = or_nothing(e2b.class.set_timeout, raise_not_found)
Local.list = or_nothing(e2b.class.list, function() return {} end)
Local.request = or_nothing(e2b.class.request, function() errors.raise "sandbox_gone" end)

--- The scope ends: its lease does.
---@param scope demilune.Scope
function Local:release_scope(scope)
  local lease = self.leases[scope]
  self.leases[scope] = nil
  if not lease then return end
  lease.task:cancel()
  -- A creation that still waits for it must not wait for ever.
  lease.ready:set()
end

return local_driver
