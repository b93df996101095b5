--- scratch.lua - where demilune keeps files of its own in a sandbox: below one folder, or beside it where that is spoilt.
--
-- Code in the sandbox may do to that folder what it likes; what it did must not stop later calls, and the caller, who
-- named no path, is told of none.
local core = require "demilune.core"
local errors = require "demilune.errors"

local scratch = {}

local ROOT = "/tmp/.demilune"
local NAME_BYTES = 16

--- Failures that are the folder's own, and not, say, a full disk or a sandbox that has ended.
local IS_OF_PATH = {
  file_not_found = true, is_directory = true, not_a_directory = true, file_permission = true, unsupported = true,
  invalid_argument = true, conflict = true,
}

--- Runs `fn(...)`. What it says of a path that no caller named is raised without a field, as `message`.
---@param message string
---@param fn function
---@return any ...
function scratch.guard(message, fn, ...)
  local results = table.pack(pcall(fn, ...))
  if results[1] then return table.unpack(results, 2, results.n) end
  local err = results[2]
  if errors.is(err) and IS_OF_PATH[err.category] and not err.is_command then
    errors.raise(err.category, { message = message })
  end
  error(err, 0)
end

--- Writes a file into a new folder of ours. Returns the folder's path.
---@param sandbox demilune.Sandbox
---@param kind string   of folder: "code" or "tasks"
---@param file string   its name
---@param bytes string
---@return string dir
function scratch.write(sandbox, kind, file, bytes)
  local name = core.crypto.id(NAME_BYTES)
  local dir = ("%s/%s/%s"):format(ROOT, kind, name)
  local ok, err = pcall(sandbox.write, sandbox, dir .. "/" .. file, bytes)
  if ok then return dir end
  if not (errors.is(err) and IS_OF_PATH[err.category]) then error(err, 0) end
  dir = ("%s-%s-%s"):format(ROOT, kind, name)
  scratch.guard("demilune cannot keep its own files in the sandbox's /tmp.", sandbox.write, sandbox, dir .. "/" .. file, bytes)
  return dir
end

return scratch
