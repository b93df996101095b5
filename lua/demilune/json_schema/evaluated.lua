--- json_schema/evaluated.lua - what of one value keywords have evaluated, for unevaluatedItems and
--- unevaluatedProperties.
local evaluated = {}

---@class demilune.json_schema.Seen
---@field names table<string, true>     properties that some keyword looked at
---@field all_names? boolean
---@field places table<integer, true>   entries of an array, from 1
---@field upto integer                  all up to there
---@field all_places? boolean

--- Nothing yet.
---@return demilune.json_schema.Seen
function evaluated.new() return { names = {}, places = {}, upto = 0 } end

--- Adds what a subschema has evaluated, of the same value.
---@param to demilune.json_schema.Seen
---@param from demilune.json_schema.Seen
function evaluated.add(to, from)
  to.all_names, to.all_places = to.all_names or from.all_names, to.all_places or from.all_places
  to.upto = math.max(to.upto, from.upto)
  for name in pairs(from.names) do to.names[name] = true end
  for place in pairs(from.places) do to.places[place] = true end
end

return evaluated
