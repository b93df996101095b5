--- policy/init.lua - the seam for the operator's policy: one decision for every door.
--
-- There is no policy language yet, so every call is allowed as it came; a configuration that names a policy is refused
-- by config.lua, since one that is ignored would fail open.
local policy = {}

--- Decides a call before its handler runs. Raises `policy_denied`, `approval_required`, … when it may not.
---@param call demilune.Call  tool, principal, client, transport, scope, implicit
---@param args table          checked arguments
---@return table args         perhaps rewritten
function policy.decide(call, args) -- luacheck: ignore 212/call
  return args
end

return policy
