--- policy/advice.lua - what a person who does not know Lua well can do about a policy that Lua does not take.
--
-- Lua says where its parser stopped, which is often a line below the mistake, and in words of its grammar. They stay, since
-- they can be looked up; behind them stands what was most likely meant.
local source = require "demilune.config.source"

local advice = {}

local WORDS_BYTES_MAX = 400
local NEAR_BYTES_MAX = 40
local COMPILED = "^\27Lua"

local READING = {
  file_not_found = "there is no such file; name one that exists",
  not_a_directory = "there is no such file; name one that exists",
  is_directory = "it is a folder; name the file in it",
  file_permission = "it may not be read by this user; change its owner or mode",
  too_large = "it has more than 1 MB; a policy is a short text",
  unsupported = "it is not an ordinary file; name one",
}

--- What is wrong with a file that could not be read.
---@param err demilune.Error  of core.fs.read
---@return string
function advice.of_reading(err)
  return READING[err.category] or "it cannot be read; look at the disk"
end

local function line_at(bytes, at)
  return 1 + select(2, bytes:sub(1, at - 1):gsub("\n", ""))
end

--- The text of a file's bytes, without a mark of its byte order and a first line of a shell; or what is wrong with them.
---@param bytes string
---@return string? text
---@return integer? line
---@return string? words
function advice.as_text(bytes)
  if bytes:find(COMPILED) then return nil, nil, "it is compiled Lua; a policy is read as text, so name its source" end
  if bytes:find "^\xFF\xFE" or bytes:find "^\xFE\xFF" then return nil, nil, "it is UTF-16; save it as UTF-8" end
  if bytes:find("\0", 1, true) then return nil, nil, "it is not a text; a policy is a file of Lua" end
  local is_text, at = utf8.len(bytes)
  if not is_text then
    return nil, line_at(bytes, at), "there are bytes that are no UTF-8; save the file as UTF-8"
  end
  local text = bytes:gsub("^\xEF\xBB\xBF", ""):gsub("^#[^\n]*", "")
  if not text:find "%S" then return nil, nil, 'it is empty; begin with: return { default = "deny", rules = {} }' end
  return text
end

-- ---- the words of Lua's parser ----

--- The name or sign at which the parser stopped, for messages.
local function near_of(text)
  local near = text:match " near '?(.-)'?$" or text:match " near (<%w+>)"
  return near and #near <= NEAR_BYTES_MAX and near or nil
end

--- Whether the file has these two words beside each other, in one line.
local function has_pair(text, first, second)
  local tokens = source.tokens(text)
  for i = 2, #tokens do
    local before, after = tokens[i - 1], tokens[i]
    if before.text == first and after.text == second and before.line == after.line then return true end
  end
  return false
end

--- What is missing before the end of what was opened; else the words for what was opened.
local function of_unclosed(words, near)
  local open, line = words:match "%(to close '([^']+)' at line (%d+)%)"
  local opened = open and ("the `%s` of line %s"):format(open, line) or "what was opened"
  if near ~= "<eof>" then return nil, opened end
  local close = words:match "^'([^']+)' expected"
  return ("%s is not closed; add `%s` where it ends"):format(opened, close or "}")
end

local function first_sign_column(text, line)
  local at = 0
  for content in (text .. "\n"):gmatch "([^\n]*)\n" do
    at = at + 1
    if at == line then return #content:match "^%s*" end
  end
end

