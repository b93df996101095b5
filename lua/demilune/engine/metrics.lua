--- metrics.lua - what a sandbox uses, now.
--
-- There is no history: each question is one sample. Memory is that of the sandbox's control group
-- where there is one (its files included, since they lie in memory), else the sum of what its
-- processes have resident; processor time likewise. Totals are the sandbox's limits where they hold,
-- else what the machine has.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"

local metrics = {}

local MIB = 1024 * 1024
--- Two questions closer together share a share of processor time.
local SPAN_MIN_MS = 100

---@class demilune.engine.Sample
---@field epoch_ms integer
---@field cpu_count number
---@field cpu_pct number      of all of cpu_count
---@field memory_used integer
---@field memory_total integer
---@field memory_cache integer
---@field disk_used integer   0 where it cannot be seen
---@field disk_total integer

--- The share of processor time since the last question, or since the start.
local function share(sandbox, cpu_ms, cpu_count)
  local now_ms = core.task.now_ms()
  local last = sandbox.measured
  if last and now_ms - last.at_ms < SPAN_MIN_MS then return last.pct end
  local from_ms, from_cpu_ms = sandbox.born_ms, 0
  if last then from_ms, from_cpu_ms = last.at_ms, last.cpu_ms end
  local span_ms = math.max(1, now_ms - from_ms)
  local pct = 100 * math.max(0, cpu_ms - from_cpu_ms) / (span_ms * cpu_count)
  pct = math.floor(math.min(pct, 100) * 100 + 0.5) / 100
  sandbox.measured = { at_ms = now_ms, cpu_ms = cpu_ms, pct = pct }
  return pct
end

--- Takes a sample.
---@param sandbox demilune.engine.Sandbox
---@return demilune.engine.Sample
function metrics.sample(sandbox)
  local usage = sandbox.box:usage()
  if not usage then faults.raise(sandbox.is_ended and "sandbox_gone" or "internal") end
  local cpu_count = sandbox.cpu or usage.host_cpu_count
  return {
    epoch_ms = core.task.epoch_ms(), cpu_count = cpu_count,
    cpu_pct = share(sandbox, usage.cpu_ms, cpu_count),
    memory_used = usage.memory_bytes, memory_cache = usage.cache_bytes,
    memory_total = sandbox.memory_mb and math.floor(sandbox.memory_mb * MIB) or usage.host_memory_bytes,
    disk_used = usage.disk_used_bytes or 0,
    disk_total = usage.disk_total_bytes or math.floor(sandbox.disk_mb * MIB),
  }
end

--- A sample as the control plane shows it.
---@param sandbox demilune.engine.Sandbox
---@return table
function metrics.of_control(sandbox)
  local sample = metrics.sample(sandbox)
  return {
    timestamp = core.task.iso(sample.epoch_ms), timestampUnix = sample.epoch_ms // 1000,
    cpuCount = sample.cpu_count, cpuUsedPct = sample.cpu_pct, memUsed = sample.memory_used,
    memTotal = sample.memory_total, memCache = sample.memory_cache, diskUsed = sample.disk_used,
    diskTotal = sample.disk_total,
  }
end

--- A sample as envd shows it.
---@param sandbox demilune.engine.Sandbox
---@return table
function metrics.of_envd(sandbox)
  local sample = metrics.sample(sandbox)
  return {
    ts = sample.epoch_ms // 1000, cpu_count = sample.cpu_count, cpu_used_pct = sample.cpu_pct,
    mem_total = sample.memory_total, mem_used = sample.memory_used, mem_cache = sample.memory_cache,
    mem_total_mib = sample.memory_total // MIB, mem_used_mib = sample.memory_used // MIB,
    disk_used = sample.disk_used, disk_total = sample.disk_total,
  }
end

return metrics
