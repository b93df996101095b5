--- cli/session.lua - one command's way to the tools: an app, a scope of its own, and the one call path.
--
-- What the command creates ends with its scope, as a client's sandboxes end with theirs. SIGINT and SIGTERM stop the
-- work first and the scope after it, so that an interrupted command leaves nothing either.
local core = require "demilune.core"
local deciding = require "demilune.cli.deciding"
local errors = require "demilune.errors"

local task = core.task
local session = {}

local CLOSE_MS = 3000
--- signal(7) on Linux; a shell shows a command that a signal ended as 128 and the number.
local SIGNALS = { INT = 2, TERM = 15 }
local SIGNAL_EXIT = 128

---@class demilune.Session
---@field app demilune.App
---@field scope demilune.Scope
---@field principal string
local Session = {}
Session.__index = Session

--- Raises what the command line reports as misuse: one line, exit 2.
---@param message string
function session.misuse(message)
  errors.raise("invalid_argument", { message = message, is_usage = true })
end

--- The configuration of a command; one that cannot be read is a misuse.
---@param options table  of the command line
---@return demilune.Config
function session.config(options)
  local config, message = require("demilune.config").load(options.config)
  if not config then session.misuse(message) end
  return config
end

--- Calls a tool. Returns its result, or nil, the error and the partial output of a failed command.
---@param name string
---@param arguments table
---@param send_progress? fun(count: integer, message: string)
---@return table? result
---@return demilune.Error? err
---@return table? partial
function Session:call(name, arguments, send_progress)
  return self.app:call(self.app.tools_by_name[name], arguments, {
    scope = self.scope, principal = self.principal, client = "demilune", client_version = core.sys.version, transport = "cli",
    send_progress = send_progress, ask_person = deciding.has_person() and deciding.ask or nil,
  })
end

--- Calls a tool that has to work: raises what it says otherwise.
---@param name string
---@param arguments table
---@return table result
function Session:must(name, arguments)
  local result, err = self:call(name, arguments)
  if not result then session.fail(err) end
  return result
end

--- Raises an error of a tool as the command line shows it: with the names that would have been right.
---@param err demilune.Error
function session.fail(err)
  local shown = errors.new(err.category, err, errors.detail(err))
  shown.suggestion = err.suggestion
  if err.allowed and #err.allowed > 0 and not err.message:find(err.allowed[1], 1, true) then
    local hint = "Right would be: " .. table.concat(err.allowed, ", ") .. "."
    shown.message = err.message:gsub("; `allowed` lists[^.]*", "")
    shown.suggestion = err.suggestion and hint .. " " .. err.suggestion or hint
  end
  if err.rule then
    local reason = err.reason and ": " .. err.reason:gsub("[.!?]$", "") or ""
    shown.message = ("%s Rule: %s%s."):format(shown.message, err.rule, reason)
  end
  error(shown, 0)
end

--- Runs `work(session)` and ends its scope. `adjust` may change the configuration for this command. Returns what work
--- returned, or 128 and the number of the signal that stopped it; raises what work raised.
---@param options table  of the command line
---@param work fun(self: demilune.Session): integer?
---@param adjust? fun(config: demilune.Config)
---@return integer? exit_code
function session.run(options, work, adjust)
  local config = session.config(options)
  local keeps = config.keep_on_exit
  if adjust then adjust(config) end
  local principal = "local:" .. core.sys.user()
  local app = require("demilune.app").new(config)
  local self = setmetatable({ app = app, principal = principal, scope = app:new_scope(principal) }, Session)
  local stopped_by
  local job = task.spawn(xpcall, work, errors.with_trace, self)
  for name, number in pairs(SIGNALS) do
    core.sys.on_signal(name, function()
      stopped_by = stopped_by or number
      job:cancel()
    end)
  end
  local has_ended, ok, result = job:wait()
  -- What a stopped command was just making is nobody's.
  if stopped_by then config.keep_on_exit = keeps end
  self.scope:close(CLOSE_MS)
  app:close()
  if stopped_by then return SIGNAL_EXIT + stopped_by end
  if not (has_ended and ok) then error(has_ended and result or ok, 0) end
  return result
end

return session
