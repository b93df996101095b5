--- own/contract.lua - what the file of an operator's tool must be: every key, and the schemas that it may have.
--
-- The schemas are a part of JSON Schema, and a keyword outside of it is a fault: one that is passed over would leave open what
-- its writer thinks is shut.
local groups = require "demilune.policy.groups"
local nearest = require "demilune.nearest"
local schema = require "demilune.schema"

local contract = {}

local DESCRIPTION_BYTES_MAX = 8192
local TITLE_BYTES_MAX = 128
local PROPERTIES_MAX = 64
local ENUM_MAX = 256
local LEVELS_MAX = 8
local KEY_SHOWN_BYTES = 64

--- Keys of the table.
contract.KEYS = {
  "name", "title", "description", "order", "effect", "is_open_world", "groups", "task", "input", "output", "handler",
}
--- What `task` may be.
contract.TASKS = { "optional", "required" }
--- What `effect` may be.
contract.EFFECTS = { "read", "create", "execute", "write", "lifetime", "destroy" }

--- Keywords of an argument, by its type, beside those of all.
contract.INPUT_KEYWORDS = {
  string = { "minLength", "maxLength", "enum", "format", "check" },
  integer = { "minimum", "maximum", "enum" },
  number = { "minimum", "maximum" },
  boolean = {},
  array = { "items", "minItems", "maxItems" },
  object = { "additionalProperties" },
}
--- Keywords of every argument.
contract.COMMON_KEYWORDS = { "type", "title", "description", "default" }
--- Keywords of a result's schema, at every level.
contract.OUTPUT_KEYWORDS = {
  "type", "title", "description", "properties", "required", "additionalProperties", "items", "enum", "minimum", "maximum",
  "minLength",
}
local OUTPUT_TYPES = { "string", "integer", "number", "boolean", "array", "object", "null" }
local COUNTS = { minLength = true, maxLength = true, minItems = true, maxItems = true }

local function is_in(list, value)
  for _, one in ipairs(list) do
    if one == value then return true end
  end
  return false
end

local function choices(list) return table.concat(list, ", ") end

--- "did you mean X?" or the whole list.
local function way_out(name, list)
  if #list == 0 then return "leave it out" end
  local near = type(name) == "string" and nearest.of(name, list)
  return near and ("did you mean %s?"):format(near) or ("known are %s"):format(choices(list))
end

local function sorted_keys(map)
  local names = {}
  for name in pairs(map) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  return names
end

