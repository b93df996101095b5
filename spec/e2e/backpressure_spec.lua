-- timeout: 180
--- Large messages, slow readers and floods: what is bounded, and that nothing is lost.

local build = require "spec.support.build"
local cjson = require "cjson"
local demilune = require "spec.support.demilune"
local os_calls = require "spec_os"

local HEAD = '{"jsonrpc":"2.0",'
local MIB = 1024 * 1024
-- Under a sanitizer memory says nothing.
local IS_MEASURED = build.sanitize == ""

local function memory_kb(pid, name)
  local file = assert(io.open(("/proc/%d/status"):format(pid)))
  local kb = tonumber(file:read("a"):match(name .. ":%s*(%d+) kB"))
  file:close()
  return kb
end

--- A request for a tool whose line has exactly `size` bytes, line break aside.
local function sized(id, size, tail)
  local head = HEAD .. ('"id":%d,"method":"tools/call","params":{"name":"get_sandbox","arguments":{},"x":"'):format(id)
  tail = tail or '"}}'
  return head .. ("x"):rep(size - #head - #tail) .. tail
end

describe("a message", function()
  local server
  before_each(function()
    server = demilune.start()
    server:initialize()
  end)
  after_each(function() server:stop() end)

  it("of 16 MiB is served, of one byte more is skipped with an error, and the next is served", function()
    server:write(sized(1, 16 * MIB) .. "\n", 30000)
    assert.are.equal("no_default_sandbox", server:receive(1).result._meta["dev.demilune/error"].category)
    server:write(sized(2, 16 * MIB + 1) .. "\n" .. HEAD .. '"id":3,"method":"ping"}\n', 30000)
    local refused = server:read_message()
    assert.are.equal(2, refused.id)
    assert.are.equal(-32600, refused.error.code)
    assert.are.equal(3, server:read_message().id)
    local chunk = ("y"):rep(MIB)
    for _ = 1, 100 do server:write(chunk, 30000) end
    if IS_MEASURED then assert.is_true(memory_kb(server.pid, "VmHWM") < 200 * 1024) end
    server:write("\n" .. HEAD .. '"id":4,"method":"ping"}\n')
    assert.are.equal(cjson.null, server:read_message().id)
    assert.are.equal(4, server:read_message().id)
  end)

  it("of 16 MiB leaves the memory as it found it", function()
    local shapes = {
      text = sized(10, 16 * MIB),
      escapes = HEAD .. '"id":10,"method":"ping","params":{"x":"' .. ("\\u00e9"):rep(16 * MIB // 6 - 20) .. '"}}',
      ["many values"] = HEAD .. '"id":10,"method":"ping","params":{"x":[' .. ('"abcdefghijklmnopqrstuvwxyz",'):rep(190000)
        .. "1]}}",
      ["many keys"] = (function()
        local keys = {}
        for i = 1, 99000 do keys[i] = ('"key%d":{}'):format(i) end
        return HEAD .. '"id":10,"method":"ping","params":{' .. table.concat(keys, ",") .. "}}"
      end)(),
      ["empty arrays"] = HEAD .. '"id":10,"method":"ping","params":{"x":[' .. ("[],"):rep(16 * MIB // 3 - 40) .. "[]]}}",
      ["brackets alone"] = HEAD .. '"id":10,"method":"ping","params":{"x":' .. ("["):rep(16 * MIB - 100),
      ["arguments"] = HEAD .. '"id":10,"method":"tools/call","params":{"name":"write_file","arguments":{"nope":"'
        .. ("é"):rep(8 * MIB - 100) .. '"}}}',
    }
    for name, line in pairs(shapes) do
      for _ = 1, 2 do
        server:write(line .. "\n", 30000)
        assert.is_table(server:read_message(30000))
      end
      server:request "ping"
      if IS_MEASURED then
        local peak, now = memory_kb(server.pid, "VmHWM"), memory_kb(server.pid, "VmRSS")
        print(("note: after %s: peak %d MB, now %d MB"):format(name, peak // 1024, now // 1024))
        assert.is_true(peak < 200 * 1024, name)
        assert.is_true(now <= 64 * 1024, name)
      end
    end
  end)

  it("whose limit is configured is held to it", function()
    local other = demilune.start { config = "return { limits = { message = 1 } }" }
    other:initialize()
    other:write(sized(1, MIB) .. "\n" .. sized(2, MIB + 1) .. "\n")
    assert.are.equal(1, other:read_message().id)
    assert.are.equal(-32600, other:read_message().error.code)
    other:stop()
  end)

  it("may be answered with every separator there is, in no time", function()
    local content, err = server:call("create_sandbox", {}, 30000)
    if not content then pending("no sandbox here: " .. err.category) end
    assert(server:call("run_command", { command = [[python3 -c "open('f','w').write('\u2028'*340000)"]] }))
    local before = os_calls.now_ms()
    local id = server:send("tools/call", { name = "read_file", arguments = { path = "f", max_bytes = 1048576 } })
    assert.are.same({}, server:request "ping")
    local result = server:receive(id).result
    assert.are.equal(340000 * 3, #result.structuredContent.content)
    assert.is_true(os_calls.now_ms() - before < (build.sanitize == "" and 3000 or 12000))
    for line in server.stdout:gmatch "[^\n]+" do assert.is_nil(line:find("\u{2028}", 1, true)) end
  end)
end)

describe("a slow reader", function()
  local server
  before_each(function()
    server = demilune.start()
    server:initialize()
  end)
  after_each(function() server:stop() end)

  --- Writes what the server takes without reading anything, until it takes nothing more for half a second.
  local function flood(lines)
    local bytes, from, last = table.concat(lines), 1, os_calls.now_ms()
    while from <= #bytes and os_calls.now_ms() - last < 500 do
      local n = os_calls.write(server.stdin_fd, bytes, from)
      if n then from, last = from + n, os_calls.now_ms() else os_calls.sleep_ms(5) end
    end
    return bytes:sub(from)
  end

  --- Writes the rest while it reads; counts the answers by id.
  local function drain(rest, count)
    local seen, from = {}, 1
    local deadline = os_calls.now_ms() + 60000
    local unread = ""
    local total = 0
    while total < count do
      assert(os_calls.now_ms() < deadline, ("%d of %d answers"):format(total, count))
      if from <= #rest then
        local n = os_calls.write(server.stdin_fd, rest, from)
        if n then from = from + n end
      end
      os_calls.poll({ [server.fds.stdout] = "r" }, from <= #rest and 5 or 1000)
      local parts = { unread }
      for bytes in function() return (os_calls.read(server.fds.stdout, MIB)) end do
        if bytes == "" then break end
        parts[#parts + 1] = bytes
      end
      local text, at = table.concat(parts), 1
      for stop in function() return text:find("\n", at, true) end do
        local message = cjson.decode(text:sub(at, stop))
        assert(not message.error and not seen[message.id])
        seen[message.id], total, at = true, total + 1, stop + 1
      end
      unread = text:sub(at)
    end
    return seen
  end

  for _, size in ipairs { 300, 5000 } do
    it(("that asks %d lists before it reads gets every answer, and the server stays small"):format(size), function()
      local lines = {}
      for i = 1, size do lines[i] = ('%s"id":%d,"method":"tools/list"}\n'):format(HEAD, 1000 + i) end
      local rest = flood(lines)
      if size > 1000 then assert.is_true(#rest > 0, "the server reads on while its answers wait") end
      if IS_MEASURED then assert.is_true(memory_kb(server.pid, "VmHWM") < 40 * 1024) end
      local seen = drain(rest, size)
      for i = 1, size do assert.is_true(seen[1000 + i]) end
      server.unread = ""
      assert.are.same({}, server:request "ping")
      if IS_MEASURED then
        print(("note: %d lists unread: peak %d MB"):format(size, memory_kb(server.pid, "VmHWM") // 1024))
      end
    end)
  end

  it("may ask for nothing but nonsense", function()
    local lines = {}
    for i = 1, 100000 do lines[i] = "nonsense " .. i .. "\n" end
    local rest = flood(lines)
    assert.is_true(#rest > 0)
    if IS_MEASURED then assert.is_true(memory_kb(server.pid, "VmHWM") < 40 * 1024) end
    local from, faults, deadline = 1, 0, os_calls.now_ms() + 30000
    local tail = ""
    while faults < 100000 and os_calls.now_ms() < deadline do
      if from <= #rest then from = from + (os_calls.write(server.stdin_fd, rest, from) or 0) end
      os_calls.poll({ [server.fds.stdout] = "r" }, 20)
      local bytes = os_calls.read(server.fds.stdout, MIB)
      if bytes then
        tail = tail .. bytes
        local whole = tail:match "^.*\n" or ""
        faults = faults + select(2, whole:gsub('"code":%-32700', ""))
        tail = tail:sub(#whole + 1)
      end
    end
    assert.are.equal(100000, faults)
    assert.are.same({}, server:request "ping")
  end)

  it("is not waited for with full processor", function()
    local lines = {}
    for i = 1, 2000 do lines[i] = ('%s"id":%d,"method":"tools/list"}\n'):format(HEAD, i) end
    flood(lines)
    os_calls.sleep_ms(500)
    local function spent()
      local file = assert(io.open(("/proc/%d/stat"):format(server.pid)))
      local rest = file:read("a"):match "^%d+ %(.*%) (.*)$"
      file:close()
      local fields = {}
      for field in rest:gmatch "%S+" do fields[#fields + 1] = tonumber(field) or 0 end
      return fields[12] + fields[13] -- ticks of 10 ms
    end
    -- What it has read it answers first; then it must rest.
    local until_ms = os_calls.now_ms() + 10000
    local used
    repeat
      local before = spent()
      os_calls.sleep_ms(500)
      used = spent() - before
    until used <= 5 or os_calls.now_ms() > until_ms
    assert.is_true(used <= 5, used)
  end)
end)

-- The limit of 1,024 itself is shown in spec/script/stdio_spec.lua, with handlers that wait.
describe("a thousand calls at once", function()
  it("are all answered, and none is lost", function()
    local server = demilune.start()
    server:initialize()
    local content, err = server:call("create_sandbox", {}, 30000)
    if not content then
      server:stop()
      pending("no sandbox here: " .. err.category)
    end
    local ids, failed = {}, {}
    for i = 1, 1000 do
      ids[i] = server:send("tools/call", { name = "get_sandbox" })
      if i % 50 == 0 then server:pump(0) end
    end
    for i = 1, 1000 do
      local answer = server:receive(ids[i], 30000)
      if answer.result.isError then failed[#failed + 1] = answer.result.content[1].text end
    end
    assert.are.same({}, { failed[1] })
    assert.are.same({}, server:request "ping")
    server:stop()
  end)
end)
