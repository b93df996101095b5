--- checks.lua - the checks of a rule for one tool, each a function of a call that returns nothing or a refusal.
--
-- They run on rewritten arguments. Whatever cannot be decided (a glob at its limit, a path whose end is not known) is refused.
local arguments = require "demilune.policy.arguments"
local json_schema = require "demilune.json_schema"
local keys = require "demilune.policy.keys"
local paths = require "demilune.policy.paths"
local when = require "demilune.policy.when"

local checks = {}

---@class demilune.policy.Refusal
---@field reason string
---@field category? string   nil: policy_denied
---@field field? string
---@field expected? string
---@field allowed? string[]

local function number_text(number) return ("%.14g"):format(number) end

--- "from 1 to 4", "at most 4".
local function range(limit)
  if limit.min and limit.max then return ("from %s to %s"):format(number_text(limit.min), number_text(limit.max)) end
  if limit.max then return "at most " .. number_text(limit.max) end
  return "at least " .. number_text(limit.min)
end

--- Whether rewriting chose another provider than the one that the view knows about.
local function is_elsewhere(ctx)
  return ctx.args.provider ~= nil and ctx.args.provider ~= ctx.view.provider
end

--- Whether rewriting chose another sandbox than the one that the view knows about.
local function is_moved(ctx) return ctx.args.sandbox_id ~= ctx.view.args.sandbox_id end

--- How long a sandbox lives that is made without saying, where that is known.
local function default_lifetime(ctx)
  if not ctx.view.group["@create"] or is_elsewhere(ctx) then return nil end
  return ctx.view.lifetime_s
end

local function limit_check(name, limit)
  local least, most, words = limit.min or -math.huge, limit.max or math.huge, range(limit)
  local is_timeout = name == "timeout"
  return function(ctx)
    local value = ctx.args[name]
    if value == nil and is_timeout then value = default_lifetime(ctx) end
    -- Written so that NaN and what is no number are refused.
    if value == nil or (math.type(value) and value >= least and value <= most) then return nil end
    return { field = name, expected = words, reason = ("%s must be %s"):format(name, words) }
  end
end

--- What a call says about some arguments that it may leave out: the provider and what hangs on it are resolved before.
local RESOLVED = {
  provider = function(ctx) return ctx.view.provider end,
  template = function(ctx)
    if is_elsewhere(ctx) then return nil end
    return ctx.view.template
  end,
  sandbox_id = function(ctx)
    if is_moved(ctx) then return nil end
    return ctx.view.sandbox and ctx.view.sandbox.id
  end,
}

--- Whether an argument that is not known may be anything: rewriting has changed what the view knows it from.
local function is_open(ctx, name)
  return (name == "template" and is_elsewhere(ctx)) or (name == "sandbox_id" and is_moved(ctx))
end

--- The text of an argument as rules judge it; nil where it is not known.
local function text_of(ctx, name)
  local given, resolve = ctx.args[name], RESOLVED[name]
  -- The same sandbox has an id with and without its provider's; rules see the one that we show.
  if name == "sandbox_id" and given ~= nil and not is_moved(ctx) then return resolve(ctx) or given end
  if given ~= nil or not resolve then return given end
  return resolve(ctx)
end

local function only_check(name, patterns, matchers)
  return function(ctx)
    local text = text_of(ctx, name)
    if type(text) == "string" and when.any(matchers, text) then return nil end
    local why = text == nil and ("%s must be given: it is not known what it would be"):format(name)
      or ("%s is not one of those that are allowed"):format(name)
    return { field = name, expected = "one that matches " .. arguments.any_of(patterns), allowed = patterns, reason = why }
  end
end

local function never_check(name, patterns, matchers)
  local any, reason = when.any, ("%s is one of those that are denied"):format(name)
  local expected = "one that does not match " .. arguments.any_of(patterns)
  return function(ctx)
    local given, text = ctx.args[name], text_of(ctx, name)
    if text == nil and not is_open(ctx, name) then return nil end
    local is_clear = type(text) == "string" and any(matchers, text) == false
    if is_clear and type(given) == "string" and given ~= text then is_clear = any(matchers, given) == false end
    if is_clear then return nil end
    return { field = name, expected = expected, reason = reason }
  end
end

local NO_PATH = "it is not known where the path leads in the sandbox"

