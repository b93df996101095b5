--- secrets.lua - where a credential comes from: `env:NAME`, `file:PATH`, `cred:NAME`, `cmd:PROGRAM ARG…`.
--
-- What is no such source is very likely the key itself, put where its name should be; so no text
-- here repeats anything of it.

local secrets = {}

local CRED_NAME_BYTES_MAX = 255
--- Letters and digits in a row, as keys have them and names of variables and files do not.
local KEY_RUN_BYTES = 24

local CHECKS = {}

function CHECKS.env(rest)
  if rest:find "^[%a_][%w_]*$" then return end
  return "names no environment variable; write env: and letters, digits and _"
end

function CHECKS.file(rest)
  if rest ~= "" and not rest:find "^~" and not rest:find "%c" then return end
  return "names no file; write file: and a path that does not begin with ~"
end

--- systemd.exec(5), "Credentials": a file of that name in $CREDENTIALS_DIRECTORY.
function CHECKS.cred(rest)
  if rest:find "^[%w_][%w_.-]*$" and #rest <= CRED_NAME_BYTES_MAX then return end
  return "names no credential of systemd; write cred: and letters, digits, _, . and -"
end

function CHECKS.cmd(rest)
  if rest:find "^%.?%.?/[^%s]" and not rest:find "%c" then return end
  return "names no program; write cmd: and its path with a /, then its arguments, without quotes"
end

--- Whether a name without a folder is more likely a key: what cannot be read is named in messages, and it would be too.
local function may_be_key(rest)
  if rest:find("/", 1, true) then return false end
  for run in rest:gmatch "%w+" do
    if #run >= KEY_RUN_BYTES and run:find "%d" and run:find "%a" then return true end
  end
  return false
end

--- What is wrong with a source, as "is …; do …"; nil for a good one.
---@param text string
---@return string?
function secrets.fault(text)
  local prefix, rest = text:match "^(%l+):(.*)$"
  local test = prefix and CHECKS[prefix]
  if not test then
    return "must be env:NAME, file:PATH, cred:NAME or cmd:PROGRAM; say where the key is, never write it "
      .. "into the file"
  end
  if prefix ~= "cmd" and may_be_key(rest) then
    return "looks like the key itself; say where the key is, never write it into the file"
  end
  return test(rest)
end

--- The source with its path from the root.
---@param text string  one without a fault
---@param folder string  the one of the configuration, from the root
---@return string? source
---@return string? fault
function secrets.resolve(text, folder)
  local prefix, rest = text:match "^(%l+):(.*)$"
  local is_relative = rest:sub(1, 1) ~= "/"
  rest = rest:gsub("^%./+", "")
  if prefix == "file" and is_relative then return "file:" .. folder .. "/" .. rest end
  if prefix == "cmd" and is_relative then
    if folder:find "%s" then
      return nil, "is a command in a folder with blanks in its name, where words are split; write a path "
        .. "from the root that has none"
    end
    return "cmd:" .. folder .. "/" .. rest
  end
  return text
end

return secrets
