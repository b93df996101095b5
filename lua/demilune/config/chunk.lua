--- chunk.lua - evaluates the operator's file: a text of Lua that returns one table.
--
-- The file is trusted: it has all libraries. It runs in a coroutine with a bound on its steps, so
-- that one that never ends is an error with a line; and reading a name that is not defined is an
-- error, because `default_sandbox = off` without quotes would else be nil, and so "on".
local chunk = {}

local NAME = "configuration"
local SOURCE = "=" .. NAME
local STEPS_MAX = 100000000
local STEPS_BETWEEN = 1000000
local LEVELS_MAX = 200
local NAME_SHOWN_BYTES_MAX = 32

---@class demilune.config.ChunkFault
---@field line? integer  nil: not known
---@field text string    "what is wrong; the way out", perhaps with bytes that no line should have

--- A name for a message. A long one may be a key that lacks its quotes.
local function name_words(name)
  if type(name) ~= "string" or #name > NAME_SHOWN_BYTES_MAX then return "the name that is read there" end
  return "the name " .. name
end

--- Its own globals over ours: what the file assigns does not reach the program.
local function environment()
  return setmetatable({}, {
    __index = function(_, name)
      local value = rawget(_G, name)
      if value == nil then
        error(("%s is not defined"):format(name_words(name)), 2)
      end
      return value
    end,
  })
end

--- The line of the file at which a dead coroutine stopped.
local function line_of(thread)
  for level = 0, LEVELS_MAX do
    local info = debug.getinfo(thread, level, "Sl")
    if not info then return nil end
    if info.source == SOURCE and info.currentline > 0 then return info.currentline end
  end
end

--- Takes "configuration:3: " off Lua's message.
local function split(message)
  local line, text = message:match("^" .. NAME .. ":(%d+): (.*)$")
  return math.tointeger(tonumber(line)), text or message
end

--- Loads in a coroutine: there no message handler of a caller's xpcall gets at the message.
local function compile(text)
  local _, loaded, message = coroutine.resume(coroutine.create(function()
    return load(text, SOURCE, "t", environment())
  end))
  return loaded, message
end

local function load_fault(message)
  local line, text = split(message)
  if message:find("binary chunk", 1, true) then
    return { line = 1, text = "the file is compiled Lua; write its source there instead" }
  end
  -- Lua's "near" may show a string of the file, and so a key that stands there against all advice.
  text = text:gsub(" near '[\"'%[].*$", ""):gsub(" near '[%w_.]*'$", function(near)
    return #near <= NAME_SHOWN_BYTES_MAX and near or ""
  end)
  return { line = line, text = text .. "; mend the syntax there" }
end

local function run_fault(thread, reason)
  if type(reason) ~= "string" then
    local text = ("the file raised a %s; mend what it does there"):format(type(reason))
    return { line = line_of(thread), text = text }
  end
  local line, text = split(reason)
  local is_bare_word = text:find "^the name .* is not defined$"
  local way_out = is_bare_word and "put a word in quotes" or "mend what it does there"
  return { line = line_of(thread) or line, text = text .. "; " .. way_out }
end

local function resume(loaded)
  local thread = coroutine.create(loaded)
  local steps = 0
  debug.sethook(thread, function()
    steps = steps + STEPS_BETWEEN
    if steps > STEPS_MAX then error("it does not come to an end", 0) end
  end, "", STEPS_BETWEEN)
  return thread, table.pack(coroutine.resume(thread))
end

--- Runs a text and gives the one table that it returns.
---@param text string
---@return table? value
---@return demilune.config.ChunkFault? fault
function chunk.run(text)
  local loaded, message = compile(text)
  if not loaded then return nil, load_fault(message) end
  local thread, results = resume(loaded)
  if not results[1] then
    local fault = run_fault(thread, results[2])
    coroutine.close(thread)
    return nil, fault
  end
  if coroutine.status(thread) ~= "dead" then
    local line = line_of(thread)
    coroutine.close(thread)
    return nil, { line = line, text = "the file must not yield; return the table at its end" }
  end
  if results.n ~= 2 or type(results[2]) ~= "table" then
    local what = results.n == 1 and "nothing" or results.n > 2 and "several values"
      or "a " .. type(results[2])
    local words = "the file must return one table, not %s; end it with return { … }"
    return nil, { text = words:format(what) }
  end
  return results[2]
end

return chunk
