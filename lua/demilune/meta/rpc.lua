---@meta _

--- rpc.lua - core.rpc: JSON-RPC messages as text, for doors whose transport hands over whole messages
--- (src/script/bind_rpc.c, src/mcp/jsonrpc.h).
error "lua/demilune/meta/rpc.lua is for editors and cannot be required"

---@class demilune.core.rpc
local rpc = {}

--- A message that came in. `ignored` is what is answered with silence: a response that can be none of ours, or a malformed
--- notification.
---@class demilune.core.rpc.Message
---@field kind "request"|"notification"|"response"|"ignored"|"invalid"
---@field id? string       of a request, and of an invalid one where it is known: JSON text, as it came
---@field key? string      of a request: "s" and its decoded string, or "i" and its digits
---@field method? string   of a request and a notification
---@field params? table    of a request and a notification; empty without any
---@field answers? string  of a response: the id that it answers
---@field result? table    of a response: hostile; nil where it has none, or no object
---@field is_error? boolean  of a response
---@field code? integer    of an invalid one: JSON-RPC's
---@field message? string  of an invalid one

--- Reads one message. Batches are invalid.
---@param text string
---@return demilune.core.rpc.Message
function rpc.read(text) end

--- A result, secrets masked; nil where it is too large or a mask broke the JSON.
---@param id string    JSON text
---@param json string  JSON text
---@return string? text
function rpc.result(id, json) end

--- An error, secrets masked; nil where it is too large.
---@param id? string         JSON text; null without it
---@param code integer
---@param message string
---@param data_json? string  JSON text
---@return string? text
function rpc.error(id, code, message, data_json) end

--- A notification, secrets masked; nil as with `result`.
---@param method string       a word of ours that needs no escapes
---@param params_json string  JSON text
---@return string? text
function rpc.notification(method, params_json) end

--- A request to a client, secrets masked; nil as with `result`.
---@param id string           a word of ours that needs no escapes
---@param method string       likewise
---@param params_json string  JSON text
---@return string? text
function rpc.request(id, method, params_json) end

return rpc
