--- cli/health.lua - whether sandboxes can work on this machine, and what else a report about a fault should say.
--
-- It looks and starts nothing that stays: no engine, no sandbox but the trial of the preflight.
local core = require "demilune.core"
local errors = require "demilune.errors"

local health = {}

local FACT_BYTES = 200

local function first_line(handle)
  local line = handle and handle:read "l"
  if handle then handle:close() end
  line = line and line:sub(1, FACT_BYTES):gsub("%c", " ")
  return line ~= "" and line or nil
end

local function file_line(path)
  return first_line(io.open(path))
end

--- PRETTY_NAME of os-release(5).
local function system_name()
  local handle = io.open "/etc/os-release"
  if not handle then return nil end
  local name
  for line in handle:lines() do
    name = name or line:match '^PRETTY_NAME="?([^"]*)"?$'
  end
  handle:close()
  return name
end

--- Packages of the libraries; Debian 13 calls some of them by another name.
local PACKAGES = {
  "libuv1", "libuv1t64", "libcurl4", "libcurl4t64", "libmicrohttpd12", "libmicrohttpd12t64", "libjansson4", "libsodium23",
  "libseccomp2", "liblua5.4-0",
}

--- Versions of the libraries that we run on, by package; empty where there is no dpkg to ask.
local function libraries()
  local found = {}
  local command = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' %s 2>/dev/null"
  local handle = io.popen(command:format(table.concat(PACKAGES, " ")))
  if not handle then return found end
  for line in handle:lines() do
    local name, version = line:match "^(%S+) (%S+) installed$"
    if name then found[name] = version end
  end
  handle:close()
  return found
end

--- The program, the system and the parts that matter, by name.
---@return table<string, string|table>
function health.versions()
  local bwrap = first_line(io.popen "PATH=/usr/bin:/usr/local/bin bwrap --version 2>/dev/null")
  return {
    demilune = core.sys.version, lua = _VERSION:match "%d.*", kernel = file_line "/proc/sys/kernel/osrelease",
    system = system_name(), bubblewrap = bwrap and bwrap:match "[%d.]+", libraries = libraries(),
  }
end

--- The state folder: {ok, path?, cause?}.
---@return table
function health.state()
  local state = require "demilune.state"
  local ok, path = pcall(state.engine_socket)
  if ok then return { ok = true, path = path:match "^(.*)/" } end
  if not errors.is(path) then error(path, 0) end
  return { ok = false, cause = errors.detail(path) or path.message }
end

--- The engine as it is now: {running, version?, pid?, sandboxes?, cause?}.
---@param state table  of health.state
---@return table
function health.engine(state)
  if not state.ok then return { running = false } end
  local engine_start = require "demilune.engine_start"
  local answer = engine_start.ask(require("demilune.state").engine_socket())
  if not answer then
    local is_there = not engine_start.is_absent()
    return { running = is_there, cause = is_there and "It does not answer; it may be busy." or nil }
  end
  local is_ours = answer.protocol == engine_start.PROTOCOL
  return {
    running = true, version = answer.version, pid = answer.pid, sandboxes = answer.sandboxes,
    cause = not is_ours and "It speaks another protocol than this program; demilune engine --stop ends it." or nil,
  }
end

--- The configuration: {ok, path?, cause?}; without a path it is the defaults.
---@param path? string  of --config
---@return table
function health.configuration(path)
  local config, message = require("demilune.config").load(path)
  if not config then return { ok = false, cause = message } end
  return { ok = true, path = config.path }
end

--- What isolation.preflight says, or the one check that it could not be made.
---@return table
function health.isolation()
  local report, err = core.isolation.preflight()
  if report then return report end
  return {
    ok = false, limits = { kind = "none", memory = false, cpu = false, pids = false }, identity = "caller",
    checks = { { name = "preflight", ok = false, cause = err.message, fix = "end other programs, and try again" } },
  }
end

return health
