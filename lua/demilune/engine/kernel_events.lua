--- kernel_events.lua - what a kernel says, as the events of an execution that clients get.
--
-- The fields are copied one by one: a kernel is not trusted to send what its program would.
local connect = require "demilune.connect"
local core = require "demilune.core"

local kernel_events = {}

--- Formats of a result that are text, base64 included; `json` is any value.
local TEXTS = {
  "text", "html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "javascript",
}

local function output(message)
  if type(message.text) ~= "string" then return nil end
  return {
    type = message.type, text = message.text, timestamp = core.task.iso(core.task.epoch_ms()),
  }
end

local function result(message)
  local formats = message.formats
  if not connect.is_object(formats) then return nil end
  local event = { type = "result", is_main_result = message.main == true, json = formats.json }
  for _, name in ipairs(TEXTS) do
    if type(formats[name]) == "string" then event[name] = formats[name] end
  end
  return event
end

local function failure(message)
  local event = { type = "error" }
  for _, name in ipairs { "name", "value", "traceback" } do
    if type(message[name]) ~= "string" then return nil end
    event[name] = message[name]
  end
  return event
end

local MAKERS = { stdout = output, stderr = output, result = result, error = failure }

--- The event of a message; nil for one that has no known form.
---@param message table
---@return table?
function kernel_events.of(message)
  local make = MAKERS[message.type]
  return make and make(message)
end

--- One line of the answer.
---@param event table
---@return string
function kernel_events.line(event)
  return core.json.encode(event) .. "\n"
end

--- What tells that the kernel is gone.
kernel_events.LOST = {
  type = "error", name = "UnexpectedEndOfExecution",
  value = "The kernel ended before the execution was finished; what it held is lost.",
  traceback = "",
}
--- What it begins with where the kernel before was lost after its last execution. Ours; clients of
--- E2B pass it over.
kernel_events.RESTARTED = { type = "kernel_restarted" }
kernel_events.KEEPALIVE = { type = "keepalive" }
kernel_events.END = { type = "end_of_execution" }

return kernel_events
