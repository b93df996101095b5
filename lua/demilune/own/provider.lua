--- own/provider.lua - a provider as scope and tools know it, made of an operator's driver.
--
-- A driver says little: how a sandbox is made, ended, and a program run in it. The rest has an answer here: what it does not
-- declare is `unsupported` before it is called, and where it keeps no lifetimes this server ends its sandboxes itself.
local collector = require "demilune.collector"
local core = require "demilune.core"
local errors = require "demilune.errors"
local outcome = require "demilune.outcome"
local text = require "demilune.text"

local provider = {}

local OPTIONAL = { region = true, cpu = true, memory = true }
local ID_PATTERN, ID_BYTES = "^%w[%w_.-]*$", 128
--- execve takes 128 KiB an argument.
local COMMAND_BYTES = 96 * 1024
local SLICE_BYTES = 256 * 1024
local HELP_TIMEOUT_S = 10
--- Sandboxes whose time was over so long ago are forgotten, where the driver keeps the time.
local FORGET_MS = 3600 * 1000
--- Of the fields of a sandbox these are a driver's to say.
local INFO = {
  status = "string", region = "string", started_at = "string", end_at = "string", ends_in_ms = "number", age_ms = "number",
  cpu_count = "number", memory_mb = "number", disk_size_mb = "number", owner = "string", workdir = "string", network = "string",
  url = "string", template = "string",
}

---@class demilune.own.Provider
---@field id string
---@field config table
---@field workdir string
---@field infos table<string, table>  of the sandboxes that this server made
local Provider = {}
Provider.__index = Provider

--- Makes a provider of a driver.
---@param entry table   of the configuration
---@param given table   what the driver's file returned
---@param state table   what its functions get first
---@param path string   of the file, for messages
---@return demilune.own.Provider
function provider.new(entry, given, state, path)
  return setmetatable({
    id = entry.id, config = entry, workdir = given.workdir or "/", driver = given, state = state, path = path, infos = {},
    supports = given.supports or {}, is_reaped = false, pids = {},
  }, Provider)
end

local function wrong(self, what) error(("%s: %s"):format(self.path, what), 0) end

--- Calls a function of the driver, or refuses where it has none.
local function ask(self, name, ...)
  local fn = self.driver[name]
  if not fn then errors.raise "unsupported" end
  return fn(self.state, ...)
end

--- The names of templates.
---@return string[]
function Provider:template_names()
  return self.driver.templates or {}
end

--- What network sandboxes have, as far as the driver says.
---@return string
function Provider:network()
  return self.driver.network or "provider"
end

--- Whether sandboxes may have a network.
---@return boolean
function Provider:has_network()
  return self:network() ~= "none"
end

--- Whether an id may be one of this provider's.
---@param id string
---@return boolean
function Provider:is_id(id)
  return #id <= ID_BYTES and id:find(self.driver.id_pattern or ID_PATTERN) ~= nil
end

--- What a driver said of a sandbox: checked, and nothing but the known fields.
local function info_of(self, given)
  if type(given) ~= "table" or type(given.id) ~= "string" or not self:is_id(given.id) then
    wrong(self, "a sandbox must be a table with an id that fits id_pattern")
  end
  local info = { id = given.id, status = "running" }
  for key, kind in pairs(INFO) do
    local value = given[key]
    if value ~= nil and type(value) ~= kind then wrong(self, ("%s of a sandbox must be a %s"):format(key, kind)) end
    if value ~= nil then info[key] = value end
  end
  return info
end

--- Fills in what this server knows of a sandbox that it made.
local function with_known(self, info)
  local known = self.infos[info.id]
  if not known then return info end
  local now = core.task.now_ms()
  info.owner, info.template, info.envs = info.owner or known.owner, info.template or known.template, known.envs
  info.started_at, info.age_ms = info.started_at or known.started_at, info.age_ms or now - known.made_ms
  if known.ends_ms and not info.ends_in_ms then
    info.ends_in_ms = math.max(0, known.ends_ms - now)
    info.end_at = info.end_at or core.task.iso(core.task.epoch_ms() + info.ends_in_ms)
  end
  return info
