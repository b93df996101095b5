--- policy/load.lua - a policy's file becomes a loaded policy, or a list of everything that is wrong with it.
--
-- The text runs in the fence, not here. What comes back is data: held against the shapes, then compiled against the tools and
-- providers that there are. Where a fault stands is found afterwards in the text, so a message names the line that a person
-- has to change, in whichever of the policy's files that is.
local advice = require "demilune.policy.advice"
local check = require "demilune.config.check"
local core = require "demilune.core"
local keys = require "demilune.policy.keys"
local places = require "demilune.policy.places"
local rules = require "demilune.policy.rules"
local zone = require "demilune.zone"

local load = {}

local FILE_BYTES_MAX = 1 << 20
local VERSION_DIGITS = 16
local MB = 1 << 20
local FUNCTIONS = { "before", "after", "list" }

---@class demilune.policy.Fault
---@field file string     the path of the policy or of a file that it requires
---@field line? integer   nil: about the file as a whole
---@field text string     "what is wrong; the way out"

---@class demilune.policy.State
---@field data table              what the file returned, defaults filled in
---@field version string          its own, or the digest
---@field digest string           of its files, whatever it calls itself
---@field fence? table            core.fence's worker; nil where the policy has no functions
---@field compiled table          of rules.compile
---@field warnings demilune.policy.Fault[]
---@field path string
---@field files string[]          what it consists of, its own file first
---@field tools_by_name table<string, table>
---@field is_rehearsed? boolean   it decides no real call
local State = {}
State.__index = State

--- Ends its worker. Twice is fine.
function State:close()
  if self.fence then self.fence:stop() end
end

local function fault_of(file, line, text) return { file = file, line = line, text = text } end

--- The text of a file that is one, or nil and the fault.
local function text_of(path)
  local bytes, err = core.fs.read(path, FILE_BYTES_MAX)
  if not bytes then return nil, fault_of(path, nil, advice.of_reading(err)) end
  local text, line, words = advice.as_text(bytes)
  if not text then return nil, fault_of(path, line, words) end
  return text
end

---@class demilune.policy.Sources
---@field dir string  with a slash at its end, or empty
---@field list { path: string, name: string, text: string }[]
local Sources = {}
Sources.__index = Sources

--- The file that the fence names, which knows it as "policy.lua" or by what it was required as; else the policy's own.
---@param name? string
---@return { path: string, name: string, text: string }
function Sources:named(name)
  for _, file in ipairs(self.list) do
    if file.name == name then return file end
  end
  return self.list[1]
end

