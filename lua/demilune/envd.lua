--- envd.lua - client of E2B's data plane: processes and files of one sandbox.
--
-- `plane:request(ref, opts)` is the provider's: it adds address, headers and credentials, and raises what HTTP itself
-- failed with. `plane.is_engine` says that our engine is there, which understands X-Demilune-* and adds an error_code to
-- what it refuses. Answers are hostile until checked; none of their text goes any further.
local collector = require "demilune.collector"
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local provider_text = require "demilune.provider_text"
local text = require "demilune.text"
local transport = require "demilune.transport"

local envd = {}

--- The variable of a process that holds its mark.
envd.MARK = "DEMILUNE_RUN"

local FRAME_MAX_BYTES = 8 * 1024 * 1024
local UNARY_MAX_BYTES = 8 * 1024 * 1024
local ERROR_MAX_BYTES = 65536
local UNARY_TIMEOUT_MS = 30000
--- For the words of a refusal, which only tell more of what the status says.
local ERROR_TIMEOUT_MS = 5000
local FILE_TIMEOUT_MS = 120000
--- Beyond a command's own deadline, for its last words.
local STREAM_MARGIN_MS = 10000
--- After a silence of this length it is looked whether the process is still there; each look doubles the next, up to a most.
envd.QUIET_MS, envd.QUIET_MAX_MS = 2000, 30000

--- Codes that our engine adds to its errors, and what they mean to a tool.
local ERROR_CODES = {
  file_not_found = { "file_not_found", "path" }, is_directory = { "is_directory", "path" },
  not_a_directory = { "not_a_directory", "path" }, file_permission = { "file_permission", "path" },
  disk_full = { "disk_full", nil }, unsupported = { "unsupported", "path" }, too_large = { "too_large", "path" },
  conflict = { "conflict", "offset" }, cwd_not_found = { "file_not_found", "cwd" },
  command_not_found = { "unsupported", nil, is_command = true }, sandbox_gone = { "sandbox_gone", nil },
  exhausted = { "quota_exceeded", nil }, invalid_argument = { "invalid_argument", "path" },
}

--- Arguments that the engine may find fault with after we did not.
local PATHS = { path = true, cwd = true }

local MESSAGES = {
  unsupported = "The path is no regular file: pipes, sockets and devices cannot be read or written.",
  conflict = "offset must equal the present size of the file.",
  quota_exceeded = "The sandbox has no process, descriptor or memory left for that.",
}

--- Whether a field is there: JSON of proto3 takes null for its absence.
local function is_said(value)
  return value ~= nil and value ~= core.json.null
end

local function raise_coded(row, body)
  local fields = { field = body.field == "cwd" and "cwd" or row[2], is_command = row.is_command }
  if not row.is_command then fields.message = MESSAGES[row[1]] end
  if row[1] == "invalid_argument" then
    if is_said(body.field) and not PATHS[body.field] then errors.raise "provider_rejected" end
    fields.field = PATHS[body.field] and body.field or "path"
    fields.message = fields.field .. " cannot be used: it is too long, or its links lead in circles."
  end
  if row[1] == "conflict" then fields.size = math.tointeger(body.size) end
  errors.raise(row[1], fields)
end

--- Raises what an error answer means.
local function raise_status(res, answer)
  local status = res.status
  provider_text.tell(status, answer)
  local body = connect.object(answer) or {}
  local row = ERROR_CODES[body.error_code]
  if row then raise_coded(row, body) end
  -- A proxy that has no such sandbox names it.
  if status == 502 or status == 410 or (status == 404 and is_said(body.sandboxId)) then errors.raise "sandbox_gone" end
  local category = status ~= 429 and core.status.from_code("connect", body.code)
  if category then errors.raise(category) end
  if status == 404 then errors.raise("file_not_found", { field = "path" }) end
  error(errors.from_response { status = status, retry_after = transport.retry_after(res) }, 0)
end

local function unary(plane, ref, method, body)
  local res = plane:request(ref, {
    method = "POST", path = "/" .. method, headers = { ["Content-Type"] = connect.UNARY_TYPE, ["Connect-Protocol-Version"] = "1" },
    body = core.json.encode(body), timeout_ms = UNARY_TIMEOUT_MS, max_body_bytes = UNARY_MAX_BYTES,
  })
  if res.status ~= 200 then raise_status(res, res.body) end
  return connect.object(res.body) or errors.raise "invalid_response"
end

-- ---- processes ----

--- The variables of a process: the sandbox's, and the mark by which a driver finds all that comes of it.
local function envs_of(ref, opts)
  if not opts.mark then return next(ref.envs) and ref.envs or nil end
  local envs = { [envd.MARK] = opts.mark }
  for name, value in pairs(ref.envs) do envs[name] = value end
  return envs
end

