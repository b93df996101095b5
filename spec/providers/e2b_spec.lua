--- The e2b driver's control plane: what it asks, how it takes answers of every kind, and that no foreign word gets through.

local canary = require "spec.support.canary"
local core = require "demilune.core"
local wire = require "spec.providers.wire"

local null = core.json.null

describe("the control plane", function()
  it("maps statuses to categories, by what was asked", function()
    local status, headers
    wire.with(function(req) req:respond(status, headers or {}, '{"code":0,"message":"words"}') end, function(service)
      for _, row in ipairs {
        { 400, "provider_rejected" }, { 401, "authentication_failed" }, { 402, "quota_exceeded" }, { 403,
          "provider_forbidden" },
        { 405, "provider_rejected" }, { 410, "not_found" }, { 409, "conflict" }, { 415, "provider_rejected" },
        { 422, "provider_rejected" }, { 429, "quota_exceeded" }, { 500, "unavailable", true }, { 502, "unavailable", true },
        { 503, "unavailable", true }, { 504, "unavailable", true }, { 302, "provider_rejected" }, { 204, "invalid_response" },
        { 201, "invalid_response" },
      } do
        status = row[1]
        local _, err = service:call("get_sandbox", { sandbox_id = "x1" })
        assert.are.same({ row[2], row[3] or false }, { err.category, err.retryable }, status)
      end
      for _, row in ipairs {
        { 400, "provider_rejected", false }, { 404, "not_found", false }, { 409, "provider_rejected", false },
        { 429, "quota_exceeded", false }, { 500, "unavailable", false }, { 503, "no_capacity", true },
        { 504, "no_capacity", true }, { 502, "unavailable", false }, { 200, "invalid_response", false },
      } do
        status = row[1]
        local _, err = service:call("create_sandbox")
        assert.are.same({ row[2], row[3] }, { err.category, err.retryable }, status)
        if status == 404 then assert.are.equal("template", err.field) end
      end
      status, headers = 429, { ["Retry-After"] = "7" }
      local _, err = service:call("list_sandboxes")
      assert.are.same({ "rate_limited", true, 7, 429 }, { err.category, err.retryable, err.retry_after, err.status })
    end)
  end)

  it("takes 404 of a kill for an end, and of the rest for what the scope knows of the id", function()
    wire.with(function(req) wire.json(req, 404, { code = 404, message = "gone" }) end, function(service)
      local result = assert(service:call("kill_sandbox", { sandbox_id = "x1" }))
      assert.are.same({ true, false }, { result.success, result.existed })
      for _, tool in ipairs { "get_sandbox", "set_sandbox_timeout", "run_command" } do
        local _, err = service:call(tool, {
          sandbox_id = "x1", timeout = tool ~= "get_sandbox" and 5 or nil, command = tool == "run_command" and "a" or nil,
        })
        assert.are.same({ "not_found", "sandbox_id" }, { err.category, err.field }, tool)
      end
    end)
  end)

  it("refuses answers that are not what the protocol promises", function()
    local body
    wire.with(function(req) wire.json(req, req.method == "POST" and 201 or 200, body) end, function(service)
      for _, text in ipairs {
        "", "x", "[]", "null", "7", '"x"', "{}", '{"sandboxID":7}', '{"sandboxID":""}', '{"sandboxID":"a/b"}',
          '{"sandboxID":"../x"}',
        '{"sandboxID":"' .. ("x"):rep(129) .. '"}', '{"sandboxID":"x\\u0000y"}', '{"sandboxID":["x"]}', '{"sandboxID":"x1"',
      } do
        body = text
        for _, tool in ipairs { "get_sandbox", "create_sandbox" } do
          local _, err = service:call(tool, tool == "get_sandbox" and { sandbox_id = "x1" } or {})
          assert.are.equal("invalid_response", err.category, tool .. " " .. text)
        end
      end
      for _, text in ipairs { "", "{", "7", "null", '[{"sandboxID":"a/b"}]', "[7]", "[[]]", "[null]" } do
        body = text
        local _, err = service:call("list_sandboxes")
        assert.are.equal("invalid_response", err.category, text)
      end
    end)
  end)

  it("kills what was created when the answer cannot be used", function()
    wire.with(function(req)
      if req.method == "DELETE" then return req:respond(204, {}, "") end
      wire.json(req, 201, { sandboxID = "fresh", metadata = "no object", templateID = 7, startedAt = {}, cpuCount = "many" })
    end, function(service)
      service.provider.info_of = function() error(require("demilune.errors").new "invalid_response", 0) end
      local _, err = service:call("create_sandbox")
      assert.are.equal("invalid_response", err.category)
      assert.are.same({ "DELETE", "/sandboxes/fresh" }, { service.requests[2].method, service.requests[2].path })
      assert.are.same({}, service.scope:owned())
    end)
  end)

  it("reads wild fields as not said", function()
    wire.with(function(req)
      wire.json(req, 200, {
        sandboxID = "x1", templateID = { "x" }, alias = 7, state = "dancing", startedAt = "yesterday", endAt = 5,
          cpuCount = "2",
        memoryMB = 1.5, diskSizeMB = "x", metadata = { "x" }, extra = { deep = { 1 } },
      })
    end, function(service)
      local info = assert(service:call("get_sandbox", { sandbox_id = "x1" }))
      assert.are.same({ sandbox_id = "x1", template = null, status = "running", region = null, started_at = null, end_at = null,
        cpu_count = null, memory_mb = null, disk_size_mb = null }, info)
    end)
  end)

  it("creates with the options given, a lifetime, and a fresh stamp of whose it is", function()
    wire.with(function(req) wire.json(req, 201, wire.detail { sandboxID = "s" .. math.random(1 << 30) }) end, function(service)
      assert(service:call("create_sandbox", { timeout = 77, envs = { A = "b" } }))
      assert(service:call("create_sandbox"))
      local first, second = core.json.decode(service.requests[1].body), core.json.decode(service.requests[2].body)
      assert.are.same({ "base", 77, { A = "b" }, "local:spec", service.scope.id }, {
        first.templateID, first.timeout, first.envVars, first.metadata.demilune_principal, first.metadata.demilune_scope,
      })
      assert.are.same({ 300, nil }, { second.timeout, second.envVars })
      assert.are_not.equal(first.metadata.demilune_stamp, second.metadata.demilune_stamp)
      assert.is_true(#first.metadata.demilune_stamp >= 20)
    end)
  end)

  it("walks the pages of a service that has cursors, to the offset and no further", function()
    local all = {}
    for i = 1, 250 do all[i] = wire.detail { sandboxID = ("x%03d"):format(i) } end
    wire.with(function(req)
      local from = tonumber(req.query.nextToken or "0")
      local page = core.json.array(table.move(all, from + 1, math.min(from + 100, #all), 1, {}))
      wire.json(req, 200, core.json.encode(page), from + 100 < #all and { ["X-Next-Token"] = tostring(from + 100) } or nil)
    end, function(service)
      local function page(limit, offset)
        service.requests = {}
        local found = assert(service:call("list_sandboxes", { limit = limit, offset = offset })).sandboxes
        return #found, found[1] and found[1].sandbox_id, #service.requests
      end
      assert.are.same({ 100, "x001", 1 }, { page(100, 0) })
      assert.are.same({ 10, "x096", 2 }, { page(10, 95) })
      assert.are.same({ 50, "x201", 3 }, { page(100, 200) })
      assert.are.same({ 0, nil, 3 }, { page(100, 1000) })
      service.requests = {}
      assert.are.same({}, assert(service:call("list_sandboxes", { status = "stopping" })).sandboxes)
      assert.are.same({}, service.requests)
    end)
  end)

  it("asks for one principal's sandboxes alone, and checks what it is given", function()
    wire.with(function(req)
      wire.json(req, 200, core.json.array {
        wire.detail { sandboxID = "mine", metadata = { demilune_principal = "local:spec" } },
        wire.detail { sandboxID = "theirs", metadata = { demilune_principal = "local:other" } },
        wire.detail { sandboxID = "plain" },
      })
    end, function(service)
      local found = assert(service:call("list_sandboxes")).sandboxes
      assert.are.same({ 1, "mine" }, { #found, found[1].sandbox_id })
      assert.are.equal("demilune_principal=local%253Aspec", service.requests[1].query.metadata)
    end, { tenancy = "principal" })
  end)

  it("says nothing of what a service says, in results, errors and the log", function()
    local secret, status = canary.new(), nil
    local logged, real = {}, {}
    for _, level in ipairs { "debug", "info", "warn", "error" } do
      real[level] = core.log[level]
      core.log[level] = function(...) logged[#logged + 1] = table.concat({ ... }, " ") end
    end
    wire.with(function(req)
      wire.json(req, status, {
        code = status, message = secret, error_code = secret, field = secret, sandboxID = secret, url = secret,
          detail = { secret },
      }, { ["X-Secret"] = secret, ["X-Next-Token"] = secret })
    end, function(service)
      for _, one in ipairs { 200, 201, 204, 301, 400, 401, 403, 404, 409, 418, 429, 500, 503, 599 } do
        status = one
        for tool, arguments in pairs {
          get_sandbox = { sandbox_id = "x1" }, create_sandbox = {}, set_sandbox_timeout = { sandbox_id = "x1", timeout = 5 },
          kill_sandbox = { sandbox_id = "x1" }, run_command = { sandbox_id = "x1", command = "a" },
          read_file = { sandbox_id = "x1", path = "a" }, list_files = { sandbox_id = "x1" },
        } do
          local result, err = service:call(tool, arguments)
          local is_file = tool == "read_file" and result
          assert.is_nil(not is_file and canary.find(core.json.encode(err or result), secret) or nil, tool .. " " .. one)
        end
      end
    end)
    for level, fn in pairs(real) do core.log[level] = fn end
    assert.is_nil(canary.find(table.concat(logged, "\n"), secret))
  end)

  it("tells a service that is not there, at once", function()
    core.task.run(function()
      local service = wire.open(function() end)
      service:close()
      local from = core.task.now_ms()
      local _, err = service:call("get_sandbox", { sandbox_id = "x1" })
      assert.are.same({ "connection_failed", true }, { err.category, err.retryable })
      _, err = service:call("create_sandbox")
      assert.are.same({ "connection_failed", false }, { err.category, err.retryable })
      assert.is_true(core.task.now_ms() - from < 2000)
      core.http.close_idle()
    end)
  end)
end)
