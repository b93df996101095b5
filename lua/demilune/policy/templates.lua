--- policy/templates.lua - the sizes of sandboxes that a configuration makes when a call says none, for warnings.
local templates = {}

---@class demilune.policy.Template
---@field provider string
---@field name string
---@field memory number  MB
---@field cpu number

--- The templates of local providers, whose sizes are known.
---@param app demilune.App
---@return demilune.policy.Template[]
function templates.of(app)
  local list = {}
  for _, provider in ipairs(app.providers) do
    for name, template in pairs(provider.config.type == "local" and provider.config.templates or {}) do
      list[#list + 1] = { provider = provider.id, name = name, memory = template.memory, cpu = template.cpu }
    end
  end
  table.sort(list, function(a, b) return a.provider .. ":" .. a.name < b.provider .. ":" .. b.name end)
  return list
end

return templates
