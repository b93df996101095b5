--- keys.lua - every key of the configuration: its type, range and default. Data only.
--
-- docs/configuration.md is checked against this table. A value that the
-- contract has and this version does not serve is refused by name, because one that is quietly
-- ignored would leave open what its writer thinks is shut.

---@class demilune.config.Shape
---@field kind string  integer, number, string, boolean, choice, url, source, record, list, map, nothing
---@field default any   what an absent key becomes; nil for none
---@field min? number
---@field max? number   of a number; bytes of a string; entries of a list or map
---@field pattern? string  what a string must match
---@field name? string  what the keys of a map must match
---@field name_words? string  that in words
---@field name_max? integer  bytes of a key of a map
---@field words? string what must stand there, for messages; else made from the rest
---@field of? demilune.config.Shape  the entries of a list or map
---@field fields? table<string, demilune.config.Shape>
---@field required? string[]  fields that must be there
---@field decides? string     the field that says what the others mean, so it is checked first
---@field choices? string[]   what a choice may be
---@field later? string[]     values of the contract that this version does not serve yet
---@field is_filled? boolean  a list or map that must not be empty
---@field hides_names? boolean  names of a map that cannot stand there are not shown: they may be secrets
---@field variants? table<string, demilune.config.Shape>  the whole record, by the value of `decides`
---@field has_places? boolean  a URL in which {domain} and the like stand for what is known later
---@field is_proxy? boolean    a URL of a proxy
---@field is_exact? boolean    a URL that is compared with others, so that it stays as it is written
---@field is_origin? boolean   a URL of scheme, host and port alone
---@field way_out? string      what to do about a wrong value, where that is not plain
---@field short? string        of a record: the field that a string in its place is the value of
---@field is_free? boolean     of a record: keys that are no fields are taken too, with plain values

local callers = require "demilune.config.callers"

local keys = {}

local PATH_BYTES_MAX = 4096
local NAME_BYTES_MAX = 64
--- Shorter than any key of a service, so that a key which is put in place of a name is refused.
local CREDENTIAL_NAME_BYTES_MAX = 32
local URL_BYTES_MAX = 1024
local HOST_BYTES_MAX = 253
local SOURCE_BYTES_MAX = 4096
local VALUE_BYTES_MAX = 32768
local MB_MAX = 1 << 20
local DAY_S = 86400

local function integer(min, max, default)
  return { kind = "integer", min = min, max = max, default = default }
end

local function flag(default) return { kind = "boolean", default = default } end

local function choice(default, choices)
  return { kind = "choice", choices = choices, default = default }
end

--- A choice with one value in this version; `later` are the values that others have.
local function only(value, later, default)
  return { kind = "choice", choices = { value }, later = later, default = default }
end

local function record(fields)
  -- An absent record is one with nothing in it, so that its own defaults are filled in.
  return { kind = "record", fields = fields, default = {} }
end

--- Of a page of a browser, as it names itself.
local origin = {
  kind = "string", max = URL_BYTES_MAX, pattern = "^https?://[^/%s]+$", words = "an origin, such as https://app.example.com",
}
--- As Host names it.
local host = {
  kind = "string", max = HOST_BYTES_MAX, pattern = "^[^/%s]+$", words = "a host, such as mcp.example.com or mcp.example.com:8443",
}

local environment = {
  kind = "map",
  max = 256,
  name = "^[%a_][%w_]*$",
  name_max = 256,
  name_words = "a letter or _, then letters, digits and _",
  of = { kind = "string", max = VALUE_BYTES_MAX },
  default = {},
}

--- What a sandbox made from a template of a local provider has.
keys.template = record {
  disk = integer(16, MB_MAX, 1024),
  memory = integer(64, MB_MAX, 1024),
  cpu = { kind = "number", min = 0.1, max = 256, default = 2 },
  pids = integer(16, 65536, 256),
  network = only("none", { "host", "provider" }, "none"),
  home = only("tmpfs", { "disk" }, "tmpfs"),
  ro_binds = { kind = "nothing", default = {} },
  env = environment,
}

local function url(fields)
  fields.kind, fields.max = "url", URL_BYTES_MAX
  return fields
end

