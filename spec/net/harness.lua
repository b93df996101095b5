--- A server and raw connections in one process, for the specs of core.http and core.httpd.
--
-- Everything runs in tasks of one loop: raw sockets are non-blocking and wait with task.sleep.

local core = require "demilune.core"
local os_calls = require "spec_os"

local task, http, httpd, sys = core.task, core.http, core.httpd, core.sys

local harness = {}

local serial = 0

--- A fresh path for a unix socket, in the spec's scratch folder.
---@return string
function harness.socket_path()
  serial = serial + 1
  return ("%s/net%d.sock"):format(os.getenv("DML_SPEC_TMP") or "/tmp", serial)
end

--- Starts a server on a unix socket.
---@param handler fun(req: any)
---@param limits? table  fields of httpd.listen
---@return any server
---@return string path
function harness.serve(handler, limits)
  local path = harness.socket_path()
  os.remove(path)
  local options = {
    fd = assert(sys.listen_unix(path)),
    connections = 256,
    max_requests = 256,
    max_header_bytes = 16384,
    handler = handler,
  }
  for name, value in pairs(limits or {}) do options[name] = value end
  return assert(httpd.listen(options)), path
end

--- Runs `body(path, server)` in a task beside a server, and closes all of it.
---@param handler fun(req: any)
---@param body fun(path: string, server: any)
---@param limits? table
function harness.with_server(handler, body, limits)
  task.run(function()
    local server, path = harness.serve(handler, limits)
    local ok, err = xpcall(body, debug.traceback, path, server)
    server:close()
    http.close_idle()
    os.remove(path)
    if not ok then error(err, 0) end
  end)
end

--- A request over a unix socket with short limits.
---@param path string
---@param target string
---@param options? table
function harness.fetch(path, target, options)
  local request = { url = "http://localhost" .. target, unix_socket = path, timeout_ms = 5000 }
  for name, value in pairs(options or {}) do request[name] = value end
  if not request.stream and not request.max_body_bytes then request.max_body_bytes = 1 << 20 end
  return http.request(request)
end

--- Reads a streaming response to its end.
---@param res any
---@return integer bytes
---@return table? err
function harness.drain(res)
  local total = 0
  while true do
    local chunk, err = res:read(5000)
    if not chunk then return total, err end
    total = total + #chunk
  end
end

--- Waits until `check()` is true.
---@param what string
---@param check fun(): any
---@param timeout_ms? integer
function harness.eventually(what, check, timeout_ms)
  local deadline = task.now_ms() + (timeout_ms or 2000)
  while not check() do
    if task.now_ms() > deadline then error("not within its time: " .. what, 2) end
    task.sleep(2)
  end
end

---@class harness.Raw
---@field fd integer
---@field parts string[]  what was read and not handed out
---@field is_closed boolean
local raw = {}
raw.__index = raw

--- A raw connection to a unix socket.
---@param path string
---@return harness.Raw
function harness.connect(path)
  local fd = assert(os_calls.connect_unix(path))
  os_calls.set_nonblocking(fd)
  return setmetatable({ fd = fd, parts = {}, is_closed = false }, raw)
end

--- Takes what is there; true when something came.
function raw:pump()
  if self.is_closed then return false end
  local bytes, text = os_calls.read(self.fd)
  if bytes == "" or (not bytes and not text:find("temporarily")) then self.is_closed = true end
  if not bytes or bytes == "" then return false end
  self.parts[#self.parts + 1] = bytes
  return true
end

--- Sends all of `bytes`; false when the other side is gone. The server is in this thread, so that it cannot close
--- between the look and the write, which would be a SIGPIPE.
---@param bytes string
---@return boolean
function raw:send(bytes)
  local from = 1
  while from <= #bytes do
    repeat until not self:pump()
    if self.is_closed then return false end
    local n, text = os_calls.write(self.fd, bytes, from)
    if n then
      from = from + n
    elseif text:find("temporarily") then
      task.sleep(1)
    else
      return false
    end
  end
  return true
end

--- Reads until `pattern` is there, the other side closes, or nothing came for `quiet_ms`.
---@param pattern? string
---@param quiet_ms? integer
---@return string bytes
---@return boolean is_closed
function raw:receive(pattern, quiet_ms)
  local last = task.now_ms()
  while not self.is_closed and task.now_ms() - last < (quiet_ms or 1000) do
    if self:pump() then
      last = task.now_ms()
      if pattern and table.concat(self.parts):find(pattern) then break end
    else
      task.sleep(1)
    end
  end
  local bytes = table.concat(self.parts)
  self.parts = {}
  return bytes, self.is_closed
end

function raw:close()
  if self.fd then os_calls.close(self.fd) end
  self.fd = nil
end

raw.__close = raw.close

--- Runs a shell command beside the loop.
---@param command string
---@param environment? string[]  "NAME=value", beside PATH
---@return string stdout
---@return integer? code
function harness.shell(command, environment)
  local env = { "PATH=/usr/local/bin:/usr/bin:/bin" }
  table.move(environment or {}, 1, #(environment or {}), #env + 1, env)
  local reader, writer = assert(os_calls.pipe())
  local pid = assert(os_calls.spawn({ "/bin/sh", "-c", command }, env, nil, -1, writer, writer))
  os_calls.close(writer)
  os_calls.set_nonblocking(reader)
  local parts = {}
  local deadline = task.now_ms() + 30000
  while true do
    local bytes, text = os_calls.read(reader)
    if bytes == "" or (not bytes and not text:find("temporarily")) then break end
    if bytes then parts[#parts + 1] = bytes else task.sleep(2) end
    if task.now_ms() > deadline then os_calls.kill(-pid, 9) end
  end
  os_calls.close(reader)
  local status = os_calls.wait(pid)
  while not status do
    task.sleep(1)
    status = os_calls.wait(pid)
  end
  return table.concat(parts), status.code
end

--- Resident memory of this process.
---@return integer bytes
function harness.rss_bytes()
  local file = assert(io.open("/proc/self/statm"))
  local _, resident = file:read("n", "n")
  file:close()
  return resident * 4096
end

return harness
