--- get_background_task: how a task stands and what it said.
local errors = require "demilune.errors"
local shape = require "demilune.tools.shape"

--- What means nothing without a task is refused, so that nobody believes it was heeded.
local function refuse_without_task(args)
  for _, name in ipairs { "stdout_offset", "stderr_offset", "wait" } do
    if args[name] and args[name] ~= 0 then
      errors.raise("invalid_argument", {
        field = name, expected = "nothing, without task_id", message = name .. " needs a task_id.",
      })
    end
  end
end

return {
  name = "get_background_task",
  title = "Look at background tasks",
  order = 12,
  effect = "read",
  description = "Status and output of a background task. Without offsets: head and tail of the output; with offsets, the"
    .. " bytes from there on (pass back stdout_next_offset). `wait` seconds returns early when there is news. Without"
    .. " task_id: the list of tasks.",
  input = shape.input {
    task_id = shape.id(),
    stdout_offset = { type = "integer", minimum = 0 },
    stderr_offset = { type = "integer", minimum = 0 },
    wait = shape.integer(0, 30, 0),
  },
  output = shape.output {
    "task_id string|null", "sandbox_id string|null", "status string|null", "exit_code integer|null", "stdout string|null",
    "stderr string|null", "stdout_next_offset integer|null", "stderr_next_offset integer|null",
    "stdout_truncated boolean|null", "stderr_truncated boolean|null", "stdout_path string|null", "stderr_path string|null",
    "started_at string|null", "finished_at string|null",
    { "tasks", { type = "object" }, optional = true },
  },
  handler = function(call, args)
    if args.task_id then return call.app.background:look(call, args) end
    refuse_without_task(args)
    return call.app.background:list(call)
  end,
}