local function start_stream(plane, ref, opts, headers, timeout_ms)
  local envs = envs_of(ref, opts)
  local argv = opts.argv
  local request = {
    process = { cmd = argv[1], args = core.json.array(table.move(argv, 2, #argv, 1, {})), cwd = opts.cwd, envs = envs },
    stdin = false, tag = opts.tag,
  }
  headers["Content-Type"] = connect.STREAM_TYPE
  headers["Connect-Protocol-Version"] = "1"
  return plane:request(ref, {
    method = "POST", path = "/process.Process/Start", headers = headers, body = connect.message(request),
    timeout_ms = timeout_ms, stream = true,
  })
end

local function read_error(res)
  local parts, size = {}, 0
  local deadline_ms = core.task.now_ms() + ERROR_TIMEOUT_MS
  while size < ERROR_MAX_BYTES and core.task.now_ms() < deadline_ms do
    local chunk = res:read(math.max(0, deadline_ms - core.task.now_ms()))
    if not chunk then break end
    parts[#parts + 1], size = chunk, size + #chunk
  end
  return table.concat(parts)
end

--- Waits for more of a stream. With `on_quiet` that is called where nothing came for a while; true of it is an end.
local function read_more(res, deadline_ms, on_quiet)
  local quiet_ms = envd.QUIET_MS
  while true do
    local left_ms = deadline_ms - core.task.now_ms()
    -- Also where more is always there: a stream that never rests has a deadline too.
    if left_ms <= 0 then errors.raise "provider_timeout" end
    local is_whole = not on_quiet or quiet_ms >= left_ms
    local chunk, err = res:read(is_whole and left_ms or quiet_ms)
    if chunk then return chunk end
    if not err then errors.raise "invalid_response" end
    if is_whole or err.category ~= "provider_timeout" then error(err, 0) end
    if on_quiet() then return nil end
    quiet_ms = math.min(2 * quiet_ms, envd.QUIET_MAX_MS)
  end
end

--- Calls `on_event(event)` for each message of a Start stream until it returns true or the stream ends. Returns the error
--- of the end frame, if any. Raises `invalid_response` where the stream ends without one, `provider_timeout` at the deadline.
local function each_event(res, deadline_ms, on_event, on_quiet)
  if res.status ~= 200 then raise_status(res, read_error(res)) end
  local decoder = connect.decoder(FRAME_MAX_BYTES)
  while true do
    local flags, payload = decoder:next()
    if flags == connect.FLAG_END then
      local ending = connect.object(payload) or errors.raise "invalid_response"
      if not is_said(ending.error) then return nil end
      return connect.is_object(ending.error) and ending.error or errors.raise "invalid_response"
    elseif flags then
      local message = connect.object(payload) or errors.raise "invalid_response"
      if connect.is_object(message.event) and on_event(message.event) then return nil end
    elseif payload then
      error(payload, 0)
    else
      local chunk = read_more(res, deadline_ms, on_quiet)
      if not chunk then return nil end
      decoder:feed(chunk)
    end
  end
end

local function bytes_of(encoded)
  if type(encoded) ~= "string" then return nil end
  return encoded == "" and "" or core.crypto.unbase64(encoded) or errors.raise "invalid_response"
end

local function raise_connect(err)
  local row = ERROR_CODES[err.error_code]
  if row and (row[1] ~= "invalid_argument" or is_said(err.field)) then raise_coded(row, err) end
  provider_text.tell(type(err.code) == "string" and err.code or "no code", err.message)
  errors.raise(core.status.from_code("connect", err.code) or "provider_rejected")
end

--- What the engine says of an output that it cut: checked, or nil.
local function cut_of(part)
  if not connect.is_object(part) then return nil end
  local total = math.tointeger(tonumber(part.total))
  if not total then return nil end
  local path = type(part.path) == "string" and #part.path < 256 and part.path:find "^/tmp/%.demilune/[%w/._-]+$" and part.path
  return { total = total, tail = bytes_of(part.tail) or "", path = path or nil }
end

--- What a quiet stream is asked about: whether `opts.look` finds that the process has ended, with its pipes held by another.
local function quiet_of(opts, run)
  return opts.look and function()
    local ended = run.pid and opts.look(run.pid)
    if ended then run.exit_code, run.has_ended = ended.exit_code, true end
    return ended ~= nil
  end
end

local function watch(res, deadline_ms, out, err, opts)
  local run, on_line = { timed_out = false }, opts.on_line
  local started_ms = core.task.now_ms()
  local failure = each_event(res, deadline_ms, function(event)
    if connect.is_object(event.start) then
      started_ms, run.pid = core.task.now_ms(), math.tointeger(event.start.pid)
    elseif connect.is_object(event.data) then
      local stdout, stderr = bytes_of(event.data.stdout), bytes_of(event.data.stderr)
      if stdout then out:feed(stdout) end
      if stderr then err:feed(stderr) end
    elseif connect.is_object(event.line) and on_line and type(event.line.text) == "string" then
      on_line(event.line.text)
    elseif connect.is_object(event.output) then
      run.stdout, run.stderr = cut_of(event.output.stdout), cut_of(event.output.stderr)
    elseif connect.is_object(event["end"]) then
      local code = event["end"].exitCode
      code = not is_said(code) and 0 or math.tointeger(code) or errors.raise "invalid_response"
      run.exit_code = code >= 0 and code or nil
      run.has_ended = true
    end
  end, quiet_of(opts, run))
  -- At its deadline a process is killed, and either of both may be told first.
  local is_late = opts.mark and not run.exit_code and core.task.now_ms() >= deadline_ms - STREAM_MARGIN_MS
  if failure and failure.code == "deadline_exceeded" or is_late then
    run.timed_out, run.exit_code = true, nil
  elseif failure then
    raise_connect(failure)
  elseif not run.has_ended then
    errors.raise "invalid_response"
  end
  run.duration_ms = core.task.now_ms() - started_ms
  run.stdout, run.stderr = out:finish(run.stdout), err:finish(run.stderr)
  return run
end

--- Runs a process and waits for it. A cancel of the task kills its process group.
---@param plane table
---@param ref table   {id, envs}
---@param opts table  argv, cwd, timeout_s, stdout and stderr (windows of collector.lua), on_line?, mark?, and look?(pid): how a
---  process ended that the service does not call ended
---@return table run  stdout, stderr (collector.finish), exit_code (nil: ended by a signal or the deadline), timed_out, duration_ms
function envd.run(plane, ref, opts)
  local timeout_ms = opts.timeout_s * 1000
  local deadline_ms = core.task.now_ms() + timeout_ms + STREAM_MARGIN_MS
  local headers = { ["Connect-Timeout-Ms"] = tostring(timeout_ms) }
  if plane.is_engine then
    headers["X-Demilune-Kill-On-Close"] = "1"
    headers["X-Demilune-Spool"] =
      ("%d,%d,%d,%d"):format(opts.stdout.live, opts.stdout.tail, opts.stderr.live, opts.stderr.tail)
    headers["X-Demilune-Progress"] = opts.on_line and "1" or nil
  end
  local res = start_stream(plane, ref, opts, headers, timeout_ms + STREAM_MARGIN_MS)
  local out, err = collector.new(opts.stdout, opts.on_line), collector.new(opts.stderr, opts.on_line)
  local ok, run = pcall(watch, res, deadline_ms, out, err, opts)
  res:close()
  if not ok then error(run, 0) end
  return run
end

--- Starts a process that goes on by itself; `tag` is for envd.signal.
---@param plane table
---@param ref table
---@param opts {argv: string[], cwd: string, tag?: string, mark?: string}
---@return integer pid
function envd.start_detached(plane, ref, opts)
  local res = start_stream(plane, ref, opts, {}, UNARY_TIMEOUT_MS)
  local pid
  local ok, failure = pcall(each_event, res, core.task.now_ms() + UNARY_TIMEOUT_MS, function(event)
    pid = connect.is_object(event.start) and math.tointeger(event.start.pid) or nil
    return pid ~= nil
  end)
  res:close()
  if not ok then error(failure, 0) end
  if failure then raise_connect(failure) end
  return pid or errors.raise "invalid_response"
end

--- Signals the group of a process that was started with that tag. False: no such process runs.
---@param plane table
---@param ref table
---@param tag string
---@param signal "SIGNAL_SIGTERM"|"SIGNAL_SIGKILL"
---@return boolean
function envd.signal(plane, ref, tag, signal)
  local ok, err = pcall(unary, plane, ref, "process.Process/SendSignal", { process = { tag = tag }, signal = signal })
  if ok then return true end
  if errors.is(err) and err.category == "file_not_found" then return false end
  error(err, 0)
end

-- ---- files ----

--- The size that an answer names, in a header that must be there.
local function size_of(header)
  return math.tointeger(tonumber(header and header:match "%d+$")) or errors.raise "invalid_response"
end

--- Files end before this, so that no sum of an offset and a length overflows.
local OFFSET_MAX = 1 << 53

--- Reads a range of a file.
---@param plane table
---@param ref table
---@param path string  absolute
---@param offset integer
---@param length integer
---@param timeout_ms? integer
---@return string bytes
---@return integer size  of the whole file
function envd.read(plane, ref, path, offset, length, timeout_ms)
  offset = math.min(offset, OFFSET_MAX)
  local res = plane:request(ref, {
    method = "GET", path = "/files?path=" .. text.escape(path, "/"),
    headers = { Range = ("bytes=%d-%d"):format(offset, offset + length - 1) },
    timeout_ms = timeout_ms or FILE_TIMEOUT_MS, max_body_bytes = math.max(length, ERROR_MAX_BYTES),
  })
  if res.status == 416 then return "", size_of(res.headers["content-range"]) end
  -- The whole file where a part was asked for, as of an empty one: it is short, or the request had failed as too large.
  if res.status == 200 and not plane.is_engine then return res.body:sub(offset + 1, offset + length), #res.body end
  if res.status ~= 206 then raise_status(res, res.body) end
  if #res.body > length then errors.raise "invalid_response" end
  return res.body, size_of(res.headers["content-range"])
end

---@class demilune.envd.Reader
---@field size integer  of the file; of what was read so far where the service does not say (files of the kernel)
local Reader = {}
Reader.__index = Reader

--- The next bytes, or nil at the end.
---@return string?
function Reader:read()
  local left_ms = self.deadline_ms - core.task.now_ms()
  if left_ms <= 0 then errors.raise "provider_timeout" end
  local chunk, err = self.res:read(left_ms)
  if err then error(err, 0) end
  if chunk and self.is_counted then self.size = self.size + #chunk end
  return chunk
end

--- Drops the rest.
function Reader:close()
  self.res:close()
end

--- Opens a file from its start.
---@param plane table
---@param ref table
---@param path string
---@param timeout_ms? integer  for the answer to begin
---@return demilune.envd.Reader
function envd.open_read(plane, ref, path, timeout_ms)
  local res = plane:request(ref, {
    method = "GET", path = "/files?path=" .. text.escape(path, "/"), headers = {}, timeout_ms = timeout_ms or FILE_TIMEOUT_MS,
    stream = true,
  })
  if res.status ~= 200 then
    local ok, answer = pcall(read_error, res)
    res:close()
    raise_status(res, ok and answer or "")
  end
  local length = res.headers["content-length"]
  return setmetatable({
    res = res, size = length and size_of(length) or 0, is_counted = not length,
    deadline_ms = core.task.now_ms() + FILE_TIMEOUT_MS,
  }, Reader)
end

--- Uploads a file as a whole, in one of the forms that envd knows.
---@param plane table
---@param ref table
---@param path string
---@param body string
---@param content_type string
function envd.upload(plane, ref, path, body, content_type)
  local res = plane:request(ref, {
    method = "POST", path = "/files?path=" .. text.escape(path, "/"), body = body, headers = { ["Content-Type"] = content_type },
    timeout_ms = FILE_TIMEOUT_MS, max_body_bytes = ERROR_MAX_BYTES,
  })
  if res.status ~= 200 then raise_status(res, res.body) end
end

--- Writes a file as a whole, or appends where `append_at` is its size.
---@param plane table
---@param ref table
---@param path string
---@param bytes string
---@param append_at? integer
---@return integer size
function envd.write(plane, ref, path, bytes, append_at)
  local res = plane:request(ref, {
    method = "POST", path = "/files?path=" .. text.escape(path, "/"), body = bytes,
    headers = { ["Content-Type"] = "application/octet-stream", ["X-Demilune-Append"] = append_at and tostring(append_at) or nil },
    timeout_ms = FILE_TIMEOUT_MS, max_body_bytes = ERROR_MAX_BYTES,
  })
  if res.status ~= 200 then raise_status(res, res.body) end
  return math.tointeger(tonumber(res.headers["x-demilune-size"])) or (append_at or 0) + #bytes
end

local TYPES = { FILE_TYPE_FILE = "file", FILE_TYPE_DIRECTORY = "directory", FILE_TYPE_SYMLINK = "symlink" }

--- Lists a directory, entries sorted by the bytes of their paths.
---@param plane table
---@param ref table
---@param path string
---@param limit integer
---@param depth integer
---@return table[] entries  {name, path, type, size?}
---@return integer total
function envd.list_dir(plane, ref, path, limit, depth)
  local body = unary(plane, ref, "filesystem.Filesystem/ListDir", {
    path = path, depth = depth, limit = plane.is_engine and limit or nil,
  })
  local listed = is_said(body.entries) and body.entries or core.json.array {}
  if not connect.is_array(listed) then errors.raise "invalid_response" end
  local entries = {}
  for i, entry in ipairs(listed) do
    if type(entry) ~= "table" or type(entry.name) ~= "string" or type(entry.path) ~= "string" then
      errors.raise "invalid_response"
    end
    local kind = TYPES[entry.type] or "other"
    entries[i] = {
      name = entry.name, path = entry.path, type = kind,
      size = kind == "file" and (math.tointeger(tonumber(entry.size)) or 0) or nil,
    }
  end
  table.sort(entries, function(a, b) return a.path < b.path end)
  local total = plane.is_engine and math.tointeger(body.total) or #entries
  for i = #entries, limit + 1, -1 do entries[i] = nil end
  return entries, math.max(total, #entries)
end

return envd
