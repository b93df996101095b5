--- cli/doctor.lua - `demilune doctor`: whether sandboxes work here; if not, the cause and the command that mends it.
local checks = require "demilune.cli.checks"
local core = require "demilune.core"
local grid = require "demilune.cli.grid"
local health = require "demilune.cli.health"
local output = require "demilune.cli.output"
local style = require "demilune.cli.style"

--- How each kind of source is called.
local KINDS = { env = "environment variable", file = "file", cred = "systemd credential", cmd = "command" }

local function has_local(config)
  for _, provider in ipairs(config.providers) do
    if provider.type == "local" then return true end
  end
  return false
end

local function all_ok(list)
  for _, entry in ipairs(list) do
    if not entry.ok then return false end
  end
  return true
end

--- Keys and clouds, where the configuration has any.
local function examine_remote(report, config)
  local array = core.json.array
  report.credentials, report.providers = array {}, array {}
  if not config then return true end
  if report.vault and report.vault.ok then report.credentials = array(health.credentials(config)) end
  report.providers = array(health.clouds(config, report.credentials))
  return (not report.vault or report.vault.ok) and all_ok(report.credentials) and all_ok(report.providers)
end

local function examine(options)
  -- The vault first: what is examined after it starts programs, and none of them may inherit a key.
  local configuration, config = health.configuration(options.config)
  local vault = config and health.vault(config) or nil
  local state = health.state()
  local isolation = health.isolation()
  local report = {
    vault = vault,
    checks = isolation.checks, limits = isolation.limits, identity = isolation.identity, state = state,
    configuration = configuration, engine = health.engine(state), versions = health.versions(),
  }
  report.needs_isolation = not config or has_local(config)
  report.works_here = state.ok and configuration.ok and (isolation.ok or not report.needs_isolation)
  if config then report.policy, report.audit = health.policy(config), health.audit(config) end
  report.callers = core.json.array(config and health.callers(config) or {})
  local is_governed = all_ok(report.callers) and (not report.policy or report.policy.ok) and (not report.audit or report.audit.ok)
  report.ok = examine_remote(report, config) and report.works_here and is_governed
  return report
end

