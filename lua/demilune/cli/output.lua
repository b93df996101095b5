--- cli/output.lua - what a command says on stdout: flushed at once, and quiet about a reader that has left.
--
-- `demilune tools | head -1` closes our stdout early. That is no failure; a full disk is one. Whatever is written, live
-- secrets are masked in it.
local core = require "demilune.core"
local errors = require "demilune.errors"

local output = {}

--- errno(3) of a pipe that nobody reads any more, on Linux.
local EPIPE = 32

--- Writes text. What is written after the reader has left is dropped.
---@param text string
---@return boolean is_read  false when nobody reads any more
function output.write(text)
  local ok, message, code = io.stdout:write(core.vault.redact(text))
  if ok then ok, message, code = io.stdout:flush() end
  if ok then return true end
  if code == EPIPE then return false end
  errors.raise("internal", { message = "Standard output cannot be written: " .. tostring(message) .. "." })
end

--- Writes one line.
---@param text string
---@return boolean is_read
function output.line(text)
  return output.write(text .. "\n")
end

--- Writes a note for a person to stderr: what is neither the result nor an error.
---@param text string
function output.note(text)
  io.stderr:write("demilune: ", core.vault.redact(text), "\n")
end

return output
