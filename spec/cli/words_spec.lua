--- The commands' ways of showing things: columns, durations, foreign text, results of tools.

local core = require "demilune.core"
local duration = require "demilune.cli.duration"
local grid = require "demilune.cli.grid"
local show = require "demilune.cli.show"
local style = require "demilune.cli.style"

describe("demilune.cli.style", function()
  it("gives a terminal no control character of a sandbox's", function()
    assert.are.equal("a?[31mred?]0;title?", style.plain("a\27[31mred\27]0;title\7"))
    assert.are.equal("one\ntwo\nthree\tfour", style.plain("one\r\ntwo\rthree\tfour"))
    assert.are.equal("?31m", style.plain("\194\15531m"), "a C1 control character of UTF-8")
    assert.is_truthy(utf8.len(style.plain("\255\254 \195")))
  end)

  it("cuts by characters and says so", function()
    assert.are.equal("äöü", style.short("äöü", 3))
    assert.are.equal("äö…", style.short("äöüß", 3))
    assert.are.equal("a b", style.short("a\n\n b", 10))
  end)

  it("paints nothing where stdout is no terminal", function()
    assert.are.equal("word", style.paint("red", "word"))
  end)
end)

describe("demilune.cli.grid", function()
  it("aligns by characters, without spaces at the end", function()
    assert.are.equal("ä    1\nabc  22\n", grid.render { { "ä", "1" }, { "abc", "22" } })
    assert.are.equal("  a\n", grid.render({ { "a", "" } }, { indent = "  " }))
    assert.are.equal("", grid.render {})
  end)

  it("breaks the last column where it is asked to", function()
    local text = grid.render({ { "name", ("word "):rep(40) } }, { wraps = true })
    for line in text:gmatch "[^\n]+" do assert.is_true(#line <= 80, line) end
    assert.is_truthy(text:find "\n      word")
  end)

  it("keeps a word that is longer than a line", function()
    assert.are.same({ "a", ("x"):rep(30), "b" }, grid.wrap("a " .. ("x"):rep(30) .. " b", 10))
  end)
end)

describe("demilune.cli.duration", function()
  it("says seconds in the words of people", function()
    local rows = {
      [-5] = "0 s", [0] = "0 s", [119.9] = "119 s", [120] = "2 min", [3599] = "59 min", [3600] = "1 h", [7260] = "2 h 1 min",
      [86400] = "1 day", [86400 * 2 + 3600] = "2 days 1 h",
    }
    for seconds, words in pairs(rows) do assert.are.equal(words, duration.words(seconds)) end
  end)

  it("counts from now, across the ends of months and leap days", function()
    for _, days in ipairs { 0, 31, 60, 366, 1461 } do
      local then_ms = core.task.epoch_ms() + days * 86400000
      assert.is_true(math.abs(duration.until_iso(core.task.iso(then_ms)) - days * 86400) < 1, days .. " days")
    end
    assert.is_nil(duration.until_iso "tomorrow")
  end)
end)

describe("demilune.cli.show", function()
  local tool = {
    output = { required = { "sandbox_id", "stdout", "exit_code", "timed_out" }, nulls = { "stdout_path" } },
  }

  it("shows text first, then the facts, and leaves out what says nothing", function()
    local text = show.result(tool, {
      sandbox_id = "abc", stdout = "one\ntwo\n", exit_code = 0, timed_out = false, stdout_path = core.json.null, note = "Hm.",
    })
    assert.are.equal("stdout\n  one\n  two\nsandbox_id  abc\nexit_code   0\nnote        Hm.\n", text)
  end)

  it("shows lists of objects as columns, and an empty one as none", function()
    local text = show.result({ output = {} }, { files = { { name = "a", size = 1 }, { name = "bb", size = core.json.null } } })
    assert.are.equal("files\n  name  size\n  a     1\n  bb\n", text)
    assert.are.equal("files\n  none\n", show.result({ output = {} }, { files = {} }))
  end)

  it("says of a sandbox that was made in passing that it is gone", function()
    assert.is_truthy(show.result(tool, { sandbox_id = "abc", created = true }, true):find "ended with it")
  end)
end)
