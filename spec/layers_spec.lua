--- The layer law of docs/architecture.md: who may include and require whom.

local sources = require "spec.support.sources"

local function listed(found) return table.concat(found, "\n") end

-- What each folder of src may include, itself aside. mcp's C code knows no Lua: its binding is in script.
local C_LAYERS = {
  base = {},
  loop = { "base" },
  net = { "base", "loop" },
  vault = { "base" },
  sandbox = { "base", "loop" },
  agent = { "base/frame.h" },
  fence = { "base" },
  mcp = { "base", "loop", "net" },
  script = { "base", "loop", "net", "vault", "sandbox", "mcp", "fence/pack.h", "fence/wire.h" },
}

-- Outside headers that only some files may include: Lua patterns of header and of path.
local OUTSIDE = {
  { header = "^lua", allowed = { "^src/script/", "^src/fence/", "^src/runtime%.[ch]$", "^src/main%.c$" } },
  { header = "^lauxlib%.h$", allowed = { "^src/script/", "^src/fence/", "^src/runtime%.[ch]$", "^src/main%.c$" } },
  { header = "^curl/", allowed = { "^src/net/[%w_]*_curl%.c$" } },
  { header = "^microhttpd%.h$", allowed = { "^src/net/[%w_]*_mhd%.[ch]$" } },
  { header = "^gnutls/", allowed = { "^src/net/[%w_]*_mhd%.[ch]$" } },
  { header = "^jose/", allowed = { "^src/net/[%w_]*_jose%.c$" } },
  { header = "^seccomp%.h$", allowed = { "^src/sandbox/", "^src/fence/confine%.c$" } },
  { header = "^pcre2%.h$", allowed = { "^src/base/regex%.c$" } },
  { header = "^uv", allowed = { "^src/loop/", "^src/net/", "^src/sandbox/", "^src/mcp/", "^src/script/", "^src/run" } },
}

-- What each part of lua/demilune must not require. A part is a folder or a file of lua/demilune.
local LUA_FORBIDDEN = {
  errors = { "cli", "mcp", "tools", "providers", "engine", "scope", "policy", "envd", "config" },
  json_schema = {
    "cli", "mcp", "tools", "providers", "engine", "scope", "policy", "envd", "config", "schema", "schema_words", "errors", "own",
  },
  schema = { "cli", "mcp", "tools", "providers", "engine", "scope", "policy", "envd", "config" },
  schema_words = { "cli", "mcp", "tools", "providers", "engine", "scope", "policy", "envd", "config", "schema", "own" },
  envd = { "cli", "mcp", "tools", "engine", "scope", "policy" },
  providers = { "cli", "mcp", "tools", "engine", "scope", "policy" },
  engine = { "cli", "mcp", "tools", "providers", "scope", "policy", "envd" },
  scope = { "cli", "mcp", "tools", "engine" },
  config = { "cli", "mcp", "engine" },
  tools = { "cli", "mcp", "engine" },
  mcp = { "cli", "engine" },
  policy = { "cli", "mcp", "tools", "providers", "engine" },
  own = { "cli", "mcp", "engine", "tools", "scope" },
  ledger = { "cli", "mcp", "tools", "providers", "engine", "scope", "policy" },
  audit = { "cli", "mcp", "tools", "providers", "engine", "scope", "policy" },
}

local function matches_any(text, patterns)
  for _, pattern in ipairs(patterns) do
    if text:find(pattern) then return true end
  end
  return false
end

local function may_include(folder, included)
  local target = included:match("^([%w_]+)/") or included
  if target == folder then return true end
  for _, allowed in ipairs(C_LAYERS[folder]) do
    if allowed == target or allowed == included then return true end
  end
  return false
end

