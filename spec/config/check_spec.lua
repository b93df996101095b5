--- What a configuration may hold, what it becomes, and what each mistake is answered with.

local config = require "demilune.config"
local support = require "spec.config.support"

local fault, load_text = support.fault, support.load
local template, provider = support.template, support.provider

local BASE = {
  disk = 1024, memory = 1024, cpu = 2, pids = 256, network = "none", home = "tmpfs",
  ro_binds = {}, env = {}, explicit = {},
}
local LOCAL = {
  id = "local", type = "local", lifetime = 3600, max_lifetime = 86400, tenancy = "account", templates = { base = BASE },
}
local DEFAULTS = {
  dir = ".",
  default_provider = "local",
  providers = { LOCAL },
  output = { stdout = 16384, stderr = 8192, read_file = 32768, list_files = 200, download_file = 24576 },
  limits = { message = 16, tasks = 16 },
  tools = {}, provider_path = {},
  default_sandbox = "on", keep_on_exit = false, adopt_by_use = false, nonzero_exit_is_error = false,
  task_after = 5,
  annotations = "strict",
  log = { level = "info" },
  credentials = {}, vault = { require_lock = false },
  http = { allow_origins = {}, allow_hosts = {}, sessions = 100, session_idle = 3600, max_body = 16 },
}

--- Asserts that `make(low)` to `make(high)` are taken and what is beyond is refused.
local function assert_range(make, low, high)
  for _, value in ipairs { low, high } do assert(load_text(make(value))) end
  for _, value in ipairs { low - 1, high + 1, "0/0", "1/0", "'" .. low .. "'", "true", "{}" } do
    local message = fault(make(value))
    assert.truthy(message:find((" from %s to %s"):format(low, high), 1, true), message)
  end
end

local function inside(section, key)
  return function(value) return ("return { %s = { %s = %s } }"):format(section, key, value) end
end

describe("the defaults", function()
  it("are those of the contract", function()
    assert.are.same(DEFAULTS, config.defaults())
  end)

  it("are what an empty table becomes", function()
    local loaded = assert(load_text("return {}"))
    loaded.path, loaded.dir = nil, "."
    assert.are.same(DEFAULTS, loaded)
  end)

  it("are fresh at every call", function()
    config.defaults().providers[1].templates.base.env.X = "1"
    assert.are.same({}, config.defaults().providers[1].templates.base.env)
  end)
end)

describe("a configuration", function()
  it("may use every key that is served", function()
    local loaded = assert(load_text(support.whole))
    assert.are.equal("second", loaded.default_provider)
    local first, second, cloud, vf = table.unpack(loaded.providers)
    assert.are.equal(7200, first.max_lifetime)
    assert.are.equal("principal", first.tenancy)
    assert.are.equal(8192, first.templates["py-3.11"].memory)
    assert.are.same({ LANG = "C.UTF-8", NOTE = "two\nlines" }, first.templates["py-3.11"].env)
    assert.are.same({ base = BASE }, second.templates)
    assert.are.same({ "code-interpreter-v1", "team/base:2" }, cloud.templates)
    assert.are.same({ "engine", 3, false }, { cloud.preset, cloud.max_requests, cloud.auto_resume })
    assert.are.same({ "https://api.veryfront.com/v1", "/mcp" }, { vf.api_url, vf.mcp_path })
    assert.is_true(loaded.vault.require_lock)
    assert.are.same({ message = 8, tasks = 4 }, loaded.limits)
    assert.are.equal("off", loaded.default_sandbox)
    assert.is_true(loaded.keep_on_exit and loaded.adopt_by_use and loaded.nonzero_exit_is_error)
    assert.are.equal("warn", loaded.log.level)
  end)

  it("keeps apart what the operator demands and what is a default", function()
    local loaded = assert(load_text(template "memory = 1024, cpu = 2"))
    local base = loaded.providers[1].templates.base
    assert.are.same({ memory = true, cpu = true }, base.explicit)
    assert.are.equal(256, base.pids)
  end)

  it("takes a whole float for an integer", function()
    local loaded = assert(load_text("return { limits = { tasks = 4.0 } }"))
    assert.are.equal("integer", math.type(loaded.limits.tasks))
  end)

  it("is read without running metamethods", function()
    local loaded = assert(load_text([[
local function fail() error "ran" end
return setmetatable({}, { __index = fail, __pairs = fail, __len = fail, __eq = fail, __tostring = fail })]]))
    assert.are.equal("on", loaded.default_sandbox)
    assert.are.equal("1: [a table] has no name; write it as key = value", fault([[
local key = setmetatable({}, { __tostring = function() error "ran" end }) return { [key] = 1 }]]))
  end)

  it("may share a table, and may contain itself where no key is", function()
    assert(load_text([[local e = { A = "1" } local t = { env = e }
return { providers = { { id = "local", type = "local", templates = { a = t, b = t } } } }]]))
    assert.are.equal("1: log.log does not stand here", fault("local t = {} t.log = t return t"):match("^[^;]+"))
  end)
end)

