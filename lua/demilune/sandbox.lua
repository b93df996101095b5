--- sandbox.lua - one sandbox as a scope sees it: who owns it, how long it lives, and what can be done in it.
local sandboxes = {}

---@class demilune.Sandbox
---@field provider table
---@field id string            the provider's id
---@field public_id string     the form that callers pass back
---@field is_owned boolean     created by this scope
---@field info table           what creation said; {} for a sandbox that was reached by its id
---@field envs table           variables of its creation, where known
---@field policy_s? integer    seconds that renewal grants (owned)
---@field ends_ms? integer     when it ends, on task.now_ms(); nil where not known
---@field created_ms? integer
---@field longest_s? integer   from its creation, where the policy says so
local Sandbox = {}
Sandbox.__index = Sandbox

--- Makes the object; nothing is sent.
---@param provider table
---@param id string
---@param public_id string
---@return demilune.Sandbox
function sandboxes.new(provider, id, public_id)
  return setmetatable({ provider = provider, id = id, public_id = public_id, is_owned = false, info = {}, envs = {} }, Sandbox)
end

--- The key under which a scope keeps it.
---@return string
function Sandbox:key()
  return self.provider.id .. "\0" .. self.id
end

--- Where relative paths start.
---@return string
function Sandbox:workdir()
  return self.info.workdir or self.provider.workdir
end

--- The path made absolute; `.` is the working directory, `~` is not special.
---@param path string
---@return string
function Sandbox:absolute(path)
  if path:sub(1, 1) == "/" then return path end
  while path:sub(1, 2) == "./" do path = path:sub(3):gsub("^/+", "") end
  if path == "" or path == "." then return self:workdir() end
  return self:workdir() .. "/" .. path
end

--- Runs a command and waits for it: see envd.run.
---@param opts table  command or argv, cwd, timeout_s, on_line, limits
---@return table outcome
function Sandbox:run(opts)
  opts.cwd = self:absolute(opts.cwd or ".")
  return self.provider:run(self, opts)
end

--- Runs code in a kernel that keeps its state; nil where the sandbox has none.
---@param opts {language: string, code: string, timeout_s: integer, on_line?: function}
---@return table? outcome  as of run, and `result`
function Sandbox:run_code(opts)
  return self.provider.run_code and self.provider:run_code(self, opts)
end

--- Starts a process that nobody waits for.
---@param opts table  argv, cwd
---@return integer pid
function Sandbox:start_detached(opts)
  opts.cwd = self:absolute(opts.cwd or ".")
  return self.provider:start_detached(self, opts)
end

--- Opens a file from its start.
---@param path string
---@return table reader  read(self) -> chunk or nil; size; close(self)
function Sandbox:open_read(path)
  return self.provider:open_read(self, self:absolute(path))
end

--- Reads a range of a file.
---@param path string
---@param offset integer
---@param length integer
---@return string bytes
---@return integer size  of the whole file
function Sandbox:read(path, offset, length)
  return self.provider:read(self, self:absolute(path), offset, length)
end

--- Writes a file as a whole, or appends at `append_at`, which must be its size.
---@param path string
---@param bytes string
---@param append_at? integer
---@return integer size  of the file now
function Sandbox:write(path, bytes, append_at)
  return self.provider:write(self, self:absolute(path), bytes, append_at)
end

--- `readlink -m` is coreutils'; busybox's -f wants all but the last part of the path to be there.
local REAL_PATH = [[
PATH=/usr/bin:/bin
readlink -m -- "$1" 2>/dev/null || readlink -f -- "$1" 2>/dev/null || exit 1]]
local REAL_PATH_TIMEOUT_S, REAL_PATH_BYTES = 10, 8192

--- Where a path leads once every link on its way is followed; parts that are not there stay as they are.
---@param path string
---@return string? real  absolute; nil where that cannot be told
function Sandbox:real_path(path)
  local run = self:run {
    argv = { "/bin/sh", "-c", REAL_PATH, "sh", self:absolute(path) }, timeout_s = REAL_PATH_TIMEOUT_S,
    window = { live = REAL_PATH_BYTES, tail = 1 },
  }
  local real = run.exit_code == 0 and not run.stdout.tail and run.stdout.head:match "^(/[^\0]*)\n$"
  return real or nil
end

--- Lists a directory.
---@param path string  absolute
---@param limit integer
---@param depth? integer
---@return table[] entries  {name, path, type, size?}
---@return integer total
function Sandbox:list_dir(path, limit, depth)
  return self.provider:list_dir(self, path, limit, depth or 1)
end

return sandboxes
