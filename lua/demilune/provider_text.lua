--- provider_text.lua - what a provider said when it refused, for the person who debugs with
--- `demilune call --show-provider-text`, and for nobody else.
--
-- Drivers drop such text; they tell it here on the way. Without a listener, and `serve` never has one, nothing is kept.
local core = require "demilune.core"

local provider_text = {}

--- Of one answer as much is shown.
local SHOWN_BYTES = 4096

local listener

--- Sets who hears of it; nil for nobody.
---@param fn? fun(status: integer|string, said: string)
function provider_text.listen(fn) listener = fn end

--- Tells what a provider said: the HTTP status or the code that came with it, and its own words. Secrets are masked.
---@param status integer|string
---@param said? string
function provider_text.tell(status, said)
  if not listener or type(said) ~= "string" or said == "" then return end
  local shown = core.text.head(core.vault.redact(said), SHOWN_BYTES)
  listener(status, core.text.mend(shown))
end

return provider_text
