--- lint.lua - what is probably not meant in a policy that is right: warnings for `demilune check`.
--
-- A warning is about what a rule does not do. Where it could be meant either way, nothing is said: people stop to read warnings
-- that cry wolf.
local arguments = require "demilune.policy.arguments"
local groups = require "demilune.policy.groups"
local when = require "demilune.policy.when"

local lint = {}

--- Groups whose tools do the same thing in other ways, so that a rule for some of them can be walked around.
local TOGETHER = { "@execute", "@read", "@write", "@create" }
--- What keeps a call from running.
local RESTRICTS = { "deny", "ask", "hide", "path", "rate", "quota", "limit", "only", "never", "args" }
local CHECKS = { "limit", "only", "never", "path", "args" }
local TRANSPORTS = { "stdio", "cli", "http" }

-- ---- names and globs that cover a part of a group ----

--- Whether a key of a rule would mean something for a tool.
local function is_about(key, rule, tool)
  local properties = tool.input.properties or {}
  if key == "path" then return properties.path ~= nil end
  if key ~= "limit" and key ~= "only" and key ~= "never" then return true end
  for name in pairs(rule.spec[key]) do
    if properties[name] then return true end
  end
  return false
end

local function restricts(rule)
  for _, key in ipairs(RESTRICTS) do
    if rule.spec[key] ~= nil then return true end
  end
  return false
end

--- Whether some other rule restricts a tool in the same way, or shuts it, or names it, so that somebody thought of it.
local function is_thought_of(rules, rule, tool, key)
  for _, other in ipairs(rules) do
    if other ~= rule and other.has_tool[tool.name] then
      if other.spec[key] ~= nil or other.spec.deny or other.spec.hide then return true end
      if other.named[tool.name] and restricts(other) then return true end
    end
  end
  return false
end

--- Whether a rule restricts by a key that would mean something for a tool which it leaves out, and nobody thought of that.
local function leaves_open(rules, rule, tool)
  for _, key in ipairs(RESTRICTS) do
    if rule.spec[key] ~= nil and is_about(key, rule, tool) and not is_thought_of(rules, rule, tool, key) then return true end
  end
  return false
end

