--- source.lua - finds the line of a key in the text of a configuration, once there is a fault.
--
-- Not a parser: it knows comments, strings, long brackets and what nests, which is enough for
-- files that return a table constructor, also through `local name = { … }` and `name.key = …`.
-- Where the text builds its table in other ways, the answer is the line of the nearest key above.
local source = {}

---@class demilune.config.Token
---@field kind string  name, string, number, sign
---@field text string  of a string, what is between its quotes, escapes as they are written
---@field line integer

local OPENERS = { ["("] = true, ["{"] = true, ["["] = true, ["function"] = true, ["if"] = true,
  ["do"] = true, ["repeat"] = true }
local CLOSERS = { [")"] = true, ["}"] = true, ["]"] = true, ["end"] = true, ["until"] = true }

--- The end of a quoted string that starts at `at`.
local function quoted_end(text, at)
  local quote = text:sub(at, at)
  local i = at + 1
  while true do
    local found = text:find("[\\" .. quote .. "]", i)
    if not found then return #text end
    if text:byte(found) ~= 92 then return found end
    i = found + 2
  end
end

--- The token at `at`, where no white space is: kind, last byte, text. Kind nil for a comment.
local function scan(text, at)
  local comment = text:match("^%-%-()", at)
  local level = text:match("^%[(=*)%[", comment or at)
  if level then
    local body = (comment or at) + #level + 2
    local stop = text:find("]" .. level .. "]", body, true)
    local last = stop and stop + #level + 1 or #text
    return not comment and "string" or nil, last, text:sub(body, (stop or 0) - 1)
  end
  if comment then return nil, (text:find("\n", at, true) or #text + 1) - 1 end
  local word = text:match("^[%a_][%w_]*", at)
  if word then return "name", at + #word - 1, word end
  local number = text:match("^%.?%d[%w.]*", at)
  if number then return "number", at + #number - 1, number end
  if text:find("^[\"']", at) then
    local stop = quoted_end(text, at)
    return "string", stop, text:sub(at + 1, stop - 1)
  end
  local sign = text:match("^[=~<>]=", at) or text:sub(at, at)
  return "sign", at + #sign - 1, sign
end

--- All tokens of a text, comments left out.
---@param text string
---@return demilune.config.Token[]
function source.tokens(text)
  local tokens, line, at = {}, 1, 1
  while true do
    local start = text:find("%S", at)
    if not start then return tokens end
    local kind, stop, words = scan(text, start)
    line = line + select(2, text:sub(at, start):gsub("\n", ""))
    if kind then tokens[#tokens + 1] = { kind = kind, text = words, line = line } end
    line = line + select(2, text:sub(start, stop):gsub("\n", ""))
    at = stop + 1
  end
end

local function is(token, text)
  return token and token.text == text and (token.kind == "sign" or token.kind == "name")
end

local function nesting(token)
  if token.kind ~= "sign" and token.kind ~= "name" then return 0 end
  return OPENERS[token.text] and 1 or CLOSERS[token.text] and -1 or 0
end

--- The index of what ends the expression at `i`: a comma, a semicolon, or what closes around.
local function expression_end(tokens, i)
  local depth = 0
  while tokens[i] do
    local token = tokens[i]
    local step = nesting(token)
    if depth == 0 and (step < 0 or is(token, ",") or is(token, ";")) then return i end
    depth = depth + step
    i = i + 1
  end
  return i
end

--- The key of the field at `i`, and the index of its value; no key for a positional one.
local function field_at(tokens, i)
  if tokens[i].kind == "name" and is(tokens[i + 1], "=") then return tokens[i].text, i + 2 end
  if is(tokens[i], "[") and is(tokens[i + 2], "]") and is(tokens[i + 3], "=") then
    local key = tokens[i + 1]
    return key.kind == "number" and math.tointeger(tonumber(key.text)) or key.text, i + 4
  end
  return nil, i
end

--- The fields of the constructor whose brace is at `i`, by key: { line, index of the value }.
local function fields_of(tokens, i, fields)
  local position = 0
  i = i + 1
  while tokens[i] and not is(tokens[i], "}") do
    local line = tokens[i].line
    local key, value = field_at(tokens, i)
    if not key then
      position = position + 1
      key = position
    end
    fields[key] = { line = line, value = value }
    i = expression_end(tokens, value)
    if is(tokens[i], ",") or is(tokens[i], ";") then i = i + 1
    elseif not is(tokens[i], "}") then return end
  end
end

--- Adds what the text does to a local: its constructor, and `name.key = value`.
local function fields_of_local(tokens, name, fields)
  for i, token in ipairs(tokens) do
    if token.kind == "name" and token.text == name then
      local before, after = tokens[i - 1], is(tokens[i + 1], "<") and i + 4 or i + 1 -- <const>
      if is(before, "local") and is(tokens[after], "=") and is(tokens[after + 1], "{") then
        fields_of(tokens, after + 1, fields)
      elseif is(tokens[i + 1], ".") and is(tokens[i + 3], "=") and not is(before, ".") then
        fields[tokens[i + 2].text] = { line = tokens[i + 2].line, value = i + 4 }
      end
    end
  end
end

--- What is known about the table that the expression at `i` gives.
local function fields_at(tokens, i)
  local fields = {}
  if is(tokens[i], "{") then
    fields_of(tokens, i, fields)
  elseif tokens[i] and tokens[i].kind == "name" then
    fields_of_local(tokens, tokens[i].text, fields)
  end
  return fields
end

--- The index of the `return` that ends the file.
local function last_return(tokens)
  if tokens.last_return then return tokens.last_return end
  local depth, found, deeper = 0, nil, nil
  for i, token in ipairs(tokens) do
    if is(token, "return") then
      deeper = i
      if depth == 0 then found = i end
    end
    depth = depth + nesting(token)
  end
  tokens.last_return = found or deeper
  return tokens.last_return
end

--- The line where the key at the end of `path` stands; where it cannot be found, that of the
--- nearest key above it, at last that of the `return`.
---@param tokens demilune.config.Token[]
---@param path (string|integer)[]
---@return integer line
function source.line_of(tokens, path)
  local start = last_return(tokens)
  if not start then return 1 end
  local line, value = tokens[start].line, start + 1
  for _, key in ipairs(path) do
    local field = fields_at(tokens, value)[key]
    if not field then break end
    line, value = field.line, field.value
  end
  return line
end

return source
