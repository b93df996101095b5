--- own/driver.lua - an operator's driver: its file found and checked, and what its functions are given.
--
-- own/provider.lua makes of it what scope and tools know as a provider.
local core = require "demilune.core"
local errors = require "demilune.errors"
local exec = require "demilune.own.exec"
local file = require "demilune.own.file"
local host = require "demilune.own.host"
local nearest = require "demilune.nearest"
local provider = require "demilune.own.provider"

local driver = {}

--- What the table of a driver's file may have, and of which type.
---@type table<string, string>
driver.KEYS = {
  new = "function", create = "function", kill = "function", run = "function", get = "function", list = "function",
  set_timeout = "function", read = "function", write = "function", list_dir = "function",
  workdir = "string", network = "string", templates = "table", id_pattern = "string", supports = "table",
}
local REQUIRED = { "create", "kill", "run" }
local NETWORKS = { none = true, host = true, provider = true }
local OPTIONAL = { region = true, cpu = true, memory = true }

-- ---- the file ----

local function check_key(note, key, value)
  local kind = driver.KEYS[key]
  if not kind then
    local names = {}
    for name in pairs(driver.KEYS) do names[#names + 1] = name end
    table.sort(names)
    local near = nearest.of(tostring(key), names)
    note("the driver has an unknown key %s; %s", tostring(key),
      near and ("did you mean %s?"):format(near) or "known are " .. table.concat(names, ", "))
  elseif type(value) ~= kind then
    note("%s is a %s; write a %s", key, type(value), kind)
  end
end

--- What is wrong with the table of a driver's file.
local function faults_of(given)
  local texts = {}
  local function note(format, ...) texts[#texts + 1] = format:format(...) end
  for key, value in pairs(given) do check_key(note, key, value) end
  for _, key in ipairs(REQUIRED) do
    if given[key] == nil then note("%s is missing; write %s = function(self, …) … end", key, key) end
  end
  if type(given.workdir) == "string" and given.workdir:sub(1, 1) ~= "/" then note "workdir is no path from the root; write one" end
  if type(given.network) == "string" and not NETWORKS[given.network] then
    note 'network is none that is known; write "none", "host" or "provider"'
  end
  for name in pairs(type(given.supports) == "table" and given.supports or {}) do
    if not OPTIONAL[name] then note("supports names %s; it may have region, cpu and memory", tostring(name)) end
  end
  for _, name in ipairs(type(given.templates) == "table" and given.templates or {}) do
    if type(name) ~= "string" then note "templates is no list of names; write { … }" end
  end
  table.sort(texts)
  return texts
end

--- The file of a type of provider: the first of that name in the folders.
---@param folders string[]  `provider_path` of the configuration
---@param kind string
---@return string? path
function driver.find(folders, kind)
  for _, folder in ipairs(folders) do
    local path = ("%s/%s.lua"):format(folder, kind)
    if core.fs.stat(path) then return path end
  end
end

--- Loads a driver's file.
---@param path string
---@return table? given
---@return demilune.own.Fault[]? faults
function driver.load(path)
  local given, fault = file.evaluate(path)
  if not given then return nil, { fault } end
  local faults = {}
  for i, words in ipairs(faults_of(given)) do faults[i] = { file = path, text = words } end
  if #faults > 0 then return nil, faults end
  return given
end

-- ---- what a driver is given ----

---@class demilune.own.DriverHost: demilune.own.Host
local DriverHost = setmetatable({}, { __index = host.class })
DriverHost.__index = DriverHost
driver.host_class = DriverHost

--- Runs a program of this machine and waits for it. At the deadline it gets SIGTERM, then SIGKILL. Raises where it cannot be
--- started.
---@async
---@param options { argv: string[], timeout_s: number, env?: table<string, string>, stdout?: fun(bytes: string),
---  stderr?: fun(bytes: string) }  argv: the first is the program's path from the root; env: all of its environment
---@return { exit_code?: integer, timed_out: boolean } ended
function DriverHost:exec(options)
  local ok, ended = pcall(exec.run, options)
  if ok then return ended end
  -- The words of the table are about sandboxes; what is missing here is missing on this machine.
  if errors.is(ended) then self:_misuse(("%s cannot be started: %s"):format(options.argv[1], ended.category)) end
  error(ended, 0)
end

local function refuse(faults)
  local lines = {}
  for i, fault in ipairs(faults) do lines[i] = file.line_of(fault) end
  errors.raise("invalid_argument", { message = "A driver cannot be used: " .. table.concat(lines, "\n"), is_usage = true })
end

--- What the functions of the driver get as their first argument.
local function state_of(given, path, entry, tools)
  if not given.new then return { entry = entry, host = tools } end
  local ok, state = pcall(given.new, entry, tools)
  if ok and type(state) == "table" then return state end
  if not ok and state == core.task.CANCELLED then error(state, 0) end
  local why = ok and "new must return a table" or "new failed: " .. tostring(errors.is(state) and state.message or state)
  refuse { { file = path, text = why .. "; mend it there" } }
end

--- Makes the provider of a configuration's entry. Raises a usage error with every fault where the driver is wrong.
---@param entry table
---@param config demilune.Config
---@return demilune.own.Provider
function driver.new(entry, config)
  local path = driver.find(config.provider_path, entry.type)
  local given, faults
  if path then given, faults = driver.load(path) else
    faults = { { file = entry.type .. ".lua", text = "no folder of provider_path has that driver any more; put it back" } }
  end
  if not given then refuse(faults) end
  local tools = setmetatable(host.new { _path = path, _name = entry.id, _config = config }, DriverHost)
  return provider.new(entry, given, state_of(given, path, entry, tools), path)
end

return driver
