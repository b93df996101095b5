--- own/contract.lua - what the file of an operator's tool must be: every key. Its schemas are own/schemas.lua's.
local groups = require "demilune.policy.groups"
local nearest = require "demilune.nearest"
local schemas = require "demilune.own.schemas"

local contract = {}

local KEY_SHOWN_BYTES = 64

--- Keys of the table.
contract.KEYS = {
  "name", "title", "description", "order", "effect", "is_open_world", "groups", "task", "input", "output", "handler",
}
--- What `task` may be.
contract.TASKS = { "optional", "required" }
--- What `effect` may be.
contract.EFFECTS = { "read", "create", "execute", "write", "lifetime", "destroy" }

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

--- A key as it is shown.
local function shown(key) return (tostring(key):sub(1, KEY_SHOWN_BYTES):gsub("[^\32-\126]", "?")) end

--- Collects faults of one file: one function for keys of the table, whose `format` goes on behind the key, and one for places
--- in schemas.
local function collector()
  local faults = {}
  local function note(key, format, ...)
    faults[#faults + 1] = { path = { key }, text = shown(key) .. " " .. format:format(...) }
  end
  local function note_within(key, path, text)
    local names = { key }
    for i, part in ipairs(path) do names[i + 1] = shown(part) end
    faults[#faults + 1] = { path = { key, table.unpack(path) }, text = table.concat(names, ".") .. ": " .. text }
  end
  return faults, note, note_within
end

local function check_keys(note, tool)
  for _, key in ipairs(sorted_keys(tool)) do
    if not is_in(contract.KEYS, key) then note(key, "is not a key that is served; %s", way_out(key, contract.KEYS)) end
  end
end

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
---@return { path: (string|integer)[], text: string }[]  text: "what is wrong; the way out", with the path in front
function contract.faults(tool)
  local faults, note, note_within = collector()
  check_keys(note, tool)
  check_name(note, tool.name)
  if tool.title ~= nil and not schemas.is_text(tool.title, schemas.TITLE_BYTES_MAX) then
    note("title", "is no text of 1 to %d bytes; write one, or leave it out", schemas.TITLE_BYTES_MAX)
  end
  if not schemas.is_text(tool.description, schemas.DESCRIPTION_BYTES_MAX) then
    note("description", "is %s; write what the tool does in a text of at most %d bytes, for the model that reads it",
      tool.description == nil and "missing" or "no such text", schemas.DESCRIPTION_BYTES_MAX)
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
  schemas.check_input(note_within, tool.input)
  schemas.check_output(note_within, tool.output)
  if type(tool.handler) ~= "function" then note("handler", "is no function; write handler = function(call, args) … end") end
  return faults
end

return contract
