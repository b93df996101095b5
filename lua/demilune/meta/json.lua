---@meta _

--- json.lua - core.json: JSON text to Lua values and back (src/script/bind_json.c, src/script/convert.h).
--
-- null is `json.null`. Decoded arrays carry a mark, so that an empty one stays an array when it is encoded again; a
-- table without the mark is an array when its keys are 1..n with n > 0, else an object. Integers stay integers.
error "lua/demilune/meta/json.lua is for editors and cannot be required"

---@class demilune.core.json
---@field null lightuserdata  JSON's null: the NULL pointer, the same as cjson.null
local json = {}

--- Why a text was refused: it is no JSON or no UTF-8; it has a number that neither int64 nor double holds; it is
--- deeper than 128 levels or holds more than 200000 values, keys included.
---@alias demilune.core.json.Fault "syntax"|"out_of_range"|"over_limit"

--- Decodes one JSON value of any kind. A JSON null comes back as `json.null`, so nil always means a fault.
---@param text string
---@return any value
---@return demilune.core.json.Fault? fault
function json.decode(text) end

--- Encodes a value in compact form, keys sorted, U+2028 and U+2029 escaped. nil and `json.null` become null, floats
--- with an integral value below 2^53 become integers, bytes in strings that are not UTF-8 become U+FFFD. Raises for
--- what has no JSON form: functions, NaN, infinity, keys that are no strings, more than 128 levels (or a cycle), over
--- 96 MiB of text.
---@param value any
---@return string text
function json.encode(value) end

--- Marks a table as an array, in place: it is encoded as one even when it is empty.
---@generic T: table
---@param list? T  a new table without it
---@return T list
function json.array(list) end

return json
