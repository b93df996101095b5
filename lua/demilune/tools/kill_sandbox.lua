--- kill_sandbox: the end of a sandbox and its files.
local errors = require "demilune.errors"
local shape = require "demilune.tools.shape"

--- Requests of this revision carry no session, so that conversations share a scope.
local STATELESS_REVISION = "2026-07-28"

return {
  name = "kill_sandbox",
  title = "End a sandbox",
  order = 7,
  effect = "destroy",
  description = function(env)
    return "End a sandbox now; its files and processes are gone. " .. shape.without_id(env) .. "An unknown or ended one is"
      .. " success with existed false. To let it end later use set_sandbox_timeout."
  end,
  input = shape.input { sandbox_id = shape.sandbox_id() },
  output = shape.output { "success boolean", "sandbox_id string", "existed boolean" },
  handler = function(call, args)
    if not args.sandbox_id and call.revision == STATELESS_REVISION and #call.scope:owned() > 1 then
      errors.raise("invalid_argument", {
        field = "sandbox_id", expected = "id of a sandbox",
        message = "sandbox_id is required while there are several sandboxes: a default may be another conversation's.",
      })
    end
    local target = call:control(args.sandbox_id)
    local existed = call.scope:kill(target)
    return { success = true, sandbox_id = target.public_id, existed = existed }
  end,
}
