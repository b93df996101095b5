--- rest.lua - the control plane: E2B's REST calls for sandboxes, and the engine's own under
--- /demilune.
local core = require "demilune.core"
local create = require "demilune.engine.create"
local faults = require "demilune.engine.faults"
local filter = require "demilune.engine.filter"
local input = require "demilune.engine.input"
local router = require "demilune.engine.router"

local rest = {}

rest.PROTOCOL = 1
--- What clients are told that the data plane is; newer ones then use every call that is served
--- here.
local ENVD_VERSION = "0.6.5"
local WORKDIR = "/home/user"
local BODY_MAX_BYTES = 2 * 1024 * 1024
local LIST_LIMIT = 100
local REFRESH_MAX_S = 3600

--- Defaults of the two versions of E2B's calls, in seconds.
local TIMEOUT_V1_S, TIMEOUT_V2_S = 15, 300

local function or_null(value)
  if value == nil then return core.json.null end
  return value
end

--- What create and connect answer.
local function show_created(sandbox)
  return {
    sandboxID = sandbox.id, templateID = sandbox.template, clientID = "local",
    envdVersion = ENVD_VERSION,
    envdAccessToken = core.json.null, trafficAccessToken = core.json.null, domain = core.json.null,
    demilune = {
      startedAt = core.task.iso(sandbox.started_at_ms), endAt = core.task.iso(sandbox.end_at_ms),
      cpuCount = or_null(sandbox.cpu), memoryMB = or_null(sandbox.memory_mb),
      diskSizeMB = sandbox.disk_mb,
      workdir = WORKDIR, network = "none",
    },
  }
end

local function show_listed(sandbox)
  return {
    sandboxID = sandbox.id, templateID = sandbox.template, clientID = "local",
    envdVersion = ENVD_VERSION,
    startedAt = core.task.iso(sandbox.started_at_ms), endAt = core.task.iso(sandbox.end_at_ms),
    cpuCount = or_null(sandbox.cpu), memoryMB = or_null(sandbox.memory_mb),
    diskSizeMB = sandbox.disk_mb,
    metadata = sandbox.metadata, state = "running",
  }
end

local function show_detail(sandbox)
  local detail = show_listed(sandbox)
  detail.envdAccessToken, detail.domain = core.json.null, core.json.null
  detail.allowInternetAccess = false
  -- Whoever may ask this socket may run commands in the sandbox, which see them.
  detail.demilune = { workdir = WORKDIR, network = "none", env = sandbox.env }
  return detail
end

---@class demilune.engine.Rest
---@field sandboxes demilune.engine.Sandboxes
---@field leases demilune.engine.Leases
---@field limits fun(): table?   which limits hold here
---@field stop fun()

local function find(self, id)
  return self.sandboxes:find(id) or faults.raise "sandbox_not_found"
end

--- Refuses limits that must hold and do not.
local function check_musts(self, musts)
  local limits = self.limits()
  for _, field in ipairs(musts) do
    if limits and not limits[field] then
      local message = "That limit cannot be enforced on this machine."
      faults.raise("unsupported", { field = field, message = message })
    end
  end
end

local function create_sandbox(self, req, default_timeout_s)
  local spec, musts = create.read(input.json(req, BODY_MAX_BYTES), default_timeout_s)
  check_musts(self, musts)
  if spec.lease and not self.leases:is_held(spec.lease) then faults.raise "lease_gone" end
  local sandbox = self.sandboxes:create(spec)
  -- Whoever is not there any more cannot know the id.
  local ok, is_sent = pcall(router.json, req, 201, show_created(sandbox))
  if not ok or not is_sent then self.sandboxes:kill(sandbox) end
  if not ok then error(is_sent, 0) end
end

