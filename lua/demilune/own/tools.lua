--- own/tools.lua - the operator's own tools: their files found, evaluated and checked, all or none.
--
-- What is loaded here is a list of tables as the files of lua/demilune/tools return them; tools.build makes entries of both.
-- Nothing is kept: a reload evaluates every file again, and whoever asked keeps the old list where one is wrong.
local context = require "demilune.own.context"
local contract = require "demilune.own.contract"
local core = require "demilune.core"
local file = require "demilune.own.file"
local result = require "demilune.own.result"
local schema = require "demilune.schema"
local source = require "demilune.config.source"

local own = {}

--- Files in all.
own.FILES_MAX = 64
local DEFAULT_ORDER = 1000

--- The files of all patterns, each once.
local function paths_of(patterns, faults)
  local paths, seen = {}, {}
  for _, pattern in ipairs(patterns) do
    local found, fault = file.find(pattern)
    faults[#faults + 1] = fault
    for _, path in ipairs(found or {}) do
      if not seen[path] then
        seen[path] = true
        paths[#paths + 1] = path
      end
    end
  end
  return paths
end

--- The schema of the arguments as schema.check takes it: nothing but what is named.
local function input_of(given)
  local input = { type = "object", properties = {}, additionalProperties = false }
  for key, value in pairs(given or {}) do
    if key ~= "additionalProperties" then input[key] = value end
  end
  if input.required and #input.required == 0 then input.required = nil end
  return input
end

local function may_be_null(node)
  if type(node) ~= "table" then return false end
  for _, name in ipairs(type(node.type) == "table" and node.type or { node.type }) do
    if name == "null" then return true end
  end
  return false
end

--- The schema of the result; `nulls` as of tools/shape.lua: what a handler leaves out of them becomes null.
local function output_of(given)
  local out, nulls = { type = "object" }, {}
  for key, value in pairs(given or {}) do out[key] = value end
  if out.required and #out.required == 0 then out.required = nil end
  for name, node in pairs(out.properties or {}) do
    if may_be_null(node) then nulls[#nulls + 1] = name end
  end
  out.nulls, out.is_sealed = nulls, true
  return out
end

--- A title for a tool that has none: "disk_usage" is "Disk usage".
local function title_of(name)
  return (name:gsub("[_-]", " "):gsub("^%l", string.upper))
end

--- The tool as tools.build takes it: a copy, so that nothing of the file's table is touched.
local function tool_of(given, path)
  local output = output_of(given.output)
  return {
    name = given.name, title = given.title or title_of(given.name), description = given.description,
    order = given.order or DEFAULT_ORDER, effect = given.effect, is_open_world = given.is_open_world, groups = given.groups,
    task = given.task,
    input = input_of(given.input), output = output, file = path, is_own = true,
    -- Where there is no sandbox yet, the tool works in one of its caller's: what it does there is judged by itself.
    creates_default = true,
    handler = function(call, args) return result.of(given.handler(context.new(call, path), args), output, path) end,
  }
end

--- Faults of a table, each with the line of its file where the key stands, or would.
local function placed(path, found)
  local tokens, list = #found > 0 and source.tokens(core.fs.read(path, file.BYTES_MAX) or ""), {}
  for i, one in ipairs(found) do
    list[i] = { file = path, line = source.line_of(tokens, one.path), text = one.text }
  end
  return list
end

--- The tool of a file's table, or its faults. What a table of an odd making raises when it is looked at is a fault too.
local function made_of(given, path)
  local is_plain, found = pcall(contract.faults, given)
  if is_plain and #found > 0 then return nil, placed(path, found) end
  local ok, tool = pcall(function()
    if not is_plain then error(found, 0) end
    local made = tool_of(given, path)
    -- Clients are told both, and one that cannot be JSON would spoil the whole list of tools.
    core.json.encode { schema.public(made.input), schema.public(made.output) }
    return made
  end)
  if ok then return tool end
  return nil, { { file = path, text = ("its table cannot be used: %s; return one of plain values"):format(tostring(tool)) } }
end

local function load_file(path, by_name, faults)
  local given, fault = file.evaluate(path)
  if not given then
    faults[#faults + 1] = fault
    return nil
  end
  local tool, found = made_of(given, path)
  if tool and by_name[tool.name] then
    local text = ("name is %s, as that of %s is; give each its own"):format(tool.name, by_name[tool.name])
    tool, found = nil, placed(path, { { path = { "name" }, text = text } })
  end
  for _, one in ipairs(found or {}) do faults[#faults + 1] = one end
  if tool then by_name[tool.name] = path end
  return tool
end

--- Loads all tools. Evaluates every file, also after a fault.
---@param patterns string[]  paths; the last part may have * and ?
---@return demilune.Tool[]? tools  in their order, then that of the files; nil where anything is wrong
---@return demilune.own.Fault[] faults
function own.load(patterns)
  local faults, list, by_name = {}, {}, {}
  local paths = paths_of(patterns, faults)
  if #paths > own.FILES_MAX then
    local text = ("there are more than %d files of tools; leave some out"):format(own.FILES_MAX)
    faults[#faults + 1] = { file = paths[own.FILES_MAX + 1], text = text }
    return nil, faults
  end
  for _, path in ipairs(paths) do list[#list + 1] = load_file(path, by_name, faults) end
  if #faults > 0 then return nil, faults end
  for place, tool in ipairs(list) do tool.place = place end
  table.sort(list, function(a, b)
    if a.order ~= b.order then return a.order < b.order end
    return a.place < b.place
  end)
  return list, faults
end

--- Faults as a text of a line each.
---@param faults demilune.own.Fault[]
---@return string
function own.words(faults)
  local lines = {}
  for i, fault in ipairs(faults) do lines[i] = file.line_of(fault) end
  return table.concat(lines, "\n")
end

return own
