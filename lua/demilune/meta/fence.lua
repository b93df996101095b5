---@meta _

--- fence.lua - core.fence: the operator's policy code, run in a process that can be killed (src/script/bind_fence.c; the
-- process is src/fence).
error "lua/demilune/meta/fence.lua is for editors and cannot be required"

---@class demilune.core.fence
--- A function that stands where the policy's table has one, so that `type` says "function". Calling it raises.
---@field FUNCTION function
local fence = {}

--- One policy and the worker that runs it. The worker is killed and reaped by stop(), when this is collected, and when the
--- state closes. One that died is started again by the next call, from the text and the modules that were loaded; what it
--- kept in variables is lost then.
---@class demilune.core.fence.Fence
local Fence = {}

--- What one call may use, counted anew for each; loading may use twenty times as much.
---@class demilune.core.fence.Limits
---@field instructions? integer  of Lua's virtual machine; 1,000,000, from 1,000 to 1,000,000,000
---@field memory_bytes? integer  beyond what was live before; 8 MiB, from 64 KiB to 256 MiB
---@field cpu_ms? integer        50, from 1 to 10,000
---@field wall_ms? integer       1,000, from 10 to 60,000; the time in the queue does not count

---@class demilune.core.fence.Options
---@field limits? demilune.core.fence.Limits

---@class demilune.core.fence.Fault
---@field kind "syntax"|"error"|"limit"|"value"|"crash"  "value": something that is no data was returned or left in an argument
---@field limit? "instructions"|"memory"|"cpu"|"wall"
---@field file? string  as it was named: "policy.lua", "mod.lua"
---@field line? integer
---@field text string   without its place, addresses and control characters; may repeat what stands in a call

---@class demilune.core.fence.Outcome
---@field value? any                      the first result as data; nil where it was nil or a decision
---@field is_nothing? true                there was no result, or nil
---@field decision? "allow"|"deny"|"ask"  the first result was made by that function
---@field reason? string                  of deny or ask, at most 2 KiB of any bytes
---@field args any[]                      the arguments as they are after the call
---@field instructions integer            rounded up to a hundred
---@field cpu_us integer

---@class demilune.core.fence.Status
---@field pid? integer           of the worker that runs
---@field is_running boolean
---@field restarts integer       workers after the first
---@field memory_bytes integer   of the worker's Lua state, after its last answer

--- Makes a fence. No process starts before there is something to load. Errors: unsupported (the program is not installed),
--- internal.
---@param options? demilune.core.fence.Options
---@return demilune.core.fence.Fence?
---@return demilune.Error? err
function fence.start(options) end

--- Runs the text of a policy and returns the table that it returned, with FUNCTION for functions. Once a fence. Text only,
--- at most 1 MiB. `find` gets the name of a module that the text requires ("a.b") and returns its text, or nil where there is
--- none; it must not wait. At most 64 modules of 1 MiB.
---@async
---@param source string
---@param name string  for messages, and how faults name it; of a longer one the last 59 bytes
---@param find fun(name: string): string?
---@return table? data
---@return demilune.core.fence.Fault? fault
function Fence:load(source, name, find) end

--- Calls a function at the top of the policy's table with at most two arguments of plain data. Raises when an argument is
--- none, and before load has succeeded. Calls run one after the other in the order they came; a cancelled one that already
--- runs goes on to its end or its limit. At most 1,024 wait: one more gets a fault of kind "crash".
---
--- Policy code gets null in tables as nil; what it leaves nil there comes back as null. Strings over 64 KiB reach it as views
--- and come back as they were. Data over 32 MiB, 262,144 values or 136 levels is a fault of kind "value".
---@async
---@param name string
---@param ... any
---@return demilune.core.fence.Outcome? outcome
---@return demilune.core.fence.Fault? fault
function Fence:call(name, ...) end

--- The worker.
---@return demilune.core.fence.Status
function Fence:status() end

--- Kills the worker for good. What still waits gets a fault, and so does every call after it. Twice is fine.
function Fence:stop() end

return fence
