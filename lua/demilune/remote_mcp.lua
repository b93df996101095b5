--- remote_mcp.lua - a client of somebody else's MCP server, over Streamable HTTP.
--
-- `send(opts)` is the caller's: it adds credentials and raises what HTTP itself failed with. Each request is a POST of its
-- own, whose answer is JSON or a stream of events that holds it; no stream is kept open beside, so nothing that a server
-- says on its own accord is heard. A session id is kept only where the server gave one. Answers are hostile until checked;
-- of a server's words nothing goes any further.
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local provider_text = require "demilune.provider_text"
local sse = require "demilune.sse"
local transport = require "demilune.transport"

local json, task = core.json, core.task
local remote_mcp = {}

--- Revisions of Streamable HTTP with a session, newest first; the first is what we ask for.
local REVISIONS = { "2025-11-25", "2025-06-18", "2025-03-26" }
local CLIENT = { name = "demilune", version = core.sys.version }
local REQUEST_MS = 30000
--- All requests of one call: what comes before it too.
local CALL_MS = 50000
local REQUEST_MAX_BYTES = 4 * 1024 * 1024
local REPLY_MAX_BYTES = 4 * 1024 * 1024
local LIST_MAX_BYTES = 16 * 1024 * 1024
local ERROR_MAX_BYTES = 8 * 1024
local PAGES_MAX = 50
local TOOLS_MAX = 10000
local SESSION_ID_BYTES = 1024

---@class demilune.RemoteMcp
---@field url string
---@field send fun(opts: table): table  of transport, with credentials
---@field family? string                of codes: see core.status.from_code
---@field session? {id?: string, revision: string}
---@field opening? {done: userdata, err: any}  while a task says hello
local RemoteMcp = {}
RemoteMcp.__index = RemoteMcp

--- Makes a client; nothing is sent.
---@param options {url: string, send: fun(opts: table): table, family?: string}
---@return demilune.RemoteMcp
function remote_mcp.new(options)
  return setmetatable({ url = options.url, send = options.send, family = options.family, next_id = 0 }, RemoteMcp)
end

-- ---- one request ----

local function headers_of(session)
  return {
    ["Content-Type"] = "application/json", Accept = "application/json, text/event-stream",
    ["MCP-Protocol-Version"] = session and session.revision or nil, ["Mcp-Session-Id"] = session and session.id or nil,
  }
end

--- The next bytes before the deadline, however fast or slow they come.
local function read_chunk(res, deadline_ms)
  local left_ms = deadline_ms - task.now_ms()
  if left_ms < 1 then errors.raise "provider_timeout" end
  local chunk, err = res:read(left_ms)
  if err then error(err, 0) end
  return chunk
end

