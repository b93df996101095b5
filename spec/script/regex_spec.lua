--- core.regex: what globs mean, by a table and against a slow matcher; limits that hold whatever pattern and text are.

local build = require "spec.support.build"
local core = require "demilune.core"
local harness = require "spec.script.harness"
local regex = core.regex

if harness.is_valgrind() then
  describe("core.regex", function()
    it("is tested without valgrind", function() pending "valgrind does not see what PCRE2's compiled code has set" end)
  end)
  return
end

-- { glob, text, is_path, whether it matches }
local TRUTHS = {
  { "", "", false, true }, { "", "a", false, false }, { "run_command", "run_command", false, true },
  { "run_command", "run_command2", false, false }, { "Run", "run", false, false },
  { "run_*", "run_", false, true }, { "*", "", false, true }, { "*", "a/b", false, true }, { "a*c", "a/b/c", false, true },
  { "**", "a/b", false, true }, { "**/x", "x", false, false }, { "**/x", "/x", false, true },
  { "?", "/", false, true }, { "?", "é", false, true }, { "?", "", false, false }, { "??", "é", false, false },
  { "[a-c]x", "bx", false, true }, { "[a-c]x", "dx", false, false }, { "[!a-c]x", "dx", false, true },
  { "[!a-c]x", "x", false, false }, { "[a-]", "-", false, true }, { "[-a]", "-", false, true }, { "[\\]]", "]", false, true },
  { "[!!]", "!", false, false }, { "[a!]", "!", false, true }, { "[α-ω]", "β", false, true }, { "[/]", "/", false, true },
  { "[*?]", "*", false, true }, { "[*?]", "a", false, false }, { "[é\\-z]", "-", false, true },
  { "{a,b}", "b", false, true }, { "{a,b}", "a,b", false, false }, { "{,a}b", "b", false, true }, { "{a}", "a", false, true },
  { "{}", "", false, true }, { "a,b", "a,b", false, true },
  { "{a,ab}c", "abc", false, true }, { "{ab,a}{c,bc}d", "abcd", false, true }, { "x{a,{b,c}*}y", "xc/1y", false, true },
  { "{a,b}{c,d}", "bd", false, true }, { "{a,b}{c,d}", "ab", false, false }, { "{*a,*b}*", "zzb", false, true },
  { "\\*", "*", false, true }, { "\\*", "a", false, false }, { "\\{a\\}", "{a}", false, true }, { "\\a", "a", false, true },
  { "\\\\", "\\", false, true }, { "eu-*", "eu-west/1", false, true }, { "a\0b", "a\0b", false, true },
  { "a*b", "a\0b", false, true },
  { "*", "\xFF\xFE", false, true }, { "?", "\xFF", false, true }, { "[!a]", "\xFF", false, true },
  { "\u{FFFD}", "\xFF", false, false },
  -- paths
  { "*", "a", true, true }, { "*", "a/b", true, false }, { "/*", "/", true, true }, { "/home/*/x", "/home/a/x", true, true },
  { "/home/*/x", "/home/a/b/x", true, false }, { "?", "/", true, false }, { "a?b", "a/b", true, false },
  { "[!a]", "/", true, false },
  { "/home/*/.ssh/**", "/home/me/.ssh/id_rsa", true, true }, { "/home/*/.ssh/**", "/home/me/.ssh/a/b", true, true },
  { "/home/*/.ssh/**", "/home/me/.ssh", true, false }, { "/home/*/.ssh/**", "/home/me/x/.ssh/a", true, false },
  { "**/*.pem", "/x.pem", true, true }, { "**/*.pem", "x.pem", true, true }, { "**/*.pem", "/a/b/x.pem", true, true },
  { "**/*.pem", "/x.pem/y", true, false }, { "**/x", "/ax", true, false }, { "**/x", "ax", true, false },
  { "/a/**/b", "/a/b", true, true }, { "/a/**/b", "/a/x/y/b", true, true }, { "/a/**/b", "/ab", true, false },
  { "/a/**/**/b", "/a/b", true, true }, { "/a**b", "/ax/yb", true, true }, { "/a**/b", "/ab/b", true, true },
  { "/a**/b", "/a/b", true, true }, { "/a**/b", "/ab", true, false }, { "**", "/a/b", true, true }, { "/**", "/", true, true },
  { "/{**/,}x", "/x", true, true }, { "/{a/,b/}**/x", "/b/x", true, true }, { "{a/,b}**/x", "bx", true, false },
  { "{**/b,c}", "b", true, true }, { "***/x", "a/x", true, true }, { "/[a-c]/*", "/b/x", true, true },
}

