--- tools/init.lua - the contract of a tool, and the registry.
--
-- A tool is a file in this folder that returns one table: data plus one handler. Adding a tool is adding a file.
--
--   name, title, description   description may be a function(env) of what is configured
--   order                      place in tools/list
--   effect                     row of EFFECTS below: the annotations
--   is_open_world              it reaches beyond sandboxes, whatever its row says
--   groups                     of the policy language, where groups.lua does not name them
--   task                       "optional", "required": it may, or must, be answered with a task of the protocol
--   needs                      a field of env without which the tool is not there
--   input, output              schema of arguments and of the result, or function(env)
--   handler(call, args)        args are checked; returns the result's table or raises an error of errors.lua
--
-- An operator's own tools are files elsewhere of nearly the same contract: see docs/extending.md and own/tools.lua.
local core = require "demilune.core"
local groups = require "demilune.policy.groups"
local own = require "demilune.own.tools"
local schema = require "demilune.schema"
local shape = require "demilune.tools.shape"

local tools = {}

---@class demilune.Tool
---@field name string
---@field title string
---@field description string|fun(env: table): string
---@field order integer
---@field effect string
---@field is_open_world? boolean
---@field task? "optional"|"required"
---@field needs? string
---@field input table|fun(env: table): table
---@field output table|fun(env: table): table
---@field handler fun(call: demilune.Call, args: table): table

--- Hints of MCP's ToolAnnotations: read only, destructive, idempotent, open world. `network` = only where a template has one.
local EFFECTS = {
  read = { true, false, true, false },
  create = { false, false, false, false },
  execute = { false, true, false, "network" },
  write = { false, true, true, false },
  lifetime = { false, true, false, false },
  destroy = { false, true, true, false },
}

local function annotations(tool, env)
  local row = EFFECTS[tool.effect]
  local open = tool.is_open_world or row[4]
  if open == "network" then open = env.has_network end
  local destructive = row[2]
  -- "sandboxed": what cannot leave the sandbox is not called destructive, so that clients ask less often.
  if env.annotations == "sandboxed" and (tool.effect == "execute" or tool.effect == "write") then destructive = false end
  return { readOnlyHint = row[1], destructiveHint = destructive, idempotentHint = row[3], openWorldHint = open }
end

local function resolve(part, env)
  if type(part) == "function" then return part(env) end
  return part
end

local function load_all()
  local dir = assert(package.searchpath("demilune.tools", package.path)):match "^(.*)/"
  local names = {}
  for _, file in ipairs(assert(core.fs.list(dir))) do
    local name = file:match "^(%l[%l%d_]*)%.lua$"
    if name and name ~= "init" and name ~= "shape" then names[#names + 1] = name end
  end
  local list = {}
  for _, name in ipairs(names) do list[#list + 1] = require("demilune.tools." .. name) end
  table.sort(list, function(a, b) return a.order < b.order end)
  return list
end

local function entry_of(tool, env)
  local input, output = resolve(tool.input, env), shape.with_note(resolve(tool.output, env))
  return {
    name = tool.name, tool = tool, input = input, output = output, handler = tool.handler,
    groups = groups.of(tool.name, tool.groups),
    definition = {
      name = tool.name, title = tool.title, description = resolve(tool.description, env),
      inputSchema = schema.public(input), outputSchema = schema.public(output), annotations = annotations(tool, env),
    },
  }
end

--- The tools as configured: a list in order, and the same by name. Each entry has `definition` (what clients see, newest
--- revision), `input` (for checking) and `handler`.
---@param env table  of the configuration, see `environment` in app.lua
---@param own_tools? demilune.Tool[]  of tools.load_own; they stand at the end
---@return table[] list
---@return table<string, table> by_name
function tools.build(env, own_tools)
  local list, by_name = {}, {}
  local function add(tool)
    if tool.needs and not env[tool.needs] then return end
    list[#list + 1] = entry_of(tool, env)
    by_name[tool.name] = list[#list]
  end
  for _, tool in ipairs(load_all()) do add(tool) end
  for _, tool in ipairs(own_tools or {}) do add(tool) end
  return list, by_name
end

--- Loads the operator's own tools, all or none.
---@param patterns string[]  `tools` of the configuration
---@return demilune.Tool[]? own_tools
---@return string? fault  every mistake, a line each
function tools.load_own(patterns)
  local list, faults = own.load(patterns)
  if list then return list end
  return nil, own.words(faults)
end

--- Every mistake in the operator's own tools; nothing where all is well.
---@param patterns string[]  `tools` of the configuration
---@return demilune.own.Fault[]
function tools.check(patterns)
  local _, faults = own.load(patterns)
  return faults
end

return tools
