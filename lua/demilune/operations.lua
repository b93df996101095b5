--- operations.lua - what an operator may ask of a running server: through its control socket, by SIGHUP, by a changed file.
--
-- Everything here answers with values for a person at this machine; nothing of it goes to a client but the news that its list
-- of tools has changed.
local core = require "demilune.core"
local errors = require "demilune.errors"
local keys = require "demilune.config.keys"

local operations = {}

--- How often a watched policy is looked at.
local WATCH_MS = 1000

---@class demilune.Operations
---@field app demilune.App
---@field started_s integer
---@field conversations demilune.mcp.Conversations
---@field door? {reload: fun(self): string?}  over HTTP: who may call, and the certificate
local Operations = {}
Operations.__index = Operations

--- Makes it.
---@param app demilune.App
---@param conversations demilune.mcp.Conversations  who is told when a reload changed what they see
---@return demilune.Operations
function operations.new(app, conversations)
  return setmetatable({ app = app, started_s = core.task.epoch_ms() // 1000, conversations = conversations }, Operations)
end

--- Loads policy and tools again, tokens and certificate, and opens log and audit anew. What is wrong stays as it was.
---@async
---@return {version?: string, digest?: string, is_new: boolean, keeps_name: boolean, fault?: string, door_fault?: string}  of
---  app:reload; door_fault: what is wrong with tokens or certificate
function Operations:reload()
  core.log.reopen()
  local before = self.conversations:tools_seen()
  local result = self.app:reload()
  if result.fault then
    core.log.error("reload: " .. result.fault)
  elseif result.is_new then
    core.log.info(("reload: the policy in force is %s, digest %s%s"):format(result.version, result.digest,
      result.keeps_name and "; it changed and kept its name" or ""))
  end
  result.door_fault = self.door and self.door:reload() or nil
  if result.door_fault then core.log.error("reload: " .. result.door_fault) end
  self.conversations:tell_changes(before)
  return result
end

--- How the server is. No secret, no argument, nothing of a sandbox.
---@return table
function Operations:health()
  local app = self.app
  local policy = app.policy
  return {
    version = core.sys.version, pid = core.sys.pid(), started_at = core.task.iso(self.started_s * 1000), calls = app.call_count,
    config = app.config.path, policy_version = policy and policy:version(), policy_fault = policy and policy.fault,
    audit = policy and policy.audit and (policy.audit:fault() or "ok") or nil,
    approvals = policy and #policy.approvals:list() or 0,
  }
end

local function need_policy(app)
  if app.policy then return app.policy end
  errors.raise("unsupported", { message = "This server has no policy." })
end

--- The questions that wait.
---@return table[]
function Operations:approvals()
  return core.json.array(need_policy(self.app).approvals:list())
end

--- Answers a question.
---@param params {id: string, approve: boolean}
---@return table
function Operations:decide(params)
  if type(params.id) ~= "string" or type(params.approve) ~= "boolean" then
    errors.raise("invalid_argument", { message = "decide takes an id and whether it is approved." })
  end
  local ok, why = need_policy(self.app).approvals:decide(params.id, params.approve)
  if not ok then errors.raise("not_found", { message = "The question cannot be answered: " .. why .. "." }) end
  core.log.info((params.approve and "approved: " or "refused: ") .. params.id)
  return { id = params.id, approved = params.approve }
end

--- Changes what is logged.
---@param params {level: string}
---@return table
function Operations:log_level(params) -- luacheck: ignore 212/self
  for _, level in ipairs(keys.log_levels) do
    if params.level == level then
      core.log.set_level(level)
      return { level = level }
    end
  end
  errors.raise("invalid_argument", { message = "There is no such level of the log.", allowed = keys.log_levels })
end

--- The methods of the control socket.
---@return table<string, fun(params: table): table>
function Operations:methods()
  local function method(name)
    return function(params) return self[name](self, params) end
  end
  return {
    reload = method "reload", health = method "health", approvals = method "approvals", decide = method "decide",
    log_level = method "log_level",
  }
end

--- Loads the policy whenever its files hold something else; the body of a task that never returns.
---@async
function Operations:watch()
  while true do
    core.task.sleep(WATCH_MS)
    if self.app.policy:is_stale() then self:reload() end
  end
end

return operations
