--- cli/call.lua - `demilune call`: one tool, through the call path that clients' calls take.
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local nearest = require "demilune.nearest"
local output = require "demilune.cli.output"
local provider_text = require "demilune.provider_text"
local session = require "demilune.cli.session"
local show = require "demilune.cli.show"
local style = require "demilune.cli.style"

local json = core.json

local STDERR = 2
local PROGRESS_COLUMNS = 70

--- Why JSON is refused, by what the decoder says.
local FAULTS = {
  out_of_range = "hold a number that is out of range", over_limit = "are nested too deep or hold too many values",
}

--- The text of the arguments: as given, or from stdin.
local function text_of(given, most_bytes)
  if given == nil then return "{}" end
  if given ~= "-" then return given end
  local text = io.stdin:read(most_bytes + 1) or ""
  if #text > most_bytes then session.misuse(("stdin holds more than %d MB"):format(most_bytes // (1024 * 1024))) end
  return text:find "%S" and text or "{}"
end

local function arguments_of(given, config)
  local text = text_of(given, config.limits.message * 1024 * 1024)
  local value, fault = json.decode(text)
  if fault then
    session.misuse("the arguments " .. (FAULTS[fault] or "are not JSON; quote them for the shell: '{\"path\": \"a b\"}'"))
  end
  if not connect.is_object(value) then session.misuse "the arguments must be a JSON object" end
  return value
end

local function find_tool(app, name)
  local tool = app.tools_by_name[name]
  if tool then return tool end
  local names = {}
  for i, known in ipairs(app.tools) do names[i] = known.name end
  local near = nearest.of(name, names)
  session.misuse(("there is no tool %s%s; see demilune tools"):format(
    style.short(name, PROGRESS_COLUMNS), near and ", perhaps " .. near or ""))
end

--- On a terminal the newest line of output is shown while the call runs; the second function wipes it.
local function progress()
  if not core.sys.isatty(STDERR) then return nil, function() end end
  local is_shown = false
  local function wipe()
    if is_shown then io.stderr:write("\r\27[K") end
    is_shown = false
  end
  return function(_, message)
    io.stderr:write("\r\27[K", style.short(message, PROGRESS_COLUMNS))
    is_shown = true
  end, wipe
end

local function failed(err, partial, as_json)
  if as_json then
    local shown = { error = errors.public(err) }
    for key, value in pairs(partial or {}) do shown[key] = value end
    output.line(json.encode(shown))
  elseif partial then
    output.write(style.plain(partial.stdout or ""))
    io.stderr:write(core.vault.redact(style.plain(partial.stderr or "")))
  end
  session.fail(err)
end

--- For debugging, a person at a terminal may see what a provider said when it refused. A file or a pipe never gets it.
local function show_provider_text()
  if not core.sys.isatty(STDERR) then
    session.misuse "--show-provider-text shows a provider's words to a person: stderr must be a terminal"
  end
  provider_text.listen(function(status, said)
    io.stderr:write("demilune: the provider said (", tostring(status), "): ", core.vault.redact(style.plain(said)), "\n")
  end)
end

local function run(options, rest)
  local name = rest[1]
  if not name then session.misuse "call takes the name of a tool and its arguments as JSON; see demilune call --help" end
  if #rest > 2 then session.misuse "call takes one tool and one JSON text; quote the JSON for the shell" end
  if options["show-provider-text"] then show_provider_text() end
  -- A sandbox that somebody asks for by name of the tool is wanted; one that a call needs in passing is not.
  local function adjust(config)
    config.keep_on_exit = config.keep_on_exit or name == "create_sandbox"
  end
  return session.run(options, function(self)
    local tool = find_tool(self.app, name)
    local arguments = arguments_of(rest[2], self.app.config)
    local send_progress, wipe = progress()
    local result, err, partial = self:call(name, arguments, send_progress)
    wipe()
    if not result then failed(err, partial, options.json) end
    local ended = result.created == true and not self.app.config.keep_on_exit
    output.write(options.json and json.encode(result) .. "\n" or show.result(tool, result, ended))
    return 0
  end, adjust)
end

return {
  name = "call",
  summary = "Call one tool, as a client would.",
  usage = "call TOOL [JSON] [--json] [--show-provider-text]",
  help = [[
JSON holds the tool's arguments, {} without it, and - reads them from stdin:

  demilune call run_command '{"command": "uname -a"}'

A sandbox made by `call create_sandbox` lives to its end, or to demilune kill; one
that another tool makes because the call names none ends with the call.

  --json                print the structured result, or {"error": ...}, as one line of JSON
  --show-provider-text  for debugging: show on the terminal what the provider said when it refused

Exit: 0 done, 1 the tool failed, 2 no such tool or not JSON.]],
  options = { "json", "show-provider-text" },
  takes_arguments = true,
  run = run,
}
