--- cli/reap.lua - `demilune reap`: ends sandboxes for a server that has ended. Servers start it by themselves.
local core = require "demilune.core"
local reap = require "demilune.reap"
local state = require "demilune.state"

local function open_log()
  pcall(function() core.log.open(state.path("log", true) .. "/reap.log") end)
end

return {
  name = "reap",
  summary = "End what a server could not end in time (internal).",
  usage = "reap --detach",
  help = [[
A server starts this when its sandboxes at a service are not gone by the time it must exit. It reads
what to end from a pipe at descriptor 3, takes at most 30 s, and says in log/reap.log what it did.]],
  options = { "detach" },
  run = function()
    core.log.set_level "info"
    open_log()
    core.vault.open {}
    local job = reap.receive()
    if not job then
      io.stderr:write "demilune: reap takes its work from a server, by a pipe; to end a sandbox use demilune kill\n"
      return 2
    end
    local asked, done = reap.work(job)
    core.log[done == asked and "info" or "warn"](("reap: %d of %d ended"):format(done, asked))
    return done == asked and 0 or 1
  end,
}
