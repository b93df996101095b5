--- directory.lua - a driver of an operator's: each "sandbox" is a fresh folder of this machine, and commands run in it.
--
-- It isolates NOTHING: what runs there is this user, sees all files and has the network. It is a template for a driver of your
-- own, and of use for tests; never for an agent. Files are opened by programs and not here: a pipe that somebody put in a file's
-- place would hold up the server.
--
-- In the configuration: provider_path = { "providers" }, and the entry { id = "here", type = "directory" }, where
-- base = "/var/tmp" says in which folder they are made.

--- What the scripts below exit with; most are numbers of errno(3).
local CATEGORIES = {
  [2] = "file_not_found", [13] = "file_permission", [17] = "conflict", [20] = "not_a_directory", [21] = "is_directory",
  [28] = "disk_full", [95] = "unsupported",
}
local HELP_TIMEOUT_S = 60
local NAMES_MAX = 20000

local FILE = '[ -e "$1" ] || exit 2; [ ! -d "$1" ] || exit 21; [ -f "$1" ] || exit 95; [ -r "$1" ] || exit 13;'
local READ = FILE .. ' stat -L -c %s -- "$1" && tail -c "+$(($2+1))" -- "$1" | head -c "$3"'
local WRITE = [[
u=$1 f=$2 at=$3; trap 'rm -f -- "$u"' EXIT
[ ! -d "$f" ] || exit 21; [ ! -e "$f" ] || [ -f "$f" ] || exit 95; [ ! -e "$f" ] || [ -w "$f" ] || exit 13
if [ -n "$at" ]; then
  [ -e "$f" ] || exit 2; [ "$(stat -L -c %s -- "$f")" -eq "$at" ] || exit 17
  cat -- "$u" >>"$f" || exit 28
else
  mkdir -p -- "${f%/*}/" || exit 20; [ -e "$f" ] || [ -w "${f%/*}/" ] || exit 13
  cat -- "$u" >"$f" || exit 28
fi
stat -L -c %s -- "$f"]]
local LIST = '[ -e "$1" ] || exit 2; [ -d "$1" ] || exit 20; [ -r "$1" ] || exit 13;'
  .. ' find "$1/" -mindepth 1 -maxdepth "$2" -printf "%y\\t%s\\t%P\\0" | head -z -n "$3"'
local TYPES = { f = "file", d = "directory", l = "symlink" }

local driver = { network = "host", workdir = "/tmp", id_pattern = "^box%-%w+$" }

--- The folder of a sandbox. An id has no slash (id_pattern), so it leads nowhere else.
local function folder_of(self, id) return self.base .. "/" .. id end

--- Runs a program of this machine and gives its exit code and what it wrote to stdout.
local function run(self, ...)
  local parts = {}
  local ended = self.host:exec {
    argv = { ... }, timeout_s = HELP_TIMEOUT_S, stdout = function(bytes) parts[#parts + 1] = bytes end,
  }
  return ended.exit_code, table.concat(parts)
end

--- Runs a script about a path and gives what it prints.
local function script(self, text, ...)
  local code, out = run(self, "/bin/sh", "-c", text, "sh", ...)
  if code == 0 then return out end
  if CATEGORIES[code] == "conflict" then
    self.host:fail { category = "conflict", field = "offset", message = "offset must equal the present size of the file." }
  end
  self.host:fail { category = CATEGORIES[code] or "internal", field = "path", message = "That path cannot be used." }
end

function driver.new(entry, host)
  return { host = host, base = entry.base or "/tmp" }
end

function driver.create(self)
  local code, path = run(self, "/usr/bin/mktemp", "-d", self.base .. "/box-XXXXXXXXXX")
  local id = path:match "([^/\n]+)\n$"
  if code ~= 0 or not id then self.host:fail { category = "no_capacity", message = "No folder can be made." } end
  return { id = id, workdir = folder_of(self, id) }
end

function driver.kill(self, id)
  local is_there = run(self, "/usr/bin/test", "-d", folder_of(self, id)) == 0
  -- What still runs there is left: it is nobody's child any more.
  run(self, "/bin/rm", "-rf", "--", folder_of(self, id))
  return is_there
end

--- timeout(1) ends the whole group of the command, which is more than a driver's program gets by itself.
function driver.run(self, id, opts)
  local argv = {
    "/usr/bin/timeout", "-k", "1", tostring(opts.timeout_s), "/usr/bin/env", "HOME=" .. folder_of(self, id),
    "/bin/sh", "-c", 'cd -- "$1" || exit 126; shift; exec "$@"', "sh", opts.cwd,
  }
  for _, word in ipairs(opts.argv) do argv[#argv + 1] = word end
  local ended = self.host:exec { argv = argv, timeout_s = opts.timeout_s + 3, stdout = opts.stdout, stderr = opts.stderr }
  local timed_out = ended.timed_out or ended.exit_code == 124
  return { exit_code = not timed_out and ended.exit_code or nil, timed_out = timed_out }
end

function driver.read(self, _, path, offset, length)
  local size, bytes = script(self, READ, path, tostring(offset), tostring(length)):match "^(%d+)\n(.*)$"
  return bytes, math.tointeger(tonumber(size))
end

function driver.write(self, _, path, bytes, append_at)
  local code, made = run(self, "/usr/bin/mktemp", self.base .. "/new-XXXXXXXXXX")
  local beside = made:match "^(.*)\n$"
  -- A file of our own, which no pipe can stand in for.
  local file = code == 0 and io.open(beside, "wb")
  local is_written = file and file:write(bytes) and file:flush()
  if file then file:close() end
  if not is_written then
    if beside then os.remove(beside) end
    self.host:fail { category = "disk_full", message = "The bytes cannot be kept." }
  end
  return math.tointeger(tonumber(script(self, WRITE, beside, path, append_at and tostring(append_at) or "")))
end

function driver.list_dir(self, _, path, limit, depth)
  local out = script(self, LIST, path, tostring(depth), tostring(NAMES_MAX))
  local entries, total = {}, 0
  for kind, size, below in out:gmatch "(%a)\t(%d+)\t([^\0]+)\0" do
    total = total + 1
    entries[total] = {
      name = below:match "[^/]+$", path = path:gsub("/+$", "") .. "/" .. below, type = TYPES[kind] or "other",
      size = kind == "f" and math.tointeger(tonumber(size)) or nil,
    }
  end
  table.sort(entries, function(a, b) return a.path < b.path end)
  return table.move(entries, 1, math.min(limit, total), 1, {}), total
end

return driver
