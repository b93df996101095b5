--- run.lua - runs specs and C tests, each file in a process of its own, and counts.
--
--   lua5.4 spec/run.lua [--build DIR] [--name NAME] [--valgrind] TARGET…
--
-- A target is a folder (its *_spec.lua, not deeper ones), a spec file, a C test program, or a
-- JavaScript file for the Node that $DML_NODE names. Silent about files that pass; the whole output
-- of those that fail. Writes the counts to DIR/spec/counts/NAME for scripts/test, prints the skips
-- with their reasons and one closing line `N passed, N failed`.
--
-- Not `busted` itself: the one on PATH may run on Lua 5.1. A file that crashes, hangs or ends
-- without its closing line counts as one failure. A first line like `-- timeout: 120` gives a file
-- that many seconds instead of 60.

assert(_VERSION == "Lua 5.4", "run this with lua5.4, not " .. _VERSION)

local root = arg[0]:match("^(.*)/spec/run%.lua$") or "."
package.path = root .. "/?.lua;" .. root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;" .. package.path

local FILE_TIMEOUT_S = 60
local OUTPUT_BYTES = 200000
local SANITIZER_OPTIONS = "ASAN_OPTIONS=detect_leaks=0:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1"

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function capture(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("a")
  local _, how, code = pipe:close()
  return text, how == "exit" and code or 128 + code
end

--- The worker: one spec file under busted, in this process.
local function work(file)
  local build = require "spec.support.build"
  package.cpath = build.dir .. "/spec/?.so;" .. package.cpath
  -- As in the program: the core leaves measures for the whole process to main.c.
  require("spec_os").ignore_sigpipe()
  -- What the core opens for its own life is not left over: let it, before the output handler takes its snapshot.
  local ok, core = pcall(require, "demilune.core")
  if ok and type(core) == "table" and core.task and core.task.run then core.task.run(function() end) end
  arg = { [0] = "spec/run.lua", "--output=spec.support.output", file }
  require "busted.runner"({ standalone = false })
  os.exit(0, true)
end

local function parse_arguments()
  local options = { targets = {} }
  local i = 1
  while arg[i] do
    local name = arg[i]:match("^%-%-(%l+)$")
    if name == "valgrind" then
      options.valgrind = true
    elseif name == "build" or name == "name" or name == "worker" then
      i = i + 1
      options[name] = arg[i]
    else
      options.targets[#options.targets + 1] = arg[i]
    end
    i = i + 1
  end
  return options
end

local function spec_files(target)
  if not target:match("%.lua$") then
    local listed = capture(("find %s -maxdepth 1 -name '*_spec.lua' | LC_ALL=C sort"):format(quote(target)))
    local files = {}
    for file in listed:gmatch("[^\n]+") do files[#files + 1] = file end
    return files
  end
  return { target }
end

local VALGRIND = "valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --keep-debuginfo=yes"
  .. " --errors-for-leak-kinds=definite --num-callers=30 --suppressions=spec/support/valgrind.supp "

--- What stands before the interpreter, and how many times longer things may take.
local function instruments(build, options)
  if options.valgrind then return VALGRIND, 20 end
  if build.sanitize == "" then return "", 1 end
  if not build.sanitize:find("address") then return "", 3 end
  -- The lua5.4 program is not instrumented, so the run-time library must be there before the module that is.
  local compiler = build.cached(build.dir, "CMAKE_C_COMPILER") or "gcc"
  local library = capture(quote(compiler) .. " -print-file-name=libasan.so"):gsub("%s+$", "")
  return "env LD_PRELOAD=" .. quote(library) .. " ", 3
end

local function timeout_of(file)
  local handle = (file:match("%.lua$") or file:match("%.mjs$")) and io.open(file)
  if not handle then return FILE_TIMEOUT_S end
  local seconds = tonumber((handle:read("l") or ""):match("^[-/]+ timeout: (%d+)$"))
  handle:close()
  return seconds or FILE_TIMEOUT_S
end

--- Ends engines that a file left running in its scratch folder, and removes the folder.
local function clear(build, scratch)
  local locks = capture(("find %s -name engine.lock -type f 2>/dev/null"):format(quote(scratch)))
  for lock in locks:gmatch("[^\n]+") do
    local state_home = lock:match("^(.*)/demilune/engine%.lock$")
    if state_home then
      os.execute(("XDG_STATE_HOME=%s HOME=%s timeout -k 1 5 %s engine --stop >/dev/null 2>&1"):format(
        quote(state_home), quote(scratch), quote(build.program)))
    end
  end
  os.execute("rm -rf " .. quote(scratch))
end

--- Runs one file; returns its output, exit code and seconds.
local function run_file(build, options, file)
  local prefix, factor = instruments(build, options)
  local command = quote(file)
  if file:match("%.lua$") then
    command = prefix .. "lua5.4 spec/run.lua --worker " .. command
  elseif file:match("%.mjs$") then
    command = quote(os.getenv("DML_NODE") or "node") .. " " .. command
  elseif options.valgrind then
    command = prefix .. command
  end
  local scratch = capture("mktemp -d /tmp/dml-spec-XXXXXX"):gsub("%s+$", "")
  -- LeakSanitizer needs ptrace, which containers refuse; leaks are valgrind's.
  local variables = ("DML_BUILD_DIR=%s DML_SPEC_TMP=%s HOME=%s XDG_STATE_HOME=%s %s"):format(
    quote(build.dir), quote(scratch), quote(scratch), quote(scratch .. "/state"), SANITIZER_OPTIONS)
  local started = os.time()
  -- Into a file: a pipe would stay open, and be waited for, as long as any process that a broken test left behind.
  local path = scratch .. ".out"
  local _, code = capture(
    ("env -u XDG_CONFIG_HOME -u XDG_RUNTIME_DIR -u DEMILUNE_CONFIG %s timeout -k 5 %d %s >%s 2>&1 </dev/null"):format(
      variables, timeout_of(file) * factor, command, quote(path)))
  local handle = io.open(path, "rb")
  local output = handle and handle:read("a") or ""
  if handle then handle:close() end
  os.remove(path)
  clear(build, scratch)
  return output, code, os.time() - started
end

--- Control characters made visible: what a test prints may be bytes of an attack.
local function printable(text)
  return (text:gsub("[%z\1-\8\11-\31\127]", function(c) return ("\\x%02x"):format(c:byte()) end))
end

--- Adds what one file's output says to the totals; prints the output when something failed.
local function count(totals, file, output, code, seconds)
  local passed, failed
  totals.seconds[file] = seconds
  for line in output:gmatch("[^\n]+") do
    if line:match("^skip: ") then totals.skips[#totals.skips + 1] = file .. ": " .. line:sub(7) end
    if line:match("^note: ") then totals.notes[#totals.notes + 1] = line:sub(7) end
    local p, f = line:match("^(%d+) passed, (%d+) failed$")
    if p then passed, failed = math.tointeger(p), math.tointeger(f) end
  end
  local fault
  local is_late = code == 124 or (code == 137 and seconds >= timeout_of(file))
  if is_late then fault = ("stopped after %d s"):format(seconds)
  elseif not passed then fault = ("ended without its closing line, exit %d"):format(code)
  elseif code ~= 0 and failed == 0 then fault = ("exit %d after its last case"):format(code)
  end
  passed, failed = passed or 0, (failed or 0) + (fault and 1 or 0)
  totals.passed, totals.failed = totals.passed + passed, totals.failed + failed
  if failed > 0 then
    print(("---- %s: %s"):format(file, fault or failed .. " failed"))
    io.write(printable(output:sub(-OUTPUT_BYTES)), output:sub(-1) == "\n" and "" or "\n")
  end
end

local function write_counts(build, name, totals)
  os.execute("mkdir -p " .. quote(build.dir .. "/spec/counts"))
  local file = assert(io.open(build.dir .. "/spec/counts/" .. name, "w"))
  file:write(("passed %d\nfailed %d\n"):format(totals.passed, totals.failed))
  for _, skip in ipairs(totals.skips) do file:write("skip ", skip, "\n") end
  for _, note in ipairs(totals.notes) do file:write("note ", note, "\n") end
  for file_name, seconds in pairs(totals.seconds) do file:write(("took %d %s\n"):format(seconds, file_name)) end
  file:close()
end

local function main()
  local options = parse_arguments()
  if options.worker then return work(options.worker) end
  if options.build then
    -- build.lua reads the environment; a child inherits what is set for it in run_file.
    local real = os.getenv
    os.getenv = function(name) return name == "DML_BUILD_DIR" and options.build or real(name) end
  end
  local build = require "spec.support.build"
  local totals = { passed = 0, failed = 0, skips = {}, notes = {}, seconds = {} }
  for _, target in ipairs(options.targets) do
    local is_program = not target:match("%.lua$") and os.execute("test -f " .. quote(target))
    local files = is_program and { target } or spec_files(target)
    for _, file in ipairs(files) do count(totals, file, run_file(build, options, file)) end
  end
  if options.name then write_counts(build, options.name, totals) end
  for _, note in ipairs(totals.notes) do print("note: " .. note) end
  for _, skip in ipairs(totals.skips) do print("skip: " .. skip) end
  print(("%d passed, %d failed"):format(totals.passed, totals.failed))
  os.exit(totals.failed == 0 and totals.passed + #totals.skips > 0)
end

main()
