--- Bad arguments are refused before any provider is asked, and the refusal names the field, never the value.

local core = require "demilune.core"
local fake = require "spec.scope.fake"

local null = core.json.null

--- Sound arguments of every tool, to be spoilt one at a time.
local SOUND = {
  create_sandbox = { template = "base", timeout = 600, envs = { A = "b" }, cpu = 2, memory = 64, provider = "local" },
  run_code = { code = "1", language = "python", sandbox_id = "s1", timeout = 30 },
  run_command = { command = "true", sandbox_id = "s1", cwd = "/", timeout = 30 },
  read_file = { path = "a", sandbox_id = "s1", start_line = 1, max_lines = 5, max_bytes = 5, encoding = "utf-8" },
  write_file = { path = "a", content = "b", sandbox_id = "s1" },
  list_files = { path = "a", sandbox_id = "s1", limit = 5 },
  kill_sandbox = { sandbox_id = "s1" },
  list_sandboxes = { status = "running", limit = 10, offset = 0, provider = "local" },
  get_sandbox = { sandbox_id = "s1" },
  set_sandbox_timeout = { timeout = 600, sandbox_id = "s1" },
  start_background_task = { command = "true", sandbox_id = "s1", cwd = "/", timeout = 30 },
  get_background_task = { task_id = "bt_x", stdout_offset = 0, stderr_offset = 0, wait = 0 },
  cancel_background_task = { task_id = "bt_x" },
  upload_file = { path = "a", content_base64 = "aGk=", offset = 0, sandbox_id = "s1" },
  download_file = { path = "a", offset = 0, length = 5, sandbox_id = "s1" },
}

--- Integers and their bounds, by tool and argument; a missing maximum is none.
local BOUNDS = {
  create_sandbox = { timeout = { 1, 86400 }, cpu = { 1 }, memory = { 1 } },
  run_code = { timeout = { 1, 86400 } },
  run_command = { timeout = { 1, 86400 } },
  read_file = { start_line = { 1 }, max_lines = { 1, 20000 }, max_bytes = { 1, 1048576 } },
  list_files = { limit = { 1, 2000 } },
  list_sandboxes = { limit = { 1, 100 }, offset = { 0 } },
  set_sandbox_timeout = { timeout = { 1, 86400 } },
  start_background_task = { timeout = { 1, 86400 } },
  get_background_task = { stdout_offset = { 0 }, stderr_offset = { 0 }, wait = { 0, 30 } },
  upload_file = { offset = { 0 } },
  download_file = { offset = { 0 }, length = { 1, 4194304 } },
}

local REQUIRED = {
  run_code = { "code" }, run_command = { "command" }, read_file = { "path" }, write_file = { "path", "content" },
  set_sandbox_timeout = { "timeout" }, start_background_task = { "command" }, cancel_background_task = { "task_id" },
  upload_file = { "path", "content_base64" }, download_file = { "path" },
}

--- Texts that may be empty, and what does not apply to.
local MAY_BE_EMPTY = { content = true, content_base64 = true }

local MARK = "Xq7canaryZ"

local function with(tool, field, value)
  local arguments = {}
  for key, kept in pairs(SOUND[tool]) do arguments[key] = kept end
  arguments[field] = value
  return arguments
end

--- Refused as invalid, with the field's name, without the mark, and without a call of the provider.
local function assert_refused(world, tool, field, value, what)
  world.provider:clear()
  local result, err = world:call(tool, with(tool, field, value))
  local where = ("%s.%s = %s"):format(tool, field, what)
  assert.is_nil(result, where)
  assert.are.equal("invalid_argument", err.category, where)
  assert.are.equal(field, err.field, where)
  assert.is_false(err.retryable, where)
  local text = core.json.encode(err)
  assert.is_nil(text:find(MARK, 1, true), where)
  assert.are.same({}, world.provider:called(), where)
end

local function each_argument(fn)
  for tool, arguments in pairs(SOUND) do
    for field, value in pairs(arguments) do fn(tool, field, value) end
  end
end

