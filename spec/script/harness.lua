--- What specs of this folder need when they start another Lua that loads the core.

local build = require "spec.support.build"

local harness = {}

--- The command that such a Lua starts with: under the address sanitizer its library must be there before the core.
---@return string
function harness.interpreter()
  if not build.sanitize:find "address" then return "lua5.4" end
  local compiler = build.cached(build.dir, "CMAKE_C_COMPILER") or "gcc"
  local pipe = assert(io.popen(compiler .. " -print-file-name=libasan.so"))
  local library = pipe:read "l"
  pipe:close()
  return ("env LD_PRELOAD='%s' ASAN_OPTIONS=detect_leaks=0:exitcode=99 lua5.4"):format(library)
end

--- Whether this process runs under valgrind.
---@return boolean
function harness.is_valgrind()
  local maps = assert(io.open "/proc/self/maps")
  local found = maps:read("a"):find("vgpreload", 1, true)
  maps:close()
  return found ~= nil
end

return harness
