--- get_sandbox: the metadata of one sandbox.
local metadata = require "demilune.metadata"
local shape = require "demilune.tools.shape"

return {
  name = "get_sandbox",
  title = "Inspect a sandbox",
  order = 9,
  effect = "read",
  description = function(env)
    return "Look at one sandbox: template, status, when it ends, its size. " .. shape.without_id(env)
      .. "Looking creates nothing and does not prolong its life."
  end,
  input = shape.input { sandbox_id = shape.sandbox_id() },
  output = shape.output(shape.METADATA),
  handler = function(call, args)
    local target = call:control(args.sandbox_id)
    return metadata.public(call.app, target.provider, call.scope:inspect(call, target))
  end,
}
