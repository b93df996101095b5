-- timeout: 240
--- The operator's own tools, in the real server: their files, the example tools, what they may do, reload.

local build = require "spec.support.build"
local demilune = require "spec.support.demilune"

local HUP = 1
local TOKEN = "tok-0123456789abcdef"

--- A tracker that answers one issue to whoever has the token, and says where it listens.
local TRACKER = [[
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *rest): pass
    def do_GET(self):
        status, body = 404, b"{}"
        if self.headers.get("authorization") != "Bearer %s": status = 401
        elif self.path == "/api/issues/7":
            status, body = 200, b'{"title":"It breaks","state":"open","labels":["bug"],"body":"the key is %s"}'
        elif self.path == "/api/issues/8": status = 302
        elif self.path == "/api/issues/9": status, body = 200, b"x" * 2000000
        self.send_response(status)
        if status == 302: self.send_header("location", "http://127.0.0.1:1/")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print('{"port":%%d}' %% server.server_port, flush=True)
server.serve_forever()
]]

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

--- A tool's file around the body of a handler.
local function tool(name, body, more)
  return ('return { name = %q, description = "Test.", effect = "read", %s handler = function(call, args) %s end }'):format(
    name, more or "", body)
end

--- Runs `body(server, home)` with a server that has these files of tools, by name.
local function with(files, body, options)
  options = options or {}
  local home = demilune.home()
  os.execute("mkdir -p " .. home .. "/t/lib")
  for name, text in pairs(files) do write(("%s/t/%s.lua"):format(home, name), text) end
  local config = ('return { tools = { "t/*.lua" }, %s }'):format(options.config or "")
  if options.policy then write(home .. "/policy.lua", options.policy) end
  local server = demilune.start { home = home, config = config, env = options.env }
  server:initialize(options.revision or "2025-11-25")
  local ok, err = xpcall(body, debug.traceback, server, home)
  server:stop()
  demilune.remove_home(home)
  if not ok then error(err, 0) end
end

local function must(server, name, arguments)
  local content, err = server:call(name, arguments or {})
  if not content then error(("%s: %s (%s)"):format(name, err.category, err.message), 2) end
  return content
end

local function fault(server, name, arguments)
  local content, err = server:call(name, arguments or {})
  if content then error(name .. " worked", 2) end
  return err
end

--- Waits until something is so, and reads what the server says meanwhile.
local function soon(server, is_so)
  local deadline = os.time() + 10
  while not is_so() do
    assert(os.time() < deadline, "it never came to be so\n" .. server.stderr)
    server:pump(20)
  end
end

--- What the server has logged.
local function log_of(server)
  local file = assert(io.open(("%s/log/serve-%d.log"):format(demilune.state_dir(server.home), server.pid)))
  local text = file:read "a"
  file:close()
  return text
end

local function definition(server, name)
  for _, one in ipairs(assert(server:request("tools/list")).tools) do
    if one.name == name then return one end
  end
end

--- What `demilune check` says of these files.
local function checked(files)
  local home = demilune.home()
  os.execute("mkdir " .. home .. "/t")
  for name, text in pairs(files) do write(("%s/t/%s.lua"):format(home, name), text) end
  local program = demilune.start { home = home, args = { "check" }, config = 'return { tools = { "t/*.lua" } }' }
  local code = program:wait(20000).code
  local said = program.stdout .. program.stderr
  program:stop()
  demilune.remove_home(home)
  return said:gsub(home:gsub("%p", "%%%0") .. "/t/", ""), code
end

