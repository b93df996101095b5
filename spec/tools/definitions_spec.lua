--- The tools as clients see them: the list of the contract, its sizes, its schemas, its annotations.

local check = require "spec.tools.valid"
local core = require "demilune.core"
local fake = require "spec.scope.fake"
local instructions = require "demilune.mcp.instructions"
local real_app = require "demilune.app"
local config = require "demilune.config"

local json = core.json

local NAMES = {
  "create_sandbox", "run_code", "run_command", "read_file", "write_file", "list_files", "kill_sandbox", "list_sandboxes",
  "get_sandbox", "set_sandbox_timeout", "start_background_task", "get_background_task", "cancel_background_task",
  "upload_file", "download_file",
}

--- Arguments and what is required, from the contract.
local ARGUMENTS = {
  create_sandbox = { "cpu envs memory provider region template timeout", "" },
  run_code = { "code language sandbox_id timeout", "code" },
  run_command = { "command cwd sandbox_id timeout", "command" },
  read_file = { "encoding max_bytes max_lines path sandbox_id start_line", "path" },
  write_file = { "content path sandbox_id", "content path" },
  list_files = { "limit path sandbox_id", "" },
  kill_sandbox = { "sandbox_id", "" },
  list_sandboxes = { "limit offset provider region status", "" },
  get_sandbox = { "sandbox_id", "" },
  set_sandbox_timeout = { "sandbox_id timeout", "timeout" },
  start_background_task = { "command cwd sandbox_id timeout", "command" },
  get_background_task = { "stderr_offset stdout_offset task_id wait", "" },
  cancel_background_task = { "task_id", "task_id" },
  upload_file = { "content_base64 offset path sandbox_id sha256", "content_base64 path" },
  download_file = { "length offset path sandbox_id", "path" },
}

local RESULTS = {
  create_sandbox = "cpu_count end_at memory_mb network note sandbox_id status template url workdir",
  run_code = "created duration_ms exit_code note output_files result sandbox_id stderr stderr_path stderr_truncated stdout"
    .. " stdout_path stdout_truncated timed_out",
  run_command = "created duration_ms exit_code note sandbox_id stderr stderr_path stderr_truncated stdout stdout_path"
    .. " stdout_truncated timed_out",
  read_file = "content created end_line next_line note sandbox_id size start_line truncated",
  write_file = "bytes_written created note path sandbox_id success",
  list_files = "created files note path sandbox_id total truncated",
  kill_sandbox = "existed note sandbox_id success",
  list_sandboxes = "limit note offset sandboxes",
  get_sandbox = "cpu_count disk_size_mb end_at memory_mb note region sandbox_id started_at status template",
  set_sandbox_timeout = "note sandbox_id success timeout",
  start_background_task = "created note sandbox_id started_at status task_id",
  get_background_task = "exit_code finished_at note sandbox_id started_at status stderr stderr_next_offset stderr_path"
    .. " stderr_truncated stdout stdout_next_offset stdout_path stdout_truncated task_id tasks",
  cancel_background_task = "note sandbox_id status success task_id",
  upload_file = "bytes_written created note path sandbox_id sha256 size success",
  download_file = "bytes_read content_base64 created next_offset note offset path sandbox_id sha256 size",
}

--- readOnly, destructive, idempotent, openWorld; of templates without a network.
local ANNOTATIONS = {
  list_sandboxes = { true, false, true, false }, get_sandbox = { true, false, true, false },
  get_background_task = { true, false, true, false }, read_file = { true, false, true, false },
  list_files = { true, false, true, false }, download_file = { true, false, true, false },
  create_sandbox = { false, false, false, false },
  run_code = { false, true, false, false }, run_command = { false, true, false, false },
  start_background_task = { false, true, false, false },
  write_file = { false, true, true, false }, upload_file = { false, true, true, false },
  set_sandbox_timeout = { false, true, false, false },
  kill_sandbox = { false, true, true, false }, cancel_background_task = { false, true, true, false },
}

