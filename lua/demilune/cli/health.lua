--- cli/health.lua - whether sandboxes can work on this machine, and what else a report about a fault should say.
--
-- It looks and starts nothing that stays: no engine, no sandbox but the trial of the preflight.
local core = require "demilune.core"
local errors = require "demilune.errors"

local health = {}

local FACT_BYTES = 200
--- Larger than any bundle of certificates.
local CA_FILE_BYTES = 16 * 1024 * 1024

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
  "libjose0", "libgnutls30", "libgnutls30t64", "libseccomp2", "libpcre2-8-0", "liblua5.4-0",
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

--- The configuration: {ok, path?, cause?}; without a path it is the defaults. Beside it what was loaded.
---@param path? string  of --config
---@return table
---@return demilune.Config?
function health.configuration(path)
  local config, message = require("demilune.config").load(path)
  if not config then return { ok = false, cause = message } end
  return { ok = true, path = config.path }, config
end

--- The memory for keys: {ok, is_locked, is_required, cause?, fix?}; nil where there is nothing to keep.
---@param config demilune.Config
---@return table?
function health.vault(config)
  local vault = require "demilune.config.vault"
  local is_open, err = vault.open(config)
  if is_open == false then return nil end
  local report = { ok = not err, is_required = config.vault.require_lock, is_locked = false }
  if err then
    report.cause = errors.detail(err) or err.message
  else
    report.is_locked = core.vault.status().is_locked
    if not report.is_locked then report.cause = "Keys may be swapped to disk, where others could find them." end
  end
  if not report.is_locked then report.fix = vault.LOCK_FIX end
  return report
end

--- As a person would name the files: what config.lua puts in front of a relative path is left out.
local function readable(cause)
  return (cause:gsub("/proc/self/cwd/", ""))
end

--- Reads every credential and says how that went: {name, kind, ok, cause?}, by name. Of what was read not even its length
--- is told.
---@param config demilune.Config
---@return table[]
function health.credentials(config)
  for name in pairs(config.credentials) do core.vault.load(name) end
  local found = {}
  for _, credential in ipairs(core.vault.status().credentials) do
    if config.credentials[credential.name] then
      local is_loaded = credential.state == "loaded"
      local cause = not is_loaded and readable(credential.cause or "It cannot be read.") or nil
      found[#found + 1] = { name = credential.name, kind = credential.kind, ok = is_loaded, cause = cause }
    end
  end
  table.sort(found, function(a, b) return a.name < b.name end)
  return found
end

--- The providers that are reached over the network: {id, type, preset?, region?, credential, ok, cause?}. None is asked.
---@param config demilune.Config
---@param credentials table[]  of health.credentials
---@return table[]
function health.clouds(config, credentials)
  local is_readable, clouds = {}, {}
  for _, credential in ipairs(credentials) do is_readable[credential.name] = credential.ok end
  for _, provider in ipairs(config.providers) do
    if provider.type ~= "local" then
      local cause = not is_readable[provider.credential] and "Its credential cannot be read."
        or provider.ca_file and not core.fs.read(provider.ca_file, CA_FILE_BYTES) and "Its ca_file cannot be read."
      clouds[#clouds + 1] = {
        id = provider.id, type = provider.type, preset = provider.preset, region = provider.region,
        credential = provider.credential, ok = not cause, cause = cause or nil,
      }
    end
  end
  return clouds
end

--- The policy as a server would load it: {ok, path, version?, rules?, cause?}; nil where none is configured.
---@async
---@param config demilune.Config
---@return table?
function health.policy(config)
  if not config.policy then return nil end
  local dry = require "demilune.cli.dry"
  local ok, state, faults = pcall(function() return dry.load(config, dry.app(config), config.policy.file) end)
  if ok and state then
    state:close()
    return { ok = true, path = state.path, version = state.version, rules = #(state.data.rules or {}) }
  end
  local cause = not ok and dry.words(state) or require("demilune.policy.load").line_of(faults[1])
  return { ok = false, path = config.policy.file, cause = cause .. (ok and #faults > 1 and "; demilune check has more" or "") }
end

--- Whether records can be written: {ok, path, required, cause?}; nil where no audit is configured. A file that is not there
--- yet is not made.
---@param config demilune.Config
---@return table?
function health.audit(config)
  if not config.audit then return nil end
  local path = config.audit.file
  local report = { ok = true, path = path, required = config.audit.required }
  if not core.fs.stat(path) then
    local folder = core.fs.stat(path:match "^(.*)/[^/]*$" or ".")
    report.ok = folder ~= nil and folder.type == "directory"
    report.cause = not report.ok and "its folder is not there" or nil
    return report
  end
  local file, err = core.fs.append(path)
  if file then file:close() end
  report.ok, report.cause = file ~= nil, err and "it cannot be written: " .. err.category or nil
  return report
end

--- Who may call over HTTP, and what the server shows of itself: rows {name, ok, text}, of what is configured alone. The
--- issuer's keys are fetched.
---@async
---@param config demilune.Config
---@return table[]
function health.callers(config)
  local http, rows = config.http or {}, {}
  local function add(name, ok, text) rows[#rows + 1] = { name = name, ok = ok, text = ok and text or readable(text) } end
  if http.token_file then
    local list, message = require("demilune.auth.tokens").read(http.token_file)
    add("tokens", list ~= nil, list and ("callers: %d"):format(#list) or message)
  end
  if http.tls then
    local certificate = require "demilune.auth.certificate"
    local pair, message = certificate.load(http.tls)
    local warning = pair and certificate.warning(pair)
    local is_good = pair ~= nil and pair:expires() > os.time()
    add("certificate", is_good, message or warning or "valid until " .. os.date("!%Y-%m-%d", pair:expires()))
  end
  if http.oauth then
    local keys = require("demilune.auth.jwks").new(http.oauth.jwks, http.oauth.ca_file)
    local set = keys:keys()
    add("issuer's keys", set ~= nil, set and ("%d that can be used"):format(#set) or "http.oauth.jwks: " .. tostring(keys.fault))
  end
  return rows
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
