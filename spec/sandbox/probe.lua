--- Runs sandboxes in a process of their own, as root and as a plain user, for the specs in this folder.
--
--   local probe = require "spec.sandbox.probe"
--   for _, identity in ipairs(probe.identities()) do
--     local answer = probe.run(identity, "inside", { scripts = { { name = "id", script = "id" } } })
--   end
--
-- A process of their own, because a plain user's engine cannot be one of root's; and from copies in a folder that
-- everybody can read, because a checkout may lie in a home that only root can.

local build = require "spec.support.build"
local cjson = require "cjson"
local lfs = require "lfs"
local os_calls = require "spec_os"

local PLAIN_ID = 65533
local TIMEOUT_S = 55

---@class spec.probe
local probe = {}

local stage

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function shell(command) assert(os.execute(command), command) end

--- The folder with the copies; made on first use.
---@return string
function probe.stage()
  if stage then return stage end
  stage = assert(os_calls.mkdtemp("/tmp/dml-box-XXXXXX"))
  shell(("mkdir %s/demilune && cp %s/spec/demilune/core.so %s/demilune/ && cp %s/demilune-agent %s/"):format(
    stage, quote(build.dir), stage, quote(build.dir), stage))
  shell(("cp %s/spec/sandbox/worker.lua %s/ && chmod -R a+rX %s"):format(quote(build.root), stage, stage))
  return stage
end

--- Removes the copies.
function probe.clear()
  if stage then shell("rm -rf " .. stage) end
  stage = nil
end

---@return boolean
function probe.is_root() return (os_calls.ids()) == 0 end

--- Who sandboxes can be started as: as root also as a plain user.
---@return string[]
function probe.identities() return probe.is_root() and { "root", "plain" } or { "plain" } end

--- The command line of a worker, for a shell.
---@param identity string
---@param mode string      one of worker.lua's modes
---@param request table
---@return string
function probe.command(identity, mode, request)
  local folder = probe.stage()
  local path = ("%s/%s-%s.json"):format(folder, identity, mode)
  local file = assert(io.open(path, "w"))
  file:write(cjson.encode(request))
  file:close()
  os_calls.chmod(path, tonumber("644", 8))
  local prefix = ""
  if identity == "plain" and probe.is_root() then
    prefix = ("setpriv --reuid=%d --regid=%d --clear-groups "):format(PLAIN_ID, PLAIN_ID)
  end
  return ("%slua5.4 %s/worker.lua %s %s %s"):format(prefix, folder, folder, mode, path)
end

--- Runs a worker and returns what it answered.
---@param identity string
---@param mode string
---@param request table
---@param wrap? string     a shell command with %s for the worker's command line, quoted
---@return table
function probe.run(identity, mode, request, wrap)
  local command = probe.command(identity, mode, request)
  if wrap then command = wrap:format(quote(command)) end
  local pipe = assert(io.popen(("timeout -k 5 %d %s 2>&1 </dev/null"):format(TIMEOUT_S, command)))
  local text = pipe:read("a")
  pipe:close()
  local ok, answer = pcall(cjson.decode, text:match("%b{}"))
  if not ok then error("the worker said: " .. text) end
  return answer
end

--- Waits until `is_true()` is, or two seconds have passed; returns what it said last.
---@param is_true fun(): boolean
---@return boolean
function probe.eventually(is_true)
  for _ = 1, 200 do
    if is_true() then return true end
    os_calls.sleep_ms(10)
  end
  return is_true()
end

--- Whether a path is there, links themselves included.
---@param path string
---@return boolean
function probe.exists(path) return lfs.symlinkattributes(path) ~= nil end

return probe
