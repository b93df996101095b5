--- e2b/creation.lua - new sandboxes. The functions are methods of the driver.
local control = require "demilune.e2b.control"
local core = require "demilune.core"
local errors = require "demilune.errors"
local info = require "demilune.e2b.info"
local regions = require "demilune.e2b.regions"

local task = core.task
local creation = {}

local STAMP_CHARACTERS = 24

--- The metadata that every creation carries: whose it is, and a stamp that finds it again.
local function metadata_of(opts)
  return {
    demilune_principal = opts.principal, demilune_scope = opts.scope.id,
    -- Behind an @ is where to look for it.
    demilune_stamp = opts.stamp and opts.stamp:match "^[^@]*" or core.crypto.id(STAMP_CHARACTERS),
  }
end

--- Sends a creation. `extra` goes into the body as it is; `finish` makes info of the answer. Where that fails, what was
--- created is killed before the error is raised.
---@param self demilune.E2b
---@param opts table
---@param extra table
---@param finish fun(answer: table): table
---@return table info
function creation.post(self, opts, extra, finish)
  local body = {
    templateID = opts.template, timeout = opts.timeout_s, envVars = opts.envs, metadata = metadata_of(opts),
  }
  for key, value in pairs(extra) do body[key] = value end
  local place = opts.place
  local answer = control.send(self, "POST", "/sandboxes", body, { [201] = true }, {
    is_create = true, place = place, tokens = place and place.tokens,
  })
  local ok, made = pcall(finish, answer)
  if ok then return made end
  if type(answer.sandboxID) == "string" and info.is_id(answer.sandboxID) then
    pcall(self.kill, self, self:id_at(place, answer.sandboxID))
  end
  error(made, 0)
end

local function check(self, opts)
  for _, name in ipairs { "cpu", "memory" } do
    if opts[name] and not self.supports[name] then errors.raise("unsupported", { field = name }) end
  end
  local bounds = self.lifetime
  if bounds and (opts.timeout_s < bounds.min or opts.timeout_s > bounds.max) then
    local expected = ("integer from %d to %d"):format(bounds.min, bounds.max)
    errors.raise("unsupported", {
      field = "timeout", expected = expected, message = ("timeout must be an %s at this provider."):format(expected),
    })
  end
end

--- Creates a sandbox.
---@param self demilune.E2b
---@param opts table
---@return table info
function creation.create(self, opts)
  check(self, opts)
  local place = regions.place_of(self, opts.region)
  local sent = {
    template = opts.template or self:template_names()[1], timeout_s = opts.timeout_s, envs = opts.envs,
    principal = opts.principal, scope = opts.scope, stamp = opts.stamp, place = place,
  }
  local extra = { secure = true, cpuCount = opts.cpu, memoryMB = opts.memory }
  return self:post_creation(sent, extra, function(answer)
    local made = self:info_of(answer, place)
    self:remember(made.id, answer)
    made.workdir, made.network, made.envs = self.workdir, self:network(), opts.envs
    made.ends_in_ms = made.ends_in_ms or opts.timeout_s * 1000
    made.end_at = made.end_at or task.iso(task.epoch_ms() + opts.timeout_s * 1000)
    return made
  end)
end

return creation
