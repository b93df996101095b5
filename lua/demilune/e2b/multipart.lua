--- e2b/multipart.lua - one file as multipart/form-data (RFC 7578), the form that every envd takes.
local core = require "demilune.core"

local multipart = {}

local BOUNDARY_CHARACTERS = 32

--- The body of an upload of one file and its Content-Type. The part must be called `file`; where it goes, the query says.
---@param path string
---@param bytes string
---@return string body
---@return string content_type
function multipart.one(path, bytes)
  local boundary = "demilune-" .. core.crypto.id(BOUNDARY_CHARACTERS)
  -- WHATWG HTML, "multipart/form-data": these three are escaped in a name.
  local name = path:gsub('[\r\n"]', { ["\r"] = "%0D", ["\n"] = "%0A", ['"'] = "%22" })
  local head = table.concat({
    "--" .. boundary, ('Content-Disposition: form-data; name="file"; filename="%s"'):format(name),
    "Content-Type: application/octet-stream", "", "",
  }, "\r\n")
  return head .. bytes .. "\r\n--" .. boundary .. "--\r\n", "multipart/form-data; boundary=" .. boundary
end

return multipart
