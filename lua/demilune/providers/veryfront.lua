--- providers/veryfront.lua - the driver for Veryfront: sandboxes over its REST API, and the account's two tools over MCP.
--
-- REST is what its own SDK uses and its pages show (paths below /sandbox-sessions, the data plane through the same host).
-- What that API is not known to do is refused as `unsupported`: templates, sizes, variables, a region, lifetimes that are
-- no whole hours. A lifetime that was not asked for is the platform's; heartbeats keep a sandbox from counting as idle.
local account = require "demilune.veryfront.account"
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local files = require "demilune.veryfront.files"
local provider_text = require "demilune.provider_text"
local remote_mcp = require "demilune.remote_mcp"
local run = require "demilune.veryfront.run"
local schema = require "demilune.schema"
local text = require "demilune.text"
local time = require "demilune.time"
local transport = require "demilune.transport"

local task = core.task
local veryfront = {}

local CONTROL_TIMEOUT_MS = 15000
local CONTROL_MAX_BYTES = 4 * 1024 * 1024
local ERROR_MAX_BYTES = 8 * 1024
--- How long a new sandbox may take until it runs, its creation included: less than clients wait. How often it is looked at.
local READY_MS = 55000
local CREATE_TIMEOUT_MS = 30000
local READY_POLL_MS = 2000
local PROBE_TIMEOUT_MS = 5000
local PROBE_POLL_MS = 1000
local PAGE = 100
local PAGES_MAX = 1000
--- For all pages of a listing together.
veryfront.LIST_MS = 45000
local CURSOR_BYTES = 1024
local HOUR_S = 3600
local DAY_HOURS = 24
--- Of requests at a time to one provider, where the configuration does not say.
local REQUESTS = 16
local WAIT_MS = 5000

---@class demilune.Veryfront
---@field id string
---@field config table
---@field workdir string
---@field api_url string
---@field mcp demilune.RemoteMcp
---@field is_reaped boolean  what the end of a scope did not end in time, another process ends
---@field supports table     nothing beyond the basics
local Veryfront = {}
Veryfront.__index = Veryfront

local function mcp_path(config)
  if config.mcp_path then return config.mcp_path end
  return config.project and "/projects/" .. text.escape(config.project) .. "/mcp" or "/mcp"
end

--- Makes the provider; nothing is sent.
---@param config table
---@return demilune.Veryfront
function veryfront.new(config)
  local api_url = config.api_url:gsub("/+$", "")
  local self = setmetatable({
    id = config.id, config = config, workdir = "/workspace", api_url = api_url, started = {}, started_count = 0,
    is_reaped = true, supports = {},
    transport = transport.new {
      name = config.id, max_requests = config.max_requests or REQUESTS, proxy = config.proxy, ca_file = config.ca_file,
      wait_ms = WAIT_MS,
    },
    credential = core.vault.bind(config.credential, {
      header = "Authorization", prefix = "Bearer ", origins = { api_url:match "^%a+://[^/]+" },
    }),
  }, Veryfront)
  self.mcp = remote_mcp.new {
    url = api_url .. mcp_path(config), family = "veryfront", send = function(opts) return self:send(opts) end,
  }
  return self
end

-- ---- for descriptions ----

--- The platform decides what a sandbox is made of.
---@return string[]
function Veryfront:template_names() return {} end -- luacheck: ignore 212/self

--- The platform's network.
---@return string
function Veryfront:network() return "provider" end -- luacheck: ignore 212/self

--- Sandboxes have a network.
---@return boolean
function Veryfront:has_network() return true end -- luacheck: ignore 212/self

--- Ids are UUIDs.
---@param id string
---@return boolean
function Veryfront:is_id(id) return schema.is_uuid(id) end -- luacheck: ignore 212/self

-- ---- requests ----

--- Whether what was raised is a failure, and not the end of the task or a fault of ours.
local function is_failure(err)
  return errors.is(err) and err ~= task.CANCELLED
end

