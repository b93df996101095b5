--- rest.lua - the control plane: E2B's REST calls for sandboxes, and the engine's own under
--- /demilune.
--
-- The same calls over both doors. Over TCP each shows the key, and /demilune and what is ours in the
-- bodies are not there.
local core = require "demilune.core"
local create = require "demilune.engine.create"
local faults = require "demilune.engine.faults"
local filter = require "demilune.engine.filter"
local input = require "demilune.engine.input"
local life = require "demilune.engine.life"
local metrics = require "demilune.engine.metrics"
local router = require "demilune.engine.router"
local show = require "demilune.engine.show"

local rest = {}

rest.PROTOCOL = 1
local BODY_MAX_BYTES = 2 * 1024 * 1024
local LIST_LIMIT = 100
local METRICS_IDS_MAX = 100
local EPOCH_MAX_S = 1 << 40

local find = life.find

---@class demilune.engine.Rest
---@field sandboxes demilune.engine.Sandboxes
---@field leases demilune.engine.Leases
---@field limits fun(): table?   which limits hold here
---@field stop fun()
---@field door? demilune.engine.Door  over TCP

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
  local is_public = self.door ~= nil
  local spec, musts = create.read(input.json(req, BODY_MAX_BYTES), default_timeout_s, is_public)
  check_musts(self, musts)
  if spec.lease and not self.leases:is_held(spec.lease) then faults.raise "lease_gone" end
  local sandbox = self.sandboxes:create(spec)
  -- Whoever is not there any more cannot know the id.
  local ok, is_sent = pcall(router.json, req, 201, show.created(sandbox, is_public))
  if not ok or not is_sent then self.sandboxes:kill(sandbox) end
  if not ok then error(is_sent, 0) end
end

