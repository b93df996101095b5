--- own/host.lua - what every piece of an operator's code is given, tool or driver: HTTP, its own errors, the log, a pause.
local core = require "demilune.core"
local errors = require "demilune.errors"
local http = require "demilune.own.http"

local host = {}

local SLEEP_MAX_S = 60
local LOG_BYTES = 4096
--- Of a text that goes to a client in an error.
local WORDS_BYTES = 2048
local LEVELS = { debug = true, info = true, warn = true, error = true }

---@class demilune.own.Host
---@field json demilune.core.json
local Host = {}
Host.__index = Host
host.class = Host

local categories = {}
for _, name in ipairs(core.status.names()) do categories[name] = true end

--- Of each configuration its client.
local clients = setmetatable({}, { __mode = "k" })

--- Makes it; `fields` are what it is for.
---@param fields { _path: string, _name: string, _config: demilune.Config }  the file, for messages; the name, for the log
---@return demilune.own.Host
function host.new(fields)
  fields.json = core.json
  return setmetatable(fields, Host)
end

--- Raises a fault of the operator's code: the client is told `internal`, the log has the words.
---@param text string
function Host:_misuse(text) error(("%s: %s"):format(self._path, text), 0) end

--- Ends the call with an error whose words are the operator's. What a message says goes to the client as it is.
---@param fields string|{ message: string, category?: string, field?: string, suggestion?: string, retryable?: boolean }
---  category: a row of the table of errors, `provider_rejected` without it
function Host:fail(fields)
  if type(fields) == "string" then fields = { message = fields } end
  if type(fields) ~= "table" or type(fields.message) ~= "string" then self:_misuse "fail takes a message" end
  local category = fields.category or "provider_rejected"
  if not categories[category] then self:_misuse("fail knows no category " .. tostring(category)) end
  local shown = {}
  for _, key in ipairs { "message", "field", "suggestion" } do
    local text = fields[key]
    if text ~= nil then shown[key] = core.text.mend(core.text.head(tostring(text), WORDS_BYTES)) end
  end
  if fields.retryable ~= nil then shown.retryable = fields.retryable == true end
  errors.raise(category, shown)
end

--- Sends an HTTP request: https, or http to this machine. A credential is named and goes to the origins of its entry alone.
--- Raises where no answer comes, and for a status other than 2xx unless `any_status`.
---@async
---@param options { url: string, method?: string, headers?: table<string, string>, body?: string, json?: any,
---  credential?: string, timeout_s?: number, max_bytes?: number, any_status?: boolean }
---@return { status: integer, headers: table<string, string>, body: string, json: any } response
function Host:http(options)
  local config = self._config
  clients[config] = clients[config] or http.client()
  local ok, result = pcall(http.send, clients[config], config, options)
  if ok then return result end
  if type(result) == "string" then self:_misuse(result) end
  error(result, 0)
end

--- Writes a line to the server's log.
---@param level "debug"|"info"|"warn"|"error"
---@param text string
function Host:log(level, text)
  if not LEVELS[level] then self:_misuse "log takes a level: debug, info, warn or error" end
  local line = tostring(text):gsub("%c+", " ")
  core.log[level](("%s: %s"):format(self._name, core.text.head(line, LOG_BYTES)))
end

--- Waits, and lets other calls run meanwhile.
---@async
---@param seconds number  at most 60
function Host:sleep(seconds)
  if not (math.type(seconds) and seconds >= 0 and seconds <= SLEEP_MAX_S) then self:_misuse "sleep takes 0 to 60 seconds" end
  core.task.sleep(math.max(1, seconds * 1000))
end

return host
