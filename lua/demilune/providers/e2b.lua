--- providers/e2b.lua - the driver for E2B's protocol: REST control plane, envd data plane. What services differ in is in
--- presets.lua.
--
-- `local` is this driver with a fixed address, the engine's unix socket, and without a key. To a cloud the requests go as
-- a place of e2b/place.lua says, with the manners of transport.lua. What a sandbox's data plane is reached with (its
-- domain, its tokens, the version of its envd) is kept by id, and asked for where it is not known, so that a sandbox can be
-- worked in from its id alone.
local control = require "demilune.e2b.control"
local core = require "demilune.core"
local envd = require "demilune.envd"
local errors = require "demilune.errors"
local files = require "demilune.e2b.files"
local info = require "demilune.e2b.info"
local kernel = require "demilune.e2b.kernel"
local listing = require "demilune.e2b.listing"
local outcome = require "demilune.outcome"
local places = require "demilune.e2b.place"
local plane = require "demilune.e2b.plane"
local presets = require "demilune.e2b.presets"
local scratch = require "demilune.scratch"
local sweep = require "demilune.e2b.sweep"
local text = require "demilune.text"
local transport = require "demilune.transport"

local task = core.task
local e2b = {}

--- Longer commands go through a script file: execve takes 128 KiB an argument.
local INLINE_COMMAND_BYTES = 96 * 1024
local DEFAULT_TEMPLATE = "base"
--- Sandboxes whose data plane is remembered; the oldest goes first.
local ATTACHED_MAX = 256
--- Places of regions that are kept; and the bytes of the name of one.
local REGIONS_MAX, REGION_BYTES_MAX = 64, 64
local MARK_CHARACTERS = 24
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
  local self = setmetatable({ id = config.id, config = config, workdir = "/home/user", attached = {}, attached_order = {} }, E2b)
  if address then
    self.address, self.is_engine, self.supports = address, true, { pause = true }
    return self
  end
  local resolved = assert(presets.resolve(config))
  self.is_engine, self.supports, self.lifetime, self.is_reaped = resolved.is_engine, resolved.supports, resolved.lifetime, true
  self.network_kind = resolved.network
  self.home = places.new(resolved, config.credential)
  self.regions, self.region_count = { [resolved.region or ""] = self.home }, 1
  self.transport = transport.new { max_requests = config.max_requests, proxy = config.proxy, ca_file = config.ca_file }
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

--- Whether this provider can reach a region beside its own. One that names its URLs or its domain has no other.
local function has_region(self, region)
  return self.supports.region and not self.config.api_url and not self.config.domain
    and #region <= REGION_BYTES_MAX and region:find "^%l[%l%d-]*$" ~= nil
end

--- Whether a string may be the id of a sandbox here: the service's, and with @ the region where that is not the
--- provider's own, since only there the sandbox is known.
---@param id string
---@return boolean
function E2b:is_id(id)
  local bare, region = id:match "^([^@]*)@(.*)$"
  if not bare then return info.is_id(id) end
  return info.is_id(bare) and has_region(self, region) and region ~= self.home.region
end

--- The place of a region; nil is the configured one. Raises `unsupported` where the service has no such.
local function place_of(self, region)
  if not region then return self.home end
  local known = self.regions and self.regions[region]
  if known then return known end
  if not has_region(self, region) then errors.raise("unsupported", { field = "region" }) end
  if self.region_count == REGIONS_MAX then self.regions, self.region_count = { [self.home.region] = self.home }, 1 end
  known = places.new(assert(presets.resolve(self.config, region)), self.config.credential)
  self.regions[region], self.region_count = known, self.region_count + 1
  return known
end

--- The id as the service knows it, and the place of its region.
---@param id string
---@return string bare
---@return demilune.e2b.Place? place
function E2b:locate(id)
  local bare, region = id:match "^([^@]*)@(.*)$"
  return bare or id, place_of(self, region)
end

--- The path of a sandbox in the control plane.
local function path_of(self, id)
  return "/sandboxes/" .. (self:locate(id))
end

-- ---- what is known of a sandbox's data plane ----

