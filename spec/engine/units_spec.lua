--- The parts of the engine that need no sandbox: frames, multipart, filters, paths, the table of faults.

local connect = require "demilune.connect"
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local filter = require "demilune.engine.filter"
local multipart = require "demilune.engine.multipart"
local path = require "demilune.engine.path"

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
    local sandbox = { metadata = { user = "a b", app = "x&y", plain = "v", ["k="] = "100%" } }
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
      assert.truthy(row[3]:find "^%u", name)
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
