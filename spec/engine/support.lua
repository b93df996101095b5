--- An engine of its own for a spec file, and a client for it: the real program, real sandboxes, core.http.
--
--   local engine = support.start()
--   support.run(function() local sandbox = engine:create() ... end)
--   engine:stop()

local connect = require "demilune.connect"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

local TIMEOUT_MS = 20000

---@class spec.engine.support
local support = {}

---@class spec.engine.Engine
---@field program spec.Program
---@field home string
---@field socket string
local Engine = {}
Engine.__index = Engine

--- Engines that nobody has stopped yet: what a case that failed leaves.
local running = {}

--- Runs `fn` as a task; raises what it raises. No connection is left open.
---@param fn function
function support.run(fn)
  return core.task.run(function()
    local results = table.pack(pcall(fn))
    core.http.close_idle()
    if not results[1] then error(results[2], 0) end
    return table.unpack(results, 2, results.n)
  end)
end

--- Waits up to `timeout_ms` for `check()` to be true; returns its last value.
---@param check fun(): any
---@param timeout_ms? integer
function support.eventually(check, timeout_ms)
  local end_ms = core.task.now_ms() + (timeout_ms or 5000)
  local value = check()
  while not value and core.task.now_ms() < end_ms do
    core.task.sleep(5)
    value = check()
  end
  return value
end

