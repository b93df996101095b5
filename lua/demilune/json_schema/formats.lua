--- json_schema/formats.lua - the formats that the program itself checks; every other `format` annotates.
local formats = {}

--- Whether a text is a UUID in its usual form, of whatever version (RFC 9562, section 4).
---@param value string
---@return boolean
function formats.uuid(value)
  local first, last = value:match "^(%x+)%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-(%x+)$"
  return first ~= nil and #first == 8 and #last == 12
end

return formats
