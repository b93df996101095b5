--- veryfront/record.lua - what Veryfront publishes of its two sandbox tools: schemas, word for word, and the
-- rule that they state only in prose.
--
-- `bytes` beside the published keywords bounds what a service may put into a result.
local errors = require "demilune.errors"

local record = {}

local DRAFT = "http://json-schema.org/draft-07/schema#"
local TEXT_BYTES = 4096

--- The first configured provider of the type: the two tools have no argument to choose another.
---@param app demilune.App
---@return demilune.Veryfront
function record.provider(app)
  return app:provider_of_type "veryfront"
    or errors.raise("unsupported", { message = "No provider of type veryfront is configured." })
end

--- An input schema of the service's.
---@param name string  of the tool, as the service's description has it
---@param properties table
---@param required string[]
---@return table
function record.input(name, properties, required)
  return {
    ["$schema"] = DRAFT, description = "Arguments for the " .. name .. " tool.", type = "object", properties = properties,
    required = required, additionalProperties = false,
  }
end

--- The property `ttl_mode` of an input.
---@return table
function record.ttl_mode()
  return {
    type = "string", enum = { "default", "duration", "always_on" },
    description = "Sandbox lifetime policy. `default` uses the platform’s idle and maximum lifetime limits.",
  }
end

--- The property `ttl_hours` of an input.
---@return table
function record.ttl_hours()
  return {
    type = "integer", exclusiveMinimum = 0, maximum = 24,
    description = "Required when ttl_mode is duration. Number of hours before cleanup, up to 24.",
  }
end

--- `ttl_hours` belongs to `ttl_mode` duration and to nothing else. Raises `invalid_argument`.
---@param args {ttl_mode?: string, ttl_hours?: integer}
function record.check_ttl(args)
  local is_duration = args.ttl_mode == "duration"
  if is_duration == (args.ttl_hours ~= nil) then return end
  errors.raise("invalid_argument", {
    field = "ttl_hours", expected = is_duration and "integer from 1 to 24" or "nothing unless ttl_mode is duration",
    message = is_duration and "ttl_hours is required when ttl_mode is duration."
      or "ttl_hours is taken only when ttl_mode is duration.",
  })
end

local function text(description)
  return { type = "string", bytes = TEXT_BYTES, description = description }
end

local function text_or_null(description)
  return { type = { "string", "null" }, bytes = TEXT_BYTES, description = description }
end

local function choice(values, description)
  return { type = "string", enum = values, description = description }
end

local function uuid_or_null(description, null_description)
  return {
    anyOf = {
      { type = "string", format = "uuid", description = description },
      { type = "null", description = null_description or description },
    },
  }
end

local function described(node, description)
  node.description = description
  return node
end

local function variable_snapshot()
  return {
    type = "object",
    properties = {
      source_environment_id = uuid_or_null(nil, "The source environment id returned by the tool."),
      variable_count = { type = "integer", minimum = 0 },
      copied_at = text_or_null(),
    },
    required = { "source_environment_id", "variable_count", "copied_at" },
    additionalProperties = false,
    description = "Snapshot provenance on sandbox details. Variables are copied once, without live synchronization. No"
      .. " variable keys or values are included.",
  }
end

local function sandbox_properties()
  local of_project = "Project identifier associated with this result."
  return {
    id = { type = "string", format = "uuid", description = "Unique identifier for the returned record." },
    short_id = text(),
    endpoint = text "Sandbox endpoint URL.",
    status = choice({ "pending", "provisioning", "running", "error", "deleting" }, "Sandbox lifecycle status."),
    project_id = described(uuid_or_null(of_project), of_project),
    run_id = described(uuid_or_null "Run identifier associated with this result.", "Agent run that created this sandbox."),
    stopped_at = text_or_null "Compute cleanup completed; only session history remains.",
    access_scope = choice { "project", "private" },
    workspace_storage = choice({ "ephemeral", "persistent" },
      "Persistent workspaces survive runtime pod replacement. Deleting the sandbox also deletes its workspace."),
    ttl_mode = choice { "default", "duration", "always_on" },
    ttl_hours = {
      anyOf = {
        { type = "integer", exclusiveMinimum = 0 },
        { type = "null", description = "The ttl hours returned by the tool." },
      },
    },
    expires_at = text_or_null(),
    created_at = text "Creation timestamp in ISO 8601 format.",
    last_activity_at = text_or_null(),
    variable_snapshot = variable_snapshot(),
  }
end

--- The output schema of either tool: the sandbox. Sealed: no field of ours may be added.
---@param name string
---@return table
function record.output(name)
  return {
    ["$schema"] = DRAFT, description = "Structured result returned by the " .. name .. " tool.", type = "object",
    properties = sandbox_properties(),
    required = {
      "id", "short_id", "endpoint", "status", "project_id", "access_scope", "workspace_storage", "ttl_mode", "ttl_hours",
      "expires_at", "created_at", "last_activity_at",
    },
    additionalProperties = false, is_sealed = true, nulls = {},
  }
end

--- What an answer must be, for whoever reads it.
record.SANDBOX = record.output "create_sandbox"

return record
