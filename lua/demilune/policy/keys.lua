--- keys.lua - every key of a policy: its type and range. Data only, in the form of config/keys.lua.
--
-- docs/policy.md is checked against this table. What a key means for the tools that there are (whether an argument exists,
-- which values it takes) is not said here: rules.lua knows.

---@class demilune.policy.Shape : demilune.config.Shape
---@field kind string  also: yes (true and nothing else), data (plain data of any form), function
---@field takes_one? boolean    of a list: a text in its place is its only entry
---@field short_type? string    of a record with `short`: the type of what may stand in its place
---@field is_table? boolean     of data: it must be a table
---@field places? table[]       of the outermost shape: { words, shape } in which a key at the wrong level is looked for

local keys = {}

local RULES_MAX = 1000
local NAME_BYTES_MAX = 64
local TEXT_BYTES_MAX = 1024
local PATTERN_BYTES_MAX = 4096
local PATTERNS_MAX = 256
local ARGUMENTS_MAX = 64
--- Beyond it doubles leave out integers.
local NUMBER_MAX = 2 ^ 53
local CALLS_MAX = 1000000
local COUNT_MAX = 10000
local DAY_S = 86400
local MONTH_S = 31 * DAY_S
local YEAR_S = 366 * DAY_S

local function integer(min, max) return { kind = "integer", min = min, max = max } end

--- A text that holds something.
local function text(max, words) return { kind = "string", max = max, pattern = "%S", words = words } end

--- One of a line.
local function label(max, words) return { kind = "string", max = max, pattern = "^[^%c]+$", words = words } end

local number = { kind = "number", min = -NUMBER_MAX, max = NUMBER_MAX }

--- A list of texts, or one of them without the braces.
local function texts(words)
  return { kind = "list", max = PATTERNS_MAX, is_filled = true, takes_one = true, of = text(PATTERN_BYTES_MAX, words) }
end

local globs = texts "a glob that is not empty"

--- By the name of an argument.
local function arguments(of)
  return {
    kind = "map", max = ARGUMENTS_MAX, is_filled = true, name = "^[^%c]+$", name_max = NAME_BYTES_MAX,
    name_words = "the name of an argument", of = of,
  }
end

local YES = { kind = "yes" }
local DATA = { kind = "data" }

keys.when = {
  kind = "record",
  words = "a table of conditions",
  fields = {
    principal = globs, provider = globs, transport = globs, client = globs, tool = globs, template = globs,
    owned = { kind = "boolean" },
    within = text(TEXT_BYTES_MAX, 'a time window such as "mon-fri 08:00-18:00"'),
    outside = text(TEXT_BYTES_MAX, 'a time window such as "mon-fri 08:00-18:00"'),
    tz = label(NAME_BYTES_MAX, 'a time zone such as "Europe/Berlin"'),
  },
}

keys.limit = {
  kind = "record",
  short = "max",
  short_type = "number",
  words = "a number, or a table { max = 4, min = 1, default = 2 }",
  fields = { max = number, min = number, default = number },
}

keys.path = {
  kind = "record",
  words = 'a table { deny = { "/secret/**" } } or { allow = { "/work/**" } }',
  fields = { allow = globs, deny = globs },
}

keys.rate = {
  kind = "record",
  words = "a table { calls = 60, per = 60 }",
  fields = {
    calls = integer(1, CALLS_MAX),
    per = { kind = "integer", min = 1, max = MONTH_S, words = "a number of seconds, such as 60 for a minute" },
  },
  required = { "calls", "per" },
}

keys.quota = {
  kind = "record",
  words = "a table such as { sandboxes = 2, lifetime = 7200 }",
  fields = {
    sandboxes = integer(0, COUNT_MAX), tasks = integer(0, COUNT_MAX), lifetime = integer(1, YEAR_S),
    sandbox_seconds = integer(0, COUNT_MAX * DAY_S), per = { kind = "choice", choices = { "day" } },
  },
}

keys.rule = {
  kind = "record",
  words = "a table of keys in braces of its own",
  required = { "name", "match" },
  fields = {
    name = label(NAME_BYTES_MAX, "a name that is not empty"),
    match = texts "a tool, a glob or a group such as @execute",
    when = keys.when,
    set = arguments(DATA),
    force = arguments(DATA),
    deny = text(TEXT_BYTES_MAX, "the reason in quotes"),
    limit = arguments(keys.limit),
    only = arguments(globs),
    never = arguments(globs),
    path = keys.path,
    args = { kind = "data", is_table = true },
    allow = YES,
    ask = text(TEXT_BYTES_MAX, "the question in quotes"),
    rate = keys.rate,
    quota = keys.quota,
    scope = { kind = "choice", choices = { "principal", "server" } },
    redact = texts "a regular expression that is not empty",
    hide = YES,
    list = { kind = "choice", choices = { "own" } },
  },
}

keys.root = {
  kind = "record",
  words = 'a table, { default = "deny", rules = { … } }',
  required = { "default" },
  fields = {
    default = { kind = "choice", choices = { "allow", "deny", "ask" } },
    rules = { kind = "list", max = RULES_MAX, of = keys.rule, default = {} },
    version = label(NAME_BYTES_MAX, "a text that is not empty"),
    before = { kind = "function" },
    after = { kind = "function" },
    list = { kind = "function" },
  },
}

--- Where else a key of a name stands, in this order.
keys.root.places = {
  { "a rule", keys.rule }, { "`when` of a rule", keys.when }, { "`path` of a rule", keys.path },
  { "`rate` of a rule", keys.rate }, { "`quota` of a rule", keys.quota }, { "`limit` of an argument", keys.limit },
  { "the outermost table", keys.root },
}

return keys