--- Where a path leads, asked once in a call. A sandbox that is yet to be made has no links.
local function real_path(ctx, path)
  if is_moved(ctx) then return nil end
  local sandbox = ctx.view.sandbox
  if not (sandbox and sandbox.id) then return path end
  if ctx.real_path == nil then
    local real = ctx.io.real_path and ctx.io.real_path(ctx.view, path)
    ctx.real_path = type(real) == "string" and paths.normalize(real, ctx.view.workdir) or false
  end
  return ctx.real_path
end

local function path_check(compiled)
  return function(ctx)
    local path = ctx.args.path
    if path == nil then path = "." end
    if type(path) ~= "string" then return { field = "path", reason = NO_PATH } end
    local given = paths.normalize(path, ctx.view.workdir)
    local is_allowed, why = paths.judge(compiled, given)
    if not is_allowed then return { field = "path", reason = "path " .. why } end
    local real = real_path(ctx, path)
    if not real then return { field = "path", reason = NO_PATH } end
    if real == path then return nil end
    is_allowed, why = paths.judge(compiled, real)
    if not is_allowed then return { field = "path", reason = "where path leads " .. why } end
    return nil
  end
end

local function args_check(validator)
  return function(ctx)
    local fits, misfit = validator:check(ctx.args)
    if fits then return nil end
    local field = misfit.path[1]
    return {
      field = field, expected = misfit.expected, reason = field and ("%s is not what the rule takes"):format(field)
        or "the arguments are not what the rule takes",
    }
  end
end

local function deny_check(reason)
  local refusal = { reason = reason }
  return function() return refusal end
end

-- ---- from what a rule says ----

local function sorted_names(map)
  local names = {}
  for name in pairs(map or {}) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function check_limit(build, rule, name, limit, path)
  if keys.quota.fields[name] and name ~= "per" then
    return build:fault(path, ("`%s` is no argument but a count; write quota = { %s = %s } in place of it"):format(name, name,
      limit.max and number_text(limit.max) or "…"))
  end
  if limit.max == nil and limit.min == nil and limit.default == nil then
    return build:fault(path, ("`limit.%s` is empty; write a number or { max = … }"):format(name))
  end
  if limit.max and limit.min and limit.min > limit.max then
    build:fault(path, ("`min` of %s is above its `max`; swap them"):format(name))
  end
  local default = limit.default
  if default and ((limit.max and default > limit.max) or (limit.min and default < limit.min)) then
    build:fault(build:under(path, "default"), ("`default` of %s must be %s; change one of them"):format(name, range(limit)))
  end
  for _, tool in ipairs(arguments.having(build, rule, name, path)) do
    if not arguments.is_number(tool.input.properties[name]) then
      build:fault(path, ("`%s` of %s is no number; write `only` or `never` for texts"):format(name, tool.name))
    elseif default then
      arguments.check_value(build, tool, name, default, build:under(path, "default"))
    end
  end
end

local function check_texts(build, rule, key)
  for _, name in ipairs(sorted_names(rule.spec[key])) do
    local path = build:under(rule.path, key, name)
    for _, tool in ipairs(arguments.having(build, rule, name, path)) do
      if not arguments.is_text(tool.input.properties[name]) then
        local way_out = arguments.is_number(tool.input.properties[name]) and "write `limit` for numbers" or "write `args`"
        build:fault(path, ("`%s` of %s is no text; %s"):format(name, tool.name, way_out))
      end
    end
    rule.matchers[key .. "." .. name] = build:globs(rule.spec[key][name], path)
  end
end

--- The glob that somebody meant who wrote a regular expression, nil where it is none.
local function glob_meant(pattern)
  if not (pattern:find("%.[*+]") or pattern:find "^%^" or pattern:find "%$$" or pattern:find "\\%.") then return nil end
  local glob = pattern:gsub("^%^", ""):gsub("%$$", ""):gsub("\\%.", "\0"):gsub("%.[*+]", "*"):gsub("%z", ".")
  if glob:find "[()|+\\]" then return "**/*.pem" end
  glob = glob:gsub("^%*+/?%**", "")
  return glob:sub(1, 1) == "/" and glob or "**/*" .. glob
end

--- What to write in place of a pattern that no path can match.
local function no_path_words(pattern)
  local glob = glob_meant(pattern)
  if glob then
    return ("%q looks like a regular expression, and paths take globs; write one such as %q"):format(pattern, glob)
  end
  local meant = pattern:gsub("^~/", "/home/user/"):gsub("^%./", "")
  local full = meant:sub(1, 1) == "/" and meant or "**/" .. meant
  return ("%q matches no path, since paths begin with /; write %q"):format(pattern, full)
