--- The e2b driver as a cloud's client: what it sends and with what, what it believes, and what becomes of a sandbox that is
--- paused, gone or not what was promised.

local cloud = require "spec.e2b.cloud"
local connect = require "demilune.connect"
local core = require "demilune.core"

local json = core.json
local KEY, TOKEN = cloud.KEY, cloud.TOKEN

local function answer(req, status, value)
  req:respond(status, { ["Content-Type"] = "application/json" }, type(value) == "string" and value or json.encode(value))
end

--- Frames of a command that ends.
local function stream(req, stdout, code)
  req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
  req:write(connect.message { event = { start = { pid = 7 } } })
  if stdout ~= "" then req:write(connect.message { event = { data = { stdout = core.crypto.base64(stdout) } } }) end
  req:write(connect.message { event = { ["end"] = { exitCode = code, exited = true } } })
  req:write(connect.ending())
  req:finish()
end

--- A service in which all goes well; `over` is asked first and says whether it has answered.
local function service(over)
  return function(req, body, self)
    if over and over(req, body, self) then return end
    local line = req.method .. " " .. req.path
    if line == "POST /sandboxes" then return answer(req, 201, cloud.detail { sandboxID = "made" }) end
    if line:find "^GET /sandboxes/" then return answer(req, 200, cloud.detail { sandboxID = req.path:match "[^/]+$" }) end
    if line:find "^DELETE " or line:find "/timeout$" then return req:respond(204, {}, "") end
    if line:find "/process.Process/Start$" then return stream(req, "out\n", 0) end
    if line == "GET /v2/sandboxes" then return answer(req, 200, json.array {}) end
    req:respond(500, {}, "not foreseen")
  end
end

local function message_of(request)
  local decoder = connect.decoder(1 << 20)
  decoder:feed(request.body)
  return connect.object(select(2, decoder:next()))
end