local path = {
  kind = "string",
  max = PATH_BYTES_MAX,
  pattern = "^[^~]",
  words = "a path that does not begin with ~",
}

--- The fields that every provider has, and those of its type.
local function provider(default_lifetime, own, required)
  local fields = {
    id = {
      kind = "string",
      max = NAME_BYTES_MAX,
      pattern = "^%l[%l%d_-]*$",
      words = "a name of small letters, digits, _ and - that begins with a letter",
    },
    type = choice(nil, { "local", "e2b", "veryfront" }),
    lifetime = integer(1, DAY_S, default_lifetime),
    max_lifetime = integer(1, DAY_S, DAY_S),
    tenancy = choice("account", { "account", "principal" }),
  }
  for name, shape in pairs(own) do fields[name] = shape end
  return { kind = "record", fields = fields, required = required, decides = "type" }
end

--- What a provider that is reached over the network has.
local function remote(own)
  own.credential = {
    kind = "string",
    max = CREDENTIAL_NAME_BYTES_MAX,
    pattern = "^%a[%w_-]*$",
    words = "the name of an entry of credentials",
    way_out = "write its name there, never the key itself",
  }
  own.max_requests = integer(1, 256, 16)
  own.proxy = url { is_proxy = true }
  own.ca_file = path
  return own
end

local local_provider = provider(3600, {
  templates = {
    kind = "map",
    max = 64,
    name = "^[%w][%w_.-]*$",
    name_max = NAME_BYTES_MAX,
    name_words = "a letter or digit, then letters, digits, _, . and -",
    of = keys.template,
    is_filled = true,
  },
}, { "id", "type" })

local e2b_provider = provider(300, remote {
  preset = choice("e2b", { "e2b", "alibaba-fc", "openkruise", "engine" }),
  api_url = url { has_places = true },
  sandbox_url = url { has_places = true },
  domain = {
    kind = "string",
    max = HOST_BYTES_MAX,
    pattern = "^[%l%d][%l%d.-]*%.%l[%l%d-]*$",
    words = "a domain of two names or more in small letters, without a port",
  },
  region = {
    kind = "string",
    max = NAME_BYTES_MAX,
    pattern = "^%l[%l%d-]*$",
    words = "a name of small letters, digits and - that begins with a letter",
  },
  key_header = {
    kind = "string",
    max = NAME_BYTES_MAX,
    pattern = "^%a[%w-]*$",
    words = "the name of a header: letters, digits and -",
  },
  auto_resume = flag(true),
  templates = {
    kind = "list",
    max = 64,
    of = {
      kind = "string",
      max = 128,
      pattern = "^%w[%w_./:-]*$",
      words = "the name of a template",
    },
    default = {},
  },
}, { "id", "type", "credential" })

local veryfront_provider = provider(300, remote {
  api_url = url {},
  project = {
    kind = "string",
    max = 128,
    pattern = "^%w[%w_-]*$",
    words = "the UUID or slug of a project",
  },
  mcp_path = {
    kind = "string",
    max = 256,
    pattern = "^/[%w_./~-]*$",
    words = "a path of a URL that begins with /",
  },
  -- Its API has no place for an owner, so that it could not be held.
  tenancy = only("account", { "principal" }, "account"),
}, { "id", "type", "api_url", "credential" })

keys.provider = {
  kind = "record",
  required = { "id", "type" },
  decides = "type",
  fields = { id = local_provider.fields.id, type = local_provider.fields.type },
  variants = { ["local"] = local_provider, e2b = e2b_provider, veryfront = veryfront_provider },
}

--- A provider of a type of the operator's own: its driver says what its other keys mean.
local own_provider = provider(300, remote {}, { "id", "type" })
own_provider.is_free = true

keys.credential = {
  kind = "record",
  required = { "source" },
  fields = {
    source = { kind = "source", max = SOURCE_BYTES_MAX },
    -- Where an operator's tool may send it; a provider's credential goes to the provider alone.
    origins = { kind = "list", max = 16, is_filled = true, of = url { is_origin = true } },
    header = {
      kind = "string",
      max = NAME_BYTES_MAX,
      pattern = "^%a[%w-]*$",
      words = "the name of a header: letters, digits and -",
    },
    prefix = { kind = "string", max = NAME_BYTES_MAX, pattern = "^[ -~]*$", words = "text that stands before the key" },
  },
  words = 'a table, { source = "env:NAME" }',
  way_out = "never write the key itself into the file",
}

