--- outcome.lua - how a finished command is shown: head and tail of its output, and what the model should know.
local core = require "demilune.core"
local errors = require "demilune.errors"
local mask = require "demilune.mask"

local outcome = {}

local text = core.text

--- Of what is shown of a long output, this part is its head (4 of 16 KiB, 2 of 8).
local HEAD_SHARE = 4
--- A driver keeps this much more of the tail than is shown, so that nothing half-cut escapes redaction: the longest secret
--- that the vault takes, in hex. Of the head it keeps the whole limit anyway.
local SLACK_BYTES = 16384
--- The files that keep whole outputs are not longer.
local FILE_BYTES = 64 * 1024 * 1024

local NO_NETWORK_PHRASES = {
  "Could not resolve host", "Temporary failure in name resolution", "Name or service not known",
  "Network is unreachable", "Temporary failure resolving", "EAI_AGAIN", "ENOTFOUND", "unable to resolve host",
}

--- How much of one output a driver should keep: live bytes from the start, and a tail. What is longer than `live` is
--- cut, and kept in a file where the driver can.
---@param limit integer  bytes shown
---@return {live: integer, tail: integer}
function outcome.window(limit)
  return { live = limit, tail = limit - limit // HEAD_SHARE + SLACK_BYTES }
end

--- The longest piece of at most `most` bytes that `cut` gives (text.head, text.tail) whose mended form fits too: mending
--- makes three bytes of one. Returns the mended form and how many bytes it stands for.
local function fit(bytes, most, cut)
  local piece = cut(bytes, most)
  local shown = text.mend(piece)
  if #shown <= most then return shown, #piece end
  local low, high = 0, #piece
  while low < high do
    local middle = (low + high + 1) // 2
    if #text.mend(cut(bytes, middle)) <= most then low = middle else high = middle - 1 end
  end
  piece = cut(bytes, low)
  return text.mend(piece), #piece
end

--- What was kept of an output, without what must not leave. A head that goes on may end in half of a secret, which is dropped,
--- and a tail begin so, but within the slack.
local function masked(stream, masks)
  local head = masks.whole(stream.head, stream.tail ~= nil)
  return head, stream.tail and masks.whole(stream.tail)
end

--- The shown form of one output.
---@param stream {head: string, tail?: string, total: integer, path?: string}  head is all of it unless there is a tail
---@param limit integer
---@param masks? demilune.Masks  of the call; secrets alone without it
---@return string shown
---@return boolean truncated
function outcome.show(stream, limit, masks)
  local kept, kept_tail = masked(stream, masks or mask.SECRETS)
  if not stream.tail and #kept <= limit then
    local shown = text.mend(kept)
    if #shown <= limit then return shown, false end
  end
  local most = limit // HEAD_SHARE
  local head, head_bytes = fit(kept, most, text.head)
  local tail, tail_bytes = fit(kept_tail or kept, limit - most, text.tail)
  local how_much = stream.total > FILE_BYTES and "its first 64 MiB are in " or "all of it is in "
  local where = stream.path and ("; " .. how_much .. stream.path) or ""
  local gap = ("[%d bytes left out%s]"):format(math.max(stream.total - head_bytes - tail_bytes, 0), where)
  if head ~= "" and head:sub(-1) ~= "\n" then gap = "\n" .. gap end
  return head .. gap .. "\n" .. tail, true
end

local function network_note(sandbox, run)
  if run.exit_code == 0 or sandbox.info.network == "provider" or sandbox.info.network == "host" then return nil end
  if not (sandbox.info.network == "none" or sandbox.provider:network() == "none") then return nil end
  local said = run.stderr.head .. (run.stderr.tail or "")
  for _, phrase in ipairs(NO_NETWORK_PHRASES) do
    if said:find(phrase, 1, true) then return "This sandbox has no network." end
  end
end

local function note_of(sandbox, run)
  if run.timed_out then
    return ("The command was stopped after %d s; run long work with start_background_task."):format(run.timeout_s)
  end
  if not run.exit_code then return "The command was ended by a signal, perhaps for taking too much memory." end
  return network_note(sandbox, run)
end

--- The result of run_command (and most of run_code's). Raises with the operator's `nonzero_exit_is_error`.
---@param call demilune.Call
---@param sandbox demilune.Sandbox
---@param run table      outcome of Sandbox:run: stdout, stderr, exit_code?, timed_out, duration_ms, timeout_s
---@param created? boolean
---@param more? table  fields of the result that are not there yet
---@return table
function outcome.result(call, sandbox, run, created, more)
  local limits = call.app.config.output
  local result = {
    sandbox_id = sandbox.public_id, created = created, exit_code = run.exit_code, duration_ms = run.duration_ms,
    timed_out = run.timed_out, note = note_of(sandbox, run),
  }
  for name, value in pairs(more or {}) do
    if result[name] == nil then result[name] = value end
  end
  local masks = mask.of(call.redact)
  result.stdout, result.stdout_truncated = outcome.show(run.stdout, limits.stdout, masks)
  result.stderr, result.stderr_truncated = outcome.show(run.stderr, limits.stderr, masks)
  result.stdout_path = result.stdout_truncated and run.stdout.path or nil
  result.stderr_path = result.stderr_truncated and run.stderr.path or nil
  if call.app.config.nonzero_exit_is_error and (run.timed_out or run.exit_code ~= 0) then
    errors.raise(run.timed_out and "command_timeout" or "command_failed", { partial = result })
  end
  return result
end

return outcome
