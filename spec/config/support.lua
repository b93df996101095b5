--- What the specs of the configuration share: files to load, and one that uses every key.

local support = {}

local TMP = os.getenv("DML_SPEC_TMP") or "/tmp"
local made = 0

--- Writes a text to a fresh file.
---@param text string
---@return string path
function support.file(text)
  made = made + 1
  local path = ("%s/configuration-%d.lua"):format(TMP, made)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

--- The configuration that a text gives, or nil and the message without the file's path.
---@param text string
---@return demilune.Config?
---@return string? message  "LINE: …"
function support.load(text)
  local path = support.file(text)
  local loaded, message = require("demilune.config").load(path)
  os.remove(path)
  if loaded then return loaded end
  assert(message:sub(1, #path + 1) == path .. ":", message)
  return nil, message:sub(#path + 2)
end

--- The message that a text is refused with; raises when it is not.
---@param text string
---@return string
function support.fault(text)
  local loaded, message = support.load(text)
  assert(not loaded, "was accepted: " .. text)
  return message
end

--- A text with one local provider whose template `base` has `fields`.
---@param fields string
---@return string
function support.template(fields)
  return 'return { providers = { { id = "local", type = "local", templates = { base = { ' .. fields .. " } } } } }"
end

--- A text with one local provider that has `fields` beside id and type.
---@param fields string
---@return string
function support.provider(fields)
  return 'return { providers = { { id = "local", type = "local", ' .. fields .. " } } }"
end

--- A text with one provider of a type that is reached over the network, `fields` beside id, type and credential.
---@param kind string
---@param fields string
---@return string
function support.remote(kind, fields)
  return ('return { providers = { { id = "cloud", type = "%s", credential = "key", %s } },\n'):format(kind, fields)
    .. ' credentials = { key = { source = "env:KEY" } } }'
end

--- Every key that this version serves.
support.whole = [==[
-- an operator's file
local function mb(gb) return gb * 1024 end
local large = { disk = mb(4), memory = mb(8), cpu = 4.5, pids = 512, network = "none", home = "tmpfs" }
large.env = { ["LANG"] = "C.UTF-8", NOTE = [[two
lines]] }
return {
  default_provider = "second",
  providers = {
    { id = "local", type = "local", lifetime = 600, max_lifetime = 7200, tenancy = "principal",
      templates = { base = { disk = 64, ro_binds = {}, env = {} }, ["py-3.11"] = large } },
    { id = "second", type = "local" }, --[[ with defaults ]]
    { id = "cloud", type = "e2b", preset = "engine", api_url = "https://api.{domain}", sandbox_url = "https://{port}-{id}.{domain}",
      domain = "example.org", region = "eu-1", credential = "cloud", key_header = "X-API-KEY", lifetime = 100, max_lifetime = 200,
      tenancy = "account", auto_resume = false, max_requests = 3, templates = { "code-interpreter-v1", "team/base:2" },
      proxy = "http://proxy.example.org:3128", ca_file = "ca.pem" },
    { id = "vf", type = "veryfront", api_url = "https://api.veryfront.com/v1/", project = "my-project", credential = "vf",
      mcp_path = "/mcp", lifetime = 300, max_lifetime = 3600, tenancy = "account", max_requests = 2,
      proxy = "socks5h://localhost:1080", ca_file = "/etc/ca.pem" },
  },
  credentials = {
    cloud = { source = "env:CLOUD_KEY" }, vf = { source = "file:keys/vf" },
    more = { source = "cred:more" }, last = { source = "cmd:./helper one two" },
  },
  vault = { require_lock = true },
  output = { stdout = 2048, stderr = 1024, read_file = 4096, list_files = 50, download_file = 8192 };
  limits = { message = 8, tasks = 4 },
  default_sandbox = "off", keep_on_exit = true, adopt_by_use = true, nonzero_exit_is_error = true,
  task_after = 30,
  annotations = "sandboxed",
  log = { level = "warn", file = "log/demilune.log" },
}
]==]

return support
