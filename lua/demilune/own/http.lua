--- own/http.lua - HTTP for the operator's tools and drivers: https, or plain http to this machine, with credentials by handle.
--
-- A credential goes to the origins that the configuration names for it and nowhere else; C holds that. No redirect is
-- followed, so an answer of 3xx is a failure like any other that is not 2xx.
local core = require "demilune.core"
local errors = require "demilune.errors"
local transport = require "demilune.transport"

local http = {}

local OPTIONS = {
  method = "string", url = "string", headers = "table", body = "string", json = "any", credential = "string",
  timeout_s = "number", max_bytes = "number", any_status = "boolean",
}
local METHODS = { GET = true, HEAD = true, POST = true, PUT = true, PATCH = true, DELETE = true }
local SAFE = { GET = true, HEAD = true }
local TIMEOUT_S, TIMEOUT_MAX_S = 30, 300
local BYTES, BYTES_MAX = 1024 * 1024, 16 * 1024 * 1024
local REQUESTS_MAX = 64

local function misuse(format, ...) error("http: " .. format:format(...), 0) end

local function check_options(opts)
  if type(opts) ~= "table" then misuse "takes one table" end
  for key, value in pairs(opts) do
    local kind = OPTIONS[key]
    if not kind then misuse("knows no %s", tostring(key)) end
    if kind ~= "any" and type(value) ~= kind then misuse("%s must be a %s", key, kind) end
  end
  if not opts.url then misuse "url is missing" end
  if opts.method and not METHODS[opts.method] then misuse "method must be GET, HEAD, POST, PUT, PATCH or DELETE" end
  if opts.body and opts.json ~= nil then misuse "takes body or json, not both" end
end

--- Only the host decides here; what the rest of a URL may have, C checks.
local function check_url(url)
  local lower = url:lower()
  if lower:find "^https://[^/?#@]+" and not lower:match "^https://([^/?#]*)":find("@", 1, true) then return end
  local authority = lower:match "^http://([^/?#]*)" or ""
  local host = authority:match "^(%[[%x:]*%])$" or authority:match "^(%[[%x:]*%]):%d+$" or authority:gsub(":%d+$", "")
  if host ~= "127.0.0.1" and host ~= "localhost" and host ~= "[::1]" then
    misuse "url must be https, or http to 127.0.0.1, [::1] or localhost, without a user's name"
  end
end

local function bounded(name, value, usual, most)
  value = value or usual
  if not (value > 0 and value <= most) then misuse("%s must be over 0 and at most %d", name, most) end
  return value
end

--- The handle of a credential, as the configuration binds it.
local function handle_of(config, name)
  local entry = config.credentials[name]
  if not entry then misuse("no credential of that name is configured: %s", name) end
  if not entry.origins then
    misuse('the credential %s says not where it may go; write origins = { "https://…" } in its entry of credentials', name)
  end
  local header = entry.header or "authorization"
  local prefix = entry.prefix or (header:lower() == "authorization" and "Bearer " or "")
  return core.vault.bind(name, { header = header, prefix = prefix, origins = entry.origins })
end

local function headers_of(opts)
  local headers = {}
  for name, value in pairs(opts.headers or {}) do
    if type(name) ~= "string" or type(value) ~= "string" then misuse "headers are texts by name" end
    headers[name:lower()] = value
  end
  if opts.json ~= nil then headers["content-type"] = headers["content-type"] or "application/json" end
  return headers
end

local function is_json(res)
  local kind = (res.headers["content-type"] or ""):lower():match "^%s*([^;%s]+)"
  return kind ~= nil and (kind == "application/json" or kind:find "^application/[%w.-]+%+json$" ~= nil)
end

--- Makes a client: so many requests at a time, as for a provider.
---@return demilune.Transport
function http.client()
  return transport.new { max_requests = REQUESTS_MAX }
end

--- Sends a request and waits for its answer. Raises errors of the table for what the world does, and for a status other than
--- 2xx unless `any_status`; a plain message for a request that is written wrong.
---@async
---@param client demilune.Transport
---@param config demilune.Config
---@param opts { method?: string, url: string, headers?: table<string, string>, body?: string, json?: any, credential?: string,
---  timeout_s?: number, max_bytes?: number, any_status?: boolean }
---@return { status: integer, headers: table<string, string>, body: string, json: any }  json: where the answer is JSON
function http.send(client, config, opts)
  check_options(opts)
  check_url(opts.url)
  local method = opts.method or "GET"
  local res = client:send {
    method = method, url = opts.url, headers = headers_of(opts),
    body = opts.body or (opts.json ~= nil and core.json.encode(opts.json) or nil),
    timeout_ms = bounded("timeout_s", opts.timeout_s, TIMEOUT_S, TIMEOUT_MAX_S) * 1000,
    max_body_bytes = math.floor(bounded("max_bytes", opts.max_bytes, BYTES, BYTES_MAX)), is_safe = SAFE[method],
    credentials = opts.credential and { handle_of(config, opts.credential) } or nil,
    credential_names = opts.credential and { opts.credential } or nil,
  }
  if not opts.any_status and not (res.status >= 200 and res.status < 300) then
    error(errors.from_response { status = res.status, retry_after = transport.retry_after(res) }, 0)
  end
  local body = res.body or ""
  local decoded
  if is_json(res) then decoded = core.json.decode(body) end
  return { status = res.status, headers = res.headers, body = body, json = decoded }
end

return http
