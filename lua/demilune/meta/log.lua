---@meta _

--- log.lua - core.log: one line a record, "TIME level text" (src/script/bind_log.c, src/base/log.h).
--
-- Records hold words and ids of ours only, never text of a provider, a sandbox or a caller. Control characters are
-- replaced and a line ends at 4096 bytes. A failed write is dropped. Without `open` records go to stderr.
error "lua/demilune/meta/log.lua is for editors and cannot be required"

---@class demilune.core.log
local log = {}

--- Writes a record of level debug.
---@param text string
function log.debug(text) end

--- Writes a record of level info.
---@param text string
function log.info(text) end

--- Writes a record of level warn.
---@param text string
function log.warn(text) end

--- Writes a record of level error.
---@param text string
function log.error(text) end

--- Appends to a file of mode 0600 from now on, which is renamed to `<path>.1` when it grows beyond 8 MiB. On an error
--- the records go where they went.
---@param path string
---@return true?
---@return demilune.Error? err  of dml_status_from_errno
function log.open(path) end

--- Opens the file of `open` again, after somebody moved it. A failure is ignored.
function log.reopen() end

--- Drops records below a level; "off" drops all.
---@param level "debug"|"info"|"warn"|"error"|"off"
function log.set_level(level) end

return log
