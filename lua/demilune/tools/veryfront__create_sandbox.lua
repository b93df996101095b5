--- veryfront__create_sandbox: a sandbox of a Veryfront account, by the service's own tool.
local record = require "demilune.veryfront.record"

return {
  name = "veryfront__create_sandbox",
  title = "Create a Veryfront sandbox",
  order = 16,
  effect = "create",
  is_open_world = true,
  provider_type = "veryfront",
  needs = "has_veryfront",
  description = "Create a sandbox in the Veryfront account, with its access scope, billing project and lifetime policy. It"
    .. " lives by that policy: this server neither makes it the default nor ends it. For a sandbox to run commands in now,"
    .. " use create_sandbox. Requires project.sandboxes.manage.",
  input = record.input("create_sandbox", {
    access_scope = {
      type = "string", enum = { "project", "private" },
      description = "Private sandboxes require creator credentials or a creator-owned MCP OAuth grant.",
    },
    project_reference = {
      type = "string", bytes = 256, is_filled = true,
      description = "Project UUID or slug to bill. When set, the project owner is billed.",
    },
    environment_id = {
      type = "string", format = "uuid",
      description = "Environment whose variables are copied once into the sandbox; it also identifies the billing project.",
    },
    ttl_mode = record.ttl_mode(),
    ttl_hours = record.ttl_hours(),
  }, { "access_scope" }),
  output = record.output "create_sandbox",
  handler = function(call, args)
    record.check_ttl(args)
    return record.provider(call.app):create_for_account(args)
  end,
}
