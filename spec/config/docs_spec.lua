--- docs/configuration.md says of every key what the table of keys says.

local keys = require "demilune.config.keys"
local sources = require "spec.support.sources"
local support = require "spec.config.support"
local words = require "demilune.config.words"

local PAGE = "docs/configuration.md"

--- Kinds whose words say how long they may be.
local SAYS_MAX = { string = true, url = true, source = true }

local function takes(shape)
  if shape.kind == "nothing" then return "nothing yet: an empty list" end
  local text = words.expected(shape)
  if not shape.max or shape.min or SAYS_MAX[shape.kind] then return text end
  return ("%s of %s%d entries"):format(text, shape.is_filled and "1 to " or "at most ", shape.max)
end

local function default(shape)
  if shape.default == nil then return "–" end
  if type(shape.default) == "table" then return "{}" end
  return type(shape.default) == "string" and '"' .. shape.default .. '"' or tostring(shape.default)
end

local collect

--- A field that is the same for all types of provider has one row; else each type has one of its own.
local function collect_variants(path, shape, rows)
  local by_type = {}
  for kind, variant in pairs(shape.variants) do
    by_type[kind] = {}
    for name, field in pairs(variant.fields) do collect(path .. "." .. name, field, by_type[kind]) end
  end
  for kind, own in pairs(by_type) do
    for key, text in pairs(own) do
      local is_common = true
      for _, other in pairs(by_type) do is_common = is_common and other[key] == text end
      rows[is_common and key or kind .. ": " .. key] = text
    end
  end
end

--- Collects { [path] = "takes | default" }.
function collect(path, shape, rows)
  if shape.variants then return collect_variants(path, shape, rows) end
  if shape.kind ~= "record" then rows[path] = takes(shape) .. " | " .. default(shape) end
  for name, field in pairs(shape.fields or {}) do
    collect(path == "" and name or path .. "." .. name, field, rows)
  end
  if shape.of then collect(path .. (shape.kind == "list" and "[]" or ".NAME"), shape.of, rows) end
end

--- The first three cells of the page's rows, by key; under a heading that names a type, with that type in front.
local function page_rows()
  local rows, kind = {}, nil
  for line in sources.read(PAGE):gmatch("[^\n]+") do
    if line:find "^##" then kind = line:match "`(%w+)`$" end
    local key, expected, value = line:match("^| `([^`]+)` | (.-) | (.-) |")
    if key then rows[(kind and kind .. ": " or "") .. key] = expected .. " | " .. value end
  end
  return rows
end

describe(PAGE, function()
  local rows = {}
  collect("", keys.root, rows)

  it("has a row for every key that is served, with what it takes and its default", function()
    assert.is_true(next(rows) ~= nil)
    assert.are.same(rows, page_rows())
  end)

  it("shows examples that load", function()
    local examples = 0
    for text in sources.read(PAGE):gmatch("\n```lua\n(.-)```") do
      assert(support.load(text))
      examples = examples + 1
    end
    assert.are.equal(2, examples)
  end)
end)