keys.log_levels = { "debug", "info", "warn", "error", "off" }

keys.root = record {
  default_provider = { kind = "string", max = NAME_BYTES_MAX, words = "the id of a provider" },
  providers = { kind = "list", max = 16, of = keys.provider, is_filled = true },
  output = record {
    stdout = integer(1024, MB_MAX, 16384),
    stderr = integer(1024, MB_MAX, 8192),
    read_file = integer(1, MB_MAX, 32768),
    list_files = integer(1, 2000, 200),
    download_file = integer(1, 4 * MB_MAX, 24576),
  },
  limits = record {
    message = integer(1, 64, 16),
    tasks = integer(1, 256, 16),
  },
  default_sandbox = choice("on", { "on", "off" }),
  keep_on_exit = flag(false),
  adopt_by_use = flag(false),
  nonzero_exit_is_error = flag(false),
  task_after = integer(0, DAY_S, 5),
  annotations = choice("strict", { "strict", "sandboxed" }),
  log = record {
    level = choice("info", keys.log_levels),
    file = path,
  },
  credentials = {
    kind = "map",
    max = 64,
    name = "^%a[%w_-]*$",
    name_max = CREDENTIAL_NAME_BYTES_MAX,
    name_words = "a letter, then letters, digits, _ and -",
    of = keys.credential,
    hides_names = true,
    default = {},
  },
  vault = record { require_lock = flag(false) },
  policy = {
    kind = "record",
    short = "file",
    required = { "file" },
    words = 'the path of a policy, or a table { file = "policy.lua" }',
    fields = {
      file = path,
      watch = flag(false),
      approval_lifetime = integer(10, DAY_S, 300),
      limits = record {
        instructions = integer(1000, 1000000000, 1000000),
        memory = integer(1, 256, 8),
        cpu_ms = integer(1, 10000, 50),
        wall_ms = integer(10, 60000, 1000),
      },
    },
  },
  audit = {
    kind = "record",
    short = "file",
    required = { "file" },
    words = 'the path of a file, or a table { file = "audit.jsonl" }',
    fields = {
      file = path,
      required = flag(true),
      sync = choice("batch", { "none", "batch", "call" }),
      arguments = flag(false),
      max_size = integer(0, MB_MAX, 100),
      keep = integer(1, 1000, 10),
    },
  },
  http = {
    kind = "record",
    short = "listen",
    default = {},
    words = 'an address and a port, such as "127.0.0.1:9000", or a table { listen = … }',
    fields = {
      listen = {
        kind = "string", max = 64, pattern = "^[%[%]%x:.]+:%d+$",
        words = "an address and a port, such as 127.0.0.1:9000 or [::1]:9000",
      },
      allow_origins = { kind = "list", max = 64, of = origin, default = {} },
      allow_hosts = { kind = "list", max = 64, of = host, default = {} },
      sessions = integer(1, 10000, 100),
      session_idle = integer(1, DAY_S, 3600),
      max_body = integer(1, 64, 16),
      token_file = callers.token_file,
      tls = callers.tls,
      oauth = callers.oauth,
    },
  },
  tools = { kind = "list", max = 64, of = path, default = {} },
  provider_path = { kind = "list", max = 16, of = path, default = {} },
}

--- The outermost table where the operator has types of provider of their own.
---@param types string[]  their names
---@return demilune.config.Shape
function keys.with_types(types)
  if #types == 0 then return keys.root end
  local choices = table.move(types, 1, #types, #keys.provider.fields.type.choices + 1, { "local", "e2b", "veryfront" })
  local one = {}
  for name, value in pairs(keys.provider) do one[name] = value end
  one.fields = { id = keys.provider.fields.id, type = choice(nil, choices) }
  one.variants = {}
  for name, shape in pairs(keys.provider.variants) do one.variants[name] = shape end
  for _, name in ipairs(types) do one.variants[name] = own_provider end
  local root = record {}
  for name, shape in pairs(keys.root.fields) do root.fields[name] = shape end
  root.fields.providers = { kind = "list", max = 16, of = one, is_filled = true }
  return root
end

return keys
