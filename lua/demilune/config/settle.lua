--- settle.lua - what depends on more than one key: ids, the default provider, lifetimes, templates.
--
-- Works on the checked copy, and looks at what the operator wrote only to tell a value that was
-- asked for from a default. `template.explicit` keeps that difference: memory and cpu as defaults
-- are best effort on a machine without limits, an explicit demand for them is not.
local check = require "demilune.config.check"
local keys = require "demilune.config.keys"
local nearest = require "demilune.nearest"
local words = require "demilune.config.words"

local settle = {}

local function written(given, ...)
  for _, key in ipairs { ... } do
    if type(given) ~= "table" then return nil end
    given = rawget(given, key)
  end
  return given
end

--- Where a provider has no templates, it gets `base`.
local function settle_templates(provider, given)
  if not provider.templates then
    provider.templates = { base = (check.run({}, keys.template)) }
  end
  for name, template in pairs(provider.templates) do
    template.explicit = {}
    for key in next, written(given, "templates", name) or {} do template.explicit[key] = true end
  end
end

local function settle_lifetime(provider, given, path, faults)
  local longest = provider.max_lifetime
  if provider.lifetime <= longest then return end
  if written(given, "lifetime") == nil then
    provider.lifetime = longest
    return
  end
  faults[#faults + 1] = {
    path = { path[1], path[2], "lifetime" },
    text = words.path(path) .. ".lifetime is more than max_lifetime, " .. longest
      .. "; lower one or raise the other",
  }
end

local function default_of(ids)
  if #ids == 1 then return ids[1] end
  for _, id in ipairs(ids) do
    if id == "local" then return id end
  end
end

local function settle_default(config, ids, faults)
  local wanted = config.default_provider
  if not wanted then
    config.default_provider = default_of(ids)
    if not config.default_provider then
      faults[#faults + 1] = {
        path = { "providers" },
        text = "default_provider is missing; write one of " .. table.concat(ids, ", "),
      }
    end
    return
  end
  for _, id in ipairs(ids) do
    if id == wanted then return end
  end
  local near = nearest.of(wanted, ids)
  local way_out = near and 'did you mean "' .. near .. '"?'
    or "write one of " .. table.concat(ids, ", ")
  faults[#faults + 1] = {
    path = { "default_provider" },
    text = "default_provider is not the id of a provider; " .. way_out,
  }
end

--- Finishes a configuration that passed check.run without a fault; `config` is changed in place.
---@param config table
---@param given table  what the file returned
---@return demilune.config.Fault[] faults
function settle.run(config, given)
  local faults, ids, seen = {}, {}, {}
  if not config.providers then
    config.providers = { (check.run({ id = "local", type = "local" }, keys.provider)) }
  end
  for i, provider in ipairs(config.providers) do
    local path = { "providers", i }
    if seen[provider.id] then
      faults[#faults + 1] = {
        path = { "providers", i, "id" },
        text = ("%s.id is the id of providers[%d] too; give each its own"):format(
          words.path(path), seen[provider.id]),
      }
    end
    seen[provider.id] = seen[provider.id] or i
    ids[i] = provider.id
    settle_templates(provider, written(given, "providers", i))
    settle_lifetime(provider, written(given, "providers", i), path, faults)
  end
  if #faults == 0 then settle_default(config, ids, faults) end
  return faults
end

return settle
