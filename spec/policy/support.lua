--- What the specs of the policy share: the tools as they are configured, compiled policies, calls.

local check = require "demilune.config.check"
local core = require "demilune.core"
local groups = require "demilune.policy.groups"
local keys = require "demilune.policy.keys"
local rules = require "demilune.policy.rules"
local schema = require "demilune.schema"
local tools = require "demilune.tools"

local support = {}

--- Made once: building them reads files.
local built = {}

local OUTPUT = { stdout = 16384, stderr = 8192, read_file = 32768, list_files = 200, download_file = 24576 }

--- The tools of a configuration with two providers; without Veryfront's where `options.is_plain`.
function support.tools(options)
  local is_plain = options ~= nil and options.is_plain == true
  built[is_plain] = built[is_plain] or tools.build {
    template_names = "base", provider_ids = { "local", "cloud" }, max_lifetime = 86400, output = OUTPUT, has_default = true,
    languages = { "python", "bash" },
    has_veryfront = not is_plain, annotations = "strict",
  }
  return built[is_plain]
end

--- What rules.compile needs; `fields` add to it.
function support.env(fields)
  local env = { tools = support.tools(fields), provider_ids = { "local", "cloud" } }
  for key, value in pairs(fields or {}) do env[key] = value end
  return env
end

--- A policy that is compiled, faults of both kinds as texts "path: text".
function support.compile(data, env)
  local filled, faults = check.run(data, keys.root)
  local compiled
  if #faults == 0 then compiled, faults = rules.compile(filled, env or support.env()) end
  local texts = {}
  for i, fault in ipairs(faults or {}) do
    local names = {}
    for k, key in ipairs(fault.path) do names[k] = tostring(key) end
    texts[i] = table.concat(names, ".") .. ": " .. fault.text
  end
  return compiled, texts
end

--- The same for a list of rules, which must be right.
function support.rules(list, default, env)
  for i, rule in ipairs(list) do rule.name = rule.name or "r" .. i end
  local compiled, faults = support.compile({ default = default or "allow", rules = list }, env)
  assert(compiled, table.concat(faults, "\n"))
  return compiled
end

--- The arguments that a tool's smallest call has.
local SMALLEST = {
  run_code = { code = "1" }, run_command = { command = "ls" }, start_background_task = { command = "ls" },
  read_file = { path = "a" }, write_file = { path = "a", content = "" }, download_file = { path = "a" },
  upload_file = { path = "a", content_base64 = "" }, set_sandbox_timeout = { timeout = 60 },
  get_background_task = { task_id = "t" }, cancel_background_task = { task_id = "t" },
  veryfront__create_sandbox = { access_scope = "project" },
  veryfront__update_sandbox_lifetime = { sandbox_id = "11111111-1111-4111-8111-111111111111", ttl_mode = "default" },
}

local IN_SANDBOX = { ["@execute"] = true, ["@read"] = true, ["@write"] = true, ["@destroy"] = true }

local function sandbox_of(tool)
  for group in pairs(groups.of(tool)) do
    if IN_SANDBOX[group] then return { id = "sb", owned = true, created_at = 1000 } end
  end
  if tool == "set_sandbox_timeout" or tool == "get_sandbox" then return { id = "sb", owned = true, created_at = 1000 } end
  return nil
end

--- A view of a call; `fields` replace parts of it, and `false` takes one away. Arguments are checked as a call's are.
function support.view(tool, args, fields)
  local given = args or SMALLEST[tool] or {}
  local entry
  for _, one in ipairs(support.tools()) do
    if one.name == tool then entry = one end
  end
  local view = {
    tool = tool, group = groups.of(tool), args = entry and schema.check(entry.input, given) or given, principal = "local:me",
    client = { name = "spec", version = "1" }, transport = "stdio", provider = "local", sandbox = sandbox_of(tool),
    template = groups.of(tool)["@create"] and "base" or nil, time = 1000, lifetime_s = 3600,
  }
  for key, value in pairs(fields or {}) do
    if value == false then view[key] = nil else view[key] = value end
  end
  return view
end

--- What a decision needs of a world in which everything is plain; `fields` replace parts of it.
function support.world(fields)
  local world = {
    validate = function(tool, args)
      for _, one in ipairs(support.tools()) do
        if one.name == tool then return schema.check(one.input, args) end
      end
    end,
    real_path = function(_, path) return path end,
    reserve = function() return { is_ticket = true } end,
  }
  for key, value in pairs(fields or {}) do
    if value == false then world[key] = nil else world[key] = value end
  end
  return world
end

--- Decides a call under rules that are compiled already.
function support.decide(compiled, tool, args, fields, world)
  return rules.decide(compiled, support.view(tool, args, fields), support.world(world))
end

--- "allow", or "deny by RULE", "ask by RULE", with the category where it is not policy_denied.
function support.words(decision)
  local words = decision.verdict
  if words ~= "allow" then words = words .. " by " .. tostring(decision.rule) end
  if decision.category and decision.category ~= "policy_denied" then words = words .. ", " .. decision.category end
  return words
end

support.json = core.json

return support