local FAULTS = {
  { "[a", "the [ is not closed" }, { "[", "the [ is not closed" }, { "[!", "the [ is not closed" },
  { "[a\\]", "the [ is not closed" },
  { "[]", "the [] is empty" }, { "[]a]", "the [] is empty" }, { "[!]", "the [] is empty" }, { "[^a]", "write [!a]" },
  { "[z-a]", "ends before it begins" }, { "{a", "the { is not closed" }, { "{a,{b}", "the { is not closed" },
  { "a]", "without a [" }, { "a}", "without a {" }, { "a\\", "nothing behind it" }, { "[\\", "nothing behind it" },
  { "\xFF", "not UTF-8" }, { ("a"):rep(4097), "longer than 4096" }, { ("{"):rep(9) .. ("}"):rep(9), "more than 8 {" },
  { "{" .. (","):rep(256) .. "}", "more than 256 alternatives" },
}

--- A glob by plain backtracking, for the part of the language without sets, braces and escapes.
local function slow_match(glob, text, is_path)
  if glob == "" then return text == "" end
  local stars, rest = glob:match "^(%*+)(.*)$"
  if not stars then
    if text == "" then return false end
    local head, first = glob:sub(1, 1), text:sub(1, 1)
    if head == "?" and is_path and first == "/" or head ~= "?" and head ~= first then return false end
    return slow_match(glob:sub(2), text:sub(2), is_path)
  end
  for length = 0, #text do
    if is_path and #stars == 1 and text:sub(1, length):find("/", 1, true) then return false end
    if slow_match(rest, text:sub(length + 1), is_path) then return true end
  end
  return false
end

