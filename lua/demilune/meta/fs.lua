---@meta _

--- fs.lua - core.fs: small private files on the host, mostly in the state folder (src/script/bind_fs.c).
--
-- Every call but Appender:sync blocks the loop: for files of some kilobytes on a local disk. Errors are those of
-- dml_status_from_errno:
-- file_not_found, file_permission, is_directory, not_a_directory, disk_full, too_large, conflict, internal.
error "lua/demilune/meta/fs.lua is for editors and cannot be required"

---@class demilune.core.fs
local fs = {}

--- A lock file that is held. It ends with `release`, when the variable is <close>, or when it is collected.
---@class demilune.core.fs.Lock
local Lock = {}

--- A file that records are added to. It is closed with `close`, when the variable is <close>, or when it is collected.
---@class demilune.core.fs.Appender
local Appender = {}

---@class demilune.core.fs.Stat
---@field type "file"|"directory"|"socket"|"other"
---@field size integer   bytes
---@field mode integer   permission bits, set-id and sticky bits
---@field uid integer
---@field mtime integer  seconds since 1970

--- Makes a directory of mode 0700 where it is missing, its last component only. One that is there must be a real
--- directory of this user that nobody else can write to: not_a_directory, file_permission.
---@param path string
---@return true?
---@return demilune.Error? err
function fs.make_dir(path) end

--- The whole of a regular file. Errors: is_directory, unsupported (no regular file), too_large, and the usual ones.
---@param path string
---@param max_bytes integer
---@return string? bytes
---@return demilune.Error? err
function fs.read(path, max_bytes) end

--- Writes a file of mode 0600, beside it and then renamed: a reader sees the old file or the new one.
---@param path string
---@param bytes string
---@return true?
---@return demilune.Error? err
function fs.write(path, bytes) end

--- Removes a file, no directory; a missing one is fine.
---@param path string
---@return true?
---@return demilune.Error? err
function fs.remove(path) end

--- Names in a directory without "." and "..", in no order, at most 65536.
---@param path string
---@return string[]? names
---@return demilune.Error? err
function fs.list(path) end

--- What a path is; a link is followed.
---@param path string
---@return demilune.core.fs.Stat?
---@return demilune.Error? err
function fs.stat(path) end

--- A path from the root, with every link on its way followed. What it names must be there.
---@param path string
---@return string? real
---@return demilune.Error? err
function fs.real_path(path) end

--- Locks a file (flock(2), exclusive), made with mode 0600 where it is missing; a final link is refused. Never waits:
--- conflict when another holds it.
---@param path string
---@return demilune.core.fs.Lock?
---@return demilune.Error? err
function fs.lock(path) end

--- Opens a file that records are added to; made with mode 0600 where it is missing. Errors: file_permission (a final
--- link, not this user's, or group or others can write to it), unsupported (no regular file), and the usual ones.
---@param path string
---@return demilune.core.fs.Appender?
---@return demilune.Error? err
function fs.append(path) end

--- Gives the lock back; the file stays. Twice is fine.
function Lock:release() end

--- Adds bytes with one write(2), whole or not at all, whoever else adds to the file; give it whole lines. What a full
--- disk cuts short is taken back; where it cannot be, the next write begins with a line end. Errors: disk_full, too_large
--- (a limit of the file's size), file_not_found (the open file has no name any more: reopen), and the usual ones.
---@param bytes string
---@return true?
---@return demilune.Error? err
function Appender:write(bytes) end

--- Waits until what was written is on the disk (fdatasync(2), in a thread of libuv's).
---@async
---@return true?
---@return demilune.Error? err
function Appender:sync() end

--- How long the open file is.
---@return integer? bytes
---@return demilune.Error? err
function Appender:size() end

--- Whether the path still names the open file; no longer after a rotation.
---@return boolean
function Appender:is_current() end

--- Opens the path anew, as fs.append does. When that fails, the file that was open stays open.
---@return true?
---@return demilune.Error? err
function Appender:reopen() end

--- Closes the file. Twice is fine; everything else raises after it.
function Appender:close() end

return fs
