--- mask.lua - what must not leave in a text: live secrets always, and what the operator's `redact` rules name.
--
-- Whoever cuts a text masks it before, with the masks of the call; the one call path masks the whole result once more.
local core = require "demilune.core"

local mask = {}

--- What stands in place of what a rule names.
mask.WORD = "[masked]"

---@class demilune.Masks
---@field whole fun(text: string, is_cut?: boolean): string  as core.vault.redact
---@field part fun(bytes: string, first: integer, last: integer): string, integer  as core.vault.redact_part
---@field is_live fun(): boolean  there is something to mask

--- Masks secrets alone.
---@type demilune.Masks
mask.SECRETS = { whole = core.vault.redact, part = core.vault.redact_part, is_live = core.vault.is_live }

local function always() return true end

--- The text without what the rules name. What cannot be searched within the limits is masked in whole.
local function without(rules, text)
  for _, regex in ipairs(rules) do text = regex:mask(text, mask.WORD) or mask.WORD end
  return text
end

--- The same with every byte in its place, so that offsets into the text stay what they are.
local function blanked(rules, bytes)
  for _, regex in ipairs(rules) do bytes = regex:blank(bytes) or ("*"):rep(#bytes) end
  return bytes
end

--- The masks of a call.
---@param rules? table[]  the regular expressions of its decision
---@return demilune.Masks
function mask.of(rules)
  if not rules or #rules == 0 then return mask.SECRETS end
  return {
    whole = function(text, is_cut) return without(rules, core.vault.redact(text, is_cut)) end,
    part = function(bytes, first, last) return core.vault.redact_part(blanked(rules, bytes), first, last) end,
    is_live = always,
  }
end

local function each(rules, value)
  if type(value) == "string" then return without(rules, value) end
  if type(value) ~= "table" then return value end
  local out = setmetatable({}, getmetatable(value))
  for key, entry in pairs(value) do out[key] = each(rules, entry) end
  return out
end

--- A result with all its strings masked; keys stay.
---@param rules? table[]
---@param value table
---@return table
function mask.all(rules, value)
  local shown = core.vault.redact_all(value)
  if not rules or #rules == 0 then return shown end
  return each(rules, shown)
end

return mask
