--- start_background_task: a command that goes on while the agent does other things.
local shape = require "demilune.tools.shape"

return {
  name = "start_background_task",
  title = "Start a background task",
  order = 11,
  creates_default = true,
  effect = "execute",
  description = function(env)
    return "Start a shell command and return at once with a task_id: for servers, builds and anything over a minute. Ask with"
      .. " get_background_task, stop with cancel_background_task. " .. shape.starts(env) .. "Ends after `timeout`"
      .. " seconds, or with its sandbox, which is kept alive that long."
  end,
  input = shape.input({
    command = shape.code(), sandbox_id = shape.sandbox_id(), cwd = shape.path(), timeout = shape.seconds(3600),
  }, { "command" }),
  output = shape.output(shape.acted { "task_id string", "status string", "started_at string" }),
  handler = function(call, args)
    local sandbox, created, lives = call:use(args.sandbox_id, { creates = true, work_s = args.timeout })
    local task = call.app.background:start(call, sandbox, args)
    return {
      sandbox_id = sandbox.public_id, created = created, task_id = task.id, status = "running", started_at = task.started_at,
      note = not lives and "The sandbox may end before the task's timeout, and the task with it." or nil,
    }
  end,
}
