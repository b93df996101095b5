--- control, control_client: the operator's socket serves this user, and whatever comes in does no harm.

local control = require "demilune.control"
local control_client = require "demilune.control_client"
local core = require "demilune.core"
local errors = require "demilune.errors"
local lfs = require "lfs"
local os_calls = require "spec_os"
local state = require "demilune.state"

local json, sys, task = core.json, core.sys, core.task
local MY_PID = sys.pid()

local METHODS = {
  echo = function(params) return params end,
  slow = function()
    task.sleep(5000)
    return {}
  end,
  refuse = function()
    errors.raise("not_found", { message = "It is not there.", suggestion = "Look elsewhere." }, "No /such/path here.")
  end,
  fault = function() error "canary-fault" end,
  big = function() return { text = ("x"):rep(1024 * 1024) } end,
}

--- Runs `body(server)` as a task beside a control socket.
local function served(body, idle_ms)
  return function()
    task.run(function()
      local server = assert(control.start(METHODS, idle_ms))
      local ok, err = pcall(body, server)
      server:close()
      if not ok then error(err, 0) end
    end)
  end
end

local function call(method, params, timeout_ms)
  return control_client.call(MY_PID, method, params, timeout_ms or 2000)
end

--- A raw connection: send(bytes), receive() -> message or nil.
local function raw()
  local fd = assert(sys.connect_unix(state.control_socket(MY_PID)))
  local reader, rest = assert(sys.reader(fd)), ""
  return {
    send = function(bytes) assert(sys.write(fd, bytes)) end,
    receive = function(timeout_ms)
      while not rest:find "\n" do
        local chunk, err = reader:read(timeout_ms or 2000)
        if not chunk then return nil, err and err.category or "end" end
        rest = rest .. chunk
      end
      local line
      line, rest = rest:match "^([^\n]*)\n(.*)$"
      return json.decode(line)
    end,
    close = function() reader:close() end,
  }
end

describe("a control socket", function()
  it("is there for this user alone, and gone afterwards", function()
    local path
    served(function(server)
      path = server.path
      local socket, folder = assert(core.fs.stat(path)), assert(core.fs.stat(path:match "^(.*)/"))
      assert.are.same({ "socket", 0x180 }, { socket.type, socket.mode })
      assert.are.same({ "directory", 0x1C0 }, { folder.type, folder.mode })
      assert.are.same({ { pid = MY_PID, path = path } }, control_client.servers())
      server:close()
      server:close()
    end)()
    assert.is_nil(core.fs.stat(path))
    assert.are.same({}, control_client.servers())
    task.run(function()
      local result, err = call "echo"
      assert.is_nil(result)
      assert.are.equal("file_not_found", err.category)
    end)
  end)

  it("answers methods, and what they raise", served(function()
    assert.are.same({ a = { 1, "x" } }, call("echo", { a = { 1, "x" } }))
    assert.are.equal(1024 * 1024, #call("big").text)
    local result, err = call "refuse"
    assert.is_nil(result)
    assert.are.same({ "not_found", "No /such/path here. Look elsewhere." }, { err.category, err.message })
    core.log.set_level "off"
    result, err = call "fault"
    core.log.set_level "warn"
    assert.is_nil(result)
    assert.are.equal("internal", err.category)
    assert.is_nil(err.message:find("canary", 1, true))
    result, err = call "none"
    assert.is_nil(result)
    assert.is_truthy(err.message:find "knows no none")
    result, err = call("slow", nil, 30)
    assert.is_nil(result)
    assert.are.equal("provider_timeout", err.category)
    assert.are.equal(1, call("echo", { a = 1 }).a)
  end))

  it("goes on after whatever comes", served(function()
    for _, bytes in ipairs {
      "", "\n", "nonsense\n", "{}\n", "[]\n", '{"jsonrpc":"2.0","id":1,"method":7}\n',
      '{"jsonrpc":"2.0","id":1,"method":"echo","params":[]}\n',
      '{"jsonrpc":"2.0","id":"dml-1","result":{}}\n', ("x"):rep(100000) .. "\n", "\0\255\n", '{"jsonrpc":"2.0","id":1,"meth',
    } do
      local peer = raw()
      peer.send(bytes)
      task.sleep(2)
      peer.close()
    end
    assert.are.equal(1, call("echo", { a = 1 }).a)
  end))

  it("serves eight at a time and ends those that do nothing", served(function(server)
    local peers = {}
    for i = 1, 8 do peers[i] = raw() end
    local until_ms = task.now_ms() + 3000
    while server.count < 8 and task.now_ms() < until_ms do task.sleep(5) end
    assert.are.equal(8, server.count)
    local result, err = call "echo"
    assert.is_nil(result)
    assert.are.equal("connection_failed", err.category)
    peers[1].send '{"jsonrpc":"2.0","id":1,"method":"slow"}\n'
    task.sleep(150)
    for i = 2, 8 do assert.are.equal("end", select(2, peers[i].receive(500)), i) end
    assert.are.equal(1, server.count) -- it still works for the first
    assert.are.equal(1, call("echo", { a = 1 }).a)
    for i = 1, 8 do peers[i].close() end
  end, 40))

  it("removes what servers left behind that are no more, and only that", function()
    local dir = state.path("ctl", true)
    local dead = tostring(os_calls.spawn({ "/bin/true" }, {}, nil, -1, -1, -1))
    os_calls.sleep_ms(20)
    assert(os_calls.wait(math.tointeger(dead)))
    local stale, other, alive = ("%s/%s.sock"):format(dir, dead), dir .. "/notes.txt", dir .. "/1.sock"
    sys.close(assert(sys.listen_unix(stale)))
    sys.close(assert(sys.listen_unix(alive)))
    assert(core.fs.write(other, "x"))
    served(function() assert.are.equal(1, call("echo", { a = 1 }).a) end)()
    assert.is_nil(lfs.symlinkattributes(stale))
    assert.is_truthy(lfs.symlinkattributes(other))
    assert.is_truthy(lfs.symlinkattributes(alive))
    core.fs.remove(other)
    core.fs.remove(alive)
  end)

  it("says what is in the way", function()
    local dir = state.path("ctl", true)
    assert(os_calls.chmod(dir, tonumber("777", 8)))
    local server, err
    task.run(function() server, err = control.start {} end)
    assert(os_calls.chmod(dir, tonumber("700", 8)))
    assert.is_nil(server)
    assert.is_truthy(errors.detail(err):find(dir, 1, true))
    assert.is_nil(err.message:find(dir, 1, true))
  end)
end)

describe("a client of a control socket", function()
  it("believes no server that answers nonsense", function()
    local path = state.control_socket(MY_PID)
    for _, line in ipairs {
      "nonsense\n", "[]\n", "{}\n", '{"result":7}\n', '{"error":7}\n', '{"error":{"message":7,"data":[]}}\n',
      '{"error":{"message":"m","data":{"category":"made_up"}}}\n', "",
    } do
      task.run(function()
        local acceptor = assert(sys.acceptor(assert(sys.listen_unix(path))))
        local fake = task.spawn(function()
          local fd = assert(acceptor:accept(1000))
          assert(sys.write(fd, line))
          sys.close(fd)
        end)
        local result, err = call "echo"
        assert.is_nil(result)
        assert.is_true(errors.is(err), line)
        fake:wait()
        acceptor:close()
      end)
    end
    core.fs.remove(path)
  end)
end)
