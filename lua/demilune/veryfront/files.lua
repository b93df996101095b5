--- veryfront/files.lua - files of a Veryfront sandbox.
--
-- The service moves whole text files: GET /file, POST /files. Bytes, ranges, appending and atomic replacement are made of
-- an upload beside and a script, so that what the tools promise holds here too. A file whose text is not plainly whole is
-- read by a script as well.
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local run = require "demilune.veryfront.run"
local shell_files = require "demilune.shell_files"
local text = require "demilune.text"

local files = {}

local FILE_TIMEOUT_MS = 120000
local SCRIPT_TIMEOUT_S = 60
--- A larger text is read in slices.
local TEXT_MAX_BYTES = 8 * 1024 * 1024
local SLICE_BYTES = 1024 * 1024
local LINE_BYTES = 256
local LIST_MAX_BYTES = 8 * 1024 * 1024
local UPLOAD_ID_BYTES = 16
--- Files end before this, so that no sum of an offset and a length overflows.
local OFFSET_MAX = 1 << 53

local function slice(self, ref, path, offset, length)
  local answer = run.script(self, ref, shell_files.READ, { path, offset, length }, {
    timeout_s = SCRIPT_TIMEOUT_S, bytes = LINE_BYTES + length * 3 // 2,
  })
  local size, encoded = shell_files.read_answer(answer)
  encoded = encoded:gsub("%s+", "")
  local bytes = encoded == "" and "" or core.crypto.unbase64(encoded)
  if not size or not bytes or #bytes > length then errors.raise "invalid_response" end
  return bytes, size
end

--- Reads a range of a file.
---@param self demilune.Veryfront
---@param sandbox demilune.Sandbox
---@param path string
---@param offset integer
---@param length integer
---@return string bytes
---@return integer size
function files.read(self, sandbox, path, offset, length)
  local parts, at = {}, math.min(offset, OFFSET_MAX)
  local stop = at + length
  local bytes, size
  repeat
    bytes, size = self:guard(sandbox.id, slice, sandbox, path, at, math.min(SLICE_BYTES, stop - at))
    parts[#parts + 1], at = bytes, at + #bytes
  until bytes == "" or at >= stop or at >= size
  return table.concat(parts), size
end

---@class demilune.veryfront.Reader
---@field size integer  of the file
local Reader = {}
Reader.__index = Reader

--- The next bytes, or nil at the end.
---@return string?
function Reader:read()
  local chunk = self.chunk
  self.chunk = nil
  if chunk then return chunk ~= "" and chunk or nil end
  if not self.at or self.at >= self.size then return nil end
  local bytes = files.read(self.provider, self.sandbox, self.path, self.at, SLICE_BYTES)
  self.at = self.at + #bytes
  return bytes ~= "" and bytes or nil
end

--- Nothing is held open.
function Reader:close() end

--- The text of an answer in either form: JSON with `content`, else the body itself. Nil where some of it may be lost: the
--- service replaces what is not UTF-8.
local function whole_text(res)
  local content = res.body
  if (res.headers["content-type"] or ""):lower():find("application/json", 1, true) then
    local answer = connect.object(res.body)
    content = answer and answer.content
    if type(content) ~= "string" then errors.raise "invalid_response" end
  end
  local is_plain = core.text.is_utf8(content) and not content:find("\u{FFFD}", 1, true) and not content:find("\0", 1, true)
  return is_plain and content or nil
end

--- The whole file as the service gives texts; nil where it does not, whatever the reason: the script finds that out.
local function fetch_text(self, id, path)
  local ok, res = pcall(self.send_data, self, id, {
    method = "GET", path = "/file?path=" .. text.escape(path), timeout_ms = FILE_TIMEOUT_MS, max_body_bytes = TEXT_MAX_BYTES,
    is_safe = true,
  })
  if ok then return res.status == 200 and whole_text(res) or nil end
  if errors.is(res) and res.category == "too_large" then return nil end
  error(res, 0)
end

--- Opens a file from its start.
---@param self demilune.Veryfront
---@param sandbox demilune.Sandbox
---@param path string
---@return demilune.veryfront.Reader
function files.open_read(self, sandbox, path)
  local content = self:guard(sandbox.id, fetch_text, sandbox.id, path)
  if content then return setmetatable({ size = #content, chunk = content }, Reader) end
  local bytes, size = files.read(self, sandbox, path, 0, SLICE_BYTES)
  return setmetatable({
    provider = self, sandbox = sandbox, path = path, size = size, chunk = bytes, at = #bytes,
  }, Reader)
end

local function put(self, ref, path, bytes, append_at)
  local kind = core.text.is_utf8(bytes) and not bytes:find("[\0\r]") and "text" or "base64"
  local upload = ("%s/.demilune-%s"):format(self.workdir, core.crypto.id(UPLOAD_ID_BYTES))
  self:data(ref.id, "POST", "/files", {
    files = core.json.array { { path = upload, content = kind == "text" and bytes or core.crypto.base64(bytes) } },
  }, { timeout_ms = FILE_TIMEOUT_MS, max_body_bytes = TEXT_MAX_BYTES, is_blind = true })
  local answer = run.script(self, ref, shell_files.WRITE, { upload, path, kind, append_at or "" }, {
    timeout_s = SCRIPT_TIMEOUT_S, bytes = LINE_BYTES,
  })
  return (shell_files.read_answer(answer)) or errors.raise "invalid_response"
end

--- Writes a file as a whole, or appends where `append_at` is its size.
---@param self demilune.Veryfront
---@param sandbox demilune.Sandbox
---@param path string
---@param bytes string
---@param append_at? integer
---@return integer size
function files.write(self, sandbox, path, bytes, append_at)
  return self:guard(sandbox.id, put, sandbox, path, bytes, append_at)
end

--- Types by the file's mode (inode(7)).
local TYPES = { [0x8000] = "file", [0x4000] = "directory", [0xA000] = "symlink" }

local function entry_of(line, path)
  local mode, size, name = line:match "^(%x+) (%d+) %./(.+)$"
  local kind = mode and TYPES[tonumber(mode, 16) & 0xF000] or "other"
  if not mode then errors.raise "invalid_response" end
  return {
    name = name:match "[^/]+$", path = (path == "/" and "" or path) .. "/" .. name, type = kind,
    size = kind == "file" and math.tointeger(tonumber(size)) or nil,
  }
end

local function list(self, ref, path, limit, depth)
  local answer = run.script(self, ref, shell_files.LIST, { path, depth, limit }, {
    timeout_s = SCRIPT_TIMEOUT_S, bytes = LIST_MAX_BYTES,
  })
  local _, rest = shell_files.read_answer(answer)
  local entries, total = {}, nil
  for line in rest:gmatch "([^\n]+)\n?" do
    total = math.tointeger(tonumber(line:match "^total (%d+)$"))
    if not total then entries[#entries + 1] = entry_of(line, path) end
  end
  if not total or #entries > limit then errors.raise "invalid_response" end
  table.sort(entries, function(a, b) return a.path < b.path end)
  return entries, math.max(total, #entries)
end

--- Lists a directory, entries sorted by the bytes of their paths.
---@param self demilune.Veryfront
---@param sandbox demilune.Sandbox
---@param path string
---@param limit integer
---@param depth integer
---@return table[] entries  {name, path, type, size?}
---@return integer total
function files.list_dir(self, sandbox, path, limit, depth)
  return self:guard(sandbox.id, list, sandbox, path, limit, depth)
end

return files
