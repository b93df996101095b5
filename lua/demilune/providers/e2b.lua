--- providers/e2b.lua - the driver for E2B's protocol: REST control plane, envd data plane. What services differ in is in
--- presets.lua.
--
-- `local` is this driver with a fixed address, the engine's unix socket, and without a key. To a cloud the requests go as
-- a place of e2b/place.lua says, with the manners of transport.lua. What a sandbox's data plane is reached with (its
-- domain, its tokens, the version of its envd) is kept by id, and asked for where it is not known, so that a sandbox can be
-- worked in from its id alone.
local attached = require "demilune.e2b.attached"
local control = require "demilune.e2b.control"
local core = require "demilune.core"
local creation = require "demilune.e2b.creation"
local envd = require "demilune.envd"
local errors = require "demilune.errors"
local files = require "demilune.e2b.files"
local info = require "demilune.e2b.info"
local kernel = require "demilune.e2b.kernel"
local listing = require "demilune.e2b.listing"
local outcome = require "demilune.outcome"
local plane = require "demilune.e2b.plane"
local presets = require "demilune.e2b.presets"
local processes = require "demilune.e2b.processes"
local regions = require "demilune.e2b.regions"
local text = require "demilune.text"
local transport = require "demilune.transport"

local task = core.task
local e2b = {}

local DEFAULT_TEMPLATE = "base"
--- The pause before a creation that nobody heard the answer of is looked for again; each doubles it.
local STAMP_PAUSE_MS = 1000

---@class demilune.E2b
---@field is_reaped? boolean   what a scope leaves behind is ended by a process of its own
---@field is_engine boolean    our own engine is at the other end
---@field supports table<string, boolean>
local E2b = {}
E2b.__index = E2b
e2b.class = E2b

--- Makes a provider. `address` = {url, unix_socket?} is a fixed place without a key; else the entry says where and how.
---@param config table
---@param address? table
---@return demilune.E2b
function e2b.new(config, address)
  local self = setmetatable({ id = config.id, config = config, workdir = "/home/user", attached = attached.new() }, E2b)
  if address then
    self.address, self.is_engine, self.supports = address, true, { pause = true }
    return self
  end
  local resolved = assert(presets.resolve(config))
  self.is_engine, self.supports, self.lifetime, self.is_reaped = resolved.is_engine, resolved.supports, resolved.lifetime, true
  self.network_kind = resolved.network
  regions.open(self, resolved)
  self.transport = transport.new {
    name = config.id, max_requests = config.max_requests, proxy = config.proxy, ca_file = config.ca_file,
  }
  return self
end

--- Names of the configured templates.
---@return string[]
function E2b:template_names()
  return self.config.templates[1] and self.config.templates or { DEFAULT_TEMPLATE }
end

--- The network of the sandboxes.
---@return string
function E2b:network()
  return self.network_kind
end

--- Whether any template has a network.
---@return boolean
function E2b:has_network()
  return self.network_kind ~= "none"
end

--- See e2b/regions.lua.
E2b.is_id = regions.is_id
--- See e2b/regions.lua.
E2b.locate = regions.locate
--- See e2b/regions.lua.
E2b.id_at = regions.id_at

--- The path of a sandbox in the control plane.
local function path_of(self, id)
  return "/sandboxes/" .. (self:locate(id))
end

-- ---- what is known of a sandbox's data plane ----

