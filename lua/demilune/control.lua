--- control.lua - the operator's way to a running server: a socket in the state folder that only this user can reach.
--
-- JSON-RPC, a message a line, as on stdin. The folder is 0700 and the socket 0600; besides, the kernel says who connects. A
-- server that cannot have one serves all the same.
local core = require "demilune.core"
local errors = require "demilune.errors"
local state = require "demilune.state"

local task = core.task
local control = {}

local CONNECTIONS_MAX = 8
local IDLE_MS = 30000
local LINE_MAX_BYTES = 64 * 1024
--- After a fault of the socket itself.
local PAUSE_MS = 1000
local CLOSE_MS = 100

local METHOD_NOT_FOUND, SERVER_ERROR = -32601, -32000

---@class demilune.Control
---@field path string
---@field methods table<string, async fun(params: table): table>
---@field acceptor demilune.core.sys.Acceptor
---@field connections table<table, true>
---@field count integer
---@field idle_ms integer
---@field acceptance demilune.core.task.Handle
local Control = {}
Control.__index = Control

--- What a person at this machine is told of an error.
local function fail(call, err)
  err = errors.public(err)
  local text = errors.detail(err) or err.message
  if err.suggestion then text = text .. " " .. err.suggestion end
  call:fail(SERVER_ERROR, text, core.json.encode { category = err.category })
end

local function answer(methods, call, name, params)
  local method = methods[name]
  if not method then return call:fail(METHOD_NOT_FOUND, "this server knows no " .. name) end
  local ok, result = xpcall(method, errors.with_trace, params)
  if ok then call:reply(core.json.encode(result)) else fail(call, result) end
end

local function close_connection(self, connection)
  if not self.connections[connection] then return end
  self.connections[connection] = nil
  self.count = self.count - 1
  connection.io:close()
  connection.over:set()
end

--- Ends a connection that has had nothing to do for a while.
local function watch(self, connection)
  repeat
    connection.is_used = false
    local is_over = connection.over:wait(self.idle_ms)
  until is_over or not (connection.is_used or connection.io:call_count() > 0)
  close_connection(self, connection)
end

--- Serves a connection; takes the descriptor.
local function serve(self, fd)
  local connection = { over = task.event() }
  local io, err = core.stdio.serve {
    in_fd = fd, out_fd = fd, line_max_bytes = LINE_MAX_BYTES,
    on_request = function(...)
      connection.is_used = true
      answer(self.methods, ...)
    end,
    on_end = function() connection.over:set() end,
  }
  if not io then
    core.sys.close(fd)
    return core.log.warn("control: a connection cannot be served: " .. err.category)
  end
  connection.io = io
  self.connections[connection] = true
  self.count = self.count + 1
  task.spawn(watch, self, connection)
end

local function is_ours(uid) return uid == core.sys.uid() or uid == 0 end

local function accept_all(self)
  while true do
    local fd, uid = self.acceptor:accept()
    if not fd then
      core.log.warn("control: " .. uid.category)
      task.sleep(PAUSE_MS)
    elseif not is_ours(uid) or self.count >= CONNECTIONS_MAX then
      core.sys.close(fd)
    else
      serve(self, fd)
    end
  end
end

--- Whether a server answers there. A process that this one cannot see may be one, in a container with the same home.
local function is_served(entry)
  if core.sys.kill(entry.pid, "NONE") then return true end
  local fd, err = core.sys.connect_unix(entry.path)
  if fd then core.sys.close(fd) end
  return fd ~= nil or err.category ~= "connection_failed"
end

local function remove_stale()
  for _, entry in ipairs(state.control_sockets()) do
    if entry.pid > 1 and not is_served(entry) then core.fs.remove(entry.path) end
  end
end

local function listen()
  local path = state.control_socket(core.sys.pid())
  remove_stale()
  local fd, err = core.sys.listen_unix(path)
  if not fd then
    errors.raise(err.category, nil, "The socket " .. path .. " cannot be made: " .. err.category .. ".")
  end
  local acceptor, why = core.sys.acceptor(fd)
  if acceptor then return path, acceptor end
  core.sys.close(fd)
  error(why, 0)
end

--- Listens. Each method is called with the parameters of a request, in a task of its own; it returns what is answered, or
--- raises an error.
---@param methods table<string, async fun(params: table): table>
---@param idle_ms? integer  how long a connection may have nothing to do; 30 s without it
---@return demilune.Control?
---@return demilune.Error? err  its detail says what is in the way
function control.start(methods, idle_ms)
  local ok, path, acceptor = pcall(listen)
  if not ok then return nil, errors.public(path) end
  local self = setmetatable({
    path = path, methods = methods, acceptor = acceptor, connections = {}, count = 0, idle_ms = idle_ms or IDLE_MS,
  }, Control)
  self.acceptance = task.spawn(accept_all, self)
  return self
end

--- Ends it: the socket goes, and what is connected is closed. Twice is fine.
---@async
function Control:close()
  if self.is_closed then return end
  self.is_closed = true
  self.acceptance:cancel()
  self.acceptance:wait(CLOSE_MS)
  self.acceptor:close()
  core.fs.remove(self.path)
  local open = {}
  for connection in pairs(self.connections) do open[#open + 1] = connection end
  for _, connection in ipairs(open) do close_connection(self, connection) end
end

return control
