--- cli/witness.lua - a look at this machine's processes from outside of every sandbox.
--
-- The engine's word that a sandbox is gone is one thing; that no process of it is left in /proc is another.
local core = require "demilune.core"

local witness = {}

local CMDLINE_BYTES = 4096

local function cmdline_of(pid)
  local handle = io.open("/proc/" .. pid .. "/cmdline", "rb")
  if not handle then return "" end
  local text = handle:read(CMDLINE_BYTES) or ""
  handle:close()
  return text
end

--- How many processes have an argument that is exactly `word`. Those that this user may not see do not count.
---@param word string
---@return integer
function witness.count(word)
  local count = 0
  for _, name in ipairs(core.fs.list "/proc" or {}) do
    if name:find "^%d+$" and ("\0" .. cmdline_of(name) .. "\0"):find("\0" .. word .. "\0", 1, true) then count = count + 1 end
  end
  return count
end

return witness
