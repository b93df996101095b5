--- filesystem.lua - filesystem.Filesystem of envd: ListDir, Stat, MakeDir, Remove.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local input = require "demilune.engine.input"
local path = require "demilune.engine.path"

local filesystem = {}

local DEPTH_MAX = 64
local LIMIT_MAX = 10000

local TYPES = {
  file = "FILE_TYPE_FILE", directory = "FILE_TYPE_DIRECTORY", symlink = "FILE_TYPE_SYMLINK",
}
--- First letters as Go's FileMode writes them, which is what envd shows.
local LETTERS = { directory = "d", symlink = "L", file = "-" }
local TRIPLES = { [0] = "---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx" }

local function permissions(entry)
  local mode = entry.mode
  local triples = TRIPLES[mode >> 6 & 7] .. TRIPLES[mode >> 3 & 7] .. TRIPLES[mode & 7]
  return (LETTERS[entry.type] or "?") .. triples
end

--- An entry of the agent as envd's EntryInfo. A pipe, socket or device has no type, as proto3
--- leaves zero values out.
local function show(entry)
  return {
    name = entry.name, path = entry.path, type = TYPES[entry.type], size = tostring(entry.size),
    mode = entry.mode,
    permissions = permissions(entry), owner = entry.owner, group = entry.group,
    modifiedTime = core.task.iso(entry.mtime_ms), symlinkTarget = entry.target,
  }
end

--- ListDir. `limit` and `total` are ours.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function filesystem.list_dir(sandbox, message)
  local dir = path.need(message, "path")
  local depth = input.number(message, "depth", 0, DEPTH_MAX, true) or 1
  local limit = input.number(message, "limit", 1, LIMIT_MAX, true) or LIMIT_MAX
  local entries, total = sandbox.channel:list(dir, math.max(depth, 1), limit)
  if not entries then faults.raise_agent(total) end
  local shown = core.json.array {}
  for i, entry in ipairs(entries) do shown[i] = show(entry) end
  return { entries = shown, total = total }
end

local function stat(sandbox, absolute)
  local entry, err = sandbox.channel:stat(absolute)
  if not entry then faults.raise_agent(err) end
  return { entry = show(entry) }
end

--- Stat. Does not follow a final symlink.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function filesystem.stat(sandbox, message)
  return stat(sandbox, path.need(message, "path"))
end

--- MakeDir, parents too.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function filesystem.make_dir(sandbox, message)
  local dir = path.need(message, "path")
  local ok, err = sandbox.channel:mkdir(dir)
  if not ok then faults.raise_agent(err) end
  return stat(sandbox, dir)
end

--- Remove, with everything below; what is not there is fine, as with envd.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
function filesystem.remove(sandbox, message)
  local ok, err = sandbox.channel:remove(path.need(message, "path"))
  if not ok and err.code ~= "not_found" then faults.raise_agent(err) end
  return {}
end

return filesystem