describe("boundaries", function()
  local world
  before_each(fake.run(function()
    world = fake.world()
    world.provider:add "s1"
  end))

  it("refuse a wrong type in every argument of every tool", fake.run(function()
    each_argument(function(tool, field, sound)
      local wrong = { { true, "a boolean" }, { core.json.array { MARK }, "an array" }, { 1.5, "a fraction" }, { 0 / 0, "NaN" } }
      if type(sound) ~= "table" then wrong[#wrong + 1] = { { [MARK] = MARK }, "an object" } end
      if type(sound) ~= "string" then wrong[#wrong + 1] = { MARK, "a text" } end
      if type(sound) ~= "number" then wrong[#wrong + 1] = { 7, "a number" } end
      for _, one in ipairs(wrong) do assert_refused(world, tool, field, one[1], one[2]) end
    end)
  end))

  it("take both ends of every range and refuse what lies beyond", fake.run(function()
    for tool, fields in pairs(BOUNDS) do
      for field, range in pairs(fields) do
        assert_refused(world, tool, field, range[1] - 1, "below")
        assert_refused(world, tool, field, math.mininteger, "the least integer")
        assert_refused(world, tool, field, 1e300, "beyond integers")
        if range[2] then assert_refused(world, tool, field, range[2] + 1, "above") end
        for _, bound in pairs(range) do
          local _, err = world:call(tool, with(tool, field, bound))
          assert.is_false(err ~= nil and err.category == "invalid_argument", ("%s.%s = %d"):format(tool, field, bound))
        end
      end
    end
  end))

  it("take 1.0 for 1, and no boolean", fake.run(function()
    local result = assert(world:call("set_sandbox_timeout", { sandbox_id = "s1", timeout = 60.0 }))
    assert.are.equal("integer", math.type(result.timeout))
    assert_refused(world, "set_sandbox_timeout", "timeout", true, "true")
    assert_refused(world, "set_sandbox_timeout", "timeout", "60", "digits in a text")
  end))

  it("take null for an argument that is not there", fake.run(function()
    for tool, arguments in pairs(SOUND) do
      local required = {}
      for _, field in ipairs(REQUIRED[tool] or {}) do required[field] = true end
      for field in pairs(arguments) do
        local _, err = world:call(tool, with(tool, field, null))
        local is_refused = err ~= nil and err.category == "invalid_argument"
        -- Offsets and wait need the task that is missing then.
        if not (tool == "get_background_task" and field == "task_id") then
          assert.are.equal(required[field] or false, is_refused, tool .. "." .. field)
        end
      end
    end
  end))

  it("name a required argument that is missing", fake.run(function()
    for tool, fields in pairs(REQUIRED) do
      for _, field in ipairs(fields) do
        local arguments = with(tool, field, nil)
        arguments[field] = nil
        local _, err = world:call(tool, arguments)
        assert.are.equal("invalid_argument", err.category)
        assert.are.equal(field, err.field)
        assert.are.equal(field .. " is required.", err.message)
        assert.are.equal("string", type(err.expected))
      end
    end
  end))

  it("refuse empty texts, but for contents", fake.run(function()
    each_argument(function(tool, field, sound)
      if type(sound) ~= "string" then return end
      if MAY_BE_EMPTY[field] then
        assert(world:call(tool, with(tool, field, "")))
      else
        assert_refused(world, tool, field, "", "empty")
      end
    end)
  end))

  it("refuse NUL in every text", fake.run(function()
    each_argument(function(tool, field, sound)
      if type(sound) == "string" then assert_refused(world, tool, field, MARK .. "\0", "with NUL") end
    end)
    assert_refused(world, "create_sandbox", "envs", { A = MARK .. "\0" }, "with NUL")
  end))

  it("hold texts to their lengths", fake.run(function()
    local longest = { sandbox_id = 256, task_id = 256, path = 4096, cwd = 4096, command = 1 << 20, code = 1 << 20 }
    each_argument(function(tool, field)
      local most = longest[field]
      if not most then return end
      assert_refused(world, tool, field, MARK .. ("x"):rep(most + 1 - #MARK), "one byte too long")
      local _, err = world:call(tool, with(tool, field, ("x"):rep(most)))
      local is_length = err ~= nil and err.category == "invalid_argument" and (err.expected or ""):find "bytes"
      assert.is_falsy(is_length, tool .. "." .. field)
    end)
  end))

  it("refuse unknown arguments by name, cut to 64 characters", fake.run(function()
    for tool in pairs(SOUND) do
      assert_refused(world, tool, "team", MARK, "an unknown argument")
    end
    local long = ("ä"):rep(70)
    local _, err = world:call("get_sandbox", { [long] = MARK })
    assert.are.equal(("ä"):rep(64), err.field)
    assert.are.same({ "sandbox_id" }, err.allowed)
  end))

  it("name the same field whatever the order of the arguments", fake.run(function()
    for _ = 1, 20 do
      local _, err = world:call("run_command", { timeout = 0, cwd = "", command = "", zzz = 1, aaa = 2 })
      assert.are.equal("aaa", err.field)
      _, err = world:call("run_command", { timeout = 0, cwd = "", command = "" })
      assert.are.equal("command", err.field)
    end
  end))

  it("hold envs to names, texts and sizes", fake.run(function()
    local many = {}
    for i = 1, 257 do many["A" .. i] = "x" end
    local large = {}
    for i = 1, 40 do large["A" .. i] = MARK .. ("x"):rep(30000) end
    for what, envs in pairs {
      ["a name with ="] = { ["A="] = MARK }, ["a name with a digit first"] = { ["1A"] = MARK },
        ["an empty name"] = { [""] = MARK },
      ["a number"] = { A = 1 }, ["null"] = { A = null }, ["a boolean"] = { A = true }, ["an object"] = { A = { B = MARK } },
      ["too long"] = { A = MARK .. ("x"):rep(32 * 1024) }, ["too many"] = many, ["too much"] = large, ["a list"] = { MARK },
      ["a name beyond ASCII"] = { ["Ä"] = MARK },
    } do
      assert_refused(world, "create_sandbox", "envs", envs, what)
    end
    many.A257 = nil
    assert(world:call("create_sandbox", { envs = many }))
    assert(world:call("create_sandbox", { envs = { A = ("x"):rep(32 * 1024), _ = "" } }))
    assert(world:call("create_sandbox", { envs = {} }))
    assert_refused(world, "create_sandbox", "envs", core.json.array {}, "an empty list")
  end))

  it("refuse ids that are none, without a call", fake.run(function()
    for _, id in ipairs { "a/b", "../x", "a b", "ä", "-a", ".a", "a?b", "local:", "local:a/b", ("x"):rep(129) } do
      assert_refused(world, "get_sandbox", "sandbox_id", id, id)
    end
  end))

  it("know language, status, encoding and provider by their lists", fake.run(function()
    for tool, field in pairs { run_code = "language", list_sandboxes = "status", read_file = "encoding",
      create_sandbox = "provider" } do
      assert_refused(world, tool, field, MARK, "not listed")
      local _, err = world:call(tool, with(tool, field, MARK))
      assert.is_true(#err.allowed >= 1)
    end
    local _, err = world:call("create_sandbox", { provider = "cloud" })
    assert.are.equal("provider must be one of local.", err.message)
    _, err = world:call("run_code", { code = "1", language = "ruby" })
    assert.are.same({ "python", "javascript", "shell", "typescript", "r" }, err.allowed)
  end))

  it("take base64 in its one form and check its digest before anything is written", fake.run(function()
    for _, text in ipairs { "aGk", "aGk==", "aG k=", "aGk=\n", "aGl=", "a-_=", "====", "aGk=aGk=" } do
      assert_refused(world, "upload_file", "content_base64", text, text)
    end
    local digest = core.crypto.sha256 "hi"
    for _, value in ipairs { digest:sub(1, 63), digest .. "0", ("g"):rep(64), core.crypto.sha256 "ho" } do
      assert_refused(world, "upload_file", "sha256", value, value)
    end
    assert(world:call("upload_file", with("upload_file", "sha256", digest:upper())))
    assert(world:call("upload_file", with("upload_file", "sha256", digest)))
  end))

  it("let nothing pass unheeded: offsets and wait need a task", fake.run(function()
    for _, field in ipairs { "stdout_offset", "stderr_offset", "wait" } do
      local _, err = world:call("get_background_task", { [field] = 1 })
      assert.are.equal(field, err.field)
    end
    assert(world:call("get_background_task", { wait = 0 }))
  end))

  it("hold a lifetime to what its own provider grants", fake.run(function()
    local two = fake.world { providers = { { id = "local" }, { id = "short", max_lifetime = 100, lifetime = 50 } } }
    local _, err = two:call("create_sandbox", { provider = "short", timeout = 101 })
    assert.are.equal("invalid_argument", err.category)
    assert.are.equal("timeout", err.field)
    assert.are.equal("integer from 1 to 100", err.expected)
    assert.are.equal(0, two.app.providers[2]:called "create")
    assert(two:call("create_sandbox", { provider = "short", timeout = 100 }))
    assert(two:call("create_sandbox", { timeout = 86400 }))
  end))
end)
