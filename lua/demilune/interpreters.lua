--- interpreters.lua - running code in the languages that a sandbox has.
--
-- The code goes into a file, so that messages name lines; that file lies outside the working directory, which stays the
-- user's own. What a run made is found by comparing listings.
local core = require "demilune.core"
local errors = require "demilune.errors"
local mask = require "demilune.mask"
local scratch = require "demilune.scratch"

local json = core.json
local interpreters = {}

--- All languages that run_code names, in the order of the tool contract.
interpreters.NAMES = { "python", "javascript", "shell", "typescript", "r" }

--- File name, and the command with its probe. `$f` is the file.
local LANGUAGES = {
  python = { file = "main.py", probe = "python3", run = 'PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" exec python3 "$f"' },
  javascript = { file = "main.mjs", probe = "node", run = 'exec node "$f"' },
  shell = { file = "main.sh", probe = "sh", run = 'if command -v bash >/dev/null; then exec bash -l "$f"; fi; exec sh "$f"' },
  typescript = { file = "main.ts", probe = "tsx", run = 'exec tsx "$f"' },
  r = { file = "main.R", probe = "Rscript", run = 'exec Rscript "$f"' },
}

local FILES_MAX = 100
--- As much as the engine lists at once.
local LISTING_MAX = 10000
local LISTING_DEPTH = 64
local PROBE_TIMEOUT_S = 10
local REMOVE_TIMEOUT_S = 10

local MIMES = {
  txt = "text/plain", md = "text/markdown", csv = "text/csv", html = "text/html", css = "text/css", svg = "image/svg+xml",
  png = "image/png", jpg = "image/jpeg", jpeg = "image/jpeg", gif = "image/gif", webp = "image/webp", pdf = "application/pdf",
  json = "application/json", xml = "application/xml", zip = "application/zip", gz = "application/gzip", tar = "application/x-tar",
  py = "text/x-python", js = "text/javascript", mjs = "text/javascript", sh = "application/x-sh", wav = "audio/wav",
  mp3 = "audio/mpeg", mp4 = "video/mp4", parquet = "application/vnd.apache.parquet", xlsx =
  "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}

--- The media type that a file's name suggests.
---@param name string
---@return string
function interpreters.mime(name)
  local ending = name:match "%.([^.]+)$"
  return ending and MIMES[ending:lower()] or "application/octet-stream"
end

local TOO_MANY = "The files that this run made are not listed: the working directory holds too many."
local UNREADABLE = "The files that this run made are not listed: the working directory cannot be listed."

--- All files below the working directory by path; or nil and why not, in a sentence for the result. Differences to a
--- listing that is cut would be inventions.
local function listing(sandbox)
  local ok, entries, total = pcall(sandbox.list_dir, sandbox, sandbox:workdir(), LISTING_MAX, LISTING_DEPTH)
  if not ok then
    if not errors.is(entries) or entries == core.task.CANCELLED then error(entries, 0) end
    return nil, UNREADABLE
  end
  if total > #entries then return nil, TOO_MANY end
  local by_path = {}
  for _, entry in ipairs(entries) do
    if entry.type == "file" then by_path[entry.path] = entry end
  end
  return by_path
end

local function made(before, after)
  local paths = {}
  for path in pairs(after) do
    if not before[path] then paths[#paths + 1] = path end
  end
  table.sort(paths)
  local files = json.array {}
  for i = 1, math.min(#paths, FILES_MAX) do
    local entry = after[paths[i]]
    files[i] = { name = entry.name, path = entry.path, size = entry.size, mime = interpreters.mime(entry.name) }
  end
  return files
end

--- Exit code by which the start script says that the interpreter is not there.
local MISSING_CODE = 127
local MISSING_MARK = "demilune: no interpreter"

local function refuse_language(sandbox, language)
  local probes = {}
  for _, name in ipairs(interpreters.NAMES) do
    probes[#probes + 1] = ("command -v %s >/dev/null && echo %s"):format(LANGUAGES[name].probe, name)
  end
  local allowed = json.array {}
  local run = sandbox:run { argv = { "/bin/sh", "-c", table.concat(probes, "; ") }, cwd = "/", timeout_s = PROBE_TIMEOUT_S }
  for name in run.stdout.head:gmatch "%l+" do
    if LANGUAGES[name] then allowed[#allowed + 1] = name end
  end
  errors.raise("unsupported", {
    field = "language", allowed = allowed, message = ("This sandbox has no interpreter for %s."):format(language),
  })
end

--- A login shell's profile may set what the sandbox's variables had set: then another file sets them again first, so that
--- lines of the code keep their numbers. Returns the file to start.
local function keep_envs(sandbox, dir, file)
  local start = ('if command -v bash >/dev/null; then exec bash %s; fi; exec sh %s'):format(file, file)
  local with_envs = sandbox.provider:with_envs(sandbox, start)
  if with_envs == start then return file end
  scratch.guard("demilune cannot keep its own files in the sandbox's /tmp.", sandbox.write, sandbox, dir .. "/start.sh", with_envs)
  return dir .. "/start.sh"
end

--- Removes the code. A run that is over counts for more than what stays behind where that fails.
local function remove(sandbox, dir)
  local ok, err = pcall(sandbox.run, sandbox, {
    argv = { "/bin/rm", "-rf", dir }, cwd = "/", timeout_s = REMOVE_TIMEOUT_S,
  })
  if not ok and (not errors.is(err) or err == core.task.CANCELLED) then error(err, 0) end
end

local function start(call, sandbox, row, file, timeout_s)
  local script = ("command -v %s >/dev/null || { echo '%s' >&2; exit %d; }\nf=%s\n%s"):format(
    row.probe, MISSING_MARK, MISSING_CODE, file, row.run)
  return scratch.guard("The sandbox's working directory cannot be used.", sandbox.run, sandbox, {
    argv = { "/bin/sh", "-c", script }, timeout_s = timeout_s, on_line = call:line_reporter(),
  })
end

--- Runs the code as a program of its own, from a file.
local function run_file(call, sandbox, language, code, timeout_s)
  local row = LANGUAGES[language]
  local dir = scratch.write(sandbox, "code", row.file, code)
  local ok, run = pcall(function()
    local file = dir .. "/" .. row.file
    if language == "shell" then file = keep_envs(sandbox, dir, file) end
    return start(call, sandbox, row, file, timeout_s)
  end)
  remove(sandbox, dir)
  if not ok then error(run, 0) end
  if run.exit_code == MISSING_CODE and run.stderr.head:find(MISSING_MARK, 1, true) then refuse_language(sandbox, language) end
  return run
end

--- Runs code: in the kernel of the sandbox where it has one, else as a program of its own. Returns the outcome of the run,
--- the files it made, and where those are not known, why.
---@param call demilune.Call
---@param sandbox demilune.Sandbox
---@param language string
---@param code string
---@param timeout_s integer
---@return table outcome
---@return table files  [{name, path, size, mime}]
---@return string? note
function interpreters.run(call, sandbox, language, code, timeout_s)
  local before, note = listing(sandbox)
  local run = sandbox:run_code {
    language = language, code = code, timeout_s = timeout_s, on_line = call:line_reporter(), mask = mask.of(call.redact).whole,
  }
    or run_file(call, sandbox, language, code, timeout_s)
  local after
  if before then after, note = listing(sandbox) end
  return run, after and made(before, after) or json.array {}, note
end

return interpreters
