-- timeout: 120
--- The operator's own drivers, in the real server: the example, a driver that says little, drivers that are wrong.

local build = require "spec.support.build"
local demilune = require "spec.support.demilune"
local lfs = require "lfs"

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

--- Runs `body(server, home)` with a server whose provider is of type "mine", served by this file.
local function with(driver, body, more)
  local home = demilune.home()
  assert(lfs.mkdir(home .. "/p"))
  assert(lfs.mkdir(home .. "/boxes"))
  write(home .. "/p/mine.lua", driver)
  local config = ('return { provider_path = { "p" }, providers = { { id = "here", type = "mine", base = %q, %s } } }'):format(
    home .. "/boxes", more or "")
  local server = demilune.start { home = home, config = config }
  local ok, err = xpcall(body, debug.traceback, server, home)
  server:stop()
  local left = 0
  for name in lfs.dir(home .. "/boxes") do left = left + (name:find "^box" and 1 or 0) end
  demilune.remove_home(home)
  if not ok then error(err, 0) end
  assert.are.equal(0, left)
end

local function example()
  local file = assert(io.open(build.root .. "/examples/providers/directory.lua"))
  local text = file:read "a"
  file:close()
  return text
end

local function must(server, name, arguments)
  local content, err = server:call(name, arguments or {})
  if not content then error(("%s: %s (%s)"):format(name, err.category, err.message), 2) end
  return content
end

local function fault(server, name, arguments)
  local content, err = server:call(name, arguments or {})
  if content then error(name .. " worked", 2) end
  return err
end

local function soon(server, is_so)
  local deadline = os.time() + 10
  while not is_so() do
    assert(os.time() < deadline, "it never came to be so")
    server:pump(20)
  end
end

--- Whether a process is gone, or waits for a parent that does not ask.
local function has_ended(pid)
  local file = io.open("/proc/" .. pid .. "/stat")
  local stat = file and file:read "a" or ""
  if file then file:close() end
  return stat == "" or stat:match "^.*%) (%a)" == "Z"
end

local SMALL = [[return {
  network = "none", workdir = "/tmp", %s
  create = function(self, opts) return { id = "one" } end,
  kill = function(self, id) return true end,
  run = function(self, id, opts) return { exit_code = 0, stdout = table.concat(opts.argv, " "), stderr = opts.cwd } end,
}]]

describe("the example driver", function()
  it("creates, runs, writes, reads, lists and kills through the tools", function()
    with(example(), function(server, home)
      server:initialize()
      local run = must(server, "run_command", { command = "pwd; echo no >&2; exit 3" })
      assert.are.same({ 3, "no\n", true }, { run.exit_code, run.stderr, run.created })
      assert.are.equal(home .. "/boxes/" .. run.sandbox_id .. "\n", run.stdout)
      assert.are.equal(4, must(server, "write_file", { path = "d/a.txt", content = "one\n" }).bytes_written)
      assert.are.equal("one\n", must(server, "read_file", { path = "d/a.txt" }).content)
      assert.are.equal("d", must(server, "list_files").files[1].name)
      assert.are.equal("directory", must(server, "list_files").files[1].type)
      assert.are.equal("file_not_found", fault(server, "read_file", { path = "none" }).category)
      assert.are.equal("42\n", must(server, "run_code", { language = "python", code = "print(6 * 7)" }).stdout)
      local listed = must(server, "list_sandboxes").sandboxes
      assert.are.equal(run.sandbox_id, listed[1].sandbox_id)
      assert.is_string(listed[1].end_at)
      assert.is_true(must(server, "kill_sandbox").existed)
      assert.is_nil(lfs.attributes(home .. "/boxes/" .. run.sandbox_id))
      assert.are.equal("sandbox_gone", fault(server, "run_command", { command = "id", sandbox_id = run.sandbox_id }).category)
    end)
  end)

  it("is held up by no pipe in a file's place, and says what is wrong with a path", function()
    with(example(), function(server)
      server:initialize()
      must(server, "run_command", { command = "mkfifo pipe; mkdir d; echo hi > f; ln -s f link" })
      for name, arguments in pairs {
        read_file = { path = "pipe" }, write_file = { path = "pipe", content = "x" },
        download_file = { path = "/dev/zero" },
      } do
        assert.are.equal("unsupported", fault(server, name, arguments).category)
      end
      assert.are.equal("is_directory", fault(server, "read_file", { path = "d" }).category)
      assert.are.equal("is_directory", fault(server, "write_file", { path = "d", content = "x" }).category)
      assert.are.equal("not_a_directory", fault(server, "list_files", { path = "f" }).category)
      assert.are.equal("not_a_directory", fault(server, "write_file", { path = "f/x", content = "x" }).category)
      assert.are.equal("file_not_found", fault(server, "list_files", { path = "none" }).category)
      local append = { path = "f", content_base64 = "AAEC", offset = 3 }
      assert.are.equal(6, must(server, "upload_file", append).size)
      local err = fault(server, "upload_file", append)
      assert.are.same({ "conflict", "offset" }, { err.category, err.field })
      assert.are.equal("aGkKAAEC", must(server, "download_file", { path = "link" }).content_base64)
      local types = {}
      for _, entry in ipairs(must(server, "list_files").files) do types[entry.name] = entry.type end
      assert.are.same({ d = "directory", f = "file", link = "symlink", pipe = "other" }, types)
    end)
  end)

  it("ends a command at its deadline, with all that it started", function()
    with(example(), function(server)
      server:initialize()
      local run = must(server, "run_command", { command = "sleep 30 & echo $!; sleep 30", timeout = 1 })
      assert.is_true(run.timed_out)
      soon(server, function() return has_ended(run.stdout:match "%d+") end)
    end)
  end)

  it("has background tasks, made of what it runs", function()
    with(example(), function(server)
      server:initialize()
      local id = must(server, "start_background_task", { command = "echo out; sleep 30", timeout = 60 }).task_id
      soon(server, function() return must(server, "get_background_task", { task_id = id }).stdout == "out\n" end)
      assert.are.equal("cancelled", must(server, "cancel_background_task", { task_id = id }).status)
    end)
  end)

  it("ends its sandboxes at their time, which a call may move", function()
    with(example(), function(server, home)
      server:initialize()
      local id = must(server, "create_sandbox", { timeout = 600 }).sandbox_id
      must(server, "set_sandbox_timeout", { timeout = 1 })
      soon(server, function() return lfs.attributes(home .. "/boxes/" .. id) == nil end)
      assert.are.equal("sandbox_gone", fault(server, "read_file", { path = "x", sandbox_id = id }).category)
    end)
  end)
end)