--- Breaches of the law in one C file of a folder.
local function c_breaches(path, breaches)
  local folder = path:match("^src/([%w_]+)/")
  for _, include in ipairs(sources.includes(path)) do
    if folder and not include.is_system and not may_include(folder, include.name) then
      breaches[#breaches + 1] = ("%s:%d includes %s"):format(path, include.line, include.name)
    end
    for _, rule in ipairs(OUTSIDE) do
      if include.name:find(rule.header) and not matches_any(path, rule.allowed) then
        breaches[#breaches + 1] = ("%s:%d includes %s"):format(path, include.line, include.name)
      end
    end
  end
end

--- Circles among the headers of src, each as "a -> b -> a".
local function header_circles()
  local edges, circles, state = {}, {}, {}
  for _, path in ipairs(sources.files("^src/.*%.h$")) do
    local name = path:sub(5)
    edges[name] = {}
    for _, include in ipairs(sources.includes(path)) do
      if not include.is_system then table.insert(edges[name], include.name) end
    end
  end
  local function visit(name, trail)
    if state[name] == "done" or not edges[name] then return end
    if state[name] == "open" then
      circles[#circles + 1] = table.concat(trail, " -> ") .. " -> " .. name
      return
    end
    state[name] = "open"
    trail[#trail + 1] = name
    for _, next_name in ipairs(edges[name]) do visit(next_name, trail) end
    trail[#trail] = nil
    state[name] = "done"
  end
  for name in pairs(edges) do visit(name, {}) end
  return circles
end

describe("the layers of src", function()
  it("hold every file in a folder that the law names", function()
    local strangers = {}
    for _, path in ipairs(sources.files("^src/.*%.[ch]$")) do
      local folder = path:match("^src/([%w_]+)/")
      local is_top = path:match("^src/runtime%.[ch]$") or path == "src/main.c"
      if not is_top and not C_LAYERS[folder] then strangers[#strangers + 1] = path end
    end
    assert.are.equal("", listed(strangers))
  end)

  it("include only downward", function()
    local breaches = {}
    for _, path in ipairs(sources.files("^src/.*%.[ch]$")) do c_breaches(path, breaches) end
    assert.are.equal("", listed(breaches))
  end)

  it("have no circle of headers", function()
    assert.are.equal("", listed(header_circles()))
  end)

  it("show an embedder nothing of src", function()
    local breaches = {}
    for _, path in ipairs(sources.files("^include/.*%.h$")) do
      for _, include in ipairs(sources.includes(path)) do
        if not include.is_system then breaches[#breaches + 1] = path .. " includes " .. include.name end
      end
    end
    assert.are.equal("", listed(breaches))
  end)

  it("notice an include that goes upward", function()
    assert.is_false(may_include("base", "loop/loop.h"))
    assert.is_false(may_include("net", "vault/vault.h"))
    assert.is_false(may_include("agent", "base/status.h"))
    assert.is_true(may_include("agent", "base/frame.h"))
  end)
end)

describe("the layers of lua/demilune", function()
  it("require only what their part may know", function()
    local breaches = {}
    for _, path in ipairs(sources.files("^lua/demilune/.*%.lua$")) do
      local part = path:match("^lua/demilune/([%w_]+)")
      for _, required in ipairs(sources.requires(path)) do
        local target = required.name:match("^demilune%.([%w_]+)")
        for _, forbidden in ipairs(LUA_FORBIDDEN[part] or {}) do
          if target == forbidden then
            breaches[#breaches + 1] = ("%s:%d requires %s"):format(path, required.line, required.name)
          end
        end
      end
    end
    assert.are.equal("", listed(breaches))
  end)

  it("name no single driver or tool outside its own folder", function()
    local breaches = {}
    for _, path in ipairs(sources.files("^lua/demilune/.*%.lua$")) do
      for _, required in ipairs(sources.requires(path)) do
        local folder = required.name:match("^demilune%.(%l+)%.[%w_.]+$")
        if (folder == "tools" or folder == "providers") and not path:find("^lua/demilune/" .. folder .. "/") then
          breaches[#breaches + 1] = ("%s:%d requires %s"):format(path, required.line, required.name)
        end
      end
    end
    assert.are.equal("", listed(breaches))
  end)
end)
