--- cli/doctor.lua - `demilune doctor`: whether sandboxes work here; if not, the cause and the command that mends it.
local checks = require "demilune.cli.checks"
local core = require "demilune.core"
local grid = require "demilune.cli.grid"
local health = require "demilune.cli.health"
local output = require "demilune.cli.output"
local style = require "demilune.cli.style"

local function examine(options)
  local state = health.state()
  local isolation = health.isolation()
  local report = {
    checks = isolation.checks, limits = isolation.limits, identity = isolation.identity, state = state,
    configuration = health.configuration(options.config), engine = health.engine(state), versions = health.versions(),
  }
  report.ok = isolation.ok and state.ok and report.configuration.ok
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
    { "bubblewrap", versions.bubblewrap or "not found" },
    { "libraries", library_words(versions.libraries) },
  }
  local head = ("demilune %s, Lua %s, on %s, kernel %s, as %s\n\n"):format(
    versions.demilune, versions.lua, versions.system or "an unknown system", versions.kernel or "unknown", core.sys.user())
  local faults = checks.faults(report)
  local verdict = report.ok and style.paint("green", "Sandboxes work here.")
    or style.paint("red", "Sandboxes cannot work here yet.")
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
runs, and the versions of the parts. Starts no engine.

  --json    print the same as one line of JSON

Exit: 0 sandboxes work, 1 they do not.]],
  options = { "json" },
  run = function(options)
    local report = examine(options)
    output.write(options.json and core.json.encode(report) .. "\n" or render(report))
    return report.ok and 0 or 1
  end,
}