local function random_text(alphabet, most)
  local out = {}
  for i = 1, math.random(0, most) do out[i] = alphabet[math.random(#alphabet)] end
  return table.concat(out)
end

local function took_ms(fn)
  local before = os.clock()
  local result, why = fn()
  return (os.clock() - before) * 1000, result, why
end

describe("core.regex: globs", function()
  for _, row in ipairs(TRUTHS) do
    local glob, text, is_path, expected = row[1], row[2], row[3], row[4]
    it(("%q %s %q%s"):format(glob, expected and "matches" or "does not match", text, is_path and " as paths" or ""), function()
      assert.are.equal(expected, assert(regex.glob(glob, { path = is_path })):matches(text))
    end)
  end

  it("that are none are told so in words", function()
    for _, row in ipairs(FAULTS) do
      local found, why = regex.glob(row[1])
      assert.is_nil(found)
      assert.is_truthy(why:find(row[2], 1, true), row[1]:sub(1, 20) .. ": " .. why)
    end
    local found, why = regex.glob("[+-9]", { path = true })
    assert.is_nil(found)
    assert.are.equal("a set in [] cannot hold /", why)
  end)

  it("at their limits still work", function()
    assert.is_true(assert(regex.glob(("a"):rep(4096))):matches(("a"):rep(4096)))
    assert.is_true(assert(regex.glob("{" .. (","):rep(255) .. "}b")):matches "b")
    assert.is_true(assert(regex.glob(("{"):rep(8) .. "a" .. ("}"):rep(8))):matches "a")
    assert.is_true(assert(regex.glob(("**/"):rep(1365), { path = true })):matches "/")
    assert.is_true(assert(regex.glob(("?"):rep(4096))):matches(("é"):rep(4096)))
  end)

  it("agree with a slow matcher", function()
    math.randomseed(4)
    -- "**/" is apart: there the slow one does not know that a component may be absent
    local pieces, letters = { "a", "b", "*", "?", "/a", "**b" }, { "a", "b", "/" }
    for _ = 1, 20000 do
      local glob, text, is_path = random_text(pieces, 6), random_text(letters, 8), math.random(2) == 1
      local said = assert(regex.glob(glob, { path = is_path })):matches(text)
      if not glob:find("**/", 1, true) and said ~= slow_match(glob, text, is_path) then
        error(("%q against %q, path %s: %s"):format(glob, text, is_path, said))
      end
    end
  end)

  it("take their time from no hostile text or pattern", function()
    local hostile = { "*a*a*a*a*a*a*a*a*b", ("*a"):rep(2047) .. "b", ("**/a"):rep(1024), "{" .. ("*a*,"):rep(255) .. "}b",
      ("{a,aa}"):rep(120) .. "b", ("?*"):rep(2000), "[!" .. ("bc"):rep(2000) .. "]*x" }
    for _, text in ipairs { ("a"):rep(65536), ("/a"):rep(32768), ("é"):rep(32768), ("\xFF"):rep(65536) } do
      for _, pattern in ipairs(hostile) do
        for _, is_path in ipairs { true, false } do
          local ms, said, why = took_ms(function() return assert(regex.glob(pattern, { path = is_path })):matches(text) end)
          assert.is_true(said ~= nil or why == "limit")
          assert.is_true(ms < 250, ("%s: %.1f ms"):format(pattern:sub(1, 20), ms))
        end
      end
    end
    assert.is_false(assert(regex.glob "*rm*"):matches(("a"):rep(1 << 20)))
  end)
end)

describe("core.regex: regular expressions", function()
  it("say whether some part matches", function()
    assert.is_true(assert(regex.new "b+"):matches "abbc")
    assert.is_false(assert(regex.new "^b+"):matches "abbc")
    assert.is_true(assert(regex.new "c$"):matches "abbc")
    assert.is_true(assert(regex.new "^.$"):matches "é")
    assert.is_true(assert(regex.new ""):matches "")
    assert.is_true(assert(regex.new "x$"):matches(("a"):rep(100000) .. "x"))
    assert.is_true(assert(regex.new "^a+x\\z"):matches(("a"):rep(100000) .. "x"))
    assert.is_true(assert(regex.new "(?i)É"):matches "é")
  end)

  it("say what is wrong with a pattern, and where", function()
    local found, why, offset = regex.new "ab(c"
    assert.is_nil(found)
    assert.are.equal("missing closing parenthesis", why)
    assert.are.equal(4, offset)
    for _, pattern in ipairs { "[a", "\\C", "(?<=a+)b", ("("):rep(200) .. (")"):rep(200), ("a"):rep(4097), "\xFF", "a{3,2}" } do
      found, why = regex.new(pattern)
      assert.is_nil(found)
      assert.is_true(#why > 0)
    end
  end)

  it("mask what they match, and count it", function()
    local function masked(pattern, text) return assert(regex.new(pattern)):mask(text, "[x]") end
    assert.are.same({ "a [x] b [x]", 2 }, { masked("AKIA\\w+", "a AKIA12 b AKIA3") })
    assert.are.same({ "nothing", 0 }, { masked("AKIA\\w+", "nothing") })
    assert.are.same({ "", 0 }, { masked("a*", "") })
    assert.are.same({ "b[x]b[x]", 2 }, { masked("a*", "baaba") })
    assert.are.same({ "é[x]é", 1 }, { masked("(?<=é)ü", "éüé") })
    assert.are.same({ "a[x]", 1 }, { masked("b\\z", "ab") })
    assert.are.same({ "[x]\n[x]", 2 }, { masked(".+", "ab\ncd") })
  end)

  it("look at what is not UTF-8 as U+FFFD, and leave it alone where nothing matches", function()
    local re = assert(regex.new "key=.*")
    assert.are.same({ "a\u{FFFD}[x]", 1 }, { re:mask("a\xFFkey=\xFE1", "[x]") })
    assert.are.same({ "a\xFFb", 0 }, { re:mask("a\xFFb", "[x]") })
    assert.is_true(re:matches "\xFFkey=")
  end)

  it("miss no match that ends within 4 KiB, wherever it lies", function()
    local re = assert(regex.new "k[0-9]+z")
    for _, before in ipairs { 0, 1, 63, 64, 65, 4095, 4096, 4159, 4160, 4161, 70000 } do
      for _, digits in ipairs { 1, 100, 4000 } do
        local text = ("é"):rep(before) .. "k" .. ("7"):rep(digits) .. "z!"
        assert.are.same({ ("é"):rep(before) .. "[x]!", 1 }, { re:mask(text, "[x]") })
      end
    end
  end)

  it("blank what they match with every byte in its place, whatever the others are", function()
    local re = assert(regex.new "k\\w+")
    assert.are.equal("a **** b", re:blank "a key1 b")
    assert.are.equal("\xFF***\0\xFE", re:blank "\xFFkey\0\xFE")
    assert.are.equal("ü **** ü", re:blank "ü key7 ü")
    assert.are.equal("", re:blank "")
    assert.are.equal("nothing here", assert(regex.new "key"):blank "nothing here")
  end)

  it("mask a long run to its end, and take no end of a view for the end of the text", function()
    local run = ("k"):rep(50000)
    assert.are.same({ "a=[x]\nb", 1 }, { assert(regex.new "(?<==).+"):mask("a=" .. run .. "\nb", "[x]") })
    assert.are.same({ run .. "!", 0 }, { assert(regex.new "k\\z"):mask(run .. "!", "[x]") })
    assert.are.same({ run .. "!", 0 }, { assert(regex.new "k$"):mask(run .. "!", "[x]") })
    assert.are.same({ run .. "[x]", 1 }, { assert(regex.new "x$"):mask(run .. "x", "[x]") })
  end)

  it("are bounded, however slow the pattern was made", function()
    local text = ("a"):rep(1 << 20)
    for _, pattern in ipairs { "(a+)+[bc]", "(a|aa)+[bc]", ".*?[^@]*[@#]", "(?:.*?[^@]*){3}[@#]", "(?:(?=[^@]*+)a)*+[@#]", "(?R)",
      "(?:a?){30}a{30}[bc]", "(?:a(?=[^@]*+))*?[@#]", "(.*)*[xy]", "(*LIMIT_MATCH=4000000000)(a+)+[bc]", "(a(?R)?)+[xy]" } do
      local re = assert(regex.new(pattern))
      local ms, said, why = took_ms(function() return re:matches(text) end)
      assert.is_true(said ~= nil or why == "limit")
      assert.is_true(ms < 3000, ("%s: %.0f ms"):format(pattern, ms))
      ms, said, why = took_ms(function() return re:mask(text, "[x]") end)
      assert.is_true(said == nil and why == "limit" or said == text)
      assert.is_true(ms < 3000, ("%s: %.0f ms"):format(pattern, ms))
    end
  end)

  it("are quick where operators' patterns are plain", function()
    local text = ("the quick brown fox; key=abc.\n"):rep(35000)
    for _, pattern in ipairs { "AKIA[A-Z0-9]{16}", "\\bpassword=\\S+", "(?s)-----BEGIN.*?-----END", "[\\w.]+@[\\w.]+\\.\\w+" } do
      local ms = took_ms(function() return assert(regex.new(pattern):mask(text, "[x]")) end)
      assert.is_true(ms < 500, ("%s: %.0f ms"):format(pattern, ms))
    end
  end)

  it("refuse misuse", function()
    local re = assert(regex.new "a")
    assert.has_error(function() re:mask("a", ("x"):rep(65)) end)
    assert.has_error(function() regex.glob("a", "path") end)
    assert.has_error(function() re.matches(regex.glob "a", "a") end)
  end)

  it("leave no memory behind", function()
    if build.sanitize ~= "" then pending "a sanitizer keeps what was freed" end
    local function rss_kib()
      local file = assert(io.open "/proc/self/status")
      local kib = tonumber(file:read("a"):match "VmRSS:%s*(%d+)")
      file:close()
      return kib
    end
    local function churn(times)
      for i = 1, times do
        assert(regex.new("a+" .. i)):matches "aaa"
        assert(regex.glob("{a,*b}" .. i)):matches "aaa"
        regex.new "(" -- faults too
        regex.glob "{"
      end
      collectgarbage()
      core.sys.trim()
    end
    churn(12000)
    local before = rss_kib()
    churn(12000)
    assert.is_true(rss_kib() - before < 4096, rss_kib() - before .. " KiB")
  end)
end)
