---@meta _

--- agent.lua - core.agent: the channel to the agent in a local sandbox (src/script/bind_agent*.c, src/base/frame.h).
--
-- The agent is not trusted: a frame that breaks the protocol shuts the channel, and with it ends everything on it.
-- Requests that are not answered within 60 s fail with code "timeout". A cancel while a request waits drops the
-- request; a cancel within `next`, `read` or `commit` drops only the wait, one within `write` also what was not sent
-- yet.
error "lua/demilune/meta/agent.lua is for editors and cannot be required"

---@class demilune.core.agent
local agent = {}

--- What went wrong in the sandbox or on the way. "exhausted": no process, descriptor, stream or memory is left.
--- "closed": the channel or the stream has ended. "unsupported": no regular file. "cross_device": the
--- other path is on another file system. "failed": anything else that the kernel said.
---@alias demilune.core.agent.Code
---| "not_found"
---| "permission"
---| "is_directory"
---| "not_a_directory"
---| "no_space"
---| "exists"
---| "invalid"
---| "unsupported"
---| "conflict"
---| "too_large"
---| "closed"
---| "timeout"
---| "exhausted"
---| "failed"
---| "cross_device"

---@class demilune.core.AgentError
---@field category "agent"
---@field code demilune.core.agent.Code
---@field message string         one sentence of ours
---@field retryable false
---@field size? integer          of a conflict in `open_write`: the size that the file has
---@field field? "cwd"|"cmd"     of `start`: which of them is at fault

--- The channel. Collecting it shuts it, and so does a <close> variable.
---@class demilune.core.agent.Channel
local Channel = {}

--- A command in the sandbox, as one stream of it. Collecting it, or a <close> variable, is `detach`.
---@class demilune.core.agent.Proc
---@field pid integer  in the sandbox
local Proc = {}

--- A file that is read. Collecting it, or a <close> variable, drops it.
---@class demilune.core.agent.Reader
---@field size integer  bytes, of the whole file when it was opened
---@field mode integer  permission bits
local Reader = {}

--- A file that is written. Collecting it, or a <close> variable, before `commit` leaves the old file.
---@class demilune.core.agent.Writer
local Writer = {}

--- A folder that is watched. Collecting it, or a <close> variable, closes it.
---@class demilune.core.agent.Watcher
local Watcher = {}

--- As the sandbox says it. `name` is a path from the watched folder on, or "." for the folder itself. A "rename" tells
--- that the name is gone; where what it named is seen again, a "create" follows.
---@class demilune.core.agent.Change
---@field type "create"|"write"|"remove"|"rename"|"chmod"
---@field name string

---@class demilune.core.agent.Spool
---@field stdout_live? integer      [0, 1048576] bytes from the start that come as events; 0 without it
---@field stdout_tail? integer      [0, 1048576] bytes from the end that come in the output event; 0 without it
---@field stdout_spool_at? integer  [live, live + tail]; more output than this is kept in a file; live without it
---@field stderr_live? integer
---@field stderr_tail? integer
---@field stderr_spool_at? integer

---@class demilune.core.agent.Command
---@field cmd string           a path, or a name that is looked up in PATH
---@field args? string[]       at most 65536, without `cmd`
---@field envs? string[]       "K=V"; PATH, HOME, USER, LOGNAME and LANG have defaults
---@field cwd? string
---@field timeout_ms? integer  the process group is killed then; 0 or nil: never
---@field stdin? boolean       a pipe, for `write`; else /dev/null
---@field progress? boolean    line events
---@field tag? string          a name for `connect`, at most 256 bytes
---@field spool? demilune.core.agent.Spool  all output comes as events without it

---@class demilune.core.agent.Output
---@field total integer  bytes that the command wrote
---@field tail string    what was kept of its end
---@field path? string   the file in the sandbox that holds all of it, where there is one

