--- errors.lua - what a tool says when it fails: one closed table of categories, values of ours only.
--
-- The rows (category, message, retryable) are C's, in src/base/status.h. Errors are raised as tables with `error(...)` and
-- caught at the one call path; nothing that came from a provider, a sandbox or a caller is ever put into one.
local core = require "demilune.core"

local errors = {}

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
