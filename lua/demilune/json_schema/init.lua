--- json_schema/init.lua - JSON Schema: 2020-12, and draft-07 where `$schema` says so. The one validator of the program.
--
-- A schema is compiled once, and then everything in it works or is refused by name: references lead within it alone,
-- since nothing is fetched. `format` annotates, but for the formats that whoever compiles gives a function for; so do
-- title, default and their like. A check is bounded whatever schema and value are: what comes to a limit does not fit.
local compiler = require "demilune.json_schema.compiler"
local regex = require("demilune.core").regex
local values = require "demilune.json_schema.values"

local json_schema = {}

---@class demilune.json_schema.Options
---@field is_strict? boolean  a keyword that checks nothing where its writer may think that it does is a fault: an unknown
---  one that does not begin with `x-`, `then` without `if`, a format that is not checked
---@field dialect? "2020-12"|"draft-07"  without a `$schema`; 2020-12
---@field formats? table<string, fun(text: string): boolean>  formats that are checked
---@field extensions? table<string, function>  keywords of our own, as the functions of assertions.lua
---@field refuse? fun(keyword: string, value: any, path: (string|integer)[]): string?  why a keyword is not wanted, and the
---  way out
---@field is_of_lua? boolean  values are tables of Lua: an empty one may be an array too
---@field is_int64? boolean  an integer is one that 64 bits hold, not 1e300 too
---@field regex? fun(pattern: string): table?, string?  as core.regex.new

---@class demilune.json_schema.Fault  of a schema
---@field path (string|integer)[]
---@field text string  "what is so; the way out"

---@class demilune.json_schema.Misfit  of a value
---@field path (string|integer)[]  entries of arrays are counted from 1
---@field known integer     how many of them the schema names: what is behind is the value's own and may be anybody's text
---@field keyword? string   that it does not fit; nil at a limit
---@field expected string   "at most 3"
---@field message string    "/a/2 must be at most 3", with ? for what the schema does not name
---@field schema? table     that the keyword stands in

---@class demilune.json_schema.Validator
---@field private root demilune.json_schema.Node
---@field private has_scope boolean
---@field private state? demilune.json_schema.State  of the last check, which was a fit: nothing is noted in it
local Validator = {}
Validator.__index = Validator

local LIMITS = { [values.TOO_MUCH] = true, [values.TOO_DEEP] = true, [values.UNDECIDED] = true }

--- The path of a misfit as text: "/a/2", "" for the value itself; `foreign` in place of each key that the schema does
--- not name.
---@param misfit demilune.json_schema.Misfit
---@param foreign? string
---@return string
function json_schema.pointer(misfit, foreign)
  local parts = {}
  for i, key in ipairs(misfit.path) do parts[i] = "/" .. (i > misfit.known and foreign or tostring(key)) end
  return table.concat(parts)
end

local function misfit_of(fault, state)
  local path, count = {}, state.count
  for i = 1, count do path[i] = state.path[count + 1 - i] end
  local misfit = {
    path = path, known = count - state.foreign, keyword = fault.keyword, expected = fault.expected, schema = fault.schema,
  }
  local pointer = json_schema.pointer(misfit, "?")
  misfit.message = ("%s must be %s"):format(pointer == "" and "the value" or pointer, fault.expected)
  return misfit
end

local function new_state()
  return { steps = 0, matches = 0, depth = 0, path = {}, count = 0, foreign = 0, quiet = 0, entered = 0 }
end

--- What the root says, or the limit that it came to.
local function judge(root, value, state)
  if root.weight > values.STEPS_MAX then return values.TOO_MUCH end
  local ok, fault = pcall(root.fn, value, state)
  if ok then return fault end
  if not LIMITS[fault] then error(fault, 0) end
  state.count, state.foreign = 0, 0
  return fault
end

--- Whether a value fits.
---@param value any  decoded JSON
---@return true?
---@return demilune.json_schema.Misfit? misfit
function Validator:check(value)
  local root = self.root
  -- Kept between checks; one within another, by a function of an extension, has its own.
  local state = self.state or new_state()
  self.state = nil
  state.steps, state.matches, state.searching_since_s = root.weight, 0, nil
  if self.has_scope then state.scope, state.entered = { root.resource }, 1 end
  local fault = judge(root, value, state)
  if fault then return nil, misfit_of(fault, state) end
  self.state = state
  return true
end

--- Compiles a schema.
---@param schema table|boolean  decoded JSON, or a table of Lua
---@param options? demilune.json_schema.Options
---@return demilune.json_schema.Validator? validator
---@return demilune.json_schema.Fault[]? faults  what is wrong with the schema
function json_schema.compile(schema, options)
  local given = options or {}
  local root, made = compiler.run(schema, {
    is_strict = given.is_strict == true, dialect = given.dialect or "2020-12", formats = given.formats or {},
    extensions = given.extensions or {}, refuse = given.refuse, is_of_lua = given.is_of_lua,
    is_int64 = given.is_int64, regex = given.regex or regex.new,
  })
  if not root then return nil, made.faults end
  return setmetatable({ root = root, has_scope = made.resources.has_dynamic }, Validator)
end

return json_schema
