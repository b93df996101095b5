---@meta _

--- status.lua - core.status: the table of failures that src/base/status.h keeps (src/script/error.c).
error "lua/demilune/meta/status.lua is for editors and cannot be required"

---@class demilune.core.status
local status = {}

--- A fresh error of a row, with category, message, retryable and, where the row has one, suggestion; `tostring` gives
--- "category: message". Raises for a category that the table lacks.
---@param category string
---@return demilune.Error
function status.new(category) end

--- What an HTTP status of a control plane means. 429 is quota_exceeded: with Retry-After the caller makes it
--- rate_limited.
---@param code integer         HTTP status
---@param is_create? boolean   whether it answers a creation, for which 409, 503 and 504 mean something else
---@return string category     "ok" for 200 to 299
function status.from_http(code, is_create) end

--- What a code of a service means. A code that the table lacks (or that is no string) is foreign text and goes no further.
---@param family "connect"|"e2b"|"veryfront"  whose words it is of; raises for another
---@param code any
---@return string? category
---@return boolean is_known    it may be shown as `code` of an error
function status.from_code(family, code) end

--- All categories but "ok", in the order of the table.
---@return string[]
function status.names() end

return status
