--- set_sandbox_timeout: lifetime from now.
local shape = require "demilune.tools.shape"

return {
  name = "set_sandbox_timeout",
  title = "Set a sandbox's lifetime",
  order = 10,
  effect = "lifetime",
  description = function(env)
    return "Set how many seconds from now a sandbox lives, shorter or longer; later work in it renews by the same amount. "
      .. shape.without_id(env) .. "Not the timeout of a command: that is an argument of"
      .. " run_command and run_code."
  end,
  input = shape.input({ timeout = shape.seconds(), sandbox_id = shape.sandbox_id() }, { "timeout" }),
  output = shape.output { "success boolean", "sandbox_id string", "timeout integer" },
  handler = function(call, args)
    local target = call:control(args.sandbox_id)
    call.scope:set_timeout(call, target, args.timeout)
    return { success = true, sandbox_id = target.public_id, timeout = args.timeout }
  end,
}
