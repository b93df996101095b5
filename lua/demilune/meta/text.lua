---@meta _

--- text.lua - core.text: what bytes of a sandbox become before anyone reads them (src/script/bind_text.c).
error "lua/demilune/meta/text.lua is for editors and cannot be required"

---@class demilune.core.text
local text = {}

--- Whether the bytes are valid UTF-8 (RFC 3629).
---@param bytes string
---@return boolean
function text.is_utf8(bytes) end

--- The bytes with U+FFFD in place of every maximal invalid run; the same string when there is none.
---@param bytes string
---@return string utf8
function text.mend(bytes) end

--- At most `max` bytes from the start, no character cut in two; invalid UTF-8 is cut anywhere.
---@param bytes string
---@param max integer  bytes, not negative
---@return string
function text.head(bytes, max) end

--- At most `max` bytes from the end, no character cut in two; invalid UTF-8 is cut anywhere.
---@param bytes string
---@param max integer  bytes, not negative
---@return string
function text.tail(bytes, max) end

--- The UTF-8 of bytes that are ISO 8859-1.
---@param bytes string
---@return string utf8
function text.latin1(bytes) end

return text
