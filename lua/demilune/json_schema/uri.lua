--- json_schema/uri.lua - references made absolute, and the parts behind `#`.
--
-- Nothing is ever fetched: these are names within one schema.
local uri = {}

--- The five parts of RFC 3986, appendix B; absent ones are nil.
local function split(text)
  local rest, fragment = text:match "^([^#]*)#(.*)$"
  rest = rest or text
  local scheme, behind = rest:match "^(%a[%w+.-]*):(.*)$"
  rest = behind or rest
  local authority, path = rest:match "^//([^/?]*)(.*)$"
  path = path or rest
  local before, query = path:match "^([^?]*)%?(.*)$"
  return { scheme = scheme, authority = authority, path = before or path, query = query, fragment = fragment }
end

local function join(parts)
  return (parts.scheme and parts.scheme .. ":" or "") .. (parts.authority and "//" .. parts.authority or "") .. parts.path
    .. (parts.query and "?" .. parts.query or "")
end

--- RFC 3986, section 5.2.4.
local function without_dots(path)
  local out, is_rooted = {}, path:sub(1, 1) == "/"
  local last
  for segment in (is_rooted and path:sub(2) or path):gmatch "[^/]*" do
    last = segment
    if segment == ".." then out[#out] = nil elseif segment ~= "." then out[#out + 1] = segment end
  end
  if last == "." or last == ".." then out[#out + 1] = "" end
  return (is_rooted and "/" or "") .. table.concat(out, "/")
end

local function merged(base, path)
  if base.authority and base.path == "" then return "/" .. path end
  return (base.path:match "^(.*/)" or "") .. path
end

--- A reference as seen from a base: the absolute name without its fragment, and the fragment (RFC 3986, section 5.2.2).
---@param base string
---@param reference string
---@return string name
---@return string fragment  "" without one
function uri.resolve(base, reference)
  local to = split(reference)
  local fragment = to.fragment or ""
  if to.scheme then
    to.path = to.path:find "^/" and without_dots(to.path) or to.path
    return join(to), fragment
  end
  if to.path == "" and not to.authority and not to.query then return (base:gsub("#.*$", "")), fragment end
  local from = split(base)
  to.scheme = from.scheme
  if to.authority then return join(to), fragment end
  to.authority = from.authority
  if to.path == "" then
    to.path = from.path
  else
    to.path = without_dots(to.path:sub(1, 1) == "/" and to.path or merged(from, to.path))
  end
  return join(to), fragment
end

--- The tokens of a JSON pointer in a fragment (RFC 6901, section 6); nil where it is none.
---@param fragment string
---@return string[]?
function uri.pointer(fragment)
  if fragment == "" then return {} end
  if fragment:sub(1, 1) ~= "/" then return nil end
  local tokens = {}
  for part in fragment:gmatch "/([^/]*)" do
    part = part:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
    if part:gsub("~[01]", ""):find("~", 1, true) then return nil end
    tokens[#tokens + 1] = part:gsub("~1", "/"):gsub("~0", "~")
  end
  return tokens
end

return uri
