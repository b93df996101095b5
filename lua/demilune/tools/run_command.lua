--- run_command: one shell command, waited for.
local outcome = require "demilune.outcome"
local shape = require "demilune.tools.shape"

return {
  name = "run_command",
  title = "Run a command",
  order = 3,
  creates_default = true,
  effect = "execute",
  task = "optional",
  description = function(env)
    return "Run a shell command (bash where there is one) and wait for it. Each call is a new shell: cd and variables do not"
      .. " carry over, files do. " .. shape.starts(env) .. "`timeout` (seconds) stops this command, not the sandbox; for"
      .. " servers and work over a minute use start_background_task. Long output is cut in the middle; stdout_path, unless"
      .. " null, has it all."
  end,
  input = shape.input({
    command = shape.code(), sandbox_id = shape.sandbox_id(), cwd = shape.path(), timeout = shape.seconds(50),
  }, { "command" }),
  output = shape.output(shape.acted(shape.OUTCOME)),
  handler = function(call, args)
    local sandbox, created = call:use(args.sandbox_id, { creates = true, work_s = args.timeout })
    local run = sandbox:run {
      command = args.command, cwd = args.cwd, timeout_s = args.timeout, on_line = call:line_reporter(),
    }
    return outcome.result(call, sandbox, run, created)
  end,
}
