--- What the e2b driver adds where envd is not our engine's: why nothing starts, when a command is over, who asks, what hangs.

local cloud = require "spec.e2b.cloud"
local connect = require "demilune.connect"
local core = require "demilune.core"
local envd = require "demilune.envd"
local files = require "demilune.e2b.files"
local processes = require "demilune.e2b.processes"

local json = core.json

local function answer(req, status, value)
  req:respond(status, { ["Content-Type"] = "application/json" }, json.encode(value))
  return true
end

local function event(fields) return connect.message { event = fields } end

--- Answers a Start with these frames, and then its end, unless it is to be left open.
local function stream(req, frames, is_open)
  req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
  req:write(event { start = { pid = 7 } })
  for _, frame in ipairs(frames) do req:write(frame) end
  if is_open then
    core.task.sleep(3000)
  else
    req:write(connect.ending())
  end
  req:finish()
  return true
end

local function said(text) return event { data = { stdout = core.crypto.base64(text) } } end

local function ended(code) return event { ["end"] = { exitCode = code, exited = code >= 0 } } end

local function message_of(body)
  local decoder = connect.decoder(1 << 20)
  decoder:feed(body)
  return connect.object(select(2, decoder:next()))
end

--- A service with the sandbox x1; `process(req, process)` answers a Start, `other(req, body)` the rest of the data plane.
local function with(process, fn, fields, other)
  cloud.with({}, function(req, body)
    if req.path:find "^/sandboxes/" then return answer(req, 200, cloud.detail(fields)) end
    if req.path:find "Start$" then return process(req, message_of(body).process, body) end
    if other and other(req, body) then return end
    req:respond(500, {}, "")
  end, fn)
end

local function run(self, arguments)
  local all = { command = "a", sandbox_id = "x1" }
  for name, value in pairs(arguments or {}) do all[name] = value end
  return self:call("run_command", all)
end

--- Answers like an envd that refuses to start a process; a script of ours gets `words`.
local function refusing(words, starts)
  return function(req, process)
    if process.args[2] == processes.WHY then return stream(req, { said(words), ended(0) }) end
    if starts and process.cmd == starts then return stream(req, { said "ran\n", ended(0) }) end
    req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
    req:write(connect.ending { code = "invalid_argument", message = "SECRET" })
    req:finish()
  end
end

