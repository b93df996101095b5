--- config.lua - the operator's configuration: where it is, read, checked, with every default in it.
--
-- A Lua file, because operators compute things (`os.getenv`, a loop over templates); what it
-- returns is checked like any foreign data. Every failure is one line,
-- `FILE:LINE: what is wrong; the way out`; about the file as a whole, without a line.
local check = require "demilune.config.check"
local chunk = require "demilune.config.chunk"
local core = require "demilune.core"
local keys = require "demilune.config.keys"
local settle = require "demilune.config.settle"

local config = {}

local FILE_BYTES_MAX = 1 << 20
local MESSAGE_BYTES_MAX = 500
local PROVIDER_FOLDERS_MAX = 16
local OWN_TYPES_MAX = 64

--- The levels that log.level and --log-level take.
---@type string[]
config.log_levels = keys.log_levels

---@class demilune.config.Template
---@field disk integer    MB of /home/user
---@field memory integer  MB
---@field cpu number      cores
---@field pids integer
---@field network string  "none"
---@field home string     "tmpfs"
---@field ro_binds table  empty
---@field env table<string, string>
---@field explicit table<string, true>  the keys that the file names; the others are defaults

---@class demilune.config.Provider
---@field id string
---@field type string     "local", "e2b" or "veryfront"
---@field lifetime integer      seconds
---@field max_lifetime integer  seconds, from creation
---@field tenancy string  "account" or "principal"
---@field templates table<string, demilune.config.Template>|string[]  of type local by name, at least one; else names
---@field credential? string    a key of credentials; of all but local, as are the next three
---@field max_requests? integer at a time
---@field proxy? string         URL
---@field ca_file? string       with the folder in front
---@field preset? string        of type e2b, as are the next six
---@field sandbox_url? string   URL, perhaps with {places}
---@field domain? string
---@field region? string
---@field key_header? string
---@field auto_resume? boolean
---@field api_url? string       URL; of type e2b perhaps with {places}; of type veryfront always there
---@field project? string       of type veryfront, as is the next
---@field mcp_path? string

---@class demilune.config.Credential
---@field source string      with its path from the root
---@field origins? string[]  where an operator's tool may send it
---@field header? string     in which it goes there
---@field prefix? string     what stands before it

---@class demilune.Config
---@field path? string  the file; nil for the defaults
---@field dir string    the folder that its relative paths are relative to
---@field default_provider string  the id of one of the providers
---@field providers demilune.config.Provider[]  at least one
---@field credentials table<string, demilune.config.Credential>
---@field policy? { file: string, watch: boolean, approval_lifetime: integer, limits: table<string, integer> }  file with the
---   folder in front, approval_lifetime in seconds, limits: instructions, memory (MB), cpu_ms, wall_ms
---@field audit? { file: string, required: boolean, sync: string, arguments: boolean, max_size: integer, keep: integer }
---   file with the folder in front, sync "none", "batch" or "call", max_size in MB (0: no end), keep: rotated files
---@field tools string[]          patterns of files with tools, with the folder in front
---@field provider_path string[]  folders with drivers, likewise
---@field vault {require_lock: boolean}
---@field output table<string, integer>  stdout, stderr, read_file, list_files, download_file
---@field limits { message: integer, tasks: integer }  message in MB
---@field default_sandbox string  "on" or "off"
---@field keep_on_exit boolean
---@field adopt_by_use boolean
---@field nonzero_exit_is_error boolean
---@field task_after integer  seconds
---@field annotations string  "strict" or "sandboxed"
---@field log { level: string, file: string? }  file with the folder in front

local ABSENT = "there is no such file"
local READ_FAULTS = {
  file_not_found = ABSENT,
  not_a_directory = ABSENT, -- a file stands where a folder of the path should
  is_directory = "it is a folder, not a file",
  file_permission = "it may not be read by this user",
  too_large = "it has more than 1 MB",
  unsupported = "it is not an ordinary file",
}

--- One line of printable UTF-8.
local function one_line(text)
  text = text:gsub("%c+", " ")
  if not utf8.len(text) then text = text:gsub("[\128-\255]", "?") end
  if #text <= MESSAGE_BYTES_MAX then return text end
  local stop = MESSAGE_BYTES_MAX
  while text:find("^[\128-\191]", stop + 1) do stop = stop - 1 end
  return text:sub(1, stop) .. "…"
end

local function message_at(path, line, text)
  return ("%s:%d: %s"):format(one_line(path), line, one_line(text))
end

--- Every fault as a line, in the order of the file.
local function lines_of(path, text, faults)
  local source = require "demilune.config.source"
  local tokens, placed, lines = source.tokens(text), {}, {}
  for i, fault in ipairs(faults) do placed[i] = { line = source.line_of(tokens, fault.path), text = fault.text } end
  table.sort(placed, function(a, b)
    if a.line ~= b.line then return a.line < b.line end
    return a.text < b.text
  end)
  for i, fault in ipairs(placed) do lines[i] = message_at(path, fault.line, fault.text) end
  return lines
end

local function variable(name)
  local value = core.sys.env(name)
  return value ~= "" and value or nil
end

