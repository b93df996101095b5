--- The table of sandboxes over an isolation that is made up: creations that fail in every way leave nothing.

local core = require "demilune.core"
local errors = require "demilune.errors"
local expiry = require "demilune.engine.expiry"
local sandboxes = require "demilune.engine.sandboxes"
local support = require "spec.engine.support"

local task = core.task

--- Frames of src/base/frame.h: length, type, flags, zero, stream; a field is tag, length, bytes.
local HELLO = string.pack("<I4BBI2I4", 13, 32, 0, 0, 0) .. string.pack("<BI4i8", 1, 8, 2)

describe("demilune.engine.sandboxes", function()
  local boxes, refusal, greeting, all

  --- A box that is a socketpair and a flag.
  local function fake_box(options)
    local ours, theirs = core.sys.socketpair()
    local box = { memory_mb = options.memory_mb, ended = task.event(), is_released = false }
    function box:take_fd() return ours end
    function box:wait() return self.ended:wait() end
    function box:release() self.is_released = true end
    function box:kill()
      if not self.ended:is_set() then core.sys.close(theirs) end
      self.ended:set()
    end
    if greeting then core.sys.write(theirs, greeting) end
    boxes[#boxes + 1] = box
    return box
  end

  local function iso_start(_, options)
    if refusal then return nil, errors.new(refusal) end
    return fake_box(options)
  end

  before_each(function()
    boxes, refusal, greeting = {}, nil, HELLO
    all = sandboxes.new(function() return { start = iso_start } end)
    sandboxes.HELLO_TIMEOUT_MS, sandboxes.MAX_COUNT = 40, 4
    core.log.set_level "off"
  end)
  after_each(function()
    sandboxes.HELLO_TIMEOUT_MS, sandboxes.MAX_COUNT = 10000, 128
    core.log.set_level "warn"
  end)

  local function spec(fields)
    local wanted = { template = "base", timeout_s = 60, disk_mb = 1, memory_mb = 64, env = {}, metadata = {} }
    for key, value in pairs(fields or {}) do wanted[key] = value end
    return wanted
  end

  local function is_empty()
    for _, box in ipairs(boxes) do
      if not box.is_released then return false end
    end
    return all.count == 0 and all.ending == 0 and next(all.by_id) == nil
  end

  local function failure_of(fields)
    local ok, fault = pcall(all.create, all, spec(fields))
    assert.is_false(ok)
    return fault.error_code
  end

  it("makes, finds and ends", function()
    support.run(function()
      local sandbox = all:create(spec())
      assert.are.equal(sandbox, all:find(sandbox.id))
      assert.are.equal(64, sandbox.memory_mb)
      assert.is_true(math.abs(sandbox.end_at_ms - task.epoch_ms() - 60000) < 1000)
      all:kill(sandbox)
      assert.is_nil(all:find(sandbox.id))
      all:wait_gone(sandbox)
      assert.is_true(is_empty())
    end)
  end)

  it("ends one whose agent does not say hello in time, is another's, or goes away", function()
    support.run(function()
      greeting = nil
      local before_ms = task.now_ms()
      assert.are.equal("agent_timeout", failure_of())
      assert.is_true(task.now_ms() - before_ms >= 35)
      greeting = "no frame at all, but long enough to be looked at"
      assert.are.equal("local_isolation_unavailable", failure_of())
      greeting = HELLO:gsub("\2\0\0\0\0\0\0\0$", "\99\0\0\0\0\0\0\0")
      assert.are.equal("local_isolation_unavailable", failure_of())
      greeting = nil
      local handle = task.spawn(failure_of)
      task.sleep(5)
      boxes[#boxes]:kill()
      local _, why = handle:wait()
      assert.are.equal("local_isolation_unavailable", why)
      assert.is_true(support.eventually(is_empty, 500))
    end)
  end)

  it("says why isolation failed, and counts nothing", function()
    support.run(function()
      for category, error_code in pairs {
        local_isolation_unavailable = "local_isolation_unavailable", no_capacity = "no_capacity", internal = "internal",
      } do
        refusal = category
        assert.are.equal(error_code, failure_of())
        assert.is_true(is_empty())
      end
      all = sandboxes.new(function() return nil, errors.new "local_isolation_unavailable" end)
      assert.are.equal("local_isolation_unavailable", failure_of())
      assert.is_true(is_empty())
    end)
  end)

  it("leaves nothing of a creation that is cancelled, whose lease breaks, or that the end of the engine meets", function()
    support.run(function()
      greeting = nil
      local cancelled = task.spawn(failure_of)
      task.sleep(5)
      cancelled:cancel()
      cancelled:wait()
      local leased = task.spawn(failure_of, { lease = "l" })
      local stopped = task.spawn(failure_of)
      task.sleep(5)
      all:kill_matching(function(sandbox) return sandbox.lease == "l" end, "lease_gone")
      assert.are.equal("lease_gone", select(2, leased:wait()))
      all:close()
      assert.are.equal("engine_stopping", select(2, stopped:wait()))
      assert.are.equal("engine_stopping", failure_of())
      assert.is_true(is_empty())
    end)
  end)

  it("takes so many and no more, those that are going included", function()
    support.run(function()
      local made = {}
      for i = 1, 4 do made[i] = all:create(spec()) end
      assert.are.equal("too_many_sandboxes", failure_of())
      all:kill_matching(function() return true end)
      for _, sandbox in ipairs(made) do all:wait_gone(sandbox) end
      assert.is_true(is_empty())
      local again = all:create(spec())
      all:kill(again)
      all:wait_gone(again)
      assert.is_true(is_empty())
    end)
  end)

  it("ends each at its own time, also after its time was changed", function()
    support.run(function()
      local watcher = task.spawn(expiry.watch, all)
      local short, long, changed = all:create(spec()), all:create(spec()), all:create(spec())
      all:set_timeout(short, 0.03)
      all:set_timeout(changed, 0.03)
      all:set_timeout(changed, 60, true)
      all:set_timeout(long, 0.09)
      all:set_timeout(long, 0.01, true)
      task.sleep(60)
      assert.are.same({ true, false, false }, { short.is_ended, long.is_ended, changed.is_ended })
      task.sleep(60)
      assert.are.same({ true, true, false }, { short.is_ended, long.is_ended, changed.is_ended })
      all:close()
      watcher:cancel()
      assert.is_true(is_empty())
    end)
  end)
end)
