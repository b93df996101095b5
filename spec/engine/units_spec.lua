--- The parts of the engine that need no sandbox: frames, multipart, filters, paths, the table of faults.

local connect = require "demilune.connect"
local core = require "demilune.core"
local door = require "demilune.engine.door"
local faults = require "demilune.engine.faults"
local filter = require "demilune.engine.filter"
local multipart = require "demilune.engine.multipart"
local path = require "demilune.engine.path"
local support = require "spec.engine.support"
local tokens = require "demilune.engine.tokens"

describe("demilune.connect", function()
  local function all_of(bytes, size, max_bytes)
    local decoder, frames = connect.decoder(max_bytes or 1 << 20), {}
    for at = 1, #bytes, size do
      decoder:feed(bytes:sub(at, at + size - 1))
      while true do
        local flags, payload = decoder:next()
        if not flags then
          if payload then return frames, payload, decoder end
          break
        end
        frames[#frames + 1] = { flags, payload }
      end
    end
    return frames, nil, decoder
  end

  it("frames messages and ends", function()
    assert.are.equal("\0\0\0\0\7" .. '{"a":1}', connect.message { a = 1 })
    assert.are.equal("\2\0\0\0\2{}", connect.ending())
    assert.truthy(connect.ending({ code = "internal" }):find('{"error":{"code":"internal"}}', 1, true))
  end)

  it("decodes frames however they are cut", function()
    local frames = { { 0, "one" }, { 0, "" }, { 2, ("x"):rep(70000) }, { 0, "last" } }
    local bytes = ""
    for _, frame in ipairs(frames) do bytes = bytes .. connect.frame(frame[1], frame[2]) end
    for _, size in ipairs { 1, 2, 3, 5, 7, 4096, #bytes } do
      local got, err, decoder = all_of(bytes, size)
      assert.is_nil(err)
      assert.are.same(frames, got)
      assert.is_false(decoder:is_partial())
    end
    local _, _, decoder = all_of(bytes .. "\0\0", #bytes)
    assert.is_true(decoder:is_partial())
  end)

  it("stops at frames that are too long or compressed, and stays stopped", function()
    local got, err, decoder = all_of(connect.frame(0, "ok") .. "\0\0\1\0\0", 100, 65535)
    assert.are.same({ { { 0, "ok" } }, "too_large" }, { got, err.category })
    decoder:feed(connect.frame(0, "more"))
    assert.are.same({ nil, err }, { decoder:next() })
    assert.are.equal("invalid_response", select(2, all_of("\1\0\0\0\0", 5)).category)
  end)

  it("takes one JSON object and nothing else for an object", function()
    assert.are.same({ a = 1 }, connect.object '{"a":1}')
    for _, text in ipairs { "", "[]", "1", "null", '"x"', "{", "{}{}", "\255" } do
      assert.is_nil(connect.object(text))
    end
    assert.is_true(connect.is_array(core.json.decode "[]"))
    assert.is_false(connect.is_array(core.json.decode "{}"))
  end)
end)

describe("demilune.engine.multipart", function()
  local function chunks(bytes, size)
    local at = 1
    return function()
      if at > #bytes then return nil end
      at = at + size
      return bytes:sub(at - size, at - 1)
    end
  end

  it("finds the same parts however the body is cut", function()
    local body = "junk\r\n--b\r\ncontent-disposition: form-data; filename=\"x%0A\"; name=\"file\"\r\n\r\n"
      .. "A\r\n--\r\n-b\r\n--b\r\n\r\nno name"
      .. "\r\n--b\r\nContent-Type: x\r\nContent-Disposition: form-data; name=file; filename=y\r\n\r\n\r\n--b--"
    for size = 1, #body do
      local reader = multipart.reader("multipart/form-data; boundary=b", chunks(body, size))
      local found = {}
      for name in function() return reader:next_file() end do
        local bytes = {}
        for chunk in function() return reader:read() end do bytes[#bytes + 1] = chunk end
        found[#found + 1] = name .. "=" .. table.concat(bytes)
      end
      assert.are.same({ "x\n=A\r\n--\r\n-b", "y=" }, found, "cut at " .. size)
    end
  end)
end)

describe("demilune.engine.path", function()
  it("is absolute, without what means nothing", function()
    local CASES = {
      { "a", "/home/user/a" }, { "", "/home/user" }, { "~", "/home/user" }, { "~/a", "/home/user/a" }, { "/", "/" },
      { "//a///b/", "/a/b" }, { "/a/./b/.", "/a/b" }, { "/a/././b", "/a/b" }, { "/a/../b", "/a/../b" },
      { "./a", "/home/user/a" }, { "~x", "/home/user/~x" }, { "/.", "/" }, { "/.a/b.", "/.a/b." },
    }
    for _, case in ipairs(CASES) do assert.are.equal(case[2], path.absolute(case[1]), case[1]) end
    assert.are.same({ "b", "/" }, { path.name "/a/b", path.name "/" })
  end)
end)

describe("demilune.engine.filter", function()
  it("decodes metadata as E2B does", function()
    local sandbox = { state = "running", metadata = { user = "a b", app = "x&y", plain = "v", ["k="] = "100%" } }
    local CASES = {
      { "plain=v", true }, { "plain=w", false }, { "user=a%2520b", true }, { "user=a%20b&app=x%2526y", true },
      { "k%253D=100%2525", true }, { "", true }, { "missing=", false },
    }
    for _, case in ipairs(CASES) do
      assert.are.equal(case[2], filter.read({ metadata = case[1] })(sandbox), case[1])
    end
    for _, text in ipairs { "a=%", "a=%2", "a=%25zz" } do
      assert.has_error(function() filter.read { metadata = text } end)
    end
    assert.is_false(filter.read({ state = "paused" })(sandbox))
    assert.is_true(filter.read({ state = "paused,running" })(sandbox))
  end)
end)

describe("demilune.engine.faults", function()
  it("has a status, a code of Connect and a sentence in every row", function()
    for name, row in pairs(faults.ROWS) do
      assert.is_true(row[1] >= 400 and row[1] < 600, name)
      assert.is_number(connect.STATUS[row[2]], name)
      -- Two are in envd's own words.
      assert.truthy(row[3]:find(name:find "^bad_[ts]" and "^%l" or "^%u"), name)
    end
  end)

  it("is told in the docs, every row", function()
    local file = assert(io.open "docs/engine.md")
    local text = file:read "a"
    file:close()
    for name in pairs(faults.ROWS) do assert.truthy(text:find("`" .. name .. "`", 1, true), name) end
  end)

  it("shows nothing of an exception", function()
    core.log.set_level "off"
    local fault = faults.of "secret words at file:7"
    core.log.set_level "warn"
    assert.are.equal("internal", fault.error_code)
    assert.is_nil(core.json.encode(faults.rest_body(fault)):find("secret", 1, true))
  end)
end)

describe("demilune.engine.tokens", function()
  it("signs URLs as E2B's SDK does", function()
    -- What e2b 2.51.0 made of this token.
    assert.are.equal("v1_I5TTQkez/49xzdknTTRHJD9je+0q/OZlq7MD5SXj0Yk",
      tokens.signature("envd-tok-1", "read", { path = "x y.txt" }))
    assert.are.equal("v1_t5i59UmabOg4PmsVGVvLt3waKfF/KmpuaH93dYudtrU",
      tokens.signature("envd-tok-1", "write", { path = "x y.txt", signature_expiration = "1796066783" }))
  end)

  it("makes secrets of 260 bits, each another, and compares them", function()
    local seen = {}
    for _ = 1, 100 do
      local token = tokens.fresh()
      assert.truthy(token:find("^[a-z2-7]+$"))
      assert.are.equal(52, #token)
      assert.is_nil(seen[token])
      seen[token] = true
    end
    assert.is_true(tokens.is_equal("secret", "secret"))
    for _, other in ipairs { "", "secre", "secret ", "Secret", "secres" } do
      assert.is_false(tokens.is_equal(other, "secret"), other)
    end
    assert.is_false(tokens.is_equal(nil, "secret"))
  end)
end)

describe("demilune.engine.door", function()
  it("reads addresses of loopback with a port, and no others", function()
    assert.are.same({ "127.0.0.1", 0 }, { door.read_address "127.0.0.1:0" })
    assert.are.same({ "127.9.9.9", 65535 }, { door.read_address "127.9.9.9:65535" })
    assert.are.same({ "::1", 3000 }, { door.read_address "[::1]:3000" })
    for _, text in ipairs {
      "", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:999999", "127.0.0.1:-1", "localhost:80", "::1:80",
      "0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[::ffff:127.0.0.1]:80", "[fe80::1]:80", "127.0.0.1:80 ", "http://127.0.0.1:80",
    } do
      local address, why = door.read_address(text)
      assert.is_nil(address, text)
      assert.is_string(why, text)
    end
  end)

  it("takes the key from a private file of ours, its first line", function()
    local file = os.tmpname()
    local good = ("k"):rep(16)
    local CASES = {
      { good, "600", good }, { good .. "\nmore\n", "600", good }, { good .. "\r\n", "400", good },
      { ("k"):rep(256), "600", ("k"):rep(256) },
      { good, "640" }, { good, "604" }, { good, "660" }, { good, "620" }, { ("k"):rep(15), "600" }, { "", "600" },
      { "\n" .. good, "600" }, { ("k"):rep(257), "600" }, { good .. " k", "600" }, { good .. "\0", "600" },
      { good .. "\xc3\xa4", "600" }, { ("k"):rep(5000), "600" },
    }
    for i, case in ipairs(CASES) do
      support.write_key(file, case[1], case[2])
      local key, why = door.read_key(file)
      assert.are.equal(case[3], key, i)
      if not case[3] then
        assert.is_string(why, i)
        assert.is_nil(why:find("kkk", 1, true), i)
      end
    end
    os.remove(file)
    assert.is_nil((door.read_key(file)))
    assert.is_nil((door.read_key "/dev/null"))
    assert.is_nil((door.read_key "/tmp"))
  end)

  it("asks for the key, refuses pages, and names that are not its own", function()
    local own = door.new("127.0.0.5", "the key of the door")
    local function refused(headers) return own:refuse { headers = headers } ~= nil end
    for _, host in ipairs { "127.0.0.1", "127.0.0.5:80", "localhost:1", "LOCALHOST", "[::1]:3000" } do
      assert.is_false(refused { host = host }, host)
      assert.is_true(refused { host = host, origin = "http://localhost" }, host)
      assert.is_true(refused { host = host, origin = "null" }, host)
    end
    for _, host in ipairs { "", "example.com", "127.0.0.6", "localhost.example.com", "a.localhost", "127.0.0.1.nip.io:80",
      "[::2]", "::1", "localhost:80:90" } do
      assert.is_true(refused { host = host }, host)
    end
    assert.is_true(refused {})
    own:check_key { headers = { ["x-api-key"] = "the key of the door" } }
    for _, key in ipairs { "", "the key of the doo", "the key of the door ", "The key of the door" } do
      assert.has_error(function() own:check_key { headers = { ["x-api-key"] = key } } end)
    end
    assert.has_error(function() own:check_key { headers = { authorization = "Bearer the key of the door" } } end)
  end)
end)
