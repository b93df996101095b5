--- own/context.lua - what the handler of an operator's tool has in its hand: the functions of docs/extending.md.
--
-- What it does in sandboxes it does by the tools of this server, each a call of its own: decided by the policy as that tool,
-- counted and recorded. A tool of an operator's can do no more with sandboxes than its client could.
local calls = require "demilune.call"
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local host = require "demilune.own.host"
local mask = require "demilune.mask"
local visible = require "demilune.visible"

local context = {}

--- Tools that call tools that call tools.
local DEPTH_MAX = 8
local READ_BYTES, READ_BYTES_MAX = 1024 * 1024, 16 * 1024 * 1024
local SLICE_BYTES = 1024 * 1024
local LOG_BYTES, QUESTION_BYTES = 2048, 4096
local FORM_TYPES = { string = true, number = true, integer = true, boolean = true }

---@class demilune.own.Call: demilune.own.Host
---@field principal string       who calls
---@field client? string         what the client calls itself; nothing may be decided by it
---@field tool_name string       the name under which it was called
local Call = setmetatable({}, { __index = host.class })
Call.__index = Call
context.class = Call

---@class demilune.own.Sandbox
---@field id? string  as clients know it; nil until the first call has found or made the default sandbox
local Sandbox = {}
Sandbox.__index = Sandbox
context.sandbox_class = Sandbox

--- Makes it for a call.
---@param inner demilune.Call
---@param path string  the tool's file, for messages
---@return demilune.own.Call
function context.new(inner, path)
  return setmetatable({
    principal = inner.principal, client = inner.client, tool_name = inner.tool.name, json = core.json, _inner = inner,
    _path = path, _name = inner.tool.name, _config = inner.app.config,
  }, Call)
end

--- Arguments as they come from a client: lists are known as such, and texts are UTF-8.
local function as_from_client(self, args)
  local ok, encoded = pcall(core.json.encode, args)
  local decoded = ok and core.json.decode(encoded)
  if not connect.is_object(decoded) then self:_misuse "the arguments of a tool must be a table that can be JSON" end
  return decoded
end

--- Calls a tool as the same client would: its result, or its error and what a failed command has to show all the same.
local function run(self, name, args)
  local inner = self._inner
  local entry = inner.app.tools_by_name[name]
  if entry and inner.app.policy and not inner.app.policy:shows(entry, inner.principal) then entry = nil end
  if not entry then self:_misuse("there is no tool " .. tostring(name)) end
  local depth = (inner.own_depth or 0) + 1
  if depth > DEPTH_MAX then self:_misuse(("tools call each other more than %d deep"):format(DEPTH_MAX)) end
  return calls.run({
    app = inner.app, scope = inner.scope, tool = entry, principal = inner.principal, client = inner.client,
    client_version = inner.client_version, transport = inner.transport, revision = inner.revision,
    ask_person = inner.ask_person, own_depth = depth, request = inner.request, client_face = inner.client_face,
  }, as_from_client(self, args or {}))
end

--- Calls a tool of this server as the same client would, and gives its result. The policy decides it as that tool. Raises the
--- tool's error, which is then this call's own unless pcall catches it.
---@async
---@param name string
---@param args? table
---@return table result
function Call:tool(name, args)
  local result, err = run(self, name, args)
  return result or error(err, 0)
end

--- Answers the client with a handle of a task, where the tool has `task` and the client takes handles; the handler goes on, and
--- what it returns is asked for later. Nothing else changes for the handler.
---@return boolean is_deferred
function Call:defer()
  local defer = self._inner.defer
  return defer ~= nil and defer() or false
end

--- A line in the server's log, and for a client that wants to hear of its level.
---@param level "debug"|"info"|"warn"|"error"
---@param text string
function Call:log(level, text)
  host.class.log(self, level, text)
  local inner = self._inner
  if not inner.client_face then return end
  local line = core.text.mend(core.text.head((tostring(text):gsub("%c+", " ")), LOG_BYTES))
  inner.client_face.log(inner.request, level == "warn" and "warning" or level, mask.of(inner.redact).whole(line))
end

--- Whether a table is the schema of a form: plain fields, nothing deeper.
local function is_form(wanted)
  if type(wanted) ~= "table" or type(wanted.properties) ~= "table" then return false end
  for name, node in pairs(wanted.properties) do
    if type(name) ~= "string" or type(node) ~= "table" or not FORM_TYPES[node.type] then return false end
  end
  return true
end

