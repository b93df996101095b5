-- A person is asked before a sandbox is killed and before a large one is made.
local LARGE_CPU, LARGE_MB = 4, 8192

local policy = {
  default = "allow",
  rules = {
    { name = "kill", match = "kill_sandbox", ask = "Kill this sandbox? Its files go with it." },
  },
}

-- How large is too large depends on two arguments together, so a function asks.
function policy.before(call)
  if call.tool ~= "create_sandbox" then return end
  local cpu, memory = call.args.cpu or 1, call.args.memory or 1024
  if cpu > LARGE_CPU or memory > LARGE_MB then
    return ask(("Make a sandbox with %d cores and %d MB?"):format(cpu, memory))
  end
end

return policy