local function limits_words(limits)
  local held, missing = {}, {}
  for _, name in ipairs { "memory", "cpu", "pids" } do
    local list = limits[name] and held or missing
    list[#list + 1] = name
  end
  if #held == 0 then
    return "none by cgroups: no writable cgroup here; asking for cpu or memory is refused"
  end
  local text = ("%s hold (%s)"):format(table.concat(held, ", "), limits.kind)
  return #missing > 0 and text .. ", not " .. table.concat(missing, ", ") or text
end

local function engine_words(engine)
  if not engine.running then return "not running; it starts with the first sandbox" end
  if not engine.version then return "running. " .. engine.cause end
  local text = ("%s, process %s, sandboxes: %s"):format(engine.version, engine.pid, engine.sandboxes)
  return engine.cause and text .. ". " .. engine.cause or text
end

local function library_words(libraries)
  local names = {}
  for name, version in pairs(libraries) do names[#names + 1] = name .. " " .. version end
  table.sort(names)
  return #names > 0 and table.concat(names, ", ") or "unknown: there is no dpkg to ask"
end

local function failed(text)
  return style.paint("red", "FAIL ") .. text
end

local function vault_words(vault)
  if not vault then return "not needed: no credential is configured" end
  if vault.is_locked then return "locked: keys are never swapped to disk" end
  local text = ("%s To mend it, %s."):format(vault.cause, vault.fix)
  return vault.ok and "not locked. " .. text or failed(text)
end

local function credential_words(credential)
  local kind = KINDS[credential.kind] or credential.kind
  return credential.ok and kind .. ", readable" or failed(kind .. ". " .. credential.cause)
end

local function cloud_words(cloud)
  local text = cloud.type
  if cloud.preset and cloud.preset ~= cloud.type then text = text .. ", preset " .. cloud.preset end
  if cloud.region then text = text .. ", region " .. cloud.region end
  text = ("%s, credential %s"):format(text, cloud.credential)
  return cloud.ok and text .. "; it was not asked" or failed(text .. ". " .. cloud.cause)
end

local function policy_words(policy)
  if not policy then return "none: every call is allowed" end
  return policy.ok and ("%s, version %s, rules: %d"):format(policy.path, policy.version, policy.rules) or failed(policy.cause)
end

local function audit_words(audit)
  if not audit then return "none" end
  if audit.ok then return audit.path .. (audit.required and "" or ", not required") end
  return failed(audit.path .. ": " .. audit.cause)
end

--- The rows about keys and clouds.
local function add_remote(rows, report)
  rows[#rows + 1] = { "vault", vault_words(report.vault) }
  for _, credential in ipairs(report.credentials) do
    rows[#rows + 1] = { "credential " .. credential.name, credential_words(credential) }
  end
  for _, cloud in ipairs(report.providers) do rows[#rows + 1] = { "provider " .. cloud.id, cloud_words(cloud) } end
  for _, row in ipairs(report.callers) do
    rows[#rows + 1] = { "HTTP " .. row.name, row.ok and row.text or failed(row.text) }
  end
end

local function verdict_of(report)
  local here = report.needs_isolation
  if not report.works_here then
    return style.paint("red", here and "Sandboxes cannot work here yet." or "Nothing can work yet.")
  elseif not report.ok then
    local rest = "Keys, providers, callers, policy or audit do not work yet."
    return style.paint("red", (here and "Sandboxes work here. " or "") .. rest)
  end
  return style.paint("green", here and "Sandboxes work here."
    or "Nothing here stands in the way of the providers, which were not asked.")
end

local function render(report)
  local versions = report.versions
  local configuration, state = report.configuration, report.state
  local rows = {
    { "limits", limits_words(report.limits) },
    { "user ids", report.identity == "range" and "each sandbox has one of its own on the host"
      or "the caller's, mapped to 1000 inside" },
    { "state", state.ok and state.path or failed(state.cause) },
    { "configuration", configuration.ok and (configuration.path or "the defaults") or failed(configuration.cause) },
    { "engine", engine_words(report.engine) },
  }
  if report.configuration.ok then
    rows[#rows + 1] = { "policy", policy_words(report.policy) }
    rows[#rows + 1] = { "audit", audit_words(report.audit) }
    add_remote(rows, report)
  end
  rows[#rows + 1] = { "bubblewrap", versions.bubblewrap or "not found" }
  rows[#rows + 1] = { "libraries", library_words(versions.libraries) }
  local head = ("demilune %s, Lua %s, on %s, kernel %s, as %s\n\n"):format(
    versions.demilune, versions.lua, versions.system or "an unknown system", versions.kernel or "unknown", core.sys.user())
  local faults = checks.faults(report)
  local verdict = verdict_of(report)
  return head .. checks.list(report) .. "\n" .. grid.render(rows, { indent = "  ", wraps = style.is_terminal() })
    .. "\n" .. verdict .. "\n" .. faults
end

return {
  name = "doctor",
  summary = "Say whether sandboxes work here, and how to mend it.",
  usage = "doctor [--json]",
  help = [[
Tries what a sandbox needs, one by one, and names the cause and the exact command
for what is missing. Says which limits hold, where the state is, whether an engine
runs, whether the memory for keys is locked, whether each credential can be read
(its command is run for that), whether callers over HTTP can be known (tokens,
certificate, the issuer's keys, which are fetched), and the versions of the parts.
Starts no engine and asks no provider.

  --json    print the same as one line of JSON

Exit: 0 sandboxes work, 1 they do not, or a credential cannot be read.]],
  options = { "json" },
  run = function(options)
    local report = examine(options)
    output.write(options.json and core.json.encode(report) .. "\n" or render(report))
    return report.ok and 0 or 1
  end,
}
