--- The real program, driven over pipes as a client drives it.
--
--   local server = demilune.start()                    -- `demilune serve` with a home of its own
--   server:initialize("2025-11-25")
--   local result = server:call("run_command", { command = "echo hi" })
--   server:stop()                                      -- ends it, its engine, and removes the home
--
-- Built on the spec_os module alone, so it does not lean on the code under test. Every wait has a
-- deadline (10 s unless said otherwise) and raises when it passes.

local build = require "spec.support.build"
local cjson = require "cjson"
local lfs = require "lfs"
local os_calls = require "spec_os"

-- Sanitizers make everything slower.
local SLOWER = build.sanitize ~= "" and 3 or 1
local DEADLINE_MS = 10000 * SLOWER
local END_MS = 2000 * SLOWER
local SIGTERM, SIGKILL = 15, 9

---@class spec.demilune
local demilune = {}

---@class spec.Program
---@field pid integer
---@field home string
---@field stdout string      all bytes so far
---@field stderr string      all bytes so far
---@field notifications table[]  messages without an id, in the order they came
local Program = {}
Program.__index = Program

local next_id = 0

--- A private home: HOME, XDG_STATE_HOME and XDG_CONFIG_HOME of a program. Removed by remove_home.
---@return string path  short, since socket paths are
function demilune.home()
  local path = assert(os_calls.mkdtemp((os.getenv("DML_SPEC_TMP") or "/tmp") .. "/h-XXXXXX"))
  assert(lfs.mkdir(path .. "/state"))
  assert(os_calls.chmod(path .. "/state", tonumber("700", 8)))
  return path
end

--- The state directory of a home.
---@param home string
---@return string
function demilune.state_dir(home) return home .. "/state/demilune" end

