--- core.sys.options: the words of a command line.

local core = require "demilune.core"

local KNOWN = { "json", "config:", "log-level:" }

local function parse(...) return core.sys.options({ ... }, KNOWN) end

describe("sys.options", function()
  local GOOD = {
    { {}, {}, {} },
    { { "--json" }, { json = true }, {} },
    { { "--config", "f", "x" }, { config = "f" }, { "x" } },
    { { "--config=f" }, { config = "f" }, {} },
    { { "--config=" }, { config = "" }, {} },
    { { "--config", "--json" }, { config = "--json" }, {} },
    { { "a", "--json", "b" }, { json = true }, { "a", "b" } },
    { { "a", "--", "--json", "-x" }, {}, { "a", "--json", "-x" } },
    { { "--config", "1", "--config", "2" }, { config = "2" }, {} },
    { { "-h" }, { help = true }, {} },
    { { "--help", "--json" }, { help = true, json = true }, {} },
    { { "-" }, {}, { "-" } },
    { { "" }, {}, { "" } },
    { { "--log-level", "debug", "--", "--" }, { ["log-level"] = "debug" }, { "--" } },
    { { "call", '{"a":"--json"}' }, {}, { "call", '{"a":"--json"}' } },
  }
  for i, case in ipairs(GOOD) do
    it(("reads case %d: %s"):format(i, table.concat(case[1], " ")), function()
      local options, rest = parse(table.unpack(case[1]))
      assert.are.same(case[2], options)
      assert.are.same(case[3], rest)
    end)
  end

  local BAD = {
    { { "--nope" }, "there is no option --nope" },
    { { "x", "--nope", "y" }, "there is no option --nope" },
    { { "--config" }, "option --config needs a value" },
    { { "-x" }, "there is no option -x" },
    { { "-xyz" }, "there is no option -x" },
    { { "a", "-xyz", "b" }, "there is no option -x" },
    { { "-hx" }, "there is no option -x" },
    { { "--json=1" }, "there is no option --json=1" },
    { { "-\xFF" }, nil },
  }
  for _, case in ipairs(BAD) do
    it(("refuses %q"):format(table.concat(case[1], " ")), function()
      local options, message = parse(table.unpack(case[1]))
      assert.is_nil(options)
      if case[2] then assert.are.equal(case[2], message) else assert.is_string(message) end
    end)
  end

  it("starts over each time", function()
    parse("-xyz")
    assert.are.same({ json = true }, (parse("--json")))
    parse("a", "--nope", "b")
    assert.are.same({ "a", "b" }, select(2, parse("a", "b")))
  end)

  it("raises for what a command does wrong", function()
    assert.has_error(function() core.sys.options({ "x" }, { ("n"):rep(60) }) end)
    assert.has_error(function() core.sys.options({ "x" }, { 7, {} }) end)
    assert.has_error(function() core.sys.options("x", {}) end)
    local many = {}
    for i = 1, 40 do many[i] = "o" .. i end
    assert.has_error(function() core.sys.options({}, many) end)
  end)
end)