describe("a tool of an operator's", function()
  it("is listed, called and answered as one of ours", function()
    local input = 'input = { properties = { name = { type = "string" } }, required = { "name" } },'
    with({ hi = tool("say_hi", 'return "hi " .. args.name', input) },
      function(server)
        local listed = definition(server, "say_hi")
        assert.are.equal("Say hi", listed.title)
        assert.are.same({ "name" }, listed.inputSchema.required)
        assert.is_false(listed.inputSchema.additionalProperties)
        assert.is_true(listed.annotations.readOnlyHint)
        assert.are.same({ text = "hi you" }, must(server, "say_hi", { name = "you" }))
        local err = fault(server, "say_hi", {})
        assert.are.equal("invalid_argument", err.category)
        assert.are.equal("name", err.field)
      end)
  end)

  it("takes numbers, booleans, lists and maps, and what does not fit is refused before it runs", function()
    local input = [[input = { properties = {
      n = { type = "number", minimum = 0, maximum = 1 }, b = { type = "boolean", default = true },
      l = { type = "array", items = { type = "integer" }, maxItems = 2 },
      m = { type = "object", additionalProperties = { type = "string" } },
      s = { type = "string", minLength = 2, maxLength = 3 } } },]]
    with({ a = tool("takes", "return { b = args.b, l = args.l, n = args.n, m = args.m, s = args.s }", input) }, function(server)
      local given = { n = 0.5, b = false, l = { 1, 2 }, m = { k = "v" }, s = "äöü" }
      assert.are.same(given, must(server, "takes", given))
      assert.are.same({ b = true }, must(server, "takes"))
      for name, wrong in pairs { n = 1.5, b = "yes", l = { 1, 2, 3 }, m = { k = 1 }, s = "x" } do
        local err = fault(server, "takes", { [name] = wrong })
        assert.are.equal("invalid_argument", err.category)
        assert.are.equal(name, err.field)
        assert.is_string(err.expected)
      end
      assert.are.equal("l[1]", fault(server, "takes", { l = { 1, "x" } }).field)
    end)
  end)

  it("may have any schema, which clients see and calls are held against", function()
    local input = [[input = { properties = { tree = { ["$ref"] = "#/$defs/node" } }, required = { "tree" },
      ["$defs"] = { node = { type = "object", required = { "name" }, unevaluatedProperties = false, properties = {
        name = { type = "string", pattern = "^[a-z]+$" }, nodes = { type = "array", items = { ["$ref"] = "#/$defs/node" } } } } } },
      output = { properties = { at = { type = "string", enum = { "a", "b" } } }, dependentRequired = { at = { "by" } } },]]
    with({ a = tool("walk", "return { at = args.tree.nodes[1].name, by = args.by }", input) }, function(server)
      local listed = definition(server, "walk")
      assert.are.equal("#/$defs/node", listed.inputSchema["$defs"].node.properties.nodes.items["$ref"])
      local err = fault(server, "walk", { tree = { name = "a", nodes = { { name = "b" }, { name = "C" } } } })
      assert.are.same({ "tree.nodes[1].name", "string, a text that fits the schema's pattern" }, { err.field, err.expected })
      err = fault(server, "walk", { tree = { name = "a", nodes = { { name = "b", mine = 1 } } } })
      assert.are.equal("tree.nodes[0]", err.field)
      assert.are.equal("internal", fault(server, "walk", { tree = { name = "a", nodes = { { name = "b" } } } }).category)
      assert.is_truthy(log_of(server):find("is not as `output` says, at /by", 1, true))
    end)
  end)

  it("that breaks is internal to the client, and the log has the words under the same id", function()
    with({ a = tool("breaks", 'error("secret place")'), b = tool("lies", "return { n = 1 }",
      'output = { properties = { n = { type = "string" } } },'), c = tool("odd", "return { f = print }"),
      d = tool("nothing", "") }, function(server)
      for _, name in ipairs { "breaks", "lies", "odd", "nothing" } do
        local err = fault(server, name)
        assert.are.equal("internal", err.category)
        local id = err.suggestion:match "fault (%w+)"
        assert.is_truthy(log_of(server):find("fault " .. id, 1, true))
        assert.is_nil(err.message:find("secret", 1, true))
      end
      assert.is_truthy(log_of(server):find("secret place", 1, true))
      assert.is_truthy(log_of(server):find("is not as `output` says, at /n", 1, true))
      assert.are.same({}, (must(server, "list_sandboxes")).sandboxes)
    end)
  end)

  it("fails with words of its own in a category of the table", function()
    with({ a = tool("fails", 'call:fail { category = "conflict", message = "Not on Fridays.", suggestion = "Wait." }'),
      b = tool("odd", 'call:fail { category = "bad", message = "x" }') }, function(server)
      local err = fault(server, "fails")
      assert.are.equal("conflict", err.category)
      assert.are.equal("Not on Fridays.", err.message)
      assert.are.equal("Wait.", err.suggestion)
      assert.are.equal("internal", fault(server, "odd").category)
    end)
  end)

  it("says at most 2 KiB of an error in its own words", function()
    with({ a = tool("talks", 'call:fail(("ä"):rep(100000))') }, function(server)
      local message = fault(server, "talks").message
      assert.are.equal(("ä"):rep(1024), message)
    end)
  end)

  it("is given the end of a command whatever clients are told of it", function()
    local body = 'local run = call:sandbox():run("echo out; exit 3") return { code = run.exit_code, out = run.stdout }'
    with({ a = tool("sees", body) }, function(server)
      assert.are.same({ code = 3, out = "out\n" }, must(server, "sees"))
      assert.are.equal("command_failed", fault(server, "run_command", { command = "exit 3" }).category)
    end, { config = "nonzero_exit_is_error = true" })
  end)

  it("may begin before there is a sandbox that the rules could look at", function()
    local policy = [[return { default = "allow", rules = {
      { name = "own-only", match = "@execute", when = { owned = false }, deny = "not yours" } } }]]
    local input = 'groups = { "@execute" }, input = { properties = { sandbox_id = { type = "string" } } },'
    with({ a = tool("first", 'return { out = call:sandbox(args.sandbox_id):run("echo hi").stdout }', input) }, function(server)
      assert.are.same({ out = "hi\n" }, must(server, "first"))
      assert.are.equal("own-only", fault(server, "first", { sandbox_id = "nobodysnobodysnobody" }).rule)
    end, { policy = policy, config = 'policy = "policy.lua"' })
  end)

  it("works in the default sandbox, which is made for it", function()
    local body = [[
      local box = call:sandbox()
      local size = box:write("a.bin", "one\0two")
      local run = box:run("wc -c < a.bin; pwd")
      local files, total = box:list()
      return { size = size, out = run.stdout, back = box:read("a.bin") == "one\0two", total = total, name = files[1].name,
        id = box.id, same = call:tool("get_sandbox").sandbox_id == box.id }]]
    with({ a = tool("works", body) }, function(server)
      local got = must(server, "works")
      assert.are.equal(7, got.size)
      assert.is_truthy(got.out:find "^7\n")
      assert.is_true(got.back)
      assert.is_true(got.same)
      assert.are.equal("a.bin", got.name)
      assert.are.equal(got.id, must(server, "list_sandboxes").sandboxes[1].sandbox_id)
    end)
  end)

  it("does in sandboxes what the policy lets the tools do that it uses", function()
    local policy = [[return { default = "allow", rules = {
      { name = "no-runs", match = "@execute", deny = "no commands" },
      { name = "hidden", match = "kill_sandbox", hide = true },
      { name = "not-this", match = "closed", deny = "closed" } } }]]
    with({ a = tool("runs", 'return { out = call:sandbox():run("id").stdout }'),
      b = tool("catches", 'local ok, err = pcall(call.tool, call, "run_command", { command = "id" }) return { rule = err.rule }'),
      c = tool("closed", "return {}"), d = tool("kills", 'return call:tool("kill_sandbox")'),
      e = tool("grouped", "return {}", 'groups = { "@execute" },') },
      function(server)
        assert.are.equal("no-runs", fault(server, "runs").rule)
        assert.are.same({ rule = "no-runs" }, must(server, "catches"))
        assert.are.equal("not-this", fault(server, "closed").rule)
        assert.are.equal("internal", fault(server, "kills").category)
        assert.are.equal("no-runs", fault(server, "grouped").rule)
      end, { policy = policy, config = 'policy = "policy.lua"' })
  end)

  it("is over when its client cancels the call", function()
    with({ a = tool("waits", "call:progress 'waiting' call:sleep(60) return {}") }, function(server)
      local token = { _meta = { progressToken = "p" }, name = "waits", arguments = {} }
      local id = server:send("tools/call", token)
      soon(server, function()
        local _ = definition(server, "waits")
        return server.notifications[1] ~= nil
      end)
      assert.are.equal("waiting", server.notifications[1].params.message)
      server:notify("notifications/cancelled", { requestId = id })
      assert.are.same({}, must(server, "list_sandboxes").sandboxes)
      server:close_stdin()
      local started = os.time()
      assert.are.equal(0, server:wait(5000).code)
      assert.is_true(os.time() - started <= 2)
    end)
  end)

  it("calls another with lists and odd bytes as a client would", function()
    local input = [[input = { properties = { l = { type = "array", items = { type = "string" } }, s = { type = "string" } } },]]
    with({ a = tool("inner", "return { n = #args.l, s = args.s }", input),
      b = tool("outer", 'return call:tool("inner", { l = { "x", "y" }, s = "a\\255" })'),
      c = tool("wrong", 'return call:tool("inner", { l = print })') }, function(server)
      assert.are.same({ n = 2, s = "a\u{FFFD}" }, must(server, "outer"))
      assert.are.equal("internal", fault(server, "wrong").category)
    end)
  end)

  it("passes a question about what it uses on to its client", function()
    local policy = [[return { default = "allow", rules = { { name = "asked", match = "run_command", ask = "Run it?" } } }]]
    with({ a = tool("runs", 'return { out = call:sandbox():run("id").stdout }') }, function(server)
      local err = fault(server, "runs")
      assert.are.equal("approval_required", err.category)
      assert.are.equal("asked", err.rule)
      -- The same question again, since it is the same call inside.
      assert.are.equal(err.approval_id, fault(server, "runs").approval_id)
    end, { policy = policy, config = 'policy = "policy.lua"' })
  end)

  it("that calls itself without end is stopped", function()
    with({ a = tool("again", 'return call:tool("again")') }, function(server)
      assert.are.equal("internal", fault(server, "again").category)
      assert.is_truthy(log_of(server):find("more than 8 deep", 1, true))
    end)
  end)
end)

