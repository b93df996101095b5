--- Providers that are reached over the network, and credentials: what may stand there, and that no key is repeated.

local config = require "demilune.config"
local support = require "spec.config.support"

local fault, load_text, remote = support.fault, support.load, support.remote

--- What E2B's keys look like, and others'.
local KEYS = { "e2b_" .. ("0a1b2c3d"):rep(5), "vf_" .. ("Xy9"):rep(12), "sk-live-" .. ("4f"):rep(20), "eyJhbGciOi.eyJzdWIi.c2lnbg" }

local function e2b(fields) return remote("e2b", fields) end

local function veryfront(fields) return remote("veryfront", 'api_url = "https://api.veryfront.com", ' .. fields) end

--- A text with these entries of credentials.
local function credentials(entries) return "return { credentials = { " .. entries .. " } }" end

local function assert_says(text, words)
  local message = fault(text)
  assert.truthy(message:find(words, 1, true), message)
end

describe("a provider of type e2b", function()
  it("has the defaults of its type", function()
    assert.are.same({
      id = "cloud", type = "e2b", preset = "e2b", credential = "key", lifetime = 300, max_lifetime = 86400, tenancy = "account",
      auto_resume = true, max_requests = 16, templates = {},
    }, load_text(e2b "").providers[1])
  end)

  it("needs a credential that is defined", function()
    assert.are.equal("1: providers[1] has no `credential`; write one",
      fault 'return { providers = { { id = "c", type = "e2b" } } }')
    assert.are.equal('1: providers[1].credential is not the name of an entry of credentials; '
      .. 'write credentials = { NAME = { source = "env:NAME" } } in the outermost table',
      fault 'return { providers = { { id = "c", type = "e2b", credential = "key" } } }')
    local text = 'return { credentials = { cloud = { source = "env:A" }, other = { source = "env:B" } },\n'
      .. 'providers = { { id = "c", type = "e2b",\n credential = "%s" } } }'
    assert.are.equal('3: providers[1].credential is not the name of an entry of credentials; did you mean "cloud"?',
      fault(text:format "clod"))
    assert.are.equal('3: providers[1].credential is not the name of an entry of credentials; write "cloud" or "other"',
      fault(text:format "zzz"))
  end)

  it("knows the presets that there are", function()
    local names = {}
    for name in pairs(require("demilune.e2b.presets").by_name) do names[#names + 1] = name end
    table.sort(names)
    local served = table.move(require("demilune.config.keys").provider.variants.e2b.fields.preset.choices, 1, 99, 1, {})
    table.sort(served)
    assert.are.same(names, served)
    assert_says(e2b 'preset = "e2c"', 'did you mean "e2b"?')
  end)

  it("reports what its preset lacks, at its line", function()
    local message = fault('return {\n credentials = { k = { source = "env:K" } },\n providers = {\n'
      .. ' { id = "c", type = "e2b", credential = "k",\n preset = "engine" } } }')
    assert.truthy(message:find "^[45]: providers%[1%]%.api_url ", message)
  end)

  it("has templates as a list of names", function()
    assert.are.same({ "base", "team/py:3.11" }, load_text(e2b 'templates = { "base", "team/py:3.11" }').providers[1].templates)
    assert_says(e2b "templates = { base = {} }", "templates.base is a key in a list; write the entries alone")
    assert_says(e2b "templates = { 1 }", "templates[1] must be the name of a template")
    for _, name in ipairs { "", "a b", "-a", "a\\nb", "é", ("x"):rep(129) } do
      assert_says(e2b('templates = { "' .. name .. '" }'), "must be the name of a template")
    end
  end)

  it("has a domain of two names or more, since keys go to all hosts in it", function()
    for _, domain in ipairs { "e2b.app", "sandbox.example.org", "a-b.c2" } do
      assert(load_text(e2b('domain = "' .. domain .. '"')))
    end
    for _, domain in ipairs {
      "", "com", "E2B.app", "e2b.app.", ".e2b.app", "e2b..app", "10.0.0.1", "e2b.app:443", "e2b.app/x", "a@b.c", "a b.c",
    } do
      assert_says(e2b('domain = "' .. domain .. '"'), "providers[1].domain ")
    end
  end)

  it("has a header for its key that means nothing else", function()
    assert(load_text(e2b 'key_header = "X-Team-Key"'))
    for _, name in ipairs { "Host", "content-length", "Transfer-Encoding", "Cookie" } do
      assert_says(e2b('key_header = "' .. name .. '"'), "key_header is a header that has another meaning")
    end
    for _, name in ipairs { "", "X Key", "X-Key:", "X\\r\\nY", "1X" } do
      assert_says(e2b('key_header = "' .. name .. '"'), "key_header must be the name of a header")
    end
  end)

  it("has its lifetime within max_lifetime, and requests within bounds", function()
    assert.are.equal(60, load_text(e2b "max_lifetime = 60").providers[1].lifetime)
    assert_says(e2b "lifetime = 61, max_lifetime = 60", "lifetime is more than max_lifetime, 60")
    local kruise = 'preset = "openkruise", domain = "a.example.org", '
    assert(load_text(e2b(kruise .. "lifetime = 30")))
    assert_says(e2b(kruise .. "lifetime = 29"), "providers[1].lifetime is less than 30, the least that preset openkruise takes")
    assert_says(e2b(kruise .. "max_lifetime = 29"), "providers[1].max_lifetime is less than 30")
    assert_says(e2b "max_requests = 0", "from 1 to 256")
    assert_says(e2b "max_requests = 257", "from 1 to 256")
  end)
end)

describe("a provider of type veryfront", function()
  it("has the defaults of its type, and no address by itself", function()
    assert.are.same({
      id = "cloud", type = "veryfront", api_url = "https://api.veryfront.com", credential = "key", lifetime = 300,
      max_lifetime = 86400, tenancy = "account", max_requests = 16, templates = {},
    }, load_text(veryfront "").providers[1])
    assert_says(remote("veryfront", ""), "providers[1] has no `api_url`; write one")
  end)

  it("has a path for its endpoint that stays on its host", function()
    assert.are.equal("/projects/p-1/mcp", load_text(veryfront 'mcp_path = "/projects/p-1/mcp"').providers[1].mcp_path)
    for _, path in ipairs { "", "mcp", "https://b.c/mcp", "/mcp?x=1", "/mcp#x", "/a b", "/../mcp", "//b.c/mcp" } do
      assert_says(veryfront('mcp_path = "' .. path .. '"'), "providers[1].mcp_path ")
    end
    for _, project in ipairs { "", "a/b", "..", "a b" } do
      assert_says(veryfront('project = "' .. project .. '"'), "providers[1].project must be the UUID or slug")
    end
  end)
end)

describe("a key of another type", function()
  it("is refused with the type that has it", function()
    assert_says(veryfront 'preset = "e2b"', "providers[1].preset does not stand here; it belongs in a provider of type e2b")
    assert_says(e2b 'project = "x"', "project does not stand here; it belongs in a provider of type veryfront")
    assert_says(support.provider 'credential = "x"',
      "credential does not stand here; it belongs in a provider of type e2b or veryfront")
    assert_says(e2b "memory = 1", "memory does not stand here; it belongs in a template")
    assert_says("return { lifetime = 1 }", "it belongs in a provider")
    assert_says("return { require_lock = true }", "it belongs in vault")
    assert_says("return { source = 'env:X' }", "it belongs in an entry of credentials")
    assert_says(e2b "auto_resum = true", "did you mean `auto_resume`?")
  end)

  it("is not held against a provider whose type is not known", function()
    assert.are.equal('1: providers[1].type must be "local", "e2b" or "veryfront"; did you mean "e2b"?',
      fault 'return { providers = { { id = "c", type = "e2", whatever = 1 } } }')
    assert.are.equal("1: providers[1] has no `type`; write one", fault 'return { providers = { { id = "c", whatever = 1 } } }')
  end)
end)

describe("a URL", function()
  local function api(text) return veryfront('mcp_path = "/x"'):gsub("https://api%.veryfront%.com", (text:gsub("%%", "%%%%"))) end

  it("is https, or http to this machine, without slashes at its end", function()
    for given, kept in pairs {
      ["https://api.example.org"] = "https://api.example.org", ["https://api.example.org/"] = "https://api.example.org",
      ["https://a.b:8443/v1/x//"] = "https://a.b:8443/v1/x", ["https://10.0.0.1"] = "https://10.0.0.1",
      ["https://[2001:db8::1]:8443"] = "https://[2001:db8::1]:8443", ["http://127.0.0.1:3000"] = "http://127.0.0.1:3000",
      ["http://localhost"] = "http://localhost", ["http://LOCALHOST:1/"] = "http://LOCALHOST:1",
      ["http://[::1]:9/x"] = "http://[::1]:9/x",
    } do
      assert.are.equal(kept, assert(load_text((api(given)))).providers[1].api_url)
    end
  end)

  it("is refused with what is wrong with it, and never repeated", function()
    for given, words in pairs {
      ["http://s3cr3t.example.org"] = "is plain http to another machine", ["http://10.0.0.1"] = "is plain http",
      ["http://localhost.s3cr3t.org"] = "is plain http", ["http://127.0.0.1.s3cr3t.org"] = "is plain http",
      ["http://127.0.0.2"] = "is plain http", ["http://[::2]"] = "is plain http",
      ["https://u:s3cr3t@a.b"] = "has a user name or password", ["https://s3cr3t@a.b"] = "has a user name or password",
      ["http://localhost@s3cr3t.org"] = "has a user name or password", ["https://a.b?key=s3cr3t"] = "has a query",
      ["https://a.b/x?s3cr3t"] = "has a query", ["https://a.b/#s3cr3t"] = "has a fragment", ["s3cr3t"] = "is no URL",
      [""] = "is no URL", ["//a.b"] = "is no URL", ["https:a.b"] = "is no URL", ["HTTPS://a.b"] = "is no URL",
      ["ftp://s3cr3t.org"] = "has a scheme that is not served", ["file:///etc/s3cr3t"] = "has a scheme that is not served",
      ["https://"] = "has no plain host", ["https://:443"] = "has no plain host", ["https://a..b"] = "has no plain host",
      ["https://a.b."] = "has no plain host", ["https://-a.b"] = "has no plain host", ["https://a_b.c"] = "has no plain host",
      ["https://127.1"] = "has no plain host", ["https://2130706433"] = "has no plain host",
      ["https://0x7f.0x1"] = "has no plain host",
      ["https://1.2.3.256"] = "has no plain host", ["https://010.1.1.1"] = "has no plain host",
      ["https://%61.b"] = "has no plain host",
      ["https://[::1"] = "has no plain host", ["https://[s3cr3t]"] = "has no plain host",
      ["https://{domain}"] = "has no plain host",
      ["https://a.b:0"] = "has no good port", ["https://a.b:65536"] = "has no good port",
      ["https://a.b:s3cr3t"] = "has no good port",
      ["https://a.b:"] = "has no good port", ["https://a.b/../x"] = "has . or .. in its path",
      ["https://a.b/%2e/s3cr3t"] = "has signs in its path",
      ["https://a.b/x;s3cr3t"] = "has signs in its path", ["https://a.b/ s3cr3t"] = "has spaces or other signs",
      ["https://a.b\\\\s3cr3t"] = "has no plain host", ["https://a.b\\ns3cr3t"] = "has spaces or other signs",
      ["https://é.s3cr3t"] = "has spaces or other signs",
    } do
      local message = fault((api(given)))
      assert.truthy(message:find("providers[1].api_url " .. words, 1, true), given .. " gave " .. message)
      assert.falsy(message:find("s3cr3t", 1, true), message)
    end
    assert_says((api("https://a.b/" .. ("x"):rep(1024))), "must be a URL, at most 1024 bytes")
    assert_says(e2b "api_url = 1", "must be a URL, at most 1024 bytes, not a number")
  end)

  it("may have places in braces where a sandbox or a domain is meant", function()
    for _, text in ipairs {
      "https://{port}-{id}.{domain}", "https://sandbox.{domain}/{id}/{port}/", "http://localhost:{port}/{id}", "https://{domain}",
    } do
      local loaded = assert(load_text(e2b(('api_url = "https://a.b", domain = "a.b", sandbox_url = "%s"'):format(text))))
      assert.are.equal((text:gsub("/$", "")), loaded.providers[1].sandbox_url)
    end
    for text, words in pairs {
      ["http://{domain}"] = "is plain http", ["http://localhost{port}"] = "is plain http", ["https://a.b{"] = "has no plain host",
      ["https://{A}.b"] = "has no plain host", ["https://{id}@a.b"] = "has a user name",
    } do
      assert_says(e2b(('api_url = "https://a.b", sandbox_url = "%s"'):format(text)), "providers[1].sandbox_url " .. words)
    end
  end)

  it("of a proxy may be plain, but has neither path nor password", function()
    for _, text in ipairs { "http://proxy.corp:3128", "https://p.q", "socks5://p:1080", "socks5h://10.0.0.1:1080/" } do
      assert(load_text(e2b('proxy = "' .. text .. '"')))
    end
    assert_says(e2b 'proxy = "http://u:p@proxy:3128"', "has a user name or password")
    assert_says(e2b 'proxy = "http://proxy/x"', "has a path; leave it out")
    assert_says(e2b 'proxy = "ftp://proxy"', "write http, https, socks5 or socks5h")
  end)

  it("over plain http is not sent through a proxy, which would see the key", function()
    assert_says(e2b 'api_url = "http://127.0.0.1:1", proxy = "http://p:3128"', "providers[1].proxy cannot be used with plain http")
    assert_says(remote("veryfront", 'api_url = "http://localhost", proxy = "http://p:3128"'),
      "providers[1].proxy cannot be used with plain http")
  end)
end)

describe("the credentials", function()
  it("come from a variable, a file, systemd or a program, with paths from the root", function()
    local path = support.file(credentials [[a = { source = "env:_A1" }, b = { source = "file:/x/y" }, c = { source = "file:k/y z" },
      d = { source = "cred:name.x" }, e = { source = "cmd:/bin/echo one two" }, f = { source = "cmd:./h x" },
      g = { source = "cmd:../h" } ]])
    local loaded = assert(config.load(path))
    local dir = loaded.dir
    local sources = {}
    for name, entry in pairs(loaded.credentials) do sources[name] = entry.source end
    assert.are.same({
      a = "env:_A1", b = "file:/x/y", c = "file:" .. dir .. "/k/y z", d = "cred:name.x", e = "cmd:/bin/echo one two",
      f = "cmd:" .. dir .. "/h x", g = "cmd:" .. dir .. "/../h",
    }, sources)
  end)

  it("come from beside the file, however the file is named", function()
    local source = assert(config.load "examples/cloud.lua").credentials.engine.source
    local folder = source:match "^file:(/.*)/engine%.key$"
    assert.are.equal("file", require("demilune.core").fs.stat(folder .. "/cloud.lua").type)
  end)

  it("are refused where the words of a program would be torn apart", function()
    local folder = (os.getenv "DML_SPEC_TMP" or "/tmp") .. "/two words"
    assert(os.execute(("mkdir -p '%s'"):format(folder)))
    local path = folder .. "/demilune.lua"
    local file = assert(io.open(path, "w"))
    file:write(credentials 'a = { source = "cmd:./h" }')
    file:close()
    local loaded, message = config.load(path)
    assert.is_nil(loaded)
    assert.truthy(message:find("credentials.a.source is a command in a folder with blanks in its name", 1, true), message)
  end)

  it("name a variable once: who reads it wipes it", function()
    assert_says(credentials 'a = { source = "env:KEY" }, b = { source = "env:KEY" }', "credentials.b.source is the source of a too")
    load_text(credentials 'a = { source = "env:A" }, b = { source = "env:B" }')
    load_text(credentials 'a = { source = "file:/k" }, b = { source = "file:/k" }')
  end)

  it("have sources of known kinds", function()
    local kinds = "must be env:NAME, file:PATH, cred:NAME or cmd:PROGRAM"
    for source, words in pairs {
      [""] = kinds, ["E2B_API_KEY"] = kinds, ["ENV:X"] = kinds, ["vault:x"] = kinds, ["https://x"] = kinds, [" env:X"] = kinds,
      ["env:"] = "names no environment variable", ["env:A-B"] = "names no environment variable",
      ["env:A B"] = "names no environment variable",
      ["file:"] = "names no file", ["file:~/key"] = "names no file", ["file:a\\nb"] = "names no file",
      ["cred:"] = "names no credential", ["cred:../x"] = "names no credential", ["cred:a/b"] = "names no credential",
      ["cmd:"] = "names no program", ["cmd:pass show x"] = "names no program", ["cmd: /bin/x"] = "names no program",
      ["cmd:/bin/x\\ty"] = "names no program",
    } do
      assert_says(credentials(('a = { source = "%s" }'):format(source)), "credentials.a.source " .. words)
    end
    assert_says(credentials('a = { source = "file:' .. ("x"):rep(4096) .. '" }'), "at most 4096 bytes")
    assert_says(credentials "a = { source = 1 }", "not a number")
    assert_says(credentials "a = {}", "credentials.a has no `source`")
    assert_says(credentials 'a = { source = "env:X", sorce = 1 }', "did you mean `source`?")
  end)

  it("never show what may be a key in place of a name", function()
    for _, key in ipairs(KEYS) do
      for _, text in ipairs {
        credentials(('a = "%s"'):format(key)), credentials(('a = { source = "%s" }'):format(key)),
        credentials(('a = { source = "file:~/%s" }'):format(key)), credentials(('a = { source = "cmd:%s" }'):format(key)),
        credentials(('"%s"'):format(key)), "return { credentials = '" .. key .. "' }",
        ('return { providers = { { id = "c", type = "e2b", credential = "%s" } } }'):format(key),
        e2b(('api_url = "%s"'):format(key)), e2b(('api_url = "https://%s@a.b"'):format(key)), e2b(('region = "%s/"'):format(key)),
        e2b(('preset = "%s"'):format(key)), e2b(('key_header = "%s:"'):format(key)), e2b(('proxy = "http://x:%s@p"'):format(key)),
        e2b(('domain = "%s"'):format(key:gsub("%.", "_"))), veryfront(('mcp_path = "%s"'):format(key)),
        ("return { vault = '%s' }"):format(key),
        -- Not even Lua's own words about the file.
        credentials(('a = { source = "%s }'):format(key)), credentials(("a = { source = '%s' '%s' }"):format(key, key)),
      } do
        local message = fault(text)
        assert.falsy(message:find(key, 1, true), message)
        assert.falsy(message:find(key:sub(1, 12), 1, true), message)
      end
    end
    for _, key in ipairs { KEYS[1], KEYS[2], KEYS[3] } do
      for _, prefix in ipairs { "env:", "file:", "cred:" } do
        local message = fault(credentials(('a = { source = "%s%s" }'):format(prefix, key)))
        assert.falsy(message:find(key:sub(1, 12), 1, true), message)
      end
    end
    assert(load_text(credentials 'a = { source = "file:/run/keys/0123456789abcdef0123456789abcdef" }'))
    for _, key in ipairs { KEYS[1], KEYS[2] } do
      for _, text in ipairs { credentials(key .. ' = { source = "env:X" }'), credentials("a = { source = " .. key .. " }") } do
        assert.falsy(fault(text):find(key:sub(1, 12), 1, true))
      end
    end
  end)
end)

describe("the example of clouds", function()
  it("is fine", function()
    local loaded = assert(config.load "examples/cloud.lua")
    local types = {}
    for _, provider in ipairs(loaded.providers) do types[#types + 1] = provider.type end
    table.sort(types)
    assert.are.same({ "e2b", "e2b", "local", "veryfront" }, types)
    assert.is_false(loaded.vault.require_lock)
  end)
end)
