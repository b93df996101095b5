--- errors.lua - what a tool says when it fails: one closed table of categories, values of ours only.
--
-- The rows (category, message, retryable, suggestion) are C's, in src/base/status.h, and so is what statuses and codes of
-- services mean. Errors are raised as tables with `error(...)` and caught at the one call path; nothing that came from a
-- provider, a sandbox or a caller is ever put into one.
local core = require "demilune.core"

local errors = {}

--- A service that asks for more is not to be waited for anyway.
local RETRY_AFTER_MAX_S = 86400
--- Statuses that say enough: a code beside them does not change what they mean to a caller.
local DECIDED_BY_STATUS = { [401] = true, [402] = true, [429] = true }

--- Fields of an error that may leave the process, in the order of the tool contract.
local PUBLIC = {
  "category", "message", "retryable", "field", "expected", "allowed", "status", "code", "retry_after", "rule", "reason",
  "approval_id", "size", "default_cleared", "suggestion",
}

--- What a person at this machine is told instead of the message: it may name paths of the host. Beside the errors and
--- not in them, so that nothing which encodes one can show it.
local details = setmetatable({}, { __mode = "k" })

---@class demilune.Error
---@field category string   a row of src/base/status.h
---@field message string    one sentence that stands alone
---@field retryable boolean
---@field field? string     the argument at fault
---@field expected? string  from our schema
---@field allowed? string[] our own names
---@field suggestion? string
---@field status? integer   HTTP
---@field code? string      of a service, and known to the table
---@field retry_after? integer  seconds

--- Makes an error of a row; `fields` add to it or replace its message. `detail` is for the log and the command line.
---@param category string
---@param fields? table
---@param detail? string
---@return demilune.Error
function errors.new(category, fields, detail)
  local err = core.status.new(category)
  if fields then
    for key, value in pairs(fields) do err[key] = value end
  end
  details[err] = detail
  return err
end

--- Raises an error of a row.
---@param category string
---@param fields? table
---@param detail? string
function errors.raise(category, fields, detail)
  error(errors.new(category, fields, detail), 0)
end

--- Whole seconds of a Retry-After, or nil where it is none.
local function seconds_of(value)
  if type(value) == "string" then value = value:find "^%d+$" and tonumber(value) end
  if not math.type(value) or value ~= value or value < 0 then return nil end
  return math.ceil(math.min(value, RETRY_AFTER_MAX_S))
end

--- What a failed answer of a service means. Takes its status and codes, never its words: a code that the table lacks is
--- passed over.
---@param answer {status: integer, retry_after?: integer|string, is_create?: boolean, code?: any, family?: string}
---  retry_after: seconds; code: as it came, of the family "connect", "e2b" or "veryfront"
---@return demilune.Error
function errors.from_response(answer)
  local status = answer.status
  local by_code = answer.family and core.status.from_code(answer.family, answer.code) or nil
  local retry_after = status == 429 and seconds_of(answer.retry_after) or nil
  local category = retry_after and "rate_limited" or not DECIDED_BY_STATUS[status] and by_code
    or core.status.from_http(status, answer.is_create)
  -- A success that its caller could not use.
  if category == "ok" then category = "invalid_response" end
  return errors.new(category, { status = status, retry_after = retry_after, code = by_code and answer.code })
end

--- What a person at this machine is told instead of the message, where there is such a thing. Never for a client.
---@param err demilune.Error
---@return string?
function errors.detail(err)
  return details[err]
end

--- Whether a raised or returned value is an error of the table.
---@param value any
---@return boolean
function errors.is(value)
  return type(value) == "table" and type(value.category) == "string"
end

--- Whether a code stands in the table, whosever it is.
local function is_known_code(code)
  for _, family in ipairs { "e2b", "connect", "veryfront" } do
    if core.status.from_code(family, code) then return true end
  end
  return false
end

--- The error as it may be shown: known fields only, its detail still beside it. What is no error of the table (a bug of
--- ours or of a script) becomes `internal` under an id that stands in the log.
---@param value any
---@return demilune.Error
function errors.public(value)
  if not errors.is(value) then
    local id = core.crypto.id(8)
    core.log.error("fault " .. id .. ": " .. tostring(value))
    return errors.public(errors.new("internal", { suggestion = "Look for fault " .. id .. " in the server's log." }))
  end
  local out = {}
  for _, key in ipairs(PUBLIC) do out[key] = value[key] end
  if out.code ~= nil and not is_known_code(out.code) then out.code = nil end
  details[out] = details[value]
  return out
end

--- A handler for xpcall: a fault gets the place where it arose, an error of the table stays as it is.
---@param err any
---@return any
function errors.with_trace(err)
  return type(err) == "string" and debug.traceback(err, 2) or err
end

return errors
