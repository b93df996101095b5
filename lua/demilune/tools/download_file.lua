--- download_file: bytes of a file.
local core = require "demilune.core"
local shape = require "demilune.tools.shape"

return {
  name = "download_file",
  title = "Download bytes",
  order = 15,
  effect = "read",
  description = "Read bytes of a file as base64, from offset on; go on from next_offset for more. For text use read_file.",
  input = function(env)
    return shape.input({
      path = shape.path(),
      offset = { type = "integer", minimum = 0, default = 0 },
      length = shape.integer(1, 4194304, env.output.download_file),
      sandbox_id = shape.sandbox_id(),
    }, { "path" })
  end,
  output = shape.output(shape.acted {
    "path string", "content_base64 string", "size integer", "offset integer", "bytes_read integer",
    "next_offset integer|null", "sha256 string",
  }),
  -- The text block leaves the bytes out: they would be there twice.
  text_without = { content_base64 = true },
  handler = function(call, args)
    local sandbox = call:use(args.sandbox_id, {})
    local bytes, size = sandbox:read(args.path, args.offset, args.length)
    local stop = args.offset + #bytes
    return {
      sandbox_id = sandbox.public_id, path = sandbox:absolute(args.path), content_base64 = core.crypto.base64(bytes),
      size = size, offset = args.offset, bytes_read = #bytes, next_offset = stop < size and stop or core.json.null,
      sha256 = core.crypto.sha256(bytes),
    }
  end,
}
