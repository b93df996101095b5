--- cli/deciding.lua - what `demilune approve` and `demilune refuse` share: a person looks at a question and answers it.
--
-- Without a terminal nobody has looked, so nothing is decided. What is shown came from an agent: it is written out, so that
-- nothing of it moves a cursor or hides.
local control_client = require "demilune.control_client"
local core = require "demilune.core"
local duration = require "demilune.cli.duration"
local errors = require "demilune.errors"
local grid = require "demilune.cli.grid"
local output = require "demilune.cli.output"
local visible = require "demilune.visible"

local deciding = {}

local STDIN, STDERR = 0, 2
local TIMEOUT_MS = 5000
local ID = "^ap_[a-z2-7]+$"

--- All questions that wait, with the server each waits at.
local function questions()
  local list = {}
  for _, answer in ipairs(control_client.call_all(control_client.servers(), "approvals", nil, TIMEOUT_MS)) do
    for _, question in ipairs(answer.result or {}) do
      if type(question) == "table" and type(question.id) == "string" then
        list[#list + 1] = { pid = answer.pid, question = question }
      end
    end
  end
  return list
end

local function text_of(value)
  return visible.of(type(value) == "string" and value or "-")
end

--- Lists what waits; for whoever has no id at hand.
local function list_all()
  local list = questions()
  if #list == 0 then
    output.line "Nothing waits for an answer."
    return 0
  end
  local rows = { { "ID", "TOOL", "SANDBOX", "PRINCIPAL", "QUESTION", "EXPIRES IN" } }
  for _, entry in ipairs(list) do
    local question = entry.question
    rows[#rows + 1] = {
      text_of(question.id), text_of(question.tool), text_of(type(question.shown) == "table" and question.shown.sandbox or nil),
      text_of(question.principal), text_of(question.question),
      duration.words(math.tointeger(question.expires_in) or 0),
    }
  end
  output.write(grid.render(rows, { header = true }))
  return 0
end

local function find(id)
  for _, entry in ipairs(questions()) do
    if entry.question.id == id then return entry end
  end
  errors.raise("not_found", {
    message = "No running server of yours has the question " .. id .. "; it may have expired or been answered.",
    suggestion = "demilune approve, without an id, lists what waits.",
  })
end

--- The question as a person reads it.
---@param entry {pid: integer, question: table}
---@return string
function deciding.shown(entry)
  local question = entry.question
  local shown = type(question.shown) == "table" and question.shown or {}
  local arguments = text_of(shown.arguments)
  local bytes = math.tointeger(shown.arguments_bytes)
  if bytes then arguments = ("%s …\n             (cut: the arguments have %d bytes)"):format(arguments, bytes) end
  local lines = { text_of(question.question), "" }
  for _, row in ipairs {
    { "principal", text_of(question.principal) }, { "tool", text_of(question.tool) }, { "arguments", arguments },
    { "sandbox", text_of(shown.sandbox) }, { "provider", text_of(shown.provider) }, { "rule", text_of(question.rule) },
    { "server", tostring(entry.pid) },
  } do
    lines[#lines + 1] = ("  %-9s  %s"):format(row[1], row[2])
  end
  return table.concat(lines, "\n") .. "\n\n"
end

--- Whether the person says yes. Anything else is no.
local function confirm(prompt)
  io.stderr:write(prompt, " [y/N] ")
  io.stderr:flush()
  local line = io.stdin:read "l"
  return line ~= nil and (line:lower():match "^%s*y%s*$" or line:lower():match "^%s*yes%s*$") ~= nil
end

--- Whether a person is there who can be shown something and asked.
---@return boolean
function deciding.has_person() return core.sys.isatty(STDIN) and core.sys.isatty(STDERR) end

--- Asks the person at the terminal about a call that they made themselves.
---@param question string
---@param shown table  of the call
---@return "accept"|"decline"
function deciding.ask(question, shown)
  local asked = { question = question, principal = shown.principal, tool = shown.tool, rule = shown.rule, shown = shown }
  io.stderr:write("\n", core.vault.redact(deciding.shown { question = asked, pid = core.sys.pid() }))
  return confirm "May it run?" and "accept" or "decline"
end

local function decide(id, is_approval)
  if not deciding.has_person() then
    errors.raise("unsupported", {
      message = "Nothing was decided: a person must see the question, so this needs a terminal on stdin and stderr.",
    })
  end
  local entry = find(id)
  io.stderr:write("\n", core.vault.redact(deciding.shown(entry)))
  if not confirm(is_approval and "Approve?" or "Refuse?") then
    output.note(is_approval and "nothing was decided; the question still waits, and demilune refuse " .. id .. " says no to it"
      or "nothing was decided; the question still waits")
    return 1
  end
  local result, err = control_client.call(entry.pid, "decide", { id = id, approve = is_approval }, TIMEOUT_MS)
  if not result then
    errors.raise(err.category, { message = visible.of(err.message) })
  end
  output.line(id .. (is_approval and " approved; the agent may call again" or " refused"))
  return 0
end

--- The run function of a command.
---@param is_approval boolean
---@return async fun(options: table, rest: string[]): integer
function deciding.runner(is_approval)
  return function(_, rest)
    if #rest == 0 then return list_all() end
    if #rest > 1 or not rest[1]:find(ID) then
      errors.raise("invalid_argument", {
        message = "That is not the id of a question, which looks like ap_abcdefghij234567.", is_usage = true,
      })
    end
    return decide(rest[1], is_approval)
  end
end

return deciding
