--- mcp/http/refusal.lua - answers to requests that reach no conversation: a status and JSON-RPC's error, always JSON.
local core = require "demilune.core"

local refusal = {}

refusal.INVALID_REQUEST = -32600
--- What clients know as "the session is over" (practice of the official SDKs, beside the status 404).
refusal.NO_SESSION = -32001
--- MCP 2026-07-28, basic/transports/streamable-http, "Server Validation".
refusal.HEADER_MISMATCH = -32020

---@class demilune.mcp.http.Refusal
---@field status integer
---@field code integer      of JSON-RPC
---@field message string
---@field headers? table<string, string>
---@field id? string        JSON text of the request's id, where it is known

--- Makes one.
---@param status integer
---@param message string  says what to do
---@param fields? {code?: integer, headers?: table, id?: string, data?: string}
---@return demilune.mcp.http.Refusal
function refusal.new(status, message, fields)
  fields = fields or {}
  return {
    status = status, message = message, code = fields.code or refusal.INVALID_REQUEST, headers = fields.headers,
    id = fields.id, data = fields.data,
  }
end

--- Raises one; refusal.is tells it from other errors.
---@param status integer
---@param message string
---@param fields? table
function refusal.raise(status, message, fields)
  error({ refusal = refusal.new(status, message, fields) }, 0)
end

--- The refusal that was raised, or nil.
---@param err any
---@return demilune.mcp.http.Refusal?
function refusal.of(err)
  return type(err) == "table" and err.refusal or nil
end

--- Sends one.
---@param req demilune.core.httpd.Request
---@param one demilune.mcp.http.Refusal
---@param headers table<string, string>  of every answer, such as those for pages of browsers
---@param is_read boolean  the body was read; else it is not waited for, and the connection closes
function refusal.send(req, one, headers, is_read)
  local all = { ["Content-Type"] = "application/json", Connection = not is_read and "close" or nil }
  for key, value in pairs(headers) do all[key] = value end
  for key, value in pairs(one.headers or {}) do all[key] = value end
  req:respond(one.status, all, core.rpc.error(one.id, one.code, one.message, one.data))
end

return refusal
