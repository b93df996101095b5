--- docs/extending.md names every key and every function that tools and drivers have, and no other; its first tool works.

local context = require "demilune.own.context"
local contract = require "demilune.own.contract"
local dialects = require "demilune.json_schema.dialects"
local driver = require "demilune.own.driver"
local host = require "demilune.own.host"
local sources = require "spec.support.sources"

local PAGE = "docs/extending.md"

--- The names in a chapter's table: of a key, or of "call:sleep(seconds)" what stands after the colon.
local function named_in(chapter)
  local set, page = {}, sources.read(PAGE) .. "\n##"
  for cell in page:match("\n### " .. chapter .. "\n(.-)\n##"):gmatch "\n| `([^`]*)`" do
    set[cell:match "^%l+:([%l_]+)" or cell:match "^[%l_]+"] = true
  end
  return set
end

local function functions_of(...)
  local set = {}
  for _, class in ipairs { ... } do
    for name, value in pairs(class) do
      if type(value) == "function" and name:sub(1, 1) ~= "_" then set[name] = true end
    end
  end
  return set
end

local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

describe(PAGE, function()
  it("has the functions of a call, a sandbox and a host", function()
    assert.are.same(functions_of(context.class, host.class), named_in "The call")
    assert.are.same(functions_of(context.sandbox_class), named_in "A sandbox")
    assert.are.same(functions_of(driver.host_class, host.class), named_in "The host")
  end)

  it("has the keys of a tool and of a driver", function()
    assert.are.same(set_of(contract.KEYS), named_in "The table")
    local keys = {}
    for name in pairs(driver.KEYS) do keys[name] = true end
    assert.are.same(keys, named_in "The driver")
  end)

  it("has the keywords of both drafts, and no other", function()
    local known, named = {}, {}
    for _, dialect in pairs(dialects.BY_NAME) do
      for keyword in pairs(dialect.keywords) do known[keyword] = true end
    end
    local rows = sources.read(PAGE):match "\n### Schemas\n.-\n|%-%-%-|%-%-%-|\n(.-)\n\n"
    for name in rows:gmatch "`([%w$]+)`" do named[name] = true end
    assert.are.same(known, named)
  end)

  it("begins with a tool that is right", function()
    local tool = assert(load(sources.read(PAGE):match "```lua\n(.-)```"))()
    assert.are.same({}, contract.faults(tool))
    local box = { run = function() return { stdout = "tmpfs 1048576 12 1048564 1% /home\n" } end }
    local call = { sandbox = function() return box end }
    assert.are.same({ free_kb = 1048564 }, tool.handler(call, {}))
  end)
end)
