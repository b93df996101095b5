--- cli/demo.lua - `demilune demo`: a whole MCP session with a server of ours, told as it happens.
--
-- The server is a child over pipes, as in a client; everything shown was answered by it. Nothing is shown that was not
-- checked, and the exit is 0 only when every step did what it should.
local checks = require "demilune.cli.checks"
local client = require "demilune.cli.client"
local core = require "demilune.core"
local errors = require "demilune.errors"
local health = require "demilune.cli.health"
local moons = require "demilune.cli.moons"
local output = require "demilune.cli.output"
local session = require "demilune.cli.session"
local style = require "demilune.cli.style"
local witness = require "demilune.cli.witness"

local task = core.task

local NAME_COLUMNS = 23
local TEXT_COLUMNS = 47
local MEGABYTE = 1024 * 1024
local NOISE_BYTES = 4096
local TASK_WAIT_S = 5
local TASK_LOOKS_MAX = 20
local SEEN_MS = 300
local GONE_MS = 2000

local INSIDE = [[
echo "$(id -un) ($(id -u)), $(ls -d /proc/[0-9]* | wc -l) processes in sight"
test -e /root -o -e /etc/shadow && echo 'files of the host' || echo 'no file of the host but programs'
getent hosts example.org || echo 'no network: a look-up fails at once']]

local LOOP = "for i in 1 2 3; do echo \"step $i of 3\"; sleep 0.15; done"

--- One run: `server` (demilune.Client), `steps` told so far, `sandbox_id`, `mark`.
local Demo = {}
Demo.__index = Demo

-- ---- telling ----