--- What `next` gives. "stdout" and "stderr" have `data`. "line" has `text`, the newest whole line of at most 200
--- bytes, only with `progress`, at most 5 a second. "output" has both outputs, once, only with `spool`, before
--- "exit". "exit" has `code` or `signal`, and `timed_out`; it is the last.
---@class demilune.core.agent.Event
---@field type "stdout"|"stderr"|"line"|"output"|"exit"
---@field data? string         bytes
---@field text? string
---@field stdout? demilune.core.agent.Output
---@field stderr? demilune.core.agent.Output
---@field code? integer
---@field signal? integer
---@field timed_out? boolean

---@class demilune.core.agent.Process
---@field pid integer
---@field cmd string
---@field args string[]
---@field cwd? string
---@field tag? string

--- As the sandbox says it: nothing here is to be trusted.
---@class demilune.core.agent.Entry
---@field name string
---@field path string
---@field type "file"|"directory"|"symlink"|"other"
---@field size integer      bytes
---@field mode integer      permission bits
---@field mtime_ms integer  since 1970
---@field owner string
---@field group string
---@field target? string    of a symlink

---@class demilune.core.agent.Written
---@field size integer  bytes, of the whole file

--- Makes a channel of one end of a stream socketpair. Takes the descriptor, on an error too, but not when it raises
--- because there is none. Errors: a demilune.Error, internal.
---@param fd integer
---@return demilune.core.agent.Channel?
---@return demilune.Error? err
function agent.attach(fd) end

--- Waits until the agent has said hello. Codes: timeout, closed.
---@async
---@param timeout_ms number
---@return true?
---@return demilune.core.AgentError? err
function Channel:ready(timeout_ms) end

--- Waits until the channel has ended, for whichever reason.
---@async
---@param timeout_ms? number
---@return true?
---@return "timeout"? why
function Channel:closed(timeout_ms) end

--- Shuts the channel; whatever waits on it gets code "closed". Twice is fine.
function Channel:close() end

--- Starts a command, which leads a process group of its own. Codes: not_found, permission, invalid and others of
--- exec(2) with `field`; too_large (all strings together over 2 MiB); exhausted. Raises for a NUL in a string and
--- numbers out of range.
---@async
---@param command demilune.core.agent.Command
---@return demilune.core.agent.Proc?
---@return demilune.core.AgentError? err
function Channel:start(command) end

--- Follows a command that `start` started: its output from now on, or the exit of one that ended in the last minute.
--- Codes: not_found, exhausted (16 follow it already, or its stdin is full).
---@async
---@param pid_or_tag integer|string
---@return demilune.core.agent.Proc?
---@return demilune.core.AgentError? err
function Channel:connect(pid_or_tag) end

--- Sends a signal to the process group of a command that `start` started. Codes: not_found, permission.
---@async
---@param pid integer
---@param signo integer  [1, 64]
---@return true?
---@return demilune.core.AgentError? err
function Channel:signal(pid, signo) end

--- The commands that run, at most 1024.
---@async
---@return demilune.core.agent.Process[]?
---@return demilune.core.AgentError? err
function Channel:processes() end

--- What a path is; a final symlink is not followed.
---@async
---@param path string  at most 4096 bytes
---@return demilune.core.agent.Entry?
---@return demilune.core.AgentError? err
function Channel:stat(path) end

--- Lists what is below a directory, each directory's entries in byte order; symlinks below it are not followed.
--- `total` counts all entries of the directories that were read, more than the list holds when the limit cut it. Code
--- too_large: the entries take over 16 MiB.
---@async
---@param path string
---@param depth? integer  [1, 64] levels; 1 without it
---@param limit? integer  [1, 10000] entries; 10000 without it
---@return demilune.core.agent.Entry[]? entries
---@return integer|demilune.core.AgentError total  or the error
function Channel:list(path, depth, limit) end

--- Makes a directory and the missing ones above it. Code exists: something is at the path.
---@async
---@param path string
---@return true?
---@return demilune.core.AgentError? err
function Channel:mkdir(path) end

