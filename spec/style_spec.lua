--- The size and form of the code: prints the distribution, fails at the limits.

local build = require "spec.support.build"
local sources = require "spec.support.sources"

local function listed(found) return table.concat(found, "\n") end

local FUNCTION_LINES_MAX = 120
local FILE_LINES_MAX = 800
-- What .editorconfig and .clang-format aim at is 120; a long word may stand over.
local COLUMNS_MAX = 132

-- Each is refused in src: a C call by name, why, and where it may stand all the same (Lua patterns of the path). The
-- in-sandbox program, src/agent, is a process of its own and no library.
local BANNED_C = {
  { "strcpy", "no limit" },
  { "strcat", "no limit" },
  { "stpcpy", "no limit" },
  { "sprintf", "no limit" },
  { "vsprintf", "no limit" },
  { "gets", "no limit" },
  { "alloca", "no limit" },
  { "strtok", "hidden state" },
  { "localtime", "hidden state" },
  { "gmtime", "hidden state" },
  { "ctime", "hidden state" },
  { "asctime", "hidden state" },
  { "setenv", "the process is main's", "^src/main%.c$" },
  { "putenv", "the process is main's", "^src/main%.c$" },
  { "atoi", "no errors" },
  { "atol", "no errors" },
  { "rand", "not random" },
  { "srand", "not random" },
  { "tmpnam", "a race" },
  { "mktemp", "a race" },
  { "system", "a shell" },
  { "popen", "a shell" },
  { "uv_spawn", "takes SIGCHLD" },
  { "vfork", "posix_spawn does it", "^src/agent/" },
  { "exit", "a library does not end its host", "^src/main%.c$", "^src/agent/" },
  { "abort", "a library does not end its host", "^src/agent/" },
  { "printf", "stdout is the protocol's", "^src/main%.c$" },
  { "puts", "stdout is the protocol's", "^src/main%.c$" },
  { "putchar", "stdout is the protocol's" },
  { "perror", "the log does that" },
  { "lua_call", "raises through the loop", "^src/script/", "^src/fence/" },
}

local function is_text(path)
  return not path:match("%.png$") and not path:match("%.jpe?g$") and not path:match("%.gz$")
    and not path:match("^spec/fixtures/.*%.bin$")
end

local function line_count(path)
  local _, breaks = sources.read(path):gsub("\n", "\n")
  return breaks
end

