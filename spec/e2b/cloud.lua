--- A service of the spec's own that speaks E2B's protocol over TCP, and an app whose one provider it is.
--
--   cloud.with({ entry fields }, function(req, body) ... answers ... end, function(service) ... end)
--
-- Every answer is what the spec says; every request is kept. Its API and its sandboxes share one address.

local app = require "demilune.app"
local config = require "demilune.config"
local core = require "demilune.core"

local cloud = {}

cloud.KEY = "e2b_0123456789abcdef0123456789abcdef01234567"
cloud.TOKEN = "tok_9876543210fedcba9876543210fedcba"

---@class spec.Cloud
---@field requests table[]  {method, path, query, headers, body} in the order they came
local Cloud = {}
Cloud.__index = Cloud

local function key_file()
  local path = os.tmpname()
  assert(core.fs.write(path, cloud.KEY .. "\n"))
  return path
end

--- Starts the service and an app that has it for its one provider.
function cloud.open(entry, answer)
  local self = setmetatable({ requests = {}, answer = answer, file = key_file() }, Cloud)
  local fd, port = assert(core.httpd.listen_tcp("127.0.0.1", 0))
  self.url = "http://127.0.0.1:" .. port
  self.server = assert(core.httpd.listen {
    fd = fd, connections = 32, max_header_bytes = 16384, max_requests = 32,
    handler = function(req)
      local body = req:read_all(64 << 20) or ""
      self.requests[#self.requests + 1] = {
        method = req.method, path = req.path, query = req.query, headers = req.headers, body = body,
      }
      self.answer(req, body, self)
    end,
  })
  local loaded = config.defaults()
  loaded.credentials = { cloud = { source = "file:" .. self.file } }
  loaded.providers = { {
    id = "cloud", type = "e2b", preset = "e2b", api_url = self.url, sandbox_url = self.url, credential = "cloud", lifetime = 300,
    max_lifetime = 86400, tenancy = "account", auto_resume = true, max_requests = 16, templates = {},
  } }
  for name, value in pairs(entry) do loaded.providers[1][name] = value end
  loaded.default_provider = "cloud"
  self.app = app.new(loaded)
  self.scope = self.app:new_scope "local:spec"
  self.provider = self.app.providers[1]
  return self
end

--- Calls a tool.
function Cloud:call(name, arguments)
  return self.app:call(self.app.tools_by_name[name], arguments or {}, {
    scope = self.scope, principal = "local:spec", client = "spec", transport = "stdio",
  })
end

--- The requests as "METHOD path", those of a path only.
function Cloud:sent(pattern)
  local list = {}
  for _, request in ipairs(self.requests) do
    local line = request.method .. " " .. request.path
    if not pattern or line:find(pattern) then list[#list + 1] = line end
  end
  return list
end

--- The newest request whose "METHOD path" has that pattern.
function Cloud:last(pattern)
  for i = #self.requests, 1, -1 do
    local request = self.requests[i]
    if (request.method .. " " .. request.path):find(pattern) then return request end
  end
end

--- Runs `fn(service)` with a service; raises what it raises.
function cloud.with(entry, answer, fn)
  return core.task.run(function()
    local self = cloud.open(entry, answer)
    local ok, err = pcall(fn, self)
    self.server:close()
    core.http.close_idle()
    os.remove(self.file)
    if not ok then error(err, 0) end
  end)
end

--- A sandbox as the service describes it.
function cloud.detail(fields)
  local detail = {
    sandboxID = "x1", templateID = "base", state = "running", startedAt = "2026-01-01T00:00:00.000Z",
    endAt = "2036-01-01T00:00:00.000Z", cpuCount = 2, memoryMB = 512, diskSizeMB = 1024, envdVersion = "0.6.5",
    envdAccessToken = cloud.TOKEN, domain = core.json.null,
  }
  for name, value in pairs(fields or {}) do detail[name] = value end
  return detail
end

return cloud