describe("a creation in the cloud", function()
  it("sends the key, asks for a secure sandbox, and says nothing that was not asked for but the lifetime", function()
    cloud.with({}, service(), function(self)
      local made = assert(self:call("create_sandbox"))
      assert.are.same({ "made", "provider", "running" }, { made.sandbox_id, made.network, made.status })
      local request = self.requests[1]
      assert.are.same({ "POST /sandboxes", KEY }, { self:sent()[1], request.headers["x-api-key"] })
      local body = connect.object(request.body)
      local metadata = body.metadata
      body.metadata = nil
      assert.are.same({ templateID = "base", timeout = 300, secure = true }, body)
      assert.are.same({ "local:spec", true }, { metadata.demilune_principal, #metadata.demilune_stamp >= 16 })
      assert(self:call("create_sandbox", { template = "mine", timeout = 60, envs = { A = "b" } }))
      body = connect.object(self:last("^POST /sandboxes$").body)
      assert.are.same({ "mine", 60, "b" }, { body.templateID, body.timeout, body.envVars.A })
    end)
  end)

  it("refuses what the preset does not declare, before any request", function()
    cloud.with({}, service(), function(self)
      for _, name in ipairs { "cpu", "memory", "region" } do
        local _, err = self:call("create_sandbox", { [name] = name == "region" and "eu" or 2 })
        assert.are.same({ "unsupported", name }, { err.category, err.field })
      end
      assert.are.same({}, self.requests)
    end)
    cloud.with({ preset = "openkruise", domain = "k.example.org" }, service(), function(self)
      local _, err = self:call("create_sandbox", { timeout = 29 })
      assert.are.same({ "unsupported", "timeout" }, { err.category, err.field })
      assert.are.same({}, self.requests)
    end)
    cloud.with({ preset = "alibaba-fc" }, service(), function(self)
      assert(self:call("create_sandbox", { cpu = 2, memory = 2048 }))
      local body = connect.object(self.requests[1].body)
      assert.are.same({ 2, 2048 }, { body.cpuCount, body.memoryMB })
    end)
  end)

  it("kills what it cannot use: a domain that is not ours, a token that is none", function()
    for name, wrong in pairs {
      domain = { domain = "evil.org" }, token = { envdAccessToken = "short" }, number = { envdAccessToken = 7 },
      control = { envdAccessToken = "tok_\n" .. ("x"):rep(20) },
    } do
      local entry = { domain = "example.org" }
      if name == "domain" then entry.sandbox_url = "https://{port}-{id}.{domain}" end
      cloud.with(entry, service(function(req)
        if req.method ~= "POST" or req.path ~= "/sandboxes" then return false end
        wrong.sandboxID = "made"
        answer(req, 201, cloud.detail(wrong))
        return true
      end), function(self)
        local _, err = self:call("create_sandbox")
        assert.are.equal("invalid_response", err.category, name)
        local deadline = core.task.now_ms() + 2000
        local function ended() return self:sent("^DELETE /sandboxes/made")[1] or self:sent("^GET /v2/sandboxes")[1] end
        while not ended() and core.task.now_ms() < deadline do core.task.sleep(5) end
        assert.is_string(ended(), name)
        assert.is_nil(self.scope.default)
      end)
    end
  end)

  it("looks for what a lost answer made, by its stamp, and kills it", function()
    local stamp
    cloud.with({}, service(function(req, body)
      if req.method == "POST" and req.path == "/sandboxes" then
        stamp = connect.object(body).metadata.demilune_stamp
        req:abort()
        return true
      elseif req.path == "/v2/sandboxes" then
        answer(req, 200, json.array {
          cloud.detail { sandboxID = "others", metadata = { demilune_stamp = "x" } },
          cloud.detail { sandboxID = "lost", metadata = { demilune_stamp = stamp } },
        })
        return true
      end
    end), function(self)
      local _, err = self:call("create_sandbox")
      assert.are.equal("connection_failed", err.category)
      local deadline = core.task.now_ms() + 3000
      while not self:last "^DELETE" and core.task.now_ms() < deadline do core.task.sleep(5) end
      assert.are.same({ "DELETE /sandboxes/lost" }, self:sent "^DELETE")
      assert.are.equal(1, #self:sent "^POST")
    end)
  end)
end)

describe("work in a cloud's sandbox", function()
  it("carries the sandbox's own token, and never the key", function()
    cloud.with({}, service(), function(self)
      assert.are.equal("out\n", assert(self:call("run_command", { command = "echo out" })).stdout)
      local request = self:last "Start$"
      local headers = request.headers
      assert.are.same({ TOKEN, "made", "49983", nil, nil }, {
        headers["x-access-token"], headers["e2b-sandbox-id"], headers["e2b-sandbox-port"], headers["x-api-key"],
        headers.authorization,
      })
      for name in pairs(headers) do assert.is_nil(name:find "demilune", name) end
      assert.are.same({ "/bin/bash", "-l", "-c" }, {
        message_of(request).process.cmd, message_of(request).process.args[1], message_of(request).process.args[2],
      })
    end)
  end)

  it("attaches from an id alone by one look, and keeps nothing of it where it only looks", function()
    cloud.with({}, service(), function(self)
      assert(self:call("get_sandbox", { sandbox_id = "x9" }))
      assert.is_nil(self.provider.attached:get "x9")
      assert(self:call("run_command", { command = "a", sandbox_id = "x9" }))
      assert(self:call("run_command", { command = "a", sandbox_id = "x9" }))
      assert.are.equal(TOKEN, self:last("Start$").headers["x-access-token"])
      assert.is_true(#self:sent "^GET /sandboxes/x9" <= 3)
      assert.are.same({}, self:sent "connect$")
    end)
  end)

  it("names its user to an envd that needs it", function()
    cloud.with({}, service(function(req)
      if not req.path:find "^/sandboxes/" then return false end
      answer(req, 200, cloud.detail { sandboxID = "x1", envdVersion = "0.3.9" })
      return true
    end), function(self)
      assert(self:call("run_command", { command = "a", sandbox_id = "x1" }))
      assert.are.equal("Basic " .. core.crypto.base64 "user:", self:last("Start$").headers.authorization)
    end)
  end)

  it("resumes a paused sandbox and goes on, unless the operator said not to", function()
    local is_paused = true
    local function paused(req)
      if req.path:find "/connect$" then
        is_paused = false
        answer(req, 201, cloud.detail { sandboxID = "x1" })
      elseif req.path:find "Start$" and is_paused then
        answer(req, 502, { sandboxId = "x1", message = "The sandbox was not found", code = 502 })
      elseif req.method == "GET" and req.path == "/sandboxes/x1" then
        answer(req, 200, cloud.detail { sandboxID = "x1", state = is_paused and "paused" or "running" })
      else
        return false
      end
      return true
    end
    cloud.with({}, service(paused), function(self)
      assert.are.equal("out\n", assert(self:call("run_command", { command = "a", sandbox_id = "x1" })).stdout)
      assert.are.equal(300, connect.object(self:last("connect$").body).timeout)
    end)
    is_paused = true
    cloud.with({ auto_resume = false }, service(paused), function(self)
      local _, err = self:call("run_command", { command = "a", sandbox_id = "x1" })
      assert.are.same({ "sandbox_paused", {} }, { err.category, self:sent "connect$" })
    end)
  end)

  it("resumes by the older call where the newer is not known", function()
    local is_paused = true
    cloud.with({}, service(function(req)
      if req.path:find "/connect$" then
        answer(req, 404, { code = 404 })
      elseif req.path:find "/resume$" then
        is_paused = false
        answer(req, 201, cloud.detail { sandboxID = "x1" })
      elseif req.path:find "Start$" and is_paused then
        answer(req, 502, {})
      elseif req.method == "GET" and req.path == "/sandboxes/x1" then
        answer(req, 200, cloud.detail { sandboxID = "x1", state = is_paused and "paused" or "running" })
      else
        return false
      end
      return true
    end), function(self)
      assert(self:call("run_command", { command = "a", sandbox_id = "x1" }))
      assert.are.equal(1, #self:sent "/resume$")
    end)
  end)

  it("asks anew for a token that is not taken any more, once", function()
    local refused = 0
    cloud.with({}, service(function(req)
      if not req.path:find "Start$" then return false end
      refused = refused + 1
      if refused > 1 then return false end
      answer(req, 401, { code = 401, message = "unauthorized access" })
      return true
    end), function(self)
      assert(self:call("run_command", { command = "a", sandbox_id = "x1" }))
      refused = -100
    end)
    cloud.with({}, service(function(req)
      if not req.path:find "Start$" then return false end
      answer(req, 401, { code = 401, message = "unauthorized access" })
      return true
    end), function(self)
      local _, err = self:call("run_command", { command = "a", sandbox_id = "x1" })
      assert.are.same({ "authentication_failed", 2 }, { err.category, #self:sent "Start$" })
    end)
  end)

  it("ends what a command started at its timeout, by the mark that it was given", function()
    local swept
    cloud.with({}, service(function(req, body)
      if not req.path:find "Start$" then return false end
      local message = message_of { body = body }
      if message.process.args[4] then
        swept = message.process.args[4]
        return false
      end
      req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
      req:write(connect.message { event = { start = { pid = 7 } } })
      req:write(connect.ending { code = "deadline_exceeded", message = "words" })
      req:finish()
      return true
    end), function(self)
      local result = assert(self:call("run_command", { command = "sleep 9", timeout = 1, sandbox_id = "x1" }))
      assert.is_true(result.timed_out)
      local mark
      for _, request in ipairs(self.requests) do
        local envs = request.path:find "Start$" and message_of(request).process.envs
        mark = mark or envs and envs.DEMILUNE_RUN
      end
      assert.are.equal(mark, swept)
    end)
  end)
end)

describe("files in a cloud's sandbox", function()
  local function upload_with(version)
    local uploaded
    cloud.with({}, service(function(req, body)
      if req.path:find "^/sandboxes/" then
        answer(req, 200, cloud.detail { sandboxID = "x1", envdVersion = version })
      elseif req.path == "/files" then
        uploaded = { type = req.headers["content-type"], body = body, path = req.query.path }
        answer(req, 200, json.array { { name = "a", type = "file", path = "/a" } })
      elseif req.path:find "Start$" then
        stream(req, "ok 5\n", 0)
      else
        return false
      end
      return true
    end), function(self)
      local result = assert(self:call("write_file", { path = "/tmp/a", content = "hello", sandbox_id = "x1" }))
      assert.are.equal(5, result.bytes_written)
    end)
    return uploaded
  end

  it("are uploaded raw where envd takes that, as a form elsewhere", function()
    assert.are.same({ "application/octet-stream", "hello" }, { upload_with("0.5.7").type, upload_with("0.6.0").body })
    for _, version in ipairs { "0.5.6", "0.4.9", "nonsense", 7 } do
      local sent = upload_with(version)
      local boundary = sent.type:match "^multipart/form%-data; boundary=(.+)$"
      assert.is_string(boundary, version)
      assert.is_truthy(sent.body:find('name="file"', 1, true))
      assert.is_truthy(sent.body:find("\r\n\r\nhello\r\n--" .. boundary .. "--", 1, true))
    end
  end)

  it("are beside the target first, and what the script says of it is told", function()
    assert.is_truthy(upload_with("0.6.5").path:find "^/tmp/%.demilune%-%w+$")
    local said
    cloud.with({}, service(function(req)
      if req.path == "/files" then
        answer(req, 200, json.array {})
      elseif req.path:find "Start$" then
        stream(req, said, 0)
      else
        return false
      end
      return true
    end), function(self)
      for words, expected in pairs {
        ["refused is_directory\n"] = { "is_directory", "path" }, ["refused disk_full\n"] = { "disk_full" },
        ["conflict 12\n"] = { "conflict", "offset" }, ["refused nonsense\n"] = { "invalid_response" },
        ["nonsense"] = { "invalid_response" }, ["ok\n"] = { "invalid_response" },
      } do
        said = words
        local _, err = self:call("write_file", { path = "/tmp/a", content = "x", sandbox_id = "x1" })
        assert.are.same(expected, { err.category, err.field }, words)
      end
    end)
  end)

  it("that are a directory, or not to be read, are told from a bare status by a script", function()
    cloud.with({}, service(function(req)
      if req.path == "/files" then
        answer(req, 400, { code = 400, message = "path '/srv/SECRET' is a directory" })
      elseif req.path:find "Start$" then
        stream(req, "refused is_directory\n", 0)
      else
        return false
      end
      return true
    end), function(self)
      for _, tool in ipairs { "read_file", "download_file" } do
        local _, err = self:call(tool, { path = "/srv", sandbox_id = "x1" })
        assert.are.same({ "is_directory", "path" }, { err.category, err.field }, tool)
      end
    end)
  end)
end)

describe("a kernel", function()
  local lines, status
  local function with_kernel(fn)
    cloud.with({}, service(function(req)
      if req.headers["e2b-sandbox-port"] ~= "49999" then
        if req.path:find "ListDir$" then
          answer(req, 200, { entries = json.array {} })
          return true
        end
        return false
      end
      if req.path == "/health" then return req:respond(200, {}, "OK") or true end
      if status ~= 200 then return req:respond(status, {}, "words") or true end
      req:start(200, { ["Content-Type"] = "application/x-ndjson" })
      for _, line in ipairs(lines) do req:write(line) end
      req:finish()
      return true
    end), fn)
  end

  it("runs the code, with its result and its output, whatever the borders of chunks", function()
    status = 200
    lines = {
      '{"type":"stdout","text":"a"}\n{"type":"std', 'out","text":"b\\n"}\n\n{"type":"unknown"}\n',
      '{"type":"result","is_main_result":true,"text":"42","png":null}\n{"type":"number_of_executions","execution_count":1}\n',
      '{"type":"end_of_execution"}\n',
    }
    with_kernel(function(self)
      local result = assert(self:call("run_code", { code = "40+2", sandbox_id = "x1" }))
      assert.are.same({ "ab\n", "42", 0 }, { result.stdout, result.result, result.exit_code })
      local request = self:last "execute$"
      assert.are.same({ { code = "40+2" }, TOKEN }, { connect.object(request.body), request.headers["x-access-token"] })
      assert(self:call("run_code", { code = "1", sandbox_id = "x1", language = "r" }))
      assert.are.equal("r", connect.object(self:last("execute$").body).language)
      assert.are.equal(1, #self:sent "health$")
    end)
  end)

  it("tells an exception as a failed run", function()
    status = 200
    lines = {
      '{"type":"error","name":"ZeroDivisionError","value":"v","traceback":"\\u001b[31mTrace\\u001b[0m"}\n',
      '{"type":"end_of_execution"}\n',
    }
    with_kernel(function(self)
      local result = assert(self:call("run_code", { code = "1/0", sandbox_id = "x1" }))
      assert.are.same({ 1, "Trace\n" }, { result.exit_code, result.stderr })
    end)
  end)

  it("that breaks off, or says what is no JSON, is an invalid response", function()
    status = 200
    for _, broken in ipairs { { '{"type":"stdout","text":"a"}\n' }, { "nonsense\n" }, { "[]\n" } } do
      lines = broken
      with_kernel(function(self)
        local _, err = self:call("run_code", { code = "1", sandbox_id = "x1" })
        assert.are.equal("invalid_response", err.category)
      end)
    end
  end)
end)
