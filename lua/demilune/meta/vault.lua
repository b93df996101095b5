---@meta _

--- vault.lua - core.vault: credentials by name, and the redaction of what leaves (src/script/bind_vault.c).
--
-- Secrets are bytes of C alone. Lua names them, says in which header and to which places they go, and hands their handles
-- to core.http. Until the first is defined, nothing here costs anything.
error "lua/demilune/meta/vault.lua is for editors and cannot be required"

---@class demilune.core.vault
local vault = {}

--- A secret that a request may carry; prints as `credential(NAME)`, a lifted one as `credential(token)`. A lifted
--- one's secret lives as long as its handle.
---@class demilune.core.Credential

---@class demilune.core.Binding
---@field header string       the header's name
---@field prefix? string      what stands before the secret, e.g. "Bearer "
---@field origins? string[]   "https://api.e2b.app"; http only to 127.0.0.1, [::1] and localhost
---@field suffixes? string[]  domains: any host below one, over https on port 443
---@field is_unix? boolean    may go over unix sockets

--- Opens the vault. Done by whatever needs it first; this is for asking that its memory be locked.
---@param options? {require_lock: boolean}
---@return true? done
---@return demilune.Error? err  internal; its field `detail` says more
function vault.open(options) end

--- Defines a credential. "env:" is read at once; in the program its variable is wiped then. The same source again changes
--- nothing, another begins anew.
---@param name string    1 to 64 letters, digits, _, - and .
---@param source string  "env:NAME", "file:/path", "cred:NAME", "cmd:/program argument ..."
---@return true? done
---@return demilune.Error? err  invalid_argument, quota_exceeded (more than 64)
function vault.define(name, source) end

--- Reads a credential unless it is loaded; a program of "cmd:" may take 10 s. Raises for a name that is not defined.
---@async
---@param name string
---@return true? done
---@return demilune.Error? err  authentication_failed; the cause is in status()
function vault.load(name) end

--- Reads a credential again, as after a 401. When that fails the old secret stays.
---@async
---@param name string
---@return boolean? changed  the secret is another now
---@return demilune.Error? err
function vault.reload(name) end

--- A handle of a credential that is defined, loaded or not. Raises for a binding that is not as it should be.
---@param name string
---@param binding demilune.core.Binding
---@return demilune.core.Credential
function vault.bind(name, binding) end

--- Whether a credential may go to that URL.
---@param credential demilune.core.Credential
---@param url string
---@return boolean
function vault.allows(credential, url) end

--- Whether a secret is loaded: for what would take pains that nothing needs otherwise.
---@return boolean
function vault.is_live() end

--- The text with "[redacted]" for every live secret: as it is, in hex, escaped as URLs and JSON do, in base64 at any
--- alignment and in either alphabet. With `is_cut` the text went on where nobody sees it, and an end that may be the
--- beginning of a secret is dropped.
---@param text string
---@param is_cut? boolean
---@return string
function vault.redact(text, is_cut) end

--- A part of a text, redacted as in the whole, for what is shown piece by piece: a secret that begins before the part
--- is not named again, one that goes beyond is masked where it begins.
---@param text string
---@param first integer    of the bytes shown
---@param last integer
---@param is_cut? boolean  the text went on; the part then ends before what may be the beginning of a secret
---@return string part
---@return integer ends    the last byte of the text that is in it
function vault.redact_part(text, first, last, is_cut) end

--- A value with all strings in it redacted, keys too. Tables are not changed: where something is masked they are copied.
---@generic T
---@param value T
---@return T
function vault.redact_all(value) end

---@class demilune.core.Redactor
local redactor = {}

--- For a text that comes in pieces.
---@return demilune.core.Redactor
function vault.redactor() end

--- Takes a piece and gives what is decided: an end that may be the beginning of a secret is held back.
---@param piece string
---@return string
function redactor:feed(piece) end

--- Gives what was held back: the text has ended.
---@return string
function redactor:finish() end

---@class demilune.core.VaultStatus
---@field is_locked boolean    its memory stays out of swap
---@field used_bytes integer
---@field size_bytes integer
---@field credentials {name: string, kind: "env"|"file"|"cred"|"cmd"|"pipe", state: "unread"|"loaded"|"failed", cause?: string}[]
---  cause: of the last reading, when it failed; may name a path

--- How the vault stands; for doctor.
---@return demilune.core.VaultStatus
function vault.status() end

--- Writes those of the credentials that are loaded to a pipe that a child of ours reads; waits for it 5 s at most.
---@param fd integer
---@param names string[]
---@return true? done
---@return demilune.Error? err
function vault.hand_over(fd, names) end

--- Reads what hand_over wrote; each is a credential of the kind "pipe" then.
---@param fd integer
---@param name_max integer  more are refused
---@return string[]? names
---@return demilune.Error? err
function vault.take_over(fd, name_max) end

return vault
