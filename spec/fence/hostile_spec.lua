-- timeout: 120
--- A worker that was taken over: whatever it sends, the call is a fault, the process is ended, and the server goes on.
--- The program here is spec/fence/fake_worker.py, which lies where the core looks for the real one.

local build = require "spec.support.build"
local harness = require "spec.script.harness"

local scratch = os.getenv "DML_SPEC_TMP" .. "/hostile"

local function run(line)
  local pipe = assert(io.popen(line))
  local text = pipe:read "a"
  pipe:close()
  return text
end

--- A copy of the core beside the false program, and a Lua that calls it once.
setup(function()
  run(("mkdir -p '%s/spec/demilune' && cp '%s/spec/demilune/core.so' '%s/spec/demilune/'"):format(scratch, build.dir, scratch))
  run(("cp '%s/spec/fence/fake_worker.py' '%s/demilune-fence' && chmod 755 '%s/demilune-fence'"):format(build.root, scratch,
    scratch))
  run(("touch '%s/demilune-agent'"):format(scratch))
  local file = assert(io.open(scratch .. "/call.lua", "w"))
  file:write(([[
    package.cpath = "%s/spec/?.so;" .. package.cpath
    local core = require "demilune.core"
    core.task.run(function()
      local fence = assert(core.fence.start { limits = { wall_ms = 1000 } })
      local data, why = fence:load("", "policy.lua", function() error "asked" end)
      if not data then return print(why.text) end
      local pid = fence:status().pid
      if arg[1] == "unasked" then
        local until_ms = core.task.now_ms() + 10000
        while core.task.now_ms() < until_ms and fence:status().pid == pid do core.task.sleep(10) end
        print(fence:status().pid == pid and "kept" or "ended")
        return fence:stop()
      end
      local outcome, fault = fence:call("f", { n = 1 })
      local is_same = fence:status().pid == pid
      if outcome then
        print("outcome", is_same)
      else
        print(("%%s|%%s|%%s|%%s|%%s"):format(fault.kind, fault.limit, fault.file, fault.text, is_same))
      end
      fence:stop()
    end)]]):format(scratch))
  file:close()
end)

local function answer(name)
  local file = assert(io.open(scratch .. "/answer", "w"))
  file:write(name)
  file:close()
  return (run(("timeout 20 %s '%s/call.lua' %s 2>&1"):format(harness.interpreter(), scratch, name)):gsub("\n$", ""))
end

describe("a worker", function()
  it("that behaves is believed", function()
    assert.are.equal("outcome\ttrue", answer "good")
  end)

  it("that sends what it must not is ended", function()
    for _, name in ipairs {
      "garbage", "zeros", "empty", "huge_length", "wrong_kind", "unknown_kind", "need", "bytes_behind", "no_such_decision",
      "negative_decision", "long_reason", "too_many_args", "no_args", "view_that_is_none", "function", "unknown_tag",
      "list_without_items", "deep", "many", "nan", "key_beyond", "many_logs", "long_log", "negative_counters",
        "fault_without_limit",
      "fault_of_ours", "fault_wall", "fault_long_file", "fault_nul_file", "fault_long_text", "fault_line", "two_frames",
    } do
      assert.are.equal("crash|nil|nil|the policy's worker sent what it must not, and was ended|false", answer(name), name)
    end
  end)

  it("that answers before it is asked is ended", function()
    -- Its answer comes with the end of its loading, or after it.
    local said = answer "unasked"
    assert.is_true(said == "ended" or said == "the policy's worker sent what it must not, and was ended", said)
  end)

  it("that hangs up, exits or stops half way is ended", function()
    assert.are.equal("crash|nil|nil|the policy's worker ended unexpectedly|false", answer "hang_up")
    assert.are.equal("crash|nil|nil|the policy's worker ended unexpectedly|false", answer "exit")
    assert.are.equal("limit|wall|nil|it took too long|false", answer "half")
  end)

  it("cannot bring control characters into a fault", function()
    assert.are.equal("error|nil| [2J | ]0;x \u{fffd} |true", answer "fault_escape")
    assert.is_nil(answer("fault_escape"):find "%c")
  end)
end)
