--- text_file.lua - pages of lines out of a stream of bytes.
local core = require "demilune.core"
local errors = require "demilune.errors"
local mask = require "demilune.mask"

local text_file = {}

local text = core.text

--- Of a cut line so much more is looked at: a secret that the cut would halve is masked whole. What is shown must not
--- depend on whether it begins as a secret does, since whoever writes files could find one out that way, byte by byte.
local AROUND_BYTES = 16384

--- An iterator over lines, each with its line end. Of a longer line `most` bytes are kept, and it counts as cut.
local function lines_of(reader, most)
  local buffer, at = "", 1
  return function()
    local parts, kept, is_cut, seen = {}, 0, false, false
    while true do
      if at > #buffer then
        buffer, at = reader:read() or "", 1
        if buffer == "" then
          if not seen then return nil end
          return table.concat(parts), is_cut
        end
      end
      seen = true
      local newline = buffer:find("\n", at, true)
      local stop = newline or #buffer
      local last = math.min(stop, at + most - kept - 1)
      if last >= at then parts[#parts + 1] = buffer:sub(at, last) end
      kept = kept + last - at + 1
      is_cut = is_cut or last < stop
      at = stop + 1
      if newline then return table.concat(parts), is_cut end
    end
  end
end

--- A cut line comes with one byte too many, which tells whether the cut is at a character's border.
local function decode(bytes, encoding, is_cut)
  if bytes:find("\0", 1, true) then errors.raise("not_text", { field = "path" }) end
  if encoding == "latin-1" then return text.latin1(is_cut and bytes:sub(1, -2) or bytes) end
  if is_cut then bytes = text.head(bytes, #bytes - 1) end
  if not text.is_utf8(bytes) then errors.raise("not_text", { field = "path" }) end
  return bytes
end

--- One page: content, start_line, end_line, next_line (nil at the end), truncated (a line was cut). Raises `not_text`.
---@param reader table  read(self) -> chunk or nil
---@param args {start_line: integer, max_lines: integer, max_bytes: integer, encoding: string}
---@param masks? demilune.Masks  of the call; secrets alone without it
---@return table
function text_file.page(reader, args, masks)
  masks = masks or mask.SECRETS
  local next_line = lines_of(reader, args.max_bytes + 1 + (masks.is_live() and AROUND_BYTES or 0))
  for _ = 2, args.start_line do
    if not next_line() then break end
  end
  local kept, bytes, truncated, has_more = {}, 0, false, false
  while true do
    local line, is_cut = next_line()
    if not line then break end
    if #kept == args.max_lines or (#kept > 0 and bytes + #line > args.max_bytes) then
      has_more = true
      break
    end
    truncated = is_cut or #line > args.max_bytes
    if truncated then line = masks.whole(line):sub(1, args.max_bytes + 1) end
    kept[#kept + 1] = line
    bytes = bytes + #line
  end
  local end_line = args.start_line + #kept - 1
  return {
    content = decode(table.concat(kept), args.encoding, truncated), start_line = args.start_line, end_line = end_line,
    next_line = has_more and end_line + 1 or nil, truncated = truncated,
  }
end

return text_file
