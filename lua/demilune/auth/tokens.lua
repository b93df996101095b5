--- auth/tokens.lua - the file of bearer tokens: a line `name:sha256-of-token` for each caller, `#` comments, empty lines.
--
-- The file holds digests, so that who reads it by mistake can call nothing. It is refused all the same where others may read
-- it, and as a whole where one line is wrong: a caller who was taken out by a typing error would be a riddle. Messages name
-- file and line and never repeat what stands there, which may be a token that somebody put in its digest's place.
local core = require "demilune.core"

local tokens = {}

tokens.FILE_MAX_BYTES = 256 * 1024
tokens.COUNT_MAX = 1024
local NAME_MAX_BYTES = 64
local GROUP_AND_OTHERS = 63 -- 077

---@class demilune.auth.Token
---@field name string    of its holder
---@field digest string  SHA-256, 64 hex digits

local function file_fault(path)
  local stat, err = core.fs.stat(path)
  if not stat then return err.category == "file_not_found" and "is not there" or "cannot be read by this user" end
  if stat.type ~= "file" then return "is no regular file" end
  if stat.uid ~= core.sys.uid() and stat.uid ~= 0 then return "belongs to another user" end
  if stat.mode & GROUP_AND_OTHERS ~= 0 then return "may be used by group or others; `chmod 600` mends it" end
  if stat.size > tokens.FILE_MAX_BYTES then return "is larger than 256 KiB" end
end

local function read_line(line)
  local name, digest = line:match "^([^:]*):(.*)$"
  if not name then return nil, "is no `name:sha256`; write the name, a colon and the token's digest" end
  if #name > NAME_MAX_BYTES or not name:find "^%w[%w._@-]*$" then
    return nil, "has no good name; write at most 64 letters, digits, ., _, @ and -"
  end
  if name == "anonymous" then return nil, "has a name that means nobody; write another" end
  if #digest ~= 64 or not digest:find "^%x+$" then
    return nil, "has no SHA-256 digest; write what `printf %s TOKEN | sha256sum` prints, 64 hex digits"
  end
  return { name = name, digest = digest:lower() }
end

--- Why a token cannot stand beside those before it.
local function clash(token, names, digests)
  if names[token.name] then return ("has the name of line %d too; give each caller its own"):format(names[token.name]) end
  if digests[token.digest] then return ("has the token of line %d too; give each caller its own"):format(digests[token.digest]) end
end

--- Takes the text of such a file apart.
---@param text string
---@return demilune.auth.Token[]? list
---@return string? fault   what is wrong
---@return integer? line   where; nil when it is the whole
function tokens.parse(text)
  local list, names, digests, number = {}, {}, {}, 0
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    number = number + 1
    line = line:match "^%s*(.-)%s*$"
    if line ~= "" and line:sub(1, 1) ~= "#" then
      local token, fault = read_line(line)
      fault = fault or clash(token, names, digests)
      if fault then return nil, fault, number end
      list[#list + 1] = token
      names[token.name], digests[token.digest] = number, number
      if #list > tokens.COUNT_MAX then return nil, ("has more than %d tokens"):format(tokens.COUNT_MAX) end
    end
  end
  if #list == 0 then return nil, "has no token; write a line `name:sha256` for each caller" end
  return list
end

--- Reads a file of tokens.
---@param path string
---@return demilune.auth.Token[]? list
---@return string? message  for a person: file, line, what is wrong and what to do
function tokens.read(path)
  local fault, line = file_fault(path), nil
  local text = not fault and core.fs.read(path, tokens.FILE_MAX_BYTES)
  if not fault and not text then fault = "cannot be read by this user" end
  local list
  if text then list, fault, line = tokens.parse(text) end
  if list then return list end
  if line then return nil, ("%s:%d: the line %s"):format(path, line, fault) end
  return nil, ("%s: the file of tokens %s"):format(path, fault)
end

--- Whose token it is. All are compared, whichever fits.
---@param list demilune.auth.Token[]
---@param token string
---@return string? name
function tokens.find(list, token)
  local digest, name = core.crypto.sha256(token), nil
  for _, one in ipairs(list) do
    if core.crypto.equal(one.digest, digest) then name = one.name end
  end
  return name
end

return tokens
