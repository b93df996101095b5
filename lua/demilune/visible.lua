--- visible.lua - foreign text for a person who must decide about it: what would not show, or would show as something else,
--- is written out.
--
-- Control characters can rewrite a terminal's line, and marks of direction can turn a path around. JSON escapes only the
-- first of them.
local core = require "demilune.core"

local visible = {}

--- Ranges of code points that are not seen, or that move others: C0 and C1, soft hyphen, zero-width and direction marks,
--- line and paragraph separators, invisible operators, byte order mark, interlinear marks, tags and variation selectors.
local HIDDEN = {
  { 0x00, 0x1F }, { 0x7F, 0x9F }, { 0xAD, 0xAD }, { 0x61C, 0x61C }, { 0x115F, 0x1160 }, { 0x17B4, 0x17B5 },
  { 0x180B, 0x180F }, { 0x200B, 0x200F }, { 0x2028, 0x202E }, { 0x2060, 0x206F }, { 0x3164, 0x3164 }, { 0xFE00, 0xFE0F },
  { 0xFEFF, 0xFEFF }, { 0xFFA0, 0xFFA0 }, { 0xFFF9, 0xFFFB }, { 0xE0000, 0xE0FFF },
}

local function is_hidden(code)
  for _, range in ipairs(HIDDEN) do
    if code <= range[2] then return code >= range[1] end
  end
  return false
end

local function spelled(character)
  local code = utf8.codepoint(character)
  return is_hidden(code) and ("\\u{%X}"):format(code) or nil
end

--- The text with all that cannot be seen spelled as \u{1B}; bytes that are no UTF-8 become U+FFFD.
---@param text string
---@return string
function visible.of(text)
  text = core.text.mend(text)
  return (text:gsub(utf8.charpattern, spelled))
end

--- At most `max` bytes of the text, made visible; where something is left out, that is said.
---@param text string
---@param max integer  bytes of the text as it was
---@return string
function visible.cut(text, max)
  if #text <= max then return visible.of(text) end
  return ("%s … (%d bytes more are not shown)"):format(visible.of(core.text.head(text, max)), #text - max)
end

return visible
