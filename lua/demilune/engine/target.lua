--- target.lua - which sandbox a request of the data plane means, whether it may, and whether it can.
--
-- All sandboxes share the engine's address; the headers E2b-Sandbox-Id and -Port say what is meant,
-- as on E2B's shared host. Over TCP the sandbox's token is asked for. A signed URL carries neither
-- header nor token when it is opened by something else than the SDK: the signature itself then tells
-- which sandbox it was made for.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local pause = require "demilune.engine.pause"
local tokens = require "demilune.engine.tokens"

local target = {}

target.ENVD_PORT = "49983"
target.KERNEL_PORT = "49999"
local ID = "^i[a-z2-7]+$"
local ID_BYTES = 20
local EXPIRATION_DIGITS_MAX = 15

--- Answers as E2B's proxy does when a sandbox cannot be reached.
---@param req table
---@param id string
---@param error_code string
---@param port? integer
function target.answer(req, id, error_code, port)
  local fault = faults.new(error_code)
  local known = #id == ID_BYTES and id:find(ID) and id or ""
  -- The body is not read: over TCP this may be anybody's.
  return req:respond(faults.status(fault), { ["Content-Type"] = "application/json" }, core.json.encode {
    sandboxId = known, message = fault.message, port = port, code = faults.status(fault),
    error_code = fault.error_code,
  })
end

--- Answers a failure that E2B's proxy has words for; false for others.
---@param req table
---@param sandbox demilune.engine.Sandbox
---@param raised any
---@return boolean
function target.answer_lost(req, sandbox, raised)
  local code = faults.is(raised) and raised.error_code
  if code == "sandbox_not_found" then code = "sandbox_gone" end
  if code ~= "sandbox_gone" and code ~= "sandbox_paused" and code ~= "sandbox_moving" then return false end
  target.answer(req, sandbox.id, code)
  return true
end

--- Raises for a request over TCP without the sandbox's token. The ports beside envd's take the
--- traffic token too, which is what the SDK sends there.
local function check_token(sandbox, req, port)
  if tokens.is_equal(req.headers["x-access-token"], sandbox.access_token) then return end
  local traffic_token = req.headers["e2b-traffic-access-token"]
  if port ~= target.ENVD_PORT and tokens.is_equal(traffic_token, sandbox.traffic_token) then return end
  faults.raise "bad_token"
end

--- Makes the sandbox ready; false when the request was answered, since it cannot be.
local function wake(self, req, sandbox)
  local ok, raised = pcall(pause.wake, self.sandboxes, sandbox)
  if ok then return true end
  if not target.answer_lost(req, sandbox, raised) then error(raised, 0) end
  return false
end

---@class demilune.engine.Plane
---@field sandboxes demilune.engine.Sandboxes
---@field door? demilune.engine.Door  over TCP

--- The sandbox that the request names; nil when it was answered, since there is none that could
--- serve it.
---@param self demilune.engine.Plane
---@param req table
---@param port string  the port that is served
---@return demilune.engine.Sandbox?
function target.find(self, req, port)
  local id = req.headers["e2b-sandbox-id"] or ""
  local sandbox = self.sandboxes:find(id)
  if not sandbox then
    target.answer(req, id, "sandbox_gone")
    return nil
  end
  if self.door then check_token(sandbox, req, port) end
  local asked = req.headers["e2b-sandbox-port"] or port
  if asked ~= port then
    local number = #asked <= 5 and asked:match "^%d+$" and tonumber(asked) or 0
    target.answer(req, id, "port_closed", number)
    return nil
  end
  return wake(self, req, sandbox) and sandbox or nil
end

--- The sandbox whose token made the signature of a URL. Only the one that a header names, if one
--- does.
local function find_signed(self, req, operation)
  local query, named = req.query, req.headers["e2b-sandbox-id"]
  local found
  for _, sandbox in ipairs(self.sandboxes:list()) do
    local signature = tokens.signature(sandbox.access_token, operation, query)
    local is_meant = not named or named == sandbox.id
    if is_meant and tokens.is_equal(query.signature, signature) then found = sandbox end
  end
  if not found then faults.raise "bad_signature" end
  local expiration = query.signature_expiration
  if not expiration then return found end
  local until_s = #expiration <= EXPIRATION_DIGITS_MAX and expiration:match "^%d+$" and tonumber(expiration)
  if not until_s or until_s < core.task.epoch_ms() // 1000 then
    faults.raise("bad_signature", { message = "signature is already expired" })
  end
  return found
end

--- Like `find`, for /files: over TCP a signed URL does without a token.
---@param self demilune.engine.Plane
---@param req table
---@param operation "read"|"write"
---@return demilune.engine.Sandbox?
function target.find_for_file(self, req, operation)
  if not self.door or req.headers["x-access-token"] or not req.query.signature then
    return target.find(self, req, target.ENVD_PORT)
  end
  local sandbox = find_signed(self, req, operation)
  return wake(self, req, sandbox) and sandbox or nil
end

return target
