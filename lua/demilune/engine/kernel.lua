--- kernel.lua - the code interpreter of a sandbox, port 49999: contexts, and executions in them.
--
-- As E2B's: failures before an execution are a status and a sentence of text, an execution is a
-- stream of JSON lines. There are kernels for Python alone. When the client goes away, its
-- execution is interrupted.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local input = require "demilune.engine.input"
local kernel_context = require "demilune.engine.kernel_context"
local kernel_events = require "demilune.engine.kernel_events"
local path = require "demilune.engine.path"
local router = require "demilune.engine.router"
local target = require "demilune.engine.target"

local kernel = {}

local CODE_MAX_BYTES = 1024 * 1024
local BODY_MAX_BYTES = 4 * 1024 * 1024
local ID_MAX_BYTES = 64
local LANGUAGE_MAX_BYTES = 64
--- After so long without anything else the client gets a keepalive.
local KEEPALIVE_MS = 5000
--- Events that are made in one go, so that others have their turn.
local BURST_COUNT = 500

local STREAM_HEADERS = { ["Content-Type"] = "text/event-stream", ["Cache-Control"] = "no-store" }
local PYTHON = { python = true, python3 = true, py = true }
--- Raised where the client has gone.
local GONE = {}

local line = kernel_events.line

local function text(req, status, sentence)
  input.drain(req)
  return req:respond(status, { ["Content-Type"] = "text/plain; charset=utf-8" }, sentence)
end

local function check_language(object)
  local language = input.text(object, "language", LANGUAGE_MAX_BYTES)
  if language and not PYTHON[language:lower()] then
    faults.raise("unsupported", { message = "Unsupported language: this engine has a kernel for python alone." })
  end
  return language
end

-- ---- executions ----

local function write(req, lines)
  if lines ~= "" and not req:write(lines) then error(GONE, 0) end
end

