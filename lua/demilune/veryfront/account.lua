--- veryfront/account.lua - the two tools of the account, through Veryfront's own MCP server.
--
-- Their names have moved twice, so the server's list decides which it knows. A tool of an older name gets only arguments
-- that its own schema has: what it would not understand is refused here and not dropped.
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local record = require "demilune.veryfront.record"
local schema = require "demilune.schema"

local task = core.task
local account = {}

--- Names of a tool upstream, newest first. `rename`: arguments that an older one calls differently.
local CREATE = { { name = "veryfront__create_sandbox" }, { name = "create_sandbox_session", is_old = true } }
local UPDATE = {
  { name = "veryfront__update_sandbox_lifetime" },
  { name = "update_sandbox_session_lifetime", is_old = true, rename = { sandbox_id = "id" } },
}
--- How long a list of tools is believed.
local TOOLS_KEEP_MS = 10 * 60 * 1000
--- The wait before the one repetition of an update, where the service named none.
local RETRY_MS = 1000

local FORBIDDEN = "The credential needs project.sandboxes.manage; private scope needs the creator's own credential."

--- The server's tools by name, asked for where they are not known or not believed any more.
local function tools_of(self, deadline_ms)
  local now = task.now_ms()
  if not self.tools or now - self.tools_ms > TOOLS_KEEP_MS then
    self.tools = self.mcp:list_tools(deadline_ms)
    self.tools_ms = now
  end
  return self.tools
end

local function resolve(self, generations, deadline_ms)
  local tools = tools_of(self, deadline_ms)
  for _, generation in ipairs(generations) do
    local listed = tools[generation.name]
    if listed then return generation, listed end
  end
  self.tools = nil
  errors.raise("unsupported", { message = "The provider's MCP server offers no such tool to this credential." })
end

--- The arguments as a tool of an older name takes them. Raises `unsupported` for one that it does not know.
local function old_arguments(generation, listed, args)
  local input = connect.is_object(listed.inputSchema) and listed.inputSchema.properties
  local known, out = connect.is_object(input) and input or {}, {}
  local names = {}
  for name in pairs(args) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local theirs = generation.rename and generation.rename[name] or name
    if known[theirs] == nil then
      errors.raise("unsupported", {
        field = name, message = ("The provider's MCP server has an older tool, which does not know %s."):format(name),
      })
    end
    out[theirs] = args[name]
  end
  return out
end

--- A sandbox as the strict schema has it. Raises `invalid_response`.
local function sandbox_of(answer)
  local sandbox = schema.prune(record.SANDBOX, answer)
  if schema.fault(record.SANDBOX, sandbox) then errors.raise "invalid_response" end
  return sandbox
end

local function call_upstream(self, generations, args, opts)
  local generation, listed = resolve(self, generations, opts.deadline_ms)
  local arguments = generation.is_old and old_arguments(generation, listed, args) or args
  local ok, answer = pcall(self.mcp.call_tool, self.mcp, generation.name, arguments, opts)
  if ok then return sandbox_of(answer) end
  if errors.is(answer) then
    -- A tool that is not there any more is refused as a wrong parameter: look again next time.
    if answer.is_params then self.tools = nil end
    if answer.category == "provider_forbidden" then answer.suggestion = FORBIDDEN end
  end
  error(answer, 0)
end

--- Creates a sandbox. Never repeated: the service bills, and knows no key by which it would tell a repetition.
---@param self demilune.Veryfront
---@param args table
---@return table
function account.create(self, args)
  return call_upstream(self, CREATE, args, { is_create = true, deadline_ms = self.mcp:deadline() })
end

--- Milliseconds after which an update may be sent again; nil where it may not.
local function pause_of(err, deadline_ms)
  if not errors.is(err) then return nil end
  local pause
  if err.retry_after and err.status == 429 then pause = err.retry_after * 1000 elseif err.status == 503 then pause = RETRY_MS end
  return pause and task.now_ms() + pause < deadline_ms and pause or nil
end

--- Changes a lifetime. Repeated once where the service says when, or is not available.
---@param self demilune.Veryfront
---@param args table
---@return table
function account.update(self, args)
  local opts = { deadline_ms = self.mcp:deadline() }
  local ok, result = pcall(call_upstream, self, UPDATE, args, opts)
  local pause = not ok and pause_of(result, opts.deadline_ms)
  if pause then
    task.sleep(pause)
    ok, result = pcall(call_upstream, self, UPDATE, args, opts)
  end
  if ok then
    if result.id:lower() ~= args.sandbox_id:lower() then errors.raise "invalid_response" end
    return result
  end
  if errors.is(result) and result.category == "not_found" then
    errors.raise("not_found", { field = "sandbox_id", message = "There is no such sandbox.", status = result.status })
  end
  error(result, 0)
end

return account
