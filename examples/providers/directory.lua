--- directory.lua - a driver of an operator's: each "sandbox" is a fresh folder of this machine, and commands run in it.
--
-- It isolates NOTHING: what runs there is this user, sees all files and has the network. It is a template for a driver of your
-- own, and of use for tests; never for an agent.
--
-- In the configuration: provider_path = { "providers" }, and the entry { id = "here", type = "directory" }, where
-- base = "/var/tmp" says in which folder they are made.

local SLICE_BYTES = 65536
--- errno(3), which does not differ where this runs.
local CATEGORIES = { [2] = "file_not_found", [13] = "file_permission", [20] = "not_a_directory", [21] = "is_directory" }

local driver = { network = "host", workdir = "/tmp" }

--- The folder of a sandbox. An id has no slash (id_pattern), so it leads nowhere else.
local function folder_of(self, id) return self.base .. "/" .. id end

--- Runs a program of this machine and gives its end and what it wrote to stdout.
local function run(self, timeout_s, ...)
  local parts = {}
  local ended = self.host:exec { argv = { ... }, timeout_s = timeout_s, stdout = function(bytes) parts[#parts + 1] = bytes end }
  return ended, table.concat(parts)
end

local function fail(self, number)
  self.host:fail { category = CATEGORIES[number] or "internal", field = "path", message = "That path cannot be used." }
end

local function open(self, path, mode)
  local file, _, number = io.open(path, mode)
  return file or fail(self, number)
end

function driver.new(entry, host)
  return { host = host, base = entry.base or "/tmp" }
end

driver.id_pattern = "^box%-%w+$"

function driver.create(self)
  local ended, path = run(self, 10, "/usr/bin/mktemp", "-d", self.base .. "/box-XXXXXXXXXX")
  local id = path:match "([^/\n]+)\n$"
  if ended.exit_code ~= 0 or not id then self.host:fail { category = "no_capacity", message = "No folder can be made." } end
  return { id = id, workdir = folder_of(self, id) }
end

function driver.kill(self, id)
  local is_there = run(self, 10, "/usr/bin/test", "-d", folder_of(self, id)).exit_code == 0
  -- What still runs there is left: it is nobody's child any more.
  run(self, 60, "/bin/rm", "-rf", "--", folder_of(self, id))
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
  local file <close> = open(self, path, "rb")
  local size = file:seek "end"
  file:seek("set", math.min(offset, size))
  local bytes, _, number = file:read(math.min(length, SLICE_BYTES))
  if number then fail(self, number) end
  return bytes or "", size
end

function driver.write(self, _, path, bytes, append_at)
  run(self, 10, "/bin/mkdir", "-p", "--", (path:gsub("[^/]*$", "")))
  local file <close> = open(self, path, append_at and "ab" or "wb")
  if append_at and file:seek "end" ~= append_at then
    self.host:fail { category = "conflict", field = "offset", message = "offset must equal the present size of the file." }
  end
  file:write(bytes)
  return file:seek "end"
end

function driver.list_dir(self, _, path, limit, depth)
  local ended, out = run(self, 30, "/usr/bin/find", path, "-mindepth", "1", "-maxdepth", tostring(depth), "-printf",
    "%y\\t%s\\t%p\\0")
  if ended.exit_code ~= 0 then fail(self, 2) end
  local entries, total = {}, 0
  for kind, size, full in out:gmatch "(%a)\t(%d+)\t([^\0]+)\0" do
    total = total + 1
    entries[total] = {
      name = full:match "[^/]+$", path = full, type = kind == "d" and "directory" or "file", size = math.tointeger(tonumber(size)),
    }
  end
  table.sort(entries, function(a, b) return a.path < b.path end)
  return table.move(entries, 1, math.min(limit, total), 1, {}), total
end

return driver