--- One step: name, what came of it, how long it took.
function Demo:tell(name, text, ms)
  self.steps = self.steps + 1
  text = style.short(text, TEXT_COLUMNS)
  local gap = (" "):rep(math.max(1, TEXT_COLUMNS + 1 - utf8.len(text)))
  output.line(style.paint("cyan", name) .. (" "):rep(NAME_COLUMNS - #name) .. text .. gap
    .. style.paint("dim", ("%5d ms"):format(ms)))
end

--- Lines of a sandbox below their step.
local function quote(text)
  for line in style.plain(text):gmatch "[^\n]+" do
    output.line((" "):rep(NAME_COLUMNS) .. style.paint("dim", "| ") .. line)
  end
end

local function expect(holds, message)
  if not holds then errors.raise("internal", { message = "The demo went wrong: " .. message .. "." }) end
end

--- A tool that has to work. The caller tells of it.
function Demo:must(name, arguments)
  local content, err, ms = self.server:call(name, arguments)
  if content then return content, ms end
  err = errors.is(err) and err or errors.new("invalid_response", { message = err.message })
  session.fail(err)
end

-- ---- the steps ----

function Demo:greet()
  local hello, ms = self.server:request("initialize", {
    protocolVersion = client.REVISION, capabilities = {}, clientInfo = { name = "demilune-demo", version = core.sys.version },
  })
  self.server:notify "notifications/initialized"
  expect(hello.protocolVersion == client.REVISION, "another protocol revision was negotiated")
  self:tell("initialize", "MCP " .. hello.protocolVersion .. ", from a server just started", ms)
  local listed, list_ms = self.server:request "tools/list"
  expect(#listed.tools > 0, "the server lists no tools")
  self:tell("tools/list", #listed.tools .. " tools", list_ms)
end

local function size_words(sandbox)
  local words = sandbox.sandbox_id
  if math.type(sandbox.cpu_count) then words = ("%s, %s cores"):format(words, sandbox.cpu_count) end
  if math.type(sandbox.memory_mb) then words = ("%s, %s MB"):format(words, sandbox.memory_mb) end
  return words
end

function Demo:create()
  local sandbox, ms = self:must("create_sandbox", { timeout = 300 })
  self.sandbox_id = sandbox.sandbox_id
  self:tell("create_sandbox", size_words(sandbox), ms)
end

function Demo:run()
  local run, ms = self:must("run_command", { command = INSIDE })
  expect(run.exit_code == 0, "a command failed in the sandbox")
  expect(not run.stdout:find "files of the host", "the sandbox sees files of the host")
  self:tell("run_command", "what a command sees in there:", ms)
  quote(run.stdout)
end

function Demo:code()
  local run, ms = self:must("run_code", { code = moons.PYTHON })
  expect(run.exit_code == 0, "Python failed in the sandbox")
  expect(#run.output_files == 1, "the file that the code made was not noticed")
  self:tell("run_code", ("Python made %s and drew:"):format(run.output_files[1].name), ms)
  output.write(style.paint("yellow", style.plain(run.stdout):gsub("\n*$", "\n")))
end

function Demo:text_files()
  local text = "a half-moon before the gate\n"
  local written, ms = self:must("write_file", { path = "notes/demilune.txt", content = text })
  self:tell("write_file", ("%s, %d bytes"):format(written.path, written.bytes_written), ms)
  local read, read_ms = self:must("read_file", { path = "notes/demilune.txt" })
  expect(read.content == text, "a file came back changed")
  self:tell("read_file", '"' .. text:gsub("\n$", "") .. '"', read_ms)
end

function Demo:bytes()
  local bytes = core.crypto.random(NOISE_BYTES):rep(MEGABYTE // NOISE_BYTES)
  local up, ms = self:must("upload_file", { path = "noise.bin", content_base64 = core.crypto.base64(bytes) })
  self:tell("upload_file", "1 MiB of noise, SHA-256 " .. up.sha256:sub(1, 12) .. "…", ms)
  local down, down_ms = self:must("download_file", { path = "noise.bin", length = MEGABYTE })
  expect(core.crypto.unbase64(down.content_base64) == bytes, "bytes came back changed")
  self:tell("download_file", "the same 1 MiB back", down_ms)
end

function Demo:background()
  local started, ms = self:must("start_background_task", { command = LOOP })
  self:tell("start_background_task", "counts while we look elsewhere", ms)
  local began = task.now_ms()
  local seen = {}
  for _ = 1, TASK_LOOKS_MAX do
    local look = self:must("get_background_task", { task_id = started.task_id, wait = TASK_WAIT_S })
    local newest = look.stdout:match "([^\n]+)\n*$"
    if look.status == "running" and newest and newest ~= seen[#seen] then seen[#seen + 1] = newest end
    if look.status ~= "running" then
      expect(look.status == "succeeded" and newest == "step 3 of 3", "the task ended as " .. look.status)
      self:tell("get_background_task", "running, … succeeded: " .. newest, task.now_ms() - began)
      return
    end
    task.sleep(20)
  end
  expect(false, "the task does not end")
end

--- A process that nobody will end: what the end of the session has to take with it. Its argument is found again.
function Demo:leave_process()
  self.mark = ("300.%d"):format(math.random(10 ^ 8, 10 ^ 9 - 1))
  local _, ms = self:must("run_command", { command = "sleep " .. self.mark .. " >/dev/null 2>&1 &" })
  -- The shell's child needs a moment to become it. Where /proc hides processes it is never seen.
  local deadline = task.now_ms() + SEEN_MS
  while witness.count(self.mark) == 0 and task.now_ms() < deadline do task.sleep(5) end
  local is_seen = witness.count(self.mark) > 0
  self:tell("run_command", "leaves a process" .. (is_seen and ", seen in the host's /proc" or ""), ms)
end

--- Waits until the sandbox is not listed and its process is not there. Returns whether that came.
local function is_gone(own_session, demo)
  local deadline = task.now_ms() + GONE_MS
  while true do
    local is_listed = false
    for _, sandbox in ipairs(own_session:must("list_sandboxes", {}).sandboxes) do
      is_listed = is_listed or sandbox.sandbox_id == demo.sandbox_id
    end
    if not is_listed and witness.count(demo.mark) == 0 then return true end
    if task.now_ms() > deadline then return false end
    task.sleep(20)
  end
end

--- The end of stdin ends the server; a look from outside shows that the sandbox went with it.
function Demo:leave(options)
  local ended, ms = self.server:stop()
  self.server = nil
  expect(ended.code == 0, "the server ended badly")
  self:tell("end of stdin", "the server left, exit 0", ms)
  local began = task.now_ms()
  session.run(options, function(own_session)
    expect(is_gone(own_session, self), "the sandbox outlived its server")
  end)
  self:tell("nothing left", "the sandbox, its process and files are gone", task.now_ms() - began)
end

-- ---- around it ----

local function argv_of(options)
  local argv = { core.sys.executable(), "serve" }
  if options.config then table.move({ "--config", options.config }, 1, 2, #argv + 1, argv) end
  return argv
end

--- An engine that the demo has started and nobody else uses is not left behind.
local function stop_engine(was_running)
  local state = health.state()
  if was_running or not state.ok then return end
  local engine = health.engine(state)
  if not engine.running or engine.sandboxes ~= 0 then return end
  local engine_start = require "demilune.engine_start"
  local socket = require("demilune.state").engine_socket()
  engine_start.stop(socket)
  local deadline = task.now_ms() + GONE_MS
  while engine_start.is_running(socket) and task.now_ms() < deadline do task.sleep(10) end
end

local function close_up(self)
  if self.server then self.server:stop() end
end

local function play(self, options)
  self:greet()
  self:create()
  self:run()
  self:code()
  self:text_files()
  self:bytes()
  self:background()
  self:leave_process()
  self:leave(options)
end

local function explain(err)
  if err.category == "local_isolation_unavailable" then
    output.write("\nSandboxes cannot work on this machine yet:\n" .. checks.faults(health.isolation()))
    errors.raise(err.category, { message = "The demo ended early: this machine cannot isolate a sandbox." })
  end
  error(err, 0)
end

return {
  name = "demo",
  summary = "Play a whole MCP session with a sandbox, and show it.",
  usage = "demo",
  help = [[
Starts demilune serve as a client does, creates a sandbox, runs a command and Python
in it, moves files both ways, runs a background task, ends everything and checks that
nothing is left. Takes about a second. Exit 0 when every step worked.]],
  options = {},
  run = function(options)
    session.config(options)
    local began = task.now_ms()
    local state = health.state()
    if not state.ok then errors.raise("internal", { message = state.cause }) end
    local was_running = health.engine(state).running
    output.line(style.paint("bold", "demilune " .. core.sys.version)
      .. ": an MCP session over pipes, as an agent would have it\n")
    local self = setmetatable({ server = client.start(argv_of(options)), steps = 0 }, Demo)
    local ok, err = pcall(play, self, options)
    close_up(self)
    stop_engine(was_running)
    if not ok then
      if errors.is(err) then explain(err) end
      error(err, 0)
    end
    output.line(style.paint("green", ("\nAll %d steps worked, in %.1f s."):format(self.steps, (task.now_ms() - began) / 1000))
      .. " Give your MCP client this command:\n\n    " .. core.sys.executable() .. " serve\n")
    return 0
  end,
}
