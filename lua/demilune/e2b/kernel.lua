--- e2b/kernel.lua - client of E2B's code interpreter, port 49999 of templates that have one: state is kept between runs.
--
-- An execution is a stream of JSON objects, one a line. To leave the stream interrupts the code. Texts are the sandbox's:
-- shown to the model like any output, and bounded like it.
local collector = require "demilune.collector"
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local provider_text = require "demilune.provider_text"

local kernel = {}

kernel.PORT = "49999"

local PROBE_TIMEOUT_MS = 5000
local PROBE_MAX_BYTES = 4096
--- One image may be large; what is read of it is dropped at once.
local LINE_MAX_BYTES = 32 * 1024 * 1024
local RESULT_BYTES_MAX = 8 * 1024
local ERROR_MAX_BYTES = 65536
--- Beyond a run's own deadline, for its last words.
local MARGIN_MS = 2000

--- Our names of languages, in the order of the tool contract, and the service's.
kernel.LANGUAGES = { python = "python", javascript = "javascript", shell = "bash", typescript = "typescript", r = "r" }

--- Whether a sandbox has one; nil where that could not be learned.
---@param provider demilune.E2b
---@param ref table
---@return boolean?
function kernel.is_there(provider, ref)
  local ok, res = pcall(provider.request, provider, ref, {
    method = "GET", path = "/health", headers = {}, port = kernel.PORT, is_probe = true, timeout_ms = PROBE_TIMEOUT_MS,
    max_body_bytes = PROBE_MAX_BYTES,
  })
  if ok then return res.status >= 200 and res.status < 300 end
  if not errors.is(res) then error(res, 0) end
end

-- ---- lines ----

---@class demilune.kernel.Lines
---@field parts string[]
---@field size integer
local Lines = {}
Lines.__index = Lines

--- Calls `on_line` for each whole line of what is fed. Raises `too_large` for one that does not end in time.
local function feed(lines, bytes, on_line)
  local at = 1
  while true do
    local stop = bytes:find("\n", at, true)
    if not stop then break end
    lines.parts[#lines.parts + 1] = bytes:sub(at, stop - 1)
    local line = table.concat(lines.parts)
    lines.parts, lines.size, at = {}, 0, stop + 1
    if on_line(line) then return true end
  end
  lines.parts[#lines.parts + 1] = bytes:sub(at)
  lines.size = lines.size + #bytes - at + 1
  if lines.size > LINE_MAX_BYTES then errors.raise "too_large" end
end

-- ---- events ----

local function text_of(value) return type(value) == "string" and value or "" end

--- Takes one event into the run. True at the last.
local function take(run, event, out, err)
  local kind = event.type
  if kind == "stdout" then
    out:feed(text_of(event.text))
  elseif kind == "stderr" then
    err:feed(text_of(event.text))
  elseif kind == "result" then
    if event.is_main_result == true and type(event.text) == "string" then
      -- Masked before it is cut: half a secret would not be known again.
      run.result = core.text.head(core.text.mend(run.mask(event.text)), RESULT_BYTES_MAX)
    end
  elseif kind == "error" then
    run.exit_code = 1
    local trace = text_of(event.traceback)
    if trace == "" then trace = text_of(event.name) .. ": " .. text_of(event.value) end
    err:feed((trace:gsub("\27%[[%d;]*m", "")) .. "\n")
  end
  return kind == "end_of_execution"
end

--- Reads the stream to its end or the deadline. Returns whether it ended.
local function watch(res, deadline_ms, run, out, err)
  local lines = setmetatable({ parts = {}, size = 0 }, Lines)
  while true do
    local left_ms = deadline_ms - core.task.now_ms()
    if left_ms <= 0 then return false end
    local chunk, failure = res:read(left_ms)
    if failure and failure.category == "provider_timeout" then return false end
    if failure then error(failure, 0) end
    if not chunk then errors.raise "invalid_response" end
    local is_over = feed(lines, chunk, function(line)
      if line:find "^%s*$" then return false end
      return take(run, connect.object(line) or errors.raise "invalid_response", out, err)
    end)
    if is_over then return true end
  end
end

local function read_refusal(res)
  local parts, size = {}, 0
  local deadline_ms = core.task.now_ms() + PROBE_TIMEOUT_MS
  while size < ERROR_MAX_BYTES and core.task.now_ms() < deadline_ms do
    local chunk = res:read(math.max(0, deadline_ms - core.task.now_ms()))
    if not chunk then break end
    parts[#parts + 1], size = chunk, size + #chunk
  end
  return table.concat(parts)
end

--- With these a service says that it has no kernel for a language: its own server fails to start one.
local LACKING = { [400] = true, [404] = true, [500] = true, [501] = true }

--- What a refusal means: nothing where the service has no kernel for the language.
local function check_refusal(res, is_default)
  local status = res.status
  provider_text.tell(status, read_refusal(res))
  res:close()
  if not is_default and LACKING[status] then return end
  error(errors.from_response { status = status, family = "e2b" }, 0)
end

--- Runs code in the default kernel of its language and waits for it; nil where there is none. A cancel interrupts it.
---@param provider demilune.E2b
---@param ref table
---@param opts {language: string, code: string, timeout_s: integer, envs: table, stdout: table, stderr: table,
---  on_line?: function, mask?: fun(text: string): string}  mask: what the result goes through before it is cut
---@return table? run  as envd.run gives it, and `result`
function kernel.run(provider, ref, opts)
  local body = {
    code = opts.code, language = kernel.LANGUAGES[opts.language], env_vars = next(opts.envs) and opts.envs or nil,
  }
  -- Neither language nor context is the default Python kernel.
  if opts.language == "python" then body.language = nil end
  local started_ms = core.task.now_ms()
  local deadline_ms = started_ms + opts.timeout_s * 1000
  local res = provider:request(ref, {
    method = "POST", path = "/execute", headers = { ["Content-Type"] = "application/json" }, port = kernel.PORT,
    body = core.json.encode(body), timeout_ms = opts.timeout_s * 1000 + MARGIN_MS, stream = true,
  })
  if res.status ~= 200 then return check_refusal(res, body.language == nil) end
  local run = { exit_code = 0, timed_out = false, timeout_s = opts.timeout_s, mask = opts.mask or core.vault.redact }
  local out, err = collector.new(opts.stdout, opts.on_line), collector.new(opts.stderr, opts.on_line)
  local ok, has_ended = pcall(watch, res, deadline_ms, run, out, err)
  res:close()
  if not ok then error(has_ended, 0) end
  if not has_ended then run.timed_out, run.exit_code = true, nil end
  run.duration_ms = core.task.now_ms() - started_ms
  run.stdout, run.stderr = out:finish(), err:finish()
  return run
end

return kernel
