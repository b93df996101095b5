--- The e2b driver's data plane against answers that are cut, wild, late or wrong.

local connect = require "demilune.connect"
local core = require "demilune.core"
local gate = require "demilune.gate"
local wire = require "spec.providers.wire"

local base64 = core.crypto.base64

local function start(pid) return connect.message { event = { start = { pid = pid or 5 } } } end
local function data(fields) return connect.message { event = { data = fields } } end
local function ended(code) return connect.message { event = { ["end"] = { exitCode = code, exited = true } } } end

--- A service whose control plane knows x1 and whose data plane does what the spec says.
local function with(answer, fn)
  wire.with(function(req, body)
    if req.path:find "^/sandboxes/" then return wire.json(req, 200, wire.detail()) end
    return answer(req, body)
  end, fn)
end

local function run(service, fields)
  local arguments = { command = "a", sandbox_id = "x1" }
  for key, value in pairs(fields or {}) do arguments[key] = value end
  return service:call("run_command", arguments)
end

describe("commands", function()
  it("are what the frames say, however they are cut", function()
    local frames = table.concat {
      start(), data { stdout = base64 "a\xc3" }, connect.message { event = { keepalive = {} } },
      connect.message { other = 1 }, data { stdout = base64 "\xa4" }, data { stderr = base64 "e" }, ended(3), connect.ending(),
    }
    for _, step in ipairs { 1, 3, 7, #frames } do
      with(function(req)
        local pieces = {}
        for at = 1, #frames, step do pieces[#pieces + 1] = frames:sub(at, at + step - 1) end
        wire.stream(req, pieces)
      end, function(service)
        local result = assert(run(service))
        assert.are.same({ "aä", "e", 3, false }, { result.stdout, result.stderr, result.exit_code, result.timed_out })
      end)
    end
  end)

  it("are asked for as the protocol has it, with directory, variables and deadline", function()
    with(function(req) wire.stream(req, { start(), ended(), connect.ending() }) end, function(service)
      assert.are.equal(0, assert(run(service, { cwd = "sub", timeout = 7 })).exit_code)
      local request = service.requests[#service.requests]
      assert.are.same({ "POST", "/process.Process/Start", "application/connect+json", "7000", "x1" }, {
        request.method, request.path, request.headers["content-type"], request.headers["connect-timeout-ms"],
        request.headers["e2b-sandbox-id"],
      })
      local body = core.json.decode(request.body:sub(6))
      assert.are.same({ "/bin/bash", { "-l", "-c", "a" }, "/home/user/sub" },
        { body.process.cmd, table.move(body.process.args, 1, 9, 1, {}), body.process.cwd })
    end)
  end)

  it("see the variables that the service tells of a sandbox which came by its id, and no result does", function()
    local env = { PATH = "/mine:/bin", B = "it's", ["A-B"] = "no shell exports that", N = 7, Z = "a\0b" }
    wire.with(function(req)
      if req.path:find "^/sandboxes/" then return wire.json(req, 200, wire.detail { demilune = { env = env } }) end
      wire.stream(req, { start(), ended(), connect.ending() })
    end, function(service)
      assert(run(service))
      local process = core.json.decode(service.requests[#service.requests].body:sub(6)).process
      assert.are.equal("export B='it'\\''s' PATH='/mine:/bin'\na", process.args[3])
      assert.are.same({ PATH = "/mine:/bin", B = "it's" }, process.envs)
      local shown = assert(service:call("get_sandbox", { sandbox_id = "x1" }))
      assert.is_nil(core.json.encode(shown):find("mine", 1, true))
      env = "wild"
      assert(service:call("get_sandbox", { sandbox_id = "x1" }))
    end)
  end)

  it("beyond the places of the server wait in order, then are refused, and hold up no control plane", function()
    local held, running = core.task.event(), 0
    with(function(req)
      running = running + 1
      held:wait(5000)
      wire.stream(req, { start(), ended(), connect.ending() })
    end, function(service)
      service.provider.places = gate.new(2, 150)
      local jobs = {}
      for i = 1, 2 do jobs[i] = core.task.spawn(function() return run(service) end) end
      while running < 2 do core.task.sleep(1) end
      local from = core.task.now_ms()
      local _, err = run(service)
      assert.are.same({ "quota_exceeded", false }, { err.category, err.retryable })
      assert.is_true(core.task.now_ms() - from >= 140)
      jobs[3] = core.task.spawn(function() return run(service) end)
      core.task.sleep(20)
      from = core.task.now_ms()
      assert(service:call("get_sandbox", { sandbox_id = "x1" }))
      assert.is_true(core.task.now_ms() - from < 100)
      assert.are.equal(2, running)
      held:set()
      for _, job in ipairs(jobs) do
        local has_ended, result = job:wait(2000)
        assert.is_true(has_ended)
        assert.are.equal(0, result.exit_code)
      end
      assert.are.equal(2, service.provider.places.free)
    end)
  end)

  it("give their place back however they end", function()
    local mode
    with(function(req)
      if mode == "cancel" then core.task.sleep(5000) end
      if mode == "abort" then return req:abort() end
      if mode == "status" then return wire.json(req, 500, {}) end
      wire.stream(req, { start(), connect.frame(0, "no JSON") })
    end, function(service)
      service.provider.places = gate.new(1, 50)
      for _, how in ipairs { "abort", "status", "frames" } do
        mode = how
        for _, tool in ipairs { "run_command", "read_file", "download_file", "list_files", "write_file" } do
          local arguments = { sandbox_id = "x1", path = tool ~= "run_command" and "a" or nil }
          if tool == "run_command" then arguments.command = "a" elseif tool == "write_file" then arguments.content = "" end
          service:call(tool, arguments)
          assert.are.equal(1, service.provider.places.free, tool .. " " .. how)
        end
      end
      mode = "cancel"
      local job = core.task.spawn(function() return run(service) end)
      core.task.sleep(30)
      assert.are.equal(0, service.provider.places.free)
      job:cancel()
      job:wait(1000)
      assert.are.equal(1, service.provider.places.free)
    end)
  end)

  it("fall back to sh where there is no bash, once for all", function()
    local asked = {}
    with(function(req, body)
      local cmd = core.json.decode(body:sub(6)).process.cmd
      asked[#asked + 1] = cmd
      if cmd == "/bin/bash" then
        return wire.stream(req, { connect.ending { code = "not_found", message = "x", error_code = "command_not_found" } })
      end
      wire.stream(req, { start(), data { stdout = base64 "sh" }, ended(), connect.ending() })
    end, function(service)
      service.scope.sandboxes["wire\0x1"] = nil
      assert.are.equal("sh", assert(run(service)).stdout)
      assert.are.equal("sh", assert(run(service)).stdout)
      assert.are.same({ "/bin/bash", "/bin/sh", "/bin/sh" }, asked)
    end)
  end)

  it("time out as a result, with what there was", function()
    with(function(req)
      wire.stream(req, { start(), data { stdout = base64 "so far" }, connect.ending { code = "deadline_exceeded",
        message = "x" } })
    end, function(service)
      local result = assert(run(service, { timeout = 1 }))
      assert.are.same({ true, "so far", nil }, { result.timed_out, result.stdout, result.exit_code ~= core.json.null
        and 1 or nil })
    end)
  end)

  it("without an end, or with wild frames, are invalid_response", function()
    for name, frames in pairs {
      ["nothing"] = {}, ["no end frame"] = { start(), data { stdout = base64 "x" } },
      ["an end without an exit"] = { start(), connect.ending() }, ["half a frame"] = { start():sub(1, 9) },
      ["no JSON"] = { connect.frame(0, "x") }, ["an array"] = { connect.frame(0, "[1]") },
        ["compressed"] = { connect.frame(1, "{}") },
      ["no base64"] = { start(), data { stdout = "***" } }, ["a frame too long"] = { string.pack(">BI4", 0, 1 << 30) },
      ["an error that is none"] = { start(), connect.frame(2, '{"error":7}') },
      ["an exit code that is none"] = { start(), connect.message { event = { ["end"] = { exitCode = "x" } } },
        connect.ending() }, ["an end that is none"] = { connect.frame(2, "x") },
    } do
      with(function(req) wire.stream(req, frames) end, function(service)
        local _, err = run(service)
        assert.is_true(err.category == "invalid_response" or err.category == "too_large", name .. ": " .. err.category)
      end)
    end
  end)

  it("take null for what is not there", function()
    with(function(req)
      wire.stream(req, {
        start(), data { stdout = core.json.null, stderr = base64 "e" },
        connect.message { event = { ["end"] = { exitCode = core.json.null, error = core.json.null } } }, connect.frame(2,
          '{"error":null}'),
      })
    end, function(service)
      local result = assert(run(service))
      assert.are.same({ "", "e", 0 }, { result.stdout, result.stderr, result.exit_code })
    end)
  end)

  it("map the codes of the protocol, and never show its words", function()
    for code, category in pairs {
      unavailable = "unavailable", permission_denied = "file_permission", unauthenticated = "authentication_failed",
      resource_exhausted = "quota_exceeded", unimplemented = "unsupported", invalid_argument = "provider_rejected",
      nonsense = "provider_rejected", internal = "unavailable",
    } do
      with(function(req) wire.stream(req, { start(), connect.ending { code = code, message = "SECRET" } }) end,
        function(service)
        local _, err = run(service)
        assert.are.same({ category, false }, { err.category, err.retryable }, code)
        assert.is_nil(core.json.encode(err):find("SECRET", 1, true))
      end)
    end
  end)

  it("of a sandbox that ended meanwhile are sandbox_gone, however the service says it", function()
    for name, answer in pairs {
      ["502"] = function(req) wire.json(req, 502, { sandboxId = "x1", message = "The sandbox was not found", code = 502 }) end,
      ["410"] = function(req) wire.json(req, 410, {}) end,
      ["its own code"] = function(req)
        wire.stream(req, { start(), connect.ending { code = "unavailable", message = "x", error_code = "sandbox_gone" } })
      end,
    } do
      with(answer, function(service)
        local _, err = run(service)
        assert.are.equal("sandbox_gone", err.category, name)
      end)
    end
    local is_gone = false
    wire.with(function(req)
      if req.path:find "^/sandboxes/" then
        return wire.json(req, is_gone and 404 or 200, is_gone and { code = 404 } or wire.detail())
      end
      is_gone = true
      req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
      req:write(start())
      req:abort()
    end, function(service)
      local _, err = run(service)
      assert.are.equal("sandbox_gone", err.category)
    end)
  end)

  it("keep the tail that an engine cut by itself, and no path but of its own place", function()
    for path, shown in pairs {
      ["/tmp/.demilune/out/a-1.stdout"] = true, ["/etc/passwd"] = false, ["/tmp/.demilune/out/a b"] = false,
      ["/tmp/.demilune/" .. ("x"):rep(300)] = false,
    } do
      with(function(req)
        local cut = { total = 1000000, tail = base64(("Z"):rep(16384)), path = path }
        wire.stream(req, {
          start(), data { stdout = base64(("Q"):rep(16384)) },
          connect.message { event = { output = { stdout = cut, stderr = { total = 0, tail = "",
            path = core.json.null } } } }, ended(),
          connect.ending(),
        })
      end, function(service)
        local result = assert(run(service))
        assert.are.same({ true, shown and path or core.json.null }, { result.stdout_truncated, result.stdout_path })
        assert.truthy(result.stdout:find(("[%d bytes left out"):format(1000000 - 16384), 1, true))
        assert.are.same({ 4096, 12288 }, { select(2, result.stdout:gsub("Q", "")), select(2, result.stdout:gsub("Z", "")) })
      end)
    end
  end)
end)

describe("files of the data plane", function()
  it("map precise codes and bare statuses", function()
    local status, body
    with(function(req) wire.json(req, status, body) end, function(service)
      for _, row in ipairs {
        { 404, { error_code = "file_not_found" }, "file_not_found" }, { 400, { error_code = "is_directory" }, "is_directory" },
        { 403, { error_code = "file_permission" }, "file_permission" }, { 507, { error_code = "disk_full" }, "disk_full" },
        { 400, { error_code = "unsupported" }, "unsupported" }, { 413, { error_code = "too_large" }, "too_large" },
        { 404, {}, "file_not_found" }, { 507, {}, "disk_full" }, { 502, {}, "sandbox_gone" }, { 500, {}, "unavailable" },
        { 400, "no json", "provider_rejected" }, { 200, {}, "invalid_response" }, { 204, "", "invalid_response" },
      } do
        status, body = row[1], row[2]
        local _, err = service:call("download_file", { path = "a", sandbox_id = "x1" })
        assert.are.equal(row[3], err.category, status)
      end
      status, body = 409, { error_code = "conflict", size = 12 }
      local _, err = service:call("upload_file", { path = "a", content_base64 = "eA==", offset = 5, sandbox_id = "x1" })
      assert.are.same({ "conflict", 12, "offset", false }, { err.category, err.size, err.field, err.retryable })
    end)
  end)

  it("are asked for by escaped path and exact range", function()
    with(function(req)
      req:respond(206, { ["Content-Range"] = "bytes 5-6/10" }, "ab")
    end, function(service)
      local got = assert(service:call("download_file", { path = "/a b/ü?&#%2e", offset = 5, length = 2, sandbox_id = "x1" }))
      assert.are.same({ "YWI=", 10, 7 }, { got.content_base64, got.size, got.next_offset })
      local request = service.requests[#service.requests]
      assert.are.same({ "/a b/ü?&#%2e", "bytes=5-6" }, { request.query.path, request.headers.range })
    end)
  end)

  it("refuse ranges that are longer than asked, and sizes that are none", function()
    for _, headers in ipairs { { ["Content-Range"] = "bytes 0-9/x" }, {}, { ["Content-Range"] = "bytes 0-1/1e3" } } do
      with(function(req) req:respond(206, headers, "ab") end, function(service)
        local _, err = service:call("download_file", { path = "a", length = 2, sandbox_id = "x1" })
        assert.is_true(err == nil or err.category == "invalid_response")
      end)
    end
    with(function(req) req:respond(206, { ["Content-Range"] = "bytes 0-1/10" }, "abc") end, function(service)
      local _, err = service:call("download_file", { path = "a", length = 2, sandbox_id = "x1" })
      assert.are.equal("invalid_response", err.category)
    end)
  end)

  it("are listed with what is wild refused", function()
    local body
    with(function(req) wire.json(req, 200, body) end, function(service)
      body = { entries = { { name = "b", path = "/b", type = "FILE_TYPE_FILE", size = "7" }, { name = "a", path = "/a",
        type = 9 } } }
      local got = assert(service:call("list_files", { sandbox_id = "x1", path = "/" }))
      assert.are.same({ "a", "other", core.json.null, "b", 7, 2 }, {
        got.files[1].name, got.files[1].type, got.files[1].size, got.files[2].name, got.files[2].size, got.total,
      })
      for _, wild in ipairs { { entries = { 7 } }, { entries = { { name = 7, path = "/x" } } },
        { entries = { { name = "x" } } } } do
        body = wild
        local _, err = service:call("list_files", { sandbox_id = "x1" })
        assert.are.equal("invalid_response", err.category)
      end
      body = { total = "x" }
      assert.are.same({}, table.move(assert(service:call("list_files", { sandbox_id = "x1" })).files, 1, 1, 1, {}))
    end)
  end)

  it("break off as connection_failed, not as a short file", function()
    with(function(req)
      req:start(200, { ["Content-Length"] = "100" })
      req:write "half"
      req:abort()
    end, function(service)
      local _, err = service:call("read_file", { path = "a", sandbox_id = "x1" })
      assert.are.same({ "connection_failed", true }, { err.category, err.retryable })
    end)
  end)
end)
