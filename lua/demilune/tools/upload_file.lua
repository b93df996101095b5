--- upload_file: bytes into a file, whole or appended.
local core = require "demilune.core"
local errors = require "demilune.errors"
local shape = require "demilune.tools.shape"

local function decode(args)
  local bytes = args.content_base64 == "" and "" or core.crypto.unbase64(args.content_base64)
  if not bytes then
    errors.raise("invalid_argument", {
      field = "content_base64", expected = "base64 of RFC 4648 section 4, padded, without white space",
      message = "content_base64 must be base64 of RFC 4648 section 4, padded, without white space.",
    })
  end
  local digest = core.crypto.sha256(bytes)
  if args.sha256 and args.sha256:lower() ~= digest then
    errors.raise("invalid_argument", {
      field = "sha256", expected = "SHA-256 of the bytes sent",
      message = "sha256 does not match the bytes that arrived; nothing was written.",
    })
  end
  return bytes, digest
end

return {
  name = "upload_file",
  title = "Upload bytes",
  order = 14,
  creates_default = true,
  effect = "write",
  description = "Write bytes (base64) to a file. At offset 0 the file is made or replaced as a whole; a larger offset"
    .. " appends and must equal the present size, so large files go in slices. For text use write_file.",
  input = shape.input({
    path = shape.path(),
    content_base64 = { type = "string" },
    offset = { type = "integer", minimum = 0, default = 0 },
    sha256 = {
      type = "string", pattern = "^[0-9A-Fa-f]{64}$",
      check = function(value)
        if #value ~= 64 or value:find "%X" then return "SHA-256 in 64 hex digits" end
      end,
    },
    sandbox_id = shape.sandbox_id(),
  }, { "path", "content_base64" }),
  output = shape.output(shape.acted {
    "success boolean", "path string", "bytes_written integer", "size integer", "sha256 string",
  }),
  handler = function(call, args)
    local bytes, digest = decode(args)
    local sandbox, created = call:use(args.sandbox_id, { creates = true })
    local size = sandbox:write(args.path, bytes, args.offset > 0 and args.offset or nil)
    return {
      sandbox_id = sandbox.public_id, created = created, success = true, path = sandbox:absolute(args.path),
      bytes_written = #bytes, size = size, sha256 = digest,
    }
  end,
}