local function quantile(sorted, q)
  return sorted[math.max(1, math.ceil(#sorted * q))] or 0
end

--- "12 C functions: median 8, p90 30, longest 61 lines"
local function distribution(what, numbers)
  table.sort(numbers)
  return ("%d %s: median %d, p90 %d, longest %d lines"):format(
    #numbers, what, quantile(numbers, 0.5), quantile(numbers, 0.9), numbers[#numbers] or 0)
end

local function check_functions(what, functions)
  local lengths, too_long = {}, {}
  for _, fn in ipairs(functions) do
    lengths[#lengths + 1] = fn.lines
    if fn.lines > FUNCTION_LINES_MAX then
      too_long[#too_long + 1] = ("%s:%d %s has %d lines"):format(fn.path, fn.line, fn.name, fn.lines)
    end
  end
  print("note: " .. distribution(what, lengths))
  assert.are.equal("", listed(too_long))
end

local function check_files(what, pattern)
  local lengths, too_long = {}, {}
  for _, path in ipairs(sources.files(pattern)) do
    local lines = line_count(path)
    lengths[#lengths + 1] = lines
    if lines > FILE_LINES_MAX then too_long[#too_long + 1] = ("%s has %d lines"):format(path, lines) end
  end
  print("note: " .. distribution(what, lengths))
  assert.are.equal("", listed(too_long))
end

--- Places where `check(line, path)` gives a reason, over all text files of the project that match.
local function offences(pattern, check)
  local found = {}
  for _, path in ipairs(sources.files(pattern)) do
    if is_text(path) then
      local number = 0
      for line in (sources.read(path) .. "\n"):gmatch("(.-)\n") do
        number = number + 1
        local reason = check(line, path)
        if reason then found[#found + 1] = ("%s:%d %s"):format(path, number, reason) end
      end
    end
  end
  return found
end

local function wide_lines(pattern, limit)
  return offences(pattern, function(line)
    local columns = utf8.len(line) or #line
    return columns > limit and ("has %d columns"):format(columns) or nil
  end)
end

local function all_functions(pattern, read)
  local found = {}
  for _, path in ipairs(sources.files(pattern)) do
    for _, fn in ipairs(read(path)) do found[#found + 1] = fn end
  end
  return found
end

describe("the size of", function()
  it("C functions is at most 120 lines", function()
    check_functions("C functions", all_functions("^src/.*%.[ch]$", sources.c_functions))
  end)

  it("Lua functions is at most 120 lines", function()
    check_functions("Lua functions", all_functions("^lua/.*%.lua$", sources.lua_functions))
  end)

  it("C files is at most 800 lines", function()
    check_files("C files", "^src/.*%.[ch]$")
  end)

  it("Lua files is at most 800 lines", function()
    check_files("Lua files", "^lua/.*%.lua$")
  end)

  it("specs is at most 800 lines a file", function()
    check_files("spec files", "^spec/.*%.[chlm][uj]?[as]?$")
  end)
end)

describe("the form of the files", function()
  it("has no space at the end of a line, no tab and no carriage return", function()
    assert.are.equal("", listed(offences(nil, function(line, path)
      if path:match("package%-lock%.json$") or path:match("^LICENSE$") then return nil end
      if line:match("[ \t]$") then return "ends with a space" end
      if line:match("\r") then return "has a carriage return" end
      if line:match("\t") and not path:match("Makefile$") then return "has a tab" end
      return nil
    end)))
  end)

  it("ends every file with one line break", function()
    local bad = {}
    for _, path in ipairs(sources.files()) do
      local text = is_text(path) and sources.read(path) or ""
      if text ~= "" and (text:sub(-1) ~= "\n" or text:sub(-2) == "\n\n") then bad[#bad + 1] = path end
    end
    assert.are.equal("", listed(bad))
  end)

  it("names no path of a machine and no package registry", function()
    -- In pieces, so that this file does not hold what it forbids.
    local machine = "/%f[%a]" .. "(%a+)" .. "/(%a+)"
    local roots, below = { work = true, farm = true }, { main = true, steering = true, shared = true, ["in"] = true }
    assert.are.equal("", listed(offences(nil, function(line)
      for root, folder in line:gmatch(machine) do
        if roots[root] and below[folder] then return "names a path of a machine" end
      end
      local is_registry = line:match("https?://" .. "registry%.") or line:match("https?://" .. "deb%.")
      return is_registry and "names a registry" or nil
    end)))
  end)

  it("is valid UTF-8", function()
    local bad = {}
    for _, path in ipairs(sources.files()) do
      if is_text(path) and not utf8.len(sources.read(path)) then bad[#bad + 1] = path end
    end
    assert.are.equal("", listed(bad))
  end)
end)

describe("the C code", function()
  it("calls nothing that is banned", function()
    local found = {}
    for _, path in ipairs(sources.files("^src/.*%.[ch]$")) do
      local code = sources.bare_c(sources.read(path))
      for _, rule in ipairs(BANNED_C) do
        local name, why = rule[1], rule[2]
        local is_exempt = path:find(rule[3] or "^$") or path:find(rule[4] or "^$")
        for at in code:gmatch("()%f[%w_]" .. name .. "%s*%(") do
          local before = code:sub(math.max(1, at - 2), at - 1)
          if not is_exempt and not before:match("%.$") and not before:match("->$") then
            local _, line = code:sub(1, at):gsub("\n", "\n")
            found[#found + 1] = ("%s:%d %s: %s"):format(path, line + 1, name, why)
          end
        end
      end
    end
    assert.are.equal("", listed(found))
  end)

  it("has no line comment", function()
    local found = {}
    for _, path in ipairs(sources.files("^src/.*%.[ch]$")) do
      local bare = sources.read(path):gsub("/%*.-%*/", ""):gsub('"[^"\n]*"', '""')
      if bare:match("//") then found[#found + 1] = path end
    end
    assert.are.equal("", listed(found))
  end)

  it("has lines of at most 132 columns", function()
    assert.are.equal("", listed(wide_lines("%.[ch]$", COLUMNS_MAX)))
  end)

  it("starts every file with what it is", function()
    local bad = {}
    for _, path in ipairs(sources.files("^src/.*%.[ch]$")) do
      local name = path:match("[^/]+$")
      if sources.read(path):sub(1, #name + 6) ~= "/* " .. name .. " - " then bad[#bad + 1] = path end
    end
    assert.are.equal("", listed(bad))
  end)

  it("keeps no mutable global", function()
    local objects = build.dir .. "/CMakeFiles/dml_core.dir"
    if build.sanitize ~= "" then return pending("sanitizers add globals of their own") end
    local pipe = assert(io.popen(("find '%s' -name '*.o' -exec objdump -t {} + 2>/dev/null"):format(objects)))
    local found, symbols, file = {}, 0, "?"
    for line in pipe:lines() do
      file = line:match("([^/]+/[^/]+)%.o:") or file
      local section, name = line:match("^%x+ .......%s*(%S+)%s+%x+%s+(.+)$")
      if section then symbols = symbols + 1 end
      -- .data.rel.ro holds constant tables of pointers.
      local is_variable = section and (section:match("^%.data") or section:match("^%.t?bss") or section == "*COM*")
      if is_variable and not section:match("^%.data%.rel%.ro") and not name:match("^%.") then
        found[#found + 1] = file .. ": " .. name
      end
    end
    pipe:close()
    if symbols == 0 then return pending("no objects in " .. objects) end
    assert.are.equal("", listed(found))
  end)
end)

describe("the Lua code", function()
  it("has lines of at most 132 columns", function()
    assert.are.equal("", listed(wide_lines("%.lua$", COLUMNS_MAX)))
  end)

  it("starts every file with what it is", function()
    local bad = {}
    for _, path in ipairs(sources.files("^lua/.*%.lua$")) do
      local text = sources.read(path)
      if text:sub(1, 4) ~= "--- " and text:sub(1, 8) ~= "---@meta" then bad[#bad + 1] = path end
    end
    assert.are.equal("", listed(bad))
  end)

  it("passes luacheck", function()
    if not os.execute("command -v luacheck >/dev/null") then return pending("luacheck is not installed") end
    local pipe = assert(io.popen("cd '" .. build.root .. "' && luacheck -q --no-color lua spec examples bench 2>&1"))
    local output = pipe:read("a")
    assert(pipe:close(), output)
  end)
end)

describe("the scripts", function()
  it("pass shellcheck", function()
    if not os.execute("command -v shellcheck >/dev/null") then return pending("shellcheck is not installed") end
    local scripts = {}
    for _, path in ipairs(sources.files()) do
      if is_text(path) and sources.read(path):match("^#!/usr/bin/env bash") then scripts[#scripts + 1] = path end
    end
    assert.is_true(#scripts >= 4)
    local pipe = assert(io.popen("cd '" .. build.root .. "' && shellcheck " .. table.concat(scripts, " ") .. " 2>&1"))
    local output = pipe:read("a")
    assert(pipe:close(), output)
    for _, path in ipairs(scripts) do assert.truthy(sources.read(path):find("set %-euo pipefail"), path) end
  end)
end)
