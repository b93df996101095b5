---@meta _

--- sys.lua - core.sys: what a command needs of the process it runs in (src/script/bind_sys.c).
error "lua/demilune/meta/sys.lua is for editors and cannot be required"

---@class demilune.core.sys
---@field version string  of demilune
local sys = {}

--- A descriptor that a task reads.
---@class demilune.core.sys.Reader
local Reader = {}

--- A listening socket that a task accepts from.
---@class demilune.core.sys.Acceptor
local Acceptor = {}

--- A variable of the environment.
---@param name string
---@return string?
function sys.env(name) end

--- The process id.
---@return integer
function sys.pid() end

--- The effective user id.
---@return integer
function sys.uid() end

--- The login name of the effective user, or "uid-N".
---@return string
function sys.user() end

--- The home folder that the user database has for the effective user.
---@return string?
function sys.home() end

--- Whether a descriptor is a terminal.
---@param fd integer
---@return boolean
function sys.isatty(fd) end

--- The absolute path of the running program (the interpreter's, under a plain Lua).
---@return string?
function sys.executable() end

--- The folder of the HTTP back ends and of the agent program.
---@return string
function sys.library_dir() end

--- Reads arguments with getopt_long(3): long options only, unambiguous beginnings too; -h is --help; "--" ends
--- options. Found options are in a table by name, with their value or true; the rest is a list. A sentence for the
--- person who typed it stands in place of `rest` when something is wrong.
---@param args string[]   fewer than 4096
---@param specs string[]  names of at most 47 bytes, at most 30; one that ends in ":" takes a value
---@return table<string, string|true>? options
---@return string[]|string rest  or the sentence
function sys.options(args, specs) end

--- Makes a pipe. Both descriptors are CLOEXEC and block; they are the caller's to close.
---@return integer? read_fd
---@return integer|demilune.Error write_fd  or the error
function sys.pipe() end

--- Makes two unix stream sockets, connected to each other. CLOEXEC, blocking, the caller's to close.
---@return integer? fd
---@return integer|demilune.Error other_fd  or the error
function sys.socketpair() end

--- Closes a descriptor. Not one that a reader, a server or a channel has taken.
---@param fd integer
function sys.close(fd) end

--- Moves standard input or output to a private number: the old number becomes /dev/null (0) or a copy of stderr (1),
--- so that nothing else speaks where the protocol does.
---@param fd 0|1
---@return integer? fd
---@return demilune.Error? err
function sys.take(fd) end

--- Writes all bytes to a descriptor; blocks.
---@param fd integer
---@param bytes string
---@return true?
---@return demilune.Error? err
function sys.write(fd, bytes) end

--- Listens on a unix stream socket of mode 0600. What is at the path is removed first, so hold a lock.
---@param path string  at most 107 bytes, or too_large
---@return integer? fd
---@return demilune.Error? err
function sys.listen_unix(path) end

--- Makes an acceptor of a listening unix socket and takes it. Errors: internal; then it is still the caller's.
---@param fd integer  of sys.listen_unix
---@return demilune.core.sys.Acceptor?
---@return demilune.Error? err
function sys.acceptor(fd) end

--- Connects to a unix stream socket; never waits. The descriptor is CLOEXEC, blocks and is the caller's to close.
--- Errors: file_permission (who listens is neither this user nor root, or the path may not be used), connection_failed
--- (nobody listens, or the queue is full), file_not_found, too_large (over 107 bytes).
---@param path string
---@return integer? fd
---@return demilune.Error? err
function sys.connect_unix(path) end

--- Makes a reader of a descriptor that can be polled (a pipe, a socket, a terminal) and takes it. Errors: internal;
--- then the descriptor is still the caller's.
---@param fd integer
---@return demilune.core.sys.Reader?
---@return demilune.Error? err
function sys.reader(fd) end

--- Runs a function as a task each time a signal comes, as long as the state lives. For the program alone.
---@param name "TERM"|"INT"|"HUP"
---@param fn async fun()
function sys.on_signal(name, fn) end

--- Sends a signal; "NONE" only asks whether the process is there.
---@param pid integer  over 1
---@param name? "TERM"|"KILL"|"HUP"|"NONE"  TERM without it
---@return true?
---@return demilune.Error? err
function sys.kill(pid, name) end

--- Gives memory that was freed back to the system; for after large work, since it takes milliseconds. Collect first.
function sys.trim() end

--- Waits for bytes, at most 65536; nil alone is the end. Errors: provider_timeout, and those of read(2). One task at
--- a time; raises on a closed reader.
---@async
---@param timeout_ms? number
---@return string? bytes
---@return demilune.Error? err
function Reader:read(timeout_ms) end

--- Closes the descriptor. Twice is fine; collecting the reader does it too. Not while a task reads.
function Reader:close() end

--- Waits for a connection. The descriptor is CLOEXEC, blocks and is the caller's to close; uid and pid are who connected,
--- by the kernel's word. While descriptors are used up it goes on waiting. Errors: provider_timeout, and those of
--- accept(2). One task at a time; raises on a closed acceptor.
---@async
---@param timeout_ms? number
---@return integer? fd
---@return integer|demilune.Error uid  or the error
---@return integer? pid
function Acceptor:accept(timeout_ms) end

--- Closes the socket; its file stays. Twice is fine; raises while a task accepts.
function Acceptor:close() end

return sys
