--- mcp/elicit.lua - asking the person at the client, in whichever way the request's revision has.
--
-- Up to 2025-11-25 the server sends elicitation/create and waits; from 2026-07-28 on the call ends and comes again with the
-- answer (input.lua). To who asks, both look the same. A client that did not say it can is never asked.
local connect = require "demilune.connect"
local core = require "demilune.core"
local input = require "demilune.mcp.input"
local schema = require "demilune.schema"
local visible = require "demilune.visible"

local json = core.json
local elicit = {}

local METHOD = "elicitation/create"
--- Elicitation is there since; it has modes since; nothing is sent to a client since.
local SINCE, MODES_SINCE, MODERN_SINCE = "2025-06-18", "2025-11-25", "2026-07-28"
--- The client's own request times out after a minute.
local LEGACY_MAX_MS = 45000
local ACTIONS = { accept = true, decline = true, cancel = true }

local SHOWN_BYTES = 1024

--- Whether the client of a request shows forms. An empty object declares forms (2025-11-25, "Capabilities").
---@param request table  capabilities, revision
---@return boolean
function elicit.can(request)
  local declared = connect.is_object(request.capabilities) and request.capabilities.elicitation
  if not request.revision or request.revision < SINCE or type(declared) ~= "table" then return false end
  if request.revision < MODES_SINCE or next(declared) == nil then return true end
  return connect.is_object(declared) and type(declared.form) == "table"
end

--- Whether an answer is one to a form of that schema.
local function is_answer(answer, wanted)
  if not connect.is_object(answer) or not ACTIONS[answer.action] then return false end
  if answer.action ~= "accept" then return true end
  return connect.is_object(answer.content) and not schema.fault(wanted, schema.prune(wanted, answer.content))
end

--- Asks a legacy client.
local function ask(request, params, timeout_ms)
  local answer, err = request.call:request(METHOD, json.encode(params), math.min(timeout_ms, LEGACY_MAX_MS))
  if answer and is_answer(answer, params.requestedSchema) then return answer end
  if err and err.category == "provider_timeout" then return nil, "timeout" end
  core.log.debug("elicitation: " .. (err and err.category or "the answer does not fit the form"))
  return nil, "unsupported"
end

--- Shows a person a form. For a client of 2026-07-28 the first call does not return: the call ends and comes again.
---@async
---@param request table  of the conversation: call, params, capabilities, revision, conversation
---@param message string
---@param requested_schema table  flat: an object of primitives
---@param timeout_ms integer  for a legacy client; of these, at most 45 s
---@param about? any  what the answer is about beside what is shown: another value needs another answer
---@return "accept"|"decline"|"cancel"|nil action
---@return table|"unsupported"|"timeout"|nil content  of "accept", as the schema has it; else why there is no answer
function elicit.form(request, message, requested_schema, timeout_ms, about)
  if not elicit.can(request) then return nil, "unsupported" end
  local params = { message = message, requestedSchema = requested_schema }
  if request.revision >= MODES_SINCE then params.mode = "form" end
  local answer, why
  if request.revision >= MODERN_SINCE then
    answer = input.answer(request, METHOD, params, about, function(given) return is_answer(given, requested_schema) end)
  else
    answer, why = ask(request, params, timeout_ms)
  end
  if not answer then return nil, why end
  return answer.action, answer.action == "accept" and schema.prune(requested_schema, answer.content) or nil
end

local APPROVE = {
  type = "object",
  properties = {
    approve = {
      type = "boolean", title = "Allow this call", description = "Yes runs it once, as it is shown; no refuses it.",
      default = false,
    },
  },
  required = json.array { "approve" },
}

--- What the person reads: the operator's question, then what would run.
local function approval_text(question, shown)
  local lines = { visible.cut(question, SHOWN_BYTES), "" }
  for _, name in ipairs { "tool", "provider", "sandbox", "arguments" } do
    if shown[name] then lines[#lines + 1] = name .. ": " .. visible.cut(shown[name], SHOWN_BYTES) end
  end
  return table.concat(lines, "\n")
end

--- A function that asks the person at the client whether a call may run; nil where that client shows no forms. It answers
--- nil when nobody answered, or closed the question without choosing.
---@param request table
---@return (async fun(question: string, shown: {tool: string, arguments: string, sandbox?: string, provider?: string},
---  timeout_ms: integer): "accept"|"decline"|nil)?
function elicit.asker(request)
  if not elicit.can(request) then return nil end
  return function(question, shown, timeout_ms)
    local text = approval_text(question, shown)
    local action, content = elicit.form(request, text, APPROVE, timeout_ms, { question, shown })
    if action == "accept" then return content.approve and "accept" or "decline" end
    return action == "decline" and "decline" or nil
  end
end

return elicit
