--- compile.lua - a checked policy becomes, for every tool, the list of rules that can be about it, each ready to run.
--
-- Everything that can be done once is done here: groups and globs become tools, patterns are compiled, values are held against
-- the tools' schemas. What is wrong is noted and looked for on, so that a person hears of all of it at once.
local arguments = require "demilune.policy.arguments"
local checks = require "demilune.policy.checks"
local coherence = require "demilune.policy.coherence"
local counters = require "demilune.policy.counters"
local groups = require "demilune.policy.groups"
local lint = require "demilune.policy.lint"
local nearest = require "demilune.nearest"
local paths = require "demilune.policy.paths"
local when = require "demilune.policy.when"

local compile = {}

local FAULTS_MAX = 100
---@class demilune.policy.Build
---@field env table
---@field faults { path: (string|integer)[], text: string }[]
---@field warnings { path: (string|integer)[], text: string, is_note?: boolean }[]
---@field glob fun(pattern: string, options?: table): table?, string?
---@field regex fun(pattern: string): table?, string?
local Build = {}
Build.__index = Build

--- Notes what is wrong: "what; the way out".
---@param path (string|integer)[]
---@param text string
function Build:fault(path, text)
  if #self.faults < FAULTS_MAX then self.faults[#self.faults + 1] = { path = path, text = text } end
end

--- Notes what is probably not meant.
---@param path (string|integer)[]
---@param text string
function Build:warn(path, text)
  if #self.warnings < FAULTS_MAX then self.warnings[#self.warnings + 1] = { path = path, text = text } end
end

--- Notes what is worth knowing of a policy that may be meant just so.
---@param path (string|integer)[]
---@param text string
function Build:note(path, text)
  if #self.warnings < FAULTS_MAX then self.warnings[#self.warnings + 1] = { path = path, text = text, is_note = true } end
end

