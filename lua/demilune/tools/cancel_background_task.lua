--- cancel_background_task: TERM to the task's process group, KILL after two seconds.
local shape = require "demilune.tools.shape"

return {
  name = "cancel_background_task",
  title = "Stop a background task",
  order = 13,
  effect = "destroy",
  description = "Stop a background task and all it started: politely, after two seconds by force. A finished"
    .. " task stays as it ended. The sandbox goes on; to end that too use kill_sandbox.",
  input = shape.input({ task_id = shape.id() }, { "task_id" }),
  output = shape.output { "task_id string", "sandbox_id string", "status string", "success boolean" },
  handler = function(call, args)
    return call.app.background:cancel(call, args.task_id)
  end,
}