--- Remembers what an answer about one sandbox says of its data plane. Raises `invalid_response` for a domain that is not
--- the configured one's.
local function remember(self, id, answer)
  if self.address then return end
  local _, place = self:locate(id)
  local at = { place = place, domain = place:domain_of(answer.domain), version = info.version(answer.envdVersion), tokens = {} }
  for _, name in ipairs { "envdAccessToken", "trafficAccessToken" } do
    if type(answer[name]) == "userdata" and answer[name] ~= core.json.null then at.tokens[#at.tokens + 1] = answer[name] end
  end
  if not self.attached[id] then
    local order = self.attached_order
    order[#order + 1] = id
    if #order > ATTACHED_MAX then self.attached[table.remove(order, 1)] = nil end
  end
  self.attached[id] = at
end

--- Forgets what is known of a sandbox.
---@param id string
function E2b:detach(id)
  if not self.attached[id] then return end
  self.attached[id] = nil
  for i, other in ipairs(self.attached_order) do
    if other == id then return table.remove(self.attached_order, i) end
  end
end

--- The data plane of a sandbox; asked for where it is not known.
---@param id string
---@return table  {place, domain?, version?, tokens}
function E2b:attach(id)
  local at = self.attached[id]
  if at then return at end
  self:get(id)
  return self.attached[id]
end

--- Whether the envd of a sandbox is known to have at least a version.
---@param id string
---@param version integer[]
---@return boolean
function E2b:is_envd_at_least(id, version)
  return self.is_engine or info.is_at_least(self:attach(id).version, version)
end

-- ---- a creation ----

--- The metadata that every creation carries: whose it is, and a stamp that finds it again.
---@param opts table
---@return table
function E2b:stamp(opts) -- luacheck: ignore 212/self
  return {
    demilune_principal = opts.principal, demilune_scope = opts.scope.id, demilune_stamp = opts.stamp or core.crypto.id(24),
  }
end

--- Sends a creation. `extra` goes into the body as it is; `finish` makes info of the answer. Where that fails, what was
--- created is killed before the error is raised.
---@param opts table
---@param extra table
---@param finish fun(answer: table): table
---@return table info
function E2b:post_creation(opts, extra, finish)
  local body = {
    templateID = opts.template, timeout = opts.timeout_s, envVars = opts.envs, metadata = self:stamp(opts),
  }
  for key, value in pairs(extra) do body[key] = value end
  local place = opts.place
  local answer = control.send(self, "POST", "/sandboxes", body, { [201] = true }, {
    is_create = true, place = place, tokens = place and place.tokens,
  })
  local ok, made = pcall(finish, answer)
  if ok then return made end
  if type(answer.sandboxID) == "string" and info.is_id(answer.sandboxID) then
    pcall(self.kill, self, self:id_at(place, answer.sandboxID))
  end
  error(made, 0)
end

local function check_support(self, opts)
  for _, name in ipairs { "cpu", "memory" } do
    if opts[name] and not self.supports[name] then errors.raise("unsupported", { field = name }) end
  end
  local bounds = self.lifetime
  if bounds and (opts.timeout_s < bounds.min or opts.timeout_s > bounds.max) then
    local expected = ("integer from %d to %d"):format(bounds.min, bounds.max)
    errors.raise("unsupported", {
      field = "timeout", expected = expected, message = ("timeout must be an %s at this provider."):format(expected),
    })
  end
end

--- Creates a sandbox.
---@param opts table
---@return table info
function E2b:create(opts)
  check_support(self, opts)
  local place = place_of(self, opts.region)
  local sent = {
    template = opts.template or self:template_names()[1], timeout_s = opts.timeout_s, envs = opts.envs,
    principal = opts.principal, scope = opts.scope, stamp = opts.stamp, place = place,
  }
  local extra = { secure = true, cpuCount = opts.cpu, memoryMB = opts.memory }
  return self:post_creation(sent, extra, function(answer)
    local made = self:info_of(answer, place)
    remember(self, made.id, answer)
    made.workdir, made.network, made.envs = self.workdir, self:network(), opts.envs
    made.ends_in_ms = made.ends_in_ms or opts.timeout_s * 1000
    made.end_at = made.end_at or task.iso(task.epoch_ms() + opts.timeout_s * 1000)
    return made
  end)
end

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

--- The id of a sandbox of a place, as is_id has it.
---@param place? demilune.e2b.Place
---@param bare string
---@return string
function E2b:id_at(place, bare)
  if not place or place.region == self.home.region then return bare end
  return bare .. "@" .. place.region
end

-- ---- one sandbox ----

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
  if self.attached[id] or not way.is_fresh then remember(self, id, answer) end
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
  self:detach(id)
  return not is_gone
end

--- Sets the lifetime from now.
---@param id string
---@param seconds integer
---@param manner? {is_fresh?: boolean}
function E2b:set_timeout(id, seconds, manner)
  local way = manner_of(self, id, manner)
  way.tokens = nil
  control.send(self, "POST", path_of(self, id) .. "/timeout", { timeout = seconds }, { [204] = true }, way)
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
  remember(self, id, answer)
end

-- ---- listings ----

--- Lists sandboxes, newest first: pages are walked to `offset`.
---@param opts {status?: string, limit: integer, offset: integer, region?: string, owner?: string}
---@return table[] infos
function E2b:list(opts)
  local infos, seen = {}, 0
  local place = place_of(self, opts.region)
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
---@param stamp string
---@param deadline_ms integer
function E2b:kill_by_stamp(stamp, deadline_ms)
  local pause_ms = STAMP_PAUSE_MS
  repeat
    local id
    listing.each(self, self.home, { stamp = stamp }, function(one, metadata)
      if metadata.demilune_stamp == stamp then id = one.id end
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
    self:detach(id)
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

local function run_argv(self, sandbox, opts, argv)
  local window = opts.window
  local request = {
    argv = argv, cwd = opts.cwd, timeout_s = opts.timeout_s, on_line = opts.on_line,
    stdout = window or outcome.window(self.output.stdout), stderr = window or outcome.window(self.output.stderr),
  }
  if self.is_engine then return self:guard(sandbox, envd.run, request) end
  request.mark = core.crypto.id(MARK_CHARACTERS)
  return sweep.after(self, sandbox, request.mark, self.guard, self, sandbox, envd.run, request)
end

--- Runs with bash, or with sh where there is no bash, which is remembered.
local function run_shell(self, sandbox, opts, arguments)
  if not sandbox.has_no_bash then
    local ok, run = pcall(run_argv, self, sandbox, opts, { "/bin/bash", "-l", table.unpack(arguments) })
    if ok then return run end
    if not (errors.is(run) and run.is_command) then error(run, 0) end
    sandbox.has_no_bash = true
  end
  return run_argv(self, sandbox, opts, { "/bin/sh", table.unpack(arguments) })
end

--- Runs a command or a program and waits for it.
---@param sandbox demilune.Sandbox
---@param opts table  command or argv, cwd, timeout_s, on_line?, window?
---@return table run
function E2b:run(sandbox, opts)
  local run
  if opts.argv then
    run = run_argv(self, sandbox, opts, opts.argv)
  else
    local command = self:with_envs(sandbox, opts.command)
    if #command <= INLINE_COMMAND_BYTES then
      run = run_shell(self, sandbox, opts, { "-c", command })
    else
      local dir = scratch.write(sandbox, "code", "command.sh", 'rm -rf "${0%/*}"; ' .. command)
      run = run_shell(self, sandbox, opts, { dir .. "/command.sh" })
    end
  end
  run.timeout_s = opts.timeout_s
  return run
end

--- Runs code where the sandbox has a kernel for its language; nil where there is none.
---@param sandbox demilune.Sandbox
---@param opts {language: string, code: string, timeout_s: integer, on_line?: function}
---@return table? run  as of `run`, and `result`
function E2b:run_code(sandbox, opts)
  if not self.supports.kernel then return nil end
  if sandbox.has_kernel == nil then sandbox.has_kernel = kernel.is_there(self, sandbox) end
  sandbox.kernel_lacks = sandbox.kernel_lacks or {}
  if not sandbox.has_kernel or sandbox.kernel_lacks[opts.language] then return nil end
  local run = self:guard(sandbox, kernel.run, {
    language = opts.language, code = opts.code, timeout_s = opts.timeout_s, on_line = opts.on_line, envs = sandbox.envs,
    stdout = outcome.window(self.output.stdout), stderr = outcome.window(self.output.stderr),
  })
  if not run then sandbox.kernel_lacks[opts.language] = true end
  return run
end

--- Starts a process that goes on by itself.
---@param sandbox demilune.Sandbox
---@param opts {argv: string[], cwd: string, tag?: string}
---@return integer pid
function E2b:start_detached(sandbox, opts)
  if not self.is_engine then opts.mark = opts.tag end
  return self:guard(sandbox, envd.start_detached, opts)
end

--- See envd.signal. Where the service signals the one process alone, a KILL reaches all that it started.
---@param sandbox demilune.Sandbox
---@param tag string
---@param signal "SIGNAL_SIGTERM"|"SIGNAL_SIGKILL"
---@return boolean
function E2b:signal(sandbox, tag, signal)
  local was_there = self:guard(sandbox, envd.signal, tag, signal)
  if not self.is_engine and signal == "SIGNAL_SIGKILL" then sweep.run(self, sandbox, tag, "KILL") end
  return was_there
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
