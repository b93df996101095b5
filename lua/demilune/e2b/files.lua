--- e2b/files.lua - files where the service's envd is not our engine's: what the tools promise, by its /files and scripts.
--
-- envd's /files moves whole files. What it lacks (replacing at once, mode and links kept, appending at a known size, saying
-- precisely what is wrong with a path) a POSIX sh script adds, which works on a file that was uploaded beside.
local core = require "demilune.core"
local envd = require "demilune.envd"
local errors = require "demilune.errors"
local multipart = require "demilune.e2b.multipart"
local shell_files = require "demilune.shell_files"

local files = {}

local SCRIPT_TIMEOUT_S = 60
local ANSWER_BYTES = 4096
local UPLOAD_ID_BYTES = 16
--- So long the answer to a read may take to come (or, of a part, to be there) before it is looked why.
files.PATIENCE_MS = 5000
--- envd takes raw uploads from this version on (infra, packages/envd).
local RAW_VERSION = { 0, 5, 7 }
--- Failures of /files that say too little of the path.
local VAGUE = { provider_rejected = true, unavailable = true, file_not_found = true, provider_forbidden = true }

--- Failures after which nobody knows how far a write came; a script that ran removes its upload itself.
local LEAVES = { provider_timeout = true, connection_failed = true, invalid_response = true, stopped = true }

--- Runs one of the scripts; its first answer line, checked.
local function script(plane, ref, text, arguments)
  local argv = { "/bin/sh", "-c", text, "sh" }
  for _, value in ipairs(arguments) do argv[#argv + 1] = tostring(value) end
  local window = { live = ANSWER_BYTES, tail = 1 }
  local run = envd.run(plane, { id = ref.id, envs = {} }, {
    argv = argv, cwd = "/", timeout_s = SCRIPT_TIMEOUT_S, stdout = window, stderr = window,
  })
  return shell_files.read_answer(run.stdout.head)
end

--- Raises what a script finds wrong with a path; a script that cannot say anything is no finding.
local function check(plane, ref, text, arguments)
  local ok, why = pcall(script, plane, ref, text, arguments)
  if not ok and (not errors.is(why) or why.field == "path") then error(why, 0) end
end

--- Reads with `fn`. What fails vaguely, or hangs as a pipe does, is looked at by a script.
local function read(fn, plane, ref, path, ...)
  local arguments = table.pack(...)
  arguments[arguments.n + 1] = files.PATIENCE_MS
  local results = table.pack(pcall(fn, plane, ref, path, table.unpack(arguments, 1, arguments.n + 1)))
  if results[1] then return table.unpack(results, 2, results.n) end
  local err = results[2]
  if not errors.is(err) or not (VAGUE[err.category] or err.category == "provider_timeout") then error(err, 0) end
  check(plane, ref, shell_files.READ, { path, 0, 0 })
  if err.category == "provider_timeout" then return fn(plane, ref, path, ...) end
  error(err, 0)
end

--- See envd.read.
---@param plane demilune.E2b
---@param ref table
---@param path string
---@param offset integer
---@param length integer
function files.read(plane, ref, path, offset, length)
  return read(envd.read, plane, ref, path, offset, length)
end

--- See envd.open_read.
---@param plane demilune.E2b
---@param ref table
---@param path string
function files.open_read(plane, ref, path)
  return read(envd.open_read, plane, ref, path)
end

--- Uploads to a path of ours, in the form that this sandbox's envd takes.
local function upload(plane, ref, path, bytes)
  if plane:is_envd_at_least(ref.id, RAW_VERSION) then return envd.upload(plane, ref, path, bytes, "application/octet-stream") end
  local body, kind = multipart.one(path, bytes)
  return envd.upload(plane, ref, path, body, kind)
end

--- Removes an upload that no script took. Nobody waits for that, so that a call which was cancelled is over at once.
local function drop(plane, ref, beside)
  core.task.spawn(pcall, envd.start_detached, plane, { id = ref.id, envs = {} }, {
    argv = { "/bin/rm", "-f", "--", beside }, cwd = "/",
  })
end

--- See envd.write.
---@param plane demilune.E2b
---@param ref table
---@param path string
---@param bytes string
---@param append_at? integer
---@return integer size
function files.write(plane, ref, path, bytes, append_at)
  local beside = ("/tmp/.demilune-%s"):format(core.crypto.id(UPLOAD_ID_BYTES))
  local ok, size = pcall(function()
    upload(plane, ref, beside, bytes)
    return (script(plane, ref, shell_files.WRITE, { beside, path, "text", append_at or "" })) or errors.raise "invalid_response"
  end)
  if ok then return size end
  if not errors.is(size) or LEAVES[size.category] then drop(plane, ref, beside) end
  error(size, 0)
end

--- See envd.list_dir.
---@param plane demilune.E2b
---@param ref table
---@param path string
---@param limit integer
---@param depth integer
function files.list_dir(plane, ref, path, limit, depth)
  local ok, entries, total = pcall(envd.list_dir, plane, ref, path, limit, depth)
  if ok then return entries, total end
  if errors.is(entries) and VAGUE[entries.category] then check(plane, ref, shell_files.LIST, { path, 1, 0 }) end
  error(entries, 0)
end

return files
