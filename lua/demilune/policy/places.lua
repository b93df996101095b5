--- policy/places.lua - where a key of a policy stands: which of its files, which line.
--
-- The list of rules may be put together from several files and by loops, which no look at the text can follow. But rules have
-- names, and a name stands somewhere; so a rule that is not where its number says is looked for by its name.
local source = require "demilune.config.source"

local places = {}

---@class demilune.policy.Places
---@field files { path: string, text: string, tokens?: table }[]
---@field data table  what the policy's file returned
local Places = {}
Places.__index = Places

--- For the files of one policy, its own first.
---@param files { path: string, text: string }[]
---@param data table
---@return demilune.policy.Places
function places.new(files, data)
  local list = {}
  for i, file in ipairs(files) do list[i] = { path = file.path, text = file.text } end
  return setmetatable({ files = list, data = data }, Places)
end

local function tokens_of(file)
  file.tokens = file.tokens or source.tokens(file.text)
  return file.tokens
end

local function is_sign(token, text) return token ~= nil and token.kind == "sign" and token.text == text end

--- Whether the token at `i` is the string of `name = "…"`.
local function is_name_at(tokens, i, name)
  return tokens[i].kind == "string" and tokens[i].text == name and is_sign(tokens[i - 1], "=")
    and tokens[i - 2] ~= nil and tokens[i - 2].text == "name"
end

--- The index of the brace that the token at `i` stands in.
local function brace_around(tokens, i)
  local depth = 0
  for at = i, 1, -1 do
    if is_sign(tokens[at], "}") then depth = depth + 1 end
    if is_sign(tokens[at], "{") then
      if depth == 0 then return at end
      depth = depth - 1
    end
  end
end

--- The line of a key in the constructor whose brace is at `from`, by a text that returns just that constructor.
local function line_inside(tokens, from, path)
  local alone = { { kind = "name", text = "return", line = tokens[from].line } }
  table.move(tokens, from, #tokens, 2, alone)
  alone.last_return = 1
  return source.line_of(alone, path)
end

--- The only place where a rule of that name is written: the file and the index of the rule's brace.
local function written(self, name)
  local found, found_brace
  for _, file in ipairs(self.files) do
    local tokens = tokens_of(file)
    for i = 3, #tokens do
      if is_name_at(tokens, i, name) then
        if found then return nil end
        found, found_brace = file, brace_around(tokens, i)
      end
    end
  end
  return found_brace and found, found_brace
end

local function rule_name(self, path)
  if path[1] ~= "rules" or path[2] == nil or type(self.data.rules) ~= "table" then return nil end
  local rule = rawget(self.data.rules, path[2])
  local name = type(rule) == "table" and rawget(rule, "name")
  return type(name) == "string" and name or nil
end

--- The keys of a place as messages write it: `rules[1].when`. "the policy" is the outermost table.
---@param words string  that begin with it
---@return (string|integer)[]
function places.keys(words)
  local keys, at = {}, 1
  while not words:find "^the policy" do
    local name, after = words:match("^%.?([%a_][%w_]*)()", at)
    local position = nil
    if not name then position, after = words:match("^%[(%d+)%]()", at) end
    if not after then break end
    keys[#keys + 1] = name or math.tointeger(tonumber(position))
    at = after
  end
  return keys
end

--- The line of `function policy.name(…)`.
local function function_line(tokens, name)
  for i = 4, #tokens do
    local is_key = tokens[i].text == name and (is_sign(tokens[i - 1], ".") or is_sign(tokens[i - 1], ":"))
    if is_key and tokens[i - 3].text == "function" then return tokens[i].line end
  end
end

--- Where the key at the end of a path stands; where that cannot be found, the nearest key above it.
---@param path (string|integer)[]
---@return string file
---@return integer line
function Places:of(path)
  local name = rule_name(self, path)
  local file, brace = nil, nil
  if name then file, brace = written(self, name) end
  if file then return file.path, line_inside(tokens_of(file), brace, table.move(path, 3, #path, 1, {})) end
  local tokens = tokens_of(self.files[1])
  local line = #path == 1 and function_line(tokens, path[1])
  return self.files[1].path, line or source.line_of(tokens, path)
end

return places
