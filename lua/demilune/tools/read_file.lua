--- read_file: lines of a text file.
local errors = require "demilune.errors"
local mask = require "demilune.mask"
local shape = require "demilune.tools.shape"
local text_file = require "demilune.text_file"

return {
  name = "read_file",
  title = "Read a text file",
  order = 4,
  effect = "read",
  description = "Read lines of a text file. Go on from next_line for more. For bytes that are not text use download_file;"
    .. " for a listing, list_files. A relative path is taken from the working directory.",
  input = function(env)
    return shape.input({
      path = shape.path(),
      sandbox_id = shape.sandbox_id(),
      start_line = { type = "integer", minimum = 1, default = 1 },
      max_lines = shape.integer(1, 20000, 2000),
      max_bytes = shape.integer(1, 1048576, env.output.read_file),
      encoding = { type = "string", enum = { "utf-8", "latin-1" }, default = "utf-8" },
    }, { "path" })
  end,
  output = shape.output(shape.acted {
    "content string", "start_line integer", "end_line integer", "next_line integer|null", "size integer",
    "truncated boolean",
  }),
  handler = function(call, args)
    local sandbox = call:use(args.sandbox_id, {})
    local reader = sandbox:open_read(args.path)
    local ok, page = pcall(text_file.page, reader, args, mask.of(call.redact))
    reader:close()
    if not ok then
      if errors.is(page) and page.category == "not_text" then page.suggestion = "Use download_file for its bytes." end
      error(page, 0)
    end
    page.sandbox_id = sandbox.public_id
    page.size = reader.size
    return page
  end,
}
