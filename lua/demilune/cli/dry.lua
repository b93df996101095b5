--- cli/dry.lua - what check, explain and policy-test look at: a server's tools and providers, and a policy, with nothing
--- connected, nothing written and nothing started but what reads the policy.
local core = require "demilune.core"
local errors = require "demilune.errors"
local load = require "demilune.policy.load"
local output = require "demilune.cli.output"
local session = require "demilune.cli.session"
local templates = require "demilune.policy.templates"

local dry = {}

--- The server that a configuration describes, without its policy and its audit.
---@async
---@param config demilune.Config  stays as it is
---@return demilune.App
function dry.app(config)
  local bare = {}
  for key, value in pairs(config) do bare[key] = value end
  bare.policy, bare.audit = nil, nil
  return require("demilune.app").new(bare)
end

--- The policy that a command is about: the one that is named, else the configuration's; nil where there is none.
---@param config demilune.Config
---@param named? string  of the command line
---@return string? path
function dry.policy_path(config, named)
  return named or (config.policy and config.policy.file)
end

--- Loads a policy as a server would.
---@async
---@param config demilune.Config
---@param app demilune.App
---@param path string
---@return demilune.policy.State? state  to be closed
---@return demilune.policy.Fault[]? faults
function dry.load(config, app, path)
  return load.run(path, {
    tools = app.tools, provider_ids = app.environment.provider_ids, templates = templates.of(app),
    limits = config.policy and config.policy.limits, is_rehearsed = true,
  })
end

--- Prints faults, or warnings, a line each.
---@param faults demilune.policy.Fault[]
---@param mark? string  "warning: "
function dry.print(faults, mark)
  for _, fault in ipairs(faults) do
    output.line(load.line_of { file = fault.file, line = fault.line, text = (mark or "") .. fault.text })
  end
end

--- A time of the command line. Misuse where it is none.
---@param text string  "2026-11-30T09:00:00Z"
---@return integer seconds  since 1970
function dry.seconds(text)
  local time = require "demilune.time"
  if not time.iso(text) then session.misuse("a time is written as 2026-11-30T09:00:00Z, in UTC") end
  return time.epoch_ms(text) // 1000
end

--- A raised value as one line for the person at the terminal.
---@param raised any
---@return string
function dry.words(raised)
  local err = errors.is(raised) and raised or errors.public(raised)
  return core.vault.redact((errors.detail(err) or err.message) .. (err.suggestion and " " .. err.suggestion or ""))
end

return dry
