---@meta _

--- stdio.lua - core.stdio: MCP over a pair of descriptors, one message a line (src/script/bind_stdio.c).
--
-- Each request becomes a task that runs `on_request`. Faults of a message itself are answered in C, and cancels
-- (notifications/cancelled) find their call there: its task is cancelled and its answer, if it still gives one, is
-- dropped.
error "lua/demilune/meta/stdio.lua is for editors and cannot be required"

---@class demilune.core.stdio
local stdio = {}

--- A connection. It lives until it is closed.
---@class demilune.core.stdio.Io
local Io = {}

--- A request of the client. One whose task ends without an answer gets JSON-RPC's internal error.
---@class demilune.core.stdio.Call
local Call = {}

---@class demilune.core.stdio.Options
---@field in_fd? integer           0 without it
---@field out_fd? integer          1 without it
---@field line_max_bytes? integer  16 MiB without it; a longer line is skipped and answered with an error
--- Each request, in a task of its own. At most 1024 are at work at a time; those beyond are answered with an error.
---@field on_request? async fun(call: demilune.core.stdio.Call, method: string, params: table)
---@field on_notification? async fun(method: string, params: table)  each in a task; cancels never come here
---@field on_drain? fun()          4 MiB of output or less wait again; must not wait
---@field on_end? async fun()      in a task: the end of input, or the client is gone; once

--- Serves a client and takes both descriptors, which may be one (a socket). Reading stops while over 4 MiB of output wait.
--- Errors: internal; then the descriptors are still the caller's.
---@param options demilune.core.stdio.Options
---@return demilune.core.stdio.Io?
---@return demilune.Error? err
function stdio.serve(options) end

--- Sends a notification; drops it when the output is full or the connection closed.
---@param method string
---@param params_json string  JSON text
function Io:notify(method, params_json) end

--- Whether over 4 MiB of output wait: what can wait should do so until `on_drain`.
---@return boolean
function Io:is_full() end

--- Bytes of output that the client has not taken yet.
---@return integer
function Io:unsent() end

--- How many requests are at work.
---@return integer
function Io:call_count() end

--- Cancels the task of every call but the running one; they may still answer.
function Io:stop_calls() end

--- Takes no more messages.
function Io:stop_reading() end

--- Writes what can be written without waiting and closes both descriptors. Twice is fine.
function Io:close() end

--- Answers with a result. Nothing is sent when the call was cancelled or answered, or the connection closed; a result
--- that the output (256 MiB) has no room for becomes an error.
---@param json string  JSON text
function Call:reply(json) end

--- Answers with a JSON-RPC error, under the same conditions.
---@param code integer
---@param message string
---@param data_json? string  JSON text
function Call:fail(code, message, data_json) end

--- Sends a notification that belongs to the call; drops it once the call is answered or cancelled, when the output is
--- full and when the connection is closed.
---@param method string
---@param params_json string  JSON text
function Call:notify(method, params_json) end

--- Asks the client something (MCP up to 2025-11-25) and waits for its result. The end of the call or of the connection
--- and a cancel end the wait; a client that need not answer any more is told so. Errors: provider_timeout; provider_rejected
--- (the client answered with an error, whose words are dropped), invalid_response (its result is no object), too_large (over
--- the limit of a line), quota_exceeded (64 wait on the connection), unavailable (4 MiB of output wait), connection_failed,
--- stopped (the call is answered or cancelled).
---@async
---@param method string
---@param params_json string  JSON text, at most 1 MiB
---@param timeout_ms number   over 0, at most a day
---@return table? result  as it came: hostile until checked
---@return demilune.Error? err
function Call:request(method, params_json, timeout_ms) end

--- The id as the JSON text that came.
---@return string
function Call:id() end

--- Whether the client took the call back.
---@return boolean
function Call:is_cancelled() end

return stdio
