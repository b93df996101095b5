--- A client of `demilune serve --http` for specs: requests as the revisions want them, and streams of events read one by one.
local core = require "demilune.core"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

local json, task = core.json, core.task
local client = {}

local WAIT_MS = 10000
local META = "io.modelcontextprotocol/"
client.EVENTS = "application/json, text/event-stream"
client.PLAIN = { ["Content-Type"] = "application/json", Accept = client.EVENTS }

--- Until `check()` is true; the program's output is read meanwhile.
function client.eventually(server, what, check)
  local deadline = os_calls.now_ms() + WAIT_MS
  while not check() do
    assert(os_calls.now_ms() < deadline, "not within its time: " .. what .. "; stderr: " .. server.stderr)
    server:pump(20)
    if task.current() then task.sleep(1) end
  end
end

--- Starts a server; its `port` is where it listens.
function client.start(options)
  options = options or {}
  options.args = options.args or { "serve", "--http", "127.0.0.1:0" }
  local server = demilune.start(options)
  client.eventually(server, "it listens", function() return server.stderr:find "listening on %S+/mcp" end)
  server.port = server.stderr:match "listening on http://[^:]+:(%d+)/mcp"
  return server
end

--- Runs a case in a task.
function client.run(body)
  task.run(function()
    local ok, err = xpcall(body, debug.traceback)
    core.http.close_idle()
    if not ok then error(err, 0) end
  end)
end

--- `base` with `more`; "absent" takes a field away.
function client.with(base, more)
  local all = {}
  for name, value in pairs(base) do all[name] = value end
  for name, value in pairs(more or {}) do all[name] = value ~= "absent" and value or nil end
  return all
end

--- One request and its whole answer.
function client.fetch(server, method, headers, body, path)
  return assert(core.http.request {
    url = ("http://127.0.0.1:%s%s"):format(server.port, path or "/mcp"), method = method, headers = headers, body = body,
    timeout_ms = 15000, max_body_bytes = 1 << 20,
  })
end

--- A POST of a message, or of text.
function client.post(server, body, more)
  return client.fetch(server, "POST", client.with(client.PLAIN, more), type(body) == "string" and body or json.encode(body))
end

function client.message(method, params, id)
  return { jsonrpc = "2.0", id = id or 1, method = method, params = params }
end

function client.hello(revision, capabilities)
  return client.message("initialize", {
    protocolVersion = revision or "2025-11-25", capabilities = capabilities or {}, clientInfo = { name = "spec", version = "1" },
  })
end

function client.call(tool, arguments, id)
  return client.message("tools/call", { name = tool, arguments = arguments or {} }, id)
end

--- A session: a function that posts in it, and its header fields.
function client.session(server, revision, capabilities)
  local res = client.post(server, client.hello(revision, capabilities))
  assert(res.status == 200, res.body)
  local headers = {
    ["Mcp-Session-Id"] = assert(res.headers["mcp-session-id"]), ["MCP-Protocol-Version"] = revision or "2025-11-25",
  }
  assert(client.post(server, { jsonrpc = "2.0", method = "notifications/initialized" }, headers).status == 202)
  return function(body, more) return client.post(server, body, client.with(headers, more)) end, headers
end

--- A request of 2026-07-28 and its header fields.
function client.modern(method, params, name, id)
  params = client.with(params or {})
  params._meta = client.with(params._meta or {}, {
    [META .. "protocolVersion"] = "2026-07-28", [META .. "clientCapabilities"] = {},
  })
  return client.message(method, params, id), {
    ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = method, ["Mcp-Name"] = name,
  }
end

-- ---- streams ----

---@class spec.http.Stream
local Stream = {}
Stream.__index = Stream

--- Sends a request whose answer is read piece by piece.
function client.open(server, method, headers, body)
  local res = assert(core.http.request {
    url = ("http://127.0.0.1:%s/mcp"):format(server.port), method = method, headers = headers,
    body = type(body) == "table" and json.encode(body) or body, timeout_ms = 15000, stream = true, is_fresh = true,
  })
  return setmetatable({ res = res, status = res.status, headers = res.headers, rest = "" }, Stream)
end

--- The next event: { id?, data, message? }; comments and `retry` alone are passed over. Nil at the end.
function Stream:next()
  while true do
    local block, rest = self.rest:match "^(.-)\n\n(.*)$"
    if block then
      self.rest = rest
      local event = { id = block:match "id: ([^\n]*)", data = block:match "data: ([^\n]*)", retry = block:match "retry: (%d+)" }
      if event.data then
        event.message = event.data ~= "" and json.decode(event.data) or nil
        return event
      end
    else
      local chunk = self.res:read()
      if not chunk then return nil end
      self.rest = self.rest .. chunk
    end
  end
end

--- Breaks the connection.
function Stream:close() self.res:close() end

return client
