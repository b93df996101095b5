--- metrics.lua - what a server has done since it started, as numbers for Prometheus (text exposition format 0.0.4).
--
-- Labels are names of ours and of the operator's: tools that exist, outcomes of the table of failures, ids of providers. So
-- there are as many series as there can be, whatever callers send.
local core = require "demilune.core"

local metrics = {}

metrics.CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
--- Upper ends of the histogram, in milliseconds.
metrics.BUCKETS_MS = { 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000 }
--- Names of tools that are told apart; an operator's reloads may bring ever new ones.
metrics.TOOLS_MAX = 256
local OTHER = "other"
local BUCKETS_MS = metrics.BUCKETS_MS
local OUTCOMES = { "2xx", "3xx", "4xx", "5xx", "failed" }

---@class demilune.metrics.Tool
---@field outcomes table<string, integer>
---@field buckets integer[]  calls in each bucket alone; the last is what is beyond
---@field count integer
---@field sum_ms number

---@class demilune.Metrics
---@field tools table<string, demilune.metrics.Tool>
---@field tool_count integer
---@field started_s integer
local Metrics = {}
Metrics.__index = Metrics

--- Makes one in which nothing has happened.
---@return demilune.Metrics
function metrics.new()
  return setmetatable({ tools = {}, tool_count = 0, started_s = core.task.epoch_ms() // 1000 }, Metrics)
end

local function add_tool(self, name)
  if self.tool_count >= metrics.TOOLS_MAX then
    name = OTHER
    if self.tools[name] then return self.tools[name] end
  end
  local one = { outcomes = {}, buckets = {}, count = 0, sum_ms = 0 }
  for i = 1, #BUCKETS_MS + 1 do one.buckets[i] = 0 end
  self.tools[name], self.tool_count = one, self.tool_count + 1
  return one
end

--- Notes that a call is over.
---@param name string     of a tool that exists
---@param outcome string  "ok" or the category of its error
---@param duration_ms number
function Metrics:call(name, outcome, duration_ms)
  local one = self.tools[name] or add_tool(self, name)
  one.outcomes[outcome] = (one.outcomes[outcome] or 0) + 1
  one.count, one.sum_ms = one.count + 1, one.sum_ms + duration_ms
  local i = 1
  while BUCKETS_MS[i] and duration_ms > BUCKETS_MS[i] do i = i + 1 end
  one.buckets[i] = one.buckets[i] + 1
end

-- ---- text ----

local function sorted(map)
  local names = {}
  for name in pairs(map) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local ESCAPES = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }

--- name{key="value",…} value; labels are pairs in order.
local function line(name, labels, value)
  local parts = {}
  for i = 1, #labels, 2 do parts[#parts + 1] = ('%s="%s"'):format(labels[i], (labels[i + 1]:gsub('[\\"\n]', ESCAPES))) end
  local text = parts[1] and "{" .. table.concat(parts, ",") .. "}" or ""
  return ("%s%s %s\n"):format(name, text, math.type(value) == "integer" and value or ("%.17g"):format(value))
end

local function head(name, kind, help)
  return ("# HELP %s %s\n# TYPE %s %s\n"):format(name, help, name, kind)
end

local function add_calls(self, out)
  out[#out + 1] = head("demilune_calls_total", "counter", "Calls of tools that are over.")
  for _, name in ipairs(sorted(self.tools)) do
    for _, outcome in ipairs(sorted(self.tools[name].outcomes)) do
      out[#out + 1] = line("demilune_calls_total", { "tool", name, "outcome", outcome }, self.tools[name].outcomes[outcome])
    end
  end
end

local function add_durations(self, out)
  local name = "demilune_call_duration_seconds"
  out[#out + 1] = head(name, "histogram", "How long calls of tools took.")
  for _, tool in ipairs(sorted(self.tools)) do
    local one, total = self.tools[tool], 0
    for i, most_ms in ipairs(BUCKETS_MS) do
      total = total + one.buckets[i]
      out[#out + 1] = line(name .. "_bucket", { "tool", tool, "le", ("%.14g"):format(most_ms / 1000) }, total)
    end
    out[#out + 1] = line(name .. "_bucket", { "tool", tool, "le", "+Inf" }, one.count)
    out[#out + 1] = line(name .. "_sum", { "tool", tool }, one.sum_ms / 1000)
    out[#out + 1] = line(name .. "_count", { "tool", tool }, one.count)
  end
end

local function add_providers(out, requests)
  local name = "demilune_provider_requests_total"
  out[#out + 1] = head(name, "counter", "Requests to providers over the network, by how they were answered.")
  for _, provider in ipairs(sorted(requests)) do
    for _, outcome in ipairs(OUTCOMES) do
      local count = requests[provider][outcome]
      if count then out[#out + 1] = line(name, { "provider", provider, "outcome", outcome }, count) end
    end
  end
end

local GAUGES = {
  { "sessions", "demilune_sessions", "Sessions of clients that are open." },
  { "sandboxes", "demilune_sandboxes", "Sandboxes that this server made and that have not ended." },
  { "running", "demilune_calls_running", "Calls at work." },
  { "connections", "demilune_connections", "Connections that are open." },
}

---@class demilune.metrics.Counts
---@field sessions? integer
---@field sandboxes? integer
---@field running? integer
---@field connections? integer
---@field requests? table<string, table<string, integer>>  by provider and outcome

--- All of it as text.
---@param counts demilune.metrics.Counts  how the server is now; what is absent is left out
---@return string
function Metrics:text(counts)
  local out = { head("demilune_build_info", "gauge", "The version that runs.") }
  out[2] = line("demilune_build_info", { "version", core.sys.version }, 1)
  out[#out + 1] = head("process_start_time_seconds", "gauge", "When the server started, in seconds since 1970.")
  out[#out + 1] = line("process_start_time_seconds", {}, self.started_s)
  add_calls(self, out)
  add_durations(self, out)
  for _, gauge in ipairs(GAUGES) do
    local value = counts[gauge[1]]
    if value then
      out[#out + 1] = head(gauge[2], "gauge", gauge[3])
      out[#out + 1] = line(gauge[2], {}, value)
    end
  end
  if counts.requests then add_providers(out, counts.requests) end
  return table.concat(out)
end

return metrics
