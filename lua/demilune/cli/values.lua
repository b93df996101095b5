--- cli/values.lua - any Lua value as a person reads it: keys in order, not deep, nothing of it called.
local style = require "demilune.cli.style"

local values = {}

local DEPTH_MAX = 3
local ENTRIES_MAX = 200
local TEXT_BYTES_MAX = 64 * 1024

local function quoted(text)
  if #text > TEXT_BYTES_MAX then text = text:sub(1, TEXT_BYTES_MAX) .. "…" end
  return '"' .. style.plain(text):gsub('[\\"]', "\\%0"):gsub("\n", "\\n") .. '"'
end

--- A name for what has no text of its own; tables and functions never show an address.
local function named(value)
  if type(value) == "userdata" then return style.short(tostring(value), 100) end
  return "<" .. type(value) .. ">"
end

local RANK = { number = 1, string = 2 }

local function sorted_keys(value)
  local keys = {}
  for key in next, value do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    local rank_a, rank_b = RANK[type(a)] or 3, RANK[type(b)] or 3
    if rank_a ~= rank_b then return rank_a < rank_b end
    if rank_a < 3 then return a < b end
    return tostring(a) < tostring(b)
  end)
  return keys
end

local function key_text(key)
  if type(key) == "string" and key:find "^[%a_][%w_]*$" then return key end
  return ("[%s]"):format(type(key) == "string" and quoted(key) or type(key) == "number" and tostring(key) or named(key))
end

local add

local function add_table(out, value, depth, indent, seen)
  if next(value) == nil then
    out[#out + 1] = "{}"
  elseif seen[value] or depth > DEPTH_MAX then
    out[#out + 1] = "{ … }"
  else
    seen[value] = true
    out[#out + 1] = "{\n"
    local inner, count = indent .. "  ", 0
    for _, key in ipairs(sorted_keys(value)) do
      count = count + 1
      if count > ENTRIES_MAX then
        out[#out + 1] = inner .. "…\n"
        break
      end
      out[#out + 1] = inner .. (math.type(key) == "integer" and key == count and "" or key_text(key) .. " = ")
      add(out, rawget(value, key), depth + 1, inner, seen)
      out[#out + 1] = ",\n"
    end
    out[#out + 1] = indent .. "}"
    seen[value] = nil
  end
end

function add(out, value, depth, indent, seen)
  local kind = type(value)
  if kind == "string" then out[#out + 1] = quoted(value)
  elseif kind == "table" then add_table(out, value, depth, indent, seen)
  elseif kind == "number" or kind == "boolean" or kind == "nil" then out[#out + 1] = tostring(value)
  else out[#out + 1] = named(value) end
end

--- The text of a value: tables to a depth of three.
---@param value any
---@return string
function values.text(value)
  local out = {}
  add(out, value, 1, "", {})
  return table.concat(out)
end

return values
