--- cli/checks.lua - the checks of the preflight as text, for doctor and demo.
local grid = require "demilune.cli.grid"
local style = require "demilune.cli.style"

local checks = {}

local INDENT = "  "
local TEXT_COLUMNS = 74

--- What each check is about, in words.
local TITLES = {
  bubblewrap = "bubblewrap is there", agent = "the agent can be started", user_namespaces = "user namespaces are allowed",
  apparmor = "AppArmor lets them be", seccomp = "seccomp filters work", root_directory = "the root directory is a real one",
  proc = "/proc can be mounted anew", identity = "sandboxes get a user of their own", trial = "a trial sandbox starts",
}

local function is_derived(check)
  return check.name == "trial"
end

--- One failed check: its cause, and the exact command or step that mends it, on a line of its own to be copied.
---@param check table  {name, cause, fix}
---@return string
function checks.explain(check)
  local lines = grid.wrap(check.cause or "It failed.", TEXT_COLUMNS)
  local text = INDENT .. table.concat(lines, "\n" .. INDENT) .. "\n"
  if check.fix then text = text .. INDENT .. style.paint("bold", "mend it: ") .. check.fix .. "\n" end
  return text
end

--- Every failed check explained, one that only follows from another left out.
---@param report table  of isolation.preflight
---@return string
function checks.faults(report)
  local failed = {}
  for _, check in ipairs(report.checks) do
    if not check.ok then failed[#failed + 1] = check end
  end
  local parts = {}
  for _, check in ipairs(failed) do
    if #failed == 1 or not is_derived(check) then parts[#parts + 1] = checks.explain(check) end
  end
  return table.concat(parts)
end

--- All checks, one a line.
---@param report table  of isolation.preflight
---@return string
function checks.list(report)
  local lines = {}
  for _, check in ipairs(report.checks) do
    local mark = check.ok and style.paint("green", "ok  ") or style.paint("red", "FAIL")
    lines[#lines + 1] = INDENT .. mark .. "  " .. (TITLES[check.name] or check.name) .. "\n"
  end
  return table.concat(lines)
end

return checks
