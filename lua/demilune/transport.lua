--- transport.lua - the manners of an HTTP client towards one service: so many requests at a time, one deadline for all
--- tries together, repetitions only of what is safe, a credential that changed is read again once.
--
-- It decides nothing about what an answer means: whatever status came last is returned, and errors.from_response makes an
-- error of it. A place is held by a request and not by a pause, so that who waits to repeat stands in nobody's way.
local core = require "demilune.core"
local errors = require "demilune.errors"
local gate = require "demilune.gate"
local time = require "demilune.time"

local task = core.task

local transport = {}

--- How often a safe request is sent at most.
transport.TRIES_MAX = 3
--- The pause before the first repetition; each doubles it. Between half and one and a half of it, by chance.
transport.PAUSE_MS = 200
--- A try that had less time than this would only turn an answer into a timeout.
transport.TRY_MIN_MS = 50
--- What a service may ask to wait counts no further than this.
transport.RETRY_AFTER_MAX_S = 86400

--- By name of a service: how many requests ended in which way, "2xx" to "5xx" or "failed"; tries each. For metrics.lua.
---@type table<string, table<string, integer>>
transport.counts = {}

local PLACES, PLACE_WAIT_MS = 16, 5000
local CLASSES = { "1xx", "2xx", "3xx", "4xx", "5xx" }
local WORTH_ANOTHER_TRY = { [502] = true, [503] = true, [504] = true }
local FOLLOWED = { [301] = true, [302] = true, [303] = true, [307] = true, [308] = true }
--- What core.http.request is given of the options.
local PASSED = {
  "method", "url", "unix_socket", "headers", "body", "connect_timeout_ms", "max_body_bytes", "stream", "credentials",
  "tokens", "is_fresh",
}
local MONTHS = {
  Jan = 1, Feb = 2, Mar = 3, Apr = 4, May = 5, Jun = 6, Jul = 7, Aug = 8, Sep = 9, Oct = 10, Nov = 11, Dec = 12,
}

---@class demilune.Transport
---@field places demilune.Gate
---@field counts? table<string, integer>
---@field proxy? string
---@field ca_file? string
local Transport = {}
Transport.__index = Transport

---@class demilune.Transport.Options: demilune.core.http.Options
---@field deadline_ms? number         on task.now_ms(), for all tries together; else timeout_ms from now
---@field is_safe? boolean            may be sent again: it asks, ends or sets what it would set anyway
---@field redirects? integer          how many a GET follows at most; 0 without it
---@field credential_names? string[]  of the vault: loaded before, read again after a 401

--- Makes one for a service.
---@param settings? {name?: string, max_requests?: integer, wait_ms?: integer, proxy?: string, ca_file?: string}  name: of the
---  operator's, by which its requests are counted
---@return demilune.Transport
function transport.new(settings)
  settings = settings or {}
  local name = settings.name
  if name then transport.counts[name] = transport.counts[name] or {} end
  return setmetatable({
    counts = name and transport.counts[name],
    places = gate.new(settings.max_requests or PLACES, settings.wait_ms or PLACE_WAIT_MS),
    proxy = settings.proxy, ca_file = settings.ca_file,
  }, Transport)
end

-- ---- Retry-After ----

local function time_of(year, month_name, day, hour, minute, second)
  local month = MONTHS[month_name]
  if not month then return nil end
  local days = time.days(math.tointeger(tonumber(year)), month, math.tointeger(tonumber(day)))
  return ((days * 24 + tonumber(hour)) * 60 + tonumber(minute)) * 60 + tonumber(second)
end

--- Seconds since 1970 of an HTTP date in one of its three forms (RFC 9110 §5.6.7).
---@param text string
---@return integer?
local function http_date(text)
  local day, month, year, h, m, s = text:match "^%a+, (%d%d) (%a%a%a) (%d%d%d%d) (%d%d):(%d%d):(%d%d) GMT$"
  if not day then
    day, month, year, h, m, s = text:match "^%a+, (%d%d)%-(%a%a%a)%-(%d%d) (%d%d):(%d%d):(%d%d) GMT$"
    year = year and "20" .. year
  end
  if not day then month, day, h, m, s, year = text:match "^%a+ (%a%a%a) ([ %d]%d) (%d%d):(%d%d):(%d%d) (%d%d%d%d)$" end
  return day and time_of(year, month, day, h, m, s)
end

--- How long an answer asks to wait: whole seconds, or nil where it does not, or not in a way that HTTP knows. A date counts
--- from the answer's own Date, since the clocks of two machines differ.
---@param res {headers: table<string, string>}
---@return integer? seconds
function transport.retry_after(res)
  local value = res.headers["retry-after"]
  if not value then return nil end
  local seconds = value:find "^%d+$" and tonumber(value)
  if not seconds then
    local at = http_date(value)
    seconds = at and at - (http_date(res.headers.date or "") or os.time())
  end
  return seconds and math.tointeger(math.max(0, math.min(seconds, transport.RETRY_AFTER_MAX_S)))
end

-- ---- credentials ----

--- By name of a credential, for all transports of this state: how often it was found changed, and the event that the
--- reading in progress ends with.
local changes, reading = setmetatable({}, { __index = function() return 0 end }), {}

local Reading = {
  __close = function(self)
    reading[self.name] = nil
    self.event:set()
  end,
}

