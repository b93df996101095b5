---@meta _

--- task.lua - core.task: coroutines that wait for the loop, events, clocks (src/script/task.c, src/script/bind_time.c).
--
-- All tasks of a Lua state run in one thread, one at a time, and give way only where they wait. A cancelled task gets
-- `task.CANCELLED` raised at its present or next wait, once; its clean-up may wait up to 2 s more before it is ended
-- hard. A task that calls coroutine.yield itself is ended with an error in the log.
error "lua/demilune/meta/task.lua is for editors and cannot be required"

---@class demilune.core.task
---@field CANCELLED demilune.Error  what a cancel raises, of category "stopped"; compare by identity
local task = {}

--- A task as others see it.
---@class demilune.core.task.Handle
local Handle = {}

--- A flag that tasks wait for.
---@class demilune.core.task.Event
local Event = {}

--- Makes a task of a function; it starts as soon as control is back at the loop. Its error, unless somebody waits for
--- the task or cancelled it, goes to the log.
---@param fn async fun(...): ...
---@param ... any  arguments of fn
---@return demilune.core.task.Handle
function task.spawn(fn, ...) end

--- Runs a function as a task and turns the loop until it has ended; raises its error. For the main thread of specs
--- and programs: raises inside a task or an event, and when the task waits for something that can never come.
---@param fn async fun(...): ...
---@param ... any  arguments of fn
---@return any ...  results of fn
function task.run(fn, ...) end

--- The handle of the running task; nothing outside tasks and in coroutines of other making.
---@return demilune.core.task.Handle?
function task.current() end

--- Waits. Zero and less give way to everything else that is ready.
---@async
---@param ms number  milliseconds; fractions are dropped, over 366 days count as 366 days
---@return true
---@overload async fun(ms: number): nil, demilune.Error  internal: no memory
function task.sleep(ms) end

--- Milliseconds since boot, time asleep included (CLOCK_BOOTTIME): for lifetimes and deadlines.
---@return integer
function task.now_ms() end

--- Milliseconds since 1970, UTC: for what people and other machines read.
---@return integer
function task.epoch_ms() end

--- A time of `epoch_ms` in the form "2026-11-30T21:00:00.123Z" (RFC 3339).
---@param epoch_ms number  the nearest end before 1970 and after 9999
---@return string
function task.iso(epoch_ms) end

--- Makes an event that is not set.
---@return demilune.core.task.Event
function task.event() end

--- Cancels the task. Once; nothing happens to one that has ended.
function Handle:cancel() end

--- How the task is doing. A cancelled one is "running" until it has ended, then mostly "failed".
---@return "running"|"done"|"failed"
function Handle:status() end

--- Waits for the end of the task; at once when it has ended. Raises in the task itself. A failed task gives false and
--- what it raised; a timeout gives nil and "timeout" and leaves the task alone.
---@async
---@param timeout_ms? number
---@return boolean? is_done
---@return any ...  results, the raised value, or "timeout"
function Handle:wait(timeout_ms) end

--- Sets the event and wakes all that wait for it now. It stays set.
function Event:set() end

--- Makes later waits wait again.
function Event:clear() end

--- Whether the event is set.
---@return boolean
function Event:is_set() end

--- Waits until the event is set; at once when it is.
---@async
---@param timeout_ms? number
---@return true?
---@return "timeout"|demilune.Error|nil why  the error is internal: no memory
function Event:wait(timeout_ms) end

return task
