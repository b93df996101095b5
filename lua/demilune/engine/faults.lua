--- faults.lua - everything the engine may answer when it fails: one row an `error_code`.
--
-- E2B has three forms of errors (control plane and /files with a number as code, Connect with a
-- word); the row holds both, and who answers picks. Messages are ours alone: nothing from a
-- sandbox, a caller or an exception is put in.
local core = require "demilune.core"

local faults = {}

---@class demilune.engine.Row
---@field [1] integer  HTTP status
---@field [2] string   Connect code
---@field [3] string   message

---@type table<string, demilune.engine.Row>
faults.ROWS = {
  invalid_argument = { 400, "invalid_argument", "The request is not valid." },
  unsupported = { 400, "unimplemented", "The local engine cannot do that." },
  forbidden = { 403, "permission_denied",
    "This engine serves its own user, outside of sandboxes." },
  unauthenticated = { 401, "unauthenticated", "The sandbox has one user, `user`." },
  bad_key = { 401, "unauthenticated", "X-API-KEY must hold the key of this engine." },
  bad_token = { 401, "unauthenticated",
    "unauthorized access, please provide a valid access token or method signing if supported" },
  bad_signature = { 401, "unauthenticated", "invalid signature" },
  not_found = { 404, "not_found", "There is nothing at this address." },
  method_not_allowed = { 405, "unimplemented", "This address does not take that method." },
  unsupported_media_type = { 415, "unimplemented",
    "The body is of a type that this address does not take." },
  too_large = { 413, "resource_exhausted", "That is larger than the limit." },
  internal = { 500, "internal", "A fault inside the engine; its log says more." },
  unimplemented = { 501, "unimplemented", "The local engine does not serve this method." },
  sandbox_not_found = { 404, "not_found", "There is no such sandbox." },
  sandbox_gone = { 502, "unavailable", "The sandbox was not found" },
  sandbox_paused = { 502, "unavailable", "The sandbox was not found" },
  sandbox_moving = { 409, "unavailable", "The sandbox is being paused or resumed." },
  pause_failed = { 503, "unavailable", "The sandbox could not be stopped in time; it goes on." },
  port_closed = { 502, "unavailable", "The sandbox is running but port is not open" },
  template_not_found = { 404, "not_found",
    "There is no such template; the local engine has `base`." },
  lease_gone = { 409, "failed_precondition",
    "The lease that should hold the sandbox is not connected." },
  lease_taken = { 409, "failed_precondition", "Another connection holds this lease." },
  too_many_sandboxes = { 429, "resource_exhausted",
    "The engine has as many sandboxes as it takes." },
  local_isolation_unavailable = { 503, "unavailable",
    "This machine cannot isolate a sandbox; `demilune doctor` says why and how to mend it." },
  no_capacity = { 503, "unavailable", "The machine has no room for another sandbox." },
  agent_timeout = { 503, "unavailable", "The sandbox did not come up in time and was ended." },
  engine_stopping = { 503, "unavailable", "The engine is stopping." },
  file_not_found = { 404, "not_found", "There is no such file or directory." },
  is_directory = { 400, "invalid_argument", "The path is a directory." },
  not_a_directory = { 400, "invalid_argument", "The path is not a directory." },
  file_permission = { 403, "permission_denied",
    "The sandbox's user may not do that to this path." },
  exists = { 409, "already_exists", "The path is there already." },
  disk_full = { 507, "resource_exhausted", "The sandbox's disk is full." },
  conflict = { 409, "failed_precondition", "The present state does not allow that." },
  range_not_satisfiable = { 416, "out_of_range", "The file ends before that range." },
  process_not_found = { 404, "not_found", "There is no such process." },
  command_not_found = { 404, "not_found", "There is no such command." },
  command_not_runnable = { 403, "permission_denied",
    "The sandbox's user may not run that command." },
  cwd_not_found = { 400, "invalid_argument", "The working directory is not there." },
  exhausted = { 503, "resource_exhausted",
    "The sandbox has no process, descriptor or memory left for that." },
  deadline_exceeded = { 504, "deadline_exceeded", "The deadline has passed." },
}

--- What a fault of the agent means for a path.
local OF_AGENT = {
  not_found = "file_not_found", permission = "file_permission", is_directory = "is_directory",
  not_a_directory = "not_a_directory", no_space = "disk_full", exists = "exists",
  invalid = "invalid_argument", unsupported = "unsupported", conflict = "conflict",
  too_large = "too_large", closed = "sandbox_gone", timeout = "deadline_exceeded",
  exhausted = "exhausted", failed = "internal",
}

---@class demilune.engine.Fault
---@field error_code string  a key of ROWS
---@field message string
---@field fields? table      more to be shown: field, size, allowed, …

local Fault = { __tostring = function(fault) return fault.error_code end }

--- A fault of a row. `fields.message` replaces the row's sentence.
---@param error_code string
---@param fields? table
---@return demilune.engine.Fault
function faults.new(error_code, fields)
  local row = assert(faults.ROWS[error_code], error_code)
  fields = fields or {}
  local message = fields.message or row[3]
  fields.message = nil
  return setmetatable({ error_code = error_code, message = message, fields = fields }, Fault)
end

--- Raises a fault.
---@param error_code string
---@param fields? table
function faults.raise(error_code, fields)
  error(faults.new(error_code, fields), 0)
end

--- Raises `invalid_argument` for a field of the request.
---@param field string
---@param message string
function faults.bad(field, message)
  faults.raise("invalid_argument", { field = field, message = message })
end

--- Whether a raised value is a fault of ours.
---@param value any
---@return boolean
function faults.is(value)
  return getmetatable(value) == Fault
end

--- Raises what an error of the agent means; `names` replaces rows for this call, e.g. { not_found =
--- "process_not_found" }.
---@param err table
---@param names? table<string, string>
function faults.raise_agent(err, names)
  local code = type(err) == "table" and err.code or "failed"
  local name = names and names[code] or OF_AGENT[code] or "internal"
  if name == "internal" then
    core.log.warn("the agent could not do what was asked: " .. tostring(code))
  end
  faults.raise(name, { size = name == "conflict" and err.size or nil })
end

--- What a raised value is to be answered with; a bug of ours is logged and becomes `internal`.
---@param raised any
---@return demilune.engine.Fault
function faults.of(raised)
  if faults.is(raised) then return raised end
  core.log.error("a request failed: " .. tostring(raised))
  return faults.new "internal"
end

--- The HTTP status of a fault.
---@param fault demilune.engine.Fault
---@return integer
function faults.status(fault)
  return faults.ROWS[fault.error_code][1]
end

--- The body as the control plane and /files have it, `code` a number.
---@param fault demilune.engine.Fault
---@return table
function faults.rest_body(fault)
  local body = { code = faults.status(fault), message = fault.message }
  body.error_code = fault.error_code
  for key, value in pairs(fault.fields) do body[key] = value end
  return body
end

--- The error as Connect has it, `code` a word.
---@param fault demilune.engine.Fault
---@return table
function faults.connect_body(fault)
  local body = faults.rest_body(fault)
  body.code = faults.ROWS[fault.error_code][2]
  return body
end

return faults