describe("a command that envd does not start", function()
  it("has a directory at fault where a script says so", function()
    for words, category in pairs {
      ["cwd file_not_found\n"] = "file_not_found", ["cwd not_a_directory\n"] = "not_a_directory",
      ["cwd file_permission\n"] = "file_permission",
    } do
      with(refusing(words), function(self)
        local _, err = run(self, { cwd = "/nope" })
        assert.are.same({ category, "cwd" }, { err.category, err.field }, words)
      end)
    end
  end)

  it("is run with sh where there is no bash, which is asked once", function()
    with(refusing("program\n", "/bin/sh"), function(self)
      assert.are.equal("ran\n", assert(run(self)).stdout)
      local before = #self:sent "Start$"
      assert.are.equal("ran\n", assert(run(self)).stdout)
      assert.are.equal(before + 1, #self:sent "Start$")
    end)
  end)

  it("is what the service meant where the script does not know either", function()
    for _, words in ipairs { "", "nonsense", "cwd nonsense\n", "cwd disk_full\n" } do
      with(refusing(words), function(self)
        local _, err = run(self)
        assert.are.equal("provider_rejected", err.category, words)
        assert.is_nil(json.encode(err):find("SECRET", 1, true))
      end)
    end
  end)
end)

describe("a command is over", function()
  local quiet_ms = envd.QUIET_MS
  before_each(function() envd.QUIET_MS = 30 end)
  after_each(function() envd.QUIET_MS = quiet_ms end)

  it("when its shell has ended, though another holds its pipes", function()
    local looks = 0
    with(function(req, process)
      if process.args[2] ~= processes.LOOK then return stream(req, { said "hi\n" }, true) end
      looks = looks + 1
      assert.are.equal("7", process.args[4])
      return stream(req, { said(looks < 3 and "" or "ended 1280\n"), ended(0) })
    end, function(self)
      local result = assert(run(self, { timeout = 20 }))
      assert.are.same({ "hi\n", 5, false, 3 }, { result.stdout, result.exit_code, result.timed_out, looks })
    end)
  end)

  it("by a signal when that is what ended its shell, and not for what no look says", function()
    for words, expected in pairs { ["ended 9\n"] = json.null, ["ended 0\n"] = 0 } do
      with(function(req, process)
        if process.args[2] ~= processes.LOOK then return stream(req, {}, true) end
        return stream(req, { said(words), ended(0) })
      end, function(self)
        assert.are.equal(expected, assert(run(self)).exit_code)
      end)
    end
    with(function(req, process)
      if process.args[2] == processes.LOOK then return stream(req, { said "ended nonsense\nended 0\n", ended(0) }) end
      req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
      req:write(event { start = { pid = 7 } })
      core.task.sleep(150)
      req:write(ended(4))
      req:write(connect.ending())
      req:finish()
    end, function(self)
      assert.are.equal(4, assert(run(self)).exit_code)
    end)
  end)

  it("timed out when it was killed at its deadline, whichever is told first", function()
    with(function(req, process)
      if #process.args ~= 3 then return stream(req, { ended(0) }) end
      req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
      req:write(event { start = { pid = 7 } })
      req:write(said "part")
      core.task.sleep(1050)
      req:write(ended(-1))
      req:write(connect.ending())
      req:finish()
    end, function(self)
      local result = assert(run(self, { timeout = 1 }))
      assert.are.same({ "part", true, json.null }, { result.stdout, result.timed_out, result.exit_code })
    end)
  end)
end)

describe("a cancel", function()
  it("ends the command by its mark, within a second", function()
    local mark, swept_ms
    with(function(req, process)
      if process.envs and process.envs.DEMILUNE_RUN then
        mark = process.envs.DEMILUNE_RUN
        return stream(req, {}, true)
      end
      if process.args[4] == mark then swept_ms = core.task.now_ms() end
      return stream(req, { ended(0) })
    end, function(self)
      local call = core.task.spawn(function() run(self) end)
      while not mark do core.task.sleep(5) end
      local from = core.task.now_ms()
      call:cancel()
      call:wait(3000)
      assert.is_true(swept_ms - from < 1000)
      assert.is_true(core.task.now_ms() - from < 1000)
    end)
  end)
end)

describe("an envd of before 0.4.0", function()
  it("is told the user, in a header for processes and in the query for files", function()
    local seen = {}
    with(function(req)
      seen.start = req.headers.authorization
      return stream(req, { said "ok 1\n", ended(0) })
    end, function(self)
      assert(self:call("write_file", { path = "/tmp/a", content = "x", sandbox_id = "x1" }))
      assert(self:call("download_file", { path = "/tmp/a", sandbox_id = "x1" }))
      assert.are.same({ "Basic dXNlcjo=", { "user" }, { "user" } }, { seen.start, { seen.POST }, { seen.GET } })
    end, { envdVersion = "0.3.5" }, function(req)
      if req.path ~= "/files" then return false end
      seen[req.method] = req.query.username
      assert.is_nil(req.headers.authorization)
      if req.method == "POST" then return answer(req, 200, json.array {}) end
      req:respond(206, { ["Content-Range"] = "bytes 0-0/1" }, "x")
      return true
    end)
  end)
end)

describe("a file that does not answer", function()
  local patience_ms = files.PATIENCE_MS
  before_each(function() files.PATIENCE_MS = 50 end)
  after_each(function() files.PATIENCE_MS = patience_ms end)

  it("is looked at: a pipe is refused, a slow one is waited for", function()
    local words
    for _, row in ipairs { { "refused unsupported\n", "unsupported" }, { "ok 3\n", nil } } do
      words = row[1]
      local gets = 0
      with(function(req) return stream(req, { said(words), ended(0) }) end, function(self)
        local result, err = self:call("download_file", { path = "/tmp/p", sandbox_id = "x1" })
        assert.are.equal(row[2], err and err.category)
        assert.are.equal(row[2] and 1 or 2, gets)
        if result then assert.are.equal(3, result.size) end
      end, nil, function(req)
        gets = gets + 1
        core.task.sleep(200)
        req:respond(206, { ["Content-Range"] = "bytes 0-2/3" }, "abc")
        return true
      end)
    end
  end)
end)

describe("an upload", function()
  it("whose script is cut off is removed, and no other", function()
    local removed, uploaded
    with(function(req, process)
      if process.cmd == "/bin/rm" then
        removed = process.args[3]
        return stream(req, { ended(0) })
      end
      req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
      req:write(event { start = { pid = 7 } })
      req:abort()
    end, function(self)
      local _, err = self:call("write_file", { path = "/tmp/a", content = "x", sandbox_id = "x1" })
      assert.are.equal("connection_failed", err.category)
      local deadline = core.task.now_ms() + 2000
      while not removed and core.task.now_ms() < deadline do core.task.sleep(5) end
      assert.are.equal(uploaded, removed)
      assert.is_truthy(removed:find "^/tmp/%.demilune%-")
    end, nil, function(req)
      uploaded = req.query.path
      return answer(req, 200, json.array {})
    end)
  end)
end)

describe("a paused sandbox", function()
  it("is resumed for as long as the work may take, and no longer than the operator allows", function()
    for _, row in ipairs { { 10, {}, 300 }, { 1000, {}, 1011 }, { 80000, { max_lifetime = 600 }, 600 } } do
      local is_paused, seconds = true, nil
      cloud.with(row[2], function(req, body)
        if req.path:find "/connect$" then
          is_paused, seconds = false, json.decode(body).timeout
          return answer(req, 201, cloud.detail())
        elseif req.path:find "^/sandboxes/" then
          return answer(req, 200, cloud.detail { state = is_paused and "paused" or "running" })
        elseif is_paused then
          return answer(req, 502, { sandboxId = "x1", code = 502 })
        end
        return stream(req, { ended(0) })
      end, function(self)
        assert(run(self, { timeout = row[1] }))
        assert.are.equal(row[3], seconds)
      end)
    end
  end)

  it("that is moving just now is asked again, and no more than a few times", function()
    local left = 2
    with(function(req)
      left = left - 1
      if left >= 0 then return answer(req, 409, { code = 409, message = "transitioning" }) end
      return stream(req, { ended(0) })
    end, function(self) assert.are.equal(0, assert(run(self)).exit_code) end)
    left = 1000
    with(function(req)
      left = left - 1
      return answer(req, 409, { code = 409, message = "transitioning" })
    end, function(self)
      local from = core.task.now_ms()
      local _, err = run(self)
      assert.are.equal("conflict", err.category)
      assert.is_true(1000 - left <= 4 and core.task.now_ms() - from < 4000)
    end)
  end)
end)
