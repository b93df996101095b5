--- Every message to a client passes redaction, as the last thing that happens to it.

local canary = require "spec.support.canary"
local cjson = require "cjson"
local core = require "demilune.core"
local os_calls = require "spec_os"
local stdio, sys, task = core.stdio, core.sys, core.task

--- Starts with what could follow a backslash, and ends with one: masks may break JSON.
local AWKWARD = "nabc\"def/ghi\\"
local secret = canary.new()

local function load(name, text)
  local path = (os.getenv("DML_SPEC_TMP") or "/tmp") .. "/outgoing-secret"
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  assert(os_calls.chmod(path, tonumber("600", 8)))
  assert(core.vault.define(name, "file:" .. path))
  assert(core.vault.load(name))
  os.remove(path)
end

--- What a client reads when `handler(call, io)` answers its one request.
local function said_by(handler)
  return task.run(function()
    local in_read, in_write = assert(sys.pipe())
    local out_read, out_write = assert(sys.pipe())
    local reader, parts = assert(sys.reader(out_read)), {}
    local io
    io = assert(stdio.serve { in_fd = in_read, out_fd = out_write, on_request = function(call) handler(call, io) end })
    assert(sys.write(in_write, '{"jsonrpc":"2.0","id":7,"method":"x"}\n'))
    repeat
      parts[#parts + 1] = reader:read(5000) or error "no answer"
    until table.concat(parts):find '"id":7[^\n]*\n'
    io:close()
    reader:close()
    sys.close(in_write)
    return table.concat(parts)
  end)
end

describe("an outgoing message", function()
  setup(function()
    load("outgoing", secret)
    load("awkward", AWKWARD)
  end)

  it("has no secret in a result, an error or a notification, in any form", function()
    for name, form in pairs(canary.forms(secret)) do
      local json = name:find "JSON" and '{"a":"' .. form .. '"}' or core.json.encode { a = form, [form] = { form } }
      local said = said_by(function(call, io)
        io:notify("notifications/x", json)
        call:notify("notifications/progress", json)
        call:reply(json)
      end)
      assert.is_nil(canary.find(said, secret), name)
      for line in said:gmatch "[^\n]+" do assert.are.equal("2.0", cjson.decode(line).jsonrpc) end
      assert.are.equal(3, select(2, said:gsub("\n", "")))
      said = said_by(function(call) call:fail(-32000, "it said " .. secret, json) end)
      assert.is_nil(canary.find(said, secret), name)
      assert.are.equal("it said [redacted]", cjson.decode(said).error.message)
    end
  end)

  it("is as it was when there is none in it", function()
    local json = core.json.encode { text = "a\\b%20x" .. secret:sub(2) }
    assert.are.equal('{"jsonrpc":"2.0","id":7,"result":' .. json .. "}\n", said_by(function(call) call:reply(json) end))
  end)

  it("stays JSON, or is given up", function()
    for _, text in ipairs { AWKWARD, "x" .. AWKWARD .. "y", "\n" .. AWKWARD:sub(2), AWKWARD .. '"', "\\" .. AWKWARD } do
      local said = said_by(function(call) call:reply(core.json.encode { a = text }) end)
      local answer = cjson.decode(said)
      assert.are.equal(7, answer.id)
      if answer.error then assert.are.equal(-32603, answer.error.code) end
      assert.is_nil(cjson.encode(answer.result or {}):find("abc", 1, true) and text ~= "\n" .. AWKWARD:sub(2) or nil)
    end
    assert.are.equal(-32603, cjson.decode(said_by(function(call)
      call:reply('{"a":"\\' .. core.json.encode(AWKWARD):sub(2, -1) .. "}")
    end)).error.code)
  end)
end)
