--- mcp/instructions.lua - what a model is told of the server as a whole, from the configuration.
local core = require "demilune.core"

local instructions = {}

local MAX_BYTES = 2048

local function duration(seconds)
  if seconds == 1 then return "one second" end
  if seconds % 3600 == 0 then return seconds // 3600 == 1 and "one hour" or seconds // 3600 .. " hours" end
  if seconds % 60 == 0 then return seconds // 60 == 1 and "one minute" or seconds // 60 .. " minutes" end
  return seconds .. " seconds"
end

--- How long a sandbox lives after its last use. A use renews its life only once half of that is over (scope.lua), so it
--- is a range.
local function after_use(lifetime)
  local least = math.max(lifetime // 2, 1)
  if least == lifetime then return duration(lifetime) end
  return duration(least) .. " to " .. duration(lifetime)
end

--- The text.
---@param app demilune.App
---@return string
function instructions.text(app)
  local provider = app.default_provider
  local env = app.environment
  local start = not env.has_default
    and "Make one with create_sandbox and pass its sandbox_id to every call: this server keeps no default."
    or "One starts by itself on the first run_command, run_code, write_file, upload_file or start_background_task, and"
      .. " stays the default for later calls."
  local lines = {
    "Sandboxes: isolated machines in which you run commands and code. " .. start,
    "Each command is a new shell in " .. provider.workdir .. ": cd and variables do not carry over, files do.",
    "Work that takes more than about a minute, and servers, belong in start_background_task; then get_background_task.",
    ("A sandbox ends %s after its last use (set_sandbox_timeout changes that), %s after its creation at the latest%s; its"
      .. " files go with it. If a call says sandbox_gone, start over in a fresh one."):format(
      after_use(provider.config.lifetime), duration(provider.config.max_lifetime),
      app.config.keep_on_exit and "" or ", and when this server ends"),
    env.has_network and "Some templates have a network." or
      "Sandboxes have no network: packages cannot be installed from the internet, but processes in one sandbox reach each"
      .. " other on localhost.",
    "Long output is cut in the middle; stdout_path and stderr_path name the file in the sandbox that has it, up to"
      .. " 64 MiB; null when none could be kept.",
    "Put no secrets into arguments: they are visible in this conversation.",
    "Templates: " .. env.template_names .. ". Providers: " .. table.concat(env.provider_ids, ", ") .. ".",
  }
  local text = table.concat(lines, "\n")
  return core.text.head(text, MAX_BYTES)
end

return instructions