local function words_of(object)
  local names = {}
  for name in pairs(object or {}) do names[#names + 1] = name end
  table.sort(names)
  return table.concat(names, " ")
end

local function list_of(tools)
  local list = {}
  for i, tool in ipairs(tools) do list[i] = tool.definition end
  return list
end

describe("the tools", function()
  local app = real_app.new(config.defaults())

  it("are the fifteen, in their order", function()
    local names = {}
    for i, tool in ipairs(app.tools) do names[i] = tool.name end
    assert.are.same(NAMES, names)
  end)

  it("take the arguments of the contract and nothing else", function()
    for _, tool in ipairs(app.tools) do
      local schema = json.decode(json.encode(tool.definition.inputSchema))
      assert.are.equal("object", schema.type)
      assert.is_false(schema.additionalProperties, tool.name)
      assert.are.equal(ARGUMENTS[tool.name][1], words_of(schema.properties), tool.name)
      local required = table.move(schema.required or {}, 1, #(schema.required or {}), 1, {})
      table.sort(required)
      assert.are.equal(ARGUMENTS[tool.name][2], table.concat(required, " "), tool.name)
      if schema.properties.sandbox_id then
        assert.are.same({ type = "string", minLength = 1, maxLength = 256 }, schema.properties.sandbox_id)
      end
    end
  end)

  it("promise the results of the contract, each with room for a note", function()
    for _, tool in ipairs(app.tools) do
      local schema = json.decode(json.encode(tool.definition.outputSchema))
      assert.are.equal("object", schema.type)
      assert.are.equal(RESULTS[tool.name], words_of(schema.properties), tool.name)
      for _, name in ipairs { "created", "note", "tasks" } do
        for _, required in ipairs(schema.required or {}) do assert.are_not.equal(name, required) end
      end
    end
  end)

  it("publish standard keywords only", function()
    local known = {
      type = true, properties = true, required = true, additionalProperties = true, enum = true, minimum = true, maximum = true,
      minLength = true, maxLength = true, pattern = true, default = true, description = true, items = true,
    }
    local function walk(schema, path)
      for key, value in pairs(schema) do
        assert.is_true(known[key] or false, path .. "." .. key)
        if key == "properties" then
          for name, property in pairs(value) do walk(property, path .. "." .. name) end
        elseif key == "items" or (key == "additionalProperties" and type(value) == "table") then
          walk(value, path .. "." .. key)
        end
      end
    end
    for _, tool in ipairs(app.tools) do
      walk(tool.definition.inputSchema, tool.name)
      walk(tool.definition.outputSchema, tool.name)
    end
  end)

  it("have all four annotations, as the contract's table says", function()
    for _, tool in ipairs(app.tools) do
      local shown = tool.definition.annotations
      assert.are.same(ANNOTATIONS[tool.name],
        { shown.readOnlyHint, shown.destructiveHint, shown.idempotentHint, shown.openWorldHint }, tool.name)
    end
  end)

  it("are called less dangerous under annotations = sandboxed, and open where there is a network", function()
    local sandboxed = fake.world { config = { annotations = "sandboxed" } }.app
    for _, name in ipairs { "run_code", "run_command", "start_background_task", "write_file", "upload_file" } do
      assert.is_false(sandboxed.tools_by_name[name].definition.annotations.destructiveHint, name)
    end
    for _, name in ipairs { "kill_sandbox", "set_sandbox_timeout", "cancel_background_task" } do
      assert.is_true(sandboxed.tools_by_name[name].definition.annotations.destructiveHint, name)
    end
    local loaded = config.defaults()
    local open = real_app.new(loaded)
    getmetatable(open.providers[1]).__index.has_network = function() return true end
    local rebuilt = real_app.new(loaded)
    getmetatable(open.providers[1]).__index.has_network = function() return false end
    for _, name in ipairs { "run_code", "run_command", "start_background_task" } do
      assert.is_true(rebuilt.tools_by_name[name].definition.annotations.openWorldHint, name)
    end
    assert.is_false(rebuilt.tools_by_name.write_file.definition.annotations.openWorldHint)
  end)

  it("list in 10,000 bytes, 16,000 with the output schemas", function()
    local list = list_of(app.tools)
    assert.is_true(#json.encode(list) <= 16000, "with: " .. #json.encode(list))
    for i, definition in ipairs(list) do
      list[i] = {}
      for key, value in pairs(definition) do
        if key ~= "outputSchema" then list[i][key] = value end
      end
    end
    assert.is_true(#json.encode(list) <= 10000, "without: " .. #json.encode(list))
  end)

  it("are described in 400 characters each, with a title", function()
    for _, tool in ipairs(app.tools) do
      assert.is_true(utf8.len(tool.definition.description) <= 400, tool.name)
      assert.is_true(#tool.definition.description >= 80, tool.name)
      assert.is_true(#tool.definition.title >= 5, tool.name)
    end
  end)

  it("send models to each other where another is right", function()
    for name, others in pairs {
      run_code = { "run_command", "start_background_task" }, run_command = { "start_background_task" },
      read_file = { "download_file" }, download_file = { "read_file" }, write_file = { "upload_file" },
      upload_file = { "write_file" }, set_sandbox_timeout = { "run_command" },
    } do
      for _, other in ipairs(others) do
        assert.truthy(app.tools_by_name[name].definition.description:find(other, 1, true), name .. " names " .. other)
      end
    end
    for _, name in ipairs { "run_command", "run_code" } do
      assert.truthy(app.tools_by_name[name].definition.description:find("timeout", 1, true))
    end
  end)

  it("promise a sandbox that starts by itself only where there is a default", function()
    local on = fake.world().app.tools_by_name
    local off = fake.world({ config = { default_sandbox = "off" } }).app
    for _, name in ipairs { "run_command", "start_background_task" } do
      assert.truthy(on[name].definition.description:find("Starts a sandbox", 1, true), name)
    end
    for _, name in ipairs { "run_command", "run_code", "start_background_task", "get_sandbox", "kill_sandbox",
      "set_sandbox_timeout" } do
      assert.truthy(off.tools_by_name[name].definition.description:find("Needs a sandbox_id", 1, true), name)
    end
    for _, tool in ipairs(off.tools) do
      for _, words in ipairs { "Starts a sandbox", "default", "by themselves", "Without sandbox_id" } do
        assert.is_nil(tool.definition.description:find(words, 1, true), tool.name .. ": " .. words)
      end
      assert.is_true(utf8.len(tool.definition.description) <= 400, tool.name)
    end
  end)

  it("name the languages where the language is chosen", function()
    local language = app.tools_by_name.run_code.definition.inputSchema.properties.language
    for _, name in ipairs(language.enum) do assert.truthy(language.description:find(name, 1, true), name) end
    assert.are.equal(5, #language.enum)
  end)

  it("name providers, templates and the longest lifetime of the configuration", function()
    local world = fake.world { providers = { { id = "local", max_lifetime = 500, lifetime = 5 }, { id = "b",
      max_lifetime = 900 } } }
    local properties = world.app.tools_by_name.create_sandbox.definition.inputSchema.properties
    assert.are.same({ "local", "b" }, table.move(properties.provider.enum, 1, 9, 1, {}))
    assert.are.equal(900, properties.timeout.maximum)
    assert.truthy(properties.template.description:find("base", 1, true))
    assert.truthy(properties.template.description:find("b", 1, true))
    properties = world.app.tools_by_name.list_sandboxes.definition.inputSchema.properties
    assert.are.same({ "local", "b" }, table.move(properties.provider.enum, 1, 9, 1, {}))
  end)
end)

describe("instructions", function()
  it("hold the rules that no single tool can tell, in 2,048 characters", function()
    local text = instructions.text(real_app.new(config.defaults()))
    assert.is_true(#text <= 2048)
    for _, words in ipairs {
      "starts by itself", "new shell", "do not carry over", "start_background_task", "ends", "files", "no network",
      "stdout_path", "secrets", "base", "local",
    } do
      assert.truthy(text:find(words, 1, true), words)
    end
  end)

  it("tell the habits of the configuration", function()
    local text = instructions.text(fake.world({ config = { default_sandbox = "off", keep_on_exit = true } }).app)
    assert.truthy(text:find("pass its sandbox_id", 1, true))
    assert.is_nil(text:find("by itself", 1, true))
    assert.is_nil(text:find("this server ends", 1, true))
    -- A use renews only once half of the life is over, so less than all of it may be left.
    text = instructions.text(fake.world({}).app)
    assert.truthy(text:find("ends 30 minutes to one hour after its last use", 1, true))
    assert.truthy(text:find("24 hours after its creation at the latest, and when this server ends", 1, true))
    text = instructions.text(fake.world({ providers = { { lifetime = 1, max_lifetime = 90 } } }).app)
    assert.truthy(text:find("ends one second after its last use", 1, true))
  end)

  it("stay within their bounds, whole characters, with many templates", function()
    local world = fake.world()
    local names = {}
    for i = 1, 64 do names[i] = "täuschend-lang-" .. ("x"):rep(40) .. i end
    world.app.environment.template_names = table.concat(names, ", ")
    local text = instructions.text(world.app)
    assert.is_true(#text <= 2048)
    assert.is_not_nil(utf8.len(text))
  end)
end)

describe("results", function()
  local CALLS = {
    { "create_sandbox", {} }, { "run_code", { code = "1" } }, { "run_command", { command = "a" } }, { "read_file",
      { path = "a" } },
    { "write_file", { path = "a", content = "" } }, { "list_files", {} }, { "list_sandboxes", {} }, { "get_sandbox", {} },
    { "set_sandbox_timeout", { timeout = 60 } }, { "upload_file", { path = "a", content_base64 = "" } },
    { "download_file", { path = "a" } }, { "start_background_task", { command = "a" } }, { "kill_sandbox", {} },
  }

  it("are what the output schemas promise, every required and nullable field there", fake.run(function()
    local world = fake.world()
    for _, one in ipairs(CALLS) do
      local name, arguments = one[1], one[2]
      local tool = world.app.tools_by_name[name]
      local result = assert(world:call(name, arguments))
      local shown = json.decode(json.encode(result))
      assert.is_nil(check(shown, json.decode(json.encode(tool.definition.outputSchema))), name)
      for _, field in ipairs(tool.output.nulls) do assert.is_not_nil(shown[field], name .. "." .. field) end
    end
  end))

  it("stand in the text block too, but for the bytes of a download", fake.run(function()
    local world = fake.world()
    assert(world:call("create_sandbox"))
    for _, one in ipairs { { "run_command", { command = "a" } }, { "download_file", { path = "a" } } } do
      local tool = world.app.tools_by_name[one[1]]
      local result = assert(world:call(one[1], one[2]))
      local shown = json.decode(world.app:encode_result(tool, result, nil, nil, true))
      assert.is_false(shown.isError)
      assert.are.same({ 1, "text" }, { #shown.content, shown.content[1].type })
      local text = json.decode(shown.content[1].text)
      if one[1] == "download_file" then
        assert.is_nil(text.content_base64)
        text.content_base64 = shown.structuredContent.content_base64
        -- Clients of revisions without structured content have nothing but the text.
        local old = json.decode(world.app:encode_result(tool, result, nil, nil, false))
        assert.is_nil(old.structuredContent)
        assert.are.equal("MDEyMzQ1Njc4OQ==", json.decode(old.content[1].text).content_base64)
      end
      assert.are.same(shown.structuredContent, text)
    end
  end))

  it("stand whole beside the error of a command that is one", fake.run(function()
    local world = fake.world { config = { nonzero_exit_is_error = true } }
    world.provider.outcome = { exit_code = 4 }
    for name, arguments in pairs { run_command = { command = "a" }, run_code = { code = "1" } } do
      local tool = world.app.tools_by_name[name]
      local result, err, partial = world:call(name, arguments)
      assert.is_nil(result)
      assert.are.equal("command_failed", err.category)
      local shown = json.decode(json.decode(world.app:encode_result(tool, nil, err, partial, true)).content[1].text)
      shown.error = nil
      assert.is_nil(check(shown, json.decode(json.encode(tool.definition.outputSchema))), name)
      for _, field in ipairs(tool.output.nulls) do assert.is_not_nil(shown[field], name .. "." .. field) end
      assert.are.equal(4, shown.exit_code)
    end
  end))

  it("keep what is not ASCII as it is", fake.run(function()
    local world = fake.world()
    world.provider.outcome = { exit_code = 0, stdout = { head = "häß€😀", total = 12 } }
    local result = assert(world:call("run_command", { command = "a" }))
    local text = world.app:encode_result(world.app.tools_by_name.run_command, result, nil, nil, true)
    assert.truthy(text:find("häß€😀", 1, true))
  end))
end)
