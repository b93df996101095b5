--- serving.lua - the handlers of the engine's two doors: the unix socket, for its own user, and a TCP
--- port, for whoever has the key.
local envd = require "demilune.engine.envd"
local kernel = require "demilune.engine.kernel"
local peer = require "demilune.engine.peer"
local rest = require "demilune.engine.rest"
local router = require "demilune.engine.router"
local target = require "demilune.engine.target"

local serving = {}

---@class demilune.engine.Parts
---@field sandboxes demilune.engine.Sandboxes
---@field leases demilune.engine.Leases
---@field limits fun(): table?
---@field stop fun()

--- A handler over everything that is served; the port that a request names picks the server.
local function make(parts, door, refuse)
  local plane = { sandboxes = parts.sandboxes, door = door }
  local control = {
    sandboxes = parts.sandboxes, leases = parts.leases, limits = parts.limits, stop = parts.stop,
    door = door,
  }
  local routes = rest.routes(control)
  for _, route in ipairs(envd.routes(plane)) do routes[#routes + 1] = route end
  local main = router.new(routes, {
    refuse = refuse,
    answer_unknown = function(req)
      if envd.answer_unknown(plane, req) then return true end
      if door then door:check_key(req) end
      rest.refuse_family(req.path)
    end,
  })
  local kernels = router.new(kernel.routes(function(req)
    return target.find(plane, req, target.KERNEL_PORT)
  end), { refuse = refuse })
  return function(req)
    if req.headers["e2b-sandbox-port"] == target.KERNEL_PORT then return kernels(req) end
    return main(req)
  end
end

--- The handler of the unix socket.
---@param parts demilune.engine.Parts
---@return fun(req: table)
function serving.here(parts)
  return make(parts, nil, peer.refuse)
end

--- The handler of the TCP port.
---@param parts demilune.engine.Parts
---@param door demilune.engine.Door
---@return fun(req: table)
function serving.public(parts, door)
  return make(parts, door, function(req) return door:refuse(req) end)
end

return serving
