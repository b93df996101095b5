--- url.lua - which URLs an operator's file may name: https, or plain http to this machine.
--
-- A narrow grammar on purpose (RFC 3986 allows far more): what two parsers could read differently
-- would let a key go where nobody meant it to. Texts never repeat the URL, since people put keys
-- into them.

local url = {}

local PORT_MAX = 65535
local LABEL_BYTES_MAX = 63
local HOST_BYTES_MAX = 253

--- The hosts that plain http may go to: nothing between here and there can read it.
local LOOPBACK = { ["127.0.0.1"] = true, ["[::1]"] = true, localhost = true }
local SCHEMES = { http = true, https = true }
local PROXY_SCHEMES = { http = true, https = true, socks5 = true, socks5h = true }

local function is_ipv4(host)
  local count = 0
  for part in host:gmatch "[^.]+" do
    count = count + 1
    if not part:find "^%d%d?%d?$" or tonumber(part) > 255 or part:find "^0%d" then return false end
  end
  return count == 4 and not host:find("..", 1, true)
end

--- Names of RFC 1123; a last label that is a number must belong to a whole IPv4 address.
local function is_host(host)
  if #host > HOST_BYTES_MAX or host == "" then return false end
  if host:find "^%[" then return host:find "^%[[%x.]*:[%x:.]*%]$" ~= nil end
  local last
  for label in (host .. "."):gmatch "([^.]*)%." do
    if #label > LABEL_BYTES_MAX or not (label .. "-"):find "^%w[%w-]*%-$" or label:find "%-$" then
      return false
    end
    last = label
  end
  if last:find "^%d+$" or last:find "^0[xX]" then return is_ipv4(host) end
  return true
end

local function is_port(port)
  if port == "" then return true end
  local number = port:match "^:([1-9]%d?%d?%d?%d?)$"
  return number ~= nil and tonumber(number) <= PORT_MAX
end

--- What is wrong with what stands between :// and the path.
local function authority_fault(authority)
  local host, port = authority:match "^(%[[^%]]*%])(.*)$"
  if not host then host, port = authority:match "^([^:]*)(.*)$" end
  if not is_host(host) then return "has no plain host; write one" end
  if not is_port(port) then return "has no good port; write one from 1 to 65535, or none" end
  return nil, host:lower()
end

local function path_fault(path, is_bare)
  if is_bare then return path:find "^/?$" == nil and "has a path; leave it out" or nil end
  if not path:find "^[%w_.~/:,=+-]*$" then
    return "has signs in its path that cannot stand there; leave them out"
  end
  for part in path:gmatch "[^/]+" do
    if part == "." or part == ".." then return "has . or .. in its path; write the path without" end
  end
end

--- The parts of a text that looks like a URL, or nil and what it has that none of ours may.
local function parts_of(text)
  if text:find "[^\33-\126]" then return nil, "has spaces or other signs that no URL has; leave them out" end
  local scheme, authority, path = text:match "^([%l%d]+)://([^/?#]*)(.*)$"
  if not scheme then return nil, "is no URL; begin it with https://" end
  if authority:find("@", 1, true) then return nil, "has a user name or password in it; leave that out" end
  if path:find("?", 1, true) then return nil, "has a query; leave it out" end
  if path:find("#", 1, true) then return nil, "has a fragment; leave it out" end
  return { scheme = scheme, authority = authority, path = path }
end

--- What is wrong with a URL, as "has …; do …"; nil for one that may be used.
---@param text string
---@param shape {has_places?: boolean, is_proxy?: boolean, is_origin?: boolean}
---@return string?
function url.fault(text, shape)
  -- A place may stand for a port, a part of a name or a part of the path.
  if shape.has_places then text = text:gsub(":{port}", ":1"):gsub("{%l[%l_]*}", "x") end
  local parts, fault = parts_of(text)
  if not parts then return fault end
  local schemes = shape.is_proxy and PROXY_SCHEMES or SCHEMES
  if not schemes[parts.scheme] then
    local right = shape.is_proxy and "http, https, socks5 or socks5h" or "https"
    return "has a scheme that is not served; write " .. right
  end
  local wrong, host = authority_fault(parts.authority)
  if wrong then return wrong end
  if parts.scheme == "http" and not shape.is_proxy and not LOOPBACK[host] then
    return "is plain http to another machine, where others can read the key; write https"
  end
  return path_fault(parts.path, shape.is_proxy or shape.is_origin)
end

--- Whether a URL goes over plain http.
---@param text string
---@return boolean
function url.is_plain(text)
  return text:find "^http://" ~= nil
end

--- A URL without slashes at its end, so that a path can be put behind it.
---@param text string
---@return string
function url.trimmed(text)
  return (text:gsub("/+$", ""))
end

return url
