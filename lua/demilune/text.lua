--- text.lua - small forms of text that several parts need: cut, quoted for a shell, escaped for a URL.
local text = {}

--- The first characters of valid UTF-8.
---@param words string
---@param count integer
---@return string
function text.first(words, count)
  local stop = utf8.offset(words, count + 1)
  return stop and words:sub(1, stop - 1) or words
end

--- One word of a POSIX shell, whatever it holds but NUL.
---@param word string
---@return string
function text.quote(word)
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

--- Percent-encoded but for the unreserved characters of RFC 3986, section 2.3, and those in `kept`.
---@param words string
---@param kept? string  of a Lua character class, e.g. "/"
---@return string
function text.escape(words, kept)
  return (words:gsub("[^%w%-._~" .. (kept or "") .. "]", function(c) return ("%%%02X"):format(c:byte()) end))
end

return text