describe("a driver that says little", function()
  it("is refused nothing that it declares, and asked nothing that it does not", function()
    with(SMALL:format "", function(server)
      server:initialize()
      local run = must(server, "run_command", { command = "id" })
      assert.are.equal("/tmp", run.stderr)
      assert.is_truthy(run.stdout:find("id", 1, true))
      for name, arguments in pairs {
        read_file = { path = "x" }, write_file = { path = "x", content = "" }, list_files = {},
        create_sandbox = { cpu = 1 },
      } do
        assert.are.equal("unsupported", fault(server, name, arguments).category)
      end
      assert.are.equal("unsupported", fault(server, "create_sandbox", { template = "base" }).category)
      assert.are.equal("not_found", fault(server, "get_sandbox", { sandbox_id = "two" }).category)
    end)
  end)

  it("that answers nonsense is internal, and the log says what was expected", function()
    with(SMALL:format 'read = function() return 3 end, list_dir = function() return { {} } end,', function(server, home)
      server:initialize()
      must(server, "create_sandbox")
      assert.are.equal("internal", fault(server, "read_file", { path = "x" }).category)
      assert.are.equal("internal", fault(server, "list_files").category)
      local file = assert(io.open(("%s/log/serve-%d.log"):format(demilune.state_dir(home), server.pid)))
      local log = file:read "a"
      file:close()
      assert.is_truthy(log:find("read must return at most so many bytes", 1, true))
      assert.is_truthy(log:find("list_dir must return a list", 1, true))
    end)
  end)

  it("may read a little at a time", function()
    local read = [[read = function(self, id, path, offset, length)
      local all = ("0123456789"):rep(1000)
      return all:sub(offset + 1, offset + math.min(length, 7)), #all
    end,]]
    with(SMALL:format(read), function(server)
      server:initialize()
      must(server, "create_sandbox")
      local slice = must(server, "download_file", { path = "x", offset = 9990, length = 100 })
      assert.are.same({ 10, "MDEyMzQ1Njc4OQ==" }, { slice.bytes_read, slice.content_base64 })
      assert.are.equal(10000, #must(server, "read_file", { path = "x" }).content)
    end)
  end)

  it("may give an id of no other form than its pattern", function()
    with(SMALL:format 'id_pattern = "^two$",', function(server)
      server:initialize()
      assert.are.equal("internal", fault(server, "create_sandbox").category)
      assert.are.equal("invalid_argument", fault(server, "get_sandbox", { sandbox_id = "../x" }).category)
    end)
  end)
end)

describe("a driver that is wrong", function()
  it("is refused at the start with every mistake", function()
    with('return { create = 1, kil = function() end, network = "lan", workdir = "x", supports = { gpu = true } }', function(server)
      assert.are.equal(2, server:wait(10000).code)
      for _, part in ipairs {
        "mine.lua: create is a number; write a function", "mine.lua: kill is missing", "mine.lua: run is missing",
        "unknown key kil; did you mean kill?", "network is none that is known", "workdir is no path", "supports names gpu",
      } do
        assert.is_truthy(server.stderr:find(part, 1, true), part .. "\n" .. server.stderr)
      end
    end)
  end)

  it("is refused where it cannot begin", function()
    with(SMALL:format 'new = function(entry, host) host:fail "There is no base." end,', function(server)
      assert.are.equal(2, server:wait(10000).code)
      assert.is_truthy(server.stderr:find("mine.lua: new failed: There is no base.", 1, true))
    end)
  end)

  it("is named with the line where its Lua is at fault", function()
    with("local driver = {}\nreturn driver.x.y", function(server)
      assert.are.equal(2, server:wait(10000).code)
      assert.is_truthy(server.stderr:find("mine.lua:2: ", 1, true))
    end)
  end)
end)
