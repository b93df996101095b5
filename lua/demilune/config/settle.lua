--- settle.lua - what depends on more than one key: ids, the default provider, lifetimes, templates.
--
-- Works on the checked copy, and looks at what the operator wrote only to tell a value that was
-- asked for from a default. `template.explicit` keeps that difference: memory and cpu as defaults
-- are best effort on a machine without limits, an explicit demand for them is not.
local check = require "demilune.config.check"
local keys = require "demilune.config.keys"
local nearest = require "demilune.nearest"
local secrets = require "demilune.config.secrets"
local url = require "demilune.config.url"
local words = require "demilune.config.words"

local settle = {}

--- Headers that mean something to the connection or the body, so that no key can be in them.
local NO_KEY_HEADERS = {
  host = true, connection = true, ["content-length"] = true, ["content-type"] = true,
  ["transfer-encoding"] = true, te = true, trailer = true, upgrade = true, expect = true,
  ["user-agent"] = true, accept = true, ["accept-encoding"] = true, cookie = true,
}

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

--- Notes a fault of a key of a provider.
local function note(faults, path, key, text)
  faults[#faults + 1] = { path = { path[1], path[2], key }, text = words.path(path) .. "." .. key .. " " .. text }
end

local function names_of(map)
  local names = {}
  for name in pairs(map) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- The name may be a key that was put in its place, so only right names are shown.
local function settle_credential(provider, config, path, faults)
  if config.credentials[provider.credential] then return end
  local names = names_of(config.credentials)
  local near = nearest.of(provider.credential, names)
  local way_out = near and "did you mean " .. words.choices { near } .. "?"
    or #names > 0 and "write " .. words.choices(names)
    or 'write credentials = { NAME = { source = "env:NAME" } } in the outermost table'
  note(faults, path, "credential", "is not the name of an entry of credentials; " .. way_out)
end

--- What the service's preset makes of the entry, as its driver will see it.
local function settle_preset(provider, path, faults)
  local resolved, fault = require("demilune.e2b.presets").resolve(provider)
  if not resolved then return note(faults, path, fault.field or "preset", fault.text) end
  for _, key in ipairs { "api_url", "sandbox_url" } do
    local text = resolved[key]
    local wrong = text and url.fault(text, { has_places = key == "sandbox_url" })
    if wrong then return note(faults, path, key, wrong) end
    -- A proxy would see all that plain http carries.
    if text and provider.proxy and url.is_plain(text) then
      return note(faults, path, "proxy", "cannot be used with plain http to this machine; leave it out")
    end
  end
end

local BUILT_IN = { e2b = true, veryfront = true }

local function settle_remote(provider, config, path, faults)
  if provider.credential then settle_credential(provider, config, path, faults) end
  if not BUILT_IN[provider.type] then
    provider.is_own = true
    return
  end
  provider.templates = provider.templates or {}
  if provider.domain and provider.domain:find("..", 1, true) then
    return note(faults, path, "domain", "has two dots in a row; leave one out")
  end
  if provider.key_header and NO_KEY_HEADERS[provider.key_header:lower()] then
    note(faults, path, "key_header", "is a header that has another meaning; write the one that carries the key")
  end
  if provider.type == "e2b" then return settle_preset(provider, path, faults) end
  local wrong = provider.mcp_path and (provider.mcp_path:find("//", 1, true) and "has two slashes in a row; leave one out"
    or url.fault("https://host" .. provider.mcp_path, {}))
  if wrong then note(faults, path, "mcp_path", wrong) end
  if provider.proxy and url.is_plain(provider.api_url) then
    note(faults, path, "proxy", "cannot be used with plain http to this machine; leave it out")
  end
end

--- Paths from the root: the process that reads a source may stand elsewhere than the one that read the file.
local function settle_sources(config, folder, faults)
  -- Whoever reads a variable wipes it, so that it can be read once.
  local reader_of = {}
  for _, name in ipairs(names_of(config.credentials)) do
    local entry = config.credentials[name]
    local source, fault = secrets.resolve(entry.source, folder)
    entry.source = source or entry.source
    local variable = source and source:match "^env:"
    if variable and reader_of[source] and not fault then
      fault = "is the source of " .. reader_of[source] .. " too; name that one in the provider, and leave this out"
    elseif variable then
      reader_of[source] = name
    end
    if entry.header and NO_KEY_HEADERS[entry.header:lower()] then
      local path = { "credentials", name, "header" }
      faults[#faults + 1] = {
        path = path, text = words.path(path) .. " is a header that has another meaning; write the one that carries the key",
      }
    end
    if fault then
      local path = { "credentials", name, "source" }
      faults[#faults + 1] = { path = path, text = words.path(path) .. " " .. fault }
    end
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

--- A lifetime that the service is known not to take would make each creation fail.
local function settle_bounds(provider, given, path, faults)
  local preset = provider.type == "e2b" and require("demilune.e2b.presets").by_name[provider.preset]
  local bounds = preset and preset.lifetime
  if not bounds or provider.lifetime >= bounds.min then return end
  local key = written(given, "lifetime") == nil and "max_lifetime" or "lifetime"
  note(faults, path, key, ("is less than %d, the least that preset %s takes; raise it"):format(bounds.min, provider.preset))
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
---@param folder string  what its relative paths are relative to, from the root
---@return demilune.config.Fault[] faults
function settle.run(config, given, folder)
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
    if provider.type == "local" then
      settle_templates(provider, written(given, "providers", i))
    else
      settle_remote(provider, config, path, faults)
    end
    settle_lifetime(provider, written(given, "providers", i), path, faults)
    settle_bounds(provider, written(given, "providers", i), path, faults)
  end
  settle_sources(config, folder, faults)
  if #faults == 0 then settle_default(config, ids, faults) end
  return faults
end

return settle