end

local function check_creation(self, opts)
  for name in pairs(OPTIONAL) do
    if opts[name] ~= nil and not self.supports[name] then errors.raise("unsupported", { field = name }) end
  end
  local names = self:template_names()
  if opts.template and #names == 0 then errors.raise("unsupported", { field = "template" }) end
  for _, name in ipairs(names) do
    if name == opts.template then return end
  end
  if opts.template then
    errors.raise("not_found", { field = "template", allowed = names, message = "There is no such template." })
  end
end

--- Ends a sandbox at its time; one task a sandbox, which ends with it.
local function keep_time(self, id)
  local known = self.infos[id]
  known.timer = core.task.spawn(function()
    while self.infos[id] == known and core.task.now_ms() < known.ends_ms do
      core.task.sleep(math.max(1, known.ends_ms - core.task.now_ms()))
    end
    if self.infos[id] ~= known then return end
    self.infos[id] = nil
    local ok, err = pcall(ask, self, "kill", id)
    if not ok then core.log.error(("%s: a sandbox could not be ended at its time: %s"):format(self.id, tostring(err))) end
  end)
end

--- Creates a sandbox.
---@async
---@param opts table  see providers/init.lua
---@return table info
function Provider:create(opts)
  check_creation(self, opts)
  local keeps_time = not self.driver.set_timeout
  if opts.keep and keeps_time then
    errors.raise("unsupported", { message = "The sandboxes of this provider end with the server that made them." })
  end
  local template = opts.template or self:template_names()[1]
  local info = info_of(self, ask(self, "create", {
    template = template, timeout_s = opts.timeout_s, envs = opts.envs or {}, region = opts.region, cpu = opts.cpu,
    memory = opts.memory, principal = opts.principal, stamp = opts.stamp,
  }))
  local now = core.task.now_ms()
  for id, known in pairs(self.infos) do
    if not known.timer and known.ends_ms + FORGET_MS < now then self.infos[id] = nil end
  end
  self.infos[info.id] = {
    id = info.id, owner = opts.principal, template = template, envs = opts.envs or {}, made_ms = now,
    started_at = core.task.iso(core.task.epoch_ms()), ends_ms = now + opts.timeout_s * 1000,
  }
  if keeps_time then keep_time(self, info.id) end
  return with_known(self, info)
end

--- Without a field, so that call.lua says whether it is gone or never was.
local function raise_unknown() errors.raise "not_found" end

--- What is known of a sandbox.
---@async
---@param id string
---@return table info
function Provider:get(id)
  if self.driver.get then return with_known(self, info_of(self, ask(self, "get", id) or raise_unknown())) end
  local known = self.infos[id]
  if not known then raise_unknown() end
  return with_known(self, { id = id, status = "running" })
end

