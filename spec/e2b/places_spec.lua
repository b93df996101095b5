--- Where the e2b driver's requests go: regions in ids, patterns of sandbox URLs, and what is remembered. The HTTP client is
--- one of the spec's own: nothing is sent.

local attached = require "demilune.e2b.attached"
local core = require "demilune.core"
local e2b = require "demilune.providers.e2b"
local errors = require "demilune.errors"
local gate = require "demilune.gate"
local presets = require "demilune.e2b.presets"

local TOKEN = { ["/envdAccessToken"] = "X-Access-Token", ["/trafficAccessToken"] = "E2B-Traffic-Access-Token" }

--- A provider whose requests end in `answer(request)`, and the list of them.
local function provider(entry, answer)
  assert(core.vault.define("spec", "env:DML_SPEC_KEY"))
  local config = { id = "c", type = "e2b", credential = "spec", lifetime = 300, max_lifetime = 86400, templates = {} }
  for name, value in pairs(entry) do config[name] = value end
  local made, requests = e2b.new(config), {}
  made.output, made.places = { stdout = 100, stderr = 100 }, gate.new(8, 100)
  made.transport = {
    send = function(_, request)
      requests[#requests + 1] = request
      local res = answer(request)
      res.headers = res.headers or {}
      return res
    end,
  }
  return made, requests
end

local function detail(id, fields)
  local made = { sandboxID = id, templateID = "base", state = "running", envdVersion = "0.6.5" }
  for name, value in pairs(fields or {}) do made[name] = value end
  return made
end

local function creation(fields)
  local opts = { scope = { id = "s" }, principal = "p", timeout_s = 60, stamp = "st" }
  for name, value in pairs(fields) do opts[name] = value end
  return opts
end

local function within(fn)
  return function() core.task.run(fn) end
end

describe("a region", function()
  local function answer(request)
    if request.method == "POST" then return { status = 201, json = detail "x1" } end
    if request.method == "DELETE" then return { status = 204 } end
    if request.url:find "/v2/sandboxes" then return { status = 200, json = core.json.array { detail "x1" } } end
    return { status = 200, json = detail "x1" }
  end

  it("that a creation names is in the sandbox's id, and all that concerns it goes there", within(function()
    local cloud, requests = provider({ preset = "alibaba-fc" }, answer)
    local info = cloud:create(creation { region = "cn-beijing" })
    assert.are.same({ "x1@cn-beijing", "cn-beijing" }, { info.id, info.region })
    local api = "https://api.cn-beijing.e2b.fc.aliyuncs.com/"
    assert.are.equal(api .. "sandboxes", requests[1].url)
    assert.are.equal("x1@cn-beijing", cloud:get("x1@cn-beijing").id)
    assert.is_true(cloud:kill "x1@cn-beijing")
    assert.are.same({ api .. "sandboxes/x1", api .. "sandboxes/x1" }, { requests[2].url, requests[3].url })
    cloud:request({ id = "x1@cn-beijing" }, { method = "GET", path = "/health", headers = {}, timeout_ms = 1000 })
    local last = requests[#requests]
    assert.are.equal("https://49983-x1.cn-beijing.e2b.fc.aliyuncs.com/health", last.url)
    assert.are.equal("x1", last.headers["E2b-Sandbox-Id"])
    assert.are.equal("x1@cn-beijing", cloud:list({ region = "cn-beijing", limit = 1, offset = 0 })[1].id)
    assert.are.equal("x1", cloud:list({ limit = 1, offset = 0 })[1].id)
    assert.is_truthy(requests[#requests].url:find("https://api.cn-hangzhou.e2b.fc.aliyuncs.com/", 1, true))
    assert.are.equal("x1", cloud:create(creation { region = "cn-hangzhou" }).id)
  end))

  it("has its own key and tokens, which go nowhere else", within(function()
    local cloud, requests = provider({ preset = "alibaba-fc" }, answer)
    cloud:create(creation { region = "cn-beijing" })
    local key = requests[1].credentials[1]
    assert.is_true(core.vault.allows(key, "https://api.cn-beijing.e2b.fc.aliyuncs.com/sandboxes"))
    assert.is_false(core.vault.allows(key, "https://api.cn-hangzhou.e2b.fc.aliyuncs.com/sandboxes"))
    for pointer, header in pairs(TOKEN) do
      assert.are.same({ header = header, suffixes = { "cn-beijing.e2b.fc.aliyuncs.com" } }, requests[1].tokens[pointer])
    end
  end))

  it("is looked for by a stamp that names it, and the service never sees the name there", within(function()
    local sent
    local cloud, requests = provider({ preset = "alibaba-fc" }, function(request)
      if request.method == "POST" then
        sent = core.json.decode(request.body).metadata.demilune_stamp
        return { status = 201, json = detail "x1" }
      elseif request.method == "DELETE" then
        return { status = 204 }
      end
      return { status = 200, json = core.json.array { detail("x0"), detail("x2", { metadata = { demilune_stamp = "st" } }) } }
    end)
    cloud:create(creation { region = "cn-beijing", stamp = "st@cn-beijing" })
    assert.are.equal("st", sent)
    cloud:kill_by_stamp("st@cn-beijing", core.task.now_ms() + 1000)
    assert.is_truthy(requests[2].url:find "^https://api%.cn%-beijing%..*metadata=demilune_stamp%%3Dst")
    assert.are.equal("https://api.cn-beijing.e2b.fc.aliyuncs.com/sandboxes/x2", requests[3].url)
  end))

  it("is none of ours elsewhere, nor by any other name", function()
    local cloud = provider({ preset = "alibaba-fc" }, answer)
    for _, id in ipairs { "x1", "x-1_2.3", "x1@cn-beijing", "ns--x1@us-west-1" } do assert.is_true(cloud:is_id(id), id) end
    for _, id in ipairs {
      "", "@", "x1@", "@cn-beijing", "x1@cn-hangzhou", "x1@CN", "x1@a/b", "x1@a.evil.org", "x1@cn@us",
      "x1@" .. ("a"):rep(65), "a/b", "..", "-x", ("x"):rep(129), "x1@1cn", "x1@cn ", "x\n@cn",
    } do
      assert.is_false(cloud:is_id(id) or false, id)
    end
    for _, entry in ipairs { {}, { preset = "alibaba-fc", api_url = "https://api.example.org" },
      { preset = "alibaba-fc", domain = "example.org" } } do
      local other = provider(entry, answer)
      assert.is_false(other:is_id "x1@cn-beijing" or false)
      local ok, err = pcall(other.create, other, creation { region = "cn-beijing" })
      assert.are.same({ false, "unsupported", "region" }, { ok, err.category, err.field })
    end
  end)

  it("in an id that a service gives is no id", within(function()
    local cloud = provider({ preset = "alibaba-fc" }, function() return { status = 200, json = detail "x1@cn-beijing" } end)
    local ok, err = pcall(cloud.get, cloud, "x1")
    assert.are.same({ false, "invalid_response" }, { ok, err.category })
  end))

  it("is kept in a place of its own, and not more of them than there is room for", within(function()
    local cloud = provider({ preset = "alibaba-fc" }, answer)
    for i = 1, 200 do cloud:create(creation { region = "r-" .. i }) end
    local count = 0
    for _ in pairs(cloud.regions) do count = count + 1 end
    assert.is_true(count <= 64)
    assert.are.equal("x1@r-1", cloud:get("x1@r-1").id)
  end))
end)

describe("a pattern of sandboxes' URLs", function()
  local function reach(fields)
    local entry = { preset = "e2b", api_url = "https://api.example.org" }
    for name, value in pairs(fields) do entry[name] = value end
    local resolved, fault = presets.resolve(entry)
    return resolved and resolved.reach, fault
  end

  it("says where tokens may go", function()
    for pattern, expected in pairs {
      ["https://{port}-{id}.{domain}"] = { suffixes = { "example.org" } },
      ["https://sandbox.{domain}"] = { suffixes = { "example.org" }, origins = { "https://sandbox.example.org" } },
      ["https://{domain}/kruise/{id}/{port}"] = { suffixes = { "example.org" }, origins = { "https://example.org" } },
      ["https://{port}-{id}.Boxes.example.net/x"] = { suffixes = { "boxes.example.net" } },
      ["https://box.example.net:8443/{id}/{port}"] = { origins = { "https://box.example.net:8443" } },
      ["https://p{port}.example.net"] = { origins = { "https://p49983.example.net", "https://p49999.example.net" } },
      ["http://127.0.0.1:{port}"] = { origins = { "http://127.0.0.1:49983", "http://127.0.0.1:49999" } },
    } do
      assert.are.same(expected, reach { sandbox_url = pattern, domain = "example.org" }, pattern)
    end
  end)

  it("is a fault of the configuration where it does not", function()
    for _, pattern in ipairs {
      "https://{id}", "https://{port}-{id}", "https://{id}.com", "https://{id}.example.org:8443", "https://{id}.{domain}:8443",
      "https://{id}.example.org:{port}", "https://{id}-example.org", "https://{domain}.x/{id}",
    } do
      local found, fault = reach { sandbox_url = pattern, domain = "example.org" }
      assert.are.same({ nil, "sandbox_url" }, { found, fault and fault.field }, pattern)
    end
  end)

  it("is one that the vault takes, in every preset", function()
    for _, entry in ipairs {
      {}, { domain = "e2b.dev" }, { domain = "example.org" }, { preset = "alibaba-fc" },
      { preset = "openkruise", domain = "k.example.org" },
      {
        preset = "openkruise", domain = "k.example.org", sandbox_url = "https://{port}-{id}.{domain}",
        api_url = "https://api.{domain}",
      },
      { preset = "engine", api_url = "http://127.0.0.1:9" },
      { api_url = "http://127.0.0.1:9", sandbox_url = "http://127.0.0.1:{port}/{id}" },
    } do
      local cloud = provider(entry, error)
      for pointer, binding in pairs(cloud.home.tokens) do
        assert.are.equal(TOKEN[pointer], binding.header)
        for _, port in ipairs { "49983", "49999" } do
          local key = core.vault.bind("spec", binding)
          local url = cloud.home:url_of("x1", port, nil, port == "49999")
          assert.is_true(core.vault.allows(key, url), url)
          assert.is_false(core.vault.allows(key, "https://49983-x1.example.com/"))
        end
      end
    end
  end)
end)

describe("what is known of data planes", function()
  it("is bounded, and the oldest goes first", function()
    local known = attached.new()
    for i = 1, 300 do known:put("x" .. i, { n = i }) end
    assert.are.same({ nil, 300 }, { known:get "x1", known:get("x300").n })
    known:put("x300", { n = 0 })
    assert.are.same({ 0, 256 }, { known:get("x300").n, #known.order })
    known:drop "x299"
    known:drop "x299"
    assert.are.same({ nil, 255 }, { known:get "x299", #known.order })
    known:put("y", {})
    assert.is_table(known:get "x45")
    known:put("z", {})
    assert.is_nil(known:get "x45")
  end)

  it("is nothing after a look at a foreign sandbox", within(function()
    local cloud = provider({}, function() return { status = 200, json = detail "x1" } end)
    cloud:get("x1", { is_fresh = true })
    assert.is_nil(cloud.attached:get "x1")
    cloud:get "x1"
    assert.is_table(cloud.attached:get "x1")
  end))
end)

describe("a listing", function()
  it("that leads in circles, or is no list, is an invalid response", within(function()
    for _, res in ipairs {
      { status = 200, json = core.json.array {}, headers = { ["x-next-token"] = "again" } },
      { status = 200, json = {} }, { status = 200, json = 7 },
    } do
      local cloud, requests = provider({}, function() return res end)
      local ok, err = pcall(cloud.list, cloud, { limit = 10, offset = 0 })
      assert.are.same({ false, true }, { ok, errors.is(err) })
      assert.are.equal("invalid_response", err.category)
      assert.is_true(#requests <= 2)
    end
  end))
end)
