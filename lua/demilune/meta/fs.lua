---@meta _

--- fs.lua - core.fs: small private files on the host, mostly in the state folder (src/script/bind_fs.c).
--
-- Every call blocks the loop: for files of some kilobytes on a local disk. Errors are those of dml_status_from_errno:
-- file_not_found, file_permission, is_directory, not_a_directory, disk_full, too_large, conflict, internal.
error "lua/demilune/meta/fs.lua is for editors and cannot be required"

---@class demilune.core.fs
local fs = {}

--- A lock file that is held. It ends with `release`, when the variable is <close>, or when it is collected.
---@class demilune.core.fs.Lock
local Lock = {}

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

--- Locks a file (flock(2), exclusive), made with mode 0600 where it is missing; a final link is refused. Never waits:
--- conflict when another holds it.
---@param path string
---@return demilune.core.fs.Lock?
---@return demilune.Error? err
function fs.lock(path) end

--- Gives the lock back; the file stays. Twice is fine.
function Lock:release() end

return fs
