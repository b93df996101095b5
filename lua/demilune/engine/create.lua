--- create.lua - from the body of a creation to what the sandbox is to be.
--
-- E2B's fields that ask for something the engine cannot do are refused, so that nobody believes to
-- have it; fields that change nothing here are let pass. The "demilune" object is ours: the lease,
-- and the template as the driver resolved it.
local faults = require "demilune.engine.faults"
local input = require "demilune.engine.input"
local leases = require "demilune.engine.leases"

local create = {}

--- Lifetimes, in seconds.
create.TIMEOUT_MAX_S = 86400
local DISK_MAX_MB = 1024 * 1024
local MEMORY_MIN_MB, MEMORY_MAX_MB = 16, 16 * 1024 * 1024
local CPU_MIN, CPU_MAX = 0.01, 4096
local PIDS_MAX = 4000000
local TEMPLATE_MAX_BYTES = 128

--- The engine's own template, for clients that bring none.
local BASE = { disk_mb = 1024, memory_mb = 1024, cpu = 2, pids = 256 }

--- Names of it: E2B's code interpreter asks for its own.
local TEMPLATES = { base = true, ["code-interpreter-v1"] = true }

local function refuse(field, message)
  faults.raise("unsupported", { field = field, message = message })
end

local function is_filled(value)
  return type(value) ~= "table" or next(value) ~= nil
end

--- What E2B knows and this engine does not have. Older SDKs ask for internet access unasked, so over
--- TCP that wish is let pass; the sandbox says that it has none.
local function check_wishes(body, is_public)
  if input.flag(body, "allow_internet_access") and not is_public then
    refuse("allow_internet_access", "A local sandbox has no network.")
  end
  if input.flag(body, "autoPauseMemory") == false then
    refuse("autoPauseMemory", "A paused sandbox keeps its memory here.")
  end
  for _, field in ipairs { "network", "mcp", "iam", "volumeMounts" } do
    local value = input.get(body, field)
    if value ~= nil and is_filled(value) then
      refuse(field, "The local engine does not have that.")
    end
  end
  input.flag(body, "secure")
end

--- Whether it is paused at its time, and whether a call wakes it.
local function read_lifecycle(body)
  local auto_resume = input.object(body, "autoResume")
  local has_auto_resume = auto_resume and input.flag(auto_resume, "enabled") or false
  return input.flag(body, "autoPause") or false, has_auto_resume
end

--- The limits of a template of the client's, and those that must hold.
local function read_template(template)
  local env = input.env(template, "env")
  local explicit = input.object(template, "explicit") or {}
  local limits = {
    disk_mb = input.number(template, "disk", 1, DISK_MAX_MB, true) or BASE.disk_mb,
    memory_mb = input.number(template, "memory", MEMORY_MIN_MB, MEMORY_MAX_MB, true),
    cpu = input.number(template, "cpu", CPU_MIN, CPU_MAX),
    pids = input.number(template, "pids", 1, PIDS_MAX, true),
  }
  local musts = {}
  -- Not pids: where no group bounds them, RLIMIT_NPROC of the sandbox's own user namespace does.
  for _, field in ipairs { "memory", "cpu" } do
    if input.flag(explicit, field) then musts[#musts + 1] = field end
  end
  return limits, env, musts
end

--- Reads the body. `musts` are limits that have to hold here or be refused.
---@param body table
---@param default_timeout_s integer
---@param is_public boolean  over TCP: the object `demilune` does not count
---@return demilune.engine.Spec spec
---@return string[] musts
function create.read(body, default_timeout_s, is_public)
  local template_id = input.text(body, "templateID", TEMPLATE_MAX_BYTES)
  if not template_id or template_id == "" then
    faults.bad("templateID", "It must name a template.")
  end
  local timeout_s = input.number(body, "timeout", 1, create.TIMEOUT_MAX_S, true)
    or default_timeout_s
  local env, metadata = input.env(body, "envVars"), input.metadata(body, "metadata")
  check_wishes(body, is_public)
  local ours = not is_public and input.object(body, "demilune") or {}
  local lease = input.get(ours, "lease")
  if lease ~= nil and not leases.is_id(lease) then
    faults.bad("lease", "A lease is 16 to 64 of a-z and 2-7.")
  end
  local template = input.object(ours, "template")
  local limits, musts = BASE, {}
  if template then
    local template_env
    limits, template_env, musts = read_template(template)
    for name, value in pairs(env) do template_env[name] = value end
    env = template_env
  elseif not TEMPLATES[template_id] then
    faults.raise("template_not_found", { field = "templateID" })
  end
  local has_auto_pause, has_auto_resume = read_lifecycle(body)
  return {
    template = template_id, timeout_s = timeout_s, env = env, metadata = metadata, lease = lease,
    has_auto_pause = has_auto_pause, has_auto_resume = has_auto_resume,
    disk_mb = limits.disk_mb, memory_mb = limits.memory_mb, cpu = limits.cpu, pids = limits.pids,
  }, musts
end

return create
