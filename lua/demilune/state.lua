--- state.lua - the folder where this user's engine, tasks, keys and logs live.
--
-- $XDG_STATE_HOME/demilune, else ~/.local/state/demilune; 0700 and ours. Not $XDG_RUNTIME_DIR, which differs between
-- logins and vanishes at logout, so that a second engine would reap the first one's live sandboxes.
local core = require "demilune.core"
local errors = require "demilune.errors"

local state = {}

--- Longest path of a unix socket: unix(7), sun_path has 108 bytes with its NUL.
local SOCKET_PATH_MAX_BYTES = 107
local KEY_BYTES = 32

--- Paths of this machine are for the people at it: clients get a sentence without one.
local function fail(detail)
  errors.raise("internal", {
    message = "demilune's state folder cannot be used; `demilune doctor` says why.",
  }, detail)
end

local function absolute(path)
  return path and path:sub(1, 1) == "/" and path or nil
end

local function base()
  local xdg = absolute(core.sys.env "XDG_STATE_HOME")
  if xdg then return xdg end
  local home = absolute(core.sys.env "HOME") or absolute(core.sys.home())
  if not home then
    fail "There is no home folder for demilune's state; set XDG_STATE_HOME to an absolute path of yours."
  end
  return home .. "/.local/state"
end

--- The words of the table are about sandboxes; this is the host.
local WHY = {
  file_not_found = "cannot be made, since the one above it is missing", not_a_directory = "is in the way: it is no folder",
  disk_full = "cannot be made, since the disk is full",
}

local function make(path)
  local ok, err = core.fs.make_dir(path)
  if ok then return path end
  if err.category == "file_permission" then
    fail("The folder " .. path .. " must belong to you and be writable by nobody else.")
  end
  fail("The folder " .. path .. " " .. (WHY[err.category] or "cannot be made") .. "; set XDG_STATE_HOME to a folder of yours.")
end

local NOBODY = 65534

--- Whether root's files show up as nobody's here: in a user namespace that does not map everyone.
local function is_user_namespace()
  local file = io.open "/proc/self/uid_map"
  local map = file and file:read "a" or ""
  if file then file:close() end
  return not map:find "^%s*0%s+0%s+4294967295%s*$"
end

--- Whoever can rename a folder above the state can put another in its place.
local function check_ancestor(dir, stat)
  local is_trusted = stat.uid == core.sys.uid() or stat.uid == 0 or (stat.uid == NOBODY and is_user_namespace())
  local is_open = stat.mode & 0x12 ~= 0 and stat.mode & 0x200 == 0 -- written by others (022), and not sticky (01000)
  if not is_trusted or is_open then
    fail("The folder " .. dir .. " can be changed by other users; set XDG_STATE_HOME to one that only you can change.")
  end
end

--- Makes missing parents with default modes (~/.local is others' business too), and checks those that are there.
local function make_parents(path)
  for stop in (path .. "/"):gmatch "()/" do
    local dir = stop > 1 and path:sub(1, stop - 1) or "/"
    local stat = core.fs.stat(dir)
    if stat then check_ancestor(dir, stat) else core.fs.make_dir(dir) end
  end
end

--- The state folder, made where missing. Raises `internal` with the way out.
---@return string
function state.dir()
  local parent = base()
  make_parents(parent)
  return make(parent .. "/demilune")
end

--- A path in the state folder; with `is_dir` the folder is made.
---@param name string
---@param is_dir? boolean
---@return string
function state.path(name, is_dir)
  local path = state.dir() .. "/" .. name
  return is_dir and make(path) or path
end

--- A path that a socket can have.
local function socket_path(path, whose)
  if #path > SOCKET_PATH_MAX_BYTES then
    fail(("The path of %s socket has %d bytes and the system takes %d; set XDG_STATE_HOME to a shorter path.")
      :format(whose, #path, SOCKET_PATH_MAX_BYTES))
  end
  return path
end

--- Where the engine listens. Raises when the path is too long for a unix socket.
---@return string
function state.engine_socket()
  return socket_path(state.path "engine.sock", "the engine's")
end

--- Where a server listens to its operator. Raises when the path is too long for a unix socket.
---@param pid integer
---@return string
function state.control_socket(pid)
  return socket_path(("%s/%d.sock"):format(state.path("ctl", true), pid), "the server's control")
end

--- The servers of this user that have such a socket, running or not: { pid =, path = }, by pid.
---@return {pid: integer, path: string}[]
function state.control_sockets()
  local dir, list = state.path("ctl", true), {}
  for _, name in ipairs(core.fs.list(dir) or {}) do
    local pid = name:match "^([1-9]%d?%d?%d?%d?%d?%d?%d?)%.sock$"
    if pid then list[#list + 1] = { pid = math.tointeger(tonumber(pid)), path = dir .. "/" .. name } end
  end
  table.sort(list, function(a, b) return a.pid < b.pid end)
  return list
end

--- The key that seals ids, made on first use. Two servers that start at once agree on one.
---@return string bytes 32
function state.key()
  local path = state.path "key"
  local key = core.fs.read(path, KEY_BYTES)
  if key and #key == KEY_BYTES then return key end
  for _ = 1, 50 do
    local lock = core.fs.lock(path .. ".lock")
    if lock then
      key = core.fs.read(path, KEY_BYTES)
      if not key or #key ~= KEY_BYTES then
        key = core.crypto.random(KEY_BYTES)
        local ok = core.fs.write(path, key)
        if not ok then
          lock:release()
          fail("The key file " .. path .. " cannot be written.")
        end
      end
      lock:release()
      return key
    end
    core.task.sleep(10)
  end
  fail("The key file " .. path .. " stays locked; end the process that holds it.")
end

return state
