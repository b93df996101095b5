--- A server with real sandboxes for a spec file, and what the files of tools share.

local check = require "spec.tools.valid"
local core = require "demilune.core"
local demilune = require "spec.support.demilune"

local support = {}

local schemas

--- The output schemas by tool, as the server lists them.
local function learn(server)
  local listed = assert(server:request("tools/list"))
  schemas = {}
  for _, tool in ipairs(listed.tools) do schemas[tool.name] = tool.outputSchema end
end

--- Starts a server and says hello.
---@param options? spec.StartOptions
---@return spec.Program
function support.server(options)
  local server = demilune.start(options)
  server:initialize()
  if not schemas then learn(server) end
  return server
end

--- Calls a tool that has to work; its result, checked against the tool's output schema and its own text block.
function support.must(server, name, arguments, timeout_ms)
  local content, result = server:call(name, arguments, timeout_ms)
  if not content then
    local err = result
    error(("%s: %s %s (%s)"):format(name, err.category, err.message, err.field or ""), 2)
  end
  local text = core.json.decode(result.content[1].text)
  local schema = schemas[name]
  local fault
  if name ~= "download_file" then fault = check(text, schema) end
  if fault then error(name .. ": " .. fault, 2) end
  for key in pairs(text) do
    if content[key] == nil then error(name .. ": the text has " .. key .. ", the structured content does not", 2) end
  end
  return content
end

--- Calls a tool that has to fail; its error.
function support.fault(server, name, arguments, timeout_ms)
  local content, err, result = server:call(name, arguments, timeout_ms)
  if content then error(name .. " worked", 2) end
  assert(result.isError == true and result.structuredContent == nil, name)
  assert(result._meta["dev.demilune/error"].category == err.category)
  return err
end

--- Runs a shell command that has to end with 0; its stdout.
function support.shell(server, command, timeout_ms)
  local run = support.must(server, "run_command", { command = command }, timeout_ms)
  if run.exit_code ~= 0 then error(("%s: exit %s: %s"):format(command, tostring(run.exit_code), run.stderr), 2) end
  return run.stdout
end

--- Waits until `fn()` is true; its value, or the last one.
function support.eventually(fn, timeout_ms)
  local os_calls = require "spec_os"
  local deadline = os_calls.now_ms() + (timeout_ms or 5000)
  local value = fn()
  while not value and os_calls.now_ms() < deadline do
    os_calls.sleep_ms(20)
    value = fn()
  end
  return value
end

--- Peak resident memory of a process in MiB.
function support.peak_mb(pid)
  for line in io.lines("/proc/" .. pid .. "/status") do
    local kib = line:match "^VmHWM:%s+(%d+) kB"
    if kib then return math.tointeger(kib) // 1024 end
  end
end

return support