--- Finds `require "name"` beside the policy. What is wrong with the file is kept, since the fence only hears that there is none.
---@param module string  checked by the fence
---@return string? text
function Sources:find(module)
  local name = module:gsub("%.", "/") .. ".lua"
  local path = self.dir .. name
  local text, fault = text_of(path)
  if not text then
    self.fault = self.fault or fault
    return nil
  end
  self.list[#self.list + 1] = { path = path, name = module .. ".lua", text = text }
  return text
end

local function digest(sources)
  local parts = {}
  for i, file in ipairs(sources.list) do parts[i] = ("%s\0%d\0%s"):format(file.name, #file.text, file.text) end
  return core.crypto.sha256(table.concat(parts, "\0")):sub(1, VERSION_DIGITS)
end

local function limits_of(limits)
  if not limits then return nil end
  return {
    instructions = limits.instructions, memory_bytes = limits.memory and limits.memory * MB, cpu_ms = limits.cpu_ms,
    wall_ms = limits.wall_ms,
  }
end

--- Runs the text in a new fence.
local function evaluate(sources, env)
  local fence, err = core.fence.start { limits = limits_of(env.limits) }
  if not fence then
    return nil, { fault_of(sources.list[1].path, nil, "the process for policies cannot be started: " .. err.message) }
  end
  local main = sources.list[1]
  local data, fault = fence:load(main.text, main.name, function(module) return sources:find(module) end)
  if data then return fence, data end
  fence:stop()
  local file = sources:named(fault.file)
  local path, line = file.path, fault.line
  if fault.kind == "value" and advice.has_return(file.text) then
    local odd = places.keys(fault.text)
    -- Of keys that are of two kinds, the one without a name is the odd one.
    if fault.text:find("neither", 1, true) then odd[#odd + 1] = 1 end
    path, line = places.new(sources.list, {}):of(odd)
  end
  return nil, { fault_of(path, line, advice.of_fault(fault, file.text, sources.fault)) }
end

local function by_place(sources)
  local rank = {}
  for i, file in ipairs(sources.list) do rank[file.path] = i end
  return function(a, b)
    if a.file ~= b.file then return (rank[a.file] or 0) < (rank[b.file] or 0) end
    if a.line ~= b.line then return (a.line or 0) < (b.line or 0) end
    return a.text < b.text
  end
end

local function value_at(data, path)
  local value = data
  for _, key in ipairs(path) do
    if type(value) ~= "table" then return nil end
    value = rawget(value, key)
  end
  return value
end

--- `default = allow` gives the function of that name; what was meant is the word.
local function advised(data, fault)
  local is_word = fault.text:find(", not a function; ", 1, true) and type(value_at(data, fault.path)) == "function"
  if not is_word then return fault.text end
  return (fault.text:gsub("; [^;]*$", "; put a word in quotes"))
end

--- The faults without "has no `match`" where `macth` stands in the same table and is a fault already.
local function without_echoes(faults)
  local meant, out = {}, {}
  for _, fault in ipairs(faults) do
    local name = fault.text:match "did you mean `([^`]+)`"
    if name then meant[table.concat(fault.path, "\0", 1, #fault.path - 1) .. "\0" .. name] = true end
  end
  for _, fault in ipairs(faults) do
    local name = fault.text:match " has no `([^`]+)`; "
    if not (name and meant[table.concat(fault.path, "\0") .. "\0" .. name]) then out[#out + 1] = fault end
  end
  return out
end

--- Faults with paths of keys as faults with places, in the order in which they stand.
local function placed(sources, data, faults)
  local out, seen = {}, {}
  local found = places.new(sources.list, data)
  for _, fault in ipairs(without_echoes(faults)) do
    local file, line = found:of(fault.path)
    local text = advised(data, fault)
    local key = ("%s:%d: %s"):format(file, line, text)
    if not seen[key] then
      out[#out + 1] = fault_of(file, line, text)
      out[#out].is_note = fault.is_note
    end
    seen[key] = true
  end
  table.sort(out, by_place(sources))
  return out
end

--- Checks and compiles what the file returned.
local function settle(sources, data, env)
  local filled, faults = check.run(data, keys.root)
  if #faults > 0 then return nil, placed(sources, data, faults) end
  local compiled, wrong = rules.compile(filled, {
    tools = env.tools, provider_ids = env.provider_ids, principals = env.principals, templates = env.templates,
    zone = env.zone or zone.load,
  })
  if not compiled then return nil, placed(sources, data, wrong) end
  return filled, compiled
end

local function has_function(data)
  for _, name in ipairs(FUNCTIONS) do
    if data[name] ~= nil then return true end
  end
  return false
end

local function tools_by_name(env)
  local by_name = {}
  for _, tool in ipairs(env.tools) do by_name[tool.name] = tool end
  return by_name
end

local function paths_of(sources)
  local paths = {}
  for i, file in ipairs(sources.list) do paths[i] = file.path end
  return paths
end

--- Loads a policy. The state is the caller's, to be closed.
---@async
---@param path string
---@param env { tools: table[], provider_ids: string[], limits?: table, principals?: string[], zone?: function,
---  is_rehearsed?: boolean }  tools: entries of tools.build; limits: `policy.limits` of the configuration; is_rehearsed: its
---  functions' failures are not logged, since whoever asks tells them
---@return demilune.policy.State? state
---@return demilune.policy.Fault[]? faults  in the order in which they stand
function load.run(path, env)
  local text, fault = text_of(path)
  if not text then return nil, { fault } end
  local dir, name = path:match "^(.*/)([^/]*)$"
  local sources = setmetatable({ dir = dir or "", list = { { path = path, name = name or path, text = text } } }, Sources)
  local fence, data = evaluate(sources, env)
  if not fence then return nil, data end
  local ok, filled, compiled = pcall(settle, sources, data, env)
  if not ok or not filled then
    fence:stop()
    if not ok then error(filled, 0) end
    return nil, compiled
  end
  if not has_function(filled) then
    fence:stop()
    fence = nil
  end
  return setmetatable({
    data = filled, version = filled.version or digest(sources), digest = digest(sources), fence = fence,
    compiled = compiled, path = path,
    warnings = placed(sources, data, compiled.warnings or {}), files = paths_of(sources), tools_by_name = tools_by_name(env),
    is_rehearsed = env.is_rehearsed,
  }, State)
end

--- A fault as one line.
---@param fault demilune.policy.Fault
---@return string  "FILE:LINE: what; the way out"
function load.line_of(fault)
  if fault.line then return ("%s:%d: %s"):format(fault.file, fault.line, fault.text) end
  return ("%s: %s"):format(fault.file, fault.text)
end

return load
