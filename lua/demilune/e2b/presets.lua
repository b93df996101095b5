--- e2b/presets.lua - what the services that speak E2B's protocol differ in: data, and what an entry of the configuration
--- makes of it.
--
-- A preset has defaults for keys of the entry, and beside them:
--
--   requires     keys that the entry must have
--   id_max       bytes of an id; ids match ^[%w][%w_.-]*$
--   shared       domains whose sandboxes share the host sandbox.<domain>
--   is_engine    it understands what our engine adds to the protocol (X-Demilune-*, error_code, `demilune` in answers)
--   supports     what it can do beyond the basics: region, cpu, memory (arguments of a creation), pause, kernel
--   network      of the sandboxes, where it is not the service's own
--   lifetime     the seconds that it takes, where that is known
--
-- {region}, {domain} stand in URLs and domains for those of the entry; {port} and {id} in sandbox_url for those of a
-- request.
local presets = {}

---@class demilune.Preset
---@field api_url? string
---@field domain? string
---@field region? string
---@field sandbox_url? string
---@field key_header? string
---@field requires? string[]
---@field shared? table<string, boolean>
---@field is_engine? boolean
---@field supports table<string, boolean>
---@field lifetime? {min: integer, max: integer}
---@field network? string

local KEY_HEADER = "X-API-KEY"

--- Of envd and of the code interpreter.
presets.PORTS = { "49983", "49999" }

---@type table<string, demilune.Preset>
presets.by_name = {
  -- E2B, and self-hosted E2B with a domain or URLs of its own.
  e2b = {
    domain = "e2b.app", api_url = "https://api.{domain}",
    shared = { ["e2b.app"] = true, ["e2b.dev"] = true, ["e2b.pro"] = true },
    supports = { pause = true, kernel = true },
  },
  -- Alibaba Cloud Function Compute: the region picks the hosts; cpuCount and memoryMB are taken at creation.
  ["alibaba-fc"] = {
    region = "cn-hangzhou", domain = "{region}.e2b.fc.aliyuncs.com", api_url = "https://api.{domain}",
    supports = { region = true, cpu = true, memory = true, pause = true, kernel = true },
  },
  -- OpenKruise Agents: API and sandboxes below one path of a host of one's own; ids look like `namespace--name`.
  openkruise = {
    requires = { "domain" }, api_url = "https://{domain}/kruise/api", sandbox_url = "https://{domain}/kruise/{id}/{port}",
    supports = { pause = true }, lifetime = { min = 30, max = 30 * 86400 },
  },
  -- `demilune engine --listen`: one address for all, sandboxes are named by headers.
  engine = {
    requires = { "api_url" }, sandbox_url = "{api_url}", is_engine = true, network = "none",
    supports = { pause = true, kernel = true },
  },
}

---@class demilune.Preset.Resolved
---@field api_url string       without a slash at its end
---@field sandbox_url string   with {port}, {id} and {domain} where they belong
---@field domain? string       what the hosts of sandboxes are below
---@field region? string
---@field key_header string
---@field is_engine boolean
---@field is_shared boolean    one host for all sandboxes
---@field reach {origins?: string[], suffixes?: string[]}  where a sandbox's tokens may go
---@field supports table<string, boolean>
---@field lifetime? {min: integer, max: integer}
---@field network string

local function fill(pattern, values)
  return (pattern:gsub("{(%l[%l_]*)}", function(name) return values[name] end))
end

local function without_slash(url) return (url:gsub("/+$", "")) end

--- Where sandboxes are: one origin or two, or all hosts below a domain. Nil where that cannot be told from the pattern.
local function reach_of(sandbox_url, domain)
  local origin = sandbox_url:match "^%a+://[^/]+" or ""
  local place, tail = origin:match "{(%l+)}([^{}]*)$"
  if not place then return { origins = { origin } } end
  if not origin:find "{id}" and not origin:find "{domain}" then
    local origins = {}
    for i, port in ipairs(presets.PORTS) do origins[i] = fill(origin, { port = port }) end
    return { origins = origins }
  end
  if place == "domain" and tail == "" then
    return { suffixes = { domain }, origins = not origin:find "{id}" and { fill(origin, { domain = domain }) } or nil }
  end
  if place ~= "domain" and tail:find "^%.[%w.-]+%.[%w-]+$" then return { suffixes = { tail:sub(2):lower() } } end
end

local function missing(preset, entry)
  for _, key in ipairs(preset.requires or {}) do
    if not entry[key] then
      return { field = key, text = ("is required by the preset %s; write it"):format(entry.preset) }
    end
  end
end

--- What a provider's entry and its preset say together. `region` is that of a creation which names its own.
---@param entry table
---@param region? string
---@return demilune.Preset.Resolved?
---@return {field: string, text: string}? fault  what is wrong with which key, to stand behind its name
function presets.resolve(entry, region)
  local preset = presets.by_name[entry.preset or "e2b"]
  if not preset then return nil, { field = "preset", text = "is not the name of a preset" } end
  local fault = missing(preset, entry)
  if fault then return nil, fault end
  local values = { region = region or entry.region or preset.region }
  values.domain = entry.domain or preset.domain and fill(preset.domain, values)
  local api_url = entry.api_url or preset.api_url
  if not values.domain and api_url:find "{domain}" then
    return nil, { field = "domain", text = "is required where api_url has {domain}; write it" }
  end
  values.api_url = without_slash(fill(api_url, values))
  local sandbox_url, is_shared = entry.sandbox_url or preset.sandbox_url, false
  if sandbox_url and sandbox_url:find "{domain}" and not values.domain then
    return nil, { field = "domain", text = "is required where sandbox_url has {domain}; write it" }
  end
  if not sandbox_url then
    is_shared = preset.shared ~= nil and preset.shared[values.domain] == true
    sandbox_url = is_shared and "https://sandbox.{domain}" or "https://{port}-{id}.{domain}"
  end
  sandbox_url = without_slash(fill(sandbox_url, { api_url = values.api_url }))
  local reach = reach_of(sandbox_url, values.domain)
  if not reach then
    return nil, { field = "sandbox_url", text = "has {id} or {domain} without a domain at the end of the host, "
      .. "so that a sandbox's token could not be kept to it; write it like https://{port}-{id}.example.org" }
  end
  return {
    api_url = values.api_url, sandbox_url = sandbox_url, reach = reach, domain = values.domain,
    region = values.region, key_header = entry.key_header or preset.key_header or KEY_HEADER,
    is_engine = preset.is_engine == true, is_shared = is_shared, supports = preset.supports, lifetime = preset.lifetime,
    network = preset.network or "provider",
  }
end

return presets
