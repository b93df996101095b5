-- timeout: 120
--- MCP on stdio over the real program: what each line is answered with, in every revision.

local cjson = require "cjson"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

local HEAD = '{"jsonrpc":"2.0",'
local BIG = "123456789012345678901234567890"
local LEGACY = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }
local META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'

local function deep(depth) return ("["):rep(depth) .. ("]"):rep(depth) end

--- A line, and the exact answer to it: {id, code}; false where there is none.
--- The id stands as JSON text, since 1 and "1" and 1 followed by 30 digits are not the same.
local BAD_LINES = {
  { "nonsense", "nonsense", { "null", -32700 } },
  { "half a message", HEAD .. '"id":1,"method":"ping"', { "null", -32700 } },
  { "a brace too many", HEAD .. '"id":1,"method":"ping"}}', { "null", -32700 } },
  { "two messages in a line", HEAD .. '"method":"x"}' .. HEAD .. '"method":"y"}', { "null", -32700 } },
  { "a trailing comma, the id being clear", HEAD .. '"id":1,"method":"ping",}', { "1", -32700 } },
  { "single quotes", "{'jsonrpc':'2.0'}", { "null", -32700 } },
  { "bytes that are no UTF-8", HEAD .. '"id":1,"method":"p\xFFng"}', { "1", -32700 } },
  { "overlong UTF-8", HEAD .. '"id":1,"method":"\xC0\x80"}', { "1", -32700 } },
  { "a surrogate in UTF-8", HEAD .. '"id":1,"method":"\xED\xA0\xBD"}', { "1", -32700 } },
  { "half a surrogate pair", HEAD .. '"id":1,"method":"\\ud83d"}', { "1", -32700 } },
  { "half a surrogate pair as id", HEAD .. '"id":"\\ud83d","method":"ping"}', { "null", -32700 } },
  { "NUL", "\0", { "null", -32700 } },
  { "NUL behind a number", HEAD .. '"id":1\0,"method":"ping"}', { "null", -32700 } },
  { "NUL in a key", HEAD .. '"id":1,"method":"ping","a\\u0000":1}', { "1", -32700 } },
  { "an LSP header", "Content-Length: 52", { "null", -32700 } },
  { "HTTP", "POST /mcp HTTP/1.1", { "null", -32700 } },
  { "a form feed", "\f", { "null", -32700 } },
  { "129 levels", HEAD .. '"id":1,"method":"ping","params":{"a":' .. deep(127) .. "}}", { "1", -32600 } },
  { "100,000 levels, the id behind them", HEAD .. '"method":"ping","params":{"a":' .. deep(100000) .. '},"id":7}', { "7",
    -32600 } },
  { "over 200,000 values", HEAD .. '"id":1,"method":"ping","params":{"a":[' .. ("1,"):rep(200000) .. "1]}}", { "1", -32600 } },
  { "an empty batch", "[]", { "null", -32600 } },
  { "a batch", "[" .. HEAD .. '"id":1,"method":"ping"},' .. HEAD .. '"id":2,"method":"ping"}]', { "null", -32600 } },
  { "a batch of nothing", "[1,2]", { "null", -32600 } },
  { "a number", "7", { "null", -32600 } },
  { "a string", '"ping"', { "null", -32600 } },
  { "null", "null", { "null", -32600 } },
  { "an empty object", "{}", { "null", -32600 } },
  { "no method", HEAD .. '"id":1}', { "1", -32600 } },
  { "a method that is a number", HEAD .. '"id":"a","method":1}', { '"a"', -32600 } },
  { "a method that is null", HEAD .. '"id":1,"method":null}', { "1", -32600 } },
  { "a method with NUL", HEAD .. '"id":1,"method":"ping\\u0000"}', { "1", -32600 } },
  { "no version", '{"id":1,"method":"ping"}', { "1", -32600 } },
  { "version 1.0", '{"jsonrpc":"1.0","id":1,"method":"ping"}', { "1", -32600 } },
  { "version as a number", '{"jsonrpc":2.0,"id":1,"method":"ping"}', { "1", -32600 } },
  { "version with NUL", '{"jsonrpc":"2.0\\u0000","id":1,"method":"ping"}', { "1", -32600 } },
  { "id null", HEAD .. '"id":null,"method":"ping"}', { "null", -32600 } },
  { "id 1.0", HEAD .. '"id":1.0,"method":"ping"}', { "null", -32600 } },
  { "id 8.5", HEAD .. '"id":8.5,"method":"ping"}', { "null", -32600 } },
  { "id 1e2", HEAD .. '"id":1e2,"method":"ping"}', { "null", -32600 } },
  { "id true", HEAD .. '"id":true,"method":"ping"}', { "null", -32600 } },
  { "id []", HEAD .. '"id":[],"method":"ping"}', { "null", -32600 } },
  { "id {}", HEAD .. '"id":{"id":1},"method":"ping"}', { "null", -32600 } },
  { "two ids", HEAD .. '"id":1,"id":2,"method":"ping"}', { "null", -32600 } },
  { "two ids, one escaped", HEAD .. '"id":1,"\\u0069d":2,"method":"ping"}', { "null", -32600 } },
  { "an id over 1 KiB", HEAD .. '"id":"' .. ("x"):rep(1025) .. '","method":"ping"}', { "null", -32600 } },
  { "a number beyond int64", HEAD .. '"id":1,"method":"ping","params":{"n":' .. BIG .. "}}", { "1", -32600 } },
  { "a number beyond double", HEAD .. '"id":1,"method":"ping","params":{"n":1e999}}', { "1", -32600 } },
  { "params []", HEAD .. '"id":1,"method":"ping","params":[]}', { "1", -32602 } },
  { "params null", HEAD .. '"id":1,"method":"tools/list","params":null}', { "1", -32602 } },
  { "params as a number", HEAD .. '"id":1,"method":"tools/call","params":7}', { "1", -32602 } },
  { "params as a string", HEAD .. '"id":1,"method":"initialize","params":"x"}', { "1", -32602 } },
  { "an unknown method", HEAD .. '"id":1,"method":"no/such"}', { "1", -32601 } },
  { "an empty method", HEAD .. '"id":1,"method":""}', { "1", -32601 } },
  { "a notification's name with an id", HEAD .. '"id":1,"method":"notifications/initialized"}', { "1", -32601 } },
  { "resources/list", HEAD .. '"id":1,"method":"resources/list"}', { "1", -32601 } },
  { "server/discover without _meta", HEAD .. '"id":1,"method":"server/discover"}', { "1", -32601 } },
  { "_meta null", HEAD .. '"id":1,"method":"ping","params":{"_meta":null}}', { "1", -32602 } },
  { "_meta []", HEAD .. '"id":1,"method":"ping","params":{"_meta":[]}}', { "1", -32602 } },
  { "a progressToken null", HEAD .. '"id":1,"method":"ping","params":{"_meta":{"progressToken":null}}}', { "1", -32602 } },
  { "a progressToken 1.5", HEAD .. '"id":1,"method":"ping","params":{"_meta":{"progressToken":1.5}}}', { "1", -32602 } },
  { "a progressToken true", HEAD .. '"id":1,"method":"ping","params":{"_meta":{"progressToken":true}}}', { "1", -32602 } },
  { "a progressToken {}", HEAD .. '"id":1,"method":"ping","params":{"_meta":{"progressToken":{}}}}', { "1", -32602 } },
  { "tools/call without a name", HEAD .. '"id":1,"method":"tools/call"}', { "1", -32602 } },
  { "tools/call with a number for a name", HEAD .. '"id":1,"method":"tools/call","params":{"name":1}}', { "1", -32602 } },
  { "an unknown tool", HEAD .. '"id":1,"method":"tools/call","params":{"name":"nope"}}', { "1", -32602 } },
  { "a tool's name with NUL", HEAD .. '"id":1,"method":"tools/call","params":{"name":"get_sandbox\\u0000"}}', { "1", -32602 } },
  { "arguments []", HEAD .. '"id":1,"method":"tools/call","params":{"name":"get_sandbox","arguments":[]}}', { "1", -32602 } },
  { "arguments as text", HEAD .. '"id":1,"method":"tools/call","params":{"name":"get_sandbox","arguments":"{}"}}',
    { "1", -32602 } },
  { "a cursor that is a number", HEAD .. '"id":1,"method":"tools/list","params":{"cursor":1}}', { "1", -32602 } },
  { "a cursor that is empty", HEAD .. '"id":1,"method":"tools/list","params":{"cursor":""}}', { "1", -32602 } },
  { "a cursor of somebody else", HEAD .. '"id":1,"method":"tools/list","params":{"cursor":"YWZ0ZXI6MTAw"}}', { "1", -32602 } },
  { "a cursor with a huge place", HEAD
    .. '"id":1,"method":"tools/list","params":{"cursor":"YWZ0ZXI6OTk5OTk5OTk5OTk5OTk5OTk5OTk="}}', { "1", -32602 } },
  { "no such level", HEAD .. '"id":1,"method":"logging/setLevel","params":{"level":"loud"}}', { "1", -32602 } },
  { "a level that is none", HEAD .. '"id":1,"method":"logging/setLevel"}', { "1", -32602 } },
  { "another initialize", HEAD .. '"id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}',
    { "1", -32600 } },
  -- silence
  { "an empty line", "", false },
  { "spaces and tabs", "  \t ", false },
  { "a carriage return", "\r", false },
  { "an unknown notification", HEAD .. '"method":"notifications/no_such"}', false },
  { "a request's name without an id", HEAD .. '"method":"tools/list"}', false },
  { "a call without an id", HEAD .. '"method":"tools/call","params":{"name":"create_sandbox"}}', false },
  { "a notification with bad params", HEAD .. '"method":"notifications/cancelled","params":[1]}', false },
  { "a notification with a bad _meta", HEAD .. '"method":"notifications/initialized","params":{"_meta":7}}', false },
  { "a cancel of nothing", HEAD .. '"method":"notifications/cancelled"}', false },
  { "a cancel of an unknown id", HEAD .. '"method":"notifications/cancelled","params":{"requestId":4711}}', false },
  { "a cancel of an id that is a list", HEAD .. '"method":"notifications/cancelled","params":{"requestId":[1]}}', false },
  { "a cancel of null", HEAD .. '"method":"notifications/cancelled","params":{"requestId":null}}', false },
  { "a cancel of a number beyond int64", HEAD .. '"method":"notifications/cancelled","params":{"requestId":' .. BIG .. "}}",
    false },
  { "a response", HEAD .. '"id":1,"result":{}}', false },
  { "an error response", HEAD .. '"id":null,"error":{"code":1,"message":""}}', false },
}

