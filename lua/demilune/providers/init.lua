--- providers/init.lua - the contract of a driver, and the registry.
--
-- A provider is what is configured; a driver is the code for a type of provider: a file in this folder that returns
-- { new = function(config) -> provider }. A provider has:
--
--   output, places                  set by providers.new: limits of what is shown; who may send to sandboxes now
--   id, config, workdir             the entry of the configuration; where relative paths start
--   template_names(), network()     for descriptions: names; "none", "host" or "provider"
--   has_network()                   whether any template has a network
--   is_id(id)                       the driver's pattern of ids: others never reach a URL
--   supports                        what it can do beyond the basics, by name: region, cpu, memory, pause, kernel
--   is_reaped                       what a scope leaves is ended by `demilune reap`; else a lease does it
--   create{scope, template?, timeout_s, envs?, region?, cpu?, memory?, principal, keep, stamp} -> info
--   get(id, manner?), set_timeout(id, seconds, manner?)    manner {is_fresh}: by a connection that is closed afterwards,
--                                   and with nothing of it kept: for sandboxes that are none of the scope's
--   list{status?, limit, offset, region?, owner?}, kill(id) -> existed
--   kill_by_stamp(stamp, deadline_ms)    ends what a creation with that stamp made, where its answer was lost
--   pause(id), resume(id, seconds)  where it supports pause
--   renew(id)                       where lifetimes are not in seconds: tells that a sandbox is in use
--   run(sandbox, opts), start_detached, signal, open_read, read, write, list_dir    see envd.lua
--   run_code(sandbox, {language, code, timeout_s, on_line}) -> run, or nil where the sandbox has no kernel for that
--   with_envs(sandbox, command)     the command with the sandbox's variables set, for shells that forget them
--   release_scope(scope)            the scope ends: what holds its sandboxes lets go
--
-- info: id, template, status, region, started_at, end_at (ISO 8601), ends_in_ms, age_ms, cpu_count, memory_mb, disk_size_mb,
-- owner, workdir, network, url, envs; nil where the service does not say. Failures are raised as errors of errors.lua. What a
-- driver cannot do it refuses as `unsupported` with the argument's name, before any request.
--
-- An operator's own driver is a file of a smaller contract, in a folder of `provider_path`: own/provider.lua makes of it what
-- stands above. docs/extending.md has it.
local providers = {}

--- Makes the provider of a configuration entry.
---@param entry table  {id, type, ...}
---@param output table  limits of the configuration
---@param places demilune.Gate  of all requests to sandboxes of this server
---@param config? demilune.Config  for a driver of the operator's own
---@return table
function providers.new(entry, output, places, config)
  local driver = entry.is_own and require "demilune.own.driver" or require("demilune.providers." .. entry.type)
  local provider = driver.new(entry, entry.is_own and config or nil)
  provider.output, provider.places = output, places
  return provider
end

return providers