--- Why a credential could not be read, for a person at this machine: it may name a path.
local function cause_of(name)
  for _, credential in ipairs(core.vault.status().credentials) do
    if credential.name == name then return credential.cause end
  end
end

local function load_all(names)
  for _, name in ipairs(names) do
    local ok, err = core.vault.load(name)
    if not ok then
      local unread = errors.new(err.category, err, cause_of(name))
      -- The message says where to look.
      unread.suggestion = nil
      error(unread, 0)
    end
  end
end

--- Whether the credential is another one than when `mark` was taken; reads it again when nobody else has. Of many requests
--- that were refused at once, the first reads and the others wait for it.
local function is_renewed(name, mark, wait_ms)
  if reading[name] then
    reading[name]:wait(wait_ms)
  elseif changes[name] == mark then
    local one <close> = setmetatable({ name = name, event = task.event() }, Reading)
    reading[name] = one.event
    if core.vault.reload(name) then changes[name] = mark + 1 end
  end
  return changes[name] ~= mark
end

-- ---- one call ----

---@class demilune.Transport.Call
---@field opts demilune.Transport.Options
---@field request table    what core.http.request is given
---@field deadline number
---@field tries integer    that failed and may be repeated
---@field hops integer     redirects that may still be followed
---@field names string[]
---@field marks table<string, integer>  of the credentials that the last try was sent with
---@field is_renewed boolean

local function left_ms(call) return call.deadline - task.now_ms() end

local function begin(self, opts)
  local request = { proxy = self.proxy, ca_file = self.ca_file }
  for _, name in ipairs(PASSED) do request[name] = opts[name] end
  local is_get = (opts.method or "GET") == "GET"
  return {
    opts = opts, request = request, deadline = opts.deadline_ms or task.now_ms() + opts.timeout_ms,
    tries = 0, hops = is_get and not opts.unix_socket and opts.redirects or 0,
    names = opts.credential_names or {}, marks = {}, is_renewed = false,
  }
end

local function count(self, res)
  local counts, class = self.counts, res and CLASSES[res.status // 100] or "failed"
  if counts then counts[class] = (counts[class] or 0) + 1 end
end

--- Sends it once, in a place of its own.
local function try(self, call)
  local place <close> = self.places:enter(math.max(0, left_ms(call))) -- luacheck: ignore 211
  if not place then
    errors.raise("quota_exceeded", { suggestion = "Too many requests to this provider wait already; repeat the call later." })
  end
  local left = left_ms(call)
  if left < 1 then return nil, errors.new("provider_timeout") end
  for _, name in ipairs(call.names) do call.marks[name] = changes[name] end
  call.request.timeout_ms = math.min(call.opts.timeout_ms, left)
  local res, err = core.http.request(call.request)
  count(self, res)
  return res, err
end

--- After a 401: whether a credential changed, so that one more try is worth it, whatever the method: a server that does not
--- know who asks has done nothing.
local function may_renew(call, res)
  if res.status ~= 401 or call.is_renewed or not call.request.credentials then return false end
  call.is_renewed = true
  local is_any = false
  for _, name in ipairs(call.names) do
    if is_renewed(name, call.marks[name], math.max(0, left_ms(call))) then is_any = true end
  end
  return is_any and left_ms(call) >= transport.TRY_MIN_MS
end

--- Aims the next try at the place that a redirect names, with the credentials that may go there. Never from https to http.
local function may_follow(call, res)
  local url = res.redirect_url
  if call.hops <= 0 or not FOLLOWED[res.status] or not url then return false end
  if call.request.url:lower():find "^https:" and not url:lower():find "^https:" then return false end
  local allowed = {}
  for _, credential in ipairs(call.request.credentials or {}) do
    if core.vault.allows(credential, url) then allowed[#allowed + 1] = credential end
  end
  call.request.url, call.request.credentials = url, allowed[1] and allowed
  call.hops = call.hops - 1
  return true
end

--- Milliseconds until a safe request may go out again, or nil when what came is what its caller gets.
local function pause_for(call, res, err)
  if not call.opts.is_safe then return nil end
  local asked = res and transport.retry_after(res)
  local is_worth = res and (WORTH_ANOTHER_TRY[res.status] or res.status == 429 and asked)
    or err and err.category == "connection_failed"
  call.tries = call.tries + 1
  if not is_worth or call.tries >= transport.TRIES_MAX then return nil end
  local pause = transport.PAUSE_MS * 2 ^ (call.tries - 1) * (0.5 + math.random())
  pause = math.max(pause, (asked or 0) * 1000)
  return pause + transport.TRY_MIN_MS <= left_ms(call) and pause or nil
end

local function drop(res)
  if res and res.close then res:close() end
end

--- Sends a request and returns the response that its caller has to judge. Raises errors of the table: those of
--- core.http.request, authentication_failed (a credential cannot be read), quota_exceeded (no place in time).
---@async
---@param opts demilune.Transport.Options
---@return demilune.core.http.Response|demilune.core.http.Stream
function Transport:send(opts)
  local call = begin(self, opts)
  load_all(call.names)
  while true do
    local res, err = try(self, call)
    if not (res and (may_renew(call, res) or may_follow(call, res))) then
      local pause = pause_for(call, res, err)
      if not pause then return res or error(err, 0) end
      drop(res)
      task.sleep(pause)
    else
      drop(res)
    end
  end
end

return transport
