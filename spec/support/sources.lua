--- The project's own files, and what the specs about layers, style and docs read in them.
--
-- These readers are no parsers: they lean on the formatting that .clang-format and the style rules
-- prescribe (a function starts in column 0 and ends with a brace in column 0), and say nothing about
-- code that is formatted otherwise.

local build = require "spec.support.build"
local lfs = require "lfs"

---@class spec.sources
local sources = {}

local function lines_of(command)
  local pipe = assert(io.popen("cd '" .. build.root .. "' && " .. command))
  local found = {}
  for line in pipe:lines() do found[#found + 1] = line end
  assert(pipe:close(), "failed: " .. command)
  return found
end

local function read_lines(path)
  local found = {}
  for line in io.lines(path) do found[#found + 1] = line end
  return found
end

--- Files of the checkout that belong to the project (tracked, or new and not ignored), relative, sorted.
---@param pattern? string  Lua pattern that the path must match
---@return string[]
function sources.files(pattern)
  local listed
  if os.execute("cd '" .. build.root .. "' && git rev-parse --git-dir >/dev/null 2>&1") then
    listed = lines_of("git ls-files -co --exclude-standard | LC_ALL=C sort -u")
  else
    listed = lines_of("find . -type f -not -path './.git/*' -not -path '*/node_modules/*' -not -path './build*'"
      .. " | sed 's,^./,,' | LC_ALL=C sort")
  end
  local found = {}
  for _, path in ipairs(listed) do
    local is_there = lfs.attributes(build.root .. "/" .. path, "mode") == "file"
    if is_there and (not pattern or path:find(pattern)) then found[#found + 1] = path end
  end
  return found
end

--- The whole text of a file of the checkout.
---@param path string
---@return string
function sources.read(path)
  local file = assert(io.open(build.root .. "/" .. path, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

--- The text of a C file with comments and the insides of strings and characters blanked; line breaks stay.
---@param text string
---@return string
function sources.bare_c(text)
  local out, i = {}, 1
  local function blank(to)
    out[#out + 1] = (text:sub(i, to):gsub("[^\n]", " "))
    i = to + 1
  end
  while i <= #text do
    local two, one = text:sub(i, i + 1), text:sub(i, i)
    if two == "/*" then
      local _, stop = text:find("*/", i + 2, true)
      blank(stop or #text)
    elseif two == "//" then
      blank((text:find("\n", i, true) or #text + 1) - 1)
    elseif one == '"' or one == "'" then
      local stop = i + 1
      while stop <= #text and text:sub(stop, stop) ~= one do
        stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
      end
      out[#out + 1] = one
      i = i + 1
      blank(stop - 1)
      out[#out + 1] = one
      i = stop + 1
    else
      out[#out + 1] = one
      i = i + 1
    end
  end
  return table.concat(out)
end

---@class spec.Function
---@field path string
---@field name string
---@field line integer  where it starts
---@field lines integer how many lines it has

--- Functions defined in a C file.
---@param path string
---@return spec.Function[]
function sources.c_functions(path)
  local found = {}
  local start, name
  local pending = {} -- the lines of a definition's head, which may take several
  local number = 0
  for line in (sources.bare_c(sources.read(path)) .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    if start then
      if line:match("^}") then
        found[#found + 1] = { path = path, name = name, line = start, lines = number - start + 1 }
        start = nil
      end
    else
      if line:match("^[%a_]") then pending = { line = number } end
      pending[#pending + 1] = line
      local head = table.concat(pending, " ")
      if pending.line and head:match("%)%s*{") and not head:match("^typedef") and not head:match("=") then
        name = head:match("([%w_]+)%s*%(") or "?"
        if line:match("}%s*$") then
          found[#found + 1] = { path = path, name = name, line = pending.line, lines = number - pending.line + 1 }
        else
          start = pending.line
        end
        pending = {}
      elseif line:match("[;}]%s*$") or line:match("^#") then
        pending = {}
      end
    end
  end
  return found
end

--- Functions in a Lua file, nested ones too, as the compiler sees them. The main chunk is not one.
---@param path string
---@return spec.Function[]
function sources.lua_functions(path)
  local found = {}
  for _, line in ipairs(lines_of("luac5.4 -l -p '" .. path .. "'")) do
    local first, last = line:match("^function <.*:(%d+),(%d+)>")
    if first then
      first, last = math.tointeger(first), math.tointeger(last)
      found[#found + 1] = { path = path, name = "line " .. first, line = first, lines = last - first + 1 }
    end
  end
  return found
end

--- What a C file includes: { name = "base/status.h", is_system = false, line = 3 }.
---@param path string
---@return { name: string, is_system: boolean, line: integer }[]
function sources.includes(path)
  local found = {}
  for number, line in ipairs(read_lines(build.root .. "/" .. path)) do
    local open, name = line:match('^%s*#%s*include%s*([<"])([^>"]+)[>"]')
    if name then found[#found + 1] = { name = name, is_system = open == "<", line = number } end
  end
  return found
end

--- The modules a Lua file requires by a literal name.
---@param path string
---@return { name: string, line: integer }[]
function sources.requires(path)
  local found = {}
  for number, line in ipairs(read_lines(build.root .. "/" .. path)) do
    local code = line:gsub("^%s*%-%-.*$", ""):gsub("%s%-%-%s.*$", "")
    for name in code:gmatch("require%s*%(?%s*[\"']([%w_.]+)[\"']") do
      found[#found + 1] = { name = name, line = number }
    end
  end
  return found
end

return sources
