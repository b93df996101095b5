--- write_file: a text file, made or replaced.
local shape = require "demilune.tools.shape"

return {
  name = "write_file",
  title = "Write a text file",
  order = 5,
  creates_default = true,
  effect = "write",
  description = "Write a text file: made with its parent directories, or replaced as a whole. A reader sees the old file or"
    .. " the new one, never half. For bytes that are not text, or to append, use upload_file.",
  input = shape.input({
    path = shape.path(), content = { type = "string" }, sandbox_id = shape.sandbox_id(),
  }, { "path", "content" }),
  output = shape.output(shape.acted { "success boolean", "path string", "bytes_written integer" }),
  handler = function(call, args)
    local sandbox, created = call:use(args.sandbox_id, { creates = true })
    sandbox:write(args.path, args.content)
    return {
      sandbox_id = sandbox.public_id, created = created, success = true, path = sandbox:absolute(args.path),
      bytes_written = #args.content,
    }
  end,
}
