--- docs/policy.md names every key and every group, and no other.

local groups = require "demilune.policy.groups"
local keys = require "demilune.policy.keys"
local sources = require "spec.support.sources"

local PAGE = "docs/policy.md"

--- The first column of the page's tables, as a set of what stands in backquotes there.
local function named_in(chapter)
  local set = {}
  for cell in (sources.read(PAGE):match("\n### " .. chapter .. "\n(.-)\n##") or ""):gmatch "\n|([^|]*)|" do
    for name in cell:gmatch "`([^`]+)`" do set[name] = true end
  end
  return set
end

local function assert_same(expected, found)
  for name in pairs(expected) do assert.is_true(found[name] == true, name .. " is not on the page") end
  for name in pairs(found) do assert.is_true(expected[name] == true, name .. " is on the page and not a key") end
end

local function set_of(fields, prefix)
  local set = {}
  for name in pairs(fields) do set[(prefix or "") .. name] = true end
  return set
end

describe(PAGE, function()
  it("has the keys of the outermost table", function()
    local found = named_in "The outermost table"
    assert_same(set_of(keys.root.fields), found)
  end)

  it("has the keys of a rule, its conditions and the groups", function()
    local expected, found = set_of(keys.rule.fields), named_in "Which calls"
    for name in pairs(named_in "What a rule does") do found[name] = true end
    for name in pairs(set_of(keys.when.fields, "when.")) do expected[name] = true end
    for _, name in ipairs(groups.NAMES) do expected[name] = true end
    -- Said above the tables: a rule has a name.
    expected.name = nil
    assert_same(expected, found)
  end)

  it("says who is in which group", function()
    local text = sources.read(PAGE)
    for group, tools in pairs(groups.MEMBERS) do
      local row = text:match("\n| `" .. group .. "` | ([^\n]*) |\n")
      assert.are.equal("`" .. table.concat(tools, "`, `") .. "`", row)
    end
  end)

  it("has the parts of limit, path, rate and quota", function()
    local text = sources.read(PAGE)
    for _, shape in ipairs { keys.limit, keys.path, keys.rate, keys.quota } do
      for name in pairs(shape.fields) do assert.truthy(text:find("%f[%w_]" .. name .. "%f[^%w_]"), name) end
    end
  end)
end)
