--- Where a key of a policy stands, in whichever of its files.

local places = require "demilune.policy.places"

local function files(...)
  local list = {}
  for i, text in ipairs { ... } do list[i] = { path = "file" .. i, text = text } end
  return list
end

local function of(list, data, path)
  local file, line = places.new(list, data):of(path)
  return file .. ":" .. line
end

describe("demilune.policy.places", function()
  it("follows the constructor that is returned", function()
    local list = files('return {\n  default = "x",\n  rules = {\n    { name = "a",\n      deny = "no" },\n'
      .. '    { name = "b" },\n  },\n}')
    local data = { rules = { { name = "a" }, { name = "b" } } }
    assert.are.equal("file1:2", of(list, data, { "default" }))
    assert.are.equal("file1:5", of(list, data, { "rules", 1, "deny" }))
    assert.are.equal("file1:6", of(list, data, { "rules", 2, "nosuch" }))
    assert.are.equal("file1:1", of(list, data, {}))
  end)

  it("finds a rule by its name where its number says nothing", function()
    local list = files(
      'local all = {}\ntable.insert(all, { name = "a" })\nall[#all + 1] = {\n  name = "b",\n  when = {\n    owned = 5 },\n}\n'
        .. "return { rules = all }",
      'return {\n\n  { name = "c", deny = "no",\n  set = { x = 1 } } }')
    local data = { rules = { { name = "a" }, { name = "b" }, { name = "c" } } }
    assert.are.equal("file1:2", of(list, data, { "rules", 1 }))
    assert.are.equal("file1:6", of(list, data, { "rules", 2, "when", "owned" }))
    assert.are.equal("file2:4", of(list, data, { "rules", 3, "set", "x" }))
  end)

  it("finds functions of the outermost table", function()
    local list = files('local policy = { rules = {} }\n\nfunction policy.before(call)\nend\n'
      .. 'function policy:after() end\nreturn policy')
    assert.are.equal("file1:3", of(list, {}, { "before" }))
    assert.are.equal("file1:5", of(list, {}, { "after" }))
    assert.are.equal("file1:1", of(list, {}, { "rules" }))
  end)

  it("stays with the number where a name stands twice or is no text", function()
    local list = files 'return { rules = {\n { name = "a" },\n { name = "a" },\n { name = 5 },\n {} } }'
    local data = { rules = { { name = "a" }, { name = "a" }, { name = 5 }, {} } }
    assert.are.equal("file1:3", of(list, data, { "rules", 2, "name" }))
    assert.are.equal("file1:4", of(list, data, { "rules", 3, "name" }))
    assert.are.equal("file1:5", of(list, data, { "rules", 4 }))
    assert.are.equal("file1:2", of(list, { rules = 5 }, { "rules", 1 }))
  end)

  it("takes any text and any data", function()
    for _, text in ipairs { "", "return", "}", "{", 'name = "a"', "name = 'a' }", "{ { name = 'a'" } do
      assert.is_truthy(of(files(text), { rules = { { name = "a" } } }, { "rules", 1, "deny" }))
    end
  end)
end)
