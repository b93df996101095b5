--- own/schemas.lua - the schemas of an operator's tool: all of JSON Schema, as far as a tool can have it.
--
-- json_schema says what is wrong with a keyword, and is strict: one that checks nothing would leave open what its
-- writer thinks is shut. Here is what is a tool's own: arguments are named in `properties`, since the policy knows them
-- by these names, and a `default` is filled in for an argument alone.
local schema = require "demilune.schema"

local schemas = {}

schemas.DESCRIPTION_BYTES_MAX = 8192
schemas.TITLE_BYTES_MAX = 128
local PROPERTIES_MAX = 64

--- Keywords at the top of `input` that would let in arguments without a name in `properties`.
local OPENING = { "patternProperties", "unevaluatedProperties", "$ref", "$dynamicRef" }

--- Whether a value is a text with something in it, as clients are told it.
---@param value any
---@param most integer  bytes
---@return boolean
function schemas.is_text(value, most)
  return type(value) == "string" and value ~= "" and #value <= most and utf8.len(value) ~= nil
end

local function words_fault(value, most)
  if schemas.is_text(value, most) then return nil end
  return ("it is no text of 1 to %d bytes; write one, or leave it out"):format(most)
end

--- What a tool does not have, wherever it stands.
local function refuse(keyword, value, path)
  if keyword == "title" then return words_fault(value, schemas.TITLE_BYTES_MAX) end
  if keyword == "description" then return words_fault(value, schemas.DESCRIPTION_BYTES_MAX) end
  if keyword ~= "default" then return nil end
  if #path ~= 3 or path[1] ~= "properties" then
    return "it is filled in for an argument alone; put it in where the handler reads the value"
  end
  if type(value) == "table" or type(value) == "function" then
    return ("it is a %s; put it in where the handler reads the argument"):format(type(value))
  end
end

--- Output is checked as it leaves; nothing is filled in.
local function refuse_in_output(keyword, value, path)
  if keyword == "default" then return "a result has what its handler returns; put it in there" end
  return refuse(keyword, value, path)
end

--- Servers without tools of an operator's start without all that compiles.
local function compile(note, place, node, options)
  local validator, faults = require("demilune.json_schema").compile(node, options)
  for _, fault in ipairs(faults or {}) do note(place, fault.path, fault.text) end
  return validator ~= nil
end

local function check_defaults(note, input)
  for name, node in pairs(input.properties or {}) do
    local ok, raised = true, nil
    if node.default ~= nil then ok, raised = pcall(schema.argument, input, name, node.default) end
    if not ok then
      note("input", { "properties", name, "default" }, ("it does not satisfy its own schema; write %s"):format(
        type(raised) == "table" and raised.expected or "what the schema says"))
    end
  end
end

--- Whether the arguments are named as arguments are.
local function check_names(note, properties)
  local is_fine, count = true, 0
  for name, node in pairs(properties) do
    local text
    if type(name) ~= "string" or not name:find "^[%a_][%w_-]*$" or #name > 64 then
      text = "it is no name of an argument; write a letter, then letters, digits, _ and -"
    elseif type(node) ~= "table" then
      text = 'it is no schema; write { type = "string" }'
    end
    if text then note("input", { "properties", name }, text) end
    is_fine, count = is_fine and not text, count + 1
  end
  if count > PROPERTIES_MAX then
    note("input", { "properties" }, ("it has more than %d names; leave some out"):format(PROPERTIES_MAX))
  end
  return is_fine and count <= PROPERTIES_MAX
end

--- Names of `required` that are no arguments: a call could never have them.
local function check_required(note, place, node)
  local properties = node.properties or {}
  for i, name in ipairs(node.required or {}) do
    if properties[name] == nil then
      note(place, { "required", i }, ("it is %s, which is none of the properties; name it there"):format(tostring(name)))
    end
  end
end

local function is_object(note, place, node)
  if type(node) ~= "table" then return note(place, {}, "it is no schema; write { properties = { … } }") end
  if node.type == nil or node.type == "object" then return true end
  note(place, { "type" }, 'it is not "object"; write that, or leave it out')
end

--- Notes what is wrong with the schema of the arguments.
---@param note fun(place: string, path: (string|integer)[], text: string)
---@param input any
function schemas.check_input(note, input)
  if input == nil or not is_object(note, "input", input) then return end
  for _, keyword in ipairs(OPENING) do
    if input[keyword] ~= nil then
      note("input", { keyword }, "it is not served here; name every argument in `properties`")
    end
  end
  if input.additionalProperties then
    note("input", { "additionalProperties" }, "it is not served; name every argument in `properties`")
  end
  local is_named = type(input.properties or {}) ~= "table" or check_names(note, input.properties or {})
  local is_right = is_named and compile(note, "input", input, {
    is_strict = true, formats = schema.options().formats, extensions = { check = schema.PRIVATE.check }, refuse = refuse,
  })
  if not is_right then return end
  check_required(note, "input", input)
  check_defaults(note, input)
end

--- Notes what is wrong with the schema of the result.
---@param note fun(place: string, path: (string|integer)[], text: string)
---@param output any
function schemas.check_output(note, output)
  if output == nil or not is_object(note, "output", output) then return end
  local is_right = compile(note, "output", output, {
    is_strict = true, formats = schema.options().formats, refuse = refuse_in_output,
  })
  local is_closed = is_right and not (output.patternProperties or output.additionalProperties)
  if is_closed then check_required(note, "output", output) end
end

return schemas