--- Removes a file, or a directory with everything below it; never through a symlink.
---@async
---@param path string
---@return true?
---@return demilune.core.AgentError? err
function Channel:remove(path) end

--- Renames; the missing directories above `to` are made. Codes: exists (a directory is at `to`; what else is there is
--- replaced), cross_device, not_found, permission and others of rename(2).
---@async
---@param from string
---@param to string
---@return true?
---@return demilune.core.AgentError? err
function Channel:move(from, to) end

--- Watches a folder, and with `recursive` all folders below it that the user may read, those too that are made later
--- (what they hold by then counts as made, some of it twice). Codes: not_found, not_a_directory, permission; exhausted:
--- 32 watchers are there already, the folders are more than 4096 or 64 levels, or the machine has no watches left.
---@async
---@param path string
---@param options? {recursive: boolean?}
---@return demilune.core.agent.Watcher?
---@return demilune.core.AgentError? err
function Channel:watch(path, options) end

--- Opens a regular file to be read. Codes: not_found, permission, is_directory, unsupported and others.
---@async
---@param path string
---@param offset? integer  bytes, not negative; 0 without it
---@param length? integer  bytes, not negative; to the end without it
---@return demilune.core.agent.Reader?
---@return demilune.core.AgentError? err
function Channel:open_read(path, offset, length) end

--- Opens a file to be written: replaced at `commit` in one step where that can be done (its mode stays, a final
--- symlink is followed, directories above it are made), else in place. With `append_at`, bytes go to the end of a
--- file of exactly that size; code conflict with `size` when it has another.
---@async
---@param path string
---@param options? {append_at: integer?}  a negative number counts as none
---@return demilune.core.agent.Writer?
---@return demilune.core.AgentError? err
function Channel:open_write(path, options) end

--- Waits for the next event. A command whose events nobody takes is stopped by its full pipe. After the exit event,
--- when the channel has ended and after `detach`: code closed. One task at a time.
---@async
---@param timeout_ms? number
---@return demilune.core.agent.Event?
---@return "timeout"|demilune.core.AgentError|nil why
function Proc:next(timeout_ms) end

--- Writes to stdin; waits while the command does not take what was written before. Code closed: the command or the
--- channel has ended, or stdin was closed. One task at a time.
---@async
---@param bytes string
---@return true?
---@return demilune.core.AgentError? err
function Proc:write(bytes) end

--- Closes stdin, once what was written is taken. Code closed: the command or the channel has ended.
---@return true?
---@return demilune.core.AgentError? err
function Proc:close_stdin() end

--- Forgets the command, which runs on; `connect` finds it again. Twice is fine.
function Proc:detach() end

--- Waits for what happens: all that came together, in order. nil alone is the end: the folder was removed or renamed.
--- Code exhausted: something was lost, since events came faster than they were taken or folders were too many; the
--- watcher has ended. Code closed: so has the channel, or the watcher was closed. One task at a time.
---@async
---@param timeout_ms? number
---@return demilune.core.agent.Change[]?
---@return "timeout"|demilune.core.AgentError|nil why
function Watcher:next(timeout_ms) end

--- Stops watching. Twice is fine.
function Watcher:close() end

--- Waits for bytes, at most 65536; nil alone is the end. Codes: timeout, closed, failed.
---@async
---@return string? bytes
---@return demilune.core.AgentError? err
function Reader:read() end

--- Stops reading; later reads get code closed. Twice is fine.
function Reader:close() end

--- Writes; waits while the agent does not take what was written before. Codes: no_space and others of write(2),
--- timeout, closed. One task at a time.
---@async
---@param bytes string
---@return true?
---@return demilune.core.AgentError? err
function Writer:write(bytes) end

--- Makes the new contents those of the file, and waits until they are.
---@async
---@return demilune.core.agent.Written?
---@return demilune.core.AgentError? err
function Writer:commit() end

--- Gives up and leaves the old file. Twice is fine; does nothing after `commit`.
function Writer:abort() end

return agent
