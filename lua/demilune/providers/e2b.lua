--- providers/e2b.lua - the driver for E2B's protocol: REST control plane, envd data plane.
--
-- `local` is this driver on the engine's unix socket. Clouds (keys, hosts, presets) are not served yet; their place is
-- `address`, which is all that knows where requests go.
local core = require "demilune.core"
local connect = require "demilune.connect"
local envd = require "demilune.envd"
local errors = require "demilune.errors"
local outcome = require "demilune.outcome"
local scratch = require "demilune.scratch"
local text = require "demilune.text"

local e2b = {}

local CONTROL_TIMEOUT_MS = 30000
local CONTROL_MAX_BYTES = 4 * 1024 * 1024
local PAGE = 100
local PAGES_MAX = 1000
--- Longer commands go through a script file: execve takes 128 KiB an argument.
local INLINE_COMMAND_BYTES = 96 * 1024

---@class demilune.E2b
local E2b = {}
E2b.__index = E2b
e2b.class = E2b

--- Statuses that a listing of the service can ask for.
local STATES = { running = true, paused = true }

--- Makes a provider. `address` = {url, unix_socket?}.
---@param config table
---@param address table
---@return demilune.E2b
function e2b.new(config, address)
  return setmetatable({ id = config.id, config = config, address = address, workdir = "/home/user" }, E2b)
end

-- ---- requests ----

local function send(self, opts)
  opts.url = self.address.url .. opts.path
  opts.unix_socket = self.address.unix_socket
  opts.path = nil
  local res, err = core.http.request(opts)
  if not res then error(err, 0) end
  return res
end

--- A streamed answer that has its place until it is closed; of one that is dropped, the collector gives it back.
local Stream = {}
Stream.__index = Stream

function Stream:read(timeout_ms)
  return self.res:read(timeout_ms)
end

function Stream:close()
  self.res:close()
  self.place:leave()
end

--- Gives the place back when a request is over, failed, or ends with its task.
local Sending = {
  __close = function(sending)
    if sending.place then sending.place:leave() end
  end,
}

local function take_place(places)
  return places:enter() or errors.raise("quota_exceeded", {
    message = "This server has too many requests at work in sandboxes; wait for some of them to end.",
  })
end

--- Sends, in a place of its own; a stream takes the place along.
local function send_in_place(self, opts)
  local place = take_place(self.places)
  local guard <close> = setmetatable({ place = place }, Sending)
  local res = send(self, opts)
  if not opts.stream then return res end
  guard.place = nil
  return setmetatable({ res = res, status = res.status, headers = res.headers, place = place }, Stream)
end

--- A data-plane request, in its place among all of this server. What fails on the way may be the end of the sandbox: then
--- that is what is raised.
---@param ref table
---@param opts table
---@return table res
function E2b:request(ref, opts)
  opts.headers["E2b-Sandbox-Id"] = ref.id
  opts.headers["E2b-Sandbox-Port"] = "49983"
  local ok, res = pcall(send_in_place, self, opts)
  if ok then return res end
  if errors.is(res) and res.category == "connection_failed" then self:raise_if_gone(ref.id) end
  error(res, 0)
end

--- Raises `sandbox_gone` where the control plane does not know the sandbox.
---@param id string
function E2b:raise_if_gone(id)
  local ok, err = pcall(self.get, self, id)
  if ok then return end
  if not errors.is(err) then error(err, 0) end
  if err.category == "not_found" or err.category == "sandbox_gone" then errors.raise "sandbox_gone" end
end

local function refused(body, status, is_create)
  local code = body.error_code
  if code == "local_isolation_unavailable" then
    return errors.new(code)
  elseif code == "unsupported" then
    local field = ({ cpu = "cpu", memory = "memory" })[body.field]
    return errors.new("unsupported", { field = field, message = "This machine cannot hold a sandbox to that limit." })
  elseif code == "template_not_found" or (is_create and status == 404) then
    return errors.new("not_found", { field = "template", message = "There is no such template." })
  end
end

