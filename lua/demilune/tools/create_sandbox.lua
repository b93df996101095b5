--- create_sandbox: a new sandbox, which becomes the scope's default.
local shape = require "demilune.tools.shape"

local ENVS_MAX = 256
local ENV_VALUE_BYTES = 32 * 1024
local ENVS_BYTES = 1024 * 1024

--- What is wrong with `envs`, which are strings by name, as what was expected instead; nil when nothing is.
local function check_envs(envs)
  local count, bytes = 0, 0
  for name, value in pairs(envs) do
    if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" then
      return "object whose names match [A-Za-z_][A-Za-z0-9_]*"
    end
    if #value > ENV_VALUE_BYTES then return "object of strings of at most 32 KiB each" end
    count, bytes = count + 1, bytes + #name + #value
  end
  if count > ENVS_MAX then return "object of at most 256 entries" end
  if bytes > ENVS_BYTES then return "object of at most 1 MiB in all" end
end

return {
  name = "create_sandbox",
  title = "Create a sandbox",
  order = 1,
  effect = "create",
  task = "optional",
  description = function(env)
    return (env.has_default
      and "Create a fresh sandbox and make it the default. Not needed before run_command or run_code, which create one by"
        .. " themselves; use it for another template, size, lifetime or environment."
      or "Create a fresh sandbox; pass its sandbox_id to the other tools.")
      .. " `timeout` is the sandbox's lifetime in seconds; its files end with it."
  end,
  input = function(env)
    return shape.input {
      template = { type = "string", bytes = 256, is_filled = true, description = "Configured: " .. env.template_names .. "." },
      timeout = { type = "integer", minimum = 1, maximum = env.max_lifetime },
      envs = { type = "object", additionalProperties = { type = "string" }, check = check_envs },
      region = { type = "string", bytes = 256, is_filled = true },
      cpu = { type = "integer", minimum = 1, description = "cores" },
      memory = { type = "integer", minimum = 1, description = "MB" },
      provider = { type = "string", enum = env.provider_ids },
    }
  end,
  output = shape.output {
    "sandbox_id string", "status string", "url string|null", "template string|null", "end_at string|null",
    "cpu_count number|null", "memory_mb integer|null", "workdir string", "network string",
  },
  handler = function(call, args)
    local sandbox = call.scope:create(call, {
      provider = call.app:provider(args.provider), template = args.template, timeout_s = args.timeout, envs = args.envs,
      region = args.region, cpu = args.cpu, memory = args.memory,
    })
    call.sandbox = sandbox
    local info = sandbox.info
    return {
      sandbox_id = sandbox.public_id, status = info.status, url = info.url, template = info.template, end_at = info.end_at,
      cpu_count = info.cpu_count, memory_mb = info.memory_mb, workdir = sandbox:workdir(),
      network = info.network or sandbox.provider:network(),
    }
  end,
}
