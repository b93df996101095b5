--- A secret to plant, and the search for it in everything that comes out.
--
-- Searched in all the forms that a leak takes: plain, hex, URL-escaped, and base64 in its three
-- alignments, in both alphabets. A search that cannot open what it searches raises.

local lfs = require "lfs"

---@class spec.canary
local canary = {}

local BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local function base64(bytes)
  local out = {}
  for i = 1, #bytes - 2, 3 do
    local a, b, c = bytes:byte(i, i + 2)
    local n = a << 16 | b << 8 | c
    for shift = 18, 0, -6 do
      local at = (n >> shift & 63) + 1
      out[#out + 1] = BASE64:sub(at, at)
    end
  end
  return table.concat(out)
end

--- The part of base64(prefix .. secret .. anything) that depends on the secret alone.
local function base64_at(secret, offset)
  local padded = ("\0"):rep(offset) .. secret
  local whole = base64(padded:sub(1, #padded - #padded % 3))
  -- `offset` foreign bytes reach into the first `offset` and a bit characters.
  return whole:sub(offset == 0 and 1 or offset + 2)
end

local function escape(secret, form)
  return (secret:gsub("[^%w%-._~]", function(c) return form:format(c:byte()) end))
end

--- A fresh secret: 32 letters and digits, with a sign in it that URLs escape.
---@return string
function canary.new()
  local file = assert(io.open("/dev/urandom", "rb"))
  local bytes = file:read(15)
  file:close()
  return "cn/" .. bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
end

--- The forms to look for, by name.
---@param secret string  at least 8 bytes
---@return table<string, string>
function canary.forms(secret)
  assert(#secret >= 8, "too short to search for")
  local hex = secret:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
  local forms = {
    plain = secret,
    hex = hex,
    ["hex in capitals"] = hex:upper(),
    ["URL-escaped"] = escape(secret, "%%%02X"),
    ["URL-escaped in small letters"] = escape(secret, "%%%02x"),
    ["JSON with escaped slashes"] = secret:gsub("/", "\\/"),
  }
  for offset = 0, 2 do
    local text = base64_at(secret, offset)
    forms["base64 at " .. offset] = text
    forms["base64url at " .. offset] = text:gsub("+", "-"):gsub("/", "_")
  end
  return forms
end

--- The name of a form in which the secret stands in `text`; nil when it does not.
---@param text string
---@param secret string
---@return string? form
function canary.find(text, secret)
  for name, form in pairs(canary.forms(secret)) do
    if text:find(form, 1, true) then return name end
  end
  return nil
end

--- Searches a file, or a folder and all below it; symbolic links are searched as their targets' names only.
--- Raises when something cannot be opened.
---@param path string
---@param secret string
---@return string? where  "path: form", the first one found
function canary.find_in(path, secret)
  local mode = assert(lfs.symlinkattributes(path, "mode"))
  if mode == "directory" then
    for entry in lfs.dir(path) do
      if entry ~= "." and entry ~= ".." then
        local where = canary.find(entry, secret) and (path .. "/" .. entry .. ": its name")
          or canary.find_in(path .. "/" .. entry, secret)
        if where then return where end
      end
    end
  elseif mode == "file" then
    local file = assert(io.open(path, "rb"))
    local form = canary.find(file:read("a"), secret)
    file:close()
    if form then return path .. ": " .. form end
  end
  return nil
end

return canary
