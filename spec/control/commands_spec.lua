--- demilune reload, approve and refuse: the real program against a server of this spec's.

local approvals = require "demilune.policy.approvals"
local build = require "spec.support.build"
local control = require "demilune.control"
local core = require "demilune.core"
local errors = require "demilune.errors"

local json, sys, task = core.json, core.sys, core.task

--- Runs a command while the loop turns; its output and exit code. `answer`: with a terminal, typing that.
local function run(args, answer)
  local out_read, out_write = assert(sys.pipe())
  local err_read, err_write = assert(sys.pipe())
  local argv = answer and { "/usr/bin/python3", "spec/control/terminal.py", answer, build.program } or { build.program }
  table.move(args, 1, #args, #argv + 1, argv)
  local child = assert(core.process.start { argv = argv, fds = { [1] = out_write, [2] = err_write } })
  sys.close(out_write)
  sys.close(err_write)
  local function read(fd)
    local reader, parts = assert(sys.reader(fd)), {}
    for chunk in function() return (reader:read(20000)) end do parts[#parts + 1] = chunk end
    reader:close()
    return table.concat(parts)
  end
  local stdout = read(out_read)
  return { stdout = stdout, stderr = read(err_read), code = assert(child:wait(20000)).code }
end

--- Runs `body(book)` beside a server with a book of approvals; `reload` is its method.
local function served(body, reload)
  return function()
    task.run(function()
      local book = approvals.new()
      local server = assert(control.start {
        reload = reload, approvals = function() return json.array(book:list()) end,
        decide = function(params)
          local ok, why = book:decide(params.id, params.approve)
          if not ok then errors.raise("not_found", { message = "The question cannot be answered: " .. why .. "." }) end
          return { id = params.id }
        end,
      })
      local ok, err = pcall(body, book)
      server:close()
      if not ok then error(err, 0) end
    end)
  end
end

local function ask(book, fields)
  local call = {
    principal = "local:me", tool = "kill_sandbox", digest = "d", rule = "careful", version = "v1", question = "Kill this sandbox?",
    shown = { tool = "kill_sandbox", sandbox = "abc", provider = "local", arguments = '{"sandbox_id":"abc"}' },
  }
  for key, value in pairs(fields or {}) do call[key] = value end
  return book:open(call)
end

local function answer_of(book) return book:take("local:me", "kill_sandbox", "d", "careful", "v1") end

describe("demilune reload", function()
  for _, case in ipairs {
    { { version = "v2", is_new = true }, 0, "the policy is v2 now" },
    { { version = "v1", is_new = false }, 0, "the policy is v1, as before" },
    { { is_new = false }, 0, "reloaded" },
    {
      { fault = "/p.lua:3: no key \"ruls\"\n/p.lua:9: \27[2Kx" }, 1,
      "so the old ones stay:\n  /p.lua:3: no key \"ruls\"\n  /p.lua:9: \\u{1B}[2Kx",
    },
  } do
    it("says: " .. case[3]:match "^[^:]*", served(function()
      local ran = run { "reload" }
      assert.are.equal(case[2], ran.code, ran.stderr)
      local said = case[2] == 0 and ran.stdout or ran.stderr
      assert.is_truthy(said:find(("server %d: "):format(sys.pid()), 1, true), said)
      assert.is_truthy(said:find(case[3], 1, true), said)
    end, function() return case[1] end))
  end

  it("tells what a server raised", served(function()
    local ran = run { "reload" }
    assert.are.equal(1, ran.code)
    assert.is_truthy(ran.stderr:find("It cannot.", 1, true), ran.stderr)
  end, function() errors.raise("unavailable", { message = "It cannot." }) end))

  it("reaches the one server that is named", served(function()
    assert.are.equal(0, run({ "reload", "--pid", tostring(sys.pid()) }).code)
    local ran = run { "reload", "--pid", "1" }
    assert.are.equal(1, ran.code)
    assert.is_truthy(ran.stderr:find "No server of yours")
    assert.are.equal(2, run({ "reload", "--pid", "x" }).code)
  end, function() return { is_new = false } end))

  it("is content without a server", function()
    task.run(function()
      local ran = run { "reload" }
      assert.are.equal(0, ran.code)
      assert.is_truthy(ran.stderr:find "no server of yours is running")
    end)
  end)
end)

describe("demilune approve", function()
  it("shows the call and takes a yes", served(function(book)
    local id = ask(book)
    local ran = run({ "approve", id }, "y")
    assert.are.equal(0, ran.code, ran.stdout)
    for _, part in ipairs {
      "Kill this sandbox?", "principal  local:me", "tool       kill_sandbox", 'arguments  {"sandbox_id":"abc"}', "sandbox    abc",
      "provider   local", "rule       careful", "Approve? [y/N]", id .. " approved",
    } do
      assert.is_truthy(ran.stdout:find(part, 1, true), part .. "\n" .. ran.stdout)
    end
    assert.are.equal("approved", answer_of(book))
  end))

  it("takes everything else for no", served(function(book)
    local id = ask(book)
    for _, answer in ipairs { "", "n", "yeah", "approve" } do
      local ran = run({ "approve", id }, answer)
      assert.are.equal(1, ran.code, answer)
      assert.is_truthy(ran.stdout:find("nothing was decided", 1, true))
    end
    assert.are.equal("pending", answer_of(book))
  end))

  it("decides nothing without a terminal", served(function(book)
    local id = ask(book)
    local ran = run { "approve", id }
    assert.are.same({ 1, "" }, { ran.code, ran.stdout })
    assert.is_truthy(ran.stderr:find("needs a terminal", 1, true), ran.stderr)
    assert.are.equal("pending", answer_of(book))
  end))

  it("writes out what would move the cursor or hide", served(function(book)
    local id = ask(book, {
      question = "Run\27[2K\r it?", principal = "local:\u{202E}em",
      shown = { arguments = ('{"command":"\u{9B}2J\127%s"}'):format(("z"):rep(20000)), sandbox = "a\nApprove? [y/N] y" },
    })
    local ran = run({ "approve", id }, "n")
    for _, part in ipairs {
      "Run\\u{1B}[2K\\u{D} it?", "local:\\u{202E}em", "\\u{9B}2J\\u{7F}zzz", "a\\u{A}Approve?",
      "(cut: the arguments have 20019 bytes)",
    } do
      assert.is_truthy(ran.stdout:find(part, 1, true), part)
    end
    assert.is_nil(ran.stdout:find("\27", 1, true))
  end))

  it("knows no question that is not there, and no id that is none", served(function(book)
    local ran = run({ "approve", "ap_aaaaaaaaaaaaaaaa" }, "y")
    assert.are.equal(1, ran.code)
    assert.is_truthy(ran.stdout:find("it may have expired or been answered", 1, true), ran.stdout)
    for _, id in ipairs { "nonsense", "ap_", "ap_A", "../x" } do assert.are.equal(2, run({ "approve", id }).code, id) end
    local id = ask(book)
    assert.is_true(book:decide(id, false))
    assert.are.equal(1, run({ "approve", id }, "y").code)
    assert.are.equal("refused", answer_of(book))
  end))

  it("lists what waits when no id is given", served(function(book)
    assert.are.equal("Nothing waits for an answer.\n", run({ "approve" }).stdout)
    local id = ask(book, { question = "Kill\27 it?" })
    local listed = run { "approve" }
    assert.are.equal(0, listed.code)
    assert.is_truthy(listed.stdout:find(id, 1, true))
    assert.is_truthy(listed.stdout:find("Kill\\u{1B} it?", 1, true))
  end))
end)

describe("demilune refuse", function()
  it("refuses after a yes", served(function(book)
    local id = ask(book)
    assert.are.equal(1, run({ "refuse", id }, "n").code)
    assert.are.equal("pending", answer_of(book))
    local ran = run({ "refuse", id }, "YES")
    assert.are.equal(0, ran.code)
    assert.is_truthy(ran.stdout:find("Refuse? [y/N]", 1, true))
    assert.are.equal("refused", answer_of(book))
  end))
end)