--- Collects faults of one file. `place` is the path of what is wrong, with dots; `format` goes on behind it.
local function collector()
  local faults = {}
  return faults, function(place, format, ...)
    faults[#faults + 1] = { place = place, text = place .. " " .. format:format(...) }
  end
end

--- The place of a key; place "" is the tool itself.
local function join(place, key)
  local name = tostring(key):sub(1, KEY_SHOWN_BYTES):gsub("[^\32-\126]", "?")
  return place == "" and name or place .. "." .. name
end

local function check_keys(note, place, node, known)
  for _, key in ipairs(sorted_keys(node)) do
    if not is_in(known, key) then note(join(place, key), "is not a key that is served; %s", way_out(key, known)) end
  end
end

local function is_text(value, most) return type(value) == "string" and value ~= "" and #value <= most and utf8.len(value) ~= nil end

--- Words of a schema go to clients as they are.
local function check_words(note, place, node)
  if node.title ~= nil and not is_text(node.title, TITLE_BYTES_MAX) then
    note(place .. ".title", "is no text of 1 to %d bytes; write one, or leave it out", TITLE_BYTES_MAX)
  end
  if node.description ~= nil and not is_text(node.description, DESCRIPTION_BYTES_MAX) then
    note(place .. ".description", "is no text of 1 to %d bytes; write one, or leave it out", DESCRIPTION_BYTES_MAX)
  end
end

-- ---- arguments ----

local function check_bounds(note, place, node)
  for _, key in ipairs { "minimum", "maximum" } do
    local value, is_whole = node[key], node.type == "integer"
    if value ~= nil and not (is_whole and math.type(value) == "integer" or not is_whole and math.type(value)) then
      note(join(place, key), "is no %s; write one", is_whole and "integer" or "number")
      return
    end
  end
  for key in pairs(COUNTS) do
    local value = node[key]
    if value ~= nil and not (math.type(value) == "integer" and value >= 0) then
      note(join(place, key), "is no count; write an integer of at least 0")
      return
    end
  end
  for _, pair in ipairs { { "minimum", "maximum" }, { "minLength", "maxLength" }, { "minItems", "maxItems" } } do
    local least, most = node[pair[1]], node[pair[2]]
    if least and most and least > most then note(join(place, pair[1]), "is more than its %s; turn them round", pair[2]) end
  end
end

local function check_enum(note, place, node)
  if node.enum == nil then return end
  local is_fine = type(node.enum) == "table" and #node.enum > 0 and #node.enum <= ENUM_MAX
  for _, value in ipairs(is_fine and node.enum or {}) do
    local is_right = node.type == "string" and type(value) == "string" or node.type == "integer" and math.type(value) == "integer"
    if not is_right then is_fine = false end
  end
  if not is_fine then note(place .. ".enum", "is no list of 1 to %d values of its type; write them as { … }", ENUM_MAX) end
end

local function check_default(note, place, node)
  local value = node.default
  if value == nil then return end
  if type(value) == "table" or type(value) == "function" then
    return note(place .. ".default", "is a %s; put it in where the handler reads the argument", type(value))
  end
  local ok, raised = pcall(schema.check, { properties = { default = node } }, { default = value })
  if not ok then
    note(place .. ".default", "does not satisfy its own schema; it must be %s",
      type(raised) == "table" and raised.expected or "as the schema says")
  end
end

--- Whether what an object says of its values is that they are strings, or nothing.
local function is_string_map(values)
  if values == nil then return true end
  if type(values) ~= "table" or values.type ~= "string" then return false end
  for key in pairs(values) do
    if key ~= "type" then return false end
  end
  return true
end

--- What is wrong with one argument; `is_item`: an entry of a list.
local function check_argument(note, place, node, is_item)
  if type(node) ~= "table" then return note(place, 'is no schema; write { type = "string" }') end
  local types = sorted_keys(contract.INPUT_KEYWORDS)
  local keywords = contract.INPUT_KEYWORDS[node.type]
  if not keywords or is_item and (node.type == "array" or node.type == "object") then
    if is_item then types = { "boolean", "integer", "number", "string" } end
    return note(place .. ".type", "is %s; write one of %s", node.type == nil and "missing" or "none that is served", choices(types))
  end
  local known = table.move(keywords, 1, #keywords, #contract.COMMON_KEYWORDS + 1, { table.unpack(contract.COMMON_KEYWORDS) })
  check_keys(note, place, node, known)
  check_words(note, place, node)
  check_bounds(note, place, node)
  check_enum(note, place, node)
  check_default(note, place, node)
  if node.format ~= nil and node.format ~= "uuid" then note(place .. ".format", 'is none that is checked; write "uuid"') end
  if node.check ~= nil and type(node.check) ~= "function" then
    note(place .. ".check", "is no function; write one that returns what was expected, or nil")
  end
  if node.type == "array" then check_argument(note, place .. ".items", node.items, true) end
  if node.type == "object" and not is_string_map(node.additionalProperties) then
    note(place .. ".additionalProperties", 'is served as { type = "string" } alone; write that, or leave it out')
  end
end

local function check_required(note, place, required, properties)
  if required == nil then return end
  if type(required) ~= "table" then return note(place .. ".required", "is no list of names; write { … }") end
  for _, name in ipairs(required) do
    if properties[name] == nil then
      note(place .. ".required", "names %s, which is none of its properties; %s", tostring(name),
        way_out(name, sorted_keys(properties)))
    end
  end
end

local function check_input(note, input)
  if input == nil then return end
  if type(input) ~= "table" then return note("input", "is no schema; write { properties = { … } }") end
  check_keys(note, "input", input, { "type", "properties", "required", "additionalProperties", "description" })
  check_words(note, "input", input)
  if input.type ~= nil and input.type ~= "object" then note("input.type", 'is not "object"; write that, or leave it out') end
  if input.additionalProperties then note("input.additionalProperties", "is not served; name every argument in properties") end
  local properties = input.properties or {}
  if type(properties) ~= "table" then return note("input.properties", "is no table of schemas by name; write { … }") end
  local names = sorted_keys(properties)
  if #names > PROPERTIES_MAX then return note("input.properties", "has more than %d names; leave some out", PROPERTIES_MAX) end
  for _, name in ipairs(names) do
    local place = "input.properties." .. tostring(name)
    if type(name) ~= "string" or not name:find "^[%a_][%w_-]*$" or #name > 64 then
      note(place, "is no name of an argument; write a letter, then letters, digits, _ and -")
    else
      check_argument(note, place, properties[name])
    end
  end
  check_required(note, "input", input.required, properties)
end

-- ---- results ----

local function check_types(note, place, node)
  local list = type(node.type) == "table" and node.type or { node.type }
  if type(node.type) == "table" and #list == 0 then note(place .. ".type", 'is an empty list; write "string", or leave it out') end
  for _, name in ipairs(list) do
    if not is_in(OUTPUT_TYPES, name) then
      note(place .. ".type", "is none of JSON's; %s", way_out(name, OUTPUT_TYPES))
    end
  end
end

local PLAIN = { string = true, number = true, boolean = true }

local function check_result_enum(note, place, enum)
  if enum == nil then return end
  local is_fine = type(enum) == "table" and #enum > 0 and #enum <= ENUM_MAX
  for _, value in ipairs(is_fine and enum or {}) do
    if not PLAIN[type(value)] then is_fine = false end
  end
  if not is_fine then note(place .. ".enum", "is no list of 1 to %d texts, numbers and booleans; write them as { … }", ENUM_MAX) end
end

local function check_result(note, place, node, level)
  if type(node) ~= "table" then return note(place, 'is no schema; write { type = "string" }') end
  if level > LEVELS_MAX then return note(place, "is more than %d levels deep; make it flatter", LEVELS_MAX) end
  check_keys(note, place, node, contract.OUTPUT_KEYWORDS)
  check_types(note, place, node)
  check_words(note, place, node)
  check_result_enum(note, place, node.enum)
  if node.additionalProperties ~= nil and type(node.additionalProperties) ~= "boolean" then
    note(place .. ".additionalProperties", "is no boolean; write true or false")
  end
  check_bounds(note, place, node)
  if node.items ~= nil then check_result(note, place .. ".items", node.items, level + 1) end
  local properties = node.properties or {}
  if type(properties) ~= "table" then return note(place .. ".properties", "is no table of schemas by name; write { … }") end
  for _, name in ipairs(sorted_keys(properties)) do
    local below = join(place .. ".properties", name)
    if type(name) == "string" and utf8.len(name) then check_result(note, below, properties[name], level + 1)
    else note(below, "is no name; write a text") end
  end
  check_required(note, place, node.required, properties)
end

local function check_output(note, output)
  if output == nil then return end
  check_result(note, "output", output, 1)
  if type(output) == "table" and output.type ~= nil and output.type ~= "object" then
    note("output.type", 'is not "object", as every result is; write that')
  end
end

-- ---- the table ----

local function check_groups(note, list)
  if list == nil then return end
  if type(list) ~= "table" then return note("groups", 'is no list; write { "@read" }') end
  for _, group in ipairs(list) do
    if not groups.is_group(group) then
      note("groups", "names %s, which is no group; %s", tostring(group), way_out(group, groups.NAMES))
    end
  end
end

local function check_name(note, name)
  if name == nil then return note("name", 'is missing; write name = "my_tool"') end
  if type(name) ~= "string" or not name:find "^%l[%l%d_-]*$" or #name > 64 then
    return note("name", "is not one that a tool may have; write a small letter, then at most 63 small letters, digits, _ and -")
  end
  if is_in(groups.TOOLS, name) then note("name", "is that of a tool of the server, %s; choose another", name) end
end

--- What is wrong with the table of a tool's file: nothing in a fine one.
---@param tool table
---@return { place: string, text: string }[]  place: the path of the key, with dots; text: "what is wrong; the way out"
function contract.faults(tool)
  local faults, note = collector()
  check_keys(note, "", tool, contract.KEYS)
  check_name(note, tool.name)
  if tool.title ~= nil and not is_text(tool.title, TITLE_BYTES_MAX) then
    note("title", "is no text of 1 to %d bytes; write one, or leave it out", TITLE_BYTES_MAX)
  end
  if not is_text(tool.description, DESCRIPTION_BYTES_MAX) then
    note("description", "is %s; write what the tool does in a text of at most %d bytes, for the model that reads it",
      tool.description == nil and "missing" or "no such text", DESCRIPTION_BYTES_MAX)
  end
  if tool.order ~= nil and math.type(tool.order) ~= "integer" then note("order", "is no integer; write one, or leave it out") end
  if tool.task ~= nil and not is_in(contract.TASKS, tool.task) then
    note("task", "is none that is known; write one of %s, or leave it out", choices(contract.TASKS))
  end
  if not is_in(contract.EFFECTS, tool.effect) then
    note("effect", "is %s; write one of %s", tool.effect == nil and "missing" or "none that is known", choices(contract.EFFECTS))
  end
  if tool.is_open_world ~= nil and type(tool.is_open_world) ~= "boolean" then
    note("is_open_world", "is no boolean; write true or false")
  end
  check_groups(note, tool.groups)
  check_input(note, tool.input)
  check_output(note, tool.output)
  if type(tool.handler) ~= "function" then note("handler", "is no function; write handler = function(call, args) … end") end
  return faults
end

return contract
