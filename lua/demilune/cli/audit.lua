--- cli/audit.lua - `demilune audit`: what agents did, what was denied and by which rule, from the file that servers write.
local core = require "demilune.core"
local errors = require "demilune.errors"
local grid = require "demilune.cli.grid"
local output = require "demilune.cli.output"
local reader = require "demilune.audit.reader"
local session = require "demilune.cli.session"
local style = require "demilune.cli.style"
local time = require "demilune.time"
local visible = require "demilune.visible"

local json, task = core.json, core.task

local UNIT_S = { s = 1, m = 60, h = 3600, d = 86400, w = 604800 }

--- A moment of the command line in ms since 1970. A day that no calendar has is none.
local function moment_ms(text)
  local count, unit = text:match "^(%d%d?%d?%d?%d?%d?)([smhdw])$"
  if count then return task.epoch_ms() - math.tointeger(tonumber(count)) * UNIT_S[unit] * 1000 end
  local iso = time.iso(text:find "^%d%d%d%d%-%d%d%-%d%d$" and text .. "T00:00:00Z" or text)
  local ms = iso and time.epoch_ms(iso)
  if ms and task.iso(ms):sub(1, 19) == iso:sub(1, 19) then return ms end
  session.misuse("--since takes a time like 2h, 30m, 7d, 2026-11-30 or 2026-11-30T09:00:00Z, in UTC")
end

local function tool_filter(pattern)
  if not pattern then return nil end
  local glob, why = core.regex.glob(pattern)
  if pattern:sub(1, 1) == "@" then why = "the name of a group is none" end
  if not glob or pattern:sub(1, 1) == "@" then
    session.misuse(("--tool takes the name of a tool, or a glob like run_*: %s"):format(why))
  end
  -- What cannot be told is rather shown than hidden.
  return function(name) return glob:matches(name) ~= false end
end

--- Foreign text in a cell.
local function cell(value, columns)
  if type(value) ~= "string" or value == "" then return "-" end
  return style.short(visible.of(value), columns)
end

local function decision_of(row)
  local by = row.answered_by and " by " .. cell(row.answered_by, 10) or ""
  return (row.asked and "ask, " or "") .. cell(row.decision, 10) .. by
end

local function rendered(rows)
  if #rows == 0 then return "No records.\n" end
  local cells = { { "TIME (UTC)", "PRINCIPAL", "TOOL", "DECISION", "RULE", "SANDBOX", "OUTCOME", "MS" } }
  for _, row in ipairs(rows) do
    cells[#cells + 1] = {
      cell(row.time:sub(1, 19):gsub("T", " "), 19), cell(row.principal, 24),
      cell(row.tool, 32) .. (row.implicit == true and " (implicit)" or ""), decision_of(row), cell(row.rule, 32),
      cell(row.sandbox_id, 36), cell(row.outcome, 24), row.duration_ms and tostring(row.duration_ms) or "-",
    }
  end
  return grid.render(cells, { header = true })
end

local function note_rest(found)
  if found.left_out > 0 then
    output.note(("%d older ones are not shown; --since, --tool and --denied choose others"):format(found.left_out))
  end
  if found.damaged > 0 then
    output.note(("%d %s could not be read"):format(found.damaged, found.damaged == 1 and "line" or "lines"))
  end
end

return {
  name = "audit",
  summary = "Show what was decided, and how it ended.",
  usage = "audit [--since T] [--tool G] [--denied] [--json]",
  help = [[
From the file that the configuration names, and from those that were rotated; oldest first, the newest
1000. A question and its answer are one line, and so are a decision and its outcome; - where there is
none (yet).

  --since T    from then on: 2h, 30m, 7d (ago), 2026-11-30, or 2026-11-30T09:00:00Z
  --tool G     calls of this tool alone, or of those that a glob like run_* names
  --denied     only what was denied or refused, waits for an approval, or was stopped afterwards
  --json       print {"records": […], "left_out": N, "damaged": N}, each record with all its keys]],
  options = { "since:", "tool:", "denied", "json" },
  run = function(options)
    local since_ms = options.since and moment_ms(options.since)
    local wanted = {
      since = since_ms and task.iso(since_ms), is_tool = tool_filter(options.tool), denied = options.denied,
      arguments = options.json,
    }
    local config = session.config(options)
    if not config.audit then
      errors.raise("unsupported", { message = 'No audit is configured; audit = "audit.jsonl" in the configuration begins one.' })
    end
    local found = reader.new(wanted)
    local ok, why = found:read(config.audit.file, since_ms and since_ms // 1000)
    if not ok then errors.raise("file_permission", { message = "The audit cannot be read: " .. why .. "." }) end
    local rows = found:result()
    if options.json then
      output.line(json.encode { records = rows, left_out = found.left_out, damaged = found.damaged })
    else
      output.write(rendered(rows))
      note_rest(found)
    end
    return 0
  end,
}
