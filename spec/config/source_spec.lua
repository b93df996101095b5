--- Where a key stands in the text of a configuration.

local source = require "demilune.config.source"

local function line_of(text, ...)
  return source.line_of(source.tokens(text), { ... })
end

local function words(text)
  local found = {}
  for _, token in ipairs(source.tokens(text)) do found[#found + 1] = token.kind .. ":" .. token.text end
  return found
end

describe("the tokens of a source", function()
  it("leave out comments of both kinds", function()
    assert.are.same({ "name:a", "name:b" }, words("a -- x = 1\n--[[ y\n]] b --[==[ ]] \n]==] -- at the end"))
  end)

  it("hold strings of all kinds", function()
    local text = '"a\\"b" "c\'" \'d\\\ne\' [=[ ]] ]=] \'\''
    assert.are.same({ 'string:a\\"b', "string:c'", "string:d\\\ne", "string: ]] ", "string:" }, words(text))
  end)

  it("tell = from signs that contain it", function()
    assert.are.same({ "name:a", "sign:==", "name:b", "sign:=", "number:1", "sign:<=", "number:0x1F" },
      words("a==b =1 <= 0x1F"))
  end)

  it("have the line they start at", function()
    local lines = {}
    for _, token in ipairs(source.tokens("a\n\n[[x\ny]] b\n'\\\n' c")) do lines[#lines + 1] = token.line end
    assert.are.same({ 1, 3, 4, 5, 6 }, lines)
  end)

  it("come to an end in text that is no Lua", function()
    for _, text in ipairs { "'", '"\\', "[[", "[==[", "--[[", "\0\255", "{{{{", "]]]]", "return", "return {" } do
      assert.is_number(line_of(text, "a", 1, "b"))
    end
  end)
end)

describe("the line of a key", function()
  local text = [==[
-- log = 1
local base = {
  memory = 1, -- 3
  env = { A = "x",
    ["B"] = 'log = {', }, -- 5
}
base.disk = 4 -- 6 + 1
local function size(a, b)
  local log, tasks = a, b
  return { log = log, tasks = tasks }
end
return { -- 12
  log = { level = "info",
    file = size(1, 2), }; -- 14
  ["limits"] = {
    tasks = (function(x, y) local z, w = x, y; if x then return z end return w end)(1, 2),
    message = 3 == 4, -- 17
  },
  providers = {
    { id = "a" }, -- 20
    { id = "b", [
      "templates"] = { base = base } }, -- 21
    [9] = 1, -- 23
  },
  output = compute { stdout = 1 },
}
]==]

  it("is found at every depth", function()
    assert.are.equal(13, line_of(text, "log"))
    assert.are.equal(13, line_of(text, "log", "level"))
    assert.are.equal(14, line_of(text, "log", "file"))
    assert.are.equal(15, line_of(text, "limits"))
    assert.are.equal(16, line_of(text, "limits", "tasks"))
    assert.are.equal(17, line_of(text, "limits", "message"))
    assert.are.equal(20, line_of(text, "providers", 1, "id"))
    assert.are.equal(21, line_of(text, "providers", 2, "id"))
    assert.are.equal(23, line_of(text, "providers", 9))
  end)

  it("is found through a local and what is assigned to it", function()
    local path = { "providers", 2, "templates", "base" }
    local function at(...) return line_of(text, path[1], path[2], path[3], path[4], ...) end
    assert.are.equal(3, at("memory"))
    assert.are.equal(4, at("env", "A"))
    assert.are.equal(5, at("env", "B"))
    assert.are.equal(7, at("disk"))
  end)

  it("is that of the nearest key above where it cannot be found", function()
    assert.are.equal(25, line_of(text, "output", "stdout"))
    assert.are.equal(14, line_of(text, "log", "file", "x"))
    assert.are.equal(19, line_of(text, "providers", 7, "id"))
    assert.are.equal(12, line_of(text, "absent"))
    assert.are.equal(12, line_of(text))
  end)

  it("is found in a table that is returned by name", function()
    local named = "local c <const> = {\n log = 1,\n}\nc.limits = {\n tasks = 2 }\nreturn c\n"
    assert.are.equal(2, line_of(named, "log"))
    assert.are.equal(5, line_of(named, "limits", "tasks"))
    assert.are.equal(6, line_of(named, "absent"))
  end)

  it("is that of the last of two equal keys, which is the one that holds", function()
    assert.are.equal(3, line_of("return {\n a = 1,\n a = 2,\n}", "a"))
  end)
end)
