--- metrics: counts and histograms as Prometheus reads them.

local core = require "demilune.core"
local metrics = require "demilune.metrics"

--- A reader of the text exposition format of its own: name{labels} value, with HELP and TYPE before each family.
local function read(text)
  local samples, types = {}, {}
  assert.are.equal("\n", text:sub(-1))
  for line in text:gmatch "([^\n]*)\n" do
    local name, kind = line:match "^# TYPE (%S+) (%S+)$"
    if name then
      assert.is_nil(types[name])
      types[name] = kind
    elseif not line:find "^# HELP %S+ " then
      local series, value = line:match "^([%a_:][%w_:]*{.*}) (%S+)$"
      if not series then series, value = line:match "^([%a_:][%w_:]*) (%S+)$" end
      assert.is_truthy(series, line)
      local family = series:match "^[^{]+"
      assert.is_truthy(types[family] or types[family:gsub("_bucket$", ""):gsub("_sum$", ""):gsub("_count$", "")], line)
      assert.is_nil(samples[series])
      samples[series] = assert(tonumber(value))
    end
  end
  return samples, types
end

describe("metrics", function()
  it("count calls by tool and outcome", function()
    local m = metrics.new()
    m:call("run_command", "ok", 3)
    m:call("run_command", "ok", 3)
    m:call("run_command", "command_failed", 3)
    m:call("get_sandbox", "ok", 0)
    local samples, types = read(m:text {})
    assert.are.equal(2, samples['demilune_calls_total{tool="run_command",outcome="ok"}'])
    assert.are.equal(1, samples['demilune_calls_total{tool="run_command",outcome="command_failed"}'])
    assert.are.equal(1, samples['demilune_calls_total{tool="get_sandbox",outcome="ok"}'])
    assert.are.equal("counter", types.demilune_calls_total)
    assert.are.equal(1, samples[('demilune_build_info{version="%s"}'):format(core.sys.version)])
  end)

  it("have a histogram of how long calls took, whose buckets add up", function()
    local m = metrics.new()
    for _, ms in ipairs { 0, 1, 2, 40, 40, 999, 1000, 1001, 400000 } do m:call("t", "ok", ms) end
    local samples = read(m:text {})
    local function bucket(le) return samples[('demilune_call_duration_seconds_bucket{tool="t",le="%s"}'):format(le)] end
    assert.are.equal(2, bucket "0.001")
    assert.are.equal(3, bucket "0.002")
    assert.are.equal(3, bucket "0.025")
    assert.are.equal(5, bucket "0.05")
    assert.are.equal(7, bucket "1")
    assert.are.equal(8, bucket "2.5")
    assert.are.equal(8, bucket "300")
    assert.are.equal(9, bucket "+Inf")
    assert.are.equal(9, samples['demilune_call_duration_seconds_count{tool="t"}'])
    assert.are.equal(403.083, samples['demilune_call_duration_seconds_sum{tool="t"}'])
  end)

  it("say how the server is, as far as that is known", function()
    local m = metrics.new()
    local samples = read(m:text { sessions = 3, sandboxes = 2, requests = { e2b = { ["2xx"] = 5, failed = 1 } } })
    assert.are.equal(3, samples.demilune_sessions)
    assert.are.equal(2, samples.demilune_sandboxes)
    assert.is_nil(samples.demilune_calls_running)
    assert.are.equal(5, samples['demilune_provider_requests_total{provider="e2b",outcome="2xx"}'])
    assert.are.equal(1, samples['demilune_provider_requests_total{provider="e2b",outcome="failed"}'])
  end)

  it("stay as small as they promise, whatever tools come and go", function()
    local m = metrics.new()
    for i = 1, metrics.TOOLS_MAX + 50 do m:call("tool" .. i, "ok", 1) end
    local count = 0
    for _ in pairs(m.tools) do count = count + 1 end
    assert.are.equal(metrics.TOOLS_MAX + 1, count)
    assert.are.equal(50, read(m:text {})['demilune_calls_total{tool="other",outcome="ok"}'])
  end)

  it("escape what a label may hold", function()
    local m = metrics.new()
    m:call('a"\\\nb', "ok", 1)
    assert.truthy(m:text({}):find('tool="a\\"\\\\\\nb"', 1, true))
  end)
end)
