--- output.lua - what a process writes, as the frames of a Start or Connect stream.
--
-- Beside E2B's events there are two of ours, sent only to those who asked: `output` (how much there
-- was, its end, where all of it is kept) and `line` (the newest whole line).
local connect = require "demilune.connect"
local core = require "demilune.core"
local faults = require "demilune.engine.faults"

local output = {}

--- Names of signals as Go writes them, which is what envd shows.
local SIGNALS = {
  "hangup", "interrupt", "quit", "illegal instruction", "trace/breakpoint trap", "aborted",
  "bus error",
  "floating point exception", "killed", "user defined signal 1", "segmentation fault",
  "user defined signal 2",
  "broken pipe", "alarm clock", "terminated",
}

local KEEPALIVE = connect.frame(0, '{"event":{"keepalive":{}}}')

--- The event as bytes: output is the bulk, and base64 needs no escapes.
local function data_frame(event)
  return connect.frame(0, table.concat {
    '{"event":{"data":{"', event.type, '":"', core.crypto.base64(event.data), '"}}}',
  })
end

--- proto3 JSON leaves out what is zero, empty or false.
local function end_frame(event)
  local ending
  if event.signal then
    local status = "signal: " .. (SIGNALS[event.signal] or "signal " .. event.signal)
    ending = { exitCode = -1, status = status, error = status }
  else
    local status = "exit status " .. event.code
    local failed = event.code ~= 0
    ending = { exited = true, status = status }
    if failed then ending.exitCode, ending.error = event.code, status end
  end
  return connect.message { event = { ["end"] = ending } }
end

local function part(kept)
  return {
    total = kept.total, tail = core.crypto.base64(kept.tail or ""),
    path = kept.path or core.json.null,
  }
end

local function kept_frame(event)
  local both = { stdout = part(event.stdout), stderr = part(event.stderr) }
  return connect.message { event = { output = both } }
end

--- The end of a stream that failed.
local function failure(error_code)
  return connect.ending(faults.connect_body(faults.new(error_code)))
end

local FRAMES = {
  stdout = data_frame,
  stderr = data_frame,
  output = kept_frame,
  line = function(event) return connect.message { event = { line = { text = event.text } } } end,
  exit = function(event)
    if event.timed_out then return failure "deadline_exceeded" end
    return end_frame(event) .. connect.ending()
  end,
}

--- What to write for what `proc:next` gave; with true when it is the last.
local function next_frame(proc, deadline_ms, ping_ms)
  local wait_ms = ping_ms
  if deadline_ms then
    local left_ms = deadline_ms - core.task.now_ms()
    if left_ms <= 0 then return failure "deadline_exceeded", true end
    wait_ms = math.min(wait_ms, left_ms)
  end
  local event, why = proc:next(wait_ms)
  if event then return FRAMES[event.type](event), event.type == "exit" end
  if why ~= "timeout" then return failure "sandbox_gone", true end
  if wait_ms < ping_ms then return "", false end
  return KEEPALIVE, false
end

--- Writes the stream to its end. Returns whether the end was reached; false when the client went
--- away.
---@param req table
---@param proc table
---@param options { ping_ms: integer, deadline_ms?: integer }
---@return boolean has_ended
function output.stream(req, proc, options)
  req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
  local frame, is_last = connect.message { event = { start = { pid = proc.pid } } }, false
  while true do
    if frame ~= "" and not req:write(frame) then return false end
    if is_last then break end
    frame, is_last = next_frame(proc, options.deadline_ms, options.ping_ms)
  end
  req:finish()
  return true
end

return output
