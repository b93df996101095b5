--- cli/show.lua - the result of any tool in a form for people: blocks of text first, then the facts.
--
-- Made from the tool's output schema alone, so a new tool needs nothing here. Programs take --json.
local core = require "demilune.core"
local grid = require "demilune.cli.grid"
local style = require "demilune.cli.style"

local json = core.json
local show = {}

--- Longer text, or text of several lines, is a block.
local LINE_COLUMNS = 100
local CELL_COLUMNS = 60
local INDENT = "  "

--- These say something when they are true.
local SILENT_WHEN_FALSE = { timed_out = true, truncated = true, stdout_truncated = true, stderr_truncated = true }

--- The fields of a result in the order of the schema, what it does not name after them.
local function ordered(tool, result)
  local names, seen = {}, {}
  local function add(name)
    if result[name] == nil or seen[name] then return end
    seen[name] = true
    names[#names + 1] = name
  end
  for _, name in ipairs(tool.output.required or {}) do add(name) end
  for _, name in ipairs(tool.output.nulls or {}) do add(name) end
  local others = {}
  for name in pairs(result) do others[#others + 1] = name end
  table.sort(others)
  for _, name in ipairs(others) do add(name) end
  return names
end

local function is_block(value)
  return type(value) == "string" and (value:find "\n" ~= nil or #value > LINE_COLUMNS)
end

local function word(value)
  if value == nil or value == json.null then return "" end
  if type(value) == "string" then return style.short(value, LINE_COLUMNS) end
  return tostring(value)
end

--- A list of texts and numbers, a line each.
local function plain_list(items)
  local lines = {}
  for i, item in ipairs(items) do lines[i] = INDENT .. word(type(item) == "table" and json.encode(item) or item) .. "\n" end
  return table.concat(lines)
end

local function is_of_objects(items)
  for _, item in ipairs(items) do
    if type(item) ~= "table" or #item > 0 then return false end
  end
  return true
end

local function columns_of(items)
  local names, seen = {}, {}
  for _, item in ipairs(items) do
    for name in pairs(item) do
      if not seen[name] then
        seen[name] = true
        names[#names + 1] = name
      end
    end
  end
  table.sort(names)
  return names
end

--- A list of objects as a table, ids and names first.
local function list(items)
  if #items == 0 then return INDENT .. "none\n" end
  if not is_of_objects(items) then return plain_list(items) end
  local names = columns_of(items)
  local rank = { sandbox_id = 1, task_id = 1, name = 1, status = 2, type = 2, size = 3 }
  table.sort(names, function(a, b)
    local x, y = rank[a] or 9, rank[b] or 9
    if x ~= y then return x < y end
    return a < b
  end)
  local rows = { names }
  for _, item in ipairs(items) do
    local row = {}
    for i, name in ipairs(names) do row[i] = style.short(word(item[name]), CELL_COLUMNS) end
    rows[#rows + 1] = row
  end
  return grid.render(rows, { header = true, indent = INDENT })
end

local function block(name, text)
  text = style.plain(text):gsub("\n$", "")
  return style.paint("dim", name) .. "\n" .. INDENT .. text:gsub("\n", "\n" .. INDENT) .. "\n"
end

--- The result as text. `ended` says that the sandbox which this call made is gone again.
---@param tool table   entry of app.tools
---@param result table
---@param ended? boolean
---@return string
function show.result(tool, result, ended)
  local blocks, lists, facts = {}, {}, {}
  for _, name in ipairs(ordered(tool, result)) do
    local value = result[name]
    if type(value) == "table" and #value == 0 and next(value) ~= nil then
      facts[#facts + 1] = { name, word(json.encode(value)) }
    elseif type(value) == "table" then
      lists[#lists + 1] = style.paint("dim", name) .. "\n" .. list(value)
    elseif is_block(value) then
      blocks[#blocks + 1] = block(name, value)
    elseif value ~= json.null and value ~= "" and name ~= "created" and not (value == false and SILENT_WHEN_FALSE[name]) then
      local text = word(value)
      if name == "sandbox_id" and ended then text = text .. " (made for this call, and ended with it)" end
      facts[#facts + 1] = { name, text }
    end
  end
  return table.concat(blocks) .. table.concat(lists) .. grid.render(facts)
end

return show
