--- What core.httpd refuses: requests that two parsers could read differently, and requests beyond its limits.

local core = require "demilune.core"
local harness = require "spec.net.harness"

local task = core.task

local HOST = "Host: a\r\n"

local function get(fields, target)
  return ("GET %s HTTP/1.1\r\n%s\r\n"):format(target or "/", fields)
end

local function post(fields, body)
  return ("POST / HTTP/1.1\r\n%s%s\r\n%s"):format(HOST, fields, body or "")
end

local function many(count, format)
  local parts = {}
  for i = 1, count do parts[i] = format:format(i) end
  return table.concat(parts)
end

local CHUNKED = "Transfer-Encoding: chunked\r\n"
local HELLO = "5\r\nhello\r\n0\r\n\r\n"

-- Sentence, request, expected status.
local REFUSED = {
  { "no Host in HTTP/1.1", get(""), 400 },
  { "two Host fields", get(HOST .. HOST), 400 },
  { "a list as Host", get("Host: a, b\r\n"), 400 },
  { "user information in Host", get("Host: a@b\r\n"), 400 },
  { "two equal Content-Length fields", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), 400 },
  { "two different Content-Length fields", post("Content-Length: 0\r\nContent-Length: 5\r\n", "hello"), 400 },
  { "Content-Length beside Transfer-Encoding", post("Content-Length: 5\r\n" .. CHUNKED, HELLO), 400 },
  { "Transfer-Encoding beside Content-Length", post(CHUNKED .. "Content-Length: 5\r\n", HELLO), 400 },
  { "an unknown transfer coding", post("Transfer-Encoding: xchunked\r\n", HELLO), 400 },
  { "a list of transfer codings", post("Transfer-Encoding: gzip, chunked\r\n", HELLO), 400 },
  { "Transfer-Encoding: identity", post("Transfer-Encoding: identity\r\n", "hello"), 400 },
  { "two Transfer-Encoding fields", post(CHUNKED .. CHUNKED, HELLO), 400 },
  { "a transfer coding in HTTP/1.0", "POST / HTTP/1.0\r\n" .. HOST .. CHUNKED .. "\r\n" .. HELLO, 400 },
  { "a negative Content-Length", post("Content-Length: -1\r\n"), 400 },
  { "a Content-Length with a sign", post("Content-Length: +5\r\n", "hello"), 400 },
  { "a list as Content-Length", post("Content-Length: 5, 5\r\n", "hello"), 400 },
  { "a hexadecimal Content-Length", post("Content-Length: 0x5\r\n", "hello"), 400 },
  { "an empty Content-Length", post("Content-Length:\r\n"), 400 },
  { "a Content-Length beyond 64 bits", post("Content-Length: 99999999999999999999\r\n", "hello"), 413 },
  { "a Content-Length beyond 63 bits", post("Content-Length: 9999999999999999999\r\n", "hello"), 400 },
  { "a space before the colon", get(HOST .. "Content-Length : 5\r\n"), 400 },
  { "a tab before the colon", get(HOST .. "X\t: 5\r\n"), 400 },
  { "a field without a name", get(HOST .. ": x\r\n"), 400 },
  { "a line without a colon", get(HOST .. "x\r\n"), 400 },
  { "a name that is no token", get(HOST .. "a(b): x\r\n"), 400 },
  { "bare line feeds", "GET / HTTP/1.1\nHost: a\n\n", 400 },
  { "one bare line feed among the fields", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400 },
  { "a bare line feed at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400 },
  { "a bare line feed after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400 },
  { "a bare carriage return in a value", get(HOST .. "X: a\rb\r\n"), 400 },
  { "a folded line", get(HOST .. "X: y\r\n z\r\n"), 400 },
  { "NUL in a value", get("Host: a\0b\r\n"), 400 },
  { "NUL at the end of a value", get(HOST .. "X: b\0\r\nY: c\r\n"), 400 },
  { "NUL in a name", get(HOST .. "X\0Y: b\r\n"), 400 },
  { "NUL in the method", "GE\0T / HTTP/1.1\r\n" .. HOST .. "\r\n", 400 },
  { "NUL in the path", get(HOST, "/a\0b"), 400 },
  { "NUL in the query", get(HOST, "/a?x=\0b"), 400 },
  { "NUL behind the path", get(HOST, "/a\0"), 400 },
  { "a control character in a value", get(HOST .. "X: a\1b\r\n"), 400 },
  { "an escaped NUL in the path", get(HOST, "/a%00b"), 400 },
  { "an escaped NUL in the query", get(HOST, "/a?x=%00"), 400 },
  { "a broken escape in the path", get(HOST, "/a%zz"), 400 },
  { "a cut escape in the path", get(HOST, "/a%2"), 400 },
  { "a broken escape in the query", get(HOST, "/?a=%g0"), 400 },
  { "a space in the target", get(HOST, "/a b"), 400 },
  { "two spaces before the target", get(HOST, " /a"), 400 },
  { "a byte beyond ASCII in the target", get(HOST, "/\xc3\xa4"), 400 },
  { "a fragment in the target", get(HOST, "/a#b"), 400 },
  { "a target that is no path", get(HOST, "a"), 400 },
  { "an absolute target of another host", get(HOST, "http://b/x"), 400 },
  { "CONNECT", "CONNECT a:80 HTTP/1.1\r\n" .. HOST .. "\r\n", 400 },
  { "a method that is no token", "GE(T / HTTP/1.1\r\n" .. HOST .. "\r\n", 400 },
  { "a method without end", ("X"):rep(40) .. " / HTTP/1.1\r\n" .. HOST .. "\r\n", 400 },
  { "HTTP/2.0", "GET / HTTP/2.0\r\n" .. HOST .. "\r\n", 505 },
  { "HTTP/0.9", "GET /\r\n\r\n", 400 },
  { "a version in small letters", "GET / http/1.1\r\n" .. HOST .. "\r\n", 400 },
  { "a space after the version", "GET / HTTP/1.1 \r\n" .. HOST .. "\r\n", 400 },
  { "a chunk size that is no number", post(CHUNKED, "zz\r\nhello\r\n0\r\n\r\n"), 400 },
  { "a negative chunk size", post(CHUNKED, "-5\r\nhello\r\n0\r\n\r\n"), 400 },
  { "a chunk size beyond 64 bits", post(CHUNKED, "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n"), 413 },
  { "a chunk without its end", post(CHUNKED, "5\r\nhelloX\r\n0\r\n\r\n"), 400 },
  { "header fields over the limit", get(HOST .. "X: " .. ("x"):rep(20000) .. "\r\n"), 431 },
  { "header fields over all memory", get(HOST .. "X: " .. ("x"):rep(400000) .. "\r\n"), 431 },
  { "more fields than 256", get(HOST .. many(300, "X%d: y\r\n")), 431 },
  { "a target over the limit", get(HOST, "/" .. ("x"):rep(20000)), 431 },
  { "a target over all memory", get(HOST, "/" .. ("x"):rep(400000)), 414 },
  { "more parameters than 128", get(HOST, "/?" .. many(200, "a%d=1&")), 414 },
}

for _, name in ipairs { "Origin", "Authorization", "Mcp-Session-Id", "X-Access-Token", "Content-Type", "Mcp-Protocol-Version" } do
  REFUSED[#REFUSED + 1] = { "two " .. name .. " fields", get(("%s%s: x\r\n%s: x\r\n"):format(HOST, name, name:upper())), 400 }
end

-- Sentence, request, what the handler sees.
local TAKEN = {
  { "no Host in HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", "GET / []" },
  { "an empty Host", get("Host:\r\n"), "GET / []" },
  { "a later HTTP/1 version", "GET / HTTP/1.9\r\n" .. HOST .. "\r\n", "GET / []" },
  { "repeated fields of other names", get(HOST .. "X-A: 1\r\nX-A: 2\r\n"), "GET / [] x-a=1, 2" },
  { "white space around a value", get(HOST .. "X-A: \t 1 \t\r\n"), "GET / [] x-a=1" },
  { "bytes beyond ASCII in a value", get(HOST .. "X-A: \xe4\r\n"), "GET / [] x-a=\xe4" },
  { "chunks with extensions and trailers", post(CHUNKED, "5;a=b\r\nhello\r\n0\r\nX-A: y\r\n\r\n"), "POST / [hello]" },
  { "a length with leading zeros", post("Content-Length: 005\r\n", "hello"), "POST / [hello]" },
  { "an absolute target of its own host", get(HOST, "http://A/x?q=1"), "GET /x [] q=1" },
  { "an asterisk", "OPTIONS * HTTP/1.1\r\n" .. HOST .. "\r\n", "OPTIONS * []" },
  { "escapes and plus signs", get(HOST, "/a%2Fb+c%C3%A4?q=1+2%262"), "GET /a/b+c\xc3\xa4 [] q=1 2&2" },
  { "repeated parameters, joined", get(HOST, "/?q=1&q=2&q"), "GET / [] q=1,2," },
  { "empty lines before the request", "\r\n\r\n" .. get(HOST), "GET / []" },
  { "methods of others", "PROPFIND / HTTP/1.1\r\n" .. HOST .. "\r\n", "PROPFIND / []" },
}

local function echo(req)
  local body = assert(req:read_all(1000))
  local text = ("%s %s [%s]"):format(req.method, req.path, body)
  if req.headers["x-a"] then text = text .. " x-a=" .. req.headers["x-a"] end
  if req.query.q then text = text .. " q=" .. req.query.q end
  req:respond(200, { ["Content-Type"] = "text/plain" }, text)
end

--- Sends a request and reads until `last` or the end of the connection.
local function exchange(path, bytes, last)
  local connection = harness.connect(path)
  connection:send(bytes)
  local answer, is_closed = connection:receive(last and last:gsub("%p", "%%%0") .. "$", 2000)
  connection:close()
  return answer, is_closed
end

describe("core.httpd refuses", function()
  for _, case in ipairs(REFUSED) do
    it(case[1], function()
      local handled = 0
      harness.with_server(function(req)
        handled = handled + 1
        echo(req)
      end, function(path)
        local answer, is_closed = exchange(path, case[2])
        assert.are.equal(case[3], tonumber(answer:match("^HTTP/1%.1 (%d+)")), answer)
        assert.is_true(is_closed)
        -- A fault in the body is found while a handler may wait for it.
        if not case[1]:find("chunk") then assert.are.equal(0, handled) end
      end)
    end)
  end

  it("with a JSON body that says the status", function()
    harness.with_server(echo, function(path)
      local answer = exchange(path, get(HOST .. HOST))
      local decoded = assert(core.json.decode(answer:match("\r\n\r\n(.*)$")))
      assert.are.equal(400, decoded.code)
      assert.are.equal("string", type(decoded.message))
      assert.is_truthy(answer:lower():find("content%-type: application/json"))
      assert.is_truthy(answer:lower():find("connection: close"))
    end)
  end)

  it("without reading what follows on the connection", function()
    local seen = {}
    harness.with_server(function(req)
      seen[#seen + 1] = req.path
      echo(req)
    end, function(path)
      local smuggled = "GET /smuggled HTTP/1.1\r\n" .. HOST .. "\r\n"
      exchange(path, post("Content-Length: 4\r\n" .. CHUNKED, "0\r\n\r\n" .. smuggled))
      exchange(path, post("Content-Length: 0\r\nContent-Length: 5\r\n", smuggled))
      exchange(path, get(HOST .. HOST) .. smuggled)
      assert.are.same({}, seen)
    end)
  end)
end)

describe("core.httpd takes", function()
  for _, case in ipairs(TAKEN) do
    it(case[1], function()
      harness.with_server(echo, function(path)
        local answer = exchange(path, case[2], case[3])
        assert.are.equal(200, tonumber(answer:match("^HTTP/1%.1 (%d+)")), answer)
        assert.are.equal(case[3], answer:match("\r\n\r\n(.*)$"))
      end)
    end)
  end

  it("a request that comes byte by byte", function()
    harness.with_server(echo, function(path)
      local connection = harness.connect(path)
      for byte in post("Content-Length: 5\r\n", "hello"):gmatch(".") do
        connection:send(byte)
        task.sleep(0)
      end
      assert.is_truthy(connection:receive("%]$"):find("POST / %[hello%]$"))
      connection:close()
    end)
  end)

  it("requests that come all at once, in their order", function()
    harness.with_server(echo, function(path)
      local connection = harness.connect(path)
      connection:send(get(HOST, "/1") .. post("Content-Length: 5\r\n", "hello") .. post(CHUNKED, HELLO) .. get(HOST, "/4"))
      local answers = connection:receive("GET /4 %[%]$")
      local bodies = {}
      for body in answers:gmatch("%u+ /%d? %[%l*%]") do bodies[#bodies + 1] = body end
      assert.are.same({ "GET /1 []", "POST / [hello]", "POST / [hello]", "GET /4 []" }, bodies)
      connection:close()
    end)
  end)

  it("any bytes at all without harm", function()
    math.randomseed(20261130)
    harness.with_server(echo, function(path)
      local seeds = { get(HOST, "/a?b=c"), post("Content-Length: 5\r\n", "hello"), post(CHUNKED, HELLO) }
      for _ = 1, 300 do
        local bytes = { seeds[math.random(#seeds)]:byte(1, -1) }
        for _ = 1, math.random(6) do bytes[math.random(#bytes)] = math.random(0, 255) end
        local connection = harness.connect(path)
        connection:send(string.char(table.unpack(bytes)))
        connection:receive("^HTTP/1%.1 %d", 3)
        connection:close()
      end
      assert.are.equal("GET / []", exchange(path, get(HOST), "GET / []"):match("\r\n\r\n(.*)$"))
    end)
  end)
end)