--- A control-plane request: the decoded answer, its headers. Raises for every status but those in `accept`.
local function control(self, method, path, body, accept, is_create)
  local res = send(self, {
    method = method, path = path, headers = body and { ["Content-Type"] = "application/json" } or {},
    body = body and core.json.encode(body), timeout_ms = CONTROL_TIMEOUT_MS, max_body_bytes = CONTROL_MAX_BYTES,
  })
  if not accept[res.status] then
    local answer = connect.object(res.body) or {}
    local err = refused(answer, res.status, is_create)
    if err then error(err, 0) end
    local retry_after = res.status == 429 and math.tointeger(tonumber(res.headers["retry-after"])) or nil
    local category = retry_after and "rate_limited" or core.status.from_http(res.status, is_create)
    if category == "ok" then errors.raise "invalid_response" end
    errors.raise(category, { status = res.status, retry_after = retry_after })
  end
  if res.status == 204 then return nil, res.headers end
  local value, fault = core.json.decode(res.body)
  if fault or type(value) ~= "table" then errors.raise "invalid_response" end
  return value, res.headers
end

-- ---- control plane ----

--- Whether a string may be the id of a sandbox here.
---@param id string
---@return boolean
function E2b:is_id(id) -- luacheck: ignore 212/self
  return #id <= 128 and id:find "^[%w][%w_.-]*$" ~= nil
end

local function text_or_nil(value, most)
  return type(value) == "string" and #value <= most and core.text.is_utf8(value) and value or nil
end

--- A time of the service in ISO 8601 UTC, or nil.
local function time_of(value)
  return type(value) == "string" and #value <= 40 and value:match "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d[%d.]*Z$" or nil
end

--- Milliseconds since the epoch of such a time.
local function epoch_ms(iso)
  local year, month, day, hour, minute, second, rest = iso:match "^(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)([%d.]*)Z$"
  -- days from civil: http://howardhinnant.github.io/date_algorithms.html
  local y, m, d = math.tointeger(year), math.tointeger(month), math.tointeger(day)
  if m <= 2 then y = y - 1 end
  local era = y // 400
  local yoe = y - era * 400
  local doy = (153 * (m + (m > 2 and -3 or 9)) + 2) // 5 + d - 1
  local days = era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719468
  local ms = rest ~= "" and math.floor(tonumber("0" .. rest) * 1000) or 0
  return ((days * 24 + tonumber(hour)) * 60 + tonumber(minute)) * 60000 + tonumber(second) * 1000 + ms
end

--- The variables of a sandbox as our engine tells them, nil where the service does not: those that a shell can export.
local function envs_of(entry)
  local ours = connect.is_object(entry.demilune) and entry.demilune.env
  if not connect.is_object(ours) then return nil end
  local envs = {}
  for name, value in pairs(ours) do
    if name:find "^[%a_][%w_]*$" and type(value) == "string" and not value:find("\0", 1, true) then envs[name] = value end
  end
  return envs
end

--- One sandbox of an answer as driver info. Raises `invalid_response`.
---@param entry any
---@return table info
function E2b:info_of(entry)
  if not connect.is_object(entry) or type(entry.sandboxID) ~= "string" or not self:is_id(entry.sandboxID) then
    errors.raise "invalid_response"
  end
  local metadata = connect.is_object(entry.metadata) and entry.metadata or {}
  local started, ends = time_of(entry.startedAt), time_of(entry.endAt)
  local now = core.task.epoch_ms()
  return {
    id = entry.sandboxID, template = text_or_nil(entry.alias, 256) or text_or_nil(entry.templateID, 256),
    status = STATES[entry.state] and entry.state or "running", region = nil, started_at = started, end_at = ends,
    ends_in_ms = ends and epoch_ms(ends) - now or nil, age_ms = started and now - epoch_ms(started) or nil,
    cpu_count = type(entry.cpuCount) == "number" and entry.cpuCount or nil, memory_mb = math.tointeger(entry.memoryMB),
    disk_size_mb = math.tointeger(entry.diskSizeMB), owner = text_or_nil(metadata.demilune_principal, 256),
    envs = envs_of(entry),
  }
end

