--- list_sandboxes: what the account has, as metadata.
local json = require("demilune.core").json
local metadata = require "demilune.metadata"
local shape = require "demilune.tools.shape"

local STATUSES = { "creating", "running", "paused", "stopping", "stopped", "error" }

return {
  name = "list_sandboxes",
  title = "List sandboxes",
  order = 8,
  effect = "read",
  description = "List a provider's sandboxes, newest first, this server's and others'. Nothing is created or renewed."
    .. " Raise offset for the next page.",
  input = function(env)
    return shape.input {
      status = { type = "string", enum = STATUSES },
      limit = shape.integer(1, 100, 100),
      offset = { type = "integer", minimum = 0, default = 0 },
      provider = { type = "string", enum = env.provider_ids },
      region = { type = "string", bytes = 256, is_filled = true },
    }
  end,
  output = shape.output {
    { "sandboxes", { type = "object" } }, "limit integer", "offset integer",
  },
  handler = function(call, args)
    local provider = call.app:provider(args.provider)
    local infos = provider:list {
      status = args.status, limit = args.limit, offset = args.offset, region = args.region, owner = call:owner_shown(provider),
    }
    local sandboxes = json.array {}
    for i, info in ipairs(infos) do sandboxes[i] = metadata.public(call.app, provider, info) end
    return { sandboxes = sandboxes, limit = args.limit, offset = args.offset }
  end,
}
