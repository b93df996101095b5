---@meta _

--- regex.lua - core.regex: regular expressions and globs that operators write (src/script/bind_regex.c).
--
-- Time and memory are bounded whatever pattern and text are. What a limit leaves undecided is nil, "limit", and the
-- caller must take that as the answer that denies.
error "lua/demilune/meta/regex.lua is for editors and cannot be required"

---@class demilune.core.regex
local regex = {}

--- A compiled regular expression.
---@class demilune.core.regex.Regex
local Regex = {}

--- A compiled glob.
---@class demilune.core.regex.Glob
local Glob = {}

--- Compiles a regular expression: PCRE2's syntax, UTF-8, without \C.
---@param pattern string  at most 4096 bytes
---@return demilune.core.regex.Regex?
---@return string? why      what is wrong, in words of PCRE2
---@return integer? offset  bytes of the pattern before what is wrong
function regex.new(pattern) end

--- Compiles a glob: `*` `**` `?` `[a-z]` `[!a]` `{a,b}` and `\` before what is meant as it stands; case-sensitive, for the
--- whole text. In a path `*`, `?` and sets do not match `/`, and a component `**` may be absent with the `/` behind it.
---@param pattern string  at most 4096 bytes, 256 alternatives
---@param options? { path: boolean? }
---@return demilune.core.regex.Glob?
---@return string? why  completes "the glob X: "
function regex.glob(pattern, options) end

--- Whether some part of the text matches. What is not UTF-8 in it counts as U+FFFD.
---@param text string
---@return boolean? does_match
---@return "limit"? why  what stands in the way of an answer
function Regex:matches(text) end

--- Replaces every match. A match of nothing is none; one of over 4 KiB may be missed, one of over 64 KiB is replaced
--- piece by piece. A text that is not UTF-8 and has matches comes back mended.
---@param text string
---@param with string  at most 64 bytes
---@return string? masked
---@return integer|"limit" count  how many matches there were, or why there is no text
function Regex:mask(text, with) end

--- Replaces every byte of a match by `*`, so that each byte keeps its place. Bytes that are no UTF-8 count as `?`.
---@param text string
---@return string? blanked
---@return "limit"? why
function Regex:blank(text) end

--- Whether the whole text matches.
---@param text string
---@return boolean? does_match
---@return "limit"? why  what stands in the way of an answer
function Glob:matches(text) end

return regex