--- Remembers what an answer about one sandbox says of its data plane. Raises `invalid_response` for a domain that is not
--- the configured one's.
---@param id string
---@param answer table
function E2b:remember(id, answer)
  if self.address then return end
  local _, place = self:locate(id)
  local known = { place = place, domain = place:domain_of(answer.domain), version = info.version(answer.envdVersion), tokens = {} }
  for _, name in ipairs { "envdAccessToken", "trafficAccessToken" } do
    if type(answer[name]) == "userdata" and answer[name] ~= core.json.null then known.tokens[#known.tokens + 1] = answer[name] end
  end
  self.attached:put(id, known)
end

--- The data plane of a sandbox; asked for where it is not known.
---@param id string
---@return demilune.e2b.Plane
function E2b:attach(id)
  local known = self.attached:get(id)
  if known then return known end
  self:get(id)
  return self.attached:get(id)
end

--- Whether the envd of a sandbox is known to have at least a version.
---@param id string
---@param version integer[]
---@return boolean
function E2b:is_envd_at_least(id, version)
  return self.is_engine or info.is_at_least(self:attach(id).version, version)
end

-- ---- the control plane ----

--- See e2b/creation.lua.
E2b.post_creation = creation.post
--- See e2b/creation.lua.
E2b.create = creation.create

--- One sandbox of an answer as driver info. Raises `invalid_response`.
---@param entry any
---@param place? demilune.e2b.Place
---@return table info
---@return table metadata
function E2b:info_of(entry, place)
  local made, metadata = info.of(entry)
  made.id, made.region = self:id_at(place, made.id), (place or self.home or {}).region
  return made, metadata
end

--- The manner of requests about one sandbox, which may be repeated.
local function manner_of(self, id, manner)
  local _, place = self:locate(id)
  return { is_safe = true, is_fresh = manner and manner.is_fresh, place = place, tokens = place and place.tokens }
end

--- The metadata of one sandbox. Of one that is none of ours (`is_fresh`) nothing is kept.
---@param id string
---@param manner? {is_fresh?: boolean}
---@return table info
function E2b:get(id, manner)
  local way = manner_of(self, id, manner)
  local answer = control.send(self, "GET", path_of(self, id), nil, { [200] = true }, way)
  local made = self:info_of(answer, way.place)
  if made.id ~= id then errors.raise "invalid_response" end
  if self.attached:get(id) or not way.is_fresh then self:remember(id, answer) end
  return made
end

--- Ends a sandbox. Returns whether it was there.
---@param id string
---@return boolean
function E2b:kill(id)
  local way = manner_of(self, id)
  way.tokens, way.is_bare = nil, true
  local ok, err = pcall(control.send, self, "DELETE", path_of(self, id), nil, { [204] = true, [200] = true }, way)
  local is_gone = not ok and errors.is(err) and (err.category == "not_found" or err.category == "sandbox_gone")
  if not ok and not is_gone then error(err, 0) end
  self.attached:drop(id)
  return not is_gone
end

--- Sets the lifetime from now. Raises `sandbox_paused` for one that stands still: services have a 404 for it, or a 409.
---@param id string
---@param seconds integer
---@param manner? {is_fresh?: boolean}
function E2b:set_timeout(id, seconds, manner)
  local way = manner_of(self, id, manner)
  way.tokens = nil
  local ok, err = pcall(control.send, self, "POST", path_of(self, id) .. "/timeout", { timeout = seconds }, { [204] = true }, way)
  if ok then return end
  if errors.is(err) and (err.status == 404 or err.status == 409) then
    local is_there, found = pcall(self.get, self, id, manner)
    if not is_there and not errors.is(found) then error(found, 0) end
    if is_there and found.status == "paused" then
      errors.raise("sandbox_paused", { message = "The sandbox is paused, so that its time stands still." })
    end
  end
  error(err, 0)
end

--- Stops a sandbox with its memory kept. Raises `unsupported` where the service cannot.
---@param id string
function E2b:pause(id)
  if not self.supports.pause then errors.raise "unsupported" end
  local _, place = self:locate(id)
  control.send(self, "POST", path_of(self, id) .. "/pause", {}, { [204] = true }, { place = place })
end

--- Lets a paused sandbox go on, for at least so many seconds. Raises `unsupported` where the service cannot.
---@param id string
---@param seconds integer
function E2b:resume(id, seconds)
  if not self.supports.pause then errors.raise "unsupported" end
  local way = manner_of(self, id)
  local accept, body = { [200] = true, [201] = true }, { timeout = seconds }
  local ok, answer = pcall(control.send, self, "POST", path_of(self, id) .. "/connect", body, accept, way)
  -- Some services only have the older call.
  if not ok and errors.is(answer) and (answer.status == 404 or answer.status == 405) then
    ok, answer = pcall(control.send, self, "POST", path_of(self, id) .. "/resume", body, accept, way)
  end
  if not ok then error(answer, 0) end
  if self:info_of(answer, way.place).id ~= id then errors.raise "invalid_response" end
  self:remember(id, answer)
end

-- ---- listings ----

--- Lists sandboxes, newest first: pages are walked to `offset`.
---@param opts {status?: string, limit: integer, offset: integer, region?: string, owner?: string}
---@return table[] infos
function E2b:list(opts)
  local infos, seen = {}, 0
  local place = regions.place_of(self, opts.region)
  if opts.status and not info.STATES[opts.status] then return {} end
  listing.each(self, place, opts, function(one)
    if opts.owner and one.owner ~= opts.owner then return false end
    seen = seen + 1
    if seen > opts.offset then infos[#infos + 1] = one end
    return #infos >= opts.limit
  end)
  return infos
end

--- Ends what a creation with that stamp made, looking for it until it is there or the time is over. Raises `unavailable`
--- where it was not found.
---@param stamp string  with @ the region where that is another
---@param deadline_ms integer
function E2b:kill_by_stamp(stamp, deadline_ms)
  local pause_ms = STAMP_PAUSE_MS
  local sought, place = self:locate(stamp)
  repeat
    local id
    listing.each(self, place, { stamp = sought }, function(one, metadata)
      if metadata.demilune_stamp == sought then id = one.id end
      return id ~= nil
    end)
    if id then return self:kill(id) end
    task.sleep(math.max(0, math.min(pause_ms, deadline_ms - task.now_ms())))
    pause_ms = pause_ms * 2
  until task.now_ms() >= deadline_ms
  errors.raise "unavailable"
end

-- ---- data plane ----

--- Raises `sandbox_gone` where the control plane does not know the sandbox; else what it says of it, nil where it says
--- nothing.
---@param id string
---@return table? info
function E2b:raise_if_gone(id)
  local ok, found = pcall(self.get, self, id)
  if ok then return found end
  if not errors.is(found) then error(found, 0) end
  if found.category == "not_found" or found.category == "sandbox_gone" then
    self.attached:drop(id)
    errors.raise "sandbox_gone"
  end
end

--- A data-plane request: see e2b/plane.lua.
---@param ref table
---@param opts table
---@return table res
function E2b:request(ref, opts)
  return plane.request(self, ref, opts)
end

--- The command with the sandbox's variables exported before it: a login shell's profile may have set others. On a line
--- of their own, since shells repeat a line with a syntax error.
---@param sandbox demilune.Sandbox
---@param command string
---@return string
function E2b:with_envs(sandbox, command) -- luacheck: ignore 212/self
  local names = {}
  for name in pairs(sandbox.envs) do names[#names + 1] = name end
  if #names == 0 then return command end
  table.sort(names)
  for i, name in ipairs(names) do names[i] = name .. "=" .. text.quote(sandbox.envs[name]) end
  return "export " .. table.concat(names, " ") .. "\n" .. command
end

--- Runs `fn(self, sandbox, ...)`; where the connection broke, the end of the sandbox is looked for behind it.
---@param sandbox demilune.Sandbox
---@param fn function
---@return any ...
function E2b:guard(sandbox, fn, ...)
  local results = table.pack(pcall(fn, self, sandbox, ...))
  if results[1] then return table.unpack(results, 2, results.n) end
  local err = results[2]
  if errors.is(err) and (err.category == "connection_failed" or err.category == "invalid_response") then
    self:raise_if_gone(sandbox.id)
  end
  error(err, 0)
end

--- See e2b/processes.lua.
E2b.run = processes.run
--- See e2b/processes.lua.
E2b.start_detached = processes.start_detached
--- See e2b/processes.lua.
E2b.signal = processes.signal

--- Runs code where the sandbox has a kernel for its language; nil where there is none.
---@param sandbox demilune.Sandbox
---@param opts {language: string, code: string, timeout_s: integer, on_line?: function, mask?: function}
---@return table? run  as of `run`, and `result`
function E2b:run_code(sandbox, opts)
  if not self.supports.kernel then return nil end
  -- Listed before, so it is awake.
  if sandbox.has_kernel == nil then sandbox.has_kernel = kernel.is_there(self, sandbox) end
  sandbox.kernel_lacks = sandbox.kernel_lacks or {}
  if not sandbox.has_kernel or sandbox.kernel_lacks[opts.language] then return nil end
  local run = self:guard(sandbox, kernel.run, {
    language = opts.language, code = opts.code, timeout_s = opts.timeout_s, on_line = opts.on_line, envs = sandbox.envs,
    mask = opts.mask, stdout = outcome.window(self.output.stdout), stderr = outcome.window(self.output.stderr),
  })
  if not run then sandbox.kernel_lacks[opts.language] = true end
  return run
end

--- Files of our engine are envd's calls; elsewhere scripts add what those lack.
local function file_operation(name)
  return function(self, sandbox, ...)
    return self:guard(sandbox, (self.is_engine and envd or files)[name], ...)
  end
end

--- See envd.open_read.
E2b.open_read = file_operation "open_read"
--- See envd.read.
E2b.read = file_operation "read"
--- See envd.write.
E2b.write = file_operation "write"
--- See envd.list_dir.
E2b.list_dir = file_operation "list_dir"

--- Nothing of the cloud is held for a scope.
function E2b:release_scope() end

return e2b
