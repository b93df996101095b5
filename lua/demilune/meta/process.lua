---@meta _

--- process.lua - core.process: children of ours on the host, never of a sandbox (src/script/bind_process.c).
error "lua/demilune/meta/process.lua is for editors and cannot be required"

---@class demilune.core.process
local process = {}

--- A child. One that is collected while it runs is killed and reaped.
---@class demilune.core.process.Child
local Child = {}

---@class demilune.core.process.Options
---@field argv string[]                fewer than 4096; the first is the absolute path of the program
---@field env? table<string, string>   the whole environment; inherited without it
--- The child's descriptors and ours that they become copies of, at most 32. Ours stay open here. The child's 0, 1 and
--- 2 are /dev/null where they are not named; all others are closed.
---@field fds? table<integer, integer>
---@field group? boolean               whether it leads a process group of its own
---@field session? boolean             whether it leads a session of its own

---@class demilune.core.process.End
---@field code? integer    the exit code
---@field signal? integer  the signal that ended it, in place of a code

--- Starts a program. Errors: file_not_found, file_permission, internal.
---@param options demilune.core.process.Options
---@return demilune.core.process.Child?
---@return demilune.Error? err
function process.start(options) end

--- Waits for the child's end; at once when it has ended. One task at a time. A timeout leaves the child alone.
---@async
---@param timeout_ms? number
---@return demilune.core.process.End?
---@return "timeout"? why
function Child:wait(timeout_ms) end

--- Sends a signal to the child alone; nothing happens when it has ended.
---@param signal? integer  its number; 9 (KILL) without it
function Child:kill(signal) end

--- The process id, also after the end.
---@return integer
function Child:pid() end

return process
