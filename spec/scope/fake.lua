--- An app whose providers are no services: they note what they are asked and do as the spec says.
--
--   local world = fake.world()                       -- one provider, "local", the default
--   world.provider.fail.create = "no_capacity"       -- the next calls of create raise that
--   local result, err = world:call("run_command", { command = "true" })
--
-- Everything runs inside fake.run, which is a task.

local app = require "demilune.app"
local config = require "demilune.config"
local core = require "demilune.core"
local errors = require "demilune.errors"

local fake = {}

local PRINCIPAL = "local:spec"

---@class spec.fake.Provider
---@field calls table[]              {name, ...} in the order they came
---@field fail table<string, string|function> categories that methods raise, or functions that say so
---@field hold table<string, userdata> events that methods wait for before they do anything
---@field sandboxes table<string, table>
local Provider = {}
Provider.__index = Provider

local function enter(self, name, ...)
  self.calls[#self.calls + 1] = { name, ... }
  if self.hold[name] then self.hold[name]:wait() end
  local fault = self.fail[name]
  if type(fault) == "function" then fault = fault(...) end
  if fault then error(type(fault) == "table" and fault or errors.new(fault, { status = 599 }), 0) end
end

--- The names of the methods called so far, or how often one was.
function Provider:called(name)
  local names, count = {}, 0
  for i, call in ipairs(self.calls) do
    names[i] = call[1]
    if call[1] == name then count = count + 1 end
  end
  return name and count or names
end

--- Forgets the calls so far.
function Provider:clear() self.calls = {} end

--- The newest call of a method, without its name.
function Provider:last(name)
  for i = #self.calls, 1, -1 do
    if self.calls[i][1] == name then return table.unpack(self.calls[i], 2) end
  end
end

--- A sandbox that somebody else made.
function Provider:add(id, fields)
  local sandbox = { id = id, status = "running", template = "base", age_ms = 1000, ends_in_ms = 30000 }
  for key, value in pairs(fields or {}) do sandbox[key] = value end
  self.sandboxes[id] = sandbox
  return sandbox
end

function Provider:template_names() return { "base" } end
function Provider:network() return "none" end
function Provider:has_network() return false end
function Provider:is_id(id) return #id <= 128 and id:find "^[%w][%w_.-]*$" ~= nil end
function Provider:with_envs(_, command) return command end
function Provider:release_scope() self.calls[#self.calls + 1] = { "release_scope" } end

function Provider:create(opts)
  enter(self, "create", opts)
  self.count = self.count + 1
  local id = ("%s%d"):format(self.prefix, self.count)
  return self:add(id, {
    owner = opts.principal, stamp = opts.stamp, template = opts.template or "base", ends_in_ms = opts.timeout_s * 1000, age_ms = 0,
    workdir = "/home/user", network = "none", cpu_count = 2, memory_mb = 512, disk_size_mb = 1024,
    started_at = "2026-01-01T00:00:00Z", end_at = "2026-01-01T01:00:00Z",
  })
end

local function known(self, id)
  return self.sandboxes[id] or errors.raise "not_found"
end

function Provider:get(id, manner)
  enter(self, "get", id, manner)
  return known(self, id)
end

function Provider:list(opts)
  enter(self, "list", opts)
  local infos = {}
  for _, sandbox in pairs(self.sandboxes) do
    if not opts.owner or sandbox.owner == opts.owner then infos[#infos + 1] = sandbox end
  end
  table.sort(infos, function(a, b) return a.id > b.id end)
  return table.move(infos, opts.offset + 1, opts.offset + opts.limit, 1, {})
end

function Provider:kill(id)
  enter(self, "kill", id)
  local existed = self.sandboxes[id] ~= nil
  self.sandboxes[id] = nil
  return existed
end

function Provider:kill_by_stamp(stamp)
  enter(self, "kill_by_stamp", stamp)
  for id, sandbox in pairs(self.sandboxes) do
    if sandbox.stamp == stamp then self.sandboxes[id] = nil end
  end
end

function Provider:set_timeout(id, seconds, manner)
  enter(self, "set_timeout", id, seconds, manner)
  known(self, id).ends_in_ms = seconds * 1000
end

--- What services without lifetimes in seconds have in place of set_timeout: `renew` of those whose entry says is_renewed.
function Provider:beat(id) enter(self, "renew", id) end

local function live(self, sandbox)
  return self.sandboxes[sandbox.id] or errors.raise "sandbox_gone"
end

function Provider:run(sandbox, opts)
  enter(self, "run", sandbox.id, opts)
  live(self, sandbox)
  if opts.on_line then opts.on_line "a line" end
  local out = self.outcome or { exit_code = 0 }
  return {
    stdout = out.stdout or { head = "", total = 0 }, stderr = out.stderr or { head = "", total = 0 },
    exit_code = out.exit_code, timed_out = out.timed_out or false, duration_ms = 1, timeout_s = opts.timeout_s,
  }
end

function Provider:start_detached(sandbox, opts)
  enter(self, "start_detached", sandbox.id, opts)
  live(self, sandbox)
  return 1
end

function Provider:read(sandbox, path, offset, length)
  enter(self, "read", sandbox.id, path, offset, length)
  live(self, sandbox)
  return ("0123456789"):sub(offset + 1, offset + length), 10
end

function Provider:open_read(sandbox, path)
  enter(self, "open_read", sandbox.id, path)
  live(self, sandbox)
  local chunks = { "one\n", "two\n" }
  return { size = 8, read = function() return table.remove(chunks, 1) end, close = function() end }
end

function Provider:write(sandbox, path, bytes, append_at)
  enter(self, "write", sandbox.id, path, bytes, append_at)
  live(self, sandbox)
  return (append_at or 0) + #bytes
end

function Provider:list_dir(sandbox, path, limit, depth)
  enter(self, "list_dir", sandbox.id, path, limit, depth)
  live(self, sandbox)
  return { { name = "a", path = path .. "/a", type = "file", size = 1 } }, 1
end

package.loaded["demilune.providers.fake"] = {
  new = function(entry)
    return setmetatable({
      id = entry.id, config = entry, workdir = "/home/user", calls = {}, fail = {}, hold = {}, sandboxes = {}, count = 0,
      prefix = entry.prefix or "s", is_reaped = entry.is_reaped, renew = entry.is_renewed and Provider.beat or nil,
    }, Provider)
  end,
}

---@class spec.fake.World
---@field app demilune.App
---@field scope demilune.Scope
---@field provider spec.fake.Provider  the default one
local World = {}
World.__index = World

--- An app with fake providers. `providers` are fields of configuration entries; the first is the default one.
---@param options? {providers?: table[], config?: table, principal?: string}
---@return spec.fake.World
function fake.world(options)
  options = options or {}
  local loaded = config.defaults()
  loaded.providers = {}
  for i, fields in ipairs(options.providers or { {} }) do
    local entry = { id = "local", type = "fake", lifetime = 3600, max_lifetime = 86400, tenancy = "account" }
    for key, value in pairs(fields) do entry[key] = value end
    loaded.providers[i] = entry
  end
  loaded.default_provider = loaded.providers[1].id
  for key, value in pairs(options.config or {}) do loaded[key] = value end
  local self = setmetatable({ app = app.new(loaded), principal = options.principal or PRINCIPAL }, World)
  self.scope = self.app:new_scope(self.principal)
  self.provider = self.app.providers[1]
  return self
end

--- Calls a tool in the world's scope. `fields` are more of the call, e.g. scope, principal, revision.
function World:call(name, arguments, fields)
  local call = { scope = self.scope, principal = self.principal, client = "spec", transport = "stdio" }
  for key, value in pairs(fields or {}) do call[key] = value end
  return self.app:call(assert(self.app.tools_by_name[name], name), arguments or {}, call)
end

--- The same in a task of its own; its handle.
function World:spawn(name, arguments, fields)
  return core.task.spawn(function() return self:call(name, arguments, fields) end)
end

--- Runs `fn` as a task and raises what it raises.
function fake.run(fn)
  return function() return core.task.run(fn) end
end

--- Lets all tasks that can run do so.
function fake.settle() core.task.sleep(5) end

--- Waits until a method was called.
function World:until_called(name, provider)
  provider = provider or self.provider
  local deadline = core.task.now_ms() + 2000
  while provider:called(name) == 0 do
    assert(core.task.now_ms() < deadline, name .. " was not called")
    core.task.sleep(1)
  end
end

return fake