--- Sends with the credential; raises errors, not statuses.
---@param opts table  of transport
---@return table res
function Veryfront:send(opts)
  opts.credentials = { self.credential }
  opts.credential_names = { self.config.credential }
  return self.transport:send(opts)
end

--- What an answer that is no success means; its words are dropped.
local function fault_of(status, headers, body, is_create)
  provider_text.tell(status, body)
  local said = connect.object(body) or {}
  local code
  for _, key in ipairs { "slug", "code", "error" } do
    if not code and core.status.from_code("veryfront", said[key]) then code = said[key] end
  end
  return errors.from_response {
    status = status, retry_after = transport.retry_after { headers = headers }, code = code, family = "veryfront",
    is_create = is_create,
  }
end

local function decode(res, is_blind)
  if is_blind then return nil end
  local value, fault = core.json.decode(res.body)
  if fault or type(value) ~= "table" then errors.raise "invalid_response" end
  return value
end

--- A control-plane request: the decoded answer. Raises for every status but 2xx.
local function control(self, method, path, body, opts)
  local res = self:send {
    method = method, url = self.api_url .. path, headers = { ["Content-Type"] = body and "application/json" or nil,
      Accept = "application/json" },
    body = body and core.json.encode(body), timeout_ms = opts.timeout_ms or CONTROL_TIMEOUT_MS,
    max_body_bytes = CONTROL_MAX_BYTES, is_safe = opts.is_safe, is_create = opts.is_create, is_fresh = opts.is_fresh,
    deadline_ms = opts.deadline_ms and math.min(opts.deadline_ms, task.now_ms() + CONTROL_TIMEOUT_MS),
  }
  if res.status < 200 or res.status > 299 then error(fault_of(res.status, res.headers, res.body, opts.is_create), 0) end
  return decode(res, opts.is_blind)
end

--- Path of a sandbox, whose id was checked.
local function path_of(id, rest)
  return "/sandbox-sessions/" .. id .. (rest or "")
end

local function take_place(self)
  return self.places:enter() or errors.raise("quota_exceeded", {
    message = "This server has too many requests at work in sandboxes; wait for some of them to end.",
  })
end

--- A data-plane request, in its place among all of this server: the response of whatever status.
---@param id string  of the sandbox
---@param opts table  path, and those of transport
---@return table res
function Veryfront:send_data(id, opts)
  local place <close> = take_place(self) -- luacheck: ignore 211
  opts.url = self.api_url .. path_of(id, opts.path)
  opts.path = nil
  opts.headers = opts.headers or { Accept = "application/json" }
  return self:send(opts)
end

--- A data-plane request with a JSON body: the decoded answer. Raises for every status but 2xx.
---@param id string
---@param method string
---@param path string
---@param body? table
---@param opts table  timeout_ms, max_body_bytes, is_safe?, is_blind? (the body does not matter)
---@return table? answer
function Veryfront:data(id, method, path, body, opts)
  local res = self:send_data(id, {
    method = method, path = path, body = body and core.json.encode(body), timeout_ms = opts.timeout_ms,
    max_body_bytes = opts.max_body_bytes, is_safe = opts.is_safe,
    headers = { ["Content-Type"] = body and "application/json" or nil, Accept = "application/json" },
  })
  if res.status < 200 or res.status > 299 then error(fault_of(res.status, res.headers, res.body), 0) end
  return decode(res, opts.is_blind)
end

--- A streamed answer with its place; both go at the end of a <close> variable.
local Stream = {}
Stream.__index = Stream

function Stream:read(timeout_ms) return self.res:read(timeout_ms) end

function Stream:close()
  self.res:close()
  self.place:leave()
end

Stream.__close = Stream.close

