--- The client of somebody else's MCP server against answers that no honest server gives.

local core = require "demilune.core"
local errors = require "demilune.errors"
local remote_mcp = require "demilune.remote_mcp"

local json = core.json
local JSON, EVENTS = { ["content-type"] = "application/json" }, { ["content-type"] = "text/event-stream; charset=utf-8" }

--- A response that comes in pieces.
local function response(status, headers, chunks)
  if type(chunks) == "string" then chunks = { chunks } end
  local at = 0
  return {
    status = status, headers = headers,
    read = function()
      at = at + 1
      local chunk = chunks[at]
      if type(chunk) == "function" then return chunk() end
      return chunk
    end,
    close = function(self) self.is_closed = true end,
  }
end

local function result_of(id, result) return json.encode { jsonrpc = "2.0", id = id, result = result } end

local function hello(message, fields)
  local result = { protocolVersion = "2025-11-25", capabilities = {}, serverInfo = { name = "s", version = "1" } }
  for key, value in pairs(fields or {}) do result[key] = value end
  return response(200, JSON, result_of(message.id, result))
end

--- A client whose server is `answer(message, opts)` -> response; hellos are answered, unless `answer` does.
local function client_of(answer)
  local sent, responses = {}, {}
  local client = remote_mcp.new {
    url = "https://x.example/mcp", family = "veryfront",
    send = function(opts)
      local message = json.decode(opts.body)
      sent[#sent + 1] = { message = message, opts = opts }
      local res = answer(message, opts)
      if not res and message.method == "initialize" then res = hello(message) end
      if not res and message.method == "notifications/initialized" then res = response(202, {}, {}) end
      responses[#responses + 1] = res
      return res
    end,
  }
  return client, sent, responses
end

local function fault_of(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_true(errors.is(err), tostring(err))
  return err
end

--- What a call comes to when tools/call is answered so.
local function call(answer)
  local client, sent, responses = client_of(function(message, opts)
    if message.method == "tools/call" then return answer(message, opts) end
  end)
  local results = table.pack(pcall(client.call_tool, client, "t", { a = 1 }, { is_create = true }))
  for _, res in ipairs(responses) do assert.is_true(res.is_closed) end
  return results[1] and results[2] or nil, not results[1] and results[2] or nil, sent
end

local function events(...)
  local out = {}
  for i, value in ipairs { ... } do
    out[i] = "event: message\ndata: " .. (type(value) == "string" and value or json.encode(value)) .. "\n\n"
  end
  return table.concat(out)
end

local GOOD = { content = {}, structuredContent = { x = 1 } }

describe("a remote MCP server", function()
  it("is asked as the protocol says", function()
    local value, _, sent = call(function(message) return response(200, JSON, result_of(message.id, GOOD)) end)
    assert.are.same({ x = 1 }, value)
    assert.are.same({ "initialize", "notifications/initialized", "tools/call" },
      { sent[1].message.method, sent[2].message.method, sent[3].message.method })
    assert.are.equal("2025-11-25", sent[1].message.params.protocolVersion)
    assert.are.equal("demilune", sent[1].message.params.clientInfo.name)
    assert.is_nil(sent[2].message.id)
    assert.are.same({ name = "t", arguments = { a = 1 } }, sent[3].message.params)
    for i, one in ipairs(sent) do
      assert.are.equal("application/json, text/event-stream", one.opts.headers.Accept)
      assert.are.equal(i > 1 and "2025-11-25" or nil, one.opts.headers["MCP-Protocol-Version"])
      assert.is_nil(one.opts.headers["Mcp-Session-Id"])
      assert.are.equal(i < 3 and true or nil, one.opts.is_safe)
      assert.is_nil(one.opts.redirects)
    end
    assert.is_true(sent[1].message.id ~= sent[3].message.id)
  end)

  it("may keep a session of an older revision, by an id of visible characters", function()
    local client, sent = client_of(function(message)
      if message.method == "initialize" then
        local res = hello(message, { protocolVersion = "2025-03-26" })
        res.headers = { ["content-type"] = "application/json", ["mcp-session-id"] = "s-1" }
        return res
      elseif message.method == "tools/call" then
        return response(200, JSON, result_of(message.id, GOOD))
      end
    end)
    client:call_tool("t", {})
    assert.are.same({ "s-1", "2025-03-26" }, { sent[3].opts.headers["Mcp-Session-Id"],
      sent[3].opts.headers["MCP-Protocol-Version"] })
    for _, id in ipairs { "", "a b", "a\tb", "ä", ("x"):rep(1025) } do
      client = client_of(function(message)
        local res = hello(message)
        res.headers = { ["content-type"] = "application/json", ["mcp-session-id"] = id }
        return res
      end)
      assert.are.equal("invalid_response", fault_of(client.call_tool, client, "t", {}).category)
    end
  end)

  it("may not speak another revision, or none", function()
    for _, fields in ipairs { { protocolVersion = "2099-01-01" }, { protocolVersion = 7 }, { protocolVersion = json.null } } do
      local client, sent = client_of(function(message) return hello(message, fields) end)
      assert.are.equal("invalid_response", fault_of(client.call_tool, client, "t", {}).category)
      assert.are.equal(1, #sent)
    end
  end)

  it("may answer by events, in any pieces, after other messages and without the end of the stream", function()
    local value = call(function(message)
      local stream = ": hi\n\n" .. "id: 1\ndata:\n\n"
        .. events({ jsonrpc = "2.0", method = "notifications/message", params = { data = "x" } },
          { jsonrpc = "2.0", id = message.id, method = "ping" })
        .. "event: other\ndata: {\n\n" .. events(result_of(message.id, GOOD))
      local chunks = {}
      for i = 1, #stream do chunks[i] = stream:sub(i, i) end
      chunks[#chunks + 1] = function() error "read after the reply" end
      return response(200, EVENTS, chunks)
    end)
    assert.are.same({ x = 1 }, value)
  end)

  it("is not believed when it answers what is no reply", function()
    for name, answer in pairs {
      other_id = function(id) return json.encode { jsonrpc = "2.0", id = id + 1, result = GOOD } end,
      text_id = function(id) return json.encode { jsonrpc = "2.0", id = tostring(id), result = GOOD } end,
      no_version = function(id) return json.encode { id = id, result = GOOD } end,
      batch = function(id) return "[" .. result_of(id, GOOD) .. "]" end,
      no_json = function() return "<html>" end,
      empty = function() return "" end,
      no_result = function(id) return json.encode { jsonrpc = "2.0", id = id } end,
      list = function(id) return json.encode { jsonrpc = "2.0", id = id, result = json.array {} } end,
      request = function(id) return json.encode { jsonrpc = "2.0", id = id, method = "ping" } end,
    } do
      local _, err = call(function(message) return response(200, JSON, answer(message.id)) end)
      assert.are.equal("invalid_response", err and err.category, name)
      if name ~= "request" then
        _, err = call(function(message) return response(200, EVENTS, events(answer(message.id))) end)
        assert.are.equal("invalid_response", err and err.category, name .. " by events")
      end
    end
  end)

  it("is not believed when the kind of its answer is another, or its stream ends too early", function()
    for _, headers in ipairs { {}, { ["content-type"] = "text/html" }, { ["content-type"] = "application/jsonl" } } do
      local _, err = call(function(message) return response(200, headers, result_of(message.id, GOOD)) end)
      assert.are.equal("invalid_response", err.category)
    end
    local _, err = call(function(message)
      local stream = events(result_of(message.id, GOOD))
      return response(200, EVENTS, stream:sub(1, -2))
    end)
    assert.are.equal("invalid_response", err.category)
  end)

  it("is cut off where an answer has no end", function()
    local piece = ("x"):rep(1 << 20)
    for _, headers in ipairs { JSON, EVENTS } do
      local fed = 0
      local endless = setmetatable({}, { __index = function() fed = fed + 1; return piece end })
      local _, err = call(function() return response(200, headers, endless) end)
      assert.are.equal("invalid_response", err.category)
      assert.are.equal(5, fed)
      fed = 0
      _, err = call(function() return response(500, headers, endless) end)
      assert.are.equal("unavailable", err.category)
      assert.are.equal(1, fed)
    end
  end)

  it("fails with what its transport failed with", function()
    local late = { function() return nil, errors.new "provider_timeout" end }
    local _, err = call(function() return response(200, EVENTS, late) end)
    assert.are.equal("provider_timeout", err.category)
    _, err = call(function() errors.raise "connection_failed" end)
    assert.are.equal("connection_failed", err.category)
  end)

  it("has 30 s a request and 50 s a call, however it dawdles", function()
    local client, sent = client_of(function(message)
      if message.method == "tools/call" then
        return response(200, EVENTS, setmetatable({}, { __index = function() return ": still here\n\n" end }))
      end
    end)
    local before_ms = core.task.now_ms()
    local err = fault_of(client.call_tool, client, "t", {}, { deadline_ms = before_ms + 80 })
    assert.are.equal("provider_timeout", err.category)
    assert.is_true(core.task.now_ms() - before_ms < 1000)
    assert.is_true(sent[1].opts.timeout_ms <= 80 and sent[1].opts.deadline_ms <= before_ms + 80)
    assert.are.equal("provider_timeout", fault_of(client.call_tool, client, "t", {}, { deadline_ms = before_ms }).category)
    client, sent = client_of(function(message)
      if message.method == "tools/call" then return response(200, JSON, result_of(message.id, GOOD)) end
    end)
    client:call_tool("t", {})
    assert.are.equal(30000, sent[3].opts.timeout_ms)
    local left_ms = client:deadline() - core.task.now_ms()
    assert.is_true(left_ms > 49000 and left_ms <= 50000)
  end)

  it("lists its tools over pages, but not for ever", function()
    local function lister(pages)
      local count = 0
      return client_of(function(message)
        if message.method ~= "tools/list" then return nil end
        count = count + 1
        return response(200, JSON, result_of(message.id, pages(count, message.params.cursor)))
      end)
    end
    local client, sent = lister(function(count)
      return { tools = json.array { { name = "t" .. count }, 7, { name = 7 } }, nextCursor = count < 3 and "c" .. count or nil }
    end)
    local tools = client:list_tools()
    assert.is_truthy(tools.t1 and tools.t2 and tools.t3)
    assert.are.same({}, sent[3].message.params)
    assert.are.same({ cursor = "c2" }, sent[5].message.params)
    for _, pages in ipairs {
      function(count) return { tools = json.array {}, nextCursor = "c" .. count } end,
      function() return { tools = json.array {}, nextCursor = "same" } end,
      function() return { tools = json.array {}, nextCursor = 7 } end,
      function() return { tools = {} } end,
      function(count) return { tools = json.array { { name = ("x"):rep(6 << 20) } }, nextCursor = "c" .. count } end,
    } do
      client, sent = lister(pages)
      assert.are.equal("invalid_response", fault_of(client.list_tools, client).category)
      assert.is_true(#sent <= 52)
    end
  end)

  it("is told apart by codes that are known, and by nothing else that it says", function()
    for body, expected in pairs {
      ['{"slug":"insufficient-credits"}'] = { "quota_exceeded", "insufficient-credits" },
      ['{"code":"resource-limit-exceeded"}'] = { "quota_exceeded", "resource-limit-exceeded" },
      ['{"code":"something-else","message":"https://secret"}'] = { "provider_rejected" },
      ['{"status":404}'] = { "not_found" }, ['{"status":200}'] = { "provider_rejected" },
      ['{"status":"404"}'] = { "provider_rejected" },
      ["plain"] = { "provider_rejected" }, ["[insufficient-credits] words"] = { "quota_exceeded", "insufficient-credits" },
      ["[unknown-code] words"] = { "provider_rejected" }, ['{"error":{"code":"insufficient-credits"}}'] = { "quota_exceeded",
        "insufficient-credits" },
    } do
      local _, err = call(function(message)
        return response(200, JSON, result_of(message.id, {
          isError = true, content = json.array { { type = "text", text = body } },
        }))
      end)
      assert.are.same({ expected[1], expected[2] }, { err.category, err.code }, body)
      assert.is_nil(json.encode(errors.public(err)):find("secret", 1, true))
    end
  end)

  it("that knows a session no more is greeted again, once", function()
    local hellos = 0
    local client, sent = client_of(function(message, opts)
      if message.method == "initialize" then
        hellos = hellos + 1
        local res = hello(message)
        res.headers = { ["content-type"] = "application/json", ["mcp-session-id"] = "s" .. hellos }
        return res
      elseif message.method == "tools/call" then
        if opts.headers["Mcp-Session-Id"] == "s1" then return response(404, JSON, "{}") end
        return response(200, JSON, result_of(message.id, GOOD))
      end
    end)
    assert.are.same({ x = 1 }, client:call_tool("t", {}))
    assert.are.equal(2, hellos)
    assert.are.equal(6, #sent)
    -- Without a session a 404 is an answer like any other.
    local _, err = call(function() return response(404, JSON, "{}") end)
    assert.are.same({ "not_found", 404 }, { err.category, err.status })
  end)

  it("gets no request larger than 4 MiB", function()
    local client, sent = client_of(function() end)
    assert.are.equal("too_large", fault_of(client.call_tool, client, "t", { a = ("x"):rep(4 << 20) }).category)
    assert.are.equal(2, #sent)
  end)
end)
