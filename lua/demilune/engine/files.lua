--- files.lua - /files of envd: whole files and ranges out, raw and multipart bodies in.
--
-- Bytes pass through a chunk at a time, at the pace of the slower side. A download has its length
-- in advance, so a file that shrinks meanwhile cuts the connection; an upload that fails leaves the
-- old file.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local input = require "demilune.engine.input"
local multipart = require "demilune.engine.multipart"
local path = require "demilune.engine.path"
local router = require "demilune.engine.router"

local files = {}

local OFFSET_MAX = 1 << 60
--- Files of one multipart body.
local PARTS_MAX = 1000

---@class demilune.engine.Range
---@field from? integer    first byte
---@field to? integer      last byte, nil for the end
---@field suffix? integer  instead of both: so many bytes at the end

--- Reads a Range of one part (RFC 9110 §14.2); nil where there is none or another form, which are
--- ignored.
local function read_range(header)
  if not header then return nil end
  local from, to = header:match "^bytes=(%d*)%-(%d*)$"
  if not from or #from > 18 or #to > 18 then return nil end
  from, to = math.tointeger(tonumber(from)), math.tointeger(tonumber(to))
  if from then
    if to and to < from then return nil end
    return { from = from, to = to }
  end
  return to and { suffix = to } or nil
end

local function open(sandbox, file, offset, length)
  local reader, err = sandbox.channel:open_read(file, offset, length)
  if not reader then faults.raise_agent(err) end
  return reader
end

--- A range that counts from the end becomes one that counts from the start; 416 for an empty one.
local function resolve_suffix(sandbox, file, length)
  local reader = open(sandbox, file, 0, 0)
  local size = reader.size
  reader:close()
  return { from = length > 0 and math.max(0, size - length) or size }
end

local function answer_unsatisfiable(req, size)
  local fault = faults.new("range_not_satisfiable", { size = size })
  router.json(req, 416, faults.rest_body(fault), { ["Content-Range"] = "bytes */" .. size })
end

--- Writes out what the reader gives; the length is announced already, so a failure cuts the
--- connection.
local function pump(req, reader, chunk, left)
  while chunk do
    if left then
      if #chunk > left then chunk = chunk:sub(1, left) end
      left = left - #chunk
    end
    if chunk ~= "" and not req:write(chunk) then return end
    if left == 0 then break end
    local err
    chunk, err = reader:read()
    if err then return req:abort() end
  end
  if left and left > 0 then return req:abort() end
  req:finish()
end

local function answer_range(req, reader, range)
  local size = reader.size
  if range.from >= size then return answer_unsatisfiable(req, size) end
  local last = math.min(range.to or size - 1, size - 1)
  local length = last - range.from + 1
  req:start(206, {
    ["Content-Type"] = "application/octet-stream", ["Content-Length"] = tostring(length),
    ["Accept-Ranges"] = "bytes",
    ["Content-Range"] = ("bytes %d-%d/%d"):format(range.from, last, size),
  })
  pump(req, reader, "", length)
end

--- Files under /proc say that they are empty; they are sent as they come.
local function answer_whole(req, reader)
  local headers = { ["Content-Type"] = "application/octet-stream", ["Accept-Ranges"] = "bytes" }
  local chunk, err = reader:read()
  if err then faults.raise_agent(err) end
  local length
  if reader.size > 0 or not chunk then
    length = reader.size
    headers["Content-Length"] = tostring(length)
  end
  req:start(200, headers)
  pump(req, reader, chunk or "", length)
end

--- GET /files.
---@param sandbox demilune.engine.Sandbox
---@param req table
function files.download(sandbox, req)
  local file = path.need(req.query, "path")
  local range = read_range(req.headers.range)
  if range and range.suffix then range = resolve_suffix(sandbox, file, range.suffix) end
  local from = range and math.min(range.from, OFFSET_MAX) or 0
  local reader = open(sandbox, file, from, range and range.to and range.to - range.from + 1 or nil)
  local ok, raised = pcall(range and answer_range or answer_whole, req, reader, range)
  reader:close()
  if not ok then error(raised, 0) end
end

local function copy_in(writer, read)
  while true do
    local chunk, err = read()
    if err then return nil, err end
    if not chunk then return writer:commit() end
    local ok, failure = writer:write(chunk)
    if not ok then return nil, failure end
  end
end

--- Stores what `read` gives under `file`; the size of the file then. Raises when it fails, with the
--- old file in place.
local function store(sandbox, file, append_at, read)
  local writer, err = sandbox.channel:open_write(file, { append_at = append_at })
  if not writer then faults.raise_agent(err) end
  local ok, done, failure = pcall(copy_in, writer, read)
  if ok and done then return done.size end
  writer:abort()
  if not ok then error(done, 0) end
  if failure.category ~= "agent" then
    faults.raise("invalid_argument", { message = "The body ended early." })
  end
  faults.raise_agent(failure)
end

local function shown(file)
  return { name = path.name(file), type = "file", path = file }
end

local function store_raw(sandbox, req)
  local file = path.need(req.query, "path")
  local append_at = input.digits(req.headers, "x-demilune-append", 0, OFFSET_MAX)
  local size = store(sandbox, file, append_at, function() return req:read() end)
  return { shown(file) }, size
end

--- Every part named `file` is a file; its name is the path, unless the query gives one.
local function store_parts(sandbox, req)
  local named = path.read(req.query, "path")
  local parts = multipart.reader(req.headers["content-type"], function() return req:read() end)
  local stored, size = {}, nil
  for filename in function() return parts:next_file() end do
    if #stored >= PARTS_MAX then faults.raise "too_large" end
    local file = named or path.need({ filename = filename }, "filename")
    size = store(sandbox, file, nil, function() return parts:read() end)
    stored[#stored + 1] = shown(file)
  end
  if #stored == 0 then faults.bad("file", "There is no part of that name.") end
  return stored, size
end

local STORES = { ["application/octet-stream"] = store_raw, ["multipart/form-data"] = store_parts }

--- POST /files.
---@param sandbox demilune.engine.Sandbox
---@param req table
function files.upload(sandbox, req)
  local put = STORES[input.media_type(req)]
  local encoding = req.headers["content-encoding"]
  if not put or encoding and encoding ~= "identity" then faults.raise "unsupported_media_type" end
  local stored, size = put(sandbox, req)
  router.json(req, 200, core.json.array(stored), { ["X-Demilune-Size"] = tostring(size) })
end

return files