--- The whole body; what is longer than `most` is an error, or where `is_cut`, left out.
local function read_all(res, deadline_ms, most, is_cut)
  local parts, size = {}, 0
  while true do
    local chunk = read_chunk(res, deadline_ms)
    if not chunk then break end
    parts[#parts + 1], size = chunk, size + #chunk
    if size > most and is_cut then break end
    if size > most then errors.raise "invalid_response" end
  end
  return table.concat(parts), size
end

--- A JSON number without a fraction, nil for everything else: math.tointeger would take a string.
local function integer(value)
  return type(value) == "number" and math.tointeger(value) or nil
end

--- The category of the code that an error names, and the code, where it is known; a status where it is one of HTTP's.
local function classify(self, body, status, is_create)
  local code, words = nil, nil
  if connect.is_object(body) then
    for _, key in ipairs { "slug", "code", "error" } do
      if not code and self.family and core.status.from_code(self.family, body[key]) then code = body[key] end
    end
    local own = integer(body.status)
    if not status and own and own >= 400 and own <= 599 then status = own end
    words = body.message or body.detail or body.title
  end
  if not status then
    local category = code and core.status.from_code(self.family, code) or "provider_rejected"
    return errors.new(category, { code = code }), words
  end
  local retry_after = connect.is_object(body) and integer(body.retry_after) or nil
  return errors.from_response {
    status = status, code = code, family = self.family, is_create = is_create, retry_after = retry_after,
  }, words
end

--- Raises what an answer with a status means.
local function raise_status(self, res, opts, deadline_ms)
  local ok, said = pcall(read_all, res, deadline_ms, ERROR_MAX_BYTES, true)
  if not ok and said == task.CANCELLED then error(said, 0) end
  said = ok and said or ""
  provider_text.tell(res.status, said)
  local err = classify(self, connect.object(said), res.status, opts.is_create)
  local retry_after = transport.retry_after(res)
  if res.status == 429 and retry_after then
    err = errors.from_response { status = 429, retry_after = retry_after, family = self.family, code = err.code }
  end
  error(err, 0)
end

--- Whether a message is the reply to a request; raises where it can be none of this protocol.
local function is_reply(message, id)
  if not connect.is_object(message) or message.jsonrpc ~= "2.0" then errors.raise "invalid_response" end
  if message.method ~= nil then return false end
  -- A server that could not even read the request answers with a null id.
  local is_ours = message.id == id or (message.id == json.null and message.error ~= nil)
  if not is_ours then errors.raise "invalid_response" end
  return true
end

--- Reads events until the reply. What comes before it (progress, logs, pings) is passed over.
local function reply_of_stream(res, id, deadline_ms, most)
  local parser, size = sse.parser(), 0
  while true do
    local event = parser:next()
    if event then
      if event.type == "message" then
        local message = json.decode(event.data)
        if is_reply(message, id) then return message, size end
      end
    else
      local chunk = read_chunk(res, deadline_ms)
      if not chunk then errors.raise "invalid_response" end
      size = size + #chunk
      if size > most then errors.raise "invalid_response" end
      parser:feed(chunk)
    end
  end
end

local function reply_of(res, id, deadline_ms, most)
  local kind = (res.headers["content-type"] or ""):lower():match "^%s*([^;%s]*)"
  if kind == "text/event-stream" then return reply_of_stream(res, id, deadline_ms, most) end
  if kind ~= "application/json" then errors.raise "invalid_response" end
  local body, size = read_all(res, deadline_ms, most)
  local message = json.decode(body)
  if not is_reply(message, id) then errors.raise "invalid_response" end
  return message, size
end

--- A response that is dropped however its block ends.
local function closing(res)
  return setmetatable({}, { __close = function() res:close() end })
end

--- Sends one message. Returns the response, for notifications; for requests the reply, its size and the response.
local function post(self, session, message, opts)
  local body = json.encode(message)
  if #body > REQUEST_MAX_BYTES then errors.raise "too_large" end
  local timeout_ms = math.min(REQUEST_MS, opts.deadline_ms - task.now_ms())
  if timeout_ms < 1 then errors.raise "provider_timeout" end
  local deadline_ms = task.now_ms() + timeout_ms
  local res = self.send {
    method = "POST", url = self.url, headers = headers_of(session), body = body, stream = true, timeout_ms = timeout_ms,
    deadline_ms = deadline_ms, is_safe = opts.is_safe, is_create = opts.is_create,
  }
  local guard <close> = closing(res) -- luacheck: ignore 211
  if res.status == 404 and session and session.id then error({ is_expired = true }, 0) end
  if res.status < 200 or res.status > 299 then raise_status(self, res, opts, deadline_ms) end
  if message.id == nil then return nil, 0, res end
  local reply, size = reply_of(res, message.id, deadline_ms, opts.max_bytes or REPLY_MAX_BYTES)
  return reply, size, res
end

-- ---- the session ----

local function session_of(result, res)
  local revision = connect.is_object(result) and result.protocolVersion
  for _, known in ipairs(REVISIONS) do
    if revision == known then
      local id = res.headers["mcp-session-id"]
      -- Visible ASCII, says the protocol (basic/transports, "Session Management").
      if id and (#id > SESSION_ID_BYTES or id:find "[^\x21-\x7E]" or id == "") then errors.raise "invalid_response" end
      return { id = id, revision = revision }
    end
  end
  errors.raise("invalid_response", { message = "The provider's MCP server speaks no revision that demilune knows." })
end

local function new_id(self)
  self.next_id = self.next_id + 1
  return self.next_id
end

--- Raises what the error of a reply means.
local function raise_rpc(self, fault, opts)
  local data = connect.is_object(fault) and fault.data
  local err, words = classify(self, data, nil, opts.is_create)
  if connect.is_object(fault) then
    provider_text.tell(integer(fault.code) or "error", words or fault.message)
    if not err.code and fault.code == -32602 then err.is_params = true end
  end
  error(err, 0)
end

local function hello(self, deadline_ms)
  local opts = { is_safe = true, deadline_ms = deadline_ms }
  local reply, _, res = post(self, nil, {
    jsonrpc = "2.0", id = new_id(self), method = "initialize",
    params = { protocolVersion = REVISIONS[1], capabilities = {}, clientInfo = CLIENT },
  }, opts)
  if reply.error ~= nil then raise_rpc(self, reply.error, opts) end
  local session = session_of(reply.result, res)
  local ok, err = pcall(post, self, session, { jsonrpc = "2.0", method = "notifications/initialized" }, opts)
  if ok then return session end
  if type(err) == "table" and err.is_expired then errors.raise "invalid_response" end
  error(err, 0)
end

--- Begins a session, for all who wait meanwhile.
local function open(self, deadline_ms)
  local opening = { done = task.event() }
  self.opening = opening
  local ok, session = pcall(hello, self, deadline_ms)
  self.opening = nil
  if ok then self.session = session elseif session ~= task.CANCELLED then opening.err = session end
  opening.done:set()
  if not ok then error(session, 0) end
end

--- The session; begins one where there is none. Calls at the same time share the beginning, and its failure, unless that
--- was the end of the task which had begun.
local function session_for(self, deadline_ms)
  while not self.session do
    local opening = self.opening
    if not opening then
      open(self, deadline_ms)
    elseif not opening.done:wait(math.max(1, deadline_ms - task.now_ms())) then
      errors.raise "provider_timeout"
    elseif errors.is(opening.err) then
      error(opening.err, 0)
    end
  end
  return self.session
end

--- Sends a request, in the session. One that has expired was not served: a new one is begun, once.
local function request(self, method, params, opts)
  for try = 1, 2 do
    local session = session_for(self, opts.deadline_ms)
    local ok, reply, size = pcall(post, self, session, {
      jsonrpc = "2.0", id = new_id(self), method = method, params = params,
    }, opts)
    if ok then
      if reply.error ~= nil then raise_rpc(self, reply.error, opts) end
      return connect.is_object(reply.result) and reply.result or errors.raise "invalid_response", size
    end
    if not (type(reply) == "table" and reply.is_expired) then error(reply, 0) end
    if self.session == session then self.session = nil end
    if try == 2 then errors.raise("not_found", { message = "The provider's MCP server keeps no session." }) end
  end
end

-- ---- tools ----

--- When a call that begins now has to be over, with all that it needs before it.
---@return integer ms
function RemoteMcp:deadline() -- luacheck: ignore 212/self
  return task.now_ms() + CALL_MS
end

--- All tools of the server by name, each as it was listed.
---@param deadline_ms? integer
---@return table<string, table>
function RemoteMcp:list_tools(deadline_ms)
  deadline_ms = deadline_ms or self:deadline()
  local tools, count, room, cursor = {}, 0, LIST_MAX_BYTES, nil
  for _ = 1, PAGES_MAX do
    local result, size = request(self, "tools/list", cursor and { cursor = cursor } or {}, {
      is_safe = true, max_bytes = room, deadline_ms = deadline_ms,
    })
    room = room - size
    if not connect.is_array(result.tools) then errors.raise "invalid_response" end
    for _, tool in ipairs(result.tools) do
      count = count + 1
      if count > TOOLS_MAX then errors.raise "invalid_response" end
      if connect.is_object(tool) and type(tool.name) == "string" then tools[tool.name] = tool end
    end
    local next_cursor = result.nextCursor
    if next_cursor == nil or next_cursor == json.null then return tools end
    if type(next_cursor) ~= "string" or next_cursor == cursor or room < 1 then errors.raise "invalid_response" end
    cursor = next_cursor
  end
  errors.raise "invalid_response"
end

--- What a failed result says: its structured content, or the JSON or "[code] words" of its text.
local function raise_failed(self, result, opts)
  local body, said = connect.is_object(result.structuredContent) and result.structuredContent, nil
  for _, block in ipairs(connect.is_array(result.content) and result.content or {}) do
    if connect.is_object(block) and block.type == "text" and type(block.text) == "string" then
      said = said or block.text
      body = body or connect.object(block.text)
    end
  end
  local nested = body and (connect.is_object(body.error) and body.error)
  body = nested or body
  local code = not body and said and said:match "^%[([%w_-]+)%]"
  local err, words = classify(self, body or (code and { code = code }), nil, opts.is_create)
  provider_text.tell("isError", said or words)
  error(err, 0)
end

--- Calls a tool. Returns the object that it answered: `structuredContent`, else the JSON of a text block.
---@param name string
---@param arguments table
---@param opts? {is_create?: boolean, deadline_ms?: integer}
---@return table
function RemoteMcp:call_tool(name, arguments, opts)
  opts = opts or {}
  opts.deadline_ms = opts.deadline_ms or self:deadline()
  local result = request(self, "tools/call", { name = name, arguments = arguments }, opts)
  if result.isError == true then raise_failed(self, result, opts) end
  if connect.is_object(result.structuredContent) then return result.structuredContent end
  for _, block in ipairs(connect.is_array(result.content) and result.content or {}) do
    local is_text = connect.is_object(block) and block.type == "text" and type(block.text) == "string"
    local value = is_text and connect.object(block.text)
    if value then return value end
  end
  errors.raise "invalid_response"
end

return remote_mcp
