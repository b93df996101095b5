--- e2b/regions.lua - the places of one provider: its own, and where a service has regions, the others that creations name.
--
-- A sandbox of another region is known only there, so its id says which: `ID@REGION`. The functions are methods of the
-- driver.
local errors = require "demilune.errors"
local info = require "demilune.e2b.info"
local places = require "demilune.e2b.place"
local presets = require "demilune.e2b.presets"

local regions = {}

--- Places that are kept, and the bytes of a region's name.
local PLACES_MAX, NAME_BYTES_MAX = 64, 64

--- Whether a provider can reach a region beside its own. One that names its URLs or its domain has no other.
local function has(self, region)
  return self.supports.region == true and not self.config.api_url and not self.config.domain
    and #region <= NAME_BYTES_MAX and region:find "^%l[%l%d-]*$" ~= nil
end

--- Gives a driver its own place.
---@param self demilune.E2b
---@param resolved demilune.Preset.Resolved
function regions.open(self, resolved)
  self.home = places.new(resolved, self.config.credential)
  self.regions, self.region_count = {}, 0
end

--- The place of a region; nil is the provider's own. Raises `unsupported` where the service has no such.
---@param self demilune.E2b
---@param region? string
---@return demilune.e2b.Place?  nil of a driver with a fixed address
function regions.place_of(self, region)
  if not region or (self.home and region == self.home.region) then return self.home end
  if not has(self, region) then errors.raise("unsupported", { field = "region" }) end
  local known = self.regions[region]
  if known then return known end
  if self.region_count == PLACES_MAX then self.regions, self.region_count = {}, 0 end
  known = places.new(assert(presets.resolve(self.config, region)), self.config.credential)
  self.regions[region], self.region_count = known, self.region_count + 1
  return known
end

--- Whether a string may be the id of a sandbox here.
---@param self demilune.E2b
---@param id string
---@return boolean
function regions.is_id(self, id)
  local bare, region = id:match "^([^@]*)@(.*)$"
  if not bare then return info.is_id(id) end
  return info.is_id(bare) and has(self, region) and region ~= self.home.region
end

--- The id as the service knows it, and the place of its region.
---@param self demilune.E2b
---@param id string
---@return string bare
---@return demilune.e2b.Place? place
function regions.locate(self, id)
  local bare, region = id:match "^([^@]*)@(.*)$"
  return bare or id, regions.place_of(self, region)
end

--- The id of a sandbox at a place, as is_id has it.
---@param self demilune.E2b
---@param place? demilune.e2b.Place
---@param bare string
---@return string
function regions.id_at(self, place, bare)
  if not place or place == self.home then return bare end
  return bare .. "@" .. place.region
end

return regions
