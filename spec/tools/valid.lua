--- A small validator for the output schemas of the tools: types, properties, required, items.

local core = require "demilune.core"

local null = core.json.null

local function type_of(value)
  if value == null then return "null" end
  if type(value) == "table" then return getmetatable(value) and "array" or "object" end
  if type(value) == "number" then return math.type(value) == "integer" and "integer" or "number" end
  return type(value)
end

local function fits(value, wanted)
  local kind = type_of(value)
  return kind == wanted or (wanted == "number" and kind == "integer")
end

local check

local function check_object(value, schema, path)
  for _, name in ipairs(schema.required or {}) do
    if value[name] == nil then return path .. "." .. name .. " is missing" end
  end
  for name, part in pairs(value) do
    local property = schema.properties and schema.properties[name]
    if schema.properties and not property then return path .. "." .. name .. " is not in the schema" end
    local fault = property and check(part, property, path .. "." .. name)
    if fault then return fault end
  end
end

--- What is wrong with a decoded value, or nil. Stricter than the schema: nothing undeclared is let pass.
function check(value, schema, path)
  path = path or "result"
  local wanted = type(schema.type) == "table" and schema.type or { schema.type }
  local is_fine = #wanted == 0
  for _, one in ipairs(wanted) do is_fine = is_fine or fits(value, one) end
  if not is_fine then return ("%s is %s, not %s"):format(path, type_of(value), table.concat(wanted, " or ")) end
  if type_of(value) == "object" then return check_object(value, schema, path) end
  if type_of(value) == "array" then
    for i, item in ipairs(value) do
      local fault = schema.items and check(item, schema.items, ("%s[%d]"):format(path, i))
      if fault then return fault end
    end
  end
end

return check
