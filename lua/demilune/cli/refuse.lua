--- cli/refuse.lua - `demilune refuse`: a person refuses a call that the policy asks about.
return {
  name = "refuse",
  summary = "Refuse a call that waits for approval; without an ID, list what waits.",
  usage = "refuse [ID]",
  help = [[
Shows the call and asks. The agent is told, when it calls again, that a person refused. Needs a
terminal.]],
  options = {},
  takes_arguments = true,
  run = function(...) return require("demilune.cli.deciding").runner(false)(...) end,
}