local function words_of(res, deadline_ms)
  local parts, size = {}, 0
  while size < ERROR_MAX_BYTES and task.now_ms() < deadline_ms do
    local chunk = res:read(math.max(1, deadline_ms - task.now_ms()))
    if not chunk then break end
    parts[#parts + 1], size = chunk, size + #chunk
  end
  return table.concat(parts)
end

--- Gives the place back where nobody came to hold it.
local Pending = { __close = function(pending) if pending.place then pending.place:leave() end end }

--- A data-plane request whose answer is read bit by bit. Raises for every status but 2xx.
---@param id string
---@param method string
---@param path string
---@param body table
---@param deadline_ms integer
---@return table stream  read, close; to be closed
function Veryfront:stream(id, method, path, body, deadline_ms)
  local pending <close> = setmetatable({ place = take_place(self) }, Pending)
  local res = self:send {
    method = method, url = self.api_url .. path_of(id, path), body = core.json.encode(body), stream = true,
    headers = { ["Content-Type"] = "application/json", Accept = "application/x-ndjson, application/json" },
    timeout_ms = math.max(1, deadline_ms - task.now_ms()), deadline_ms = deadline_ms,
  }
  local stream = setmetatable({ res = res, place = pending.place }, Stream)
  pending.place = nil
  if res.status >= 200 and res.status <= 299 then return stream end
  local said = words_of(res, math.min(deadline_ms, task.now_ms() + CONTROL_TIMEOUT_MS))
  stream:close()
  error(fault_of(res.status, res.headers, said), 0)
end

--- What may mean that the sandbox is not there any more.
local MAYBE_GONE = { [404] = true, [410] = true, [502] = true, [503] = true, [504] = true }
local ENDED = { stopped = true, stopping = true, error = true }

--- Runs `fn(self, ...)` on a sandbox; where it failed as with one that has ended, the end is looked for behind it.
---@param id string
---@param fn function
---@return any ...
function Veryfront:guard(id, fn, ...)
  local results = table.pack(pcall(fn, self, ...))
  if results[1] then return table.unpack(results, 2, results.n) end
  local err = results[2]
  if not is_failure(err) then error(err, 0) end
  if MAYBE_GONE[err.status] or err.category == "connection_failed" or err.category == "invalid_response" then
    local ok, info = pcall(self.get, self, id)
    if not ok and not is_failure(info) then error(info, 0) end
    local is_gone = ok and ENDED[info.status] or (not ok and (info.category == "not_found" or info.category == "sandbox_gone"))
    if is_gone then errors.raise("sandbox_gone", { status = err.status }) end
    -- It is there, so that was no word about the sandbox.
    if err.category == "not_found" or err.category == "sandbox_gone" then
      errors.raise("provider_rejected", { status = err.status })
    end
  end
  error(err, 0)
end

-- ---- control plane ----

local STATUSES = {
  pending = "creating", provisioning = "creating", running = "running", error = "error", deleting = "stopping",
}

--- One session of an answer as driver info; where `id` is given, it must be that one's. Raises `invalid_response`.
local function info_of(self, session, id)
  if not connect.is_object(session) or type(session.id) ~= "string" or not self:is_id(session.id) then
    errors.raise "invalid_response"
  end
  if id and session.id:lower() ~= id:lower() then errors.raise "invalid_response" end
  local status = STATUSES[session.status] or errors.raise "invalid_response"
  if type(session.stopped_at) == "string" then status = "stopped" end
  local started, ends = time.iso(session.created_at), time.iso(session.expires_at)
  local now = task.epoch_ms()
  return {
    id = session.id, status = status, started_at = started, end_at = ends,
    ends_in_ms = ends and time.epoch_ms(ends) - now or nil, age_ms = started and now - time.epoch_ms(started) or nil,
    workdir = self.workdir, network = "provider",
  }
end

--- The metadata of one sandbox.
---@param id string
---@param manner? {is_fresh?: boolean}
---@return table info
function Veryfront:get(id, manner)
  local opts = { is_safe = true, is_fresh = manner and manner.is_fresh }
  return info_of(self, control(self, "GET", path_of(id), nil, opts), id)
end

--- Ends a sandbox. Returns whether it was there.
---@param id string
---@return boolean
function Veryfront:kill(id)
  local ok, err = pcall(control, self, "DELETE", path_of(id), nil, { is_safe = true, is_blind = true })
  if ok then return true end
  if errors.is(err) and (err.category == "not_found" or err.category == "sandbox_gone") then return false end
  error(err, 0)
end

--- The API takes no stamp that a sandbox could be found by.
function Veryfront:kill_by_stamp() -- luacheck: ignore 212/self
  errors.raise "unsupported"
end

--- Tells the platform that a sandbox is in use. How long that keeps it is the platform's.
---@param id string
function Veryfront:renew(id)
  control(self, "POST", path_of(id, "/heartbeat"), nil, { is_safe = true, is_blind = true })
end

--- Lifetimes are changed by the service's own tool.
function Veryfront:set_timeout() -- luacheck: ignore 212/self
  errors.raise("unsupported", {
    field = "timeout", message = "A Veryfront sandbox has no lifetime in seconds from now.",
    suggestion = "Use veryfront__update_sandbox_lifetime.",
  })
end

--- A next page's cursor: as it is, or from a link.
local function cursor_of(page_info)
  local link = connect.is_object(page_info) and page_info.next
  if link == nil or link == false or link == core.json.null or link == "" then return nil end
  if type(link) ~= "string" or #link > CURSOR_BYTES then errors.raise "invalid_response" end
  local encoded = link:match "[?&]cursor=([^&#]*)"
  if encoded then
    return (encoded:gsub("+", " "):gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
  end
  if link:find "[/?]" then errors.raise "invalid_response" end
  return link
end

local function page(self, cursor, deadline_ms)
  local query = "/sandbox-sessions?limit=" .. PAGE .. (cursor and "&cursor=" .. text.escape(cursor) or "")
  local answer = control(self, "GET", query, nil, { is_safe = true, deadline_ms = deadline_ms })
  if not connect.is_object(answer) or not connect.is_array(answer.data) then errors.raise "invalid_response" end
  return answer.data, cursor_of(answer.page_info)
end

--- Statuses that a session can have.
local LISTED = { creating = true, running = true, stopping = true, stopped = true, error = true }

--- Lists sandboxes in the service's order: pages are walked to `offset`.
---@param opts {status?: string, limit: integer, offset: integer, region?: string, owner?: string}
---@return table[] infos
function Veryfront:list(opts)
  if opts.region then errors.raise("unsupported", { field = "region" }) end
  if opts.owner then errors.raise("unsupported", { field = "provider" }) end
  if opts.status and not LISTED[opts.status] then return {} end
  local infos, seen, cursor, deadline_ms = {}, 0, nil, task.now_ms() + veryfront.LIST_MS
  for _ = 1, PAGES_MAX do
    local sessions, next_cursor = page(self, cursor, deadline_ms)
    for _, session in ipairs(sessions) do
      local info = info_of(self, session)
      if not opts.status or info.status == opts.status then
        seen = seen + 1
        if seen > opts.offset then infos[#infos + 1] = info end
        if #infos >= opts.limit then return infos end
      end
    end
    if not next_cursor then return infos end
    if next_cursor == cursor then errors.raise "invalid_response" end
    cursor = next_cursor
  end
  errors.raise "invalid_response"
end

-- ---- creation ----

local UNSUPPORTED = {
  { "template", "This provider has no templates." }, { "region", "This provider has no choice of region." },
  { "cpu", "This provider has no choice of size." }, { "memory", "This provider has no choice of size." },
  { "envs", "This provider keeps no variables of a sandbox; set them in the command." },
}

--- The lifetime as the service takes it: whole hours, or the platform's policy where none was asked for.
local function lifetime_of(self, opts)
  local seconds = opts.timeout_s
  local is_given = opts.has_timeout
  if is_given == nil then is_given = seconds ~= self.config.lifetime end
  if not seconds or not is_given then return { ttl_mode = "default" } end
  if seconds % HOUR_S ~= 0 or seconds // HOUR_S > DAY_HOURS then
    errors.raise("unsupported", {
      field = "timeout", expected = "a multiple of 3600, up to 86400",
      message = "timeout must be whole hours at this provider: a multiple of 3600, up to 86400.",
    })
  end
  return { ttl_mode = "duration", ttl_hours = seconds // HOUR_S }
end

--- The body of a creation. Raises `unsupported`.
local function creation_of(self, opts)
  for _, row in ipairs(UNSUPPORTED) do
    local value = opts[row[1]]
    local is_given = value ~= nil and not (type(value) == "table" and next(value) == nil)
    if is_given then errors.raise("unsupported", { field = row[1], message = row[2] }) end
  end
  local body = lifetime_of(self, opts)
  local project = self.config.project
  if project and not schema.is_uuid(project) then
    errors.raise("unsupported", {
      field = "provider", message = "The provider's API takes a project by its UUID; the configuration has its slug.",
      suggestion = "Use veryfront__create_sandbox, which takes a slug.",
    })
  end
  body.project_id = project
  return body
end

--- Whether the data plane answers: a new sandbox may be `running` shortly before. What it answers but "not yet" is enough.
local function answers(self, id)
  local ok, res = pcall(self.send_data, self, id, {
    method = "GET", path = "/commands", timeout_ms = PROBE_TIMEOUT_MS, max_body_bytes = CONTROL_MAX_BYTES,
  })
  if not ok and not is_failure(res) then error(res, 0) end
  return ok and not MAYBE_GONE[res.status]
end

--- Failures of a look that the next look may not have.
local PASSING = { provider_timeout = true, connection_failed = true, unavailable = true, rate_limited = true }

local function look(self, id)
  local ok, info = pcall(self.get, self, id)
  if ok then return info end
  if not errors.is(info) or not PASSING[info.category] then error(info, 0) end
end

--- Waits until a new sandbox can be worked in. Raises `no_capacity` where it fails to start, `provider_timeout` where that
--- takes too long.
local function await_ready(self, info, deadline_ms)
  while info.status ~= "running" do
    if info.status ~= "creating" then errors.raise("no_capacity", { message = "The new sandbox failed to start." }) end
    if task.now_ms() + READY_POLL_MS > deadline_ms then errors.raise "provider_timeout" end
    task.sleep(READY_POLL_MS)
    info = look(self, info.id) or info
  end
  while not answers(self, info.id) do
    if task.now_ms() + PROBE_POLL_MS > deadline_ms then errors.raise "provider_timeout" end
    task.sleep(PROBE_POLL_MS)
  end
  return info
end

--- Creates a sandbox and waits until it runs. Where that fails, what was created is killed before the error is raised.
---@param opts table
---@return table info
function Veryfront:create(opts)
  local body, deadline_ms = creation_of(self, opts), task.now_ms() + READY_MS
  local answer = control(self, "POST", "/sandbox-sessions", body, { is_create = true, timeout_ms = CREATE_TIMEOUT_MS })
  local ok, info = pcall(function() return await_ready(self, info_of(self, answer), deadline_ms) end)
  if ok then return info end
  local id = connect.is_object(answer) and answer.id
  if type(id) == "string" and self:is_id(id) then pcall(self.kill, self, id) end
  error(info, 0)
end

-- ---- data plane, account ----

--- The platform sets a sandbox's variables; the driver knows of none.
---@param _ demilune.Sandbox
---@param command string
---@return string
function Veryfront:with_envs(_, command) return command end -- luacheck: ignore 212/self

Veryfront.run = run.run
Veryfront.start_detached = run.start_detached
Veryfront.signal = run.signal
Veryfront.open_read = files.open_read
Veryfront.read = files.read
Veryfront.write = files.write
Veryfront.list_dir = files.list_dir

--- veryfront__create_sandbox.
---@param args table
---@return table sandbox  of the published schema
function Veryfront:create_for_account(args) return account.create(self, args) end

--- veryfront__update_sandbox_lifetime.
---@param args table
---@return table sandbox
function Veryfront:update_lifetime(args) return account.update(self, args) end

--- Nothing of the service is held for a scope.
function Veryfront:release_scope() end

return veryfront
