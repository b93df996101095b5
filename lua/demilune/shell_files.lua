--- shell_files.lua - what file tools promise, made of POSIX sh with coreutils or busybox: for services whose own calls only
--- move whole files.
--
-- A script answers one line first: "ok N", "conflict N" or "refused CATEGORY". What stands for `s` below is its name, $0.
local errors = require "demilune.errors"

local shell_files = {}

--- What a script may refuse, and whose fault it is.
local REFUSED = {
  file_not_found = "path", is_directory = "path", not_a_directory = "path", file_permission = "path", disk_full = false,
  unsupported = "path", invalid_argument = "path",
}
local MESSAGES = {
  unsupported = "The path is no regular file, or the sandbox lacks what is needed to write bytes.",
  invalid_argument = "path cannot be used: its links lead in circles.",
}

--- The number after "ok", and what follows that line. Raises what the script refused, `invalid_response` for anything else.
---@param answer string
---@return integer? number
---@return string rest
function shell_files.read_answer(answer)
  local line, rest = answer:match "^([^\n]*)\n(.*)$"
  local word, value = (line or ""):match "^(%l+) ?([%l%d_]*)$"
  if word == "ok" then return math.tointeger(tonumber(value)), rest end
  local size = word == "conflict" and math.tointeger(tonumber(value))
  if size then
    errors.raise("conflict", { field = "offset", size = size, message = "offset must equal the present size of the file." })
  end
  local field = REFUSED[value]
  if word ~= "refused" or field == nil then errors.raise "invalid_response" end
  errors.raise(value, { field = field or nil, message = MESSAGES[value] })
end

local HEAD = [[
refuse() { echo "refused $1"; exit 0; }
size() { stat -L -c %s -- "$1" 2>/dev/null || wc -c <"$1"; }
absent() {
  d=$1; while d=${d%/*}; [ -n "$d" ] && [ ! -e "$d" ]; do :; done
  if [ -n "$d" ] && [ ! -d "$d" ]; then refuse not_a_directory; fi
  if [ -n "$d" ] && [ ! -x "$d" ]; then refuse file_permission; fi
  refuse file_not_found
}
]]

--- sh READ s PATH OFFSET LENGTH: "ok SIZE", then the bytes in base64.
shell_files.READ = HEAD .. [[
f=$1; [ -e "$f" ] || absent "$f"
[ ! -d "$f" ] || refuse is_directory
[ -f "$f" ] || refuse unsupported
[ -r "$f" ] || refuse file_permission
echo "ok $(($(size "$f")))"
[ "$3" -eq 0 ] || tail -c "+$(($2+1))" -- "$f" | head -c "$3" | base64
]]

--- sh WRITE s UPLOAD PATH text|base64 OFFSET: makes a file of what was uploaded, or appends it where OFFSET is the size.
--- Written beside the target and renamed, links followed, mode kept; in place where nothing can be made beside it. The
--- upload goes in any case.
shell_files.WRITE = HEAD .. [[
u=$1; f=$2; kind=$3; at=$4; n=; trap 'rm -f -- "$u" ${n:+"$n"}' EXIT
[ -f "$u" ] || refuse lost
[ "$kind" = text ] || command -v base64 >/dev/null 2>&1 || refuse unsupported
bytes() { if [ "$kind" = text ]; then cat <"$u"; else base64 -d <"$u"; fi; }
i=0; while [ -L "$f" ]; do
  i=$((i+1)); [ $i -le 40 ] || refuse invalid_argument
  l=$(readlink -- "$f") || refuse file_permission
  case $l in /*) f=$l;; *) f=${f%/*}/$l;; esac
done
[ ! -d "$f" ] || refuse is_directory
[ ! -e "$f" ] || [ -f "$f" ] || refuse unsupported
if [ -n "$at" ]; then
  [ -e "$f" ] || absent "$f"
  s=$(($(size "$f"))); [ "$s" -eq "$at" ] || { echo "conflict $s"; exit 0; }
  [ -w "$f" ] || refuse file_permission
  bytes >>"$f" || { truncate -s "$at" -- "$f"; refuse disk_full; }
else
  d=${f%/*}; d=${d:-/}
  mkdir -p -- "$d" 2>/dev/null || { [ -d "$d" ] || { mkdir -p -- "$d" 2>&1 | grep -qi 'not a directory\|file exists' &&
    refuse not_a_directory; refuse file_permission; }; }
  n=$d/.${u##*/}.new
  if { : >"$n"; } 2>/dev/null; then
    bytes >"$n" || refuse disk_full
    if [ -e "$f" ]; then m=$(stat -c %a -- "$f") && chmod "$m" "$n"; fi
    mv -f -- "$n" "$f" || refuse file_permission
  else
    n=; { [ -e "$f" ] && [ -w "$f" ]; } || refuse file_permission
    bytes >"$f" || refuse disk_full
  fi
fi
n=; echo "ok $(($(size "$f")))"
]]

--- sh LIST s PATH DEPTH LIMIT: "ok", then "MODE SIZE ./PATH" of at most LIMIT entries by name, then "total N". Mode in hex,
--- as lstat has it. Names with a line break are not listed.
shell_files.LIST = HEAD .. [[
[ -e "$1" ] || absent "$1"
[ -d "$1" ] || refuse not_a_directory
{ [ -r "$1" ] && cd -- "$1" 2>/dev/null; } || refuse file_permission
echo ok
find . -mindepth 1 -maxdepth "$2" ! -name '*
*' -exec stat -c '%f %s %n' {} + 2>/dev/null | LC_ALL=C sort -k 3 | awk -v n="$3" 'NR<=n {print} END {print "total " NR}'
]]

return shell_files
