--- control_client.lua - what a command asks of running servers, through their control sockets.
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local state = require "demilune.state"

local control_client = {}

--- 256 questions with 16 KiB of arguments each, escaped.
local ANSWER_MAX_BYTES = 32 * 1024 * 1024
--- Fits into the buffer of a fresh socket, so that writing it never waits.
local REQUEST_MAX_BYTES = 32 * 1024

--- The servers of this user that listen, by pid.
---@return {pid: integer, path: string}[]
function control_client.servers()
  local alive = {}
  for _, entry in ipairs(state.control_sockets()) do
    local fd = core.sys.connect_unix(entry.path)
    if fd then
      core.sys.close(fd)
      alive[#alive + 1] = entry
    end
  end
  return alive
end

local function is_category(name)
  for _, known in ipairs(core.status.names()) do
    if name == known then return true end
  end
  return false
end

--- The error that a server answered with. It is this user's, so its words are for this user; they are no terminal's.
local function failure(err)
  local data = connect.is_object(err) and connect.is_object(err.data) and err.data or {}
  local category = is_category(data.category) and data.category or "internal"
  local message = connect.is_object(err) and type(err.message) == "string" and err.message or nil
  return errors.new(category, { message = message })
end

--- The first line that comes until the deadline.
local function read_line(reader, deadline_ms)
  local parts, size = {}, 0
  while size <= ANSWER_MAX_BYTES do
    local bytes, err = reader:read(math.max(deadline_ms - core.task.now_ms(), 0))
    if not bytes then return nil, err or errors.new "connection_failed" end
    parts[#parts + 1] = bytes
    size = size + #bytes
    if bytes:find("\n", 1, true) then return table.concat(parts):match "^[^\n]*" end
  end
  return nil, errors.new "too_large"
end

local function exchange(reader, fd, line, timeout_ms)
  local deadline_ms = core.task.now_ms() + timeout_ms
  local ok, err = core.sys.write(fd, line)
  if not ok then return nil, err end
  local text, why = read_line(reader, deadline_ms)
  if not text then return nil, why end
  local message = connect.object(text)
  if not message then return nil, errors.new "invalid_response" end
  if message.error ~= nil then return nil, failure(message.error) end
  if type(message.result) ~= "table" then return nil, errors.new "invalid_response" end
  return message.result
end

--- Calls a method of a server and waits for its answer. Errors: file_not_found and connection_failed (no such server, or
--- it ends), file_permission (somebody else listens there), provider_timeout, invalid_response, and what the server says.
---@async
---@param pid integer
---@param method string
---@param params? table
---@param timeout_ms integer
---@return table? result
---@return demilune.Error? err
function control_client.call(pid, method, params, timeout_ms)
  local line = core.json.encode { jsonrpc = "2.0", id = 1, method = method, params = params or {} } .. "\n"
  assert(#line <= REQUEST_MAX_BYTES, "a request to a server is short")
  local fd, err = core.sys.connect_unix(state.control_socket(pid))
  if not fd then return nil, err end
  local reader, why = core.sys.reader(fd)
  if not reader then
    core.sys.close(fd)
    return nil, why
  end
  local ok, result, fault = pcall(exchange, reader, fd, line, timeout_ms)
  reader:close()
  if not ok then error(result, 0) end
  return result, fault
end

--- Calls a method of all servers at once; their answers, by pid.
---@async
---@param servers {pid: integer}[]
---@param method string
---@param params? table
---@param timeout_ms integer
---@return {pid: integer, result?: table, err?: demilune.Error}[]
function control_client.call_all(servers, method, params, timeout_ms)
  local answers, tasks = {}, {}
  for i, server in ipairs(servers) do
    tasks[i] = core.task.spawn(function()
      local result, err = control_client.call(server.pid, method, params, timeout_ms)
      answers[i] = { pid = server.pid, result = result, err = err }
    end)
  end
  for _, handle in ipairs(tasks) do
    local ok, fault = handle:wait()
    if not ok then error(fault, 0) end
  end
  return answers
end

return control_client