--- A variable that names a folder. XDG Base Directory Specification: relative ones are ignored.
local function folder_from(name)
  local value = variable(name)
  return value and value:sub(1, 1) == "/" and value or nil
end

--- The file that nobody named: nil when there is no home.
local function usual_path()
  local base = folder_from "XDG_CONFIG_HOME"
  if not base then
    local home = folder_from "HOME" or core.sys.home()
    base = home and home .. "/.config"
  end
  return base and base .. "/demilune/demilune.lua"
end

--- A folder from the root, without a slash at its end. The kernel knows where a relative one starts (proc(5)).
local function from_root(dir)
  if dir == "/" then return "" end
  if dir == "." then return "/proc/self/cwd" end
  return dir:sub(1, 1) == "/" and dir or "/proc/self/cwd/" .. dir
end

--- Every path with the folder in front, so that nobody later needs to know where the file is.
local function resolve_paths(filled)
  local function resolve(place, key)
    if place[key] then place[key] = config.resolve(filled, place[key]) end
  end
  resolve(filled.log, "file")
  resolve(filled.policy or {}, "file")
  resolve(filled.audit or {}, "file")
  local http = filled.http or {}
  resolve(http, "token_file")
  resolve(http.tls or {}, "cert")
  resolve(http.tls or {}, "key")
  resolve(http.oauth or {}, "ca_file")
  for _, provider in ipairs(filled.providers) do resolve(provider, "ca_file") end
  for i in ipairs(filled.tools) do resolve(filled.tools, i) end
  for i in ipairs(filled.provider_path) do resolve(filled.provider_path, i) end
end

--- The types of provider that the operator's own drivers serve: the names of the files in `provider_path`. What is wrong
--- with the key itself is the check's to find.
local function own_types(given, dir)
  local folders = rawget(given, "provider_path")
  if type(folders) ~= "table" then return {} end
  local types, seen = {}, { ["local"] = true, e2b = true, veryfront = true }
  for i = 1, math.min(rawlen(folders), PROVIDER_FOLDERS_MAX) do
    local folder = rawget(folders, i)
    local names = type(folder) == "string" and core.fs.list(config.resolve({ dir = dir }, folder)) or {}
    table.sort(names)
    for _, file in ipairs(names) do
      local name = file:match "^(%l[%l%d_-]*)%.lua$"
      if name and not seen[name] and #types < OWN_TYPES_MAX then
        seen[name] = true
        types[#types + 1] = name
      end
    end
  end
  return types
end

--- Checks what a file in `dir` returned.
local function checked(given, dir)
  local filled, faults = check.run(given, keys.with_types(own_types(given, dir)))
  if #faults == 0 then faults = settle.run(filled, given, from_root(dir)) end
  if #faults > 0 then return nil, faults end
  filled.dir = dir
  resolve_paths(filled)
  return filled, faults
end

--- The text of a file, or nil, one line, and whether it is that there is no such file.
local function read(path, way_out)
  local text, err = core.fs.read(path, FILE_BYTES_MAX)
  -- As luaL_loadfile does: a byte order mark and a first line that starts with # are no Lua.
  if text then return (text:gsub("^\xEF\xBB\xBF", ""):gsub("^#[^\n]*", "")) end
  local fault = READ_FAULTS[err.category] or "it cannot be read"
  return nil, one_line(path .. ": " .. fault .. "; " .. way_out), fault == ABSENT
end

local function from_text(path, text)
  local given, fault = chunk.run(text)
  if not given then
    local source = require "demilune.config.source"
    local line = fault.line or source.line_of(source.tokens(text), {})
    return nil, message_at(path, line, fault.text)
  end
  local dir = path:match "^(.*)/[^/]*$" or "."
  local filled, faults = checked(given, dir == "" and "/" or dir)
  if not filled then
    local lines = lines_of(path, text, faults)
    return nil, lines[1], lines
  end
  filled.path = path
  return filled
end

--- A path of the configuration as the program opens it: a relative one is relative to the file.
---@param loaded demilune.Config
---@param path string
---@return string
function config.resolve(loaded, path)
  if path:sub(1, 1) == "/" then return path end
  return (loaded.dir == "/" and "" or loaded.dir) .. "/" .. path
end

--- The configuration of a program that was given none.
---@return demilune.Config
function config.defaults()
  return assert(checked({}, "."))
end

--- Loads the configuration: `path`, else $DEMILUNE_CONFIG, else the usual file where it exists,
--- else the defaults. A file that was named must be there.
---@param path? string  the value of --config
---@return demilune.Config? config
---@return string? message  one line: what stands first in the file
---@return string[]? lines  where there is more than the message: every fault, in the order of the file
function config.load(path)
  assert(path == nil or type(path) == "string", "a path, or nil")
  local way_out = "name another file with --config, or leave the option out"
  local is_named = true
  if not path then
    path, way_out = variable "DEMILUNE_CONFIG", "change or unset $DEMILUNE_CONFIG, which names it"
  end
  if not path then
    path, way_out, is_named = usual_path(), "mend or remove it", false
  end
  if not path then return config.defaults() end
  local text, message, is_absent = read(path, way_out)
  if text then return from_text(path, text) end
  if is_absent and not is_named then return config.defaults() end
  return nil, message
end

return config
