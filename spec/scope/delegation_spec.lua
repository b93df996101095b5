--- What each tool asks of the provider: these requests with these values, and no others.

local fake = require "spec.scope.fake"

describe("delegation", function()
  local world
  before_each(fake.run(function()
    world = fake.world()
    world.provider:add("x1", { ends_in_ms = 600000 })
  end))

  --- The names of what a call asked for.
  local function asked(tool, arguments)
    world.provider:clear()
    local result = assert(world:call(tool, arguments))
    return world.provider:called(), result
  end

  it("creates with the options that were given, and always with a lifetime", fake.run(function()
    assert.are.same({ "create" }, (asked("create_sandbox")))
    local opts = world.provider:last "create"
    assert.are.equal(3600, opts.timeout_s)
    for _, field in ipairs { "template", "envs", "region", "cpu", "memory" } do assert.is_nil(opts[field], field) end
    asked("create_sandbox", { template = "base", timeout = 5, envs = { A = "b" }, cpu = 3, memory = 64, region = "eu" })
    opts = world.provider:last "create"
    assert.are.same({ "base", 5, { A = "b" }, 3, 64, "eu" },
      { opts.template, opts.timeout_s, opts.envs, opts.cpu, opts.memory, opts.region })
    assert.are.equal("local:spec", opts.principal)
    assert.are.equal(world.scope, opts.scope)
    assert.is_false(opts.keep)
  end))

  it("asks the control plane alone for list, get, timeout and kill of a foreign sandbox", fake.run(function()
    assert.are.same({ "list" }, (asked("list_sandboxes", { status = "paused", limit = 7, offset = 3, region = "eu" })))
    local opts = world.provider:last "list"
    assert.are.same({ "paused", 7, 3, "eu" }, { opts.status, opts.limit, opts.offset, opts.region })
    assert.is_nil(opts.owner)
    assert.are.same({ "get" }, (asked("get_sandbox", { sandbox_id = "x1" })))
    -- With a connection that is closed afterwards: nothing of it stays.
    assert.are.same({ "x1", { is_fresh = true } }, { world.provider:last "get" })
    local names = asked("set_sandbox_timeout", { sandbox_id = "x1", timeout = 77 })
    assert.are.equal("set_timeout", names[#names])
    assert.are.same({ "x1", 77, { is_fresh = true } }, { world.provider:last "set_timeout" })
    for _, name in ipairs(names) do assert.is_true(name == "get" or name == "set_timeout", name) end
    assert.are.same({ "kill" }, (asked("kill_sandbox", { sandbox_id = "x1" })))
    assert.are.same({}, world.scope:owned())
    assert.is_nil(world.scope.default)
  end))

  it("asks once for each of them about an owned sandbox", fake.run(function()
    assert(world:call("create_sandbox"))
    assert.are.same({ "get" }, (asked("get_sandbox")))
    assert.are.equal(1, select("#", world.provider:last "get"))
    assert.are.same({ "set_timeout" }, (asked("set_sandbox_timeout", { timeout = 600 })))
    assert.are.same({ "kill" }, (asked("kill_sandbox")))
  end))

  it("asks for the page that was wanted, of the provider that was named", fake.run(function()
    world = fake.world { providers = { { id = "local" }, { id = "other" } } }
    local other = world.app.providers[2]
    other:add "o1"
    local result = assert(world:call("list_sandboxes", { provider = "other", limit = 1 }))
    assert.are.equal("other:o1", result.sandboxes[1].sandbox_id)
    assert.are.same({}, world.provider:called())
    assert(world:call("list_sandboxes"))
    assert.are.same({ "list" }, world.provider:called())
    assert.are.same({ 1, 0 }, { result.limit, result.offset })
  end))

  it("sends commands with their directory and deadline", fake.run(function()
    world.provider:clear()
    assert(world:call("run_command", { command = "a b", cwd = "sub", timeout = 9, sandbox_id = "x1" }))
    local id, opts = world.provider:last "run"
    assert.are.same({ "x1", "a b", "/home/user/sub", 9 }, { id, opts.command, opts.cwd, opts.timeout_s })
    assert(world:call("run_command", { command = "a", sandbox_id = "x1" }))
    id, opts = world.provider:last "run"
    assert.are.same({ "x1", "/home/user", 50 }, { id, opts.cwd, opts.timeout_s })
    assert(world:call("run_command", { command = "a", sandbox_id = "x1", cwd = "~" }))
    assert.are.equal("/home/user/~", select(2, world.provider:last "run").cwd)
    assert(world:call("run_command", { command = "a", sandbox_id = "x1", cwd = "/tmp" }))
    assert.are.equal("/tmp", select(2, world.provider:last "run").cwd)
  end))

  it("takes relative paths from the working directory", fake.run(function()
    for given, absolute in pairs {
      ["a"] = "/home/user/a", ["./a"] = "/home/user/a", ["././/a"] = "/home/user/a", ["/a"] = "/a", ["~/a"] = "/home/user/~/a",
      ["."] = "/home/user", ["./"] = "/home/user", ["../a"] = "/home/user/../a",
    } do
      local result = assert(world:call("write_file", { path = given, content = "", sandbox_id = "x1" }))
      assert.are.equal(absolute, result.path)
      assert.are.equal(absolute, select(2, world.provider:last "write"))
    end
    assert.are.equal("/home/user", assert(world:call("list_files", { sandbox_id = "x1" })).path)
  end))

  it("writes whole files without an offset and appends with one", fake.run(function()
    assert(world:call("write_file", { path = "a", content = "ä", sandbox_id = "x1" }))
    assert.are.same({ "x1", "/home/user/a", "ä" }, { world.provider:last "write" })
    local result = assert(world:call("upload_file", { path = "a", content_base64 = "aGk=", offset = 4, sandbox_id = "x1" }))
    assert.are.same({ "x1", "/home/user/a", "hi", 4 }, { world.provider:last "write" })
    assert.are.same({ 2, 6 }, { result.bytes_written, result.size })
    assert(world:call("upload_file", { path = "a", content_base64 = "", sandbox_id = "x1" }))
    assert.are.same({ "x1", "/home/user/a", "" }, { world.provider:last "write" })
  end))

  it("downloads the range that was wanted and says where to go on", fake.run(function()
    local result = assert(world:call("download_file", { path = "a", offset = 2, length = 3, sandbox_id = "x1" }))
    assert.are.same({ "x1", "/home/user/a", 2, 3 }, { world.provider:last "read" })
    assert.are.same({ "MjM0", 10, 2, 3, 5 },
      { result.content_base64, result.size, result.offset, result.bytes_read, result.next_offset })
    result = assert(world:call("download_file", { path = "a", offset = 7, sandbox_id = "x1" }))
    assert.are.same({ 3, require("demilune.core").json.null }, { result.bytes_read, result.next_offset })
    assert.are.equal(24576, (select(4, world.provider:last "read")))
    result = assert(world:call("download_file", { path = "a", offset = 99, sandbox_id = "x1" }))
    assert.are.same({ 0, 99, "" }, { result.bytes_read, result.offset, result.content_base64 })
  end))

  it("takes the limits of the configuration where a call names none", fake.run(function()
    world = fake.world { config = {
      output = { stdout = 2000, stderr = 1000, read_file = 4, list_files = 3, download_file = 2 },
    } }
    world.provider:add "x1"
    assert(world:call("list_files", { sandbox_id = "x1" }))
    assert.are.equal(3, (select(3, world.provider:last "list_dir")))
    assert(world:call("download_file", { path = "a", sandbox_id = "x1" }))
    assert.are.equal(2, (select(4, world.provider:last "read")))
    local page = assert(world:call("read_file", { path = "a", sandbox_id = "x1" }))
    assert.are.equal("one\n", page.content)
    world.provider.outcome = {
      exit_code = 0, stdout = { head = ("a"):rep(5000), total = 5000 }, stderr = { head = ("b"):rep(5000), total = 5000 },
    }
    local run = assert(world:call("run_command", { command = "a", sandbox_id = "x1" }))
    assert.are.same({ 2000, 1000 }, { select(2, run.stdout:gsub("a", "")), select(2, run.stderr:gsub("b", "")) - 1 }) -- "bytes"
  end))

  it("creates before work that may, and says so once", fake.run(function()
    local names, result = asked("run_command", { command = "a" })
    assert.are.equal("create", names[1])
    assert.is_true(result.created)
    names, result = asked("run_command", { command = "a" })
    assert.are.same({ "run" }, names)
    assert.is_nil(result.created)
    assert.is_false(world:call("create_sandbox").created ~= nil)
  end))

  it("passes what the provider fails with, as ours alone", fake.run(function()
    for category, retryable in pairs {
      no_capacity = true, provider_rejected = false, authentication_failed = false, provider_forbidden = false,
      quota_exceeded = false, rate_limited = true, connection_failed = false, unavailable = false,
      provider_timeout = false, invalid_response = false, local_isolation_unavailable = false,
    } do
      world.provider.fail.create = category
      local _, err = world:call("create_sandbox")
      assert.are.same({ category, retryable }, { err.category, err.retryable })
      _, err = world:call("run_command", { command = "a" })
      assert.are.same({ category, retryable }, { err.category, err.retryable })
      assert.are.same({}, world.scope:owned())
    end
  end))

  it("calls a failure retryable where repeating does no harm", fake.run(function()
    assert(world:call("create_sandbox"))
    for _, category in ipairs { "connection_failed", "unavailable", "provider_timeout" } do
      for method, tools in pairs {
        get = { get_sandbox = true }, set_timeout = { set_sandbox_timeout = true }, kill = { kill_sandbox = true },
        list = { list_sandboxes = true }, read = { download_file = true }, open_read = { read_file = true },
        list_dir = { list_files = true }, write = { write_file = false, upload_file = false }, run = { run_command = false },
      } do
        world.provider.fail[method] = category
        for tool, retryable in pairs(tools) do
          local _, err = world:call(tool, ({
            set_sandbox_timeout = { timeout = 60 }, download_file = { path = "a" }, read_file = { path = "a" },
            write_file = { path = "a", content = "" }, upload_file = { path = "a", content_base64 = "" },
            run_command = { command = "a" },
          })[tool])
          assert.are.same({ category, retryable }, { err.category, err.retryable }, tool)
        end
        world.provider.fail[method] = nil
      end
    end
  end))

  it("makes a bug `internal` with an id for the log, and shows nothing of it", fake.run(function()
    world.provider.fail.create = function() error("secret words of a bug") end
    require("demilune.core").log.set_level "off"
    local _, err = world:call("create_sandbox")
    require("demilune.core").log.set_level "info"
    assert.are.equal("internal", err.category)
    assert.is_nil(require("demilune.core").json.encode(err):find("secret", 1, true))
    assert.truthy(err.suggestion:find "^Look for fault [a-z2-7]+ in the server's log%.$")
  end))
end)
