--- run_code: a program in one of the languages that the sandbox has.
local interpreters = require "demilune.interpreters"
local outcome = require "demilune.outcome"
local shape = require "demilune.tools.shape"

return {
  name = "run_code",
  title = "Run code",
  order = 2,
  creates_default = true,
  effect = "execute",
  task = "optional",
  description = function(env)
    local state = env.has_kernel
      and "Where a sandbox has a code interpreter, variables and imports carry over; else each call is a new process. "
      or "Each call is a new process: variables and imports do not carry over, files do. "
    return "Run a program and return its output and the files it made. " .. state
      .. (env.has_default and "" or shape.starts(env)) .. "`timeout` (seconds) is for this run"
      .. " only. For shell commands use run_command; over a minute, start_background_task."
  end,
  input = function(env)
    return shape.input({
      code = shape.code(),
      language = {
        type = "string", enum = env.languages, default = "python",
        description = "If installed: " .. table.concat(env.languages, ", ") .. ".",
      },
      sandbox_id = shape.sandbox_id(),
      timeout = shape.seconds(30),
    }, { "code" })
  end,
  output = shape.output(shape.acted {
    "result string|null",
    { "output_files", shape.output { "name string", "path string", "size integer", "mime string" } },
    table.unpack(shape.OUTCOME),
  }),
  handler = function(call, args)
    local sandbox, created = call:use(args.sandbox_id, { creates = true, work_s = args.timeout })
    local run, files, note = interpreters.run(call, sandbox, args.language, args.code, args.timeout)
    return outcome.result(call, sandbox, run, created, {
      output_files = files, note = note, result = run.result,
    })
  end,
}
