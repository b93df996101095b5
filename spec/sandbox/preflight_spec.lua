-- timeout: 120
--- Whether this machine can isolate, and that the reason is named when it cannot.

local build = require "spec.support.build"
local core = require "demilune.core"
local leftovers = require "spec.support.leftovers"
local os_calls = require "spec_os"
local probe = require "spec.sandbox.probe"

local NAMES = { "bubblewrap", "agent", "user_namespaces", "apparmor", "seccomp", "root_directory", "proc", "identity",
  "trial" }

local function by_name(report)
  local checks = {}
  for _, check in ipairs(report.checks) do checks[check.name] = check end
  return checks
end

local function assert_sound(report)
  assert.are.equal(#NAMES, #report.checks)
  local is_ok = true
  for i, check in ipairs(report.checks) do
    assert.are.equal(NAMES[i], check.name)
    if not check.ok then
      is_ok = false
      assert.truthy(check.cause:match("^[%u/].*%.$"), check.cause)
      assert.truthy(#check.fix > 0)
      -- Never bubblewrap's own words.
      assert.falsy(check.cause:find("bwrap: ", 1, true))
    end
  end
  assert.are.equal(is_ok, report.ok)
end

--- Whether a shell command under `wrap` works here at all.
local function can(command) return os.execute(command .. " >/dev/null 2>&1") == true end

describe("preflight", function()
  teardown(function() probe.clear() end)

  for _, identity in ipairs(probe.identities()) do
    it("finds this machine fit, as " .. identity, function()
      local report = probe.run(identity, "preflight", {})
      assert_sound(report)
      for _, check in ipairs(report.checks) do assert.is_true(check.ok, check.cause) end
      assert.are.equal(identity == "root" and "range" or "caller", report.identity)
      assert.truthy(({ cgroup1 = 1, cgroup2 = 1, none = 1 })[report.limits.kind])
      if report.limits.kind == "none" then
        assert.is_false(report.limits.memory or report.limits.cpu or report.limits.pids)
      end
    end)
  end

  it("names a missing agent, and tries nothing then", function()
    local report = probe.run("plain", "preflight", { agent_path = "/nonexistent" })
    assert_sound(report)
    assert.is_false(by_name(report).agent.ok)
    assert.is_false(by_name(report).trial.ok)
  end)

  it("does not take for an agent what cannot be run", function()
    local report = probe.run("plain", "preflight", { agent_path = "/etc/passwd" })
    assert_sound(report)
    assert.is_false(report.ok)
  end)

  it("names a covered /proc", function()
    if not probe.is_root() then return pending("not root") end
    local report = probe.run("root", "preflight", {},
      "unshare -m sh -c 'mount --bind /dev/null /proc/version && exec sh -c \"$0\"' %s")
    assert_sound(report)
    assert.is_false(by_name(report).proc.ok)
  end)

  it("names a read-only /proc/sys", function()
    if not probe.is_root() then return pending("not root") end
    local report = probe.run("root", "preflight", {},
      "unshare -m sh -c 'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec sh -c \"$0\"' %s")
    assert_sound(report)
    assert.is_false(by_name(report).proc.ok)
  end)

  it("names a missing /proc", function()
    if not probe.is_root() then return pending("not root") end
    local report = probe.run("root", "preflight", {},
      "unshare -m sh -c 'mount -t tmpfs none /proc && exec sh -c \"$0\"' %s")
    assert_sound(report)
    assert.is_false(by_name(report).proc.ok)
  end)

  it("names a chroot", function()
    if not probe.is_root() then return pending("not root") end
    local folder = probe.stage() .. "/root"
    local report = probe.run("root", "preflight", {}, ("unshare -m sh -c 'mkdir -p %s && mount -t tmpfs none %s && cd %s "
      .. "&& for d in usr tmp proc dev etc run sys; do mkdir -p r/$d && mount --rbind /$d r/$d; done; "
      .. "for l in bin lib lib64 sbin; do ln -s usr/$l r/$l; done; exec chroot r sh -c \"$0\"' %%s"):format(
      folder, folder, folder))
    assert_sound(report)
    assert.is_false(by_name(report).root_directory.ok)
  end)

  it("names a container whose root is the only user", function()
    if not can("unshare -Ur true") then return pending("no user namespaces by unshare") end
    local report = probe.run(probe.identities()[1], "preflight", {}, "unshare -Ur sh -c %s")
    assert_sound(report)
    assert.is_false(by_name(report).identity.ok)
  end)

  it("names user namespaces that are switched off", function()
    if not can("unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces'") then
      return pending("the switch of a user namespace cannot be set here")
    end
    local report = probe.run(probe.identities()[1], "preflight", {},
      "unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec sh -c \"$0\"' %s")
    assert_sound(report)
    assert.is_false(by_name(report).user_namespaces.ok)
  end)

  it("leaves nothing behind, not even when the task that asked is cancelled", function()
    local before = leftovers.snapshot()
    core.task.run(function()
      local asking = core.task.spawn(function()
        return core.isolation.preflight { agent_path = build.dir .. "/demilune-agent" }
      end)
      core.task.sleep(2)
      asking:cancel()
      asking:wait(2000)
      local report = core.isolation.preflight { agent_path = build.dir .. "/demilune-agent" }
      assert.is_true(report.ok)
    end)
    assert.are.same({}, leftovers.since(before))
    local own = ("/demilune%%-%%x+%%-%x%%-"):format(select(3, os_calls.ids()))
    for _, path in ipairs(leftovers.cgroups("demilune-")) do assert.falsy(path:match(own), path) end
  end)
end)
