--- cli/kill.lua - `demilune kill`: the end of a sandbox, whoever made it.
local core = require "demilune.core"
local output = require "demilune.cli.output"
local session = require "demilune.cli.session"

return {
  name = "kill",
  summary = "End a sandbox and what runs in it.",
  usage = "kill ID… [--json]",
  help = [[
Its files are gone with it. One that is gone already is fine: the exit is 0.

  --json    print the structured result, one line an id]],
  options = { "json" },
  takes_arguments = true,
  run = function(options, rest)
    if #rest == 0 then session.misuse "kill takes the id of a sandbox; demilune ls lists them" end
    return session.run(options, function(self)
      for _, id in ipairs(rest) do
        local result = self:must("kill_sandbox", { sandbox_id = id })
        if options.json then
          output.line(core.json.encode(result))
        else
          output.line(result.sandbox_id .. (result.existed and " ended" or " was gone already"))
        end
      end
      return 0
    end)
  end,
}