describe("a key that is unknown", function()
  it("is refused with its line and the nearest right name, at every depth", function()
    assert.are.equal("2: anotations is not a key; did you mean `annotations`?",
      fault("return {\n anotations = 1 }"))
    assert.are.equal("1: log.levl is not a key; did you mean `level`?", fault("return { log = { levl = 1 } }"))
    assert.are.equal("3: providers[1].templates.base.memroy is not a key; did you mean `memory`?",
      fault('return { providers = { { id = "local", type = "local",\n templates = { base = {\n memroy = 1 } } } } }'))
  end)

  it("is refused with the place where it belongs", function()
    assert.are.equal("1: lifetime does not stand here; it belongs in a provider", fault("return { lifetime = 1 }"))
    assert.are.equal("1: providers[1].memory does not stand here; it belongs in a template",
      fault(provider "memory = 1"))
    assert.are.equal("1: log.tasks does not stand here; it belongs in limits", fault("return { log = { tasks = 1 } }"))
  end)

  it("is refused with all right names where none is near", function()
    assert.are.equal("1: log.colour is not a key; leave it out, or write one of file, level",
      fault("return { log = { colour = 1 } }"))
  end)

  it("is refused whatever it is", function()
    assert.are.equal("1: [1] has no name; write it as key = value", fault("return { 'x' }"))
    assert.are.equal("1: [a table] has no name; write it as key = value", fault("return { [{}] = 1 }"))
    assert.are.equal('1: log["a?b%s%d"]', fault("return { log = { ['a\\nb%s%d'] = 1 } }"):match("^.-%]"))
    assert.is_true(#fault("return { [('k'):rep(100000)] = 1 }") < 600)
  end)

  it("is told before a fault further down in the file", function()
    assert.are.equal("2", fault("return {\n zzz = 1,\n limits = 1,\n aaa = 1 }"):match("^%d+"))
    assert.are.equal("3", fault("return {\n limits = {},\n aaa = 1,\n log = 1,\n}"):match("^%d+"))
  end)
end)

describe("a value of the wrong type", function()
  it("is refused with what may stand there and the default", function()
    assert.are.equal("1: limits.tasks must be an integer from 1 to 256, not a string; leave it out for 16",
      fault("return { limits = { tasks = '8' } }"))
    assert.are.equal("1: providers[1].templates.base.env.A must be a string of valid UTF-8 without NUL, "
      .. "at most 32768 bytes, not a number; put it in quotes", fault(template "env = { A = 1 }"))
    assert.are.equal("1: keep_on_exit must be true or false, not a string; leave it out for false",
      fault("return { keep_on_exit = 'yes' }"))
    assert.are.equal('1: default_sandbox must be "on" or "off", not a boolean; leave it out for "on"',
      fault("return { default_sandbox = false }"))
    assert.are.equal("1: output must be a table of keys, not a number; or leave it out", fault("return { output = 1 }"))
    assert.are.equal("1: providers must be a list, not a string; write one", fault("return { providers = 'local' }"))
    assert.are.equal("1: providers[1] must be a table of keys, not a string; write one",
      fault("return { providers = { 'local' } }"))
  end)

  it("is refused with the nearest of its choices", function()
    assert.are.equal('1: log.level must be "debug", "info", "warn", "error" or "off"; did you mean "warn"?',
      fault("return { log = { level = 'warning' } }"))
  end)

  it("is never repeated, since it may be a secret", function()
    for _, text in ipairs {
      "return { annotations = 's3cr3t' }", "return { default_provider = 's3cr3t' }",
      "return { keep_on_exit = 's3cr3t' }",
      template "env = 's3cr3t'", template "env = { A = { 's3cr3t' } }", template "env = { A = 's3cr3t\\0' }",
      provider "lifetime = 's3cr3t'",
    } do
      assert.falsy(fault(text):find("s3cr3t", 1, true))
    end
  end)
end)

describe("the ranges", function()
  it("hold for templates", function()
    local function field(key) return function(value) return template(key .. " = " .. value) end end
    assert_range(field "disk", 16, 1048576)
    assert_range(field "memory", 64, 1048576)
    assert_range(field "pids", 16, 65536)
    assert_range(field "cpu", 0.1, 256)
    assert.are.equal(0.5, load_text(template "cpu = 0.5").providers[1].templates.base.cpu)
    assert.truthy(fault(template "disk = 16.5"):find("must be an integer", 1, true))
  end)

  it("hold for lifetimes", function()
    assert_range(function(value) return provider("lifetime = " .. value) end, 1, 86400)
    assert_range(function(value) return provider("max_lifetime = " .. value) end, 1, 86400)
  end)

  it("hold for output and limits", function()
    assert_range(inside("output", "stdout"), 1024, 1048576)
    assert_range(inside("output", "stderr"), 1024, 1048576)
    assert_range(inside("output", "read_file"), 1, 1048576)
    assert_range(inside("output", "list_files"), 1, 2000)
    assert_range(inside("output", "download_file"), 1, 4194304)
    assert_range(inside("limits", "message"), 1, 64)
    assert_range(inside("limits", "tasks"), 1, 256)
  end)

  it("hold for the environment of a template", function()
    assert(load_text(template "env = { _A1 = '', B = ('x'):rep(32768) }"))
    assert.truthy(fault(template "env = { ['A-B'] = 'x' }"):find("env.A-B is not a name that can stand here", 1, true))
    for _, name in ipairs { "", "1A", "A=B", "A\\0", "É" } do fault(template("env = { ['" .. name .. "'] = 'x' }")) end
    for _, value in ipairs { "1", "true", "'a\\0b'", "'\\255'", "('x'):rep(32769)" } do
      assert.truthy(fault(template("env = { A = " .. value .. " }")):find("env.A must be a string", 1, true))
    end
    local many = "(function() local t = {} for i = 1, %d do t['V' .. i] = 'x' end return t end)()"
    assert(load_text(template("env = " .. many:format(256))))
    assert.truthy(fault(template("env = " .. many:format(257))):find("more than 256 entries", 1, true))
  end)

  it("hold for the log", function()
    for _, level in ipairs(config.log_levels) do assert(load_text(inside("log", "level")("'" .. level .. "'"))) end
    for _, file in ipairs { "''", "'~/a.log'", "'a\\0'", "('x'):rep(4097)" } do
      assert.truthy(fault(inside("log", "file")(file)):find("log.file must be a path", 1, true))
    end
  end)
end)

describe("the providers", function()
  it("have ids of small letters, digits, _ and -, each its own", function()
    for _, id in ipairs { "a", "local", "my_box-2" } do
      local loaded = assert(load_text(('return { providers = { { id = "%s", type = "local" } } }'):format(id)))
      assert.are.equal(id, loaded.default_provider)
    end
    for _, id in ipairs { "", "Local", "1a", "-a", "a:b", "a b", "é", ("a"):rep(65) } do
      assert.truthy(fault(('return { providers = { { id = "%s", type = "local" } } }'):format(id))
        :find("providers[1].id must be a name of small letters", 1, true))
    end
    assert.are.equal("3: providers[2].id is the id of providers[1] too; give each its own",
      fault('return { providers = {\n { id = "a", type = "local" },\n { id = "a", type = "local" } } }'))
  end)

  it("are a list with at least one and no gap", function()
    assert.truthy(fault("return { providers = {} }"):find("is empty; leave it out", 1, true))
    assert.truthy(fault('return { providers = { id = "a" } }'):find("put each entry in braces", 1, true))
    assert.truthy(fault('return { providers = { [2] = {} } }'):find("has a gap", 1, true))
    assert.truthy(fault("local t = {} for i = 1, 17 do t[i] = {} end return { providers = t }")
      :find("more than 16 entries", 1, true))
  end)

  it("need an id and a type", function()
    assert.are.equal("1: providers[1] has no `id`; write one", fault('return { providers = { { type = "local" } } }'))
    assert.are.equal("1: providers[1] has no `type`; write one", fault('return { providers = { { id = "a" } } }'))
  end)

  it("name a default where it is not plain", function()
    local two = '{ id = "a", type = "local" }, { id = "%s", type = "local" }'
    local function text(id, wanted)
      return ("return { providers = { %s },\n%s }"):format(two:format(id), wanted or "")
    end
    assert.are.equal("local", load_text(text("local")).default_provider)
    assert.are.equal("a", load_text(text("local", 'default_provider = "a"')).default_provider)
    assert.are.equal("1: default_provider is missing; write one of a, beta", fault(text("beta")))
    assert.are.equal('2: default_provider is not the id of a provider; did you mean "beta"?',
      fault(text("beta", 'default_provider = "betta"')))
    assert.are.equal("2: default_provider is not the id of a provider; write one of a, beta",
      fault(text("beta", 'default_provider = "cloud"')))
  end)

  it("have a lifetime of at most max_lifetime", function()
    assert.are.equal("1: providers[1].lifetime is more than max_lifetime, 50; lower one or raise the other",
      fault(provider "lifetime = 51, max_lifetime = 50"))
    assert.are.equal(50, load_text(provider "lifetime = 50, max_lifetime = 50").providers[1].lifetime)
    assert.are.equal(600, load_text(provider "max_lifetime = 600").providers[1].lifetime)
  end)

  it("have templates by name, at least one", function()
    local loaded = assert(load_text(provider 'templates = { ["Py-3.11_x"] = {} }'))
    local only = loaded.providers[1].templates["Py-3.11_x"]
    assert.are.same(BASE, only)
    assert.is_nil(loaded.providers[1].templates.base)
    assert.truthy(fault(provider "templates = {}"):find("templates is empty; leave it out", 1, true))
    for _, name in ipairs { "", "-a", ".a", "a/b", "é", ("a"):rep(65) } do
      assert.truthy(fault(provider('templates = { ["' .. name .. '"] = {} }'))
        :find("is not a name that can stand here", 1, true))
    end
    assert.truthy(fault(provider 'templates = { "base" }'):find("templates[1] is not a name", 1, true))
  end)
end)

describe("what this version does not serve yet", function()
  it("is refused by name for a provider that could not hold it", function()
    assert.are.equal('1: providers[1].tenancy = "principal" is not served by this version yet; write "account"',
      fault(support.remote("veryfront", 'api_url = "https://a.b", tenancy = "principal"')))
  end)

  it("is refused by name in a template", function()
    local path = "1: providers[1].templates.base."
    assert.are.equal(path .. 'network = "host" is not served by this version yet; write "none"',
      fault(template 'network = "host"'))
    assert.are.equal(path .. 'network must be "none"; this version does not serve anything else yet',
      fault(template 'network = "bridge"'))
    assert.are.equal(path .. 'network must be "none", not a boolean; this version does not serve anything else yet',
      fault(template 'network = true'))
    assert.are.equal(path .. 'home = "disk" is not served by this version yet; write "tmpfs"',
      fault(template 'home = "disk"'))
    for _, value in ipairs { '{ "/opt" }', '{ a = 1 }', '"/opt"' } do
      assert.are.equal(path .. "ro_binds must be empty, because this version does not serve it yet; leave it out",
        fault(template("ro_binds = " .. value)))
    end
  end)

  it("is told by its nearest name too", function()
    assert.are.equal("1: polcy is not a key; did you mean `policy`?", fault("return { polcy = 'p.lua' }"))
  end)
end)