describe("the files of tools", function()
  it("are all checked, and each mistake is named with its file", function()
    local said, code = checked {
      a = 'return { name = "run_command",\neffect = "reads", input = { properties = {\nx = { type = "strin" } } } }',
      b = "return { name = ", c = "local x\nx.y = 1", d = "while true do end", e = "return 3",
      f = tool("twice", ""), g = tool("twice", ""), h = tool("k", "", 'groups = { "@reads" }, hander = 1,'),
      i = 'return setmetatable({}, { __pairs = function() error "no" end })', j = 'require "no.such"',
    }
    assert.are.equal(1, code)
    for line in said:gmatch "[^\n]+" do assert.is_truthy(line:find "^%l.lua:" or line:find "^%d+ mistakes", line) end
    for _, part in ipairs {
      "a.lua:1: name is that of a tool of the server, run_command", "a.lua:1: description is missing",
      "a.lua:2: effect is none that is known", 'a.lua:3: input.properties.x.type: there is no such type; did you mean "string"?',
      "a.lua:1: handler is no function", "b.lua:1: unexpected symbol", "c.lua:2: attempt to index",
      "d.lua:1: it does not come to an end",
      "e.lua: it must return one table, not a number", "g.lua:1: name is twice",
      "h.lua:1: groups names @reads, which is no group; did you mean @read?",
      "h.lua:1: hander is not a key that is served; did you mean handler?",
      "i.lua: its table cannot be used: ", "j.lua:1: module 'no.such' not found",
    } do
      assert.is_truthy(said:find(part, 1, true), part .. "\n" .. said)
    end
  end)

  it("have nothing in their schemas that clients could not be told", function()
    local said = checked {
      a = tool("a", "", 'input = { properties = { x = { type = "string", description = print } } },'),
      b = tool("b", "", 'output = { properties = { x = { enum = { print } }, y = { type = {} } }, title = 1 },'),
      d = tool("d", "", 'output = { properties = { x = {}, [2] = {} } },'),
      e = tool("e", "", 'output = { properties = { x = { examples = { print } } } },'),
      c = tool("c", "", 'output = { properties = { x = { type = "number", maximum = 0 / 0 } } },'),
    }
    for _, part in ipairs {
      "a.lua:1: input.properties.x.description: `description` of a JSON Schema is refused: it is no text",
      "b.lua:1: output.properties.x.enum: it takes a list of values", "b.lua:1: output.properties.y.type: it takes the name",
      "b.lua:1: output.title: `title` of a JSON Schema is refused: it is no text",
      "c.lua:1: output.properties.x.maximum: it takes a number",
      "d.lua:1: output.properties: it takes schemas by name; write name = { … }",
      "e.lua: its table cannot be used: ",
    } do
      assert.is_truthy(said:find(part, 1, true), part .. "\n" .. said)
    end
  end)

  it("that are wrong are refused at the start, by name", function()
    local home = demilune.home()
    local server = demilune.start { home = home, config = 'return { tools = { "none.lua" } }' }
    assert.are.equal(2, server:wait(10000).code)
    assert.is_truthy(server.stderr:find("none.lua: there is no such file", 1, true))
    server:stop()
    demilune.remove_home(home)
  end)

  it("may require what lies beside them, anew at each load", function()
    with({ a = 'local h = require "lib.helper"\n' .. tool("uses", "return { n = h.n }"), ["lib/helper"] = "return { n = 1 }" },
      function(server, home)
        assert.are.same({ n = 1 }, must(server, "uses"))
        write(home .. "/t/lib/helper.lua", "return { n = 2 }")
        server:signal(HUP)
        soon(server, function() return must(server, "uses").n == 2 end)
      end)
  end)

  it("are read again by a reload; what is wrong leaves the old ones", function()
    with({ a = tool("first", "return { n = 1 }") }, function(server, home)
      assert.are.same({ n = 1 }, must(server, "first"))
      write(home .. "/t/a.lua", tool("first", "return { n = 2 }"))
      write(home .. "/t/b.lua", tool("second", "return {}"))
      server:signal(HUP)
      soon(server, function() return definition(server, "second") ~= nil end)
      assert.are.same({ n = 2 }, must(server, "first"))
      assert.are.equal("notifications/tools/list_changed", server.notifications[1].method)
      write(home .. "/t/a.lua", "return { name = 1 }")
      server:signal(HUP)
      soon(server, function() return log_of(server):find("reload:", 1, true) ~= nil end)
      assert.are.same({ n = 2 }, must(server, "first"))
    end)
  end)
end)

