--- What a preset and an entry of the configuration say together: where the API is, where sandboxes are, what can be asked.

local place = require "demilune.e2b.place"
local presets = require "demilune.e2b.presets"
local core = require "demilune.core"

local function resolve(fields, region)
  local entry = { id = "c", type = "e2b", preset = "e2b" }
  for name, value in pairs(fields) do entry[name] = value end
  return presets.resolve(entry, region)
end

describe("a preset", function()
  it("of E2B has E2B's hosts, one for all sandboxes of its own domains", function()
    local one = assert(resolve {})
    assert.are.same({ "https://api.e2b.app", "https://sandbox.{domain}", "e2b.app", true, "X-API-KEY" },
      { one.api_url, one.sandbox_url, one.domain, one.is_shared, one.key_header })
    local own = assert(resolve { domain = "sandboxes.example.org", key_header = "X-Key" })
    assert.are.same({ "https://api.sandboxes.example.org", "https://{port}-{id}.{domain}", false, "X-Key" },
      { own.api_url, own.sandbox_url, own.is_shared, own.key_header })
    local sandbox_url = "https://e2b.corp.example/s/{id}/{port}"
    local hosted = assert(resolve { api_url = "https://e2b.corp.example/api/", sandbox_url = sandbox_url })
    assert.are.same({ "https://e2b.corp.example/api", sandbox_url }, { hosted.api_url, hosted.sandbox_url })
  end)

  it("of Alibaba has hosts by region, and takes cores and memory", function()
    local one = assert(resolve { preset = "alibaba-fc" })
    assert.are.same({ "https://api.cn-hangzhou.e2b.fc.aliyuncs.com", "cn-hangzhou.e2b.fc.aliyuncs.com" },
      { one.api_url, one.domain })
    local other = assert(resolve({ preset = "alibaba-fc", region = "cn-beijing" }, "ap-southeast-1"))
    assert.are.same({ "https://api.ap-southeast-1.e2b.fc.aliyuncs.com", "ap-southeast-1" }, { other.api_url, other.region })
    assert.are.same({ true, true, true }, { one.supports.region, one.supports.cpu, one.supports.memory })
  end)

  it("of OpenKruise has a path for each sandbox, and wants a domain", function()
    local one = assert(resolve { preset = "openkruise", domain = "kruise.example.org" })
    assert.are.same({ "https://kruise.example.org/kruise/api", "https://{domain}/kruise/{id}/{port}", 30 },
      { one.api_url, one.sandbox_url, one.lifetime.min })
    local none, fault = resolve { preset = "openkruise" }
    assert.are.same({ nil, "domain" }, { none, fault.field })
  end)

  it("of our engine has one address, and wants it", function()
    local one = assert(resolve { preset = "engine", api_url = "http://127.0.0.1:9100" })
    assert.are.same({ "http://127.0.0.1:9100", "http://127.0.0.1:9100", true, "none" },
      { one.api_url, one.sandbox_url, one.is_engine, one.network })
    local _, fault = resolve { preset = "engine" }
    assert.are.equal("api_url", fault.field)
  end)

  it("that has a domain in its URLs wants one", function()
    local _, fault = resolve { preset = "engine", api_url = "https://api.{domain}" }
    assert.are.equal("domain", fault.field)
    _, fault = resolve { preset = "engine", api_url = "https://api.example.org", sandbox_url = "https://{id}.{domain}" }
    assert.are.equal("domain", fault.field)
  end)

  it("that does not exist is a fault", function()
    local _, fault = resolve { preset = "nothing" }
    assert.are.equal("preset", fault.field)
  end)
end)

describe("a place", function()
  local function place_of(fields)
    assert(core.vault.define("spec", "env:DML_SPEC_KEY"))
    return place.new(assert(resolve(fields)), "spec")
  end

  it("has a sandbox's URL in each of the three forms", function()
    assert.are.equal("https://sandbox.e2b.app", place_of({}):url_of("x1", "49983"))
    assert.are.equal("https://49999-x1.e2b.app", place_of({}):url_of("x1", "49999", nil, true))
    assert.are.equal("https://49983-x1.us1.example.org",
      place_of({ domain = "example.org" }):url_of("x1", "49983", "us1.example.org"))
    assert.are.equal("https://k.example.org/kruise/ns--x/49983",
      place_of({ preset = "openkruise", domain = "k.example.org" }):url_of("ns--x", "49983"))
  end)

  it("believes an answer's domain only below the configured one", function()
    local own = place_of { domain = "example.org" }
    assert.are.same({ "example.org", "example.org", "us1.example.org", "example.org" }, {
      own:domain_of(nil), own:domain_of(core.json.null), own:domain_of "us1.example.org", own:domain_of "example.org",
    })
    for _, domain in ipairs {
      "evil.org", "example.org.evil.org", "xexample.org", "example.org/", ".example.org", "a..example.org", "a@b.example.org",
      "evil.org#.example.org", "evil.org?.example.org", ("x"):rep(300) .. ".example.org", 7, true, {}, "EXAMPLE.ORG ",
    } do
      local ok, err = pcall(own.domain_of, own, domain)
      assert.are.same({ false, "invalid_response" }, { ok, type(err) == "table" and err.category }, tostring(domain))
    end
    assert.is_nil(place_of({ preset = "engine", api_url = "http://127.0.0.1:9100" }):domain_of "evil.org")
  end)

  it("lets the key go to the API alone", function()
    local own = place_of { domain = "example.org" }
    local key = own.credentials[1]
    assert.is_true(core.vault.allows(key, "https://api.example.org/sandboxes"))
    for _, url in ipairs {
      "http://api.example.org/", "https://api.example.org:444/", "https://49983-x1.example.org/", "https://example.org/",
      "https://api.example.org.evil.org/", "https://api.example.org@evil.org/",
    } do
      assert.is_false(core.vault.allows(key, url), url)
    end
  end)
end)

describe("what a service says of a sandbox", function()
  local info = require "demilune.e2b.info"

  it("has a version only where it is three numbers", function()
    assert.are.same({ 0, 6, 5 }, info.version "0.6.5")
    for _, odd in ipairs { "99999999999999999999.1.1", "0.99999999999999999999.1", "1.1", "x", 7, false } do
      assert.is_nil(info.version(odd), tostring(odd))
    end
  end)

  it("has sizes and times only where they are some", function()
    local made = info.of {
      sandboxID = "x1", cpuCount = -1e308, memoryMB = -5, diskSizeMB = "12", endAt = "9999-99-99T99:99:99.1.2.3Z",
      startedAt = "2026-01-01T00:00:00.123456789Z",
    }
    assert.are.same({ nil, nil, nil, nil, "2026-01-01T00:00:00.123456789Z" },
      { made.cpu_count, made.memory_mb, made.disk_size_mb, made.end_at, made.started_at })
    assert.is_nil(made.end_at)
    made = info.of { sandboxID = "x1", cpuCount = 0.5, memoryMB = 512.0, diskSizeMB = 1 << 50 }
    assert.are.same({ 0.5, 512 }, { made.cpu_count, made.memory_mb })
    assert.is_nil(made.disk_size_mb)
  end)
end)
