--- mcp/http/agreement.lua - what a request of 2026-07-28 says in its header fields must be what its body says: a gateway decides
--- by the one, this server by the other (basic/transports/streamable-http, "Server Validation").
local core = require "demilune.core"
local refusal = require "demilune.mcp.http.refusal"

local agreement = {}

agreement.REVISION = "2026-07-28"
agreement.META = "io.modelcontextprotocol/protocolVersion"

--- Methods whose Mcp-Name must be there, and the parameter that it repeats.
local NAMED = {
  ["tools/call"] = "name", ["prompts/get"] = "name", ["resources/read"] = "uri", ["tasks/get"] = "taskId",
  ["tasks/update"] = "taskId", ["tasks/cancel"] = "taskId",
}
--- Integers that every client has exactly.
local SAFE_INTEGER = 2 ^ 53 - 1

local function mismatch(message, text)
  refusal.raise(400, "header mismatch: " .. text, { code = refusal.HEADER_MISMATCH, id = message.id })
end

--- The value that a field stands for: itself, or what "=?base64?…?=" holds. Nil where that is no base64 of UTF-8, or the field
--- has bytes that none may have.
---@param field string  without the blanks around it
---@return string?
function agreement.decode(field)
  local inner = field:match "^=%?base64%?(.*)%?=$"
  if not inner then return not field:find "[^\t\x20-\x7e]" and field or nil end
  if inner == "" then return "" end
  local bytes = #inner % 4 == 0 and not inner:find "[^%w+/=]" and core.crypto.unbase64(inner)
  return bytes and utf8.len(bytes) and bytes or nil
end

local function check_field(message, req, name, wanted)
  local field = req.headers[name:lower()]
  if not field then mismatch(message, name .. " is missing") end
  if agreement.decode(field) ~= wanted then mismatch(message, name .. " is not what the body says") end
end

-- ---- Mcp-Param-* ----

--- Properties of a schema that are repeated in fields, with the path to each.
local function collect(node, path, found)
  for key, property in pairs(type(node.properties) == "table" and node.properties or {}) do
    if type(property) == "table" then
      local here = table.move(path, 1, #path, 1, {})
      here[#here + 1] = key
      local name = property["x-mcp-header"]
      if type(name) == "string" then found[#found + 1] = { name = "Mcp-Param-" .. name, path = here } end
      collect(property, here, found)
    end
  end
  return found
end

--- By the schema: reloading makes new ones.
local params_of = setmetatable({}, { __mode = "k" })

local function repeated(schema)
  params_of[schema] = params_of[schema] or collect(schema, {}, {})
  return params_of[schema]
end

local function value_at(arguments, path)
  local value = arguments
  for _, key in ipairs(path) do
    if type(value) ~= "table" then return nil end
    value = value[key]
  end
  if value == core.json.null or type(value) == "table" then return nil end
  return value
end

local function is_same(value, text)
  if math.type(value) then
    local number = text:find "^%-?%d+%.?%d*$" and tonumber(text)
    return number ~= nil and number == value and math.abs(number) <= SAFE_INTEGER
  end
  return text == tostring(value)
end

local function check_params(message, req, schema)
  for _, param in ipairs(repeated(schema)) do
    local field, value = req.headers[param.name:lower()], value_at(message.params.arguments, param.path)
    local text = field and agreement.decode(field)
    if field and not text then mismatch(message, param.name .. " cannot be decoded") end
    if value ~= nil and not field then mismatch(message, param.name .. " is missing") end
    if field and (value == nil or not is_same(value, text)) then mismatch(message, param.name .. " is not what the body says") end
  end
end

--- Whether a request is one of 2026-07-28 by its field or its body.
---@param req demilune.core.httpd.Request
---@param message demilune.core.rpc.Message
---@return boolean
function agreement.is_modern(req, message)
  local meta = message.params and message.params._meta
  return req.headers["mcp-protocol-version"] == agreement.REVISION
    or type(meta) == "table" and meta[agreement.META] ~= nil
end

--- Raises a refusal (400, HeaderMismatch) for a request whose fields do not agree with its body.
---@param req demilune.core.httpd.Request
---@param message demilune.core.rpc.Message  a request
---@param schema_of fun(tool: string): table?  the schema of a tool's arguments
function agreement.check(req, message, schema_of)
  local params, meta = message.params, message.params._meta
  local version = type(meta) == "table" and meta[agreement.META] or nil
  if type(version) ~= "string" then
    refusal.raise(400, "_meta." .. agreement.META .. " must be a string", { code = -32602, id = message.id })
  end
  check_field(message, req, "MCP-Protocol-Version", version)
  check_field(message, req, "Mcp-Method", message.method)
  local source = NAMED[message.method]
  if source and type(params[source]) == "string" then check_field(message, req, "Mcp-Name", params[source]) end
  local schema = message.method == "tools/call" and type(params.name) == "string" and schema_of(params.name)
  if schema then check_params(message, req, schema) end
end

return agreement
