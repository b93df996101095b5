--- The program and its secrets: nothing of them in its environment, its children's, its files, or anything it says.

local build = require "spec.support.build"
local canary = require "spec.support.canary"
local cjson = require "cjson"
local demilune = require "spec.support.demilune"
local lfs = require "lfs"
local os_calls = require "spec_os"

local CONFIG = [[
return {
  providers = { { id = "here", type = "local" } },
  credentials = { key = { source = "env:SPEC_CLOUD_KEY" }, other = { source = "env:SPEC_OTHER_KEY" } },
}
]]

local function read_whole(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

--- All live processes whose environment names this home.
local function processes_of(home)
  local found = {}
  for entry in lfs.dir "/proc" do
    local file = entry:find "^%d+$" and io.open("/proc/" .. entry .. "/environ", "rb")
    if file then
      local text = file:read "a" or ""
      file:close()
      if text:find(home, 1, true) then found[#found + 1] = { pid = math.tointeger(tonumber(entry)), environ = text } end
    end
  end
  return found
end

describe("the program", function()
  it("keeps keys of its environment out of all that can be seen of it", function()
    local key, other = canary.new(), canary.new()
    local server = demilune.start { config = CONFIG, env = { SPEC_CLOUD_KEY = key, SPEC_OTHER_KEY = other } }
    finally(function() server:stop() end)
    server:initialize "2025-11-25"
    local result = server:call("run_command", { command = ("echo %s; env; echo %s >&2"):format(key, other) })
    assert.are.equal(0, result.exit_code)
    assert.is_truthy(result.stdout:find("[redacted]", 1, true))
    assert.are.equal("[redacted]\n", result.stderr)
    for _, form in pairs(canary.forms(key)) do
      server:call("run_command", { command = ("printf '%%s' '%s'; exit 3"):format(form:gsub("'", "")) })
      server:call("write_file", { path = "/home/user/" .. form:gsub("/", "_"), content = form })
    end
    server:call("list_files", { path = "/home/user" })
    -- Pieces that each hold a part of it: named where it begins, and left out of the others.
    local hex, parts, offset = "/home/user/" .. canary.forms(key).hex, {}, 0
    repeat
      local part = assert(server:call("download_file", { path = hex, offset = offset, length = 20 }))
      parts[#parts + 1], offset = part.content_base64, offset + part.bytes_read
    until part.next_offset == cjson.null
    assert.are.equal(#canary.forms(key).hex, offset)
    assert.are.equal("W3JlZGFjdGVkXQ==", table.concat(parts))
    local seen = processes_of(server.home)
    assert.is_true(#seen >= 1, "the server's own environment can be read here")
    for _, process in ipairs(seen) do
      for _, secret in ipairs { key, other } do assert.is_nil(canary.find(process.environ, secret), tostring(process.pid)) end
    end
    local state = demilune.state_dir(server.home)
    for _, secret in ipairs { key, other } do
      assert.is_nil(canary.find_in(state .. "/log", secret))
      assert.is_nil(canary.find(server.stdout .. server.stderr, secret))
    end
  end)

  it("masks what a command of it writes, on both outputs", function()
    local key = canary.new()
    local options = { config = CONFIG, env = { SPEC_CLOUD_KEY = key } }
    local both = cjson.encode { command = ("echo %s; echo %s >&2"):format(key, key) }
    for _, args in ipairs {
      { "call", "no_tool_" .. key }, { "call", "run_command", both },
      { "call", "--json", "run_command", cjson.encode { command = "echo " .. key } }, { "doctor" }, { "doctor", "--json" },
    } do
      local done = demilune.run(args, options)
      assert.is_nil(canary.find(done.stdout .. done.stderr, key), args[#args])
      assert.is_true(#done.stdout + #done.stderr > 0)
    end
  end)

  it("cannot be looked into by others of its user", function()
    if build.sanitize ~= "" then pending "sanitizer builds stay traceable" end
    local server = demilune.start { config = CONFIG, env = { SPEC_CLOUD_KEY = canary.new() } }
    finally(function() server:stop() end)
    server:initialize "2025-11-25"
    -- Files of a process that is not dumpable belong to root, whoever runs it: proc(5).
    assert.are.equal(0, lfs.attributes(("/proc/%d/environ"):format(server.pid), "uid"))
    assert.is_truthy(read_whole(("/proc/%d/limits"):format(server.pid)):find "Max core file size%s+0%s+0")
    if (os_calls.ids()) == 0 then assert.is_truthy(io.open(("/proc/%d/environ"):format(server.pid))):close()
    else assert.is_nil(io.open(("/proc/%d/environ"):format(server.pid))) end
  end)
end)