--- The id of an answer as it stands in the line.
local function id_text(line)
  return line:match '^{"jsonrpc":"2.0","id":("[^"]*"),"' or line:match '^{"jsonrpc":"2.0","id":([%w-]+),"'
end

describe("a line on stdin", function()
  local server
  local ping = 100

  setup(function()
    server = demilune.start()
    server:initialize "2025-11-25"
  end)
  teardown(function() server:stop() end)

  local function assert_served()
    ping = ping + 1
    server:send_line(HEAD .. '"id":' .. ping .. ',"method":"ping"}')
    local message, line = server:read_message()
    assert.are.equal('{"jsonrpc":"2.0","id":' .. ping .. ',"result":{}}', line)
    return message
  end

  for _, case in ipairs(BAD_LINES) do
    local name, text, expected = table.unpack(case)
    it(("that is %s %s, and the next is served"):format(name, expected and "gets its error" or "gets silence"), function()
      server:send_line(text)
      if expected then
        local message, line = server:read_message()
        assert.are.equal(expected[1], id_text(line))
        assert.are.equal(expected[2], message.error.code)
        assert.is_string(message.error.message)
        assert.is_nil(message.result)
      end
      assert_served()
    end)
  end

  it("is echoed its id exactly, whatever it is", function()
    for _, id in ipairs {
      "0", "-1", "1", "9007199254740993", "9223372036854775807", "-9223372036854775808", BIG, "-" .. BIG, '""', '"1"', '" "',
        '"a\\"b\\\\c"',
      '"\\u0041\\ud83d\\ude00\\/"', '"\\u0000"', '"äß😀"', '"\u{2028}"', '"' .. ("x"):rep(1000) .. '"', '"null"', '"<script>"',
        ("9"):rep(1024),
    } do
      server:send_line(HEAD .. '"id":' .. id .. ',"method":"ping"}')
      assert.are.equal('{"jsonrpc":"2.0","id":' .. id .. ',"result":{}}', server:read_line())
    end
    for _, line in ipairs {
      '{"method":"ping","id":5,"jsonrpc":"2.0"}', ' \t{ "id" : 5 , "jsonrpc":"2.0", "method":"ping" } ',
      HEAD .. '"\\u0069d":5,"method":"ping"}', HEAD .. '"i\\u0064":5,"method":"ping","x":{"id":6}}',
      HEAD .. '"id":5,"method":"p\\u0069ng"}', '\xEF\xBB\xBF' .. HEAD .. '"id":5,"method":"ping"}', HEAD
        .. '"id":5,"method":"ping"}\r',
      HEAD .. '"id":5,"method":"ping","params":{}}', HEAD .. '"id":5,"method":"ping","params":{"x":null,"_meta":{}}}',
      HEAD .. '"id":5,"method":"ping","extra":[{}]}', HEAD .. '"id":5,"method":"pong","method":"ping"}',
    } do
      server:send_line(line)
      assert.are.equal('{"jsonrpc":"2.0","id":5,"result":{}}', server:read_line())
    end
  end)

  it("may come in pieces, and many in one piece", function()
    for byte in (HEAD .. '"id":1,"method":"ping"}\n'):gmatch "." do server:write(byte) end
    assert.are.equal(1, server:read_message().id)
    server:write((HEAD .. '"id":2,"method":"ping"}\n'):rep(50))
    for _ = 1, 50 do assert.are.equal(2, server:read_message().id) end
  end)

  it("framed as in LSP gets an error for each header, and the program lives", function()
    local body = HEAD .. '"id":1,"method":"ping"}'
    server:write(("Content-Length: %d\r\n\r\n%s"):format(#body, body))
    assert.are.equal(-32700, server:read_message().error.code)
    server:write "\r\n"
    assert.are.equal(1, server:read_message().id)
    assert_served()
  end)
end)

describe("before initialize", function()
  it("pings are answered, unknown methods are unknown, and tools wait", function()
    local server = demilune.start()
    assert.are.same({}, server:request "ping")
    for method, code in pairs { ["server/discover"] = -32601, ["no/such"] = -32601, ["tools/list"] = -32602,
      ["logging/setLevel"] = -32602 } do
      assert.are.equal(code, select(2, server:request(method)).code)
    end
    server:notify "notifications/initialized"
    assert.is_string(server:initialize().protocolVersion)
    assert.is_table(server:request "tools/list")
    server:stop()
  end)

  it("an initialize with wrong types is refused, and the right one after it is not", function()
    local server = demilune.start()
    for _, params in ipairs {
      "{}", '{"protocolVersion":1}', '{"protocolVersion":null}', '{"protocolVersion":"2025-11-25","capabilities":[]}',
      '{"protocolVersion":"2025-11-25","capabilities":7}', '{"protocolVersion":"2025-11-25","clientInfo":[]}',
      '{"protocolVersion":"2025-11-25","clientInfo":"x"}',
    } do assert.are.equal(-32602, select(2, server:request("initialize", params)).code) end
    local result = server:request("initialize", '{"protocolVersion":"2025-06-18","clientInfo":{"name":[1]}}')
    assert.are.equal("2025-06-18", result.protocolVersion)
    server:stop()
  end)
end)

describe("a session", function()
  local FIELDS = {
    ["2024-11-05"] = {}, ["2025-03-26"] = { annotations = true },
    ["2025-06-18"] = { annotations = true, title = true, outputSchema = true },
    ["2025-11-25"] = { annotations = true, title = true, outputSchema = true, execution = true },
  }

  for _, revision in ipairs(LEGACY) do
    it("of " .. revision .. " has the fields of that revision and no newer ones", function()
      local server = demilune.start()
      local hello = server:initialize(revision)
      assert.are.equal(revision, hello.protocolVersion)
      assert.are.equal("demilune", hello.serverInfo.name)
      assert.are.equal(revision >= "2025-06-18", hello.serverInfo.title ~= nil)
      assert.is_true(#hello.instructions <= 2048)
      local tasks = revision >= "2025-11-25" and { list = {}, cancel = {}, requests = { tools = { call = {} } } } or nil
      assert.are.same({ tools = { listChanged = true }, logging = {}, tasks = tasks }, hello.capabilities)
      local list = server:request("tools/list", "{}")
      assert.are.equal(15, #list.tools)
      assert.is_nil(list.nextCursor)
      assert.is_nil(list.resultType)
      for _, tool in ipairs(list.tools) do
        local wanted = FIELDS[revision]
        for _, field in ipairs { "annotations", "title", "outputSchema" } do
          assert.are.equal(wanted[field] == true, tool[field] ~= nil, tool.name .. " " .. field)
        end
        for field in pairs(tool) do
          assert.truthy(wanted[field] or ({ name = 1, description = 1, inputSchema = 1 })[field], field)
        end
      end
      local content, err, result = server:call "get_sandbox"
      assert.is_nil(content)
      assert.are.equal("no_default_sandbox", err.category)
      assert.is_nil(result.structuredContent)
      assert.are.same(err, result._meta["dev.demilune/error"])
      local listed = server:request("tools/call", '{"name":"list_sandboxes","arguments":null}')
      if not listed.isError then
        assert.are.equal(revision >= "2025-06-18", listed.structuredContent ~= nil)
        assert.is_table(cjson.decode(listed.content[1].text).sandboxes)
      end
      assert.are.same({}, server:request("logging/setLevel", '{"level":"debug"}'))
      server:stop()
    end)
  end

  it("of an unknown revision becomes one of the newest", function()
    for _, wanted in ipairs { "2024-10-07", "1.0", "", "2030-01-01", "2026-07-28" } do
      local server = demilune.start()
      local result = server:request("initialize", { protocolVersion = wanted })
      assert.are.equal("2025-11-25", result.protocolVersion)
      server:stop()
    end
  end)

  it("keeps what the wire says of an empty list", function()
    local server = demilune.start()
    server:initialize()
    server:send_line(HEAD .. '"id":1,"method":"tools/list"}')
    local line = server:read_line()
    assert.is_nil(line:find('"required":{}', 1, true))
    assert.is_nil(line:find('"properties":[]', 1, true))
    assert.is_nil(line:find("[\u{2028}\u{2029}]"))
    server:stop()
  end)
end)

describe("revision 2026-07-28", function()
  local server
  setup(function() server = demilune.start() end)
  teardown(function() server:stop() end)

  local function ask(method, params) return server:request(method, params) end
  local function meta(text) return '{"_meta":' .. text .. "}" end
  local VERSION = '"io.modelcontextprotocol/protocolVersion"'
  local CAPABILITIES = '"io.modelcontextprotocol/clientCapabilities"'

  it("is discovered, lists and calls without a handshake", function()
    local found = ask("server/discover", "{" .. META .. "}")
    assert.are.same({ "2026-07-28" }, found.supportedVersions)
    assert.are.equal("complete", found.resultType)
    assert.are.same({ tools = {}, extensions = { ["io.modelcontextprotocol/tasks"] = {} } }, found.capabilities)
    assert.is_true(math.type(found.ttlMs) == "integer" or found.ttlMs % 1 == 0)
    assert.truthy(found.cacheScope == "private" or found.cacheScope == "public")
    assert.is_true(#found.instructions <= 2048)
    assert.are.equal("demilune", found._meta["io.modelcontextprotocol/serverInfo"].name)
    local list = ask("tools/list", "{" .. META .. "}")
    assert.are.equal(15, #list.tools)
    assert.are.equal("complete", list.resultType)
    assert.is_number(list.ttlMs)
    assert.is_string(list.cacheScope)
    local result = ask("tools/call", "{" .. META .. ',"name":"get_sandbox"}')
    assert.is_true(result.isError)
    assert.are.equal("complete", result.resultType)
    assert.are.equal("no_default_sandbox", result._meta["dev.demilune/error"].category)
    assert.are.equal("demilune", result._meta["io.modelcontextprotocol/serverInfo"].name)
  end)

  it("refuses a request that lacks a part of _meta", function()
    for _, text in ipairs {
      "{" .. VERSION .. ':"2026-07-28"}', "{" .. CAPABILITIES .. ":{}}", "{" .. VERSION .. ':"2026-07-28",' .. CAPABILITIES
        .. ":[]}",
      "{" .. VERSION .. ':"2026-07-28",' .. CAPABILITIES .. ":null}", "{" .. VERSION .. ":20260728," .. CAPABILITIES .. ":{}}",
      "{" .. VERSION .. ":null," .. CAPABILITIES .. ":{}}", '{"io.modelcontextprotocol/clientInfo":{"name":"x"}}',
      "{" .. VERSION .. ':"2026-07-28",' .. CAPABILITIES .. ':{},"io.modelcontextprotocol/clientInfo":[]}',
    } do
      for _, method in ipairs { "tools/list", "server/discover", "tools/call" } do
        local _, err = ask(method, meta(text))
        assert.are.equal(-32602, err.code, text)
      end
    end
  end)

  it("names what it supports to a request of another revision", function()
    for _, version in ipairs { "2025-11-25", "2027-01-01", "" } do
      local _, err = ask("tools/list", meta("{" .. VERSION .. ':"' .. version .. '",' .. CAPABILITIES .. ":{}}"))
      assert.are.equal(-32022, err.code)
      assert.are.same({ supported = { "2026-07-28" }, requested = version }, err.data)
    end
    local _, err = ask("tools/list", meta("{" .. VERSION .. ':"' .. ("9"):rep(5000) .. '",' .. CAPABILITIES .. ":{}}"))
    assert.is_true(#err.data.requested <= 64)
  end)

  it("knows no methods of the sessions", function()
    for _, method in ipairs { "initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such" } do
      assert.are.equal(-32601, select(2, ask(method, "{" .. META .. "}")).code)
    end
  end)

  it("shares a process with a session", function()
    assert.are.equal("2025-03-26", ask("initialize", '{"protocolVersion":"2025-03-26","capabilities":{}}').protocolVersion)
    assert.is_nil(ask("tools/list").resultType)
    assert.is_nil(ask("tools/list").tools[1].outputSchema)
    assert.is_table(ask("tools/list", "{" .. META .. "}").tools[1].outputSchema)
    assert.are.same({}, ask "ping")
    assert.are.equal("complete", ask("server/discover", "{" .. META .. "}").resultType)
    assert.are.equal(-32602, select(2, ask("tools/list", "{" .. META .. ',"cursor":"x"}')).code)
  end)
end)

describe("while a command runs", function()
  local server
  setup(function()
    server = demilune.start()
    server:initialize()
  end)
  teardown(function() server:stop() end)

  local function call(command, more)
    return server:send("tools/call", ('{"name":"run_command","arguments":{"command":"%s"}%s}'):format(command, more or ""))
  end

  local function needs_sandbox()
    local content, err = server:call("run_command", { command = "true" }, 30000)
    if not content then pending("no sandbox here: " .. err.category) end
  end

  it("pings and lists are answered within 50 ms", function()
    needs_sandbox()
    local id = call "sleep 1; echo done"
    for _ = 1, 10 do
      local before = os_calls.now_ms()
      assert.are.same({}, server:request "ping")
      assert.is_true(os_calls.now_ms() - before < 50)
      assert.is_table(server:request "tools/list")
      os_calls.sleep_ms(20)
    end
    assert.are.equal("done\n", server:receive(id).result.structuredContent.stdout)
  end)

  for _, token in ipairs { "0", '""', '"a"', "-7", "9007199254740993" } do
    it("progress goes to token " .. token .. ", counts up and ends with the answer", function()
      needs_sandbox()
      server.notifications = {}
      local id = call("for i in 1 2 3 4; do echo line $i; sleep 0.25; done", ',"_meta":{"progressToken":' .. token .. "}")
      local before = #server.stdout
      assert.is_nil(server:receive(id).error)
      assert.is_true(#server.notifications >= 2)
      local last = 0
      for _, message in ipairs(server.notifications) do
        assert.are.equal("notifications/progress", message.method)
        assert.is_true(message.params.progress > last)
        last = message.params.progress
      end
      assert.truthy(server.stdout:sub(before):find('"progressToken":' .. token:gsub("%-", "%%-")))
      server.notifications = {}
      server:request "ping"
      os_calls.sleep_ms(300)
      server:request "ping"
      assert.are.same({}, server.notifications)
    end)
  end

  it("a call without a token makes no notification", function()
    needs_sandbox()
    server.notifications = {}
    assert.is_table(server:receive(call "echo a; sleep 0.5; echo b").result)
    assert.are.same({}, server.notifications)
  end)

  it("a cancel stops it within a second and is not answered; a late one is ignored", function()
    needs_sandbox()
    local id = call "sleep 30; echo never > f"
    os_calls.sleep_ms(200)
    server:notify("notifications/cancelled", { requestId = tostring(id) }) -- not this one
    server:notify("notifications/cancelled", { requestId = id })
    server:notify("notifications/cancelled", { requestId = id })
    local before = os_calls.now_ms()
    local still
    repeat
      still = server:call("run_command", { command = "pgrep -c -x sleep || true" }).stdout
    until still == "0\n" or os_calls.now_ms() - before > 1000
    assert.are.equal("0\n", still)
    os_calls.sleep_ms(300)
    server:request "ping"
    assert.is_nil(server.answers[tostring(id)])
    local again = call "echo still here"
    assert.are.equal("still here\n", server:receive(again).result.structuredContent.stdout)
    server:notify("notifications/cancelled", { requestId = again })
    assert.are.same({}, server:request "ping")
  end)
end)

describe("what a script prints", function()
  it("goes to stderr, and stdout has messages alone", function()
    local server = demilune.start { config = [[
      print "soil-1"
      io.write "soil-2\n"
      io.stdout:write "soil-3\n"
      os.execute "echo soil-4"
      local handle = io.popen "echo soil-5 >&2; cat"
      handle:close()
      return {}]] }
    server:initialize()
    assert.is_table(server:request "tools/list")
    server:call "get_sandbox"
    server:stop()
    for line in server.stdout:gmatch "[^\n]*\n?" do
      if line ~= "" then assert.are.equal("2.0", cjson.decode(line).jsonrpc) end
    end
    for i = 1, 5 do assert.truthy(server.stderr:find("soil-" .. i, 1, true)) end
    assert.is_nil(server.stdout:find("soil", 1, true))
  end)
end)
