--- The two tools of a Veryfront account as clients see them: the published schemas, word for word, and what is ours.

local core = require "demilune.core"
local schema = require "demilune.schema"
local tools = require "demilune.tools"

local json = core.json
local CREATE, UPDATE = "veryfront__create_sandbox", "veryfront__update_sandbox_lifetime"
--- SHA-256 of the published schemas as core.json writes them (keys sorted), input and output.
local DIGESTS = {
  [CREATE] = {
    "f8856f8b1d3c4a6e43dd9ddf685d68162753f9db3d32cf4f73e266ed617b87c4",
    "05e558119c524d3b995409fb0d9576f550adec8746da162af05596847b991340",
  },
  [UPDATE] = {
    "1db6db0ec14bc7a5abb26cde72da75f50558b7cf5d27d381a691053bffb3c686",
    "6841bef065d2c4d826cda5bfc0564637924ea3bdc8b567ae00ca91dcf25bcd2a",
  },
}

local function environment(has_veryfront)
  return {
    provider_ids = { "vf" }, template_names = "", languages = { "python" }, has_network = true, has_veryfront = has_veryfront,
    has_default = true, max_lifetime = 86400, annotations = "strict",
    output = { stdout = 1, stderr = 1, read_file = 1, list_files = 1, download_file = 1 },
  }
end

local function published(name)
  local file = io.open("../shared/data/" .. name .. ".json")
  if not file then return nil end
  local value = json.decode(file:read "a")
  file:close()
  return value
end

describe("the tools of a Veryfront account", function()
  local list, by_name = tools.build(environment(true))

  it("are there only where such a provider is configured, after the others", function()
    assert.are.equal(15, #(tools.build(environment(false))))
    assert.are.equal(17, #list)
    assert.are.same({ CREATE, UPDATE }, { list[16].name, list[17].name })
  end)

  it("have the published schemas, to the word", function()
    for name, digests in pairs(DIGESTS) do
      local definition = by_name[name].definition
      assert.are.same(digests, {
        core.crypto.sha256(json.encode(definition.inputSchema)), core.crypto.sha256(json.encode(definition.outputSchema)),
      }, name)
    end
  end)

  it("have the schemas of the data beside the checkout", function()
    for _, name in ipairs { CREATE, UPDATE } do
      local data = published(name)
      if not data then return pending "the published schemas are not there" end
      local definition = by_name[name].definition
      assert.are.same(data.inputSchema, json.decode(json.encode(definition.inputSchema)), name)
      assert.are.same(data.outputSchema, json.decode(json.encode(definition.outputSchema)), name)
      assert.are.equal(json.encode(data.inputSchema), json.encode(definition.inputSchema))
      assert.are.equal(json.encode(data.outputSchema), json.encode(definition.outputSchema))
    end
  end)

  it("say what changes: neither reads only, the update may end a sandbox, both reach an account", function()
    local function hints(name)
      local shown = by_name[name].definition.annotations
      return { shown.readOnlyHint, shown.destructiveHint, shown.idempotentHint, shown.openWorldHint }
    end
    assert.are.same({ false, false, false, true }, hints(CREATE))
    assert.are.same({ false, true, false, true }, hints(UPDATE))
    assert.are.same({ false, false, false, false }, hints "create_sandbox")
    assert.are.same({ false, true, false, false }, hints "set_sandbox_timeout")
  end)

  it("are described in 400 characters, the creation with the permission that it needs at the end", function()
    for _, name in ipairs { CREATE, UPDATE } do
      local definition = by_name[name].definition
      assert.is_true(#definition.title >= 5)
      assert.is_true(utf8.len(definition.description) <= 400)
    end
    assert.truthy(by_name[CREATE].definition.description:find "Requires project%.sandboxes%.manage%.$")
  end)

  it("have no room for a note, and nothing that becomes null by itself", function()
    for _, name in ipairs { CREATE, UPDATE } do
      assert.is_nil(by_name[name].output.properties.note)
      assert.are.same({}, by_name[name].output.nulls)
    end
    assert.truthy(by_name.run_command.output.properties.note)
  end)

  it("take what the schema takes and nothing else", function()
    local input = by_name[CREATE].input
    local function fault(arguments)
      local ok, err = pcall(schema.check, input, arguments)
      assert.is_false(ok)
      return err.field
    end
    assert.are.equal("access_scope", fault {})
    assert.are.equal("access_scope", fault { access_scope = "public" })
    assert.are.equal("environment_id", fault { access_scope = "project", environment_id = "e" })
    assert.are.equal("project_reference", fault { access_scope = "project", project_reference = "" })
    assert.are.equal("ttl_hours", fault { access_scope = "project", ttl_hours = 25 })
    assert.are.equal("ttl_hours", fault { access_scope = "project", ttl_hours = "3" })
    assert.are.equal("ttl_mode", fault { access_scope = "project", ttl_mode = "forever" })
    assert.are.equal("_meta", fault { access_scope = "project", _meta = { run_id = "r" } })
    assert.are.same({ access_scope = "private", ttl_mode = "duration", ttl_hours = 2 },
      schema.check(input, { access_scope = "private", ttl_mode = "duration", ttl_hours = 2.0, project_reference = json.null }))
  end)
end)
