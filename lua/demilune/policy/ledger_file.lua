--- policy/ledger_file.lua - where a configuration's counters are kept, and a way to look at them without spending.
local core = require "demilune.core"
local ledgers = require "demilune.ledger"
local state_folder = require "demilune.state"

local ledger_file = {}

local NAME_DIGITS = 24

--- The file of a configuration's counters: all servers of one configuration count together. Makes the folder.
---@param config demilune.Config  with a policy
---@return string path
function ledger_file.path(config)
  local file = config.path or config.policy.file
  local name = core.crypto.sha256(core.fs.real_path(file) or file):sub(1, NAME_DIGITS)
  return state_folder.path("ledger", true) .. "/" .. name .. ".json"
end

--- Counters that are there, for a call that is only rehearsed: the face of policy/book.lua.
---@class demilune.policy.Glance
---@field ledger demilune.Ledger
local Glance = {}
Glance.__index = Glance

local SPENT_NOTHING = { keep = function() end, give_back = function() end }

--- How much of a counter is spent; nil where the file cannot be read.
---@param item demilune.ledger.Item
---@param who { principal: string, tasks?: integer }
---@return integer? spent
---@return integer? retry_after
function Glance:spent(item, who) return self.ledger:spent(item, who) end

--- What `before` sees of the counters.
---@param who { principal: string, tasks?: integer }
---@return table
function Glance:counts(who) return self.ledger:counts(who) end

--- What a reservation would come to; nothing is reserved.
---@param list demilune.ledger.Item[]
---@param who { principal: string, tasks?: integer }
---@return table? ticket
---@return table? refusal
function Glance:reserve(list, who)
  for _, item in ipairs(list) do
    local spent, retry_after = self.ledger:spent(item, who)
    if not spent then return nil, { rule = item.rule, kind = "unavailable", category = "policy_denied" } end
    if spent >= item.most then
      return nil, {
        rule = item.rule, kind = item.kind, most = item.most, retry_after = retry_after,
        category = item.kind == "rate" and "rate_limited" or "quota_exceeded",
      }
    end
  end
  return SPENT_NOTHING
end

--- A glance at a ledger, the open one of a server or the file's.
---@param ledger demilune.Ledger
---@return demilune.policy.Glance
function ledger_file.glance(ledger)
  return setmetatable({ ledger = ledger }, Glance)
end

--- A glance at the counters of a configuration as they are now.
---@param config demilune.Config  with a policy
---@return demilune.policy.Glance
function ledger_file.look(config)
  return ledger_file.glance(ledgers.open(ledger_file.path(config)))
end

return ledger_file
