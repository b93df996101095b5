--- list_files: what is in a directory.
local json = require("demilune.core").json
local shape = require "demilune.tools.shape"

return {
  name = "list_files",
  title = "List a directory",
  order = 6,
  effect = "read",
  description = "List a directory of the sandbox by name, with type and size. Without path: the working directory. Use"
    .. " run_command with find or grep to search, read_file to read.",
  input = function(env)
    return shape.input {
      path = shape.path(), sandbox_id = shape.sandbox_id(), limit = shape.integer(1, 2000, env.output.list_files),
    }
  end,
  output = shape.output(shape.acted {
    "path string",
    { "files", shape.output { "name string", "path string", "type string", "size integer|null" } },
    "total integer", "truncated boolean",
  }),
  handler = function(call, args)
    local sandbox = call:use(args.sandbox_id, {})
    local path = sandbox:absolute(args.path or ".")
    local entries, total = sandbox:list_dir(path, args.limit)
    local files = json.array {}
    for i, entry in ipairs(entries) do
      files[i] = { name = entry.name, path = entry.path, type = entry.type, size = entry.size or json.null }
    end
    return {
      sandbox_id = sandbox.public_id, path = path, files = files, total = total, truncated = total > #files,
    }
  end,
}
