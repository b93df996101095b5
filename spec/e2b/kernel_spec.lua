--- run_code where a sandbox has E2B's code interpreter: what of it is shown, when it is over, and what it lacks.

local cloud = require "spec.e2b.cloud"
local connect = require "demilune.connect"
local core = require "demilune.core"

local json = core.json

local END = '{"type":"end_of_execution"}\n'

local function answer(req, status, value)
  req:respond(status, { ["Content-Type"] = "application/json" }, json.encode(value))
  return true
end

--- Answers a Start with the words of a command that ends well.
local function command(req, words)
  local function event(fields) return connect.message { event = fields } end
  req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
  req:write(event { start = { pid = 7 } } .. event { data = { stdout = core.crypto.base64(words) } })
  req:write(event { ["end"] = { exited = true } } .. connect.ending())
  req:finish()
  return true
end

--- A service with the sandbox x1, whose interpreter answers `execute(req, body)`.
local function with(execute, fn, entry, health)
  cloud.with(entry or {}, function(req, body)
    if req.path:find "^/sandboxes/" then return answer(req, 200, cloud.detail()) end
    if req.path:find "ListDir$" then return answer(req, 200, { entries = json.array {} }) end
    if req.path == "/files" then return answer(req, 200, json.array {}) end
    if req.path:find "Start$" then return command(req, body:find("mv -f", 1, true) and "ok 1\n" or "from a process\n") end
    if req.path == "/health" then return req:respond(health or 200, {}, "OK") end
    return execute(req, body)
  end, fn)
end

local function lines(...)
  local all = table.concat { ... }
  return function(req)
    req:start(200, { ["Content-Type"] = "application/x-ndjson" })
    req:write(all)
    req:finish()
  end
end

local function run(self, arguments)
  local all = { code = "1", sandbox_id = "x1" }
  for name, value in pairs(arguments or {}) do all[name] = value end
  return self:call("run_code", all)
end

describe("a kernel", function()
  it("that lacks a language leaves it to a program of its own, and is not asked for it again", function()
    for _, status in ipairs { 400, 404, 500, 501 } do
      with(function(req) req:respond(status, {}, "No kernel for bash SECRET") end, function(self)
        for _ = 1, 2 do
          assert.are.equal("from a process\n", assert(run(self, { language = "shell" })).stdout)
        end
        assert.are.same({ 1, 1 }, { #self:sent "execute$", #self:sent "health$" })
        assert.are.equal("bash", json.decode(self:last("execute$").body).language)
      end)
    end
  end)

  it("that fails its own language is a failure, and none of its words are told", function()
    for status, category in pairs { [500] = "unavailable", [401] = "authentication_failed", [429] = "quota_exceeded" } do
      with(function(req) req:respond(status, {}, "SECRET") end, function(self)
        local _, err = run(self)
        assert.are.equal(category, err.category)
        assert.is_nil(json.encode(err):find("SECRET", 1, true))
      end)
    end
  end)

  it("is not asked where the template has none, or the preset declares none", function()
    local function never() error "asked" end
    with(never, function(self)
      assert.are.equal("from a process\n", assert(run(self)).stdout)
      assert(run(self))
      assert.are.equal(1, #self:sent "health$")
    end, nil, 502)
    with(never, function(self)
      assert.are.equal("from a process\n", assert(run(self)).stdout)
      assert.are.equal(0, #self:sent "health$")
    end, { preset = "openkruise", domain = "k.example.org" })
  end)

  it("shows 8 KiB of a result, whole characters, and secrets masked before the cut", function()
    with(lines('{"type":"result","is_main_result":true,"text":"' .. ("ü"):rep(5000) .. '"}\n', END), function(self)
      local result = assert(run(self)).result
      assert.are.equal(8192, #result)
      assert.is_truthy(core.text.is_utf8(result))
    end)
    local cut = ("x"):rep(8192 - 20) .. cloud.KEY
    with(lines('{"type":"result","is_main_result":true,"text":"' .. cut .. '"}\n', END), function(self)
      self:call "list_sandboxes"
      local result = assert(run(self)).result
      assert.is_nil(result:find(cloud.KEY:sub(1, 12), 1, true))
    end)
  end)

  it("shows the main result alone", function()
    with(lines('{"type":"result","is_main_result":false,"text":"plot"}\n{"type":"result","is_main_result":true,"text":7}\n', END),
      function(self) assert.are.equal(json.null, assert(run(self)).result) end)
  end)

  it("is left at the deadline, with what it said until then", function()
    local written = 0
    with(function(req)
      req:start(200, { ["Content-Type"] = "application/x-ndjson" })
      req:write '{"type":"stdout","text":"part\\n"}\n'
      while req:write '{"type":"keepalive"}\n' do
        written = written + 1
        core.task.sleep(50)
      end
    end, function(self)
      local from = core.task.now_ms()
      local result = assert(run(self, { timeout = 1 }))
      assert.are.same({ "part\n", true, json.null }, { result.stdout, result.timed_out, result.exit_code })
      assert.is_true(core.task.now_ms() - from < 2500)
      core.task.sleep(200)
      local before = written
      core.task.sleep(200)
      assert.are.equal(before, written)
    end)
  end)

  it("whose line does not end is not read for ever", function()
    with(function(req)
      req:start(200, { ["Content-Type"] = "application/x-ndjson" })
      local piece = ("x"):rep(1 << 20)
      for _ = 1, 40 do
        if not req:write(piece) then return end
      end
      req:finish()
    end, function(self)
      local _, err = run(self)
      assert.are.equal("too_large", err.category)
    end)
  end)

  it("is listened to with wild events", function()
    with(lines('{"type":7}\n{"type":"stdout","text":7}\n{"type":"error"}\n',
      '{"type":"result","is_main_result":true,"text":{}}\n', END),
      function(self)
        local result = assert(run(self))
        assert.are.same({ 1, ": \n", "", json.null }, { result.exit_code, result.stderr, result.stdout, result.result })
      end)
  end)
end)