describe("the example tools", function()
  local function read(name)
    local file = assert(io.open(build.root .. "/examples/tools/" .. name .. ".lua"))
    local text = file:read "a"
    file:close()
    return text
  end

  it("measure the room in a sandbox", function()
    with({ disk_usage = read "disk_usage" }, function(server)
      must(server, "run_command", { command = "mkdir big small; head -c 300000 /dev/zero > big/f; echo x > small/f" })
      local got = must(server, "disk_usage", { count = 2 })
      assert.are.equal(2, #got.folders)
      assert.are.equal("./big", got.folders[2].path)
      assert.is_true(got.folders[2].bytes >= 300000)
      assert.are.equal("There is nothing to measure at that path.", fault(server, "disk_usage", { path = "/nope" }).message)
    end)
  end)

  it("fetch an issue with a credential that stays in the vault", function()
    local tracker = demilune.start { argv = { "/usr/bin/python3", "-c", TRACKER:format(TOKEN, TOKEN) } }
    local origin = "http://127.0.0.1:" .. math.tointeger(tracker:read_message().port)
    local credentials = ([[credentials = {
      tracker = { source = "env:TRACKER_TOKEN", origins = { %q } }, bare = { source = "env:BARE" } }]]):format(origin)
    local files = {
      fetch_issue = read "fetch_issue",
      astray = tool("astray", 'return call:http { url = "http://127.0.0.1:1/", credential = "tracker" }'),
      bare = tool("bare", ('return call:http { url = %q, credential = "bare" }'):format(origin)),
      plain = tool("plain", 'return call:http { url = "http://example.com/" }'),
      moved = tool("moved", ('return call:http { url = "%s/api/issues/8", credential = "tracker" }'):format(origin)),
      large = tool("large", ('return call:http { url = "%s/api/issues/9", credential = "tracker" }'):format(origin)),
    }
    local env = { TRACKER_TOKEN = TOKEN, BARE = "bare-secret-0123", EXAMPLE_TRACKER = origin }
    with(files, function(server)
      local issue = must(server, "fetch_issue", { number = 7 })
      assert.are.same({ "It breaks", true, { "bug" } }, { issue.title, issue.is_open, issue.labels })
      assert.is_nil(issue.body:find(TOKEN, 1, true))
      assert.are.equal("There is no issue 3.", fault(server, "fetch_issue", { number = 3 }).message)
      for _, name in ipairs { "astray", "bare", "plain" } do assert.are.equal("internal", fault(server, name).category) end
      assert.is_truthy(log_of(server):find("the credential bare says not where it may go", 1, true))
      assert.is_truthy(log_of(server):find("url must be https", 1, true))
      assert.are.equal(302, fault(server, "moved").status)
      assert.are.equal("too_large", fault(server, "large").category)
      assert.is_nil(log_of(server):find(TOKEN, 1, true))
    end, { config = credentials, env = env })
    tracker:stop()
  end)
end)