local function environment(home, extra)
  local variables = {
    PATH = "/usr/local/bin:/usr/bin:/bin",
    LANG = "C.UTF-8",
    HOME = home,
    XDG_STATE_HOME = home .. "/state",
    XDG_CONFIG_HOME = home .. "/config",
    ASAN_OPTIONS = "detect_leaks=0:exitcode=99",
    UBSAN_OPTIONS = "print_stacktrace=1",
  }
  for name, value in pairs(extra or {}) do variables[name] = value or nil end
  local list = {}
  for name, value in pairs(variables) do list[#list + 1] = name .. "=" .. value end
  return list
end

local function write_file(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
end

---@class spec.StartOptions
---@field args? string[]   default { "serve" }
---@field home? string     shared with another program; default a fresh one, removed by stop()
---@field config? string   Lua text of a configuration file, given by --config
---@field env? table<string, string|false>
---@field program? string  default the built demilune
---@field argv? string[]   a whole other command, its first a path
---@field cwd? string

--- Starts the program with pipes to its three streams.
---@param options? spec.StartOptions
---@return spec.Program
function demilune.start(options)
  options = options or {}
  local home = options.home or demilune.home()
  local argv = options.argv
  if not argv then
    argv = { options.program or build.program }
    for _, word in ipairs(options.args or { "serve" }) do argv[#argv + 1] = word end
    if options.config then
      write_file(home .. "/demilune.lua", options.config)
      argv[#argv + 1] = "--config"
      argv[#argv + 1] = home .. "/demilune.lua"
    end
  end
  local in_read, in_write = assert(os_calls.pipe())
  local out_read, out_write = assert(os_calls.pipe())
  local err_read, err_write = assert(os_calls.pipe())
  local pid = assert(os_calls.spawn(argv, environment(home, options.env), options.cwd, in_read, out_write, err_write))
  for _, fd in ipairs({ in_read, out_write, err_write }) do os_calls.close(fd) end
  for _, fd in ipairs({ in_write, out_read, err_read }) do assert(os_calls.set_nonblocking(fd)) end
  return setmetatable({
    pid = pid,
    home = home,
    owns_home = not options.home,
    stdin_fd = in_write,
    fds = { stdout = out_read, stderr = err_read },
    stdout = "",
    stderr = "",
    unread = "",
    answers = {},
    notifications = {},
  }, Program)
end

--- Takes in what the two output streams hold. Waits up to `timeout_ms` for the first byte.
function Program:pump(timeout_ms)
  local wanted = {}
  for _, fd in pairs(self.fds) do wanted[fd] = "r" end
  if not next(wanted) then return false end
  local ready = assert(os_calls.poll(wanted, math.max(0, timeout_ms)))
  for name, fd in pairs(self.fds) do
    if ready[fd] then
      local bytes, _, code = os_calls.read(fd, 1 << 20)
      if bytes and bytes ~= "" then
        self[name] = self[name] .. bytes
        if name == "stdout" then self.unread = self.unread .. bytes end
      elseif bytes == "" or (code ~= 11 and code ~= 4) then -- EAGAIN, EINTR
        os_calls.close(fd)
        self.fds[name] = nil
      end
    end
  end
  return true
end

--- Writes bytes to its stdin while its output is read. Raises at the deadline; a broken pipe gives false.
---@param bytes string
---@param timeout_ms? integer
---@return boolean
function Program:write(bytes, timeout_ms)
  local deadline, from = os_calls.now_ms() + (timeout_ms or DEADLINE_MS), 1
  while from <= #bytes do
    local n, _, code = os_calls.write(self.stdin_fd, bytes, from)
    if n then
      from = from + n
    elseif code == 32 then -- EPIPE
      return false
    else
      assert(os_calls.now_ms() < deadline, "the program does not read its stdin")
      self:pump(0)
      os_calls.poll({ [self.stdin_fd] = "w" }, 20)
    end
  end
  return true
end

--- Sends one line as it is.
---@param line string  without its line break
---@return boolean
function Program:send_line(line) return self:write(line .. "\n") end

--- The next line of stdout; nil and "eof" or "timeout".
---@param timeout_ms? integer
---@return string? line, string? why
function Program:read_line(timeout_ms)
  local deadline = os_calls.now_ms() + (timeout_ms or DEADLINE_MS)
  while true do
    local line, rest = self.unread:match("^([^\n]*)\n(.*)$")
    if line then
      self.unread = rest
      return line
    end
    local left = deadline - os_calls.now_ms()
    if not self.fds.stdout then return nil, "eof" end
    if left <= 0 then return nil, "timeout" end
    self:pump(left)
  end
end

--- The next message of stdout, decoded; its line too. Raises on the end, the deadline, and a line that is no JSON.
---@param timeout_ms? integer
---@return table message, string line
function Program:read_message(timeout_ms)
  local line, why = self:read_line(timeout_ms)
  if not line then error(("no message: %s; stderr: %s"):format(why, self.stderr:sub(-2000)), 2) end
  return cjson.decode(line), line
end

--- The answer to the request with that id, whatever comes before it; that is kept.
---@param id string|integer
---@param timeout_ms? integer
---@return table message
function Program:receive(id, timeout_ms)
  local deadline = os_calls.now_ms() + (timeout_ms or DEADLINE_MS)
  local key = tostring(id)
  while not self.answers[key] do
    local message = self:read_message(deadline - os_calls.now_ms())
    if message.id ~= nil and message.id ~= cjson.null then
      local number = tonumber(message.id)
      self.answers[tostring(number and math.tointeger(number) or message.id)] = message
    else
      table.insert(self.notifications, message)
    end
  end
  local answer = self.answers[key]
  self.answers[key] = nil
  return answer
end

--- Sends a request and returns its id. `params` is a table, or JSON text where an empty array matters.
---@param method string
---@param params? table|string
---@return integer id
function Program:send(method, params)
  next_id = next_id + 1
  local text = type(params) == "string" and params or params and cjson.encode(params)
  if text or self.meta then text = self:with_meta(text or "{}") end
  local tail = text and ',"params":' .. text or ""
  self:send_line(('{"jsonrpc":"2.0","id":%d,"method":"%s"%s}'):format(next_id, method, tail))
  return next_id
end

--- Adds the `_meta` of a modern client to the text of params.
function Program:with_meta(text)
  if not self.meta or text:find('"_meta"', 1, true) then return text end
  return text:gsub("^{%s*(}?)", function(close) return '{"_meta":' .. self.meta .. (close == "" and "," or close) end)
end

--- A notification.
---@param method string
---@param params? table|string
function Program:notify(method, params)
  local text = type(params) == "string" and params or params and cjson.encode(params)
  self:send_line(('{"jsonrpc":"2.0","method":"%s"%s}'):format(method, text and ',"params":' .. text or ""))
end

--- Sends a request and waits for its answer: result, or nil and the JSON-RPC error.
---@param method string
---@param params? table|string
---@param timeout_ms? integer
---@return table? result, table? err
function Program:request(method, params, timeout_ms)
  local answer = self:receive(self:send(method, params), timeout_ms)
  return answer.result, answer.error
end

--- The handshake of a revision up to 2025-11-25; for 2026-07-28 there is none, and requests carry `_meta` from now on.
---@param revision? string  default 2025-11-25
---@return table result  of initialize or server/discover
function Program:initialize(revision)
  revision = revision or "2025-11-25"
  if revision >= "2026" then
    self.meta = ('{"io.modelcontextprotocol/protocolVersion":"%s","io.modelcontextprotocol/clientInfo":'
      .. '{"name":"spec","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}'):format(revision)
    return assert(self:request("server/discover"))
  end
  local result, err = self:request("initialize",
    ('{"protocolVersion":"%s","capabilities":{},"clientInfo":{"name":"spec","version":"1"}}'):format(revision))
  assert(result, err and err.message)
  self:notify("notifications/initialized")
  return result
end

--- Calls a tool: its structured content and the whole result; or nil, the error object, the whole result.
--- Raises on a JSON-RPC error.
---@param name string
---@param arguments? table|string
---@param timeout_ms? integer
---@return table? content, table errOrResult, table? result
function Program:call(name, arguments, timeout_ms)
  local text = type(arguments) == "string" and arguments or cjson.encode(arguments or {})
  local result, err = self:request("tools/call", ('{"name":"%s","arguments":%s}'):format(name, text), timeout_ms)
  if not result then error(("%s: JSON-RPC error %s: %s"):format(name, err.code, err.message), 2) end
  if result.isError then return nil, cjson.decode(result.content[1].text).error, result end
  return result.structuredContent, result
end

--- Ends its stdin.
function Program:close_stdin()
  if self.stdin_fd then os_calls.close(self.stdin_fd) end
  self.stdin_fd = nil
end

--- Waits for its end; reads its output meanwhile. { code= } or { signal= }; nil at the deadline.
---@param timeout_ms? integer
---@return { code: integer?, signal: integer? }?
function Program:wait(timeout_ms)
  local deadline = os_calls.now_ms() + (timeout_ms or DEADLINE_MS)
  while not self.ended do
    local ended, why = os_calls.wait(self.pid)
    assert(ended ~= nil, why)
    if ended then
      self.ended = ended
    else
      local left = deadline - os_calls.now_ms()
      if left <= 0 then return nil end
      if not self:pump(math.min(left, 5)) then os_calls.sleep_ms(2) end
    end
  end
  -- What it wrote last is still in the pipes; a child of its own may keep them open.
  local last = os_calls.now_ms() + 100
  while next(self.fds) and os_calls.now_ms() < last do self:pump(5) end
  return self.ended
end

--- Sends a signal to it alone.
---@param signo integer
function Program:signal(signo) return os_calls.kill(self.pid, signo) end

--- Ends it as clients do (end of stdin, 2 s, TERM, 2 s, KILL), stops its engine and removes its home when nobody else
--- has it. May be called twice. Returns how it ended and whether it had to be told twice.
---@return { code: integer?, signal: integer? } ended, boolean was_slow
function Program:stop()
  self:close_stdin()
  local ended = self:wait(END_MS)
  local was_slow = not ended
  if not ended then
    self:signal(SIGTERM)
    ended = self:wait(END_MS)
  end
  if not ended then
    os_calls.kill(-self.pid, SIGKILL)
    ended = self:wait(END_MS)
  end
  for name, fd in pairs(self.fds) do
    os_calls.close(fd)
    self.fds[name] = nil
  end
  if self.owns_home then demilune.remove_home(self.home) end
  self.owns_home = false
  return ended, was_slow
end

--- Runs a command to its end.
---@param args string[]
---@param options? spec.StartOptions | { input?: string, timeout_ms?: integer }
---@return { code: integer?, signal: integer?, stdout: string, stderr: string }
function demilune.run(args, options)
  options = options or {}
  local program = demilune.start(setmetatable({ args = args }, { __index = options }))
  if options.input then program:write(options.input) end
  program:close_stdin()
  local ended = program:wait(options.timeout_ms)
  if not ended then
    os_calls.kill(-program.pid, SIGKILL)
    program:wait(2000)
    ended = { timed_out = true }
  end
  local result = { code = ended.code, signal = ended.signal, timed_out = ended.timed_out, stdout = program.stdout,
    stderr = program.stderr }
  program:stop()
  return result
end

--- Stops the engine of a home, if one runs.
---@param home string
function demilune.stop_engine(home)
  if lfs.attributes(demilune.state_dir(home)) then demilune.run({ "engine", "--stop" }, { home = home }) end
end

--- Stops the engine of a home and removes the home.
---@param home string
function demilune.remove_home(home)
  demilune.stop_engine(home)
  os.execute("rm -rf '" .. home .. "'")
end

return demilune