--- What a rule names of a group, and the tools of it that are left open.
local function parts_of(build, rules, rule, group)
  local items, seen, missing = {}, {}, {}
  for _, tool in ipairs(build.env.tools) do
    local item = rule.named[tool.name]
    if groups.of_entry(tool)[group] then
      if rule.has_tool[tool.name] then
        if item and not seen[item] then items[#items + 1] = item end
        if item then seen[item] = true end
      elseif leaves_open(rules, rule, tool) then
        missing[#missing + 1] = tool.name
      end
    end
  end
  return items, missing
end

local function warn_of_parts(build, rules, rule)
  if rule.spec.allow or rule.spec.when and rule.spec.when.tool then return end
  for _, group in ipairs(TOGETHER) do
    local items, missing = parts_of(build, rules, rule, group)
    if #items > 0 and #missing > 0 and not rule.groups[group] then
      build:warn(build:under(rule.path, "match"), ("%s does not cover %s; write %s"):format(
        table.concat(items, ", "), arguments.any_of(missing), group))
    end
  end
end

-- ---- rules that never match ----

local function warn_of_strangers(build, rule, key, known, words)
  local patterns = rule.spec.when and rule.spec.when[key]
  if not patterns or not known then return end
  local matchers = when.matchers(patterns, build.glob)
  for _, name in ipairs(known) do
    if when.any(matchers, name) ~= false then return end
  end
  build:warn(build:under(rule.path, "when", key), ("%s is %s, so the rule never matches; there %s %s"):format(
    arguments.any_of(patterns), words, #known == 1 and "is" or "are", #known > 0 and table.concat(known, ", ") or "none"))
end

--- A condition on what none of a rule's tools has: an `allow` never matches, and every other rule always does.
local function warn_of_lacking(build, rule, key, has_it, words)
  if not rule.spec.when or rule.spec.when[key] == nil or #rule.tools == 0 then return end
  for _, tool in ipairs(rule.tools) do
    if has_it(tool) then return end
  end
  build:warn(build:under(rule.path, "when", key), ("no tool of this rule has %s, so that the rule %s; leave it out"):format(
    words, rule.spec.allow and "never matches" or "matches whatever stands here"))
end

local function is_creation(tool) return groups.of_entry(tool)["@create"] == true end

local function has_sandbox(tool)
  local properties = tool.input.properties or {}
  return is_creation(tool) or properties.sandbox_id ~= nil or properties.task_id ~= nil
end

local function warn_of_owned(build, rule)
  if not rule.spec.when or rule.spec.when.owned ~= false or #rule.tools == 0 then return end
  for _, tool in ipairs(rule.tools) do
    if not is_creation(tool) then return end
  end
  build:warn(build:under(rule.path, "when", "owned"),
    "a sandbox that is made counts as owned, so the rule never matches; match other tools")
end

-- ---- rules that others stand before ----

local function covers(rule, other)
  for _, tool in ipairs(other.tools) do
    if not rule.has_tool[tool.name] then return false end
  end
  return #other.tools > 0
end

local function only_decides(rule)
  for key in pairs(rule.spec) do
    if key ~= "name" and key ~= "match" and key ~= "when" and key ~= "allow" and key ~= "ask" then return false end
  end
  return true
end

--- Why a rule changes nothing, because of another that always matches.
local function shadow_of(rule, other)
  if other == rule or other.spec.hide or other.conditions or not covers(other, rule) then return nil end
  local decides = rule.spec.allow or rule.spec.ask
  if other.spec.deny and (other.index < rule.index or decides) then
    return ("rule %q denies all of its calls, since a check holds whatever another rule allows; leave one out"):format(other.name)
  end
  if other.index < rule.index and decides and only_decides(rule) and (other.spec.allow or other.spec.ask) then
    return ("rule %q before it decides all of its calls; move this one before it, or leave it out"):format(other.name)
  end
end

local function warn_of_shadow(build, rules, rule)
  if rule.spec.hide then return end
  for _, other in ipairs(rules) do
    local why = shadow_of(rule, other)
    if why then return build:warn(rule.path, ("rule %q changes nothing: %s"):format(rule.name, why)) end
  end
end

-- ---- checks that decide nothing, paths that hold nothing ----

--- Whether some rule may let a tool run.
local function may_be_let(rules, default, tool)
  if default ~= "deny" then return true end
  for _, rule in ipairs(rules) do
    if rule.has_tool[tool.name] and (rule.spec.allow or rule.spec.ask) then return true end
  end
  return false
end

local function warn_of_checks(build, rules, rule, data)
  local has_check = false
  for _, key in ipairs(CHECKS) do has_check = has_check or rule.spec[key] ~= nil end
  if data.default ~= "deny" or not has_check or rule.spec.deny or rule.spec.allow or rule.spec.ask then return end
  for _, tool in ipairs(rule.tools) do
    if may_be_let(rules, data.default, tool) then return end
  end
  build:warn(rule.path, ('rule %q only checks, and default = "deny" denies what it lets pass; write allow = true beside'):format(
    rule.name))
end

local function is_shut(rules, tool)
  for _, rule in ipairs(rules) do
    if not rule.conditions and rule.has_tool[tool.name] and (rule.spec.deny or rule.spec.hide) then return true end
  end
  return false
end

local function warn_of_paths(build, rules, rule, data)
  if not rule.spec.path then return end
  for _, tool in ipairs(build.env.tools) do
    local is_open = groups.of_entry(tool)["@execute"] and not is_shut(rules, tool) and may_be_let(rules, data.default, tool)
    if is_open then
      return build:note(build:under(rule.path, "path"),
        ("`path` keeps file tools from accidents and not an agent that runs commands, and %s is open; "
          .. "deny @execute too where that matters"):format(tool.name))
    end
  end
end

-- ---- sizes ----

--- Sizes that cannot be meant: below and above is another unit. MB, and seconds.
local SIZES = {
  memory = { least = 16, most = 1 << 20, unit = "MB", words = "write 2048 for 2 GB" },
  timeout = { least = 1, most = 31 * 86400, unit = "seconds", words = "write 3600 for an hour" },
}

local function warn_of_size(build, name, value, path)
  local size = SIZES[name]
  if not size or not math.type(value) or (value >= size.least and value <= size.most) then return end
  build:warn(path, ("%s is in %s, and %.14g of them cannot be meant; %s"):format(name, size.unit, value, size.words))
end

local function warn_of_sizes(build, rule)
  for name, limit in pairs(rule.spec.limit or {}) do
    local path = build:under(rule.path, "limit", name)
    warn_of_size(build, name, limit.max, path)
    if limit.default ~= limit.max then warn_of_size(build, name, limit.default, path) end
  end
  for _, key in ipairs { "set", "force" } do
    for name, value in pairs(rule.spec[key] or {}) do warn_of_size(build, name, value, build:under(rule.path, key, name)) end
  end
end

--- A creation that says no size gets its template's, whatever the rule's `max` is: it is made, and then killed.
local function warn_of_templates(build, rule)
  for _, name in ipairs { "memory", "cpu" } do
    local limit = (rule.spec.limit or {})[name]
    local is_meant = limit and limit.max and (not SIZES[name] or limit.max >= SIZES[name].least)
    local is_filled = is_meant and (limit.default or (rule.spec.set or {})[name] or (rule.spec.force or {})[name])
    local is_open = is_meant and not is_filled and rule.has_tool.create_sandbox
    for _, template in ipairs(is_open and build.env.templates or {}) do
      if template[name] and template[name] > limit.max then
        return build:warn(build:under(rule.path, "limit", name),
          ("the template %s has %.14g of %s when a call says nothing, which this denies; "
            .. "write { max = %.14g, default = %.14g }"):format(template.name, template[name], name, limit.max, limit.max))
      end
    end
  end
end

--- Notes all warnings about compiled rules.
---@param build demilune.policy.Build
---@param rules table[]
---@param data table  the policy
function lint.run(build, rules, data)
  for _, rule in ipairs(rules) do
    warn_of_parts(build, rules, rule)
    warn_of_strangers(build, rule, "provider", build.env.provider_ids, "no provider of the configuration")
    warn_of_strangers(build, rule, "transport", TRANSPORTS, "no transport")
    warn_of_strangers(build, rule, "principal", build.env.principals, "no principal of the configuration")
    warn_of_lacking(build, rule, "template", is_creation, "a template")
    warn_of_lacking(build, rule, "owned", has_sandbox, "a sandbox")
    warn_of_owned(build, rule)
    warn_of_shadow(build, rules, rule)
    warn_of_checks(build, rules, rule, data)
    warn_of_paths(build, rules, rule, data)
    warn_of_sizes(build, rule)
    warn_of_templates(build, rule)
  end
end

return lint
