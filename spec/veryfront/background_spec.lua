-- timeout: 120
--- Background tasks over POST /commands, and what keeps a sandbox alive meanwhile.

local core = require "demilune.core"
local support = require "spec.veryfront.support"

describe("background tasks at Veryfront", function()
  local vf, why = support.open()
  if not vf then
    it("are tried", function() pending(why) end)
    return
  end
  teardown(function() vf:close() end)

  local function until_status(id, wanted)
    return support.eventually(function()
      local seen = vf:must("get_background_task", { task_id = id })
      return seen.status == wanted and seen
    end, 10000)
  end

  it("outlive their call, and are looked at and ended by their files", vf:test(function()
    local started = vf:must("start_background_task", { command = "echo begun; sleep 1; echo done; exit 4" })
    assert.are.equal("running", started.status)
    local body = vf:requests("POST /sandbox%-sessions/[%x-]+/commands$")[1].body
    assert.truthy(body.command:find("sh", 1, true))
    local seen = assert(until_status(started.task_id, "failed"))
    assert.are.same({ "begun\ndone\n", 4 }, { seen.stdout, seen.exit_code })
  end))

  it("end with TERM, then KILL, and what they left behind with them", vf:test(function()
    local started = vf:must("start_background_task", { command = "trap '' TERM; echo on; sleep 400 & sleep 500" })
    assert(support.eventually(function()
      return vf:must("get_background_task", { task_id = started.task_id }).stdout == "on\n"
    end))
    local ended = vf:must("cancel_background_task", { task_id = started.task_id })
    assert.are.same({ "cancelled", true }, { ended.status, ended.success })
    assert(support.eventually(function() return vf:seen().running == 0 end))
  end))

  it("end also where they spoilt their own folder", vf:test(function()
    local started = vf:must("start_background_task", { command = "rm -f /tmp/.demilune/tasks/*/pid; sleep 600" })
    assert(support.eventually(function() return vf:seen().running == 1 end))
    core.task.sleep(500)
    vf:must("cancel_background_task", { task_id = started.task_id })
    assert(support.eventually(function() return vf:seen().running == 0 end))
  end))

  it("are told as lost when their sandbox is gone", vf:test(function()
    local started = vf:must("start_background_task", { command = "sleep 600" })
    vf.provider:kill(started.sandbox_id)
    assert.are.equal("lost", vf:must("get_background_task", { task_id = started.task_id }).status)
  end))

  it("are refused where the answer is none of the API's", vf:test(function()
    vf:must("create_sandbox", {})
    for _, body in ipairs { "{}", "[]", "no", '{"id":"../x"}', '{"id":7}' } do
      vf:set { faults = core.json.array { { path = "/commands$", http = "POST", status = 201, body = body, times = 1 } } }
      assert.are.equal("invalid_response", vf:fault("start_background_task", { command = "true" }).category, body)
    end
  end))
end)
