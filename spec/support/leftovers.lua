--- What a spec, or a program it ran, left behind: descriptors and children of this process, living processes, cgroups.
--
-- Processes are named by pid and start time, so that a reused pid is never taken for an old process.

local lfs = require "lfs"

---@class spec.leftovers
local leftovers = {}

---@class spec.Process
---@field pid integer
---@field start string  field 22 of /proc/PID/stat
---@field name string
---@field parent integer

local function read_file(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

--- One living process; zombies count as gone unless they are asked for.
---@param pid integer
---@param with_zombies? boolean
---@return spec.Process?
function leftovers.process(pid, with_zombies)
  local stat = read_file(("/proc/%d/stat"):format(pid))
  if not stat or stat == "" then return nil end
  local name, rest = stat:match("^%d+ %((.*)%) (.*)$")
  local fields = {}
  for field in rest:gmatch("%S+") do fields[#fields + 1] = field end
  if fields[1] == "X" or (fields[1] == "Z" and not with_zombies) then return nil end
  return { pid = pid, name = name, parent = math.tointeger(fields[2]), start = fields[20], state = fields[1] }
end

local function all_processes(with_zombies)
  local processes = {}
  for entry in lfs.dir("/proc") do
    local pid = math.tointeger(tonumber(entry))
    local process = pid and leftovers.process(pid, with_zombies)
    if process then processes[pid] = process end
  end
  return processes
end

--- The process and all that descend from it, as they are now.
---@param root integer
---@return spec.Process[]
function leftovers.tree(root)
  local processes = all_processes()
  local tree, is_in = {}, { [root] = true }
  local grew = true
  while grew do
    grew = false
    for pid, process in pairs(processes) do
      if not is_in[pid] and is_in[process.parent] then
        is_in[pid], grew = true, true
      end
    end
  end
  for pid in pairs(is_in) do tree[#tree + 1] = processes[pid] end
  return tree
end

--- Those of `processes` that still live.
---@param processes spec.Process[]
---@return spec.Process[]
function leftovers.alive(processes)
  local living = {}
  for _, process in ipairs(processes) do
    local now = leftovers.process(process.pid)
    if now and now.start == process.start then living[#living + 1] = now end
  end
  return living
end

--- Living processes, this one aside, whose command line or environment holds `text`, e.g. a state directory.
---@param text string
---@return spec.Process[]
function leftovers.mentioning(text)
  local found = {}
  local self = tonumber(lfs.symlinkattributes("/proc/self", "target"))
  for pid, process in pairs(all_processes()) do
    local folder = "/proc/" .. pid
    local words = (read_file(folder .. "/cmdline") or "") .. (read_file(folder .. "/environ") or "")
    if pid ~= self and words:find(text, 1, true) then found[#found + 1] = process end
  end
  return found
end

--- Names of this process's open descriptors, by number.
---@return table<integer, string>
function leftovers.fds()
  local fds = {}
  for entry in lfs.dir("/proc/self/fd") do
    local fd = math.tointeger(tonumber(entry))
    -- The descriptor of this very walk has no target any more when it is asked.
    local target = fd and lfs.symlinkattributes("/proc/self/fd/" .. fd, "target")
    if target and not target:match("^/proc/%d+/fd$") then fds[fd] = target end
  end
  return fds
end

--- Children of this process, zombies included.
---@return table<integer, string>
function leftovers.children()
  local children = {}
  local self = tonumber(lfs.symlinkattributes("/proc/self", "target"))
  for pid, process in pairs(all_processes(true)) do
    if process.parent == self then children[pid] = process.name .. " (" .. process.state .. ")" end
  end
  return children
end

--- Cgroups whose name starts with `prefix`, in all hierarchies, to three levels below a root.
---@param prefix string
---@return string[]
function leftovers.cgroups(prefix)
  local found = {}
  local function walk(path, depth)
    local ok, iterate, state = pcall(lfs.dir, path)
    if not ok then return end
    for entry in iterate, state do
      local child = path .. "/" .. entry
      if entry ~= "." and entry ~= ".." and lfs.symlinkattributes(child, "mode") == "directory" then
        if entry:sub(1, #prefix) == prefix then found[#found + 1] = child end
        if depth > 0 then walk(child, depth - 1) end
      end
    end
  end
  walk("/sys/fs/cgroup", 3)
  table.sort(found)
  return found
end

---@return { fds: table<integer, string>, children: table<integer, string> }
function leftovers.snapshot()
  return { fds = leftovers.fds(), children = leftovers.children() }
end

--- What is there now and was not in the snapshot, one sentence each. Collects garbage first.
---@param before { fds: table<integer, string>, children: table<integer, string> }
---@return string[]
function leftovers.since(before)
  collectgarbage()
  collectgarbage()
  local left = {}
  for fd, target in pairs(leftovers.fds()) do
    if not before.fds[fd] then left[#left + 1] = ("descriptor %d is open: %s"):format(fd, target) end
  end
  for pid, name in pairs(leftovers.children()) do
    if not before.children[pid] then left[#left + 1] = ("child %d is there: %s"):format(pid, name) end
  end
  table.sort(left)
  return left
end

return leftovers
