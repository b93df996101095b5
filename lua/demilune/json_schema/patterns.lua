--- json_schema/patterns.lua - regular expressions of ECMA-262, which JSON Schema means, in the words of PCRE2.
--
-- Only what the two read differently is rewritten. What ECMA-262 lacks and PCRE2 has works as in PCRE2: a pattern that
-- says more is no reason to refuse a schema. Matching is bounded by core.regex.
local patterns = {}

--- Regular expressions of one schema.
patterns.COUNT_MAX = 256

--- ECMA-262's \s (WhiteSpace and LineTerminator), as the inside of a set.
local SPACE = [[\x{9}-\x{d}\x{20}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}]]
local NOT_SPACE = [[\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}]]
  .. [[\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}]]

--- General categories by the long names that ECMA-262 also takes.
local CATEGORIES = {
  Letter = "L", Lowercase_Letter = "Ll", Uppercase_Letter = "Lu", Titlecase_Letter = "Lt", Modifier_Letter = "Lm",
  Other_Letter = "Lo", Mark = "M", Nonspacing_Mark = "Mn", Number = "N", Decimal_Number = "Nd", digit = "Nd",
  Letter_Number = "Nl", Other_Number = "No", Punctuation = "P", punct = "P", Symbol = "S", Math_Symbol = "Sm",
  Currency_Symbol = "Sc", Separator = "Z", Space_Separator = "Zs", Other = "C", Control = "Cc", cntrl = "Cc",
}

--- Signs outside of sets: `$` is the end alone, `.` no LineTerminator.
local PLAIN = { ["$"] = "\\z", ["."] = "[^\\n\\r\\x{2028}\\x{2029}]" }

--- Two \u escapes that are one character, or one that is.
local function character(text, at)
  local high = tonumber(text:match("^\\u(%x%x%x%x)", at) or "", 16)
  if not high then
    local braced = text:match("^\\u{(%x+)}", at)
    if braced then return "\\x{" .. braced .. "}", #braced + 4 end
    return nil
  end
  local low = high >= 0xD800 and high < 0xDC00 and tonumber(text:match("^\\u(%x%x%x%x)", at + 6) or "", 16)
  if low and low >= 0xDC00 and low < 0xE000 then
    return ("\\x{%x}"):format(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00), 12
  end
  return ("\\x{%x}"):format(high), 6
end

--- What stands for the escape at a place, and how many bytes it takes.
local function escape(text, at, is_in_set)
  local sign = text:sub(at + 1, at + 1)
  if sign == "u" then
    local made, length = character(text, at)
    if made then return made, length end
  elseif sign == "s" or sign == "S" then
    local set = sign == "s" and SPACE or NOT_SPACE
    return is_in_set and set or "[" .. set .. "]", 2
  elseif sign == "p" or sign == "P" then
    local name = text:match("^{([%w_]+)}", at + 2)
    if name and CATEGORIES[name] then return "\\" .. sign .. "{" .. CATEGORIES[name] .. "}", #name + 4 end
  end
  return text:sub(at, at + 1), 2
end

--- A pattern for core.regex.
---@param text string
---@return string
function patterns.translate(text)
  local out, at, is_in_set = {}, 1, false
  while at <= #text do
    local sign = text:sub(at, at)
    local made, length = sign, 1
    if sign == "\\" then
      made, length = escape(text, at, is_in_set)
    elseif is_in_set then
      is_in_set = sign ~= "]"
      -- PCRE2 takes "[" before ":", "." and "=" in a set for a name of a class.
      if sign == "[" then made = "\\[" end
    elseif sign == "[" then
      local opening = text:match("^%[%^?", at)
      -- A set that ends at once: nothing and everything in ECMA-262, not ended in PCRE2.
      local is_empty = text:sub(at + #opening, at + #opening) == "]"
      made, length, is_in_set = opening, #opening + (is_empty and 1 or 0), not is_empty
      if is_empty then made = opening == "[" and "(?!)" or "(?s:.)" end
    else
      made = PLAIN[sign] or sign
    end
    out[#out + 1], at = made, at + length
  end
  return table.concat(out)
end

return patterns
