--- life.lua - the calls of the control plane about a sandbox's time: its end, pausing, going on.
local create = require "demilune.engine.create"
local faults = require "demilune.engine.faults"
local input = require "demilune.engine.input"
local pause = require "demilune.engine.pause"
local router = require "demilune.engine.router"
local show = require "demilune.engine.show"

local life = {}

--- Defaults of the two versions of E2B's calls, in seconds.
life.TIMEOUT_V1_S, life.TIMEOUT_V2_S = 15, 300
local BODY_MAX_BYTES = 64 * 1024
local REFRESH_MAX_S = 3600

--- The sandbox of an id, or a raised fault.
---@param self demilune.engine.Rest
---@param id string
---@return demilune.engine.Sandbox
function life.find(self, id)
  return self.sandboxes:find(id) or faults.raise "sandbox_not_found"
end

--- The sandbox of an id that runs; a paused one has no time that could be set.
local function find_running(self, id)
  local sandbox = life.find(self, id)
  pause.settle(sandbox)
  if sandbox.state == "paused" then
    faults.raise("conflict", { message = "The sandbox is paused." })
  end
  return sandbox
end

--- The timeout of a body, checked.
local function read_timeout(body, default_s)
  local timeout_s = input.number(body, "timeout", 1, create.TIMEOUT_MAX_S, true) or default_s
  if not timeout_s then faults.bad("timeout", "It is missing.") end
  return timeout_s
end

--- POST timeout: the end, so many seconds from now.
---@param self demilune.engine.Rest
---@param req table
---@param id string
function life.set_timeout(self, req, id)
  local sandbox = find_running(self, id)
  self.sandboxes:set_timeout(sandbox, read_timeout(input.json(req, BODY_MAX_BYTES)))
  router.empty(req, 204)
end

--- POST refreshes: the same, never earlier.
---@param self demilune.engine.Rest
---@param req table
---@param id string
function life.refresh(self, req, id)
  local sandbox = find_running(self, id)
  local body = input.json(req, BODY_MAX_BYTES)
  local duration_s = input.number(body, "duration", 0, REFRESH_MAX_S, true)
  self.sandboxes:set_timeout(sandbox, duration_s or life.TIMEOUT_V1_S, true)
  router.empty(req, 204)
end

--- Memory is always kept: a sandbox has nothing else to be resumed from.
local function check_memory(body)
  if input.flag(body, "memory") == false then
    faults.raise("unsupported", { field = "memory", message = "A paused sandbox keeps its memory here." })
  end
end

--- POST pause.
---@param self demilune.engine.Rest
---@param req table
---@param id string
function life.pause(self, req, id)
  local sandbox = life.find(self, id)
  check_memory(input.json(req, BODY_MAX_BYTES))
  pause.pause(self.sandboxes, sandbox)
  router.empty(req, 204)
end

--- POST connect: one that runs gets more time, a paused one goes on.
---@param self demilune.engine.Rest
---@param req table
---@param id string
---@param default_timeout_s? integer  nil where the body must say
function life.connect(self, req, id, default_timeout_s)
  local sandbox = life.find(self, id)
  local body = input.json(req, BODY_MAX_BYTES)
  local timeout_s = read_timeout(body, default_timeout_s)
  check_memory(body)
  local is_resumed = pause.resume(self.sandboxes, sandbox, timeout_s)
  if not is_resumed then self.sandboxes:set_timeout(sandbox, timeout_s, true) end
  router.json(req, is_resumed and 201 or 200, show.created(sandbox, self.door ~= nil))
end

--- POST resume: the older way, for paused ones alone.
---@param self demilune.engine.Rest
---@param req table
---@param id string
function life.resume(self, req, id)
  local sandbox = life.find(self, id)
  local body = input.json(req, BODY_MAX_BYTES)
  local timeout_s = read_timeout(body, life.TIMEOUT_V1_S)
  local has_auto_pause = input.flag(body, "autoPause")
  if not pause.resume(self.sandboxes, sandbox, timeout_s) then
    faults.raise("conflict", { message = "The sandbox is running." })
  end
  if has_auto_pause ~= nil then sandbox.has_auto_pause = has_auto_pause end
  router.json(req, 201, show.created(sandbox, self.door ~= nil))
end

return life
