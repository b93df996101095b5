--- vault.lua - gives the configured credentials to the vault, by name and source. Nothing of a file or a command is
--- read here; variables of the environment are, so that they can be wiped.
local core = require "demilune.core"
local errors = require "demilune.errors"

local vault = {}

local LOCK_MESSAGE = "The memory for keys cannot be locked against swapping, and vault.require_lock asks for it."
--- The arena's size with its guard pages; see setrlimit(2), RLIMIT_MEMLOCK.
vault.LOCK_FIX = "raise the limit of locked memory: ulimit -l 1024 in the shell, LimitMEMLOCK=1M in the unit of a service"

--- Whether a configuration has anything to keep secret. Without that there is no arena either.
---@param config demilune.Config
---@return boolean
function vault.is_needed(config)
  return config.vault.require_lock or next(config.credentials) ~= nil
end

--- Opens the vault and defines the credentials, before anything that may need one. Once more is fine: a credential whose
--- source is the same keeps its secret.
---@param config demilune.Config
---@return boolean? is_open  false where nothing needs it; nil with an error
---@return demilune.Error? err
function vault.open(config)
  if not vault.is_needed(config) then return false end
  local ok, err = core.vault.open { require_lock = config.vault.require_lock }
  if not ok then
    if not config.vault.require_lock then return nil, err end
    return nil, errors.new(err.category, { message = LOCK_MESSAGE, suggestion = "To mend it, " .. vault.LOCK_FIX .. "." })
  end
  for name, entry in pairs(config.credentials) do
    ok, err = core.vault.define(name, entry.source)
    if not ok then
      return nil, errors.new(err.category, {
        message = ("The source of the credential %s cannot be used; see docs/configuration.md."):format(name),
      })
    end
  end
  return true
end

--- Reads every credential again that has been read, as after a rotation. One that cannot be read keeps its secret.
---@async
---@param config demilune.Config
function vault.reload(config)
  if not vault.is_needed(config) then return end
  for _, credential in ipairs(core.vault.status().credentials) do
    if credential.state ~= "unread" and credential.kind ~= "env" and config.credentials[credential.name] then
      core.vault.reload(credential.name)
    end
  end
end

return vault