--- The lines for messages of the kernel, and whether the execution is done; nil when the kernel
--- sent what is none.
local function lines_of(running, messages)
  local lines = {}
  for i, message in ipairs(messages) do
    if message.id == running.count then
      if message.type == "done" then return table.concat(lines), true end
      local event = kernel_events.of(message)
      if not event then return nil end
      lines[#lines + 1] = line(event)
    end
    if i % BURST_COUNT == 0 then core.task.sleep(0) end
  end
  return table.concat(lines), false
end

--- Passes on what an execution says, to its end; false when the kernel ended before.
local function follow(running, req)
  while true do
    local messages, why = running:next(KEEPALIVE_MS)
    if why == "ended" then return false end
    if messages then
      local lines, is_done = lines_of(running, messages)
      if not lines then
        running:kill()
        return false
      end
      write(req, lines)
      if is_done then return true end
    else
      write(req, line(kernel_events.KEEPALIVE))
    end
  end
end

--- Runs code in a context whose turn this is. Returns whether the kernel lived to its end.
local function run(context, req, request, was_lost)
  local running = context.kernel
  if was_lost then write(req, line(kernel_events.RESTARTED)) end
  context.is_fresh = false
  if not running:execute(request.code, request.env) then return false end
  write(req, line { type = "number_of_executions", execution_count = running.count })
  return follow(running, req)
end

--- Runs, tells, and passes the turn on, whatever happens.
local function serve_turn(context, req, request, was_lost)
  local ok, result = pcall(run, context, req, request, was_lost)
  if not ok then
    core.task.spawn(function() -- this task may have been cancelled
      pcall(context.kernel.interrupt, context.kernel)
      context:leave()
    end)
    error(result, 0)
  end
  if not result then context.is_fresh = true end
  context:leave()
  if not result then write(req, line(kernel_events.LOST)) end
end

--- Waits for the turn with the answer begun already, and prepares the kernel.
local function await_turn(context, req)
  context:enter(KEEPALIVE_MS, function() write(req, line(kernel_events.KEEPALIVE)) end)
  local ok, was_lost = pcall(context.prepare, context)
  if ok then return true, was_lost end
  context:leave()
  if not faults.is(was_lost) then error(was_lost, 0) end
  local event = { type = "error", name = kernel_events.LOST.name, value = was_lost.message, traceback = "" }
  write(req, line(event))
  return false
end

--- What an answer that has begun ends with.
local function finish(req, ok, raised)
  if ok then ok, raised = pcall(write, req, line(kernel_events.END)) end
  if ok then return req:finish() end
  if raised == core.task.CANCELLED then error(raised, 0) end
  if raised ~= GONE then faults.of(raised) end
  req:abort()
end

--- Serves at once: what goes wrong with the kernel is told by a status.
local function serve_now(context, req, request)
  local ok, was_lost = pcall(context.prepare, context)
  if not ok then
    local is_unused = context == kernel_context.all(context.sandbox).default and #context.waiting == 0
    if is_unused then context:delete() end
    context:leave()
    error(was_lost, 0)
  end
  req:start(200, STREAM_HEADERS)
  finish(req, pcall(serve_turn, context, req, request, was_lost))
end

--- Serves after those that came before.
local function serve_later(context, req, request)
  context:check_room()
  req:start(200, STREAM_HEADERS)
  finish(req, pcall(function()
    local is_there, was_lost = await_turn(context, req)
    if is_there then serve_turn(context, req, request, was_lost) end
  end))
end

local function find_context(sandbox, id)
  local context = kernel_context.all(sandbox).by_id[id]
  if not context then faults.raise("not_found", { message = "Context not found" }) end
  return context
end

local function context_of(sandbox, body)
  local id, language = input.text(body, "context_id", ID_MAX_BYTES), check_language(body)
  if id and language then
    faults.raise("invalid_argument", { message = "Only one of context_id or language can be provided" })
  end
  if id then return find_context(sandbox, id) end
  local all = kernel_context.all(sandbox)
  all.default = all.default or kernel_context.new(sandbox, path.HOME)
  return all.default
end

local function execute(sandbox, req)
  local body = input.json(req, BODY_MAX_BYTES)
  local code = input.text(body, "code", CODE_MAX_BYTES) or faults.bad("code", "code: It is missing.")
  if not core.text.is_utf8(code) then faults.bad("code", "code: It must be UTF-8.") end
  local request = { code = code, env = input.env(body, "env_vars") }
  local context = context_of(sandbox, body)
  if context:try_enter() then return serve_now(context, req, request) end
  serve_later(context, req, request)
end

-- ---- contexts ----

local function show(context)
  return { id = context.id, language = context.language, cwd = context.cwd }
end

local function list(sandbox, req)
  local shown = core.json.array {}
  for i, context in ipairs(kernel_context.all(sandbox).list) do shown[i] = show(context) end
  router.json(req, 200, shown)
end

--- Starts the kernel of a context, in its turn.
local function start(context)
  context:enter(KEEPALIVE_MS, function() end)
  local ok, raised = pcall(context.prepare, context)
  context.is_fresh = true
  context:leave()
  if not ok then error(raised, 0) end
end

local function create(sandbox, req)
  local body = input.json(req, BODY_MAX_BYTES)
  check_language(body)
  local context = kernel_context.new(sandbox, path.read(body, "cwd") or path.HOME)
  local ok, raised = pcall(start, context)
  if not ok then
    context:delete()
    error(raised, 0)
  end
  router.json(req, 200, show(context))
end

local function delete(sandbox, req, id)
  find_context(sandbox, id):delete()
  router.empty(req, 204)
end

local function restart(sandbox, req, id)
  local context = find_context(sandbox, id)
  context:check_room()
  if context.kernel then context.kernel:kill() end
  start(context)
  text(req, 200, "")
end

-- ---- routes ----

--- A handler whose faults become text, as the code interpreter answers.
local function plain(find_sandbox, handler)
  return function(req, segment)
    local sandbox = find_sandbox(req)
    if not sandbox then return end
    local ok, raised = pcall(handler, sandbox, req, segment)
    if ok then return end
    if raised == core.task.CANCELLED then error(raised, 0) end
    if target.answer_lost(req, sandbox, raised) then return end
    local fault = faults.of(raised)
    text(req, faults.status(fault), fault.message)
  end
end

--- The routes of port 49999. `find_sandbox(req)` gives the sandbox, or nil when it has answered.
---@param find_sandbox fun(req: table): demilune.engine.Sandbox?
---@return demilune.engine.Route[]
function kernel.routes(find_sandbox)
  local function route(method, address, handler)
    return { method, address, plain(find_sandbox, handler) }
  end
  return {
    route("GET", "/health", function(_, req) text(req, 200, "OK") end),
    route("POST", "/execute", execute),
    route("GET", "/contexts", list),
    route("POST", "/contexts", create),
    route("DELETE", "/contexts/{id}", delete),
    route("POST", "/contexts/{id}/restart", restart),
  }
end

return kernel