--- The line of a `{` that was most likely left open: one that begins its line, and the next line begins another at the same
--- column before it is closed.
local function left_open(text)
  local open, last_line = {}, 0
  for _, token in ipairs(source.tokens(text)) do
    local is_first = token.line ~= last_line
    last_line = token.line
    if token.text == "{" and token.kind == "sign" then
      local column, top = is_first and first_sign_column(text, token.line), open[#open]
      if column and top and top.column == column then return top.line end
      open[#open + 1] = { line = token.line, column = column }
    elseif token.text == "}" and token.kind == "sign" then
      open[#open] = nil
    end
  end
end

local function of_brace(words, near, text)
  local line = near == "<eof>" and left_open(text)
  if line then return ("the `{` of line %d is not closed; add `}` where it ends"):format(line) end
  local unclosed, opened = of_unclosed(words, near)
  if unclosed then return unclosed end
  if near == "=" then
    return 'what stands before the = is no key; write key = value, or ["a-key"] = value where it has other signs'
  end
  if near == ":" then return "write = between a key and its value, not :" end
  if near == "end" then return ("%s is not closed; add } before that `end`"):format(opened) end
  if near == "@" then return 'put the group in quotes: "@execute"; between two entries stands a comma' end
  if near and near:find "^[%d\"']" then return "a = or a comma is missing before it" end
  return ("a comma is missing before `%s`, at the end of what stands before it"):format(near or "it")
end

local function of_end(words, near, text)
  if has_pair(text, "else", "if") then return "write elseif in one word, or one more `end`" end
  return of_unclosed(words, near) or "an `end` is missing before it"
end

local function of_bracket(words, near)
  return of_unclosed(words, near) or "a closing bracket or a comma is missing before it"
end

local function of_then(_, near)
  if near == "=" then return "compare with ==; one = gives a value" end
  if near == "!" then return "not equal is ~= in Lua" end
  if near == "&" or near == "|" then return "write `and` or `or`" end
  return "write `then` after the condition"
end

local OF_SYMBOL = {
  ["{"] = "write `return` before the {", ["["] = "a list stands in { }, not in [ ]",
  ["@"] = 'put the group in quotes: "@execute"', ["!"] = "not equal is ~= in Lua, and not is `not`",
  ["/"] = "put a path in quotes; a comment begins with --", ["//"] = "a comment begins with --",
  ["#"] = "a comment begins with --", ["*"] = 'put what has a * in quotes: "run_*"', [">"] = "write = between a key and its value",
  ["}"] = "a value is missing before the }", [","] = "a value is missing before that comma; a text stands in quotes",
  ["="] = "a name is missing before the =", ["<eof>"] = "the file ends in the middle; close what is open",
  ["&"] = "write `and`", ["|"] = "write `or`",
}
local WORDS = {}
for word in ("and break do else elseif end for function if in local not or repeat return then until while"):gmatch "%l+" do
  WORDS[word] = true
end

--- Whether a star stands at the end of a word in that line, as in match = run_*.
local function has_star(text, line)
  for _, token in ipairs(source.tokens(text)) do
    if token.line == line and token.kind == "sign" and token.text == "*" then return true end
  end
  return false
end

local function of_symbol(_, near, text, line)
  if not near then return "put a text in quotes" end
  if near:find "[\128-\255]" or near:find "^<\\%d+>$" then
    return 'only plain signs stand outside of quotes; write straight quotes: "…"'
  end
  if (near == "," or near == "}") and has_star(text, line) then return OF_SYMBOL["*"] end
  if WORDS[near] then return ("a value is missing before `%s`"):format(near) end
  return OF_SYMBOL[near] or "put a text in quotes"
end

local function of_end_of_file(_, near)
  if near == "}" or near == ")" then return ("there is one `%s` too many"):format(near) end
  if near == "end" then return "there is one `end` too many" end
  if near == "," then return "nothing may follow the returned table; take the comma away, or put { } around all of it" end
  return "nothing may follow the returned table; move it above the `return`"
end

local function of_name(_, near)
  if near and near:find "^[\"'%d{]" then return "write = between a key and its value, not :" end
  return "a name stands there: letters, digits and _, no word of Lua"
end

local function of_statement(_, near)
  if near == "+" or near == "-" then return "Lua has no += and no ++; write n = n + 1" end
  return "write name = value, or f(…) for a call"
end

--- By the beginning or a part of what the parser says.
local SYNTAX = {
  { "^'}' expected", of_brace },
  { "^'end' expected", of_end },
  { "^'[])]' expected", of_bracket },
  { "^'%(' expected", "write name = function(call) … end in a table, function policy.name(call) … end outside of one" },
  { "^'then' expected", of_then },
  { "^'do' expected", "write `do` after the loop's head" },
  { "^'=' expected", of_statement },
  { "^'?<eof>'? expected", of_end_of_file },
  { "^unexpected symbol", of_symbol },
  { "^unfinished string", "close the quotes on the line where they begin" },
  { "^unfinished long", "close it with ]]" },
  { "^malformed number", "write the number alone: MB for sizes, seconds for times; a text stands in quotes" },
  { "invalid escape", "write two \\ for one in quotes, or put the text in [[ ]]" },
  { "^syntax error", of_statement },
  { "^<name> expected", of_name },
}

local function of_syntax(words, text, line)
  local near = near_of(words)
  for _, row in ipairs(SYNTAX) do
    if words:find(row[1]) then
      return type(row[2]) == "string" and row[2] or row[2](words, near, text, line)
    end
  end
  return "mend the syntax there"
end

-- ---- what happens when the file runs ----

--- Names of Lua that a policy has not, and what to do instead.
local ABSENT = {
  print = "write log(…)", io = "policies have no io: they read and write no files",
  dofile = 'use require "name"', loadfile = 'use require "name"',
  load = "write the code itself", setmetatable = "use plain tables", getmetatable = "use plain tables",
  rawset = "use plain tables", rawget = "use plain tables", coroutine = "policies have no coroutines",
  debug = "policies have no debug library", package = 'use require "name"', collectgarbage = "leave it out",
  xpcall = "use pcall", json = "arguments are tables already"
}

--- Words for true and false elsewhere, and those for nothing.
local NOTHING = { null = true, None = true, undefined = true }
local SPELLED = { True = "true", False = "false", TRUE = "true", FALSE = "false", yes = "true", no = "false" }

--- Where the name was read, how it was used there.
local function of_global(name, text, line)
  if ABSENT[name] then return ABSENT[name] end
  if SPELLED[name] then return ("write %s"):format(SPELLED[name]) end
  if NOTHING[name] then return "leave out a key that has no value" end
  local tokens = source.tokens(text)
  for i, token in ipairs(tokens) do
    if token.kind == "name" and token.text == name and (not line or token.line == line) then
      local after = tokens[i + 1]
      if after and after.text == "==" then return ("write %s = …; == only compares"):format(name) end
      if after and after.text == "(" then return "there is no such function in a policy" end
      if after and (after.kind == "string" or after.text == "{") then return ("write %s = … if it is a key"):format(name) end
    end
  end
  return ('put it in quotes if it is a text: "%s"'):format(name)
end

--- The global that was read and is not there, in the words of the fence.
local function global_of(text)
  return text:match "^there is no global ([%a_][%w_]*)"
end

--- Whether a text has a `return` outside of every function.
---@param text string
---@return boolean
function advice.has_return(text)
  local depth = 0
  for _, token in ipairs(source.tokens(text)) do
    if token.kind == "name" then
      if token.text == "function" or token.text == "do" or token.text == "if" or token.text == "repeat" then depth = depth + 1 end
      if token.text == "end" or token.text == "until" then depth = depth - 1 end
      if token.text == "return" and depth == 0 then return true end
    end
  end
  return false
end

local function of_return(text)
  local name = text:match "^local%s+([%a_][%w_]*)%s*=%s*{" or text:match "\nlocal%s+([%a_][%w_]*)%s*=%s*{"
  return ("the file returns nothing; end it with `return %s`"):format(name or '{ default = "deny", rules = { … } }')
end

--- By a part of what the fence says about a value.
local VALUES = {
  { "^the policy has keys that are neither",
    "a rule stands in braces inside of rules = { … }, and everything else is key = value" },
  { "^rules%[%d+%] has keys that are neither", 'write every entry of a rule as key = value, as in match = "kill_sandbox"' },
  { "has keys that are neither", "write each entry as key = value, or none of them" },
  { "NaN", "write a number" },
  { "only allow, deny or ask make", 'in a table they are keys: deny = "the reason", ask = "the question", allow = true' },
  { "nested too deep", "make it flat" },
  { "is a function", "functions stand in the outermost table, as before, after and list" },
  { "must return a table", "end it with return { … }" },
}

local function of_value(words)
  for _, row in ipairs(VALUES) do
    if words:find(row[1]) then return row[2] end
  end
  return "a policy is one table of plain data and functions"
end

local OF_LIMIT = {
  instructions = "it does not come to an end in time; look for a loop that never ends",
  cpu = "it does not come to an end in time; look for a loop that never ends",
  wall = "it does not come to an end in time; look for a loop that never ends",
  memory = "it needs too much memory; make its tables smaller",
}

local function cut(text)
  text = text:gsub("%c+", " ")
  if #text <= WORDS_BYTES_MAX then return text end
  local stop = WORDS_BYTES_MAX
  while text:find("^[\128-\191]", stop + 1) do stop = stop - 1 end
  return text:sub(1, stop) .. "…"
end

--- What to do about a function that failed on a call, in the words of the fence; nil where nothing better is known than to look.
---@param words string
---@return string?
function advice.of_call(words)
  local name = words:match "there is no global ([%a_][%w_]*)"
  if name and ABSENT[name] then return ABSENT[name] end
  if words:find "%(limit: memory%)" then return "it needs too much memory; make its tables smaller" end
  if words:find "%(limit: %a+%)" then return "it does not come to an end in time; look at its loops" end
end

--- What a fault of loading is, with the way out.
---@param fault { kind: string, limit?: string, line?: integer, text: string, file?: string }  of Fence:load
---@param text string  the file where it arose
---@param of_file? demilune.policy.Fault  of a required file that could not be read
---@return string
function advice.of_fault(fault, text, of_file)
  local words = cut(tostring(fault.text))
  if of_file then return ("%s: %s"):format(of_file.file, of_file.text) end
  if fault.kind == "limit" or fault.limit then return OF_LIMIT[fault.limit] or words .. "; make it smaller" end
  if fault.kind == "syntax" then return words .. "; " .. of_syntax(words, text, fault.line) end
  if fault.kind == "value" then
    if not advice.has_return(text) then return of_return(text) end
    return words .. "; " .. of_value(words)
  end
  local name = global_of(words)
  if name then return ("there is no %s; %s"):format(name, of_global(name, text, fault.line)) end
  local called = words:match "^attempt to call a %a+ value %(global '([%w_]+)'%)" or words:match "^bad argument #%d+ to '(%l+)'"
  if called then return ("%s; write %s = … if it is a key of a rule"):format(words, called) end
  return words:find("; ", 1, true) and words or words .. "; mend what the file does there"
end

return advice
