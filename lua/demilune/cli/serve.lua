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

local function serve(app, in_fd, out_fd)
  local principal = "local:" .. core.sys.user()
  local scope = app:new_scope(principal)
  local conversation = require("demilune.mcp").new(app, { scope = scope, principal = principal, transport = "stdio" })
  local clients = require("demilune.mcp.conversations").new()
  clients:add(conversation)
  local operations = require("demilune.operations").new(app, clients)
  local over = task.event()
  conversation.drained = task.event()
  conversation.io = assert(core.stdio.serve {
    in_fd = in_fd, out_fd = out_fd, line_max_bytes = app.config.limits.message * 1024 * 1024,
    on_request = function(...) conversation:on_request(...) end,
    on_notification = function(...) conversation:on_notification(...) end,
    on_drain = function() conversation.drained:set() end,
    on_end = function() over:set() end,
  })
  core.sys.on_signal("TERM", function() over:set() end)
  core.sys.on_signal("INT", function() over:set() end)
  core.sys.on_signal("HUP", function() operations:reload() end)
  local control = open_control(operations)
  if app.config.policy and app.config.policy.watch then task.spawn(operations.watch, operations) end
  over:wait()
  if control then control:close() end
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

return {
  name = "serve",
  summary = "Serve MCP on stdin and stdout; this is what a client starts.",
  usage = "serve [--config FILE]",
  options = {},
  run = function(options)
    local in_fd, out_fd = assert(core.sys.take(0)), assert(core.sys.take(1))
    local config, message = require("demilune.config").load(options.config)
    if not config then
      errors.raise("invalid_argument", { message = message, is_usage = true })
    end
    open_log(config, options["log-level"] ~= nil)
    local app = require("demilune.app").new(config)
    warn_of_swap(app)
    serve(app, in_fd, out_fd)
    return 0
  end,
}
