--- A conversation over core.stdio and pipes with an app whose providers are no services (spec/scope/fake.lua).
local core = require "demilune.core"
local fake = require "spec.scope.fake"
local mcp = require "demilune.mcp"

local json, task = core.json, core.task

local wire = {}

--- What a client of 2026-07-28 sends with every request.
wire.MODERN = "2026-07-28"
local META = "io.modelcontextprotocol/"

---@class spec.mcp.Wire
local Wire = {}
Wire.__index = Wire

--- Sends a message.
function Wire:send(value)
  value.jsonrpc = "2.0"
  assert(core.sys.write(self.input, json.encode(value) .. "\n"))
end

--- The next message, or nil and why there is none.
function Wire:receive(timeout_ms)
  while not self.rest:find "\n" do
    local chunk, err = self.reader:read(timeout_ms or 5000)
    if not chunk then return nil, err and err.category end
    self.rest = self.rest .. chunk
  end
  local line
  line, self.rest = self.rest:match "^([^\n]*)\n(.*)$"
  return json.decode(line)
end

--- Sends a request and returns its id.
function Wire:ask(method, params)
  self.id = self.id + 1
  self:send { id = self.id, method = method, params = params }
  return self.id
end

--- Sends a request and waits for its answer; other messages that come before it are kept in `others`.
function Wire:request(method, params)
  local id = self:ask(method, params)
  while true do
    local message = assert(self:receive())
    if message.id == id and not message.method then return message end
    self.others[#self.others + 1] = message
  end
end

--- Begins a session.
function Wire:initialize(revision, capabilities)
  local result = assert(self:request("initialize", {
    protocolVersion = revision, capabilities = capabilities or {}, clientInfo = { name = "spec", version = "1" },
  }).result)
  self:send { method = "notifications/initialized" }
  return result
end

--- A request of 2026-07-28.
function Wire:modern(method, params, capabilities, meta)
  local all = {}
  for key, value in pairs(params or {}) do all[key] = value end
  all._meta = {
    [META .. "protocolVersion"] = wire.MODERN, [META .. "clientCapabilities"] = capabilities or json.decode "{}",
  }
  for key, value in pairs(meta or {}) do all._meta[key] = value end
  return self:request(method, all)
end

--- A case that runs `body(wire)` over a conversation.
---@param body fun(wire: spec.mcp.Wire)
---@param options? table  of fake.world
---@return fun()
function wire.case(body, options)
  return fake.run(function()
    local world = fake.world(options)
    local in_read, in_write = assert(core.sys.pipe())
    local out_read, out_write = assert(core.sys.pipe())
    local self = setmetatable({
      world = world, input = in_write, reader = assert(core.sys.reader(out_read)), rest = "", id = 0, others = {},
    }, Wire)
    local talk = mcp.new(world.app, { scope = world.scope, principal = world.principal, transport = "stdio" })
    talk.drained = task.event()
    talk.io = assert(core.stdio.serve {
      in_fd = in_read, out_fd = out_write, on_request = function(...) talk:on_request(...) end,
      on_notification = function(...) talk:on_notification(...) end,
    })
    self.talk = talk
    local ok, err = pcall(body, self)
    talk.io:close()
    self.reader:close()
    core.sys.close(in_write)
    if not ok then error(err, 0) end
  end)
end

return wire
