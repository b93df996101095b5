--- router.lua - from a request to the function that serves it, and from what that raises to an
--- answer.
--
-- A handler answers by itself and returns, or raises a fault; it never has to clean up the
-- connection. Whoever may not be served is refused before anything else, and what they still send is
-- not waited for.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local input = require "demilune.engine.input"

local router = {}

---@class demilune.engine.Route
---@field [1] string    method
---@field [2] string    path; {id} stands for one segment, which the handler gets
---@field [3] function  handler(req, segment)

--- Answers with a JSON value. What the handler did not read of the body is read first.
---@param req table
---@param status integer
---@param value table
---@param headers? table<string, string>
---@return boolean? ok  nil when the client is gone
function router.json(req, status, value, headers)
  headers = headers or {}
  headers["Content-Type"] = "application/json"
  input.drain(req)
  return req:respond(status, headers, core.json.encode(value))
end

--- Answers without a body.
---@param req table
---@param status integer
---@return boolean? ok  nil when the client is gone
function router.empty(req, status)
  input.drain(req)
  return req:respond(status, {}, "")
end

--- Sorts the routes: paths without a segment to be filled in, and patterns.
local function compile(routes)
  local exact, patterns = {}, {}
  for _, route in ipairs(routes) do
    local method, path, handler = route[1], route[2], route[3]
    local pattern = "^" .. path:gsub("[%.%-%+]", "%%%0"):gsub("{id}", "([^/]+)") .. "$"
    local entry = exact[path]
    if not entry then
      entry = { pattern = pattern, methods = {} }
      exact[path] = entry
      if path:find("{id}", 1, true) then patterns[#patterns + 1] = entry end
    end
    entry.methods[method] = handler
  end
  return exact, patterns
end

local function find(exact, patterns, path)
  local entry = exact[path]
  if entry and not path:find("{", 1, true) then return entry end
  for _, candidate in ipairs(patterns) do
    local segment = path:match(candidate.pattern)
    if segment then return candidate, segment end
  end
  return nil
end

local function allowed(entry)
  local methods = {}
  for method in pairs(entry.methods) do methods[#methods + 1] = method end
  table.sort(methods)
  return table.concat(methods, ", ")
end

--- Answers one whose body is not worth reading.
local function turn_away(req, fault)
  local headers = { ["Content-Type"] = "application/json", Connection = "close" }
  return req:respond(faults.status(fault), headers, core.json.encode(faults.rest_body(fault)))
end

--- Faults of those who have not shown who they are.
local STRANGERS = { forbidden = true, bad_key = true, bad_token = true, bad_signature = true }

---@class demilune.engine.Guard
---@field refuse fun(req: table): demilune.engine.Fault?  looks at a request before anything else
---@field answer_unknown? fun(req: table): boolean?  for an address that is not there; true when it
---answered, or raises another fault

--- A handler for httpd over a list of routes.
---@param routes demilune.engine.Route[]
---@param guard demilune.engine.Guard
---@return fun(req: table)
function router.new(routes, guard)
  local exact, patterns = compile(routes)
  local function serve(req)
    local fault = guard.refuse(req)
    if fault then error(fault, 0) end
    local entry, segment = find(exact, patterns, req.path)
    local handler = entry and entry.methods[req.method]
    if handler then return handler(req, segment) end
    if guard.answer_unknown and guard.answer_unknown(req) then return end
    if entry then
      local body = faults.rest_body(faults.new "method_not_allowed")
      return router.json(req, 405, body, { Allow = allowed(entry) })
    end
    faults.raise "not_found"
  end
  return function(req)
    local ok, raised = pcall(serve, req)
    if ok then return end
    if raised == core.task.CANCELLED then error(raised, 0) end
    local fault = faults.of(raised)
    if STRANGERS[fault.error_code] then return turn_away(req, fault) end
    if not router.json(req, faults.status(fault), faults.rest_body(fault)) then req:abort() end
  end
end

return router