--- A path with more keys at its end.
---@param path (string|integer)[]
---@param ... string|integer
---@return (string|integer)[]
function Build:under(path, ...) -- luacheck: ignore 212/self
  local out = table.move(path, 1, #path, 1, {})
  for i = 1, select("#", ...) do out[#out + 1] = (select(i, ...)) end
  return out
end

--- Matchers of globs for names; a glob that is none is a fault.
---@param patterns string[]
---@param path (string|integer)[]
---@return (fun(text: string): boolean?)[]
function Build:globs(patterns, path)
  local list, wrong = when.matchers(patterns, self.glob)
  if wrong then self:fault(path, ("the glob %q: %s; mend it"):format(patterns[wrong.index], wrong.why)) end
  return list
end

-- ---- match ----

local function is_glob(text) return text:find "[%*%?%[%]{}\\]" ~= nil end

--- Adds the tools of a group to a rule.
local function add_group(build, rule, item, path)
  if not groups.is_group(item) then
    local near = nearest.of(item, groups.NAMES)
    return build:fault(path, ("there is no group %s; %s"):format(item, near and ("did you mean %s?"):format(near)
      or "write one of " .. table.concat(groups.NAMES, ", ")))
  end
  rule.groups[item] = true
  for _, tool in ipairs(build.env.tools) do
    if groups.of_entry(tool)[item] then rule.has_tool[tool.name] = true end
  end
  for _, name in ipairs(groups.TOOLS) do
    if groups.of(name)[item] then rule.known[name] = true end
  end
end

local function add_glob(build, rule, item, path)
  local matches, why = paths.matcher(item, build.glob, false)
  if not matches then return build:fault(path, ("the glob %q: %s; mend it"):format(item, why or "is none")) end
  local has_some = false
  for _, name in ipairs(build.names) do
    local hit = matches(name)
    -- What cannot be decided is matched, but for a rule that allows.
    if hit or (hit == nil and not rule.spec.allow) then
      rule.known[name], rule.named[name], has_some = true, item, true
      if build.tools_by_name[name] then rule.has_tool[name] = true end
    end
  end
  if not has_some then build:warn(path, ("%s matches no tool; mend it, or leave it out"):format(item)) end
end

local function add_name(build, rule, item, path)
  if build.is_known[item] then
    rule.known[item], rule.named[item] = true, item
    if build.tools_by_name[item] then rule.has_tool[item] = true end
    return
  end
  if groups.is_group("@" .. item) then
    return build:fault(path, ('there is no tool %s; the group is written "@%s"'):format(item, item))
  end
  local near = nearest.of(item, build.names)
  build:fault(path, ("there is no tool %s; %s"):format(item, near and ("did you mean %s?"):format(near)
    or "`demilune tools` lists them"))
end

local function has_when_tool(build, rule, name)
  local hit = when.any(rule.tool_matchers, name)
  return hit or (hit == nil and not rule.spec.allow)
end

--- Takes out the tools that `when.tool` leaves out.
local function narrow(build, rule)
  local patterns = rule.spec.when and rule.spec.when.tool
  if not patterns then return end
  local path = build:under(rule.path, "when", "tool")
  rule.tool_matchers = build:globs(patterns, path)
  local before = next(rule.known)
  for name in pairs(rule.known) do
    if not has_when_tool(build, rule, name) then rule.known[name], rule.has_tool[name] = nil, nil end
  end
  for name in pairs(rule.has_tool) do
    if not has_when_tool(build, rule, name) then rule.has_tool[name] = nil end
  end
  if before and next(rule.known) == nil and next(rule.has_tool) == nil then
    build:warn(path, "no tool of `match` is one of these, so the rule never matches")
  end
end

local function match_tools(build, rule)
  for i, item in ipairs(rule.spec.match) do
    local path = build:under(rule.path, "match")
    if #rule.spec.match > 1 then path[#path + 1] = i end
    local add = item:sub(1, 1) == "@" and add_group or is_glob(item) and add_glob or add_name
    add(build, rule, item, path)
  end
  narrow(build, rule)
  for _, tool in ipairs(build.env.tools) do
    if rule.has_tool[tool.name] then rule.tools[#rule.tools + 1] = tool end
  end
end

-- ---- rewriting and masking ----

local function sorted_names(map)
  local names = {}
  for name in pairs(map or {}) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- The values of `set` or `force` by tool and argument, as the tools take them.
local function check_values(build, rule, key)
  local by_tool = {}
  for _, name in ipairs(sorted_names(rule.spec[key])) do
    local path = build:under(rule.path, key, name)
    for _, tool in ipairs(arguments.having(build, rule, name, path)) do
      local list = by_tool[tool.name] or {}
      by_tool[tool.name] = list
      local value = arguments.check_value(build, tool, name, rule.spec[key][name], path)
      list[#list + 1] = { name = name, value = value, default = tool.input.properties[name].default }
    end
  end
  return by_tool
end

--- `limit.default` fills in like `set`.
local function add_defaults(rule)
  for _, tool in ipairs(rule.tools) do
    for _, name in ipairs(sorted_names(rule.spec.limit)) do
      local value, property = rule.spec.limit[name].default, (tool.input.properties or {})[name]
      if value and property then
        local list = rule.set[tool.name] or {}
        rule.set[tool.name] = list
        if property.type == "integer" then value = math.tointeger(value) or value end
        list[#list + 1] = { name = name, value = value, default = property.default }
      end
    end
  end
end

local function compile_redact(build, rule)
  if not rule.spec.redact then return end
  local list = {}
  for i, pattern in ipairs(rule.spec.redact) do
    local path = build:under(rule.path, "redact")
    if #rule.spec.redact > 1 then path[#path + 1] = i end
    local regex, why, offset = build.regex(pattern)
    if regex then
      list[#list + 1] = regex
    else
      local place = offset and (" (at byte %d)"):format(offset + 1) or ""
      build:fault(path, ("the regular expression is none: %s%s; mend it"):format(why or "?", place))
    end
  end
  rule.redact = list
end

-- ---- a rule, whole ----

local function compile_rule(build, index, spec, seen)
  local rule = {
    index = index, name = spec.name, spec = spec, path = { "rules", index }, tools = {}, has_tool = {}, known = {}, named = {},
    groups = {}, matchers = {},
  }
  match_tools(build, rule)
  coherence.check(build, rule, seen)
  rule.conditions = when.compile(build, spec.when, build:under(rule.path, "when"))
  rule.set = check_values(build, rule, "set")
  rule.force = check_values(build, rule, "force")
  checks.prepare(build, rule)
  compile_redact(build, rule)
  return rule
end

--- The limits that a creation's metadata is held against.
local function metadata_limits(rule, tool)
  if not (rule.spec.limit and groups.of_entry(tool)["@create"]) then return nil end
  local list = {}
  for _, name in ipairs(sorted_names(rule.spec.limit)) do
    local most = rule.spec.limit[name].max
    if most then list[#list + 1] = { rule = rule.name, argument = name, max = most } end
  end
  return #list > 0 and list or nil
end

local function lifetime_limit(rule, tool)
  local most = rule.spec.quota and rule.spec.quota.lifetime
  local argument = most and counters.lifetime_argument(tool)
  return argument and { rule = rule.name, most = most, argument = argument } or nil
end

--- A rule for one tool. What it lacks is nil.
local function entry_of(rule, tool)
  local list = checks.of(rule, tool)
  return {
    rule = rule, name = rule.name, conditions = rule.conditions, allows = rule.spec.allow == true,
    set = rule.set[tool.name], force = rule.force[tool.name], checks = #list > 0 and list or nil,
    decides = rule.spec.allow and "allow" or rule.spec.ask and "ask" or nil, question = rule.spec.ask,
    reservations = counters.reservations(rule, tool), lifetime = lifetime_limit(rule, tool), redact = rule.redact,
    limits = metadata_limits(rule, tool), is_own_list = rule.spec.list == "own",
  }
end

local function by_tool(build, rules)
  local entries, hides = {}, {}
  for _, tool in ipairs(build.env.tools) do
    entries[tool.name], hides[tool.name] = {}, {}
  end
  for _, rule in ipairs(rules) do
    if not rule.spec.hide then add_defaults(rule) end
    for _, tool in ipairs(rule.tools) do
      local list = rule.spec.hide and hides[tool.name] or entries[tool.name]
      list[#list + 1] = rule.spec.hide and { name = rule.name, conditions = rule.conditions } or entry_of(rule, tool)
    end
  end
  return entries, hides
end

local function counts_anything(entries)
  for _, list in pairs(entries) do
    for _, entry in ipairs(list) do
      if entry.reservations then return true end
    end
  end
  return false
end

local function build_of(env)
  local build = setmetatable({ env = env, faults = {}, warnings = {}, names = {}, is_known = {}, tools_by_name = {} }, Build)
  build.glob = env.glob or require("demilune.core").regex.glob
  build.regex = env.regex or require("demilune.core").regex.new
  for _, tool in ipairs(env.tools) do build.tools_by_name[tool.name] = tool end
  for _, name in ipairs(groups.TOOLS) do build.is_known[name] = true end
  for name in pairs(build.tools_by_name) do build.is_known[name] = true end
  build.names = sorted_names(build.is_known)
  return build
end

--- See rules.compile.
---@param data table
---@param env table
---@return table? compiled
---@return { path: (string|integer)[], text: string }[]? faults
function compile.run(data, env)
  local build, rules, seen = build_of(env), {}, {}
  for i, spec in ipairs(data.rules or {}) do rules[i] = compile_rule(build, i, spec, seen) end
  if #build.faults > 0 then return nil, build.faults end
  local entries, hides = by_tool(build, rules)
  lint.run(build, rules, data)
  return {
    default = data.default, rules = rules, by_tool = entries, hides = hides, counts = counts_anything(entries),
    warnings = build.warnings,
  }
end

return compile
