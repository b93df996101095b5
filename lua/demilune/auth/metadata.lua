--- auth/metadata.lua - what clients read to find the authorization server: OAuth 2.0 Protected Resource Metadata (RFC 9728).
local core = require "demilune.core"

local metadata = {}

--- Where it lies (RFC 9728 §3): the resource's path follows.
metadata.PATH = "/.well-known/oauth-protected-resource"
--- The path of the endpoint that it describes.
metadata.ENDPOINT = "/mcp"

---@class demilune.auth.Place
---@field origin string  "https://mcp.example.com"
---@field path string    "/mcp", or ""

--- Where this server is for its clients: what the audience says, where it is a URL, since a proxy may stand in front; else
--- what the client called it.
---@param audience string
---@param host? string    the request's Host
---@param is_tls boolean  this server itself speaks TLS
---@return demilune.auth.Place?
function metadata.place(audience, host, is_tls)
  local origin, path = audience:match "^(https?://[^/?#]+)([^?#]*)$"
  if origin then return { origin = origin, path = path == "/" and "" or path } end
  if not host or not host:find "^[%w.:%[%]-]+$" then return nil end
  return { origin = (is_tls and "https://" or "http://") .. host, path = metadata.ENDPOINT }
end

--- The URL of the document.
---@param place demilune.auth.Place
---@return string
function metadata.url(place)
  return place.origin .. metadata.PATH .. place.path
end

--- Where clients may look for the document: for the host, for the endpoint, and for the path that the audience has.
---@param audience string
---@return string[]
function metadata.paths(audience)
  local list = { metadata.PATH, metadata.PATH .. metadata.ENDPOINT }
  local place = metadata.place(audience, nil, false)
  if place and place.path ~= "" and place.path ~= metadata.ENDPOINT then list[3] = metadata.PATH .. place.path end
  return list
end

--- The document.
---@param place demilune.auth.Place
---@param settings {issuer: string, scopes: string[]}
---@return string json
function metadata.document(place, settings)
  local array = core.json.array
  return core.json.encode {
    resource = place.origin .. place.path, authorization_servers = array { settings.issuer },
    bearer_methods_supported = array { "header" }, resource_name = "demilune",
    scopes_supported = settings.scopes[1] and array(settings.scopes) or nil,
  }
end

return metadata
