--- json_schema/values.lua - decoded JSON as schemas see it: kinds, equality, and what one look at a value may cost.
--
-- A table without the mark of core.json is an array when it has a first entry. Cost is counted in steps, of which a
-- check has a limit: an error with SPENT for its value ends the check from wherever it is, so that no `not` makes a yes
-- of it.
local json = require("demilune.core").json

local values = {}

--- Steps of one check: keywords, entries and pieces of text that are looked at. Ten times what a message can hold; some
--- tenths of a second.
values.STEPS_MAX = 2000000
--- References in each other, and levels of values that are compared.
values.DEPTH_MAX = 512
--- Bytes of a text that are looked at for one step.
values.BYTES_A_STEP = 256
--- Processor time of a check from its first regular expression on, and how many matches go by between looks at the
--- clock. Each match by itself is bounded by core.regex.
local SEARCH_S_MAX = 0.3
local MATCHES_A_LOOK = 8

--- What is raised when a check comes to a limit.
values.TOO_MUCH = { expected = "smaller: it takes too long to check" }
values.TOO_DEEP = { expected = "nested less deeply" }
values.UNDECIDED = { expected = "a text that its pattern can be held against within the limits" }

---@class demilune.json_schema.State
---@field steps integer
---@field matches integer  of regular expressions
---@field searching_since_s? number
---@field depth integer
---@field path any[]        from the innermost key outward
---@field count integer     keys in it
---@field foreign integer   how many of them lie at or behind the outermost key that the schema does not name
---@field quiet integer     above 0 nobody wants to know where a fault is
---@field scope? table[]    resources that were entered, outermost first
---@field entered integer

local ARRAY = getmetatable(json.array())

--- Whether a value is an array.
---@param value any
---@return boolean
function values.is_list(value)
  return type(value) == "table" and (getmetatable(value) == ARRAY or value[1] ~= nil)
end

--- Whether a value is an object.
---@param value any
---@return boolean
function values.is_map(value)
  return type(value) == "table" and value[1] == nil and getmetatable(value) ~= ARRAY
end

--- Whether a value is an array to somebody whose empty table may be an object and an array.
---@param value any
---@return boolean
function values.may_be_list(value)
  return type(value) == "table" and (getmetatable(value) == ARRAY or value[1] ~= nil or next(value) == nil)
end

--- Whether a number is a whole one; 1.0 is.
---@param value any
---@return boolean
function values.is_whole(value)
  local kind = math.type(value)
  return kind == "integer" or kind == "float" and value == math.floor(value) and value - value == 0
end

--- Levels of a value within a schema.
local LITERAL_LEVELS_MAX = 64

--- Whether a value is one that JSON has.
---@param value any
---@param level? integer
---@return boolean
function values.is_json(value, level)
  local kind = type(value)
  if kind == "number" then return value - value == 0 end
  if kind ~= "table" then return kind == "string" or kind == "boolean" or value == json.null end
  level = (level or 0) + 1
  if level > LITERAL_LEVELS_MAX then return false end
  local key_kind = values.is_list(value) and "number" or "string"
  for key, part in pairs(value) do
    if type(key) ~= key_kind or not values.is_json(part, level) then return false end
  end
  return true
end

--- Whether a number is a whole one that 64 bits hold.
---@param value any
---@return boolean
function values.is_int64(value) return math.type(value) ~= nil and math.tointeger(value) ~= nil end

--- Counts steps, and raises when there are none left.
---@param state demilune.json_schema.State
---@param steps integer
function values.charge(state, steps)
  local now = state.steps + steps
  state.steps = now
  if now > values.STEPS_MAX then error(values.TOO_MUCH, 0) end
end

local function look_at_clock(state)
  local now_s = os.clock()
  state.searching_since_s = state.searching_since_s or now_s
  if now_s - state.searching_since_s > SEARCH_S_MAX then error(values.TOO_MUCH, 0) end
end

--- Whether a text matches. What a limit leaves undecided ends the check, since `not` would turn a no into a yes.
---@param regex demilune.core.regex.Regex
---@param text string
---@param state demilune.json_schema.State
---@return boolean
function values.matches(regex, text, state)
  values.charge(state, 1 + #text // values.BYTES_A_STEP)
  if state.matches % MATCHES_A_LOOK == 0 then look_at_clock(state) end
  state.matches = state.matches + 1
  local does_match = regex:matches(text)
  if does_match == nil then error(values.UNDECIDED, 0) end
  return does_match
end

--- How many characters a text has; bytes where it is no UTF-8.
---@param text string
---@param state demilune.json_schema.State
---@return integer
function values.characters(text, state)
  values.charge(state, #text // values.BYTES_A_STEP)
  return utf8.len(text) or #text
end

--- Notes a key on the way out of a fault.
---@param state demilune.json_schema.State
---@param key string|integer
---@param is_foreign? boolean  the schema does not name it
function values.push(state, key, is_foreign)
  local count = state.count + 1
  state.path[count], state.count = key, count
  if is_foreign then state.foreign = count end
end

--- Whether two values are equal: 1 and 1.0 are, 1 and true are not.
---@param a any
---@param b any
---@param state demilune.json_schema.State
---@param depth? integer
---@return boolean
function values.is_same(a, b, state, depth)
  if a == b then return true end
  if type(a) ~= "table" or type(b) ~= "table" then return false end
  depth = (depth or 0) + 1
  if depth > values.DEPTH_MAX then error(values.TOO_DEEP, 0) end
  if values.is_list(a) ~= values.is_list(b) or #a ~= #b then return false end
  for key, value in pairs(a) do
    values.charge(state, 1)
    local other = b[key]
    if other == nil or not values.is_same(value, other, state, depth) then return false end
  end
  for key in pairs(b) do
    values.charge(state, 1)
    if a[key] == nil then return false end
  end
  return true
end

local function scalar_key(value)
  if type(value) == "string" then return #value .. ":" .. value end
  if math.type(value) then
    local whole = math.tointeger(value)
    return (whole and ("%d"):format(whole) or ("%.17g"):format(value)) .. ","
  end
  return value == json.null and "n" or tostring(value)
end

--- A text that equal values share and others do not.
---@param value any
---@param state demilune.json_schema.State
---@param depth? integer
---@return string
function values.key(value, state, depth)
  if type(value) ~= "table" then
    values.charge(state, 1 + (type(value) == "string" and #value // values.BYTES_A_STEP or 0))
    return scalar_key(value)
  end
  depth = (depth or 0) + 1
  if depth > values.DEPTH_MAX then error(values.TOO_DEEP, 0) end
  values.charge(state, 1)
  local parts = {}
  if values.is_list(value) then
    for i = 1, #value do parts[i] = values.key(value[i], state, depth) end
    return "[" .. table.concat(parts) .. "]"
  end
  for i, name in ipairs(values.names(value)) do
    parts[i] = scalar_key(name) .. values.key(value[name], state, depth)
  end
  return "{" .. table.concat(parts) .. "}"
end

--- The keys of a table, in order.
---@param map table
---@return any[]
function values.names(map)
  local names, is_plain = {}, true
  for name in pairs(map) do
    names[#names + 1] = name
    is_plain = is_plain and type(name) == "string"
  end
  table.sort(names, not is_plain and function(a, b) return tostring(a) < tostring(b) end or nil)
  return names
end

return values
