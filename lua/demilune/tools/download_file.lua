--- download_file: bytes of a file.
local core = require "demilune.core"
local mask = require "demilune.mask"
local shape = require "demilune.tools.shape"

--- While there is something to mask, so much is read on both sides too: it is masked whole where a border cuts it in two.
local AROUND_BYTES = 16384

--- Bytes of a file without secrets, how many of the file's they stand for, and the file's size.
local function read_masked(sandbox, args, masks)
  local from = math.max(args.offset - AROUND_BYTES, 0)
  local before = args.offset - from
  local bytes, size = sandbox:read(args.path, from, before + args.length + AROUND_BYTES)
  local last = math.min(#bytes, before + args.length)
  if last <= before then return "", 0, size end
  local shown, ends = masks.part(bytes, before + 1, last)
  return shown, ends - before, size
end

local function read(sandbox, args, masks)
  if masks.is_live() then return read_masked(sandbox, args, masks) end
  local bytes, size = sandbox:read(args.path, args.offset, args.length)
  return bytes, #bytes, size
end

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
    local bytes, bytes_read, size = read(sandbox, args, mask.of(call.redact))
    local stop = args.offset + bytes_read
    return {
      sandbox_id = sandbox.public_id, path = sandbox:absolute(args.path), content_base64 = core.crypto.base64(bytes),
      size = size, offset = args.offset, bytes_read = bytes_read, next_offset = stop < size and stop or core.json.null,
      sha256 = core.crypto.sha256(bytes),
    }
  end,
}
