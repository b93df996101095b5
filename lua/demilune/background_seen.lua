--- background_seen.lua - what a look into a task's folder says: its status, and its output as it is shown.
local core = require "demilune.core"
local errors = require "demilune.errors"
local mask = require "demilune.mask"
local outcome = require "demilune.outcome"

local background_seen = {}

--- With an offset, so much is shown at a time, whatever the configuration shows of an output.
background_seen.SLICE_BYTES = 16384
--- And so much is read on both sides of it, so that a secret is masked that a border cuts in two.
background_seen.AROUND_BYTES = 16384
--- What exit codes can be: the task may write what it likes where its wrapper notes the end.
local CODE_MAX = 255

--- A task whose wrapper has not begun by then never will.
local START_MS = 60000

--- Statuses that a task keeps.
background_seen.FINAL = { succeeded = true, failed = true, timed_out = true, cancelled = true, lost = true }

local STATUSES = {
  running = "running", starting = "running", timedout = "timed_out", cancelled = "cancelled", missing = "lost", lost = "lost",
}

local function status_of(record, state, exit_code)
  if state == "ended" then return exit_code == 0 and "succeeded" or "failed" end
  local is_late = state == "starting" and core.task.epoch_ms() - record.started_ms > START_MS
  return is_late and "lost" or STATUSES[state] or errors.raise "invalid_response"
end

--- When a task ended, by what was noted: not before it began, nor later than now.
local function finished_ms_of(record, seconds)
  local now_ms = core.task.epoch_ms()
  if not seconds or seconds > now_ms // 1000 then return now_ms end
  return math.max(seconds * 1000, record.started_ms)
end

--- What an answer of the script says. Raises `provider_timeout` where the script did not come to its end, else
--- `invalid_response`.
---@param record table
---@param run table  outcome of the script LOOK
---@return table seen  status, exit_code, out_size, err_size, out, err, finished_ms
function background_seen.read(record, run)
  if run.timed_out then errors.raise("provider_timeout", { message = "The sandbox did not answer in time." }) end
  local line, body = run.stdout.head:match "^([^\n]*)\n(.*)$"
  local state, code, out_size, err_size, finished = (line or ""):match "^(%l+) (%-?%d*) (%d+) (%d+) (%d*)$"
  out_size, err_size = math.tointeger(tonumber(out_size)), math.tointeger(tonumber(err_size))
  if not out_size or not err_size then errors.raise "invalid_response" end
  local exit_code = math.tointeger(tonumber(code))
  if exit_code and (exit_code < 0 or exit_code > CODE_MAX) then exit_code = nil end
  return {
    status = status_of(record, state, exit_code), exit_code = exit_code, out_size = out_size, err_size = err_size,
    out = body, err = run.stderr.head,
    finished_ms = finished_ms_of(record, math.tointeger(tonumber(finished))),
  }
end

--- Bytes without a character at their end that is not all there yet.
local function whole_characters(bytes)
  local at = bytes:find "[\xC2-\xF4][\x80-\xBF]*$"
  if not at or #bytes - at >= 3 then return bytes end
  local first = bytes:byte(at)
  local length = first < 0xE0 and 2 or first < 0xF0 and 3 or 4
  return #bytes - at + 1 < length and bytes:sub(1, at - 1) or bytes
end

--- As many of the bytes as are shown at a time, characters whole but for the `rest`, which nothing will follow. Mending
--- makes three bytes of one.
local function slice(bytes, rest)
  local most = background_seen.SLICE_BYTES
  bytes = bytes:sub(1, most)
  if #core.text.mend(bytes) > most then bytes = bytes:sub(1, most // 3) end
  return #bytes == rest and bytes or whole_characters(bytes)
end

--- The part of an output from an offset on, and how many bytes it stands for.
local function part(seen, bytes, offset, from, size, masks)
  local before = from - math.max(offset - background_seen.AROUND_BYTES, 0)
  if before < 0 or before > #bytes then return "", 0 end
  local rest = background_seen.FINAL[seen.status] and size - from
  local piece = slice(bytes:sub(before + 1), rest)
  local shown, ends = masks.part(bytes, before + 1, before + #piece)
  return core.text.mend(shown), ends - before
end

--- One output of a task.
---@param seen table
---@param stream string    "out" or "err"
---@param offset? integer  where to begin; without one, head and tail
---@param limit integer    bytes shown of head and tail
---@param dir string       of the task
---@param masks? demilune.Masks  of the call; secrets alone without it
---@return string text
---@return integer next_offset
---@return boolean truncated  there is more, or a gap
---@return string? path       of the file that has all
function background_seen.show(seen, stream, offset, limit, dir, masks)
  masks = masks or mask.SECRETS
  local size = seen[stream .. "_size"]
  if size == 0 then return "", 0, false, nil end
  local bytes = seen[stream]
  local path = dir .. "/" .. (stream == "out" and "stdout" or "stderr")
  if offset then
    local from = math.min(offset, size)
    local shown, taken = part(seen, bytes, offset, from, size, masks)
    return shown, from + taken, from + taken < size, path
  end
  local has_gap = size > #bytes
  local shown, truncated = outcome.show({
    head = has_gap and bytes:sub(1, #bytes // 2) or bytes, tail = has_gap and bytes:sub(#bytes // 2 + 1) or nil,
    total = size, path = path,
  }, limit, masks)
  return shown, size, truncated, path
end

return background_seen
