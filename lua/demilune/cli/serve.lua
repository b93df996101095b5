--- cli/serve.lua - the MCP server on stdin and stdout.
--
-- The first thing it does is to move descriptors 0 and 1 away, so that nothing a script, a library or a child prints can
-- get between the messages.
local core = require "demilune.core"
local errors = require "demilune.errors"

local task = core.task

--- Clients kill a server 2 s after they closed its stdin; what is left by then is the lease's to end.
local ANSWER_MS = 300
local CLOSE_MS = 1200
local LOGS_KEPT = 20

local function prune_logs(dir)
  local logs = {}
  for _, name in ipairs(core.fs.list(dir) or {}) do
    local stat = name:find "^serve%-%d+%.log" and core.fs.stat(dir .. "/" .. name)
    if stat then logs[#logs + 1] = { path = dir .. "/" .. name, mtime = stat.mtime } end
  end
  table.sort(logs, function(a, b) return a.mtime > b.mtime end)
  for i = LOGS_KEPT + 1, #logs do core.fs.remove(logs[i].path) end
end

--- A log file for this server, since clients swallow stderr.
local function open_log(config, has_level)
  if not has_level then core.log.set_level(config.log.level) end
  local path = config.log.file
  if not path then
    local dir = require("demilune.state").path("log", true)
    prune_logs(dir)
    path = ("%s/serve-%d.log"):format(dir, core.sys.pid())
  end
  local ok, err = core.log.open(path)
  if not ok then core.log.warn("the log file cannot be opened, so the log goes to stderr: " .. err.message) end
end

--- Once a server, since it is the machine's setting and not a call's.
local function warn_of_swap(app)
  if app.has_vault and not core.vault.status().is_locked then
    core.log.warn("the memory for keys is not locked, so that it may be swapped to disk; `demilune doctor` says what mends it")
  end
end

--- The operator's way to this server. Without it the server serves all the same.
local function open_control(operations)
  local control, err = require("demilune.control").start(operations:methods())
  if not control then
    core.log.warn("demilune reload and approve cannot reach this server: " .. (errors.detail(err) or err.message))
  end
  return control
end

local function wait_while(is_so, deadline_ms)
  while is_so() and task.now_ms() < deadline_ms do task.sleep(5) end
end

--- What every door shares: the ways of an operator to a running server. Returns what ends them.
local function open_operations(app, clients, door)
  local operations = require("demilune.operations").new(app, clients)
  operations.door = door
  core.sys.on_signal("HUP", function() operations:reload() end)
  local control = open_control(operations)
  if app.config.policy and app.config.policy.watch then task.spawn(operations.watch, operations) end
  return function()
    if control then control:close() end
  end
end

--- An event that is set when the server is to end.
local function end_event()
  local over = task.event()
  core.sys.on_signal("TERM", function() over:set() end)
  core.sys.on_signal("INT", function() over:set() end)
  return over
end

local function serve_stdio(app, in_fd, out_fd)
  local principal = "local:" .. core.sys.user()
  local scope = app:new_scope(principal)
  local conversation = require("demilune.mcp").new(app, { scope = scope, principal = principal, transport = "stdio" })
  local clients = require("demilune.mcp.conversations").new()
  clients:add(conversation)
  local over = end_event()
  conversation.drained = task.event()
  conversation.io = assert(core.stdio.serve {
    in_fd = in_fd, out_fd = out_fd, line_max_bytes = app.config.limits.message * 1024 * 1024,
    on_request = function(...) conversation:on_request(...) end,
    on_notification = function(...) conversation:on_notification(...) end,
    on_drain = function() conversation.drained:set() end,
    on_end = function() over:set() end,
  })
  local close_operations = open_operations(app, clients)
  over:wait()
  close_operations()
  local io = conversation.io
  local ended_ms = task.now_ms()
  io:stop_reading()
  io:stop_calls()
  wait_while(function() return io:call_count() > 0 end, ended_ms + ANSWER_MS)
  scope:close(CLOSE_MS)
  wait_while(function() return io:unsent() > 0 end, ended_ms + ANSWER_MS + CLOSE_MS)
  io:close()
  app:close()
end

local function serve_http(app, settings)
  local clients = require("demilune.mcp.conversations").new()
  local over = end_event()
  local auth, message = require("demilune.auth").new(settings)
  if not auth then errors.raise("invalid_argument", { message = message, is_usage = true }) end
  local door = require("demilune.mcp.http.serving").start(app, clients, settings, auth)
  local close_operations = open_operations(app, clients, door)
  io.stderr:write("demilune: listening on ", door:url(), "\n")
  if auth.is_open then io.stderr:write("demilune: without tokens, so every program and user of this machine may call\n") end
  over:wait()
  close_operations()
  door:close(ANSWER_MS, CLOSE_MS)
  app:close()
end

--- Adds the entries of a list that a person wrote with commas.
local function add_all(list, text)
  for entry in (text or ""):gmatch "[^,%s]+" do list[#list + 1] = entry end
end

--- `http` of the configuration with what the command line says.
local function http_settings(config, options)
  local settings = config.http
  settings.listen = options.http or settings.listen
  settings.token_file = options["token-file"] or settings.token_file
  add_all(settings.allow_origins, options["allow-origin"])
  add_all(settings.allow_hosts, options["allow-host"])
  if not settings.listen and (options["allow-origin"] or options["allow-host"] or options["token-file"]) then
    errors.raise("invalid_argument", { message = "--token-file, --allow-origin and --allow-host go with --http", is_usage = true })
  end
  return settings
end

return {
  name = "serve",
  summary = "Serve MCP on stdin and stdout, which is what a client starts, or over HTTP.",
  usage = "serve [--http ADDRESS:PORT] [--token-file FILE]",
  help = [[
Serves one client on stdin and stdout until it closes stdin. With --http, or with
http.listen in the configuration, it serves many over HTTP, at /mcp:

  demilune serve --http 127.0.0.1:9000

  --http A:P        listen there; port 0 lets the system choose. The address of the
                    endpoint is printed on stderr
  --token-file F    who may call: a line `name:sha256-of-token` for each caller
  --allow-origin O  pages of these origins may call; those of this machine may anyway
  --allow-host H    names of this server that clients use, beside its own address]],
  options = { "http:", "token-file:", "allow-origin:", "allow-host:" },
  run = function(options)
    local in_fd, out_fd = assert(core.sys.take(0)), assert(core.sys.take(1))
    local config, message = require("demilune.config").load(options.config)
    if not config then
      errors.raise("invalid_argument", { message = message, is_usage = true })
    end
    local settings = http_settings(config, options)
    open_log(config, options["log-level"] ~= nil)
    local app = require("demilune.app").new(config)
    warn_of_swap(app)
    if settings.listen then serve_http(app, settings) else serve_stdio(app, in_fd, out_fd) end
    return 0
  end,
}
