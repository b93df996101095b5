-- timeout: 120
--- What `demilune doctor` says about keys and clouds, and what the program does where keys cannot be kept from swapping.

local canary = require "spec.support.canary"
local cjson = require "cjson"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

local home

local function run(args, options)
  options = options or {}
  options.home = home
  return demilune.run(args, options)
end

local function write(name, text, mode)
  local path = home .. "/" .. name
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  assert(os_calls.chmod(path, tonumber(mode, 8)))
  return path
end

--- A configuration with a provider of type veryfront, whose credential is `vf`.
local function config_with(entries, more)
  return ([[return { providers = { { id = "local", type = "local" },
    { id = "vf", type = "veryfront", api_url = "https://api.veryfront.com", credential = "vf" } },
    credentials = { %s }, %s }]]):format(entries, more or "")
end

--- The report, and both outputs together.
local function doctor(options)
  local as_json, shown = run({ "doctor", "--json" }, options), run({ "doctor" }, options)
  local report = cjson.decode(as_json.stdout)
  assert.are.equal(report.ok and 0 or 1, as_json.code)
  assert.are.equal(as_json.code, shown.code)
  return report, shown.stdout, as_json.stdout .. as_json.stderr .. shown.stdout .. shown.stderr
end

--- A command that may lock no memory at all; root needs to lose its capabilities for that.
local function without_lock(line)
  local id = assert(io.popen "id -u")
  local is_root = id:read "l" == "0"
  id:close()
  local prefix = is_root and "exec setpriv --inh-caps=-all --bounding-set=-all -- " or "exec "
  return { "/bin/sh", "-c", "ulimit -l 0; " .. prefix .. line }
end

describe("demilune doctor", function()
  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  it("has nothing to say about keys where there are none", function()
    local report, shown = doctor()
    assert.is_nil(report.vault)
    assert.are.same({ {}, {} }, { report.credentials, report.providers })
    assert.is_truthy(shown:find "\n  vault +not needed")
    assert.is_truthy(run({ "doctor", "--json" }).stdout:find('"credentials":[]', 1, true))
  end)

  it("says of every credential what it is and whether it can be read, and never what it holds", function()
    local secret = canary.new()
    write("good", secret .. "\n", "600")
    write("open", secret .. "\n", "640")
    write("short", secret:sub(1, 7), "600")
    local report, shown, all = doctor {
      env = { VF_KEY = secret, CREDENTIALS_DIRECTORY = home },
      config = config_with [[vf = { source = "env:VF_KEY" }, good = { source = "file:good" }, open = { source = "file:open" },
        short = { source = "file:short" }, none = { source = "file:none" }, unset = { source = "env:DML_SPEC_UNSET" },
        unit = { source = "cred:good" }, program = { source = "cmd:/bin/cat good" }, fails = { source = "cmd:/bin/false" }]],
    }
    local seen = {}
    for _, credential in ipairs(report.credentials) do
      seen[credential.name] = { credential.kind, credential.ok }
      assert.are.equal(credential.ok, credential.cause == nil, credential.name)
      local row = "\n  credential " .. credential.name .. " +" .. (credential.ok and "%l" or "FAIL ")
      assert.is_truthy(shown:find(row), credential.name)
    end
    seen.program = { seen.program[1] }
    assert.are.same({
      vf = { "env", true }, good = { "file", true }, open = { "file", false }, short = { "file", false }, none = { "file", false },
      unset = { "env", false }, unit = { "cred", true }, program = { "cmd" }, fails = { "cmd", false },
    }, seen)
    assert.is_false(report.ok)
    assert.is_truthy(shown:find("Keys, providers, callers, policy or audit do not work yet", 1, true))
    assert.is_nil(canary.find(all, secret))
    for _, name in ipairs { "good", "open", "short" } do os.remove(home .. "/" .. name) end
    assert.is_nil(canary.find_in(home, secret))
  end)

  it("says whether the policy loads, and whether the audit can be written", function()
    local config = 'return { policy = "p.lua", audit = "%s" }'
    write("p.lua", 'return { default = "allow", version = "v7", rules = { { name = "a", match = "@all", deny = "no" } } }', "600")
    local report, shown = doctor { config = config:format "a.jsonl" }
    assert.are.same({ true, "v7", 1 }, { report.policy.ok, report.policy.version, report.policy.rules })
    assert.is_true(report.audit.ok)
    assert.is_truthy(shown:find "\n  policy +[^\n]*p.lua, version v7, rules: 1\n")
    assert.is_nil(io.open(home .. "/a.jsonl"))
    write("p.lua", 'return { default = "allow", rules = { { name = "a", match = "@al", deny = "no" } } }', "600")
    report, shown = doctor { config = config:format "none/a.jsonl" }
    assert.are.same({ false, false, false }, { report.ok, report.policy.ok, report.audit.ok })
    assert.is_truthy(shown:find "\n  policy +FAIL [^\n]*p.lua:1: ")
    assert.is_truthy(shown:find "\n  audit +FAIL ")
    os.remove(home .. "/p.lua")
  end)

  it("names a provider with its credential and asks nobody", function()
    local config = config_with 'vf = { source = "env:VF_KEY" }'
    local report, shown = doctor { env = { VF_KEY = "a secret that is long enough" }, config = config }
    assert.are.same({ { id = "vf", type = "veryfront", credential = "vf", ok = true } }, report.providers)
    assert.is_truthy(shown:find "\n  provider vf +veryfront, credential vf; it was not asked\n")
    report, shown = doctor { config = config }
    assert.is_false(report.providers[1].ok)
    assert.is_truthy(shown:find "\n  provider vf +FAIL ")
  end)

  it("says that certificates which a provider names are not there", function()
    local env = { VF_KEY = "a secret that is long enough" }
    local config = [[return { providers = { { id = "vf", type = "veryfront", api_url = "https://a.b", credential = "vf",
      ca_file = "ca.pem" } }, credentials = { vf = { source = "env:VF_KEY" } } }]]
    local report = doctor { env = env, config = config }
    assert.are.same({ false, "Its ca_file cannot be read." }, { report.providers[1].ok, report.providers[1].cause })
    write("ca.pem", "anything", "644")
    assert.is_true(doctor({ env = env, config = config }).ok)
  end)

  it("does not count this machine where only clouds are configured", function()
    local report, shown = doctor {
      env = { VF_KEY = "a secret that is long enough" },
      config = [[return { providers = { { id = "vf", type = "veryfront", api_url = "https://a.b", credential = "vf" } },
        credentials = { vf = { source = "env:VF_KEY" } } }]],
    }
    assert.is_false(report.needs_isolation)
    assert.is_true(report.ok)
    assert.is_truthy(shown:find("which were not asked", 1, true))
  end)

  it("names a file as the operator named it", function()
    write("demilune.lua", config_with 'vf = { source = "file:keys/vf" }', "600")
    local argv = { require("spec.support.build").program, "doctor", "--config", "demilune.lua" }
    local result = demilune.run({}, { home = home, cwd = home, argv = argv })
    assert.is_truthy(result.stdout:find("keys/vf", 1, true))
    assert.is_nil(result.stdout:find("/proc/", 1, true))
  end)
end)

