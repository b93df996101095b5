--- door.lua - what a request over TCP has to show before anything else is looked at.
--
-- Other users and browsers of the machine reach a TCP port, so the key is always asked for. A page
-- of a browser names its origin, and one that made its own name point here ("DNS rebinding") names
-- that in Host; both are refused. Plain HTTP, so the address must be one of loopback.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local tokens = require "demilune.engine.tokens"

local door = {}

local KEY_MIN_BYTES, KEY_MAX_BYTES = 16, 256
local FILE_MAX_BYTES = 4096
--- Permission bits of group and others.
local FOREIGN_BITS = tonumber("077", 8)

--- Reads "127.0.0.1:PORT" or "[::1]:PORT".
---@param text string
---@return string? address  without brackets; nil when it is none
---@return integer|string port  or what is wrong
function door.read_address(text)
  local v6, v6_port = text:match "^%[([%x:]+)%]:(%d+)$"
  local v4, v4_port = text:match "^(%d+%.%d+%.%d+%.%d+):(%d+)$"
  local address, port = v6 or v4, v6_port or v4_port
  if not address or #port > 5 or tonumber(port) > 65535 then
    return nil, "it must be 127.0.0.1:PORT or [::1]:PORT"
  end
  if address ~= "::1" and not (v4 and v4:find "^127%.") then
    return nil, "it must be an address of loopback, since keys and output travel unencrypted"
  end
  return address, math.tointeger(tonumber(port))
end

--- Reads the API key: the first line of a file that its owner alone can read.
---@param path string
---@return string? key
---@return string? why  what is wrong, for a person
function door.read_key(path)
  local stat, err = core.fs.stat(path)
  if not stat then return nil, "it cannot be read: " .. err.message end
  if stat.type ~= "file" then return nil, "it is no regular file" end
  if stat.uid ~= core.sys.uid() then return nil, "it belongs to another user" end
  if stat.mode & FOREIGN_BITS ~= 0 then
    return nil, "others can read or change it; its mode must be 0600"
  end
  local text, why = core.fs.read(path, FILE_MAX_BYTES)
  if not text then return nil, "it cannot be read: " .. why.message end
  local key = text:match "^([^\r\n]*)"
  if #key < KEY_MIN_BYTES or #key > KEY_MAX_BYTES then
    return nil, ("its first line must have %d to %d bytes"):format(KEY_MIN_BYTES, KEY_MAX_BYTES)
  end
  if key:find "[^\x21-\x7e]" then return nil, "its first line must be printable ASCII without blanks" end
  return key
end

---@class demilune.engine.Door
---@field hosts table<string, boolean>
---@field key_print string
local Door = {}
Door.__index = Door

--- A door on an address that is listened on.
---@param address string
---@param key string
---@return demilune.engine.Door
function door.new(address, key)
  local hosts = { ["localhost"] = true, ["127.0.0.1"] = true, ["[::1]"] = true }
  hosts[address:find(":", 1, true) and "[" .. address .. "]" or address] = true
  return setmetatable({ hosts = hosts, key_print = tokens.print_of(key) }, Door)
end

--- The fault of a request that no page, and nobody who was misled about the name, may send.
---@param req table
---@return demilune.engine.Fault?
function Door:refuse(req)
  local headers = req.headers
  if headers.origin then
    return faults.new("forbidden", { message = "Pages of a browser are not served." })
  end
  local host = (headers.host or ""):lower():gsub(":%d*$", "")
  if not self.hosts[host] then
    return faults.new("forbidden", { message = "Host must name this machine's loopback." })
  end
  return nil
end

--- Raises for a request without the engine's key.
---@param req table
function Door:check_key(req)
  local key = req.headers["x-api-key"]
  if not tokens.matches(key, self.key_print) then faults.raise "bad_key" end
end

return door
