--- What a sandbox uses, over the control plane and envd, and its variables.

local core = require "demilune.core"
local support = require "spec.engine.support"

local json, task = core.json, core.task

describe("the metrics of the engine", function()
  local engine, sandbox

  setup(function()
    engine = support.start()
    support.run(function()
      sandbox = engine:create { envVars = { A = "1", B = "two words" },
        demilune = { template = { disk = 64, memory = 256, cpu = 1 } } }
    end)
  end)
  teardown(function() engine:stop() end)

  local function within(fn) return function() support.run(fn) end end

  local function sample(query)
    local status, list = engine:call("GET", ("/sandboxes/%s/metrics%s"):format(sandbox.id, query or ""))
    assert.are.equal(200, status)
    return list[1], #list
  end

  local function get(path)
    local res = assert(sandbox:request("GET", path))
    return json.decode(res.body), res.status
  end

  it("has one sample, of now, in E2B's form", within(function()
    local one, count = sample()
    assert.are.equal(1, count)
    assert.is_true(math.abs(one.timestampUnix - task.epoch_ms() / 1000) < 3)
    assert.are.equal(one.timestamp:sub(1, 17), task.iso(one.timestampUnix * 1000):sub(1, 17))
    for _, name in ipairs { "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal" } do
      assert.is_number(one[name], name)
      assert.is_true(one[name] >= 0, name)
    end
    assert.is_true(one.memUsed > 100000 and one.memUsed < one.memTotal)
    assert.is_true(one.cpuUsedPct <= 100)
  end))

  it("sees processor time, memory and files grow", within(function()
    local idle = sample()
    local res, next_frame = sandbox:open("process.Process/Start", support.shell [[
      head -c 20000000 /dev/zero > big
      x=$(head -c 30000000 /dev/zero | tr '\0' a); echo ready
      while :; do :; done]])
    repeat local frame = next_frame() until frame.message.event.data
    task.sleep(300)
    sample()
    task.sleep(400)
    local busy = sample()
    res:close()
    assert.is_true(busy.cpuUsedPct * busy.cpuCount > 50, busy.cpuUsedPct)
    assert.is_true(busy.memUsed > idle.memUsed + 20000000, busy.memUsed - idle.memUsed)
    assert.is_true(busy.diskUsed >= idle.diskUsed + 20000000 or busy.diskUsed == 0)
    assert.are.equal(64 << 20, busy.diskTotal)
  end))

  it("answers for a span that now lies in, and for no other", within(function()
    local now_s = task.epoch_ms() // 1000
    for query, count in pairs {
      ["?start=" .. now_s - 60] = 1, ["?end=" .. now_s + 60] = 1, ["?start=0&end=" .. now_s - 60] = 0,
      ["?start=" .. now_s + 60] = 0,
    } do
      assert.are.equal(count, (select(2, sample(query))), query)
    end
    for _, query in ipairs { "?start=x", "?end=-1", "?start=1e9" } do
      assert.are.equal(400, (engine:call("GET", "/sandboxes/" .. sandbox.id .. "/metrics" .. query)), query)
    end
    assert.are.equal(404, (engine:call("GET", "/sandboxes/iaaaaaaaaaaaaaaaaaaa/metrics")))
  end))

  it("answers for many, and leaves out those it does not know", within(function()
    local status, body = engine:call("GET", "/sandboxes/metrics?sandbox_ids=nothing," .. sandbox.id)
    assert.are.equal(200, status)
    assert.is_number(body.sandboxes[sandbox.id].memUsed)
    assert.is_nil(body.sandboxes.nothing)
    assert.are.equal(400, (engine:call("GET", "/sandboxes/metrics?sandbox_ids=" .. ("a,"):rep(101))))
  end))

  it("tells them in envd's form too, and the variables of the sandbox", within(function()
    local shown, status = get "/metrics"
    assert.are.equal(200, status)
    for _, name in ipairs { "ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "mem_total_mib",
      "mem_used_mib", "disk_used", "disk_total" } do
      assert.is_number(shown[name], name)
    end
    assert.are.same({ A = "1", B = "two words" }, (get "/envs"))
    local bare = engine:create()
    assert.are.equal("{}", assert(bare:request("GET", "/envs")).body)
    bare:kill()
  end))

  it("still tells of one that is paused", within(function()
    assert.are.equal(204, (engine:call("POST", "/sandboxes/" .. sandbox.id .. "/pause", {})))
    task.sleep(150)
    sample()
    task.sleep(500)
    local one = sample()
    assert.is_true(one.cpuUsedPct < 5, one.cpuUsedPct)
    assert.is_true(one.memUsed > 0)
    assert.are.equal(502, (select(2, get "/metrics")))
    assert.are.equal(201, (engine:call("POST", "/sandboxes/" .. sandbox.id .. "/connect", { timeout = 60 })))
  end))
end)
