--- check.lua - holds a value against the shapes of keys.lua: finds every fault, fills in defaults.
--
-- The value is what an operator's file returned, so it may be any Lua value: tables are walked by
-- `next` and `rawget`, never through metamethods, and only as deep as the shapes go. Messages name
-- keys and never repeat values, which may be secrets.
local json = require("demilune.core").json
local keys = require "demilune.config.keys"
local nearest = require "demilune.nearest"
local secrets = require "demilune.config.secrets"
local url = require "demilune.config.url"
local words = require "demilune.config.words"

local check = {}

local FAULTS_MAX = 100
local ARRAY = getmetatable(json.array {})

---@class demilune.config.Fault
---@field path (string|integer)[]  the keys from the outermost table to the fault
---@field text string  "what is wrong; the way out"

local Walk = {}
Walk.__index = Walk

--- Notes a fault at the present path, or at `key` in it. `text` has one %s for the name of the key.
function Walk:fault(text, key)
  if #self.faults >= FAULTS_MAX then return end
  local path = table.move(self.path, 1, #self.path, 1, {})
  if key ~= nil then path[#path + 1] = key end
  local name = words.path(path):gsub("%%", "%%%%")
  self.faults[#self.faults + 1] = { path = path, text = (text:gsub("%%s", name, 1)) }
end

function Walk:inside(key, value, shape)
  self.path[#self.path + 1] = key
  local filled = self:value(value, shape)
  self.path[#self.path] = nil
  return filled
end

function Walk:wrong(shape, value, wrong_type)
  local found = wrong_type and ", not a " .. type(value) or ""
  self:fault("%s must be " .. words.expected(shape) .. found .. "; " .. words.way_out(shape, value))
end

local CHECKS = {}

function CHECKS.integer(walk, value, shape)
  if type(value) ~= "number" then return walk:wrong(shape, value, true) end
  local whole = math.tointeger(value)
  if not whole or whole < shape.min or whole > shape.max then return walk:wrong(shape, value) end
  return whole
end

function CHECKS.number(walk, value, shape)
  if type(value) ~= "number" then return walk:wrong(shape, value, true) end
  -- Written so that NaN fails too.
  if not (value >= shape.min and value <= shape.max) then return walk:wrong(shape, value) end
  return value
end

function CHECKS.string(walk, value, shape)
  if type(value) ~= "string" then return walk:wrong(shape, value, true) end
  local is_text = #value <= shape.max and utf8.len(value) and not value:find("\0", 1, true)
  if not is_text or not value:find(shape.pattern or "") then return walk:wrong(shape, value) end
  return value
end

function CHECKS.url(walk, value, shape)
  if type(value) ~= "string" then return walk:wrong(shape, value, true) end
  if #value > shape.max then return walk:wrong(shape, value) end
  local fault = url.fault(value, shape)
  if fault then return walk:fault("%s " .. fault) end
  return shape.is_exact and value or url.trimmed(value)
end

function CHECKS.source(walk, value, shape)
  if type(value) ~= "string" then return walk:wrong(shape, value, true) end
  if #value > shape.max or not utf8.len(value) then return walk:wrong(shape, value) end
  local fault = secrets.fault(value)
  if fault then return walk:fault("%s " .. fault) end
  return value
end

function CHECKS.boolean(walk, value, shape)
  if type(value) ~= "boolean" then return walk:wrong(shape, value, true) end
  return value
end

--- What is said by being there.
function CHECKS.yes(walk, value, shape)
  if value ~= true then return walk:wrong(shape, value) end
  return value
end

CHECKS["function"] = function(walk, value, shape)
  if type(value) ~= "function" then return walk:wrong(shape, value, true) end
  return value
end

function CHECKS.choice(walk, value, shape)
  for _, one in ipairs(shape.choices) do
    if rawequal(value, one) then return value end
  end
  for _, one in ipairs(shape.later or {}) do
    if rawequal(value, one) then
      local text = '%%s = "%s" is not served by this version yet; write %s'
      return walk:fault(text:format(one, words.choices(shape.choices)))
    end
  end
  return walk:wrong(shape, value, type(value) ~= "string")
end

--- A table that a later version fills and this one takes only empty.
function CHECKS.nothing(walk, value, shape)
  if type(value) == "table" and next(value) == nil then return {} end
  walk:fault "%s must be empty, because this version does not serve it yet; leave it out"
end

--- The types of provider that have a key, as "a provider of type e2b or veryfront".
local function provider_with(name)
  local kinds, count = {}, 0
  for kind, shape in pairs(keys.provider.variants) do
    count = count + 1
    if shape.fields[name] then kinds[#kinds + 1] = kind end
  end
  if #kinds == count then return "a provider" end
  table.sort(kinds)
  return #kinds > 0 and "a provider of type " .. table.concat(kinds, " or ") or nil
end

local function place_of(name, places)
  for _, place in ipairs(places) do
    if place[2].fields[name] then return place[1] end
  end
end

--- Where else in the configuration a key of this name stands.
local function other_place(name)
  if keys.root.fields[name] then return "the outermost table" end
  local provider = provider_with(name)
  if provider then return provider end
  return place_of(name, {
    { "a template", keys.template },
    { "an entry of credentials", keys.credential },
    { "vault", keys.root.fields.vault },
    { "output", keys.root.fields.output },
    { "limits", keys.root.fields.limits },
    { "log", keys.root.fields.log },
    { "audit", keys.root.fields.audit },
    { "http", keys.root.fields.http },
    { "http.tls", keys.root.fields.http.fields.tls },
    { "http.oauth", keys.root.fields.http.fields.oauth },
  })
end

--- The fields in the order of their names, so that the same file gives the same faults.
local function sorted_fields(shape)
  local names = {}
  for name in next, shape.fields do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- Keys of a table that are no fields, likewise.
local function strange_keys(value, shape)
  local strange = {}
  for key in next, value do
    if not shape.fields[key] then strange[#strange + 1] = key end
  end
  table.sort(strange, function(a, b) return words.key(a) < words.key(b) end)
  return strange
end

function Walk:unknown(key, shape)
  if type(key) ~= "string" then
    return self:fault(shape.words and ("%s has no name; write " .. shape.words:gsub("%%", "%%%%"))
      or "%s has no name; write it as key = value", key)
  end
  local names = sorted_fields(shape)
  local elsewhere = self.places and place_of(key, self.places) or not self.places and other_place(key)
  local near = nearest.of(key, names)
  if elsewhere then
    return self:fault("%s does not stand here; it belongs in " .. elsewhere, key)
  end
  if near then return self:fault("%s is not a key; did you mean `" .. near .. "`?", key) end
  self:fault("%s is not a key; leave it out, or write one of " .. table.concat(names, ", "), key)
end

--- Checks the field that says what the others mean. Returns its value and the shape of the record.
function Walk:decide(value, shape)
  local first = shape.decides
  if not first or rawget(value, first) == nil then return nil, shape end
  local decided = self:inside(first, rawget(value, first), shape.fields[first])
  return decided, shape.variants and shape.variants[decided] or shape
end

--- The names of nested places for values whose meaning only a driver of the operator's knows.
local FREE_NAME_BYTES, FREE_TEXT_BYTES, FREE_ENTRIES_MAX = 64, 4096, 64

local function is_plain_value(value)
  local kind = type(value)
  return kind == "boolean" or (kind == "number" and value == value)
    or (kind == "string" and #value <= FREE_TEXT_BYTES and utf8.len(value) ~= nil)
end

--- A copy of a value that is no field: a plain one or a flat table of such; nil where it is neither.
local function free_value(value)
  if is_plain_value(value) then return value end
  if type(value) ~= "table" then return nil end
  local out, count = {}, 0
  for key, entry in next, value do
    count = count + 1
    if count > FREE_ENTRIES_MAX or not is_plain_value(key) or not is_plain_value(entry) then return nil end
    out[key] = entry
  end
  return out
end

function Walk:free(key, value, filled)
  if type(key) ~= "string" or #key > FREE_NAME_BYTES or not key:find "^[%a_][%w_]*$" then
    return self:fault("%s has no name that can stand there; write it as key = value", key)
  end
  filled[key] = free_value(value)
  if filled[key] == nil then
    self:fault("%s must be a string, a number, true, false or a flat table of those; write one", key)
  end
end

--- Values whose meaning only the tools know: so deep, and so many in one value.
local DATA_DEPTH_MAX, DATA_VALUES_MAX = 32, 10000

--- A copy of plain data; nil and why where it is none. `budget.left` counts down.
local function data_copy(value, depth, budget)
  budget.left = budget.left - 1
  if budget.left < 0 or depth > DATA_DEPTH_MAX then return nil, "is too deep or too large; make it smaller" end
  local kind = type(value)
  if kind == "string" or kind == "boolean" or value == json.null then return value end
  if kind == "number" and value == value and value ~= math.huge and value ~= -math.huge then return value end
  if kind ~= "table" then return nil, "holds what is no data; write texts, numbers, true, false and tables" end
  local is_list = getmetatable(value) == ARRAY
  local out = is_list and json.array {} or {}
  for key, entry in next, value do
    if type(key) ~= "string" and math.type(key) ~= "integer" then return nil, "has a key that is no text; write key = value" end
    local copy, why = data_copy(entry, depth + 1, budget)
    if copy == nil then return nil, why end
    out[key] = copy
  end
  return out
end

function CHECKS.data(walk, value, shape)
  if shape.is_table and type(value) ~= "table" then return walk:wrong(shape, value, true) end
  local copy, why = data_copy(value, 1, { left = DATA_VALUES_MAX })
  if copy == nil then walk:fault("%s " .. why) end
  return copy
end

function CHECKS.record(walk, value, shape)
  if shape.short and type(value) == (shape.short_type or "string") then value = { [shape.short] = value } end
  if type(value) ~= "table" then return walk:wrong(shape, value, true) end
  local first, filled = shape.decides, {}
  local decided, whole = walk:decide(value, shape)
  -- What its other keys mean is not known then, so nothing is held against them.
  if first and decided == nil and rawget(value, first) ~= nil then return nil end
  if first then filled[first] = decided end
  for _, name in ipairs(whole.required or {}) do
    if rawget(value, name) == nil then walk:fault("%s has no `" .. name .. "`; write one") end
  end
  if first and decided == nil then return nil end
  for _, key in ipairs(strange_keys(value, whole)) do
    if whole.is_free then walk:free(key, rawget(value, key), filled) else walk:unknown(key, whole) end
  end
  for _, name in ipairs(sorted_fields(whole)) do
    local field, given = whole.fields[name], rawget(value, name)
    if given == nil then given = field.default end
    if given ~= nil and name ~= first then filled[name] = walk:inside(name, given, field) end
  end
  return filled
end

function Walk:has_wrong_size(count, shape)
  if count == 0 and shape.is_filled then
    self:fault "%s is empty; leave it out for the default"
  elseif count > shape.max then
    self:fault("%s has more than " .. shape.max .. " entries; shorten it")
  else
    return false
  end
  return true
end

function CHECKS.list(walk, value, shape)
  if shape.takes_one and type(value) == "string" then return { walk:value(value, shape.of) } end
  if type(value) ~= "table" then return walk:wrong(shape, value, true) end
  local count = 0
  for key in next, value do
    if math.type(key) ~= "integer" then
      local way_out = shape.of.kind == "record" and "put each entry in braces of its own"
        or "write the entries alone, with commas between them"
      return walk:fault("%s is a key in a list; " .. way_out, key)
    end
    count = count + 1
  end
  local filled = {}
  if walk:has_wrong_size(count, shape) then return filled end
  for i = 1, count do
    if rawget(value, i) == nil then
      return walk:fault("%s has a gap; give entry " .. i .. " a value")
    end
    filled[i] = walk:inside(i, rawget(value, i), shape.of)
  end
  return filled
end

function CHECKS.map(walk, value, shape)
  if type(value) ~= "table" then return walk:wrong(shape, value, true) end
  local names, filled = {}, {}
  for key in next, value do
    if type(key) == "string" and #key <= shape.name_max and key:find(shape.name) then
      names[#names + 1] = key
    else
      local way_out = ("write %s, at most %d bytes"):format(shape.name_words, shape.name_max)
      if shape.hides_names then
        walk:fault("%s has an entry whose name cannot stand there; " .. way_out)
      else
        walk:fault("%s is not a name that can stand here; " .. way_out, key)
      end
    end
  end
  local count = next(value) == nil and 0 or math.max(1, #names)
  if walk:has_wrong_size(count, shape) then return filled end
  table.sort(names)
  for _, name in ipairs(names) do
    filled[name] = walk:inside(name, rawget(value, name), shape.of)
  end
  return filled
end

function Walk:value(value, shape) return CHECKS[shape.kind](self, value, shape) end

--- Checks a whole value. Where there are faults, `filled` has holes.
---@param value any
---@param shape demilune.config.Shape
---@return any filled  a fresh copy with the defaults in it
---@return demilune.config.Fault[] faults  at most 100, in no order of the file
function check.run(value, shape)
  local walk = setmetatable({ path = {}, faults = {}, places = shape.places }, Walk)
  return walk:value(value, shape), walk.faults
end

return check