describe("memory for keys that cannot be locked", function()
  local D = "'" .. require("spec.support.build").program .. "' "
  local CONFIG = 'vf = { source = "env:VF_KEY" }'
  local ENV = { VF_KEY = "a secret that is long enough" }

  local function skip_where_locked()
    if require("spec.support.build").sanitize:find "address" then pending "the address sanitizer makes mlock(2) succeed" end
  end

  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  local function run_without(line, config)
    local path = write("demilune.lua", config, "600")
    return demilune.run({}, { home = home, env = ENV, argv = without_lock(D .. line .. " --config " .. path) })
  end

  it("is a note of doctor with what mends it, and no failure", function()
    skip_where_locked()
    local result = run_without("doctor --json", config_with(CONFIG))
    local vault = cjson.decode(result.stdout).vault
    assert.are.same({ true, false, false }, { vault.ok, vault.is_locked, vault.is_required })
    assert.is_truthy(vault.cause:find("swapped", 1, true))
    assert.is_truthy(vault.fix:find("ulimit -l", 1, true) and vault.fix:find("LimitMEMLOCK", 1, true))
    assert.is_truthy(run_without("doctor", config_with(CONFIG)).stdout:find "\n  vault +not locked%. ")
  end)

  it("stops every command where vault.require_lock asks for it", function()
    skip_where_locked()
    local strict = config_with(CONFIG, "vault = { require_lock = true }")
    for _, line in ipairs { "tools", "serve", "ls" } do
      local result = run_without(line, strict)
      assert.are.equal(1, result.code, line)
      assert.are.equal("", result.stdout)
      assert.is_truthy(result.stderr:find "^demilune: [^\n]*cannot be locked[^\n]*LimitMEMLOCK[^\n]*\n$", result.stderr)
    end
    local result = run_without("doctor --json", strict)
    assert.are.equal(1, result.code)
    local report = cjson.decode(result.stdout)
    assert.are.same({ false, true }, { report.vault.ok, report.vault.is_required })
  end)

  it("is one warning in the log of a server", function()
    skip_where_locked()
    local path = write("demilune.lua", config_with(CONFIG, ('log = { file = "%s/serve.log" }'):format(home)), "600")
    local server = demilune.start { home = home, env = ENV, argv = without_lock(D .. "serve --config " .. path) }
    server:initialize "2025-11-25"
    local names = {}
    for _, tool in ipairs(server:request("tools/list").tools) do names[tool.name] = true end
    assert.is_true(names.veryfront__create_sandbox and names.run_command)
    server:stop()
    local file = assert(io.open(home .. "/serve.log"))
    local text = file:read "a"
    file:close()
    assert.are.equal(1, select(2, text:gsub("warn [^\n]*not locked", "")))
    assert.is_nil(canary.find(text, ENV.VF_KEY))
  end)
end)

describe("a credential that cannot be read", function()
  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  it("stops no command, and fails only the calls that need it", function()
    local config = config_with 'vf = { source = "env:DML_SPEC_UNSET" }'
    assert.are.equal(0, run({ "tools" }, { config = config }).code)
    local result = run({ "call", "list_sandboxes", '{"provider":"vf"}', "--json" }, { config = config })
    assert.are.equal(1, result.code)
    local err = cjson.decode(result.stdout).error
    assert.are.equal("authentication_failed", err.category)
    assert.is_truthy(err.message:find("vf", 1, true) and err.message:find("doctor", 1, true), err.message)
    assert.is_nil(result.stdout:find("DML_SPEC_UNSET", 1, true))
    assert.are.equal("demilune: The environment variable DML_SPEC_UNSET is not set.\n", result.stderr)
  end)
end)
