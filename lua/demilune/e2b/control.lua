--- e2b/control.lua - requests to a control plane, and what its refusals mean.
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local provider_text = require "demilune.provider_text"
local transport = require "demilune.transport"

local control = {}

local TIMEOUT_MS = 30000
--- A creation may have to wait for a machine; below what clients wait.
local CREATE_TIMEOUT_MS = 50000
local MAX_BYTES = 4 * 1024 * 1024

---@class demilune.e2b.Manner
---@field is_create? boolean  statuses mean something else then
---@field is_safe? boolean    may be sent again
---@field is_fresh? boolean   with a connection of its own
---@field is_bare? boolean    the status is the whole answer
---@field deadline_ms? number  on task.now_ms(), where several requests share one
---@field place? demilune.e2b.Place
---@field tokens? table<string, table>  where the answer holds secrets

--- Sends to the control plane. `manner` may hold is_create, is_safe, is_fresh, tokens and place.
local function send_control(self, request, manner)
  if self.address then
    request.url, request.unix_socket = self.address.url .. request.path, self.address.unix_socket
    request.path, request.is_fresh = nil, manner.is_fresh
    local res, err = core.http.request(request)
    return res or error(err, 0)
  end
  local place = manner.place or self.home
  request.url, request.path = place.api_url .. request.path, nil
  request.credentials, request.credential_names = place.credentials, place.credential_names
  request.is_safe, request.is_fresh, request.tokens = manner.is_safe, manner.is_fresh, manner.tokens
  if manner.deadline_ms then request.deadline_ms = math.min(manner.deadline_ms, core.task.now_ms() + request.timeout_ms) end
  return self.transport:send(request)
end

local function refused(body, status, is_create)
  local code = body.error_code
  if code == "local_isolation_unavailable" then
    return errors.new(code)
  elseif code == "unsupported" and (body.field == "cpu" or body.field == "memory") then
    return errors.new("unsupported", { field = body.field, message = "This machine cannot hold a sandbox to that limit." })
  elseif code == "template_not_found" or (is_create and status == 404) then
    return errors.new("not_found", { field = "template", message = "There is no such template." })
  end
end

local function raise_refused(res, manner)
  local body = type(res.body) == "string" and res.body or ""
  provider_text.tell(res.status, body)
  local answer = connect.object(body) or {}
  error(refused(answer, res.status, manner.is_create) or errors.from_response {
    status = res.status, retry_after = transport.retry_after(res), is_create = manner.is_create, code = answer.error_code,
    family = "e2b",
  }, 0)
end

--- A control-plane request: the decoded answer, its headers, its status. Raises for every status but those in `accept`.
---@param self demilune.E2b
---@param method string
---@param path string
---@param body? table
---@param accept table<integer, boolean>
---@param manner? demilune.e2b.Manner
---@return table? value
---@return table<string, string> headers
---@return integer status
function control.send(self, method, path, body, accept, manner)
  manner = manner or {}
  local res = send_control(self, {
    method = method, path = path, headers = body and { ["Content-Type"] = "application/json" } or {},
    body = body and core.json.encode(body), max_body_bytes = MAX_BYTES,
    timeout_ms = manner.is_create and CREATE_TIMEOUT_MS or TIMEOUT_MS,
  }, manner)
  if not accept[res.status] then raise_refused(res, manner) end
  if res.status == 204 or manner.is_bare then return nil, res.headers, res.status end
  local value = res.json
  if value == nil then
    local fault
    value, fault = core.json.decode(res.body)
    if fault then errors.raise "invalid_response" end
  end
  if type(value) ~= "table" then errors.raise "invalid_response" end
  return value, res.headers, res.status
end

return control
