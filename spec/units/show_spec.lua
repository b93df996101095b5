--- cli/show: results of tools as a person reads them, whatever an operator's tool returns.
local core = require "demilune.core"
local show = require "demilune.cli.show"

local function tool() return { name = "mine", output = { required = {}, nulls = {} } } end

describe("cli.show", function()
  it("shows lists of texts, numbers and lists a line each", function()
    local json = core.json
    local text = show.result(tool(), { names = json.array { "one", "two" }, sizes = json.array { 1, 2.5 },
      pairs = json.array { json.array { 1, 2 } } })
    for _, part in ipairs { "one\n", "two\n", "1\n", "2.5\n", "[1,2]\n" } do
      assert.is_truthy(text:find(part, 1, true), text)
    end
  end)

  it("shows lists of objects as tables, empty lists as none, and objects as JSON", function()
    local json = core.json
    local text = show.result(tool(), {
      files = json.array { { name = "a", size = 1 } }, none = json.array {}, more = { deep = true },
    })
    assert.is_truthy(text:find "name +size\n", text)
    assert.is_truthy(text:find("none\n", 1, true), text)
    assert.is_truthy(text:find('{"deep":true}', 1, true), text)
  end)
end)