--- Starts an engine and waits until it listens.
---@param options? { home?: string, args?: string[], argv?: string[], env?: table }
---@return spec.engine.Engine
function support.start(options)
  options = options or {}
  local home = options.home or demilune.home()
  local args = { "engine", "--log-level", "debug" }
  for _, word in ipairs(options.args or {}) do args[#args + 1] = word end
  local program = demilune.start { args = args, home = home, argv = options.argv, env = options.env }
  local self = setmetatable({ program = program, home = home, socket = home .. "/state/demilune/engine.sock" }, Engine)
  running[self] = true
  local ready = support.run(function()
    return support.eventually(function()
      local res = self:request("GET", "/demilune")
      return res and res.status == 200 and core.json.decode(res.body).pid == program.pid
    end)
  end)
  if not ready then
    program:wait(100)
    error("the engine did not start: " .. program.stderr)
  end
  return self
end

--- A key as E2B's SDK takes it.
support.KEY = "e2b_" .. ("0123456789"):rep(4)

--- Writes a private file.
---@param path string
---@param text string
---@param mode? string  octal
function support.write_key(path, text, mode)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  assert(os_calls.chmod(path, tonumber(mode or "600", 8)))
end

--- Starts an engine that listens on TCP as well: the engine over its unix socket, and over TCP.
---@param options? { args?: string[], listen?: string }
---@return spec.engine.Engine here
---@return spec.engine.Engine public
function support.start_public(options)
  options = options or {}
  local home = demilune.home()
  support.write_key(home .. "/key", support.KEY .. "\n")
  local args = { "--listen", options.listen or "127.0.0.1:0", "--key-file", home .. "/key" }
  for _, word in ipairs(options.args or {}) do args[#args + 1] = word end
  local here = support.start { home = home, args = args }
  local url
  local end_ms = core.task.now_ms() + 5000
  while not url and core.task.now_ms() < end_ms do
    here.program:pump(50)
    url = here.program.stdout:match "^demilune engine listens on (http://%S+:%d+)\n$"
  end
  return here, setmetatable({ program = here.program, home = home, url = assert(url), key = support.KEY }, Engine)
end

--- Ends it (SIGTERM) and removes its home. Returns how it ended.
---@param keeps_home? boolean
function Engine:stop(keeps_home)
  self.program:signal(15)
  local ended = self.program:wait(6000)
  self.program:stop()
  running[self] = nil
  if not keeps_home then os.execute("rm -rf '" .. self.home .. "'") end
  return ended
end

--- kill -9; the home stays.
function Engine:kill()
  self.program:signal(9)
  local ended = self.program:wait(6000)
  self.program:stop()
  running[self] = nil
  return ended
end

--- Stops all engines that are left.
function support.stop_all()
  for engine in pairs(running) do engine:stop(true) end
end

--- A request; res or nil, err. `options`: headers, body, stream, timeout_ms; over TCP the key goes along, unless
--- is_stranger.
---@param method string
---@param path string
---@param options? table
function Engine:request(method, path, options)
  options = options or {}
  local headers = options.headers
  if self.key and not options.is_stranger then
    headers = { ["X-API-KEY"] = self.key }
    for name, value in pairs(options.headers or {}) do headers[name] = value end
  end
  return core.http.request {
    method = method, url = (self.url or "http://localhost") .. path, unix_socket = self.socket, headers = headers,
    body = options.body, timeout_ms = options.timeout_ms or TIMEOUT_MS, stream = options.stream,
    max_body_bytes = not options.stream and (options.max_body_bytes or 1 << 30) or nil,
  }
end

--- A JSON call of the control plane: status, decoded body (nil for none), res.
---@param method string
---@param path string
---@param body? table|string
---@param headers? table
function Engine:call(method, path, body, headers)
  headers = headers or {}
  if body and not headers["Content-Type"] then headers["Content-Type"] = "application/json" end
  if type(body) == "table" then body = core.json.encode(body) end
  local res = assert(self:request(method, path, { headers = headers, body = body }))
  return res.status, res.body ~= "" and core.json.decode(res.body) or nil, res
end

---@class spec.engine.Sandbox
---@field engine spec.engine.Engine
---@field id string
local Sandbox = {}
Sandbox.__index = Sandbox

--- Creates a sandbox; fields are added to the body.
---@param fields? table
---@return spec.engine.Sandbox
function Engine:create(fields)
  local body = { templateID = "base", timeout = 300 }
  for key, value in pairs(fields or {}) do body[key] = value end
  local status, created = self:call("POST", "/sandboxes", body)
  assert(status == 201, ("%d %s"):format(status, created and created.message or ""))
  return setmetatable({ engine = self, id = created.sandboxID, created = created }, Sandbox)
end

--- Holds a lease: the streaming response and its first line.
---@param id string
function Engine:lease(id)
  local res = assert(self:request("GET", "/demilune/lease?id=" .. id, { stream = true }))
  return res, res:read(5000)
end

--- Headers that name the sandbox, and more.
---@param more? table
function Sandbox:headers(more)
  local headers = { ["E2b-Sandbox-Id"] = self.id, ["E2b-Sandbox-Port"] = "49983", ["Connect-Protocol-Version"] = "1" }
  local token = self.created.envdAccessToken
  if type(token) == "string" then headers["X-Access-Token"] = token end
  for name, value in pairs(more or {}) do headers[name] = value end
  return headers
end

--- A request to the data plane.
---@param method string
---@param path string
---@param options? table
function Sandbox:request(method, path, options)
  options = options or {}
  local copy = {}
  for key, value in pairs(options) do copy[key] = value end
  copy.headers = self:headers(options.headers)
  copy.is_stranger = true -- the data plane wants a token, no key
  return self.engine:request(method, path, copy)
end

--- A unary Connect call: status, decoded body.
---@param method string  "process.Process/List"
---@param message? table|string
---@param headers? table
function Sandbox:unary(method, message, headers)
  headers = headers or {}
  headers["Content-Type"] = headers["Content-Type"] or "application/json"
  local body = type(message) == "string" and message or core.json.encode(message or {})
  local res = assert(self:request("POST", "/" .. method, { headers = headers, body = body }))
  return res.status, core.json.decode(res.body)
end

--- Opens a stream: the response, and a function that gives the next { flags=, message= } or nil.
---@param method string
---@param message table  { raw = text } is sent as it is
---@param headers? table
function Sandbox:open(method, message, headers)
  local all = { ["Content-Type"] = "application/connect+json" }
  for name, value in pairs(headers or {}) do all[name] = value end
  local text = message.raw or core.json.encode(message)
  local res = assert(self:request("POST", "/" .. method, { headers = all, body = connect.frame(0, text), stream = true }))
  local decoder = connect.decoder(16 << 20)
  local function next_frame(timeout_ms)
    while true do
      local flags, payload = decoder:next()
      if flags then return { flags = flags, message = core.json.decode(payload) } end
      local chunk, err = res:read(timeout_ms or 10000)
      if not chunk then return nil, err end
      decoder:feed(chunk)
    end
  end
  return res, next_frame
end

--- The process part of a Start message for a shell command.
---@param command string
---@param more? table
function support.shell(command, more)
  local message = { process = { cmd = "/bin/sh", args = core.json.array { "-c", command } }, stdin = false }
  for key, value in pairs(more or {}) do
    if key == "envs" or key == "cwd" then message.process[key] = value else message[key] = value end
  end
  return message
end

--- Runs a Start stream to its end: { pid=, stdout=, stderr=, ["end"]=, error=, output=, lines=, keepalives=, is_whole= }.
---@param message table|string  a command, or a whole message
---@param headers? table
function Sandbox:start(message, headers)
  if type(message) == "string" then message = support.shell(message) end
  local res, next_frame = self:open("process.Process/Start", message, headers)
  local run = { stdout = "", stderr = "", lines = {}, keepalives = 0, status = res.status }
  for frame in next_frame do
    if frame.flags == 2 then
      run.is_whole, run.error = true, frame.message.error
      break
    end
    local event = frame.message.event
    if event.start then run.pid = event.start.pid end
    for _, name in ipairs { "stdout", "stderr" } do
      local text = event.data and event.data[name]
      if text then run[name] = run[name] .. core.crypto.unbase64(text) end
    end
    if event.line then table.insert(run.lines, event.line.text) end
    if event.keepalive then run.keepalives = run.keepalives + 1 end
    run.output = event.output or run.output
    run["end"] = event["end"] or run["end"]
  end
  res:close()
  return run
end

--- Percent-encodes for a query.
---@param text string
function support.escape(text)
  return (text:gsub("[^%w._~-]", function(c) return ("%%%02X"):format(c:byte()) end))
end

--- GET /files: res.
---@param path string
---@param headers? table
function Sandbox:read(path, headers)
  return assert(self:request("GET", "/files?path=" .. support.escape(path), { headers = headers }))
end

--- POST /files of raw bytes: status, decoded body, res.
---@param path string
---@param bytes string
---@param headers? table
function Sandbox:write(path, bytes, headers)
  local all = { ["Content-Type"] = "application/octet-stream" }
  for name, value in pairs(headers or {}) do all[name] = value end
  local res = assert(self:request("POST", "/files?path=" .. support.escape(path), { headers = all, body = bytes }))
  return res.status, core.json.decode(res.body), res
end

--- Ends it.
function Sandbox:kill() return self.engine:call("DELETE", "/sandboxes/" .. self.id) end

support.signal = os_calls.kill

return support