--- Lists sandboxes, newest first; those of this server alone where the driver has no list.
---@async
---@param opts {status?: string, limit: integer, offset: integer, owner?: string}
---@return table[] infos
function Provider:list(opts)
  local all = {}
  if self.driver.list then
    for _, one in ipairs(ask(self, "list")) do all[#all + 1] = with_known(self, info_of(self, one)) end
  else
    for id in pairs(self.infos) do all[#all + 1] = with_known(self, { id = id, status = "running" }) end
  end
  table.sort(all, function(a, b)
    local first, second = a.started_at or "", b.started_at or ""
    if first ~= second then return first > second end
    return a.id < b.id
  end)
  local kept = {}
  for _, info in ipairs(all) do
    if (not opts.status or info.status == opts.status) and (not opts.owner or info.owner == opts.owner) then
      kept[#kept + 1] = info
    end
  end
  return table.move(kept, opts.offset + 1, math.min(opts.offset + opts.limit, #kept), 1, {})
end

--- Ends a sandbox. Returns whether it was there.
---@async
---@param id string
---@return boolean
function Provider:kill(id)
  if not self.driver.get and not self.driver.list and not self.infos[id] then return false end
  local existed = ask(self, "kill", id) ~= false
  local known = self.infos[id]
  self.infos[id], self.pids[id] = nil, nil
  if known and known.timer then known.timer:cancel() end
  return existed
end

--- Sets the lifetime from now.
---@async
---@param id string
---@param seconds integer
function Provider:set_timeout(id, seconds)
  local known = self.infos[id]
  local ends_ms = core.task.now_ms() + seconds * 1000
  if self.driver.set_timeout then ask(self, "set_timeout", id, seconds) elseif not known then raise_unknown() end
  if not known then return end
  known.ends_ms = ends_ms
  if known.timer then
    known.timer:cancel()
    keep_time(self, id)
  end
end

--- A sandbox that this server alone knows of, and does not, is none.
local function check_known(self, id)
  if not self.driver.get and not self.infos[id] then errors.raise "sandbox_gone" end
end

--- The command with the sandbox's variables set.
---@param sandbox demilune.Sandbox
---@param command string
---@return string
function Provider:with_envs(sandbox, command) -- luacheck: ignore 212/self
  local words = {}
  for name, value in pairs(sandbox.envs or {}) do words[#words + 1] = name .. "=" .. text.quote(value) end
  if #words == 0 then return command end
  table.sort(words)
  return "export " .. table.concat(words, " ") .. "\n" .. command
end

--- bash where there is one.
local SHELL = 'if [ -x /bin/bash ]; then exec /bin/bash -c "$1"; fi; exec /bin/sh -c "$1"'

local function argv_of(self, sandbox, opts)
  if opts.argv then return opts.argv end
  local command = self:with_envs(sandbox, opts.command)
  if #command > COMMAND_BYTES then
    errors.raise("too_large", { field = "command", message = "command has more than 96 KiB; write it to a file and run that." })
  end
  return { "/bin/sh", "-c", SHELL, "sh", command }
end

--- Runs a command or a program and waits for it.
---@async
---@param sandbox demilune.Sandbox
---@param opts table  see providers/init.lua
---@return table run
function Provider:run(sandbox, opts)
  check_known(self, sandbox.id)
  local out = collector.new(opts.window or outcome.window(self.output.stdout), opts.on_line)
  local err = collector.new(opts.window or outcome.window(self.output.stderr), opts.on_line)
  local started_ms = core.task.now_ms()
  local ended = ask(self, "run", sandbox.id, {
    argv = argv_of(self, sandbox, opts), cwd = opts.cwd, timeout_s = opts.timeout_s, envs = sandbox.envs or {},
    stdout = function(bytes) out:feed(bytes) end, stderr = function(bytes) err:feed(bytes) end,
  })
  if type(ended) ~= "table" or not (ended.exit_code == nil or math.type(ended.exit_code) == "integer") then
    wrong(self, "run must return { exit_code = …, timed_out = … }")
  end
  if type(ended.stdout) == "string" then out:feed(ended.stdout) end
  if type(ended.stderr) == "string" then err:feed(ended.stderr) end
  return {
    stdout = out:finish(), stderr = err:finish(), exit_code = ended.exit_code, timed_out = ended.timed_out == true,
    duration_ms = math.floor(core.task.now_ms() - started_ms), timeout_s = opts.timeout_s,
  }
end

--- Runs a script of ours and gives what it prints.
local function script(self, sandbox, cwd, ...)
  local run = self:run(sandbox, { argv = { "/bin/sh", "-c", ... }, cwd = cwd, timeout_s = HELP_TIMEOUT_S })
  return run.exit_code, run.stdout.head
end

--- Starts a process that goes on by itself, in a session of its own.
---@async
---@param sandbox demilune.Sandbox
---@param opts {argv: string[], cwd: string, tag?: string}
---@return integer pid
function Provider:start_detached(sandbox, opts)
  local start = 'command -v setsid >/dev/null || exit 1; setsid "$@" </dev/null >/dev/null 2>&1 & echo $!'
  local code, said = script(self, sandbox, opts.cwd, start, "sh", table.unpack(opts.argv))
  local pid = code == 0 and math.tointeger(tonumber(said:match "^(%d+)\n$"))
  if not pid then errors.raise "unsupported" end
  if opts.tag then
    self.pids[sandbox.id] = self.pids[sandbox.id] or {}
    self.pids[sandbox.id][opts.tag] = pid
  end
  return pid
end

--- Signals the group of a process that was started with that tag. False: no such process runs.
---@async
---@param sandbox demilune.Sandbox
---@param tag string
---@param signal "SIGNAL_SIGTERM"|"SIGNAL_SIGKILL"
---@return boolean
function Provider:signal(sandbox, tag, signal)
  local pid = (self.pids[sandbox.id] or {})[tag]
  if not pid then return false end
  local name = signal == "SIGNAL_SIGKILL" and "KILL" or "TERM"
  return script(self, sandbox, "/", ('kill -s %s -- "-$1"'):format(name), "sh", tostring(pid)) == 0
end

--- Reads a range of a file.
---@async
---@param sandbox demilune.Sandbox
---@param path string
---@param offset integer
---@param length integer
---@return string bytes
---@return integer size
function Provider:read(sandbox, path, offset, length)
  check_known(self, sandbox.id)
  local parts, count = {}, 0
  local bytes, size
  -- A driver may give less at a time than was asked for.
  repeat
    bytes, size = ask(self, "read", sandbox.id, path, offset + count, length - count)
    if type(bytes) ~= "string" or #bytes > length - count or math.type(size) ~= "integer" then
      wrong(self, "read must return at most so many bytes, and the file's size")
    end
    parts[#parts + 1], count = bytes, count + #bytes
  until bytes == "" or count >= length or offset + count >= size
  return table.concat(parts), size
end

--- Opens a file from its start.
---@async
---@param sandbox demilune.Sandbox
---@param path string
---@return table reader
function Provider:open_read(sandbox, path)
  local first, size = self:read(sandbox, path, 0, SLICE_BYTES)
  local offset, source = 0, self
  local reader = { size = size }
  function reader.read()
    local bytes = first or (offset < size and source:read(sandbox, path, offset, SLICE_BYTES)) or ""
    first, offset = nil, offset + #bytes
    return bytes ~= "" and bytes or nil
  end
  function reader.close() offset = size end
  return reader
end

--- Writes a file as a whole, or appends at its size.
---@async
---@param sandbox demilune.Sandbox
---@param path string
---@param bytes string
---@param append_at? integer
---@return integer size
function Provider:write(sandbox, path, bytes, append_at)
  check_known(self, sandbox.id)
  local size = ask(self, "write", sandbox.id, path, bytes, append_at)
  if math.type(size) ~= "integer" then wrong(self, "write must return the file's size") end
  return size
end

--- Lists a directory.
---@async
---@param sandbox demilune.Sandbox
---@param path string
---@param limit integer
---@param depth integer
---@return table[] entries
---@return integer total
function Provider:list_dir(sandbox, path, limit, depth)
  check_known(self, sandbox.id)
  local entries, total = ask(self, "list_dir", sandbox.id, path, limit, depth)
  if type(entries) ~= "table" then wrong(self, "list_dir must return a list of { name, path, type, size }") end
  for _, entry in ipairs(entries) do
    if type(entry) ~= "table" or type(entry.name) ~= "string" or type(entry.path) ~= "string" or type(entry.type) ~= "string" then
      wrong(self, "list_dir must return a list of { name, path, type, size }")
    end
  end
  return table.move(entries, 1, math.min(#entries, limit), 1, {}), math.type(total) == "integer" and total or #entries
end

--- A scope ends: nothing is held for it here.
function Provider:release_scope() end

return provider
