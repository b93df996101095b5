--- Random policies and random calls: nothing raises, the same call is decided the same way, and nothing is allowed that a
--- second, naive reading of the contract's five steps would not allow.

-- timeout: 60

local groups = require "demilune.policy.groups"
local rules = require "demilune.policy.rules"
local support = require "spec.policy.support"

local SECONDS = 4
local SEED = tonumber(os.getenv("DML_SEED") or "") or 20261130

-- ---- random things ----

local function any(list) return list[math.random(#list)] end
local function often(share) return math.random() < share end

local TOOL_NAMES = groups.TOOLS
local PRINCIPALS = { "local:me", "ci-1", "ci-2", "guest" }
local PATHS = { "a", "/etc/passwd", "/home/user/.ssh/id", "../../etc/x", "/work/./a", "/work/../work/b.pem", "/" }
local REGIONS = { "eu", "eu-west", "us", "us-1" }

local function random_match()
  local list = {}
  for i = 1, math.random(2) do
    list[i] = often(0.5) and any(groups.NAMES) or often(0.3) and any { "run_*", "*_file", "veryfront__*",
      "*" } or any(TOOL_NAMES)
  end
  return #list == 1 and often(0.5) and list[1] or list
end

local WHEN = {
  principal = function() return any { "ci-*", "local:me", "*", "g?est" } end,
  provider = function() return any { "local", "cloud", "c*" } end,
  transport = function() return any { "stdio", "cli", { "http", "cli" } } end,
  template = function() return any { "base", "b*", "other" } end,
  owned = function() return often(0.5) end,
  within = function() return any { "thu 00:00-12:00", "mon-wed 08:00-18:00", "fri 22:00-06:00" } end,
}

local function random_when()
  if often(0.5) then return nil end
  local conditions = {}
  for key, make in pairs(WHEN) do
    if often(0.3) then conditions[key] = make() end
  end
  return conditions
end

local EFFECTS = {
  deny = function() return "no" end,
  limit = function() return { timeout = math.random(100) } end,
  set = function() return { timeout = math.random(100) } end,
  force = function() return { timeout = math.random(100) } end,
  only = function() return { region = any { "eu*", "us" } } end,
  never = function() return { region = any { "eu*", "us" } } end,
  path = function() return any { { deny = "/etc/**" }, { allow = { "/work/**", "/home/**" } }, { deny = "**/*.pem" } } end,
  args = function() return any { { maxProperties = 4 }, { properties = { timeout = { maximum = 60 } } } } end,
  allow = function() return true end,
  ask = function() return "sure?" end,
  rate = function() return { calls = math.random(5), per = 60 } end,
  quota = function() return { lifetime = math.random(100), sandboxes = 3 } end,
}
local EFFECT_NAMES = {}
for name in pairs(EFFECTS) do EFFECT_NAMES[#EFFECT_NAMES + 1] = name end
table.sort(EFFECT_NAMES)

local function random_rule(index)
  local rule = { name = "r" .. index, match = random_match(), when = random_when() }
  if often(0.07) then
    rule.when, rule.hide = often(0.8) and { principal = any { "guest", "ci-*" } } or nil, true
    return rule
  end
  for _ = 1, math.random(2) do
    local name = any(EFFECT_NAMES)
    rule[name] = EFFECTS[name]()
  end
  return rule
end

local function random_policy()
  local policy = { default = any { "allow", "allow", "deny", "ask" }, rules = {} }
  for i = 1, math.random(0, 6) do policy.rules[i] = random_rule(i) end
  return policy
end

local function random_args(tool)
  local args = {}
  if tool == "read_file" or tool == "list_files" or tool == "download_file" then args.path = any(PATHS) end
  if tool == "write_file" then args.path, args.content = any(PATHS), "" end
  if tool == "run_code" then args.code, args.timeout = "1", often(0.5) and math.random(100) or nil end
  if tool == "run_command" or tool == "start_background_task" then
    args.command, args.timeout = "ls", often(0.5) and math.random(100) or nil
  end
  if tool == "create_sandbox" then
    args.timeout, args.region = often(0.5) and math.random(100) or nil, often(0.5) and any(REGIONS) or nil
  end
  return next(args) and args or nil
end

local function random_view()
  local tool = any(TOOL_NAMES)
  local view = support.view(tool, random_args(tool))
  view.principal, view.provider, view.transport = any(PRINCIPALS), any { "local", "cloud" }, any { "stdio", "cli" }
  view.time = math.random(0, 14 * 86400)
  if view.sandbox then view.sandbox = any { { id = "sb", owned = often(0.5), created_at = view.time - math.random(60) },
    { owned = true } } end
  for _, key in ipairs { "principal", "provider", "transport", "sandbox", "template", "time", "lifetime_s" } do
    if often(0.07) then view[key] = nil end
  end
  return view
end

-- ---- the naive reading ----

local function glob_to_pattern(glob)
  return "^" .. glob:gsub("[%-%.%[%]]", "%%%0"):gsub("%*+", ".*"):gsub("%?", ".") .. "$"
end

local function matches_one(patterns, text)
  for _, pattern in ipairs(type(patterns) == "string" and { patterns } or patterns) do
    if text:find((glob_to_pattern(pattern))) then return true end
  end
  return false
end

local function names_tool(rule, view)
  for _, item in ipairs(type(rule.match) == "string" and { rule.match } or rule.match) do
    if item:sub(1, 1) == "@" then
      if view.group[item] then return true end
    elseif matches_one(item, view.tool) then
      return true
    end
  end
  return false
end

--- Whether a minute of the week is in one of the windows above, by hand.
local IN_WINDOW = {
  ["thu 00:00-12:00"] = function(day, minute) return day == 4 and minute < 720 end,
  ["mon-wed 08:00-18:00"] = function(day, minute) return day <= 3 and minute >= 480 and minute < 1080 end,
  ["fri 22:00-06:00"] = function(day, minute) return (day == 5 and minute >= 1320) or (day == 6 and minute < 360) end,
}

local function condition_holds(key, wanted, view)
  if key == "owned" then
    local owned = view.sandbox and view.sandbox.owned
    if not view.sandbox and view.group["@create"] then owned = true end
    if owned == nil then return "lacking" end
    return owned == wanted
  elseif key == "within" then
    if not view.time then return "lacking" end
    return IN_WINDOW[wanted]((view.time // 86400 + 3) % 7 + 1, view.time % 86400 // 60)
  end
  if view[key] == nil then return "lacking" end
  return matches_one(wanted, view[key])
end

local function fits(rule, view)
  if not names_tool(rule, view) then return false end
  local is_lacking = false
  for key, wanted in pairs(rule.when or {}) do
    local holds = condition_holds(key, wanted, view)
    if holds == false then return false end
    is_lacking = is_lacking or holds == "lacking"
  end
  return not (is_lacking and rule.allow)
end

local HAS = {}
for _, tool in ipairs(support.tools()) do HAS[tool.name] = tool.input.properties end

local function rewritten(matching, view)
  local args, properties = {}, HAS[view.tool]
  for name, value in pairs(view.args) do args[name] = value end
  for _, rule in ipairs(matching) do
    local is_default = properties.timeout and (view.args.timeout == nil or view.args.timeout == properties.timeout.default)
    if rule.set and is_default then args.timeout = rule.set.timeout end
  end
  for _, rule in ipairs(matching) do
    if rule.force and properties.timeout then args.timeout = rule.force.timeout end
  end
  return args
end

local function plain_path(path)
  if path:sub(1, 1) ~= "/" then path = "/home/user/" .. path end
  local parts = {}
  for part in path:gmatch "[^/]+" do
    if part == ".." then parts[#parts] = nil elseif part ~= "." then parts[#parts + 1] = part end
  end
  return "/" .. table.concat(parts, "/")
end

local function path_passes(rule, path)
  if rule.path.allow then return (path:find "^/work/" or path:find "^/home/") ~= nil end
  if rule.path.deny == "/etc/**" then return not (path == "/etc" or path:find "^/etc/") end
  return not path:find "%.pem$"
end

local PATH_TOOLS = { read_file = true, write_file = true, list_files = true, download_file = true, upload_file = true }

local function passes(rule, args, view)
  local properties = HAS[view.tool]
  if rule.deny then return false end
  local timeout = args.timeout or (view.tool == "create_sandbox" and view.lifetime_s or nil)
  if rule.limit and properties.timeout and timeout and timeout > rule.limit.timeout then return false end
  if rule.only and properties.region and not (args.region and matches_one(rule.only.region, args.region)) then return false end
  if rule.never and args.region and matches_one(rule.never.region, args.region) then return false end
  if rule.path and PATH_TOOLS[view.tool] and not path_passes(rule, plain_path(args.path or ".")) then return false end
  if rule.args then
    local count = 0
    for _ in pairs(args) do count = count + 1 end
    if rule.args.maxProperties and count > rule.args.maxProperties then return false end
    if rule.args.properties and args.timeout and args.timeout > 60 then return false end
  end
  return true
end

local function outlives(rule, args, view)
  local most = rule.quota and rule.quota.lifetime
  if not most or not (view.group["@lifetime"] or view.group["@create"]) then return false end
  if view.tool == "veryfront__create_sandbox" or view.tool == "veryfront__update_sandbox_lifetime" then return true end
  local lived = 0
  if not view.group["@create"] then
    if not (view.sandbox and view.sandbox.created_at and view.time) then return true end
    lived = view.time - view.sandbox.created_at
  end
  local asked = args.timeout or view.lifetime_s
  return asked == nil or lived + asked > most
end

--- "allow", "ask" or "deny".
local function naive(policy, view)
  local matching = {}
  for _, rule in ipairs(policy.rules) do
    if fits(rule, view) then
      if rule.hide then return "deny" end
      matching[#matching + 1] = rule
    end
  end
  local args = rewritten(matching, view)
  for _, rule in ipairs(matching) do
    if not passes(rule, args, view) then return "deny" end
  end
  local verdict = policy.default
  for i = #matching, 1, -1 do
    if matching[i].allow then verdict = "allow" elseif matching[i].ask then verdict = "ask" end
  end
  if verdict ~= "allow" then return verdict end
  for _, rule in ipairs(matching) do
    if outlives(rule, args, view) then return "deny" end
  end
  return "allow"
end

local function shown(policy, view)
  return support.json.encode { policy = policy, view = view }
end

describe("any policy and any call", function()
  it("are decided without a raise, always the same, and as the contract reads", function()
    math.randomseed(SEED)
    local policies, calls, seen, stop = 0, 0, { allow = 0, ask = 0, deny = 0 }, os.clock() + SECONDS
    local env = support.env()
    while os.clock() < stop do
      local policy = random_policy()
      local compiled = support.compile(policy, env)
      if compiled then
        policies = policies + 1
        for _ = 1, 20 do
          local view = random_view()
          local before = support.json.encode(view)
          local first = rules.decide(compiled, view, support.world())
          local second = rules.decide(compiled, view, support.world())
          calls = calls + 1
          seen[first.verdict] = seen[first.verdict] + 1
          assert.are.equal(before, support.json.encode(view))
          assert.are.equal(support.words(first), support.words(second))
          if first.verdict ~= naive(policy, view) then
            error(("seed %d: %s and not %s: %s"):format(SEED, support.words(first), naive(policy, view), shown(policy, view)))
          end
        end
      end
    end
    print(("note: %d policies, %d calls: %d allowed, %d asked, %d denied"):format(policies, calls, seen.allow, seen.ask,
      seen.deny))
    assert.is_true(policies > 200 and seen.allow > 500 and seen.ask > 200 and seen.deny > 500)
  end)

  it("with a world in which things fail never becomes an allow", function()
    math.randomseed(SEED + 1)
    local stop, count = os.clock() + 1, 0
    local env = support.env()
    local function fail() error "x" end
    while os.clock() < stop do
      local compiled = support.compile(random_policy(), env)
      if compiled then
        local view = random_view()
        local part = any { "before", "reserve", "real_path", "validate", "honours" }
        local plain = rules.decide(compiled, view, support.world())
        local failing = rules.decide(compiled, view, support.world { [part] = fail })
        if failing.verdict == "allow" then assert.are.equal("allow", plain.verdict) end
        if part == "before" then assert.are.equal("deny", failing.verdict) end
        count = count + 1
      end
    end
    assert.is_true(count > 50)
  end)

  it("of which neither is one makes faults and denials, and no raise", function()
    math.randomseed(SEED + 2)
    local JUNK = { 0, -1, 0 / 0, math.huge, "", "x", "@all", "[", true, false, {}, { {} }, { "x", 7 }, { a = { b = {} } },
      print }
    local keys = { "name", "match", "when", "default", "rules", "zzz", 1, 2 }
    for _, name in ipairs(EFFECT_NAMES) do keys[#keys + 1] = name end
    local function junk(depth)
      if depth == 0 or often(0.3) then return any(JUNK) end
      local out = {}
      for _ = 1, math.random(4) do out[any(keys)] = junk(depth - 1) end
      return out
    end
    local env, compiled_count = support.env(), 0
    for _ = 1, 3000 do
      local data = random_policy()
      for _, rule in ipairs(data.rules) do
        if often(0.3) then rule[any(keys)] = junk(3) end
      end
      if often(0.1) then data[any(keys)] = junk(3) end
      local compiled, faults = support.compile(data, env)
      assert.is_true(compiled ~= nil or #faults > 0)
      if compiled then
        compiled_count = compiled_count + 1
        local view = often(0.5) and random_view() or { tool = any(TOOL_NAMES), args = junk(1), group = junk(1),
          sandbox = junk(1) }
        assert.is_string(rules.decide(compiled, view, support.world()).verdict)
      end
    end
    assert.is_true(compiled_count > 100 and compiled_count < 2900)
  end)
end)
