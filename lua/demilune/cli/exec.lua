--- cli/exec.lua - `demilune exec`: a command in a sandbox that is there already.
--
-- It is a call of run_command, so policy and renewal see it. Words arrive as they were given: each is quoted, and no
-- shell takes them apart again.
local core = require "demilune.core"
local output = require "demilune.cli.output"
local session = require "demilune.cli.session"
local style = require "demilune.cli.style"
local text = require "demilune.text"

local DEFAULT_TIMEOUT_S = 300
--- What one answer may hold of each output; longer ones are fetched from where the sandbox keeps them whole.
local OUTPUT_BYTES = 512 * 1024
local SLICE_BYTES = 1024 * 1024
--- A sandbox keeps this much of one output and drops what comes after (DML_SPOOL_FILE_BYTES of the agent).
local KEPT_BYTES = 64 * 1024 * 1024
--- timeout(1) ends with this one too.
local TIMED_OUT_EXIT = 124

local function command_of(words)
  local quoted = {}
  for i, word in ipairs(words) do quoted[i] = text.quote(word) end
  return table.concat(quoted, " ")
end

local function seconds_of(given)
  if given == nil then return DEFAULT_TIMEOUT_S end
  local seconds = #given <= 5 and given:find "^%d+$" and math.tointeger(tonumber(given))
  if not seconds or seconds < 1 or seconds > 86400 then
    session.misuse "--timeout takes a whole number of seconds from 1 to 86400"
  end
  return seconds
end

--- A terminal gets no control characters of a sandbox's; a pipe gets what was said.
local function write_out(bytes)
  return output.write(style.is_terminal() and style.plain(bytes) or bytes)
end

local function write_err(bytes)
  io.stderr:write(core.vault.redact(core.sys.isatty(2) and style.plain(bytes) or bytes))
  return true
end

--- Writes one output: what came with the answer, or all of it from its file.
local function relay(self, result, name, write)
  local path = result[name .. "_path"]
  local is_cut = result[name .. "_truncated"]
  if not is_cut or type(path) ~= "string" then
    write(result[name])
    if is_cut then output.note("the middle of " .. name .. " is left out: the sandbox had no room to keep it") end
    return
  end
  local offset = 0
  repeat
    local part = self:must("download_file", {
      path = path, sandbox_id = result.sandbox_id, offset = offset, length = SLICE_BYTES,
    })
    local bytes = part.bytes_read > 0 and core.crypto.unbase64(part.content_base64) or ""
    offset = offset + part.bytes_read
  until not write(bytes) or part.bytes_read == 0 or part.next_offset == core.json.null
  if offset == KEPT_BYTES then output.note(name .. " ends here: a sandbox keeps 64 MiB of one output") end
end

local function adjust(config)
  config.nonzero_exit_is_error = false
  config.output.stdout, config.output.stderr = OUTPUT_BYTES, OUTPUT_BYTES
end

local function run(options, rest)
  local id = table.remove(rest, 1)
  if not id or #rest == 0 then
    session.misuse "exec takes the id of a sandbox, -- and a command; see demilune exec --help"
  end
  local timeout_s = seconds_of(options.timeout)
  return session.run(options, function(self)
    local result = self:must("run_command", { command = command_of(rest), sandbox_id = id, timeout = timeout_s })
    if options.json then
      output.line(core.json.encode(result))
    else
      relay(self, result, "stdout", write_out)
      relay(self, result, "stderr", write_err)
    end
    if result.timed_out then
      output.note(("the command was stopped after %d s; --timeout gives it longer"):format(timeout_s))
      return TIMED_OUT_EXIT
    end
    return result.exit_code
  end, adjust)
end

return {
  name = "exec",
  summary = "Run a command in a sandbox.",
  usage = "exec ID [--timeout S] [--json] -- CMD…",
  help = [[
The words of CMD arrive as they are; for a shell's signs say  -- sh -c 'a | b'.
Output is shown when the command has ended, all of it, as text. stdin is not passed on.

  --timeout S   stop the command after S seconds (default 300)
  --json        print the structured result as one line of JSON

Exit: the command's; 124 when it was stopped; 1 when it could not be run, 2 misused.]],
  options = { "json", "timeout:" },
  takes_arguments = true,
  run = run,
}
