-- timeout: 180
--- `demilune check`: what it says about the mistakes that people make, and what it does not do.

local demilune = require "spec.support.demilune"
local lfs = require "lfs"

local home

local function write(name, text)
  local path = home .. "/" .. name
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

local function check(args, options)
  local all = { "check", table.unpack(args) }
  options = options or {}
  options.home = home
  return demilune.run(all, options)
end

--- Lines of a policy with one rule that has `fields`.
local function rule(fields)
  return ('return {\n  default = "allow",\n  rules = {\n    { name = "a", %s },\n  },\n}\n'):format(fields)
end

--- Lines of a policy with a `before` of these lines.
local function before(lines)
  return ('local policy = { default = "allow", rules = {} }\nfunction policy.before(call)\n%s\nend\nreturn policy\n'):format(lines)
end

--- { what it is, the text, the line, a part of the words, a part of the way out }
local MISTAKES = {
  -- commas, braces, quotes
  { "no comma between rules", 'return {\n  default = "allow",\n  rules = {\n    { name = "a", match = "run_code", deny = "no" }\n'
    .. '    { name = "b", match = "run_code", deny = "no" },\n  },\n}', 5, "near '{'", "a comma is missing before `{`" },
  { "no comma after default", 'return {\n  default = "allow"\n  rules = {},\n}', 3,
    "near 'rules'", "a comma is missing before `rules`" },
  { "no comma in a rule", 'return { default = "allow", rules = { { name = "a" match = "run_code" } } }', 1,
    "near 'match'", "comma" },
  { "an open brace", 'return {\n default = "allow",\n rules = {\n', 4, "near <eof>", "close what is open" },
  { "a brace too many", 'return { default = "allow" } }', 1, "near '}'", "one `}` too many" },
  { "an open quote", 'return { default = "allow, rules = {} }', 1, "unfinished string", "close the quotes" },
  { "quotes of a text processor", "return { default = \u{201C}allow\u{201D} }", 1, "unexpected symbol", "straight quotes" },
  { "brackets for a list", 'return { default = "allow", rules = [ { name = "a" } ] }', 1, "near '['", "a list stands in { }" },
  -- keys and values
  { "== for =", 'return { default == "allow", rules = {} }', 1, "no default", "write default = …" },
  { "a colon for =", 'return { default: "allow" }', 1, "near", "write = between a key and its value" },
  { "an arrow for =", 'return { default => "allow" }', 1, "near '>'", "write = between" },
  { "a key in quotes", 'return { "default" = "allow" }', 1, "near '='", '["a-key"] = value' },
  { "no = after a key", rule 'match "run_code", deny = "no"', 4, "no match", "write match = …" },
  { "no = after a key that is a function's name too", rule 'match = "run_code", deny { "no" }', 4, "'deny'", "write deny = …" },
  { "a dash in a key", rule 'match = "run_code", no-keys = 1', 4, "near '='", '["a-key"] = value' },
  { "a word without quotes", rule "match = kill_sandbox, deny = 'no'", 4,
    "no kill_sandbox", 'quotes if it is a text: "kill_sandbox"' },
  { "a default without quotes", "return { default = allow, rules = {} }", 1, "default must be", "put a word in quotes" },
  { "a glob without quotes", rule "match = run_*, deny = 'no'", 4, "near ','", "put what has a * in quotes" },
  { "a group without quotes", rule "match = @execute, deny = 'no'", 4, "near '@'", "put the group in quotes" },
  { "a number with a unit", rule 'match = "create_sandbox", limit = { memory = 512MB }', 4,
    "malformed number", "the number alone" },
  { "one backslash", rule 'match = "@all", redact = "\\d+"', 4, "invalid escape", "write two \\" },
  { "another language's true", rule 'match = "run_code", hide = True', 4, "no True", "write true" },
  { "another language's nothing", "return { default = 'allow', rules = null }", 1, "no null", "leave out a key" },
  { "another language's comment", '// mine\nreturn { default = "allow" }', 1, "near '//'", "a comment begins with --" },
  { "a shell's comment", 'local a = 1\n# mine\nreturn { default = "allow" }', 2, "near '#'", "a comment begins with --" },
  -- the file as a whole
  { "no return", 'local policy = { default = "allow" }\n', nil, "returns nothing", "end it with `return policy`" },
  { "globals for a table", 'default = "allow"\nrules = {}\n', nil, "returns nothing", "end it with `return {" },
  { "a bare table", '{ default = "allow" }', 1, "near '{'", "write `return`" },
  { "something after it", 'return { default = "allow" }\nrules = {}', 2, "near 'rules'", "move it above the `return`" },
  { "a text for a table", 'return "allow"', nil, "table", "" },
  { "no default", "return { rules = {} }", 1, "no `default`", "write one" },
  { "a rule outside of rules", 'return {\n  default = "allow",\n  { name = "a", match = "run_code", deny = "no" },\n}', 3, "", "" },
  { "a rule's key outside of rules", 'return {\n  default = "allow",\n  match = "run_code",\n}', 3, "match", "" },
  -- rules
  { "a misspelt key", rule 'macth = "run_code", deny = "no"', 4, "macth", "`match`" },
  { "a misspelt tool", rule 'match = "run_comand", deny = "no"', 4, "run_comand", "run_command" },
  { "a misspelt group", rule 'match = "@exec", deny = "no"', 4, "@exec", "@execute" },
  { "a group without its sign", rule 'match = "execute", deny = "no"', 4, "execute", "" },
  { "a misspelt argument", rule 'match = "create_sandbox", limit = { memroy = 5 }', 4, "memroy", "memory" },
  { "a number in quotes", rule 'match = "create_sandbox", limit = { cpu = "4" }', 4, "cpu", "" },
  { "two decisions", rule 'match = "run_code", allow = true, ask = "Really?"', 4, "", "" },
  { "nothing to do", rule 'match = "run_code"', 4, "", "" },
  { "no name", 'return { default = "allow", rules = {\n  { match = "run_code", deny = "no" },\n} }', 2, "name", "write one" },
  { "a name twice", 'return { default = "allow", rules = {\n  { name = "a", match = "run_code", deny = "no" },\n'
    .. '  { name = "a", match = "run_command", deny = "no" },\n} }', 3, "", "" },
  { "a glob that is none", rule 'match = "run_[", deny = "no"', 4, "", "" },
  { "a window that is none", rule 'match = "@create", when = { within = "9 to 5" }, deny = "no"', 4,
    "9 to 5", "mon-fri 08:00-18:00" },
  { "a list where path wants deny or allow", rule 'match = "@read", path = { "**/.env" }', 4, "path[1]", "deny = {" },
  { "a regular expression for a path", rule 'match = "@read", path = { deny = { ".*\\\\.env$" } }', 4,
    "regular expression", '"**/*.env"' },
  { "a count among the limits", rule 'match = "@create", limit = { sandboxes = 2 }', 4, "`sandboxes`",
    "quota = { sandboxes = 2 }" },
  { "a word for a number of seconds", rule 'match = "@execute", rate = { calls = 60, per = "minute" }', 4, "per",
    "such as 60 for a minute" },
  { "an entry of a rule without its key", 'return { default = "allow", rules = {\n  { "kill_sandbox", ask = "Kill?" },\n} }', 2, "",
    'match = "kill_sandbox"' },
  { "a rule that is not closed",
    'return {\n  default = "allow",\n  rules = {\n    { name = "a", match = "run_code", deny = "no",\n'
    .. '    { name = "b", match = "run_code", deny = "no" },\n  },\n}', 7, "near <eof>", "the `{` of line 4" },
  { "a zone that is none", rule 'match = "@create", when = { within = "mon-fri 08:00-18:00", tz = "Berlin" }, deny = "no"', 4,
    "Berlin", "" },
  { "a regular expression that is none", rule 'match = "@all", redact = "("', 4, "regular expression", "mend it" },
  -- functions
  { "a verdict in words", before ' return "allow"', nil, 'the text "allow"', "deny(reason) or ask(question)" },
  { "arguments that no tool takes", before ' call.args.timeout = "long"', nil, "`timeout`", "what its schema says" },
  { "files in a function", before ' io.open "x"', 3, "io", "policies have no io" },
  { "a loop that does not end", before " while true do end", 3, "instructions", "look at its loops" },
  { "= in a condition", before ' if call.tool = "x" then return deny "x" end', 3, "near '='", "compare with ==" },
  { "another language's not equal", before ' if call.tool != "x" then return end', 3, "near '!'", "~=" },
  { "no then", before ' if call.tool == "x" return deny "x" end', 3, "near 'return'", "write `then`" },
  { "else if", before " if true then return else if false then return end", 6, "near <eof>", "elseif" },
  { "no end", before ' if call.tool == "x" then return deny "x"', 6, "near <eof>", "add `end`" },
  { "an end too many", before " end", 4, "near 'end'", "one `end` too many" },
  { "+=", before " local n = 0\n n += 1", 4, "near '+'", "n = n + 1" },
  { "a function without its name", 'return { default = "allow", rules = {}, function before(call) end }', 1,
    "near 'before'", "name = function" },
  { "a misspelt function", 'local policy = { default = "allow", rules = {} }\nfunction policy.befor(call) end\nreturn policy', 2,
    "befor", "before" },
  { "printing", 'print "hello"\nreturn { default = "allow" }', 1, "print", "log" },
  { "reading files", 'local f = io.open "x"\nreturn { default = "allow" }', 1, "io", "" },
  { "a missing module", 'local x = require "nosuch"\nreturn { default = "allow" }', 1, "nosuch.lua", "no such file" },
  { "an endless loop", "while true do end\nreturn { default = 'allow' }", nil, "", "" },
  { "what is nil", 'local policy = { default = "allow" }\npolicy.rules.x = 1\nreturn policy', 2, "nil", "" },
}

