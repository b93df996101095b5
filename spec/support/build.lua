--- Where the build under test is, and what kind it is.
--
-- `DML_BUILD_DIR` names it (spec/run.lua sets it); without that it is `build` in the checkout.

---@class spec.build
---@field root string     the checkout, absolute
---@field dir string      the build directory, absolute
---@field program string  the demilune program
---@field sanitize string "" or the sanitizers it was built with
local build = {}

--- The value of a variable of a build's CMake cache.
---@param dir string
---@param name string
---@return string? value
function build.cached(dir, name)
  local file = io.open(dir .. "/CMakeCache.txt")
  if not file then return nil end
  for line in file:lines() do
    local key, value = line:match("^([%w_]+):%u+=(.*)$")
    if key == name then
      file:close()
      return value
    end
  end
  file:close()
  return nil
end

local function absolute(path)
  local pipe = assert(io.popen("readlink -m -- '" .. path:gsub("'", "'\\''") .. "'"))
  local full = pipe:read("l")
  pipe:close()
  return full
end

local here = debug.getinfo(1, "S").source:match("^@(.*)spec/support/build%.lua$")
build.root = absolute(here == "" and "." or here)
build.dir = absolute(os.getenv("DML_BUILD_DIR") or build.root .. "/build")
build.program = build.dir .. "/demilune"
build.sanitize = build.cached(build.dir, "DML_SANITIZE") or ""

return build
