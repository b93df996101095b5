--- tools/shape.lua - short ways to write the schemas of tools.
local shape = {}

local ID_BYTES = 256
local PATH_BYTES = 4096
local TEXT_BYTES = 1024 * 1024
local SECONDS_MAX = 86400

--- An input schema: nothing but these properties.
---@param properties table
---@param required? string[]
---@return table
function shape.input(properties, required)
  return { type = "object", properties = properties, required = required, additionalProperties = false }
end

--- An id of a sandbox: "id", or "provider:id".
---@return table
function shape.sandbox_id()
  return { type = "string", minLength = 1, maxLength = ID_BYTES, bytes = ID_BYTES }
end

--- An id of ours.
---@return table
function shape.id()
  return { type = "string", bytes = ID_BYTES, is_filled = true }
end

--- A path in a sandbox.
---@return table
function shape.path()
  return { type = "string", bytes = PATH_BYTES, is_filled = true }
end

--- A command or a program.
---@return table
function shape.code()
  return { type = "string", bytes = TEXT_BYTES, is_filled = true }
end

--- An integer within bounds.
---@param minimum integer
---@param maximum? integer
---@param default? integer
---@return table
function shape.integer(minimum, maximum, default)
  return { type = "integer", minimum = minimum, maximum = maximum, default = default }
end

--- Seconds, up to a day.
---@param default? integer
---@param description? string
---@return table
function shape.seconds(default, description)
  return { type = "integer", minimum = 1, maximum = SECONDS_MAX, default = default, description = description }
end

local function property(spec)
  local types = {}
  for name in spec:gmatch "[^|]+" do types[#types + 1] = name end
  return { type = #types == 1 and types[1] or types }
end

--- An output schema from lines like "exit_code integer|null"; a leading "+" makes a property optional; a table
--- { "files", item_schema } is an array. `required` names those that are never null; `nulls`, which is not published, the
--- others: what a handler leaves out of them becomes null.
---@param fields (string|table)[]
---@return table
function shape.output(fields)
  local out = { type = "object", properties = {}, required = {}, nulls = {} }
  for _, field in ipairs(fields) do
    local name, node, optional
    if type(field) == "table" then
      name, node, optional = field[1], { type = "array", items = field[2] }, field.optional
      node.items.required = nil -- the list of tools has a budget of bytes
    else
      local mark, key, spec = field:match "^(%+?)(%S+) (%S+)$"
      name, node, optional = key, property(spec), mark == "+"
    end
    out.properties[name] = node
    local list = type(node.type) == "table" and out.nulls or out.required
    if not optional then list[#list + 1] = name end
  end
  if #out.required == 0 then out.required = nil end
  return out
end

--- Every result may carry one sentence of ours, but for those whose schema is somebody else's (`is_sealed`).
---@param output table
---@return table
function shape.with_note(output)
  if not output.is_sealed then output.properties.note = { type = "string" } end
  return output
end

--- For descriptions: what a tool that works does without a sandbox_id.
---@param env table  of tools.build
---@return string
function shape.starts(env)
  return env.has_default and "Starts a sandbox when there is none. " or "Needs a sandbox_id. "
end

--- For descriptions: what a tool that looks does without a sandbox_id.
---@param env table  of tools.build
---@return string
function shape.without_id(env)
  return env.has_default and "Without sandbox_id: the default sandbox. " or "Needs a sandbox_id. "
end

--- The lines of a sandbox's metadata.
shape.METADATA = {
  "sandbox_id string", "template string|null", "status string", "region string|null", "started_at string|null",
  "end_at string|null", "cpu_count number|null", "memory_mb integer|null", "disk_size_mb integer|null",
}

--- The lines that every tool which acted in a sandbox begins with, and `more`.
---@param more (string|table)[]
---@return (string|table)[]
function shape.acted(more)
  local fields = { "sandbox_id string", "+created boolean" }
  return table.move(more, 1, #more, #fields + 1, fields)
end

--- The lines of a finished command.
shape.OUTCOME = {
  "stdout string", "stderr string", "exit_code integer|null", "duration_ms integer", "timed_out boolean",
  "stdout_truncated boolean", "stderr_truncated boolean", "stdout_path string|null", "stderr_path string|null",
}

return shape