local function assert_fault(result, path, line, words, way_out, what)
  assert.are.equal(1, result.code, what .. ": " .. result.stdout .. result.stderr)
  assert.are.equal("", result.stderr, what)
  local first = result.stdout:match "^[^\n]*"
  local place = line and ("%s:%d: "):format(path, line) or path .. ":"
  assert.are.equal(place, first:sub(1, #place), what .. ": " .. first)
  assert.is_truthy(first:find(words, 1, true), what .. ": " .. first)
  assert.is_truthy(first:find("; ", 1, true), what .. " has no way out: " .. first)
  assert.is_truthy(first:find(way_out, 1, true), what .. ": " .. first)
  assert.is_nil(result.stdout:find "0x%x+", what .. " shows an address: " .. first)
  assert.is_nil(result.stdout:find("traceback", 1, true), what)
  for shown in result.stdout:gmatch "[^\n]+" do assert.is_true(utf8.len(shown) ~= nil, what) end
end

describe("demilune check", function()
  before_each(function() home = demilune.home() end)
  after_each(function() demilune.remove_home(home) end)

  it("names the line and the way out of what people do wrong", function()
    for _, row in ipairs(MISTAKES) do
      local what, text, line, words, way_out = row[1], row[2], row[3], row[4], row[5]
      local path = write("policy.lua", text)
      assert_fault(check { path }, path, line, words, way_out, what)
    end
  end)

  it("finds every mistake, in the order of the file", function()
    local path = write("policy.lua", 'return {\n  default = "alow",\n  rules = {\n    { name = "a", macth = "x" },\n'
      .. '    { name = "b", match = "run_code", limit = 5 },\n  },\n}\n')
    local result = check { path }
    local lines = {}
    for line in result.stdout:gmatch("policy%.lua:(%d+): ") do lines[#lines + 1] = tonumber(line) end
    assert.is_true(#lines >= 3, result.stdout)
    local sorted = table.move(lines, 1, #lines, 1, {})
    table.sort(sorted)
    assert.are.same(sorted, lines)
    assert.is_truthy(result.stdout:find("%d+ mistakes, %d+ warnings?\n$"), result.stdout)
  end)

  it("says of a file that is no policy what it is", function()
    local rows = {
      { "", "it is empty" }, { " \n\n", "it is empty" }, { "\27Lua\84\0", "compiled Lua" }, { "\127ELF\2\1\1\0", "not a text" },
      { "\xFF\xFEr\0e\0", "UTF-16" }, { 'return { default = "allow" } -- \xE9', "UTF-8" }, { ("-"):rep((1 << 20) + 1), "1 MB" },
    }
    for _, row in ipairs(rows) do
      local path = write("policy.lua", row[1])
      assert_fault(check { path }, path, nil, row[2], "", row[2])
    end
    assert.is_truthy(check { home }.stdout:find "it is a folder; ")
    assert.is_truthy(check { home .. "/none.lua" }.stdout:find "there is no such file; ")
    os.execute("mkfifo '" .. home .. "/pipe.lua'")
    assert.is_truthy(check { home .. "/pipe.lua" }.stdout:find "it is not an ordinary file; ")
  end)

  it("takes byte order marks, line ends of Windows and tabs", function()
    local path = write("policy.lua", '\xEF\xBB\xBFreturn {\r\n\tdefault = "allow",\r\n\trules = {},\r\n}\r\n')
    local result = check { path }
    assert.are.equal(0, result.code, result.stdout)
    assert.are.equal("policy.lua is fine: 0 rules\n", result.stdout)
  end)

  it("finds a mistake in a file that the policy requires", function()
    write("more.lua", "return {\n  { name = \"a\", match = \"run_code\" deny = \"no\" },\n}\n")
    local path = write("policy.lua", 'return { default = "allow", rules = require "more" }')
    assert_fault(check { path }, home .. "/more.lua", 2, "near 'deny'", "comma", "a syntax error")
    write("more.lua", 'return {\n\n  { name = "a", match = "run_code",\n    dney = "no" },\n}\n')
    assert_fault(check { path }, home .. "/more.lua", 4, "dney", "deny", "a misspelt key")
  end)

  it("tries before and list on the smallest call of every tool", function()
    local path = write("policy.lua", before ' if call.args.command:find "curl" then return deny "no" end')
    assert_fault(check { path }, path, 3, "`before` fails on the smallest call of create_sandbox", "before you use it", "before")
    path = write("policy.lua", 'local policy = { default = "allow", rules = {} }\nfunction policy.list(tool, who)\n'
      .. "  return tool.nosuch.x\nend\nreturn policy\n")
    assert_fault(check { path }, path, 3, "`list` fails", "", "list")
    path = write("policy.lua", before ' if (call.args.command or ""):find "curl" then return deny "no" end')
    local result = check { path }
    assert.are.equal("policy.lua is fine: 0 rules, before\n", result.stdout)
    assert.are.equal(0, result.code)
  end)

  it("marks warnings, which fail only when asked to", function()
    local path = write("policy.lua", rule 'match = "run_*", deny = "no"')
    local result = check { path }
    assert.are.equal(0, result.code, result.stdout)
    assert.is_truthy(result.stdout:find(path .. ":4: warning: ", 1, true), result.stdout)
    assert.is_truthy(result.stdout:find "policy.lua is fine: 1 rule\n")
    result = check { path, "--strict" }
    assert.are.equal(1, result.code, result.stdout)
    assert.is_truthy(result.stdout:find "0 mistakes, 1 warning\n$", result.stdout)
  end)

  it("warns of sizes that cannot be meant, and of templates that a limit denies; notes fail nothing", function()
    for fields, words in pairs {
      ['match = "@create", limit = { memory = 2 }'] = "memory is in MB, and 2",
      ['match = "@create", limit = { memory = 2147483648 }'] = "memory is in MB, and 2147483648",
      ['match = "@create", limit = { timeout = 3600000 }'] = "timeout is in seconds",
      ['match = "@create", limit = { memory = { max = 512 } }'] = "the template base has 1024 of memory",
    } do
      local result = check { write("policy.lua", rule(fields)), "--strict" }
      assert.is_truthy(result.stdout:find(":4: warning: " .. words, 1, true), result.stdout)
      assert.are.equal(1, result.code)
    end
    local path = write("policy.lua", rule 'match = "@create", limit = { memory = { max = 512, default = 512 } }')
    local result = check { path, "--strict" }
    assert.are.equal("policy.lua is fine: 1 rule\n", result.stdout)
    result = check { write("policy.lua", rule 'match = "@read", path = { deny = { "**/.env" } }'), "--strict" }
    assert.is_truthy(result.stdout:find(":4: note: `path` keeps", 1, true), result.stdout)
    assert.are.equal(0, result.code)
  end)

  it("says that the folder of an audit is not there", function()
    local result = check({}, { config = 'return { audit = "nowhere/audit.jsonl" }' })
    assert.are.equal(1, result.code)
    assert.is_truthy(result.stdout:find("audit: its folder is not there", 1, true), result.stdout)
  end)

  it("checks the whole configuration without an argument", function()
    local result = check({}, { config = 'return { policy = "policy.lua", defualt_sandbox = "on" }' })
    assert.are.equal(1, result.code)
    assert.is_truthy(result.stdout:find "demilune%.lua:1: defualt_sandbox is not a key", result.stdout)
    write("policy.lua", 'return { default = "deny", rules = {} }')
    result = check({}, { config = 'return { policy = "policy.lua" }' })
    assert.are.equal(0, result.code, result.stdout)
    assert.are.equal("demilune.lua is fine: 1 provider\npolicy.lua is fine: 0 rules\n", result.stdout)
    result = check({}, { config = "return {}" })
    assert.are.equal("demilune.lua is fine: 1 provider\nno policy is configured, so every call is allowed\n", result.stdout)
    result = check({}, { config = 'return { policy = "none.lua" }' })
    assert.are.equal(1, result.code)
    assert.is_truthy(result.stdout:find "/none%.lua: there is no such file; ", result.stdout)
  end)

  it("starts no engine and writes nothing", function()
    write("policy.lua", 'return { default = "deny", rules = {} }')
    local result = check({}, { config = 'return { policy = "policy.lua", audit = "audit.jsonl" }' })
    assert.are.equal(0, result.code, result.stdout)
    assert.is_nil(lfs.attributes(home .. "/audit.jsonl"))
    assert.is_nil(lfs.attributes(demilune.state_dir(home)))
  end)

  it("refuses what it does not take, as a misuse", function()
    assert.are.equal(2, check { "a", "b" }.code)
    assert.are.equal(2, check { "--nosuch" }.code)
  end)
end)
