--- background_seen.lua - what a look into a task's folder says: its status, and its output as it is shown.
local core = require "demilune.core"
local errors = require "demilune.errors"
local outcome = require "demilune.outcome"

local background_seen = {}

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

--- What an answer of the script says. Raises `invalid_response`.
---@param record table
---@param run table  outcome of the script LOOK
---@return table seen  status, exit_code, out_size, err_size, out, err, finished (seconds)
function background_seen.read(record, run)
  local line, body = run.stdout.head:match "^([^\n]*)\n(.*)$"
  local state, code, out_size, err_size, finished = (line or ""):match "^(%l+) (%-?%d*) (%d+) (%d+) (%d*)$"
  if not state then errors.raise "invalid_response" end
  local exit_code = math.tointeger(tonumber(code))
  return {
    status = status_of(record, state, exit_code), exit_code = exit_code, out_size = math.tointeger(tonumber(out_size)),
    err_size = math.tointeger(tonumber(err_size)), out = body, err = run.stderr.head,
    finished = math.tointeger(tonumber(finished)),
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

--- One output of a task.
---@param seen table
---@param stream string    "out" or "err"
---@param offset? integer  where to begin; without one, head and tail
---@param limit integer    bytes shown of head and tail
---@param dir string       of the task
---@return string text
---@return integer next_offset
---@return boolean truncated  there is more, or a gap
---@return string? path       of the file that has all
function background_seen.show(seen, stream, offset, limit, dir)
  local size = seen[stream .. "_size"]
  if size == 0 then return "", 0, false, nil end
  local bytes = seen[stream]
  local path = dir .. "/" .. (stream == "out" and "stdout" or "stderr")
  if offset then
    local from = math.min(offset, size)
    local is_end = background_seen.FINAL[seen.status] and from + #bytes >= size
    if not is_end then bytes = whole_characters(bytes) end
    return core.text.mend(bytes), from + #bytes, from + #bytes < size, path
  end
  local has_gap = size > #bytes
  local shown, truncated = outcome.show({
    head = has_gap and bytes:sub(1, #bytes // 2) or bytes, tail = has_gap and bytes:sub(#bytes // 2 + 1) or nil,
    total = size, path = path,
  }, limit)
  return shown, size, truncated, path
end

return background_seen
