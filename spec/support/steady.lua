--- Whether a process keeps its size while something is done many times.

local lfs = require "lfs"

local steady = {}

steady.GROWTH_MAX_KB = 1536

local function resident_kb(pid)
  local file = assert(io.open(("/proc/%d/status"):format(pid)))
  local kb = tonumber(file:read("a"):match("VmRSS:%s*(%d+) kB"))
  file:close()
  return kb
end

local function descriptors(pid)
  local count = 0
  for _ in lfs.dir(("/proc/%d/fd"):format(pid)) do count = count + 1 end
  return count
end

--- Resident kilobytes and open descriptors of a process.
---@param pid integer
---@return { kb: integer, fds: integer }
function steady.measure(pid)
  return { kb = resident_kb(pid), fds = descriptors(pid) }
end

--- Runs `step(i)` until it is warm and then `times` times more, and compares the process before and after.
---@param what string  for the note
---@param pid integer
---@param warm integer
---@param times integer
---@param step fun(i: integer)
function steady.check(what, pid, warm, times, step)
  for i = 1, warm do step(i) end
  local before = steady.measure(pid)
  for i = 1, times do step(i) end
  local after = steady.measure(pid)
  print(("note: %d %s: %d -> %d KB, %d -> %d descriptors"):format(times, what, before.kb, after.kb, before.fds, after.fds))
  assert(after.kb - before.kb <= steady.GROWTH_MAX_KB, ("grew by %d KB"):format(after.kb - before.kb))
  assert(before.fds == after.fds, ("%d descriptors, then %d"):format(before.fds, after.fds))
end

return steady
