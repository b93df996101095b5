-- timeout: 180
--- The code interpreter of a sandbox: executions, contexts, interrupts, and code that fights its kernel.

local core = require "demilune.core"
local support = require "spec.engine.support"

local json, task = core.json, core.task

-- Under a sanitizer memory says nothing.
local IS_MEASURED = require("spec.support.build").sanitize == ""

describe("the kernel", function()
  local engine, sandbox

  setup(function()
    engine = support.start()
    support.run(function() sandbox = engine:create { envVars = { OF_SANDBOX = "s" } } end)
  end)
  teardown(function() engine:stop() end)

  local function within(fn) return function() support.run(fn) end end

  local function request(box, method, path, body, options)
    options = options or {}
    local headers = { ["E2b-Sandbox-Id"] = box.id, ["E2b-Sandbox-Port"] = "49999" }
    if body then headers["Content-Type"] = "application/json" end
    return engine:request(method, path, { headers = headers, body = body and json.encode(body), stream = options.stream,
      timeout_ms = options.timeout_ms or 60000 })
  end

  --- A result for lines of an answer: what each kind said, joined.
  local function gather(lines)
    local run = { stdout = "", stderr = "", results = {}, keepalives = 0 }
    for line in lines do
      local event = json.decode(line)
      if event.type == "stdout" or event.type == "stderr" then
        assert.truthy(event.timestamp:find "^%d%d%d%d%-%d%d%-%d%dT[%d:.]+Z$")
        run[event.type] = run[event.type] .. event.text
      elseif event.type == "result" then
        table.insert(run.results, event)
        if event.is_main_result then run.text = event.text end
      elseif event.type == "error" then run.error = event
      elseif event.type == "number_of_executions" then run.count = event.execution_count
      elseif event.type == "keepalive" then run.keepalives = run.keepalives + 1
      elseif event.type == "kernel_restarted" then run.was_restarted = true
      elseif event.type == "end_of_execution" then run.is_whole = true
      end
    end
    return run
  end

  local function execute(code, more, box)
    local body = { code = code }
    for key, value in pairs(more or {}) do body[key] = value end
    local res = assert(request(box or sandbox, "POST", "/execute", body))
    assert.are.equal(200, res.status, res.body)
    assert.are.equal("text/event-stream", res.headers["content-type"])
    local run = gather(res.body:gmatch "[^\n]+")
    assert.is_true(run.is_whole)
    return run
  end

  --- Begins an execution: the response, and a function that gives its next line.
  local function begin(code, more, box)
    local body = { code = code }
    for key, value in pairs(more or {}) do body[key] = value end
    local res = assert(request(box or sandbox, "POST", "/execute", body, { stream = true }))
    local buffer = ""
    return res, function()
      while not buffer:find "\n" do
        local chunk = res:read(20000)
        if not chunk then return nil end
        buffer = buffer .. chunk
      end
      local line
      line, buffer = buffer:match "^([^\n]*)\n(.*)$"
      return line
    end
  end

  local function refused(status, sentence, method, path, body, box)
    local res = assert(request(box or sandbox, method, path, body))
    assert.are.equal(status, res.status)
    assert.truthy(res.body:find(sentence, 1, true), res.body)
    assert.truthy(res.headers["content-type"]:find "^text/plain")
  end

  local function context(fields, box)
    local res = assert(request(box or sandbox, "POST", "/contexts", fields or {}))
    assert.are.equal(200, res.status, res.body)
    return json.decode(res.body)
  end

  local function contexts(box)
    return json.decode(assert(request(box or sandbox, "GET", "/contexts")).body)
  end

  local function delete(id, box) return assert(request(box or sandbox, "DELETE", "/contexts/" .. id)).status end

  local function kernels(box)
    return tonumber(((box or sandbox):start "grep -la 'exec(compile(tak[e]' /proc/[0-9]*/cmdline 2>/dev/null | wc -l").stdout)
  end

  it("runs code, keeps what it defines, and gives the value of the last expression", within(function()
    local run = execute "x = 20\nprint('hi')\nx + 22"
    assert.are.same({ "hi\n", "", "42", true }, { run.stdout, run.stderr, run.text, run.results[1].is_main_result })
    assert.are.equal(1, run.count)
    run = execute "x += 1; x"
    assert.are.same({ "21", 2 }, { run.text, run.count })
    assert.are.equal("'21 is _: 21'", execute("f'{x} is _: {_}'").text)
    assert.is_nil(execute("x;").text)
    assert.is_nil(execute("None").text)
    assert.is_nil(execute("").text)
    assert.is_nil(execute("# nothing").text)
    assert.are.equal("('__main__', True, '/home/user')",
      execute("import os, sys\n(__name__, sys.modules['__main__'].x == x, os.getcwd())").text)
    assert.are.equal("3", execute("import asyncio\nawait asyncio.sleep(0.01)\n1 + 2").text)
    assert.are.equal(1, kernels())
  end))

  it("tells the outputs in order, those of children too", within(function()
    local run = execute("import os, subprocess\nprint('1'); os.system('echo 2; echo e >&2'); print('3', end='')\n"
      .. "subprocess.run(['echo', '4']);")
    assert.are.same({ "1\n2\n34\n", "e\n" }, { run.stdout, run.stderr })
    run = execute "import sys\nsys.stdout.buffer.write('ü'.encode()); sys.stderr.write('err'); print('\\0 \\ud800 \\U0001F600')"
    assert.are.same({ "ü\0 ? \u{1F600}\n", "err" }, { run.stdout, run.stderr })
    run = execute "import os\nif os.fork() == 0:\n    print('child')\nelse:\n    os.wait(); print('parent')"
    assert.are.equal("child\nparent\n", run.stdout)
    run = execute "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))"
    assert.are.equal("[1, 2]\n", run.stdout)
    assert.are.equal("'still here'", execute("'still here'").text)
  end))

  it("streams output while the code runs", within(function()
    local res, next_line = begin "import time\nprint('first', flush=True)\ntime.sleep(30)"
    assert.are.equal("number_of_executions", json.decode(next_line()).type)
    local event = json.decode(next_line())
    assert.are.same({ "stdout", "first\n" }, { event.type, event.text })
    res:close()
  end))

  it("passes on much output whole", within(function()
    local run = execute "for i in range(200000): print(i)"
    local count = 0
    for number in run.stdout:gmatch "%d+" do
      assert(tonumber(number) == count)
      count = count + 1
    end
    assert.are.equal(200000, count)
    assert.are.equal(3000000, #execute("import os\nos.system('head -c 3000000 /dev/zero | tr \"\\\\0\" x');").stdout)
  end))

  it("tells errors with the lines of the code", within(function()
    local run = execute "def f(n):\n    return 1 / n\nprint('before')\nf(0)\nprint('after')"
    assert.are.equal("before\n", run.stdout)
    assert.are.same({ "ZeroDivisionError", "division by zero" }, { run.error.name, run.error.value })
    assert.truthy(run.error.traceback:find('^Traceback %(most recent call last%):\n'
      .. '  File "<cell %d+>", line 4, in <module>\n    f%(0%)\n'))
    assert.truthy(run.error.traceback:find("line 2, in f\n    return 1 / n\n", 1, true))
    assert.truthy(run.error.traceback:find "\nZeroDivisionError: division by zero\n$")
    assert.is_nil(run.error.traceback:find "<kernel>")
    run = execute "x = (\ny"
    assert.are.equal("SyntaxError", run.error.name)
    assert.is_nil(run.error.traceback:find "<kernel>")
    assert.are.same({ "SystemExit", "3" }, { execute("import sys; sys.exit(3)").error.name, execute("sys.exit(3)").error.value })
    assert.are.equal("<unprintable E>", execute("class E(Exception):\n    def __str__(self): raise self\nraise E").error.value)
    assert.are.equal("KeyError", execute("class R:\n    def __repr__(self): return {}[1]\nR()").error.name)
    assert.are.equal("RecursionError", execute("def r(): r()\nr()").error.name)
    assert.are.equal("EOFError", execute("input()").error.name)
  end))

  it("shows values in the forms that they have", within(function()
    local run = execute [[
class Table:
    def _repr_html_(self): return "<b>1</b>"
    def _repr_png_(self): return b"\x89PNG"
    def _repr_json_(self): return {"a": [1, None]}
    def _repr_latex_(self): raise ValueError
    def __repr__(self): return "table"
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": "plain", "text/markdown": "*x*", "application/x-other": 1}, {}
display(Bundle(), 7)
Table()]]
    assert.are.same({ { type = "result", is_main_result = false, text = "plain", markdown = "*x*" },
      { type = "result", is_main_result = false, text = "7" },
      { type = "result", is_main_result = true, text = "table", html = "<b>1</b>", png = core.crypto.base64 "\x89PNG",
        json = { a = json.array { 1, json.null } } } }, run.results)
    run = execute "class Huge:\n    def _repr_html_(self): return 'x' * 9000000\nHuge()"
    assert.is_nil(run.results[1].html)
    assert.truthy(run.text:find "^<__main__.Huge object")
    assert.are.equal(1048576 + 3, #execute("'x' * 9000000").text)
    run = execute "class Large:\n    def _repr_svg_(self): return 'x' * 5000000\nLarge()"
    assert.are.equal(5000000, #run.results[1].svg)
  end))

  it("has variables of the sandbox, and of one execution", within(function()
    local code = "import os\nos.environ.get('OF_SANDBOX'), os.environ.get('ONCE')"
    assert.are.equal("('s', '1')", execute(code, { env_vars = { ONCE = "1" } }).text)
    assert.are.equal("('s', None)", execute(code).text)
    assert.are.equal("('t', None)", execute(code, { env_vars = { OF_SANDBOX = "t" } }).text)
    assert.are.equal("('s', None)", execute(code).text)
  end))

  it("has contexts that know nothing of each other", within(function()
    sandbox:start "mkdir -p work"
    local made = context { language = "python", cwd = "work" }
    assert.are.same({ "python", "/home/user/work" }, { made.language, made.cwd })
    assert.are.equal("'/home/user/work'", execute("y = 1; import os; os.getcwd()", { context_id = made.id }).text)
    assert.are.equal("NameError", execute("y").error.name)
    assert.are.equal("1", execute("y", { context_id = made.id }).text)
    local list = contexts()
    assert.are.same({ "/home/user", "/home/user/work", made.id }, { list[1].cwd, list[2].cwd, list[2].id })
    assert.are.equal("1", execute("1", { context_id = list[1].id }).text)
    assert.are.equal(200, request(sandbox, "POST", "/contexts/" .. made.id .. "/restart").status)
    local run = execute("y", { context_id = made.id })
    assert.are.same({ "NameError", 1 }, { run.error.name, run.count })
    assert.are.equal(204, delete(made.id))
    refused(404, "not found", "POST", "/execute", { code = "1", context_id = made.id })
    refused(404, "not found", "DELETE", "/contexts/" .. made.id)
    refused(404, "not found", "POST", "/contexts/" .. made.id .. "/restart")
    assert.is_true(support.eventually(function() return kernels() == 1 end))
  end))

  it("is refused with a reason", within(function()
    refused(400, "python alone", "POST", "/execute", { code = "1", language = "javascript" })
    refused(400, "python alone", "POST", "/contexts", { language = "r" })
    refused(400, "Only one of", "POST", "/execute", { code = "1", language = "python", context_id = "x" })
    refused(404, "not found", "POST", "/execute", { code = "1", context_id = "nope" })
    refused(400, "missing", "POST", "/execute", {})
    refused(400, "string", "POST", "/execute", { code = 1 })
    refused(400, "bytes", "POST", "/execute", { code = ("x"):rep(1048577) })
    refused(400, "name", "POST", "/execute", { code = "1", env_vars = { ["a=b"] = "1" } })
    refused(400, "not there", "POST", "/contexts", { cwd = "/no/such/place" })
    assert.are.equal("42", execute("42", { language = "Python" }).text)
    local res = request(sandbox, "GET", "/health")
    assert.are.same({ 200, "OK" }, { res.status, res.body })
    assert.are.equal(502, request({ id = "i" .. ("a"):rep(19) }, "POST", "/execute", { code = "1" }).status)
  end))

  it("says so where there is no Python", within(function()
    local other = engine:create { envVars = { PATH = "/nowhere" } }
    refused(400, "no python3", "POST", "/execute", { code = "1" }, other)
    refused(400, "no python3", "POST", "/contexts", {}, other)
    assert.are.same({}, { table.unpack(contexts(other)) })
    other:kill()
  end))

  it("is not disturbed by files that are called as modules are", within(function()
    sandbox:write("odd/json.py", "raise SystemExit(1)")
    sandbox:write("odd/mine.py", "value = 5")
    local made = context { cwd = "odd" }
    assert.are.equal("5", execute("import mine\nmine.value", { context_id = made.id }).text)
    delete(made.id)
  end))

  it("takes executions of one context in order", within(function()
    local made = context()
    local order = {}
    local tasks = {}
    for i = 1, 8 do
      tasks[i] = task.spawn(function()
        local run = execute("import time; time.sleep(0.05); n = globals().get('n', 0) + 1; n", { context_id = made.id })
        order[#order + 1] = run.text
      end)
    end
    for _, one in ipairs(tasks) do assert(one:wait(10000)) end
    assert.are.same({ "1", "2", "3", "4", "5", "6", "7", "8" }, order)
    delete(made.id)
  end))

  it("lets 32 executions wait, and no more", within(function()
    local made = context()
    local res, next_line = begin("import time\ntime.sleep(60)", { context_id = made.id })
    next_line()
    local waiting = {}
    for i = 1, 32 do waiting[i] = begin("1", { context_id = made.id }) end
    refused(503, "wait", "POST", "/execute", { code = "1", context_id = made.id })
    waiting[7]:close()
    support.eventually(function()
      local one = request(sandbox, "POST", "/execute", { code = "1", context_id = made.id }, { stream = true })
      waiting[7] = one
      return one.status == 200
    end)
    assert.are.equal(204, delete(made.id))
    local run = gather(next_line)
    assert.are.equal("UnexpectedEndOfExecution", run.error.name)
    for _, one in ipairs(waiting) do
      local text = ""
      for chunk in function() return one:read(5000) end do text = text .. chunk end
      assert.truthy(text:find("deleted", 1, true) and text:find("end_of_execution", 1, true), text)
      one:close()
    end
    res:close()
  end))

  it("sends keepalives while nothing is said", within(function()
    local run = execute "import time\ntime.sleep(5.6)\n1"
    assert.are.same({ 1, "1" }, { run.keepalives, run.text })
  end))

  it("interrupts the code when its client goes away, and keeps what it had", within(function()
    local made = context()
    execute("z = 5", { context_id = made.id })
    local res, next_line = begin("import time\nprint('running')\ntime.sleep(60)", { context_id = made.id })
    next_line()
    next_line()
    res:close()
    local began = task.now_ms()
    local run = execute("z", { context_id = made.id })
    assert.is_true(task.now_ms() - began < 2000)
    assert.are.same({ "5", 3 }, { run.text, run.count })
    assert.is_nil(run.was_restarted)
    -- and its children
    res, next_line = begin("import os\nprint('running')\nos.system('sleep 61')", { context_id = made.id })
    next_line()
    next_line()
    res:close()
    assert.are.equal("5", execute("z", { context_id = made.id }).text)
    assert.are.equal("0\n", sandbox:start("grep -lax 'sleep.61.' /proc/[0-9]*/cmdline 2>/dev/null | wc -l").stdout)
    delete(made.id)
  end))

  it("kills code that does not let itself be interrupted, and says that its state is gone", within(function()
    local made = context()
    local res, next_line = begin("z = 5\nimport signal\nsignal.signal(2, signal.SIG_IGN)\nprint('running')\nwhile True: pass",
      { context_id = made.id })
    next_line()
    next_line()
    res:close()
    local run = execute("z", { context_id = made.id })
    assert.are.same({ "NameError", 1, true }, { run.error.name, run.count, run.was_restarted })
    delete(made.id)
    assert.is_true(support.eventually(function() return kernels() == 1 end))
  end))

  it("tells when it dies, and begins anew", within(function()
    local made = context()
    local run = execute("z = 1\nprint('last')\nimport os, time\ntime.sleep(0.1)\nos._exit(3)", { context_id = made.id })
    assert.are.same({ "last\n", "UnexpectedEndOfExecution" }, { run.stdout, run.error.name })
    run = execute("z", { context_id = made.id })
    assert.are.same({ "NameError", 1 }, { run.error.name, run.count })
    assert.is_nil(run.was_restarted) -- it was told
    execute("import threading, os\nthreading.Timer(0.1, lambda: os._exit(1)).start()", { context_id = made.id })
    task.sleep(300)
    run = execute("1", { context_id = made.id })
    assert.are.same({ "1", true }, { run.text, run.was_restarted })
    delete(made.id)
  end))

  it("has 16 contexts at most, the first one included", within(function()
    local other = engine:create()
    execute("1", nil, other)
    local made = {}
    for i = 1, 15 do made[i] = context(nil, other) end
    assert.are.equal(16, kernels(other))
    refused(503, "contexts", "POST", "/contexts", {}, other)
    delete(made[3].id, other)
    context(nil, other)
    other:kill()
  end))

  it("ends with its sandbox", within(function()
    local other = engine:create()
    local _, next_line = begin("import time\ntime.sleep(60)", nil, other)
    next_line()
    task.spawn(function() other:kill() end)
    local run = gather(next_line)
    assert.are.same({ "UnexpectedEndOfExecution", true }, { run.error.name, run.is_whole })
    assert.are.equal(502, request(other, "GET", "/contexts").status)
  end))

  describe("against hostile code", function()
    --- Finds the descriptor that answers go to.
    local FIND = "import os, json\nW = [int(f) for f in os.listdir('/proc/self/fd') if int(f) > 99 and "
      .. "os.readlink('/proc/self/fd/' + f).startswith('pipe') and os.stat('/proc/self/fd/' + f).st_mode][1]\n"
      .. "def say(v):\n  b = v if isinstance(v, bytes) else json.dumps(v).encode()\n  os.write(W, len(b).to_bytes(5, 'big') + b)\n"

    local function attack(code)
      local made = context()
      local run = execute(FIND .. code, { context_id = made.id })
      local after = execute("1 + 1", { context_id = made.id })
      assert.are.equal("2", after.text)
      delete(made.id)
      return run
    end

    local BAD = {
      { "no JSON", "say(b'nonsense')" }, { "no object", "say([1])" }, { "invalid UTF-8", "say(b'{\"a\":\"\\xff\"}')" },
      { "a length over the limit", "os.write(W, b'\\0\\xff\\xff\\xff\\xff')" }, { "a flag", "os.write(W, b'\\2\\0\\0\\0\\2{}')" },
      { "a kind that is none", "say({'id': 1, 'type': 'x'})" }, { "a result without formats", "say({'id': 1, 'type': 'result'})" },
      { "text that is none", "say({'id': 1, 'type': 'stdout', 'text': 5})" },
      { "an error without a name", "say({'id': 1, 'type': 'error', 'name': None})" },
      { "brackets without end", "say(b'[' * 100000)" },
    }
    for _, case in ipairs(BAD) do
      it("gives up a kernel that sends " .. case[1], within(function()
        local run = attack(case[2] .. "\nimport time; time.sleep(60)")
        assert.are.equal("UnexpectedEndOfExecution", run.error.name)
      end))
    end

    it("passes over what is for another execution", within(function()
      local run = attack("say({'id': 7, 'type': 'done'}); say({'id': 'x', 'type': 'stdout', 'text': 'no'})\n"
        .. "say({'type': 'ready'})\nprint('yes')")
      assert.are.same({ "yes\n" }, { run.stdout })
      assert.is_nil(run.error)
    end))

    it("lets no field through that is not an event's", within(function()
      local run = attack("f = {'text': 't', 'html': 5, 'evil': 'x', 'json': [1]}\n"
        .. "say({'id': 1, 'type': 'result', 'main': 1, 'formats': f, 'x': 1})")
      assert.are.same({ { type = "result", is_main_result = false, text = "t", json = json.array { 1 } } }, run.results)
    end))

    it("ends with an execution that forges its own end, and starts the next clean", within(function()
      local made = context()
      local run = execute(FIND .. "say({'id': 1, 'type': 'done'}); import time; time.sleep(0.2); print('late')",
        { context_id = made.id })
      assert.is_nil(run.error)
      run = execute("'next'", { context_id = made.id })
      assert.are.same({ "'next'", "" }, { run.text, run.stdout })
      delete(made.id)
    end))

    it("ends in time where a kernel talks between executions, and is heard or replaced", within(function()
      local made = context()
      execute(FIND .. "import threading\ndef flood():\n  while True: say({'id': 0, 'type': 'stdout', 'text': 'x' * 60000})\n"
        .. "threading.Thread(target=flood, daemon=True).start()", { context_id = made.id })
      task.sleep(200)
      local began = task.now_ms()
      local run = execute("1 + 1", { context_id = made.id })
      -- what it says may cut an answer of the program in two
      assert.is_true(run.text == "2" or run.error.name == "UnexpectedEndOfExecution")
      assert.is_true(task.now_ms() - began < 5000)
      delete(made.id)
    end))

    it("takes few large frames at a time, and only so long", within(function()
      local began = task.now_ms()
      local others, tasks = {}, {}
      for i = 1, 5 do others[i] = engine:create() end
      local code = FIND .. "import time\nos.write(W, b'\\0\\0\\x70\\0\\0' + b'{' * 300000); time.sleep(60)"
      for i = 1, 5 do tasks[i] = task.spawn(function() return execute(code, nil, others[i]) end) end
      task.sleep(500)
      assert.are.equal("1", execute("1").text) -- small ones go on
      for _, one in ipairs(tasks) do
        local ok, run = one:wait(50000)
        assert.is_true(ok, run)
        assert.are.equal("UnexpectedEndOfExecution", run.error.name)
      end
      local took = task.now_ms() - began
      assert.is_true(took > 39000 and took < 46000, took .. " ms") -- the fifth had to wait for a place
      for _, other in ipairs(others) do other:kill() end
    end))

    it("leaves the engine as small as it was, whatever is printed and whoever does not read", within(function()
      local function rss_kb()
        local file = assert(io.open("/proc/" .. engine.program.pid .. "/status"))
        local text = file:read "a"
        file:close()
        return tonumber(text:match "VmRSS:%s*(%d+)")
      end
      local before = rss_kb()
      local made, streams = {}, {}
      for i = 1, 6 do
        made[i] = context()
        streams[i] = begin("while True: print('x' * 5000)", { context_id = made[i].id })
      end
      task.sleep(1500)
      assert.is_true(not IS_MEASURED or rss_kb() - before < 24000, rss_kb() - before .. " kB")
      for i, res in ipairs(streams) do
        res:close()
        assert.are.equal("1", execute("1", { context_id = made[i].id }).text)
        delete(made[i].id)
      end
    end))
  end)
end)
