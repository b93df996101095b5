--- veryfront__update_sandbox_lifetime: another lifetime policy for a sandbox of a Veryfront account.
local record = require "demilune.veryfront.record"

return {
  name = "veryfront__update_sandbox_lifetime",
  title = "Change a Veryfront sandbox's lifetime",
  order = 17,
  effect = "lifetime",
  is_open_world = true,
  provider_type = "veryfront",
  needs = "has_veryfront",
  description = "Change the lifetime policy of a sandbox in the Veryfront account, by its UUID: the platform's default, a"
    .. " number of hours, or always on. A shorter one may end it. Sandboxes of other providers: set_sandbox_timeout.",
  input = record.input("update_sandbox_lifetime", {
    sandbox_id = { type = "string", format = "uuid", description = "Sandbox UUID, as returned by createSandbox." },
    ttl_mode = record.ttl_mode(),
    ttl_hours = record.ttl_hours(),
  }, { "sandbox_id", "ttl_mode" }),
  output = record.output "update_sandbox_lifetime",
  handler = function(call, args)
    record.check_ttl(args)
    return record.provider(call.app):update_lifetime(args)
  end,
}