--- One page of those that match, newest first, and the token of the next page if there is one.
local function cut_page(matching, limit, before)
  local page, last = core.json.array {}, nil
  for _, sandbox in ipairs(matching) do
    if not before or sandbox.number < before then
      if #page == limit then return page, tostring(last.number) end
      page[#page + 1], last = show_listed(sandbox), sandbox
    end
  end
  return page, nil
end

local function list_sandboxes(self, req)
  local limit = input.digits(req.query, "limit", 1, LIST_LIMIT) or LIST_LIMIT
  local before = input.digits(req.query, "nextToken", 1, math.maxinteger)
  local matches = filter.read(req.query)
  local matching = {}
  for _, sandbox in ipairs(self.sandboxes:list()) do
    if matches(sandbox) then matching[#matching + 1] = sandbox end
  end
  local page, next_token = cut_page(matching, limit, before)
  local headers = { ["x-total-running"] = tostring(#matching), ["x-next-token"] = next_token }
  router.json(req, 200, page, headers)
end

local function kill_sandbox(self, req, id)
  local sandbox = find(self, id)
  self.sandboxes:kill(sandbox)
  self.sandboxes:wait_gone(sandbox)
  router.empty(req, 204)
end

local function set_timeout(self, req, id)
  local sandbox = find(self, id)
  local body = input.json(req, BODY_MAX_BYTES)
  local timeout_s = input.number(body, "timeout", 1, create.TIMEOUT_MAX_S, true)
  if not timeout_s then faults.bad("timeout", "It is missing.") end
  self.sandboxes:set_timeout(sandbox, timeout_s)
  router.empty(req, 204)
end

local function refresh(self, req, id)
  local sandbox = find(self, id)
  local body = input.json(req, BODY_MAX_BYTES)
  local duration_s = input.number(body, "duration", 0, REFRESH_MAX_S, true)
  self.sandboxes:set_timeout(sandbox, duration_s or TIMEOUT_V1_S, true)
  router.empty(req, 204)
end

local function connect_sandbox(self, req, id, default_timeout_s)
  local sandbox = find(self, id)
  local body = input.json(req, BODY_MAX_BYTES)
  local timeout_s = input.number(body, "timeout", 1, create.TIMEOUT_MAX_S, true)
    or default_timeout_s
  if not timeout_s then faults.bad("timeout", "It is missing.") end
  self.sandboxes:set_timeout(sandbox, timeout_s, true)
  router.json(req, 200, show_created(sandbox))
end

local function show_engine(self, req)
  router.json(req, 200, {
    version = core.sys.version, protocol = rest.PROTOCOL, sandboxes = self.sandboxes.count,
    pid = core.sys.pid(),
  })
end

local function stop(self, req)
  req:respond(204, { Connection = "close" }, "")
  self.stop()
end

--- Calls of E2B that are known and not had.
local UNSUPPORTED = {
  { "POST", "pause" }, { "POST", "resume" }, { "POST", "snapshots" }, { "POST", "fork" }, { "PUT",
  "network" },
  { "GET", "metrics" }, { "GET", "logs" },
}

local function add_unsupported(self, routes)
  for _, call in ipairs(UNSUPPORTED) do
    routes[#routes + 1] = { call[1], "/sandboxes/{id}/" .. call[2], function(_, id)
      find(self, id)
      faults.raise "unsupported"
    end }
  end
end

--- The routes of the control plane.
---@param self demilune.engine.Rest
---@return demilune.engine.Route[]
function rest.routes(self)
  local routes = {
    { "GET", "/demilune", function(req) show_engine(self, req) end },
    { "POST", "/demilune/stop", function(req) stop(self, req) end },
    { "GET", "/demilune/lease", function(req) self.leases:serve(req) end },
    { "POST", "/sandboxes", function(req) create_sandbox(self, req, TIMEOUT_V1_S) end },
    { "POST", "/v2/sandboxes", function(req) create_sandbox(self, req, TIMEOUT_V2_S) end },
    { "GET", "/v2/sandboxes", function(req) list_sandboxes(self, req) end },
    { "GET", "/sandboxes/{id}", function(req, id) router.json(req, 200, show_detail(find(self,
      id))) end },
    { "DELETE", "/sandboxes/{id}", function(req, id) kill_sandbox(self, req, id) end },
    { "POST", "/sandboxes/{id}/timeout", function(req, id) set_timeout(self, req, id) end },
    { "POST", "/sandboxes/{id}/refreshes", function(req, id) refresh(self, req, id) end },
    { "POST", "/sandboxes/{id}/connect", function(req, id) connect_sandbox(self, req, id,
      nil) end },
    { "POST", "/v2/sandboxes/{id}/connect", function(req, id) connect_sandbox(self, req, id,
      TIMEOUT_V2_S) end },
  }
  add_unsupported(self, routes)
  return routes
end

return rest