end

local function check_path_globs(build, list, path)
  for i, pattern in ipairs(list or {}) do
    local at = build:under(path, i)
    local matches, why = paths.matcher(pattern, build.glob, true)
    if not matches then
      build:fault(at, ("the glob %q: %s; mend it"):format(pattern, why or "is none"))
    elseif not (pattern:find "^/" or pattern:find "^%*%*" or pattern:find "^{") then
      build:fault(at, no_path_words(pattern))
    end
  end
end

--- Whether a tool has a path that `path` rules judge.
---@param tool table
---@return boolean
function checks.has_path(tool)
  local property = (tool.input.properties or {}).path
  return property ~= nil and arguments.is_text(property)
end

local function check_path(build, rule)
  local spec, path = rule.spec.path, build:under(rule.path, "path")
  if not spec.allow and not spec.deny then
    return build:fault(path, '`path` is empty; write deny = { "/secret/**" } or allow = { … } in it')
  end
  check_path_globs(build, spec.allow, build:under(path, "allow"))
  check_path_globs(build, spec.deny, build:under(path, "deny"))
  local has_one = #rule.tools == 0
  for _, tool in ipairs(rule.tools) do has_one = has_one or checks.has_path(tool) end
  if not has_one then
    build:fault(path, '`path` holds tools with a path, and this rule matches none; write match = { "@read", "@write" }')
  end
  rule.compiled_path = paths.compile(spec, build.glob)
end

--- Keywords that say something to a reader of a schema; a rule has none.
local NOT_FOR_RULES = {
  default = "it fills in nothing; write `set` in the rule", format = "it is not held; write `pattern`",
}
for _, keyword in ipairs {
  "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema", "$vocabulary",
} do
  NOT_FOR_RULES[keyword] = "it holds nothing; leave it out"
end

--- How `args` is compiled: whoever writes a rule thinks that all of it holds. Arguments may come from a file of Lua.
local function args_options(regex)
  return {
    is_strict = true, is_of_lua = true, regex = regex, refuse = function(keyword) return NOT_FOR_RULES[keyword] end,
  }
end

--- Holds what a rule's checks say against its tools; notes faults and keeps what is compiled once for all of them.
---@param build demilune.policy.Build
---@param rule table
function checks.prepare(build, rule)
  local spec = rule.spec
  for _, name in ipairs(sorted_names(spec.limit)) do
    check_limit(build, rule, name, spec.limit[name], build:under(rule.path, "limit", name))
  end
  check_texts(build, rule, "only")
  check_texts(build, rule, "never")
  if spec.path then check_path(build, rule) end
  if spec.args then
    local validator, faults = json_schema.compile(spec.args, args_options(build.regex))
    for _, fault in ipairs(faults or {}) do
      build:fault(build:under(rule.path, "args", table.unpack(fault.path)), fault.text)
    end
    rule.validator = validator
  end
end

local function add(list, key, run) list[#list + 1] = { key = key, run = run } end

--- The checks of a prepared rule for one of its tools, in the order in which they run.
---@param rule table
---@param tool table
---@return { key: string, run: fun(ctx: table): demilune.policy.Refusal? }[]
function checks.of(rule, tool)
  local spec, list, properties = rule.spec, {}, tool.input.properties or {}
  if spec.deny then add(list, "deny", deny_check(spec.deny)) end
  for _, name in ipairs(sorted_names(spec.limit)) do
    local limit = spec.limit[name]
    if properties[name] and (limit.max or limit.min) then add(list, "limit." .. name, limit_check(name, limit)) end
  end
  for _, name in ipairs(sorted_names(spec.only)) do
    if properties[name] then
      add(list, "only." .. name, only_check(name, spec.only[name], rule.matchers["only." .. name]))
    end
  end
  for _, name in ipairs(sorted_names(spec.never)) do
    if properties[name] then
      add(list, "never." .. name, never_check(name, spec.never[name], rule.matchers["never." .. name]))
    end
  end
  if spec.path and checks.has_path(tool) then add(list, "path", path_check(rule.compiled_path)) end
  if spec.args then add(list, "args", args_check(rule.validator)) end
  return list
end

return checks