--- Shows the person at the client a form and gives what was filled in. Raises `unsupported` where the client shows no forms,
--- `approval_refused` where the person declined, `approval_required` where nobody answered. A client of 2026-07-28 makes the
--- call again with the answer: then the handler runs from its beginning, and the same question is answered at once.
---@async
---@param message string  what is asked, and why
---@param properties table<string, table>  a field each: { type = "string", title = …, enum = … }; string, number, integer, boolean
---@param required? string[]  fields that must be filled in
---@return table<string, string|number|boolean> answer
function Call:elicit(message, properties, required)
  local wanted = { type = "object", properties = properties, required = required and core.json.array(required) or nil }
  if type(message) ~= "string" or not is_form(wanted) then
    self:_misuse "elicit takes a message and a table of fields such as { name = { type = \"string\" } }"
  end
  local inner = self._inner
  if not inner.client_face then errors.raise("unsupported", { message = "There is no client that could show a form." }) end
  local action, content = inner.client_face.ask(inner.request, visible.cut(message, QUESTION_BYTES), wanted)
  if action == "accept" then return content end
  if action == "decline" then errors.raise "approval_refused" end
  if content == "unsupported" then errors.raise("unsupported", { message = "The client shows no forms." }) end
  errors.raise "approval_required"
end

--- A sandbox to work in. Nothing is looked for yet.
---@param id? string  as clients know it; without it the default sandbox, made where the tool that is used makes it
---@return demilune.own.Sandbox
function Call:sandbox(id)
  return setmetatable({ id = id, _call = self }, Sandbox)
end

--- Tells a client that asked for progress how far the call is.
---@param text string  one line
function Call:progress(text)
  local report = self._inner:line_reporter()
  if report then report((tostring(text):gsub("%c+", " "))) end
end

-- ---- sandboxes ----

--- Calls a tool in the sandbox; the default one is kept to once it is known.
local function use(sandbox, name, args)
  args.sandbox_id = sandbox.id
  local result, err, partial = run(sandbox._call, name, args)
  -- What the end of a command means is the handler's to say, whatever `nonzero_exit_is_error` makes of it for clients.
  result = result or partial or error(err, 0)
  sandbox.id = sandbox.id or result.sandbox_id
  return result
end

--- Runs a shell command and waits for it: the tool run_command.
---@async
---@param command string
---@param options? { cwd?: string, timeout?: integer }  timeout: seconds, 50 without it
---@return { stdout: string, stderr: string, exit_code: integer, timed_out: boolean } result  exit_code: json.null where a signal
---  or the deadline ended it
function Sandbox:run(command, options)
  options = options or {}
  return use(self, "run_command", { command = command, cwd = options.cwd, timeout = options.timeout })
end

--- The bytes of a file: the tool download_file, in slices. Raises `too_large` where the file has more than `max_bytes`,
--- `invalid_response` where it ends before its size.
---@async
---@param path string
---@param max_bytes? integer  1 MiB without it, at most 16 MiB
---@return string bytes
function Sandbox:read(path, max_bytes)
  max_bytes = max_bytes or READ_BYTES
  if not (math.type(max_bytes) == "integer" and max_bytes > 0 and max_bytes <= READ_BYTES_MAX) then
    self._call:_misuse("read takes at most 16 MiB")
  end
  local parts, offset = {}, 0
  repeat
    local slice = use(self, "download_file", { path = path, offset = offset, length = math.min(SLICE_BYTES, max_bytes) })
    if slice.size > max_bytes then errors.raise("too_large", { field = "path", size = slice.size }) end
    parts[#parts + 1] = slice.content_base64 == "" and "" or core.crypto.unbase64(slice.content_base64)
    local next_offset = slice.next_offset
    if next_offset ~= core.json.null and next_offset <= offset then errors.raise "invalid_response" end
    offset = next_offset
  until offset == core.json.null
  return table.concat(parts)
end

--- Writes a file as a whole: the tool upload_file.
---@async
---@param path string
---@param bytes string  at most 1 MiB
---@return integer size
function Sandbox:write(path, bytes)
  if type(bytes) ~= "string" or #bytes > SLICE_BYTES then self._call:_misuse("write takes bytes, at most 1 MiB") end
  return use(self, "upload_file", { path = path, content_base64 = bytes == "" and "" or core.crypto.base64(bytes) }).size
end

--- Lists a folder: the tool list_files.
---@async
---@param path? string  the working directory without it
---@param limit? integer  entries, at most 2000
---@return { name: string, path: string, type: string, size: integer }[] entries
---@return integer total  how many there are
function Sandbox:list(path, limit)
  local result = use(self, "list_files", { path = path, limit = limit })
  return result.files, result.total
end

return context
