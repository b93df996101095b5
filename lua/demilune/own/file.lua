--- own/file.lua - an operator's Lua file of code: found by a pattern, evaluated anew each time, its faults with their lines.
--
-- The file is trusted: it has all libraries. It is bounded all the same, so that one which never ends is a fault with a line
-- and not a server that hangs. `require "lib.name"` looks for lib/name.lua beside the file first, and that too is evaluated anew.
local core = require "demilune.core"

local file = {}

--- Bytes of a file.
file.BYTES_MAX = 1024 * 1024
--- Names in a folder that are looked at.
local NAMES_MAX = 10000
local STEPS_MAX = 100000000
local STEPS_BETWEEN = 1000000
local LEVELS_MAX = 200
--- Of Lua's own words in a fault.
local WORDS_BYTES = 500

local READ_FAULTS = {
  file_not_found = "there is no such file", not_a_directory = "there is no such file", is_directory = "it is a folder, not a file",
  file_permission = "it may not be read by this user", too_large = "it has more than 1 MiB",
  unsupported = "it is not an ordinary file",
}

---@class demilune.own.Fault
---@field file string
---@field line? integer  nil: not known
---@field text string    "what is wrong; the way out"

--- A fault as one line, as for compilers' messages.
---@param fault demilune.own.Fault
---@return string
function file.line_of(fault)
  local text = fault.text:gsub("%c+", " ")
  return fault.line and ("%s:%d: %s"):format(fault.file, fault.line, text) or ("%s: %s"):format(fault.file, text)
end

--- A pattern of names as a Lua pattern: `*` is any run, `?` one sign.
local function lua_pattern(glob)
  return "^" .. glob:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$"
end

--- The files that a path names, sorted. Only its last part may have `*` and `?`, which match no leading dot.
---@param pattern string  from the root, or relative
---@return string[]? paths  at least one
---@return demilune.own.Fault? fault
function file.find(pattern)
  local dir, name = pattern:match "^(.*)/([^/]*)$"
  if not dir then dir, name = ".", pattern end
  local function fault(text) return nil, { file = pattern, text = text } end
  if dir:find "[*?]" then return fault "only the last part of the path may have * or ?; name each folder by itself" end
  if not name:find "[*?]" then return { pattern } end
  local names = core.fs.list(dir == "" and "/" or dir)
  if not names then return fault "its folder cannot be read; make it, or mend the path" end
  if #names > NAMES_MAX then return fault "its folder has more than 10000 names; give these files one of their own" end
  local wanted, paths = lua_pattern(name), {}
  for _, one in ipairs(names) do
    if one:sub(1, 1) ~= "." and one:find(wanted) then paths[#paths + 1] = dir .. "/" .. one end
  end
  if #paths == 0 then return fault "no file has such a name; mend the path, or leave it out" end
  table.sort(paths)
  return paths
end

--- The line of a file at which a thread stopped.
local function line_of(thread, source)
  for level = 0, LEVELS_MAX do
    local info = debug.getinfo(thread, level, "Sl")
    if not info then return nil end
    if info.source == source and info.currentline > 0 then return info.currentline end
  end
end

--- Takes "name.lua:3: " off Lua's message, and makes one line of it.
local function split(message)
  local line, text = message:match "^[^\n]-:(%d+): (.*)$"
  text = core.text.mend(text or message):gsub("%c+", " ")
  return math.tointeger(tonumber(line)), core.text.head(text, WORDS_BYTES)
end

--- Runs a loaded file in a thread of its own, with a bound on its steps.
local function run(loaded, source)
  local thread, steps = coroutine.create(loaded), 0
  debug.sethook(thread, function()
    steps = steps + STEPS_BETWEEN
    if steps > STEPS_MAX then error("it does not come to an end", 0) end
  end, "", STEPS_BETWEEN)
  local results = table.pack(coroutine.resume(thread))
  local is_over = coroutine.status(thread) == "dead"
  local line = not (results[1] and is_over) and line_of(thread, source) or nil
  if not (results[1] and is_over) then coroutine.close(thread) else debug.sethook(thread) end
  if not results[1] then
    local raised = results[2]
    local at, text = split(type(raised) == "string" and raised or ("it raised a %s"):format(type(raised)))
    return nil, { line = line or at, text = text .. "; mend what the file does there" }
  end
  if not is_over then return nil, { line = line, text = "it waits while it is loaded; do that in a function" } end
  return { value = results[2], count = results.n - 1 }
end

local evaluate

--- A require that knows the file's own folder; what it loads belongs to this load alone.
local function requirer(dir, loaded)
  return function(name)
    local is_name = type(name) == "string" and name:find "^[%w_.-]+$" and not name:find("..", 1, true)
    local path = is_name and ("%s/%s.lua"):format(dir, (name:gsub("%.", "/")))
    if not path or not core.fs.stat(path) then return require(name) end
    if loaded[path] == nil then
      loaded[path] = false
      local result, fault = evaluate(path, loaded)
      if not result then error(file.line_of(fault), 0) end
      loaded[path] = { value = result.value == nil and true or result.value }
    elseif not loaded[path] then
      error(("%s requires itself"):format(name), 2)
    end
    return loaded[path].value
  end
end

--- Its own globals over ours: what the file assigns does not reach the program, and a name that is not defined is a fault.
local function environment(dir, loaded)
  return setmetatable({ require = requirer(dir, loaded) }, {
    __index = function(_, name)
      local value = rawget(_G, name)
      if value == nil then error(("the name %s is not defined"):format(tostring(name)), 2) end
      return value
    end,
  })
end

function evaluate(path, loaded)
  local text, err = core.fs.read(path, file.BYTES_MAX)
  if not text then
    return nil, { file = path, text = (READ_FAULTS[err.category] or "it cannot be read") .. "; mend it, or leave it out" }
  end
  if text:sub(1, 1) == "\27" then return nil, { file = path, text = "it is compiled Lua; write its source there instead" } end
  text = text:gsub("^\xEF\xBB\xBF", ""):gsub("^#[^\n]*", "")
  local source, dir = "@" .. path, path:match "^(.*)/[^/]*$" or "."
  local chunk, message = load(text, source, "t", environment(dir, loaded))
  if not chunk then
    local line, said = split(message)
    return nil, { file = path, line = line, text = said .. "; mend the syntax there" }
  end
  local result, fault = run(chunk, source)
  if result then return result end
  fault.file = path
  return nil, fault
end

--- Evaluates a file that must return one table.
---@param path string
---@return table? value
---@return demilune.own.Fault? fault
function file.evaluate(path)
  local result, fault = evaluate(path, {})
  if not result then return nil, fault end
  if result.count == 1 and type(result.value) == "table" then return result.value end
  local what = result.count == 0 and "nothing" or result.count > 1 and "several values" or "a " .. type(result.value)
  return nil, { file = path, text = ("it must return one table, not %s; end it with return { … }"):format(what) }
end

return file
