--- The table of failures as Lua sees it: suggestions, and what statuses and codes of services mean.

local core = require "demilune.core"
local errors = require "demilune.errors"
local sources = require "spec.support.sources"

--- The error_codes that docs/engine.md lists, and those of research on E2B: an open set, of which these are known.
local OF_E2B = {
  "sandbox_capacity_unavailable", "sandbox_placement_timeout", "sandbox_no_compatible_node", "sandbox_create_failed",
  "internal_server_error",
}

local function response(status, more)
  local answer = { status = status }
  for key, value in pairs(more or {}) do answer[key] = value end
  return errors.from_response(answer)
end

describe("a suggestion", function()
  it("stands in the errors whose category says what helps", function()
    local with = {}
    for _, category in ipairs(core.status.names()) do
      local err = errors.new(category)
      if err.suggestion then
        with[#with + 1] = category
        assert.is_truthy(err.suggestion:find "^%u[^\n]+%.$", category)
        assert.are.equal(err.suggestion, errors.public(err).suggestion)
      end
    end
    assert.are.same({ "quota_exceeded", "rate_limited", "authentication_failed", "provider_forbidden", "no_capacity" }, with)
  end)

  it("gives way to a better one", function()
    assert.are.equal("Do this.", errors.new("quota_exceeded", { suggestion = "Do this." }).suggestion)
  end)
end)

describe("core.status.from_code", function()
  it("knows the words of Connect", function()
    for code in pairs(require("demilune.connect").STATUS) do
      local category, is_known = core.status.from_code("connect", code)
      assert.is_true(is_known, code)
      assert.is_truthy(errors.new(category))
    end
    assert.are.equal("quota_exceeded", (core.status.from_code("connect", "resource_exhausted")))
    assert.are.equal("provider_timeout", (core.status.from_code("connect", "deadline_exceeded")))
  end)

  it("knows every error_code of our engine, of its documentation, and those of E2B that are published", function()
    for code in pairs(require("demilune.engine.faults").ROWS) do
      assert.is_true(select(2, core.status.from_code("e2b", code)), code)
    end
    local chapter = (sources.read "docs/engine.md" .. "\n## "):match "\n## Errors\n(.-)\n## "
    local count = 0
    for row in chapter:gmatch "\n| [%d, ]+ | ([^\n]+) |" do
      for code in row:gmatch "`([%l_]+)`" do
        count = count + 1
        assert.is_true(select(2, core.status.from_code("e2b", code)), code)
      end
    end
    assert.is_true(count > 30, count .. " codes are documented")
    for _, code in ipairs(OF_E2B) do assert.is_true(select(2, core.status.from_code("e2b", code)), code) end
  end)

  it("gives nothing for what it does not know, whatever that is", function()
    for _, code in ipairs {
      "", "nope", "Not_Found", "not_found\0", "not_found ", ("x"):rep(100000), 404, true, {}, core.json.null,
    } do
      assert.are.same({ nil, false }, { core.status.from_code("connect", code) })
    end
    assert.are.same({ nil, false }, { core.status.from_code("connect", nil) })
    assert.are.same({ nil, false }, { core.status.from_code("connect", "sandbox_gone") })
    assert.are.same({ nil, false }, { core.status.from_code("e2b", "insufficient-credits") })
  end)

  it("raises for a family that there is not", function()
    assert.has_error(function() core.status.from_code("docker", "not_found") end)
    assert.has_error(function() core.status.from_code(nil, "not_found") end)
  end)
end)

describe("errors.from_response", function()
  it("goes by the status where no code says more", function()
    for status, category in pairs {
      [302] = "provider_rejected", [400] = "provider_rejected", [401] = "authentication_failed", [402] = "quota_exceeded",
      [403] = "provider_forbidden", [404] = "not_found", [408] = "provider_timeout", [409] = "conflict", [410] = "sandbox_gone",
      [413] = "provider_rejected", [422] = "provider_rejected", [429] = "quota_exceeded", [500] = "unavailable",
      [502] = "unavailable", [503] = "unavailable", [504] = "unavailable", [599] = "unavailable", [700] = "invalid_response",
    } do
      local err = response(status)
      assert.are.same({ category, status }, { err.category, err.status }, status)
      assert.is_nil(err.code)
      assert.are.equal(category, response(status, { family = "e2b", code = "a code that nobody knows" }).category, status)
    end
    for status, category in pairs {
      [409] = "provider_rejected", [503] = "no_capacity", [504] = "no_capacity", [500] = "unavailable",
    } do
      assert.are.equal(category, response(status, { is_create = true }).category, status)
    end
  end)

  it("calls a success that its caller could not use an invalid response", function()
    assert.are.equal("invalid_response", response(200).category)
    assert.are.equal("invalid_response", response(204, { is_create = true }).category)
  end)

  it("tells a rate, which says when to come again, from a quota, which does not", function()
    for given, seconds in pairs { [7] = 7, [0] = 0, [2.1] = 3, ["15"] = 15, ["999999999"] = 86400, [1e300] = 86400 } do
      local err = response(429, { retry_after = given })
      assert.are.same({ "rate_limited", true, seconds }, { err.category, err.retryable, err.retry_after })
      assert.are.equal("integer", math.type(err.retry_after))
    end
    for _, given in ipairs { "soon", "-1", "0x10", "1e3", " 5", "", -1, 0 / 0, true, {} } do
      local err = response(429, { retry_after = given })
      assert.are.same({ "quota_exceeded", false }, { err.category, err.retryable })
      assert.is_nil(err.retry_after)
    end
    assert.is_nil(response(503, { retry_after = 5 }).retry_after)
  end)

  it("goes by a known code, and shows it", function()
    local err = response(503, { family = "e2b", code = "local_isolation_unavailable", is_create = true })
    assert.are.same({ "local_isolation_unavailable", "local_isolation_unavailable", 503 }, { err.category, err.code, err.status })
    assert.are.equal("unsupported", response(501, { family = "connect", code = "unimplemented" }).category)
    assert.are.equal("no_capacity", response(500, { family = "e2b", code = "sandbox_capacity_unavailable" }).category)
    err = response(400, { family = "veryfront", code = "insufficient-credits" })
    assert.are.same({ "quota_exceeded", "insufficient-credits" }, { err.category, err.code })
  end)

  it("lets no code talk it out of a status that says enough", function()
    local err = response(401, { family = "e2b", code = "sandbox_gone" })
    assert.are.same({ "authentication_failed", "sandbox_gone" }, { err.category, err.code })
    assert.are.equal("quota_exceeded", response(429, { family = "e2b", code = "no_capacity" }).category)
    assert.are.equal("rate_limited", response(429, { family = "e2b", code = "no_capacity", retry_after = 1 }).category)
  end)

  it("never shows a code that it does not know", function()
    for _, code in ipairs { "s3cr3t", "not_found s3cr3t", "s3cr3t\0", { "s3cr3t" }, 31337, true } do
      local err = response(404, { family = "e2b", code = code })
      assert.is_nil(err.code)
      assert.falsy(core.json.encode(errors.public(err)):find("s3cr3t", 1, true))
    end
    assert.is_nil(response(404, { code = "not_found" }).code)
  end)
end)

describe("errors.public", function()
  it("keeps a code of the table, and drops what a driver took from elsewhere", function()
    for _, code in ipairs { "sandbox_gone", "data_loss", "insufficient-credits" } do
      assert.are.equal(code, errors.public(errors.new("unavailable", { code = code })).code)
    end
    for _, code in ipairs { "s3cr3t", 500, {}, true } do
      assert.is_nil(errors.public(errors.new("unavailable", { code = code })).code)
    end
  end)
end)
