-- timeout: 600
--- A thousand reloads under load: no call is lost, none sees half a policy, and memory is back where it was.

local demilune = require "spec.support.demilune"
local leftovers = require "spec.support.leftovers"
local steady = require "spec.support.steady"

local RELOADS, WARM = 1000, 100
--- Calls that are under way while a policy is exchanged.
local IN_FLIGHT = 4

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

--- A policy of two files and a rule, each of which knows its version.
local function put(home, version)
  write(home .. "/other.lua", ("return { version = %d }"):format(version))
  write(home .. "/policy.lua", ([[
local other = require "other"
local policy = { default = "allow", version = "v%d" }
policy.rules = { { name = "mark", match = "get_sandbox", force = { sandbox_id = "v%d" } } }
function policy.before(call) return deny(("%d %%d %%s"):format(other.version, call.args.sandbox_id)) end
return policy]]):format(version, version, version))
end

describe("a server", function()
  it("takes a thousand policies while calls go on", function()
    local home = demilune.home()
    put(home, 0)
    local server = demilune.start { home = home, config = 'return { policy = "policy.lua" }' }
    server:initialize "2025-11-25"
    local newest, seen = 0, 0
    local function look(content, err)
      assert.is_nil(content)
      local a, b, c = assert(err.reason, err.category):match "^(%d+) (%d+) v(%d+)$"
      assert.are.same({ a, a }, { b, c })
      assert.is_true(tonumber(a) >= seen and tonumber(a) <= newest)
      seen = tonumber(a)
    end
    local function step(i)
      newest = newest + 1
      put(home, newest)
      local ids = {}
      for k = 1, IN_FLIGHT do ids[k] = server:send("tools/call", { name = "get_sandbox", arguments = {} }) end
      server:signal(1)
      for k = 1, IN_FLIGHT do
        local answer = server:receive(ids[k], 10000)
        look(nil, answer.result._meta["dev.demilune/error"])
      end
      for _ = 1, 500 do
        if seen == newest then break end
        look(server:call "get_sandbox")
      end
      assert.are.equal(newest, seen, "reload " .. i)
      server.notifications, server.stdout = {}, ""
    end
    steady.check("reloads", server.pid, WARM, RELOADS, step)
    local fences = 0
    for _, process in ipairs(leftovers.mentioning(home)) do fences = fences + (process.pid ~= server.pid and 1 or 0) end
    assert.is_true(fences <= 1)
    server:stop()
    demilune.remove_home(home)
  end)
end)
