--- e2b/plane.lua - requests to the data plane of a sandbox: where they go, how many at a time, and what is behind a sandbox
--- that does not answer.
local core = require "demilune.core"
local errors = require "demilune.errors"
local info = require "demilune.e2b.info"

local task = core.task
local plane = {}

local ENVD_PORT = "49983"
--- A request is sent again this often: after a resume, a new token, a pause that was just going on.
local TRIES_MAX = 4
local MOVING_PAUSE_MS = 500
--- From this version on envd knows its user by itself.
local USERLESS_VERSION = { 0, 4, 0 }
local USER = "user"
local BASIC_USER = "Basic " .. core.crypto.base64(USER .. ":")
--- Seconds between signs of life on a stream, so that nothing between closes it for being idle.
local KEEPALIVE_S = "50"

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

local function take_place(gate)
  return gate:enter() or errors.raise("quota_exceeded", {
    message = "This server has too many requests at work in sandboxes; wait for some of them to end.",
  })
end

local function copy(map)
  local out = {}
  for key, value in pairs(map) do out[key] = value end
  return out
end

--- Aims a request at the data plane of a sandbox.
local function aim(self, id, opts)
  local request, bare = copy(opts), self:locate(id)
  request.headers = copy(opts.headers)
  request.headers["E2b-Sandbox-Id"], request.headers["E2b-Sandbox-Port"] = bare, opts.port or ENVD_PORT
  request.port, request.path, request.is_probe = nil, nil, nil
  if self.address then
    request.url, request.unix_socket = self.address.url .. opts.path, self.address.unix_socket
    return request
  end
  local at, path = self:attach(id), opts.path
  if not self.is_engine then
    local has_user = info.is_at_least(at.version, USERLESS_VERSION)
    if not has_user and path:find "^/files%?" then
      path = path .. "&username=" .. USER
    elseif not has_user then
      request.headers.Authorization = BASIC_USER
    end
    if opts.stream and opts.method == "POST" and not opts.port then request.headers["Keepalive-Ping-Interval"] = KEEPALIVE_S end
  end
  request.url = at.place:url_of(bare, opts.port or ENVD_PORT, at.domain, opts.port ~= nil) .. path
  request.credentials = at.tokens[1] and at.tokens or nil
  return request
end

--- Sends, in a place of its own; a stream takes the place along.
local function send_in_place(self, id, opts)
  local place = take_place(self.places)
  local guard <close> = setmetatable({ place = place }, Sending)
  local request = aim(self, id, opts)
  local res, err
  if self.transport then res = self.transport:send(request) else res, err = core.http.request(request) end
  if not res then error(err, 0) end
  if not opts.stream then return res end
  guard.place = nil
  return setmetatable({ res = res, status = res.status, headers = res.headers, place = place }, Stream)
end

--- The life that a sandbox is resumed for: its own where that is known, and the time that the request may take.
local function life_of(self, ref, opts)
  local seconds = math.max(ref.policy_s or self.config.lifetime, opts.timeout_ms // 1000 + 1)
  return math.tointeger(math.min(seconds, self.config.max_lifetime or seconds))
end

--- What is behind a data plane that is not there: the end of the sandbox or a pause. Returns whether it goes on now.
local function revive(self, ref, opts)
  local found = self:raise_if_gone(ref.id)
  if not found or found.status ~= "paused" then return false end
  if self.config.auto_resume == false or not self.supports.pause then errors.raise "sandbox_paused" end
  local seconds = life_of(self, ref, opts)
  self:resume(ref.id, seconds)
  ref.ends_ms = task.now_ms() + seconds * 1000
  return true
end

--- Whether a request may be sent again, since what stood in its way is out of it.
local function may_repeat(self, ref, opts, status, tried)
  if status == 502 then
    if tried.resumed then
      -- It runs again, and the way to it may take a moment.
      task.sleep(MOVING_PAUSE_MS)
      return true
    end
    tried.resumed = revive(self, ref, opts)
    if tried.resumed then return true end
    errors.raise "sandbox_gone"
  elseif status == 409 then
    -- Pausing or resuming just now.
    task.sleep(MOVING_PAUSE_MS)
    return true
  elseif status == 401 and self.attached:get(ref.id) and not tried.attached then
    -- A sandbox that was resumed elsewhere may have another token.
    tried.attached = true
    self.attached:drop(ref.id)
    return true
  end
  return false
end

local REPEATED = { [401] = true, [409] = true, [502] = true }

--- A data-plane request, in its place among all of this server. What fails on the way may be the end of the sandbox, or a
--- pause; a paused one is resumed where that is allowed, and the request sent again.
---@param self demilune.E2b
---@param ref table   {id, policy_s?}; gets ends_ms where it was resumed
---@param opts table  of core.http.request; path, port?, is_probe? (what fails is an answer too)
---@return table res
function plane.request(self, ref, opts)
  local tried = {}
  for try = 1, TRIES_MAX do
    local is_last = try == TRIES_MAX or opts.is_probe
    local ok, res = pcall(send_in_place, self, ref.id, opts)
    if not ok then
      local is_broken = errors.is(res) and res.category == "connection_failed" and not is_last and not tried.resumed
      tried.resumed = is_broken and revive(self, ref, opts)
      if not tried.resumed then error(res, 0) end
    elseif is_last or not REPEATED[res.status] or (res.status == 409 and self.is_engine and opts.path:find "^/files") then
      -- Files have a 409 of their own, that of our engine.
      return res
    else
      if opts.stream then res:close() end
      if not may_repeat(self, ref, opts, res.status, tried) then return res end
    end
  end
end

return plane
