--- outcome.lua - how a finished command is shown: head and tail of its output, and what the model should know.
local core = require "demilune.core"
local errors = require "demilune.errors"

local outcome = {}

local text = core.text

--- Of what is shown of a long output, this part is its head (4 of 16 KiB, 2 of 8).
local HEAD_SHARE = 4
--- A driver keeps this much more on both sides of its cut, so that nothing half-cut escapes redaction.
outcome.SLACK_BYTES = 4096

local NO_NETWORK_PHRASES = {
  "Could not resolve host", "Temporary failure in name resolution", "Name or service not known",
  "Network is unreachable", "Temporary failure resolving", "EAI_AGAIN", "ENOTFOUND", "unable to resolve host",
}

--- How much of one output a driver should keep: live bytes from the start, and a tail.
---@param limit integer  bytes shown
---@return {live: integer, tail: integer}
function outcome.window(limit)
  return { live = limit + 2 * outcome.SLACK_BYTES, tail = limit - limit // HEAD_SHARE + outcome.SLACK_BYTES }
end

--- The shown form of one output.
---@param stream {head: string, tail?: string, total: integer, path?: string}  head is all of it unless there is a tail
---@param limit integer
---@return string shown
---@return boolean truncated
function outcome.show(stream, limit)
  local whole = not stream.tail
  if whole and #stream.head <= limit then return text.mend(stream.head), false end
  local head_bytes = limit // HEAD_SHARE
  local head = text.mend(text.head(stream.head, head_bytes))
  local tail = text.mend(text.tail(whole and stream.head or stream.tail, limit - head_bytes))
  local where = stream.path and ("; all of it is in " .. stream.path) or ""
  local left_out = stream.total - #head - #tail
  local gap = ("[%d bytes left out%s]"):format(math.max(left_out, 0), where)
  if head ~= "" and head:sub(-1) ~= "\n" then gap = "\n" .. gap end
  return head .. gap .. "\n" .. tail, true
end

local function network_note(call, sandbox, run)
  if run.exit_code == 0 or sandbox.info.network == "provider" or sandbox.info.network == "host" then return nil end
  if not (sandbox.info.network == "none" or sandbox.provider:network() == "none") then return nil end
  local shown = run.stderr.head .. (run.stderr.tail or "") .. run.stdout.head
  for _, phrase in ipairs(NO_NETWORK_PHRASES) do
    if shown:find(phrase, 1, true) then return "This sandbox has no network." end
  end
end

local function note_of(call, sandbox, run, timeout_s)
  if run.timed_out then
    return ("The command was stopped after %d s; run long work with start_background_task."):format(timeout_s)
  end
  return network_note(call, sandbox, run)
end

--- The result of run_command (and most of run_code's). Raises with the operator's `nonzero_exit_is_error`.
---@param call demilune.Call
---@param sandbox demilune.Sandbox
---@param run table      outcome of Sandbox:run: stdout, stderr, exit_code?, timed_out, duration_ms, timeout_s
---@param created? boolean
---@return table
function outcome.result(call, sandbox, run, created)
  local limits = call.app.config.output
  local result = {
    sandbox_id = sandbox.public_id, created = created, exit_code = run.exit_code, duration_ms = run.duration_ms,
    timed_out = run.timed_out, note = note_of(call, sandbox, run, run.timeout_s),
  }
  result.stdout, result.stdout_truncated = outcome.show(run.stdout, limits.stdout)
  result.stderr, result.stderr_truncated = outcome.show(run.stderr, limits.stderr)
  result.stdout_path = result.stdout_truncated and run.stdout.path or nil
  result.stderr_path = result.stderr_truncated and run.stderr.path or nil
  if call.app.config.nonzero_exit_is_error and (run.timed_out or run.exit_code ~= 0) then
    errors.raise(run.timed_out and "command_timeout" or "command_failed", { partial = result })
  end
  return result
end

return outcome
