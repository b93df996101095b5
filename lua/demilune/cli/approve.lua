--- cli/approve.lua - `demilune approve`: a person allows a call that the policy asks about.
return {
  name = "approve",
  summary = "Allow a call that waits for approval; without an ID, list what waits.",
  usage = "approve [ID]",
  help = [[
Shows who wants to call what with which arguments, and asks. The agent then makes the same call
again and it runs, once, if the policy in force still asks the same. Needs a terminal.

An approval is as good as the account it is given from: a program that runs as this user, with this
user's terminal, can approve its own calls. Run the server as another user where that matters.]],
  options = {},
  takes_arguments = true,
  run = function(...) return require("demilune.cli.deciding").runner(true)(...) end,
}
