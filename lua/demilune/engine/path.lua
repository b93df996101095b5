--- path.lua - paths of the sandbox as requests name them.
--
-- A relative path is taken from the user's home, as envd does. Nothing is resolved here: ".." and
-- symlinks are the kernel's, inside the sandbox.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local input = require "demilune.engine.input"

local path = {}

path.HOME = "/home/user"
--- PATH_MAX without the NUL.
local MAX_BYTES = 4095

--- The absolute path for one that was checked already.
---@param text string
---@return string
function path.absolute(text)
  if text == "~" then text = path.HOME
  elseif text:sub(1, 2) == "~/" then text = path.HOME .. text:sub(2)
  elseif text:sub(1, 1) ~= "/" then text = path.HOME .. "/" .. text
  end
  text = text:gsub("/+", "/"):gsub("/%./", "/"):gsub("/%./", "/"):gsub("/%.$", "/")
  if #text > 1 then text = text:gsub("/$", "") end
  return text
end

--- The last component.
---@param absolute string
---@return string
function path.name(absolute)
  return absolute:match "([^/]+)$" or "/"
end

--- Reads a path from a request's object or query; nil where it is absent.
---@param object table
---@param name string
---@return string?
function path.read(object, name)
  local text = input.text(object, name, MAX_BYTES)
  if text == nil then return nil end
  if not core.text.is_utf8(text) then faults.bad(name, "It must be UTF-8.") end
  local absolute = path.absolute(text)
  if #absolute > MAX_BYTES then faults.bad(name, ("It may have %d bytes."):format(MAX_BYTES)) end
  return absolute
end

--- Reads a path that must be there.
---@param object table
---@param name string
---@return string
function path.need(object, name)
  return path.read(object, name) or faults.bad(name, "It is missing.")
end

return path
