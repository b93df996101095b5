--- when.lua - the conditions of a rule: true, false, or nil where the call lacks what a condition is about.
--
-- The third answer is what makes rules fail closed: the caller decides by it, an `allow` rule takes it for no and every other
-- rule for yes.
local paths = require "demilune.policy.paths"
local windows = require "demilune.policy.windows"

local when = {}

--- The conditions in the order in which they are asked: cheap ones first.
local TEXTS = { "transport", "provider", "template", "principal", "client" }

local READ = {
  transport = function(view) return view.transport end,
  provider = function(view) return view.provider end,
  template = function(view) return view.template end,
  principal = function(view) return view.principal end,
  client = function(view) return view.client and view.client.name end,
}

--- UTC needs no table of transitions.
local UTC = {}

--- The time of the week.
---@param epoch_s integer
---@return { wday: integer, minute_of_day: integer }
function UTC:local_time(epoch_s) -- luacheck: ignore 212/self
  -- The first of January 1970 was a Thursday.
  return { wday = (epoch_s // 86400 + 3) % 7 + 1, minute_of_day = epoch_s % 86400 // 60 }
end

---@class demilune.policy.Condition
---@field key string        of `when`
---@field text string       as it was written, for explain
---@field test fun(ctx: table): boolean?
---@field found fun(ctx: table): any  what it was about, for explain

--- Whether a text matches one of several; nil where that cannot be decided.
---@param matchers (fun(text: string): boolean?)[]
---@param text string
---@return boolean?
function when.any(matchers, text)
  local is_undecided = false
  for i = 1, #matchers do
    local hit = matchers[i](text)
    if hit then return true end
    if hit == nil then is_undecided = true end
  end
  if is_undecided then return nil end
  return false
end

local function text_condition(key, patterns, matchers)
  local read, any = READ[key], when.any
  return {
    key = key, text = table.concat(patterns, ", "),
    test = function(ctx)
      local value = read(ctx.view)
      if type(value) ~= "string" then return nil end
      return any(matchers, value)
    end,
    found = function(ctx) return read(ctx.view) end,
  }
end

--- Whether the sandbox is the caller's own. One that the call is about to make is; a call about none has no answer.
local function is_owned(view)
  local sandbox = view.sandbox
  if sandbox then return sandbox.owned end
  if view.group["@create"] then return true end
  return nil
end

local function owned_condition(wanted)
  return {
    key = "owned", text = tostring(wanted),
    test = function(ctx)
      local owned = is_owned(ctx.view)
      if type(owned) ~= "boolean" then return nil end
      return owned == wanted
    end,
    found = function(ctx) return is_owned(ctx.view) end,
  }
end

--- The local time of a call, looked up once for each zone.
local function time_in(ctx, zone)
  local seconds = ctx.view.time
  if math.type(seconds) ~= "integer" then return nil end
  local times = ctx.times
  if not times then
    times = {}
    ctx.times = times
  end
  if times[zone] == nil then times[zone] = zone:local_time(seconds) or false end
  return times[zone]
end

local function window_condition(key, text, list, zone)
  local wanted, hold = key == "within", windows.hold
  return {
    key = key, text = text,
    test = function(ctx)
      local now = time_in(ctx, zone)
      if not now then return nil end
      return hold(list, now.wday, now.minute_of_day) == wanted
    end,
    found = function(ctx)
      local now = time_in(ctx, zone)
      return now and ("day %d of the week, %02d:%02d"):format(now.wday, now.minute_of_day // 60, now.minute_of_day % 60)
    end,
  }
end

local function add_texts(build, spec, path, list)
  for _, key in ipairs(TEXTS) do
    if spec[key] then
      list[#list + 1] = text_condition(key, spec[key], build:globs(spec[key], build:under(path, key)))
    end
  end
end

--- The zone of the windows; nil after a fault.
local function zone_of(build, spec, path)
  local name = spec.tz or "UTC"
  if not build.env.zone then
    if name == "UTC" then return UTC end
    build:fault(build:under(path, "tz"), "time zones are not known here; leave it out for UTC")
    return nil
  end
  local zone, why = build.env.zone(name)
  if not zone then build:fault(build:under(path, "tz"), tostring(why)) end
  return zone
end

local function add_windows(build, spec, path, list)
  if not spec.within and not spec.outside then
    if spec.tz then
      build:fault(build:under(path, "tz"), "`tz` stands beside `within` or `outside`; add one, or leave it out")
    end
    return nil
  end
  local zone, parsed = zone_of(build, spec, path), {}
  for _, key in ipairs { "within", "outside" } do
    local why
    if spec[key] then parsed[key], why = windows.parse(spec[key]) end
    if why then build:fault(build:under(path, key), why) end
    if parsed[key] and zone then list[#list + 1] = window_condition(key, spec[key], parsed[key], zone) end
  end
  return parsed
end

--- The conditions of a rule, `tool` aside, which is asked once for all.
---@param build demilune.policy.Build
---@param spec? table  `when`, checked
---@param path (string|integer)[]  of it
---@return demilune.policy.Condition[]?  nil where there are none: the rule always matches
function when.compile(build, spec, path)
  if not spec then return nil end
  local list = {}
  if spec.owned ~= nil then list[1] = owned_condition(spec.owned) end
  add_texts(build, spec, path, list)
  local parsed = add_windows(build, spec, path, list)
  if parsed and not windows.meet(parsed.within, parsed.outside) then
    build:warn(path, "no time is within the one window and outside of the other, so the rule never matches")
  end
  return #list > 0 and list or nil
end

--- Whether all conditions hold for a call.
---@param conditions demilune.policy.Condition[]
---@param ctx { view: table }
---@return boolean? holds  nil: the call lacks what one is about, and no other fails
---@return demilune.policy.Condition? which  that failed, or could not be told
function when.holds(conditions, ctx)
  local unknown
  for i = 1, #conditions do
    local condition = conditions[i]
    local holds = condition.test(ctx)
    if holds == false then return false, condition end
    if holds == nil then unknown = condition end
  end
  if unknown then return nil, unknown end
  return true
end

--- The matchers of a list of globs for names.
---@param patterns string[]
---@param glob fun(pattern: string, options?: table): table?, string?
---@return (fun(text: string): boolean?)[]
---@return { index: integer, why: string }?  the first that is none
function when.matchers(patterns, glob)
  local list = {}
  for i, pattern in ipairs(patterns) do
    local matches, why = paths.matcher(pattern, glob, false)
    if not matches then return list, { index = i, why = why or "it is none" } end
    list[i] = matches
  end
  return list
end

return when