--- The metadata that every creation carries: whose it is, and a stamp that finds it again.
---@param opts table
---@return table
function E2b:stamp(opts) -- luacheck: ignore 212/self
  return {
    demilune_principal = opts.principal, demilune_scope = opts.scope.id, demilune_stamp = core.crypto.id(24),
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
  local answer = control(self, "POST", "/sandboxes", body, { [201] = true }, true)
  local ok, info = pcall(finish, answer)
  if ok then return info end
  if type(answer.sandboxID) == "string" and self:is_id(answer.sandboxID) then pcall(self.kill, self, answer.sandboxID) end
  error(info, 0)
end

--- The metadata of one sandbox.
---@param id string
---@return table info
function E2b:get(id)
  return self:info_of((control(self, "GET", "/sandboxes/" .. id, nil, { [200] = true })))
end

--- Ends a sandbox. Returns whether it was there.
---@param id string
---@return boolean
function E2b:kill(id)
  local ok, err = pcall(control, self, "DELETE", "/sandboxes/" .. id, nil, { [204] = true })
  if ok then return true end
  if errors.is(err) and (err.category == "not_found" or err.category == "sandbox_gone") then return false end
  error(err, 0)
end

--- Sets the lifetime from now.
---@param id string
---@param seconds integer
function E2b:set_timeout(id, seconds)
  control(self, "POST", "/sandboxes/" .. id .. "/timeout", { timeout = seconds }, { [204] = true })
end

--- The query of a listing. A metadata filter is decoded three times by the service, so it is encoded three times.
local function list_query(opts, cursor)
  local query = "/v2/sandboxes?limit=" .. PAGE .. "&state=" .. (opts.status or "running%2Cpaused")
  if opts.owner then query = query .. "&metadata=" .. text.escape("demilune_principal=" .. text.escape(text.escape(opts.owner))) end
  if cursor then query = query .. "&nextToken=" .. text.escape(cursor) end
  return query
end

--- Lists sandboxes, newest first: pages are walked to `offset`.
---@param opts {status?: string, limit: integer, offset: integer, region?: string, owner?: string}
---@return table[] infos
function E2b:list(opts)
  if opts.region then errors.raise("unsupported", { field = "region" }) end
  if opts.status and not STATES[opts.status] then return {} end
  local infos, seen, cursor = {}, 0, nil
  for _ = 1, PAGES_MAX do
    local entries, headers = control(self, "GET", list_query(opts, cursor), nil, { [200] = true })
    for _, entry in ipairs(entries) do
      local info = self:info_of(entry)
      if not opts.owner or info.owner == opts.owner then
        seen = seen + 1
        if seen > opts.offset then infos[#infos + 1] = info end
        if #infos >= opts.limit then return infos end
      end
    end
    cursor = headers["x-next-token"]
    if not cursor or cursor == "" then return infos end
  end
  return infos
end

-- ---- data plane ----

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
  return self:guard(sandbox, envd.run, {
    argv = argv, cwd = opts.cwd, timeout_s = opts.timeout_s, on_line = opts.on_line,
    stdout = window or outcome.window(self.output.stdout), stderr = window or outcome.window(self.output.stderr),
  })
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

--- Starts a process that goes on by itself.
---@param sandbox demilune.Sandbox
---@param opts {argv: string[], cwd: string, tag?: string}
---@return integer pid
function E2b:start_detached(sandbox, opts)
  return self:guard(sandbox, envd.start_detached, opts)
end

--- See envd.signal.
---@param sandbox demilune.Sandbox
---@param tag string
---@param signal "SIGNAL_SIGTERM"|"SIGNAL_SIGKILL"
---@return boolean
function E2b:signal(sandbox, tag, signal)
  return self:guard(sandbox, envd.signal, tag, signal)
end

--- See envd.open_read.
---@param sandbox demilune.Sandbox
---@param path string
function E2b:open_read(sandbox, path)
  return self:guard(sandbox, envd.open_read, path)
end

--- See envd.read.
---@param sandbox demilune.Sandbox
---@param path string
---@param offset integer
---@param length integer
function E2b:read(sandbox, path, offset, length)
  return self:guard(sandbox, envd.read, path, offset, length)
end

--- See envd.write.
---@param sandbox demilune.Sandbox
---@param path string
---@param bytes string
---@param append_at? integer
function E2b:write(sandbox, path, bytes, append_at)
  return self:guard(sandbox, envd.write, path, bytes, append_at)
end

--- See envd.list_dir.
---@param sandbox demilune.Sandbox
---@param path string
---@param limit integer
---@param depth integer
function E2b:list_dir(sandbox, path, limit, depth)
  return self:guard(sandbox, envd.list_dir, path, limit, depth)
end

--- Nothing of the cloud is held for a scope.
function E2b:release_scope() end

return e2b
