--- The e2b driver against a service of the spec's own: every answer is what the spec says.
--
--   local wire = wire.open(function(req) ... end)     -- inside a task
--   local result, err = wire:call("get_sandbox", { sandbox_id = "x1" })
--   wire:close()

local app = require "demilune.app"
local config = require "demilune.config"
local connect = require "demilune.connect"
local core = require "demilune.core"
local e2b = require "demilune.providers.e2b"

local wire = {}

local made = 0

---@class spec.Wire
---@field requests table[]  {method, path, query, headers, body} in the order they came
local Wire = {}
Wire.__index = Wire

--- Driver methods that the clouds' drivers will have; only `create` is more than a name.
local Provider = setmetatable({}, { __index = e2b.class })
Provider.__index = Provider
function Provider:template_names() return { "base" } end
function Provider:network() return "provider" end
function Provider:has_network() return true end
function Provider:create(opts)
  opts.template = opts.template or "base"
  return self:post_creation(opts, {}, function(answer) return self:info_of(answer) end)
end

package.loaded["demilune.providers.wire"] = {
  new = function(entry) return setmetatable(e2b.new(entry, { url = "http://localhost", unix_socket = entry.socket }),
    Provider) end,
}

--- Starts the service and an app that has it for its one provider.
---@param answer fun(req: table, body: string)  answers a request
---@param entry? table  more fields of the provider's entry
---@return spec.Wire
function wire.open(answer, entry)
  made = made + 1
  local path = ("%s/wire-%d.sock"):format(os.getenv "DML_SPEC_TMP" or "/tmp", made)
  local self = setmetatable({ requests = {}, answer = answer, path = path }, Wire)
  self.server = assert(core.httpd.listen {
    fd = assert(core.sys.listen_unix(path)), connections = 32, max_header_bytes = 16384, max_requests = 32,
    handler = function(req)
      local body = req:read_all(64 << 20) or ""
      self.requests[#self.requests + 1] = { method = req.method, path = req.path, query = req.query, headers = req.headers,
        body = body }
      self.answer(req, body)
    end,
  })
  local loaded = config.defaults()
  loaded.providers = { { id = "wire", type = "wire", socket = path, lifetime = 300, max_lifetime = 86400,
    tenancy = "account" } }
  for key, value in pairs(entry or {}) do loaded.providers[1][key] = value end
  loaded.default_provider = "wire"
  self.app = app.new(loaded)
  self.scope = self.app:new_scope "local:spec"
  self.provider = self.app.providers[1]
  return self
end

--- Calls a tool.
function Wire:call(name, arguments)
  return self.app:call(self.app.tools_by_name[name], arguments or {}, {
    scope = self.scope, principal = "local:spec", client = "spec", transport = "stdio",
  })
end

--- Ends it.
function Wire:close()
  self.server:close()
  core.http.close_idle()
  os.remove(self.path)
end

--- Runs `fn(wire)` with a service; raises what it raises.
function wire.with(answer, fn, entry)
  return core.task.run(function()
    local self = wire.open(answer, entry)
    local ok, err = pcall(fn, self)
    self:close()
    if not ok then error(err, 0) end
  end)
end

--- Answers with JSON.
function wire.json(req, status, value, headers)
  headers = headers or {}
  headers["Content-Type"] = "application/json"
  req:respond(status, headers, type(value) == "string" and value or core.json.encode(value))
end

--- Answers a Start with frames of the spec's own.
function wire.stream(req, frames)
  req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
  for _, frame in ipairs(frames) do req:write(frame) end
  req:finish()
end

--- A sandbox as the service describes it.
function wire.detail(fields)
  local detail = {
    sandboxID = "x1", templateID = "base", state = "running", startedAt = "2026-01-01T00:00:00.000Z",
    endAt = "2036-01-01T00:00:00.000Z", cpuCount = 2, memoryMB = 512, diskSizeMB = 1024,
  }
  for key, value in pairs(fields or {}) do detail[key] = value end
  return detail
end

return wire