--- One page of those that match, and the token of the next page if there is one. A token is the
--- number of the last sandbox shown.
local function cut_page(matching, limit, is_ascending, after)
  local page, last = core.json.array {}, nil
  local first, final, step = 1, #matching, 1
  if is_ascending then first, final, step = #matching, 1, -1 end
  for i = first, final, step do
    local sandbox = matching[i]
    local is_past = not after
    if after and is_ascending then is_past = sandbox.number > after end
    if after and not is_ascending then is_past = sandbox.number < after end
    if is_past then
      if #page == limit then return page, tostring(last.number) end
      page[#page + 1], last = show.listed(sandbox), sandbox
    end
  end
  return page, nil
end

--- Those that match, newest first.
local function match(self, query)
  local matches = filter.read(query)
  local matching = {}
  for _, sandbox in ipairs(self.sandboxes:list()) do
    if matches(sandbox) then matching[#matching + 1] = sandbox end
  end
  return matching
end

local function list_sandboxes(self, req)
  local limit = input.digits(req.query, "limit", 1, LIST_LIMIT) or LIST_LIMIT
  local after = input.digits(req.query, "nextToken", 1, math.maxinteger)
  local is_ascending = filter.is_ascending(req.query)
  local matching = match(self, req.query)
  local page, next_token = cut_page(matching, limit, is_ascending, after)
  local headers = { ["x-total-running"] = tostring(#matching), ["x-next-token"] = next_token }
  router.json(req, 200, page, headers)
end

--- The first version: those that run, all of them.
local function list_running(self, req)
  local matching = match(self, { metadata = req.query.metadata, state = "running" })
  router.json(req, 200, (cut_page(matching, #matching, false)))
end

local function kill_sandbox(self, req, id)
  local sandbox = find(self, id)
  self.sandboxes:kill(sandbox)
  self.sandboxes:wait_gone(sandbox)
  router.empty(req, 204)
end

--- One sample, of now, unless the question is about another time.
local function show_metrics(self, req, id)
  local sandbox = find(self, id)
  local from_s = input.digits(req.query, "start", 0, EPOCH_MAX_S)
  local to_s = input.digits(req.query, "end", 0, EPOCH_MAX_S)
  local sample = metrics.of_control(sandbox)
  local at_s = sample.timestampUnix
  local is_asked = (not from_s or from_s <= at_s) and (not to_s or to_s >= at_s)
  router.json(req, 200, core.json.array { is_asked and sample or nil })
end

local function show_many_metrics(self, req)
  local ids = req.query.sandbox_ids or ""
  local _, commas = ids:gsub(",", "")
  if ids == "" or commas >= METRICS_IDS_MAX then
    faults.bad("sandbox_ids", ("It must name 1 to %d sandboxes."):format(METRICS_IDS_MAX))
  end
  local by_id = {}
  for id in ids:gmatch "[^,]+" do
    local sandbox = self.sandboxes:find(id)
    if sandbox then by_id[id] = metrics.of_control(sandbox) end
  end
  router.json(req, 200, { sandboxes = by_id })
end

local function show_engine(self, req)
  router.json(req, 200, {
    version = core.sys.version, protocol = rest.PROTOCOL, sandboxes = self.sandboxes.count,
    pid = core.sys.pid(), pause = (self.limits() or {}).pause,
  })
end

local function stop(self, req)
  req:respond(204, { Connection = "close" }, "")
  self.stop()
end

--- Calls of E2B that are known and not had.
local UNSERVED = {
  { "POST", "/sandboxes/{id}/snapshots" }, { "POST", "/sandboxes/{id}/fork" },
  { "PUT", "/sandboxes/{id}/network" }, { "GET", "/sandboxes/{id}/logs" },
  { "GET", "/v2/sandboxes/{id}/logs" },
}

--- Families of calls that are not had at all.
local FAMILIES = {
  snapshots = true, templates = true, volumes = true, volumecontent = true, secrets = true, teams = true,
}

--- Raises `unimplemented` for an address of E2B's that is not served.
---@param path string
function rest.refuse_family(path)
  local family = path:match "^/v%d/(%l+)" or path:match "^/(%l+)"
  if FAMILIES[family] then faults.raise "unimplemented" end
end

local function own_routes(self)
  return {
    { "GET", "/demilune", function(req) show_engine(self, req) end },
    { "POST", "/demilune/stop", function(req) stop(self, req) end },
    { "GET", "/demilune/lease", function(req) self.leases:serve(req) end },
  }
end

local function e2b_routes(self)
  local is_public = self.door ~= nil
  local routes = {
    { "POST", "/sandboxes", function(req) create_sandbox(self, req, life.TIMEOUT_V1_S) end },
    { "POST", "/v2/sandboxes", function(req) create_sandbox(self, req, life.TIMEOUT_V2_S) end },
    { "GET", "/sandboxes", function(req) list_running(self, req) end },
    { "GET", "/v2/sandboxes", function(req) list_sandboxes(self, req) end },
    { "GET", "/sandboxes/metrics", function(req) show_many_metrics(self, req) end },
    { "GET", "/sandboxes/{id}", function(req, id)
      router.json(req, 200, show.detail(find(self, id), is_public))
    end },
    { "DELETE", "/sandboxes/{id}", function(req, id) kill_sandbox(self, req, id) end },
    { "POST", "/sandboxes/{id}/timeout", function(req, id) life.set_timeout(self, req, id) end },
    { "POST", "/sandboxes/{id}/refreshes", function(req, id) life.refresh(self, req, id) end },
    { "POST", "/sandboxes/{id}/pause", function(req, id) life.pause(self, req, id) end },
    { "POST", "/sandboxes/{id}/resume", function(req, id) life.resume(self, req, id) end },
    { "POST", "/sandboxes/{id}/connect", function(req, id) life.connect(self, req, id) end },
    { "POST", "/v2/sandboxes/{id}/connect", function(req, id)
      life.connect(self, req, id, life.TIMEOUT_V2_S)
    end },
    { "GET", "/sandboxes/{id}/metrics", function(req, id) show_metrics(self, req, id) end },
  }
  for _, call in ipairs(UNSERVED) do
    routes[#routes + 1] = { call[1], call[2], function(_, id)
      find(self, id)
      faults.raise "unimplemented"
    end }
  end
  return routes
end

--- The routes of the control plane.
---@param self demilune.engine.Rest
---@return demilune.engine.Route[]
function rest.routes(self)
  local routes = e2b_routes(self)
  if not self.door then return table.move(own_routes(self), 1, 3, #routes + 1, routes) end
  for _, route in ipairs(routes) do
    local handler = route[3]
    route[3] = function(req, id)
      self.door:check_key(req)
      return handler(req, id)
    end
  end
  return routes
end

return rest
