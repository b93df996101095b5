--- cli/reload.lua - `demilune reload`: running servers read the policy and the operator's tools again.
local control_client = require "demilune.control_client"
local core = require "demilune.core"
local errors = require "demilune.errors"
local output = require "demilune.cli.output"
local visible = require "demilune.visible"

--- A policy is loaded in a process of its own, and a server may have calls to finish its turn with.
local TIMEOUT_MS = 30000

local function chosen(options)
  local servers = control_client.servers()
  if not options.pid then return servers end
  for _, server in ipairs(servers) do
    if tostring(server.pid) == options.pid then return { server } end
  end
  errors.raise("not_found", {
    message = "No server of yours has the process id " .. visible.of(options.pid) .. ".", is_usage = not options.pid:find "^%d+$",
  })
end

--- The faults of a policy are a line each.
local function lines_of(text)
  local lines = {}
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = "  " .. visible.of(line) end
  return table.concat(lines, "\n")
end

--- What a server answered, in words; and whether it did what was asked.
local function told(answer)
  local head, result = "server " .. answer.pid .. ": ", answer.result
  if not result then
    local text = answer.err.category == "provider_timeout" and "it did not answer in time" or answer.err.message
    return head .. visible.of(text), false
  end
  if type(result.fault) == "string" then
    return head .. "the new policy or a tool is wrong, so the old ones stay:\n" .. lines_of(result.fault), false
  end
  if type(result.door_fault) == "string" then
    local text = "tokens or certificate are wrong, so the old ones stay; the rest was reloaded:\n"
    return head .. text .. lines_of(result.door_fault), false
  end
  if type(result.version) ~= "string" then return head .. "reloaded", true end
  local version = visible.of(result.version)
  local news = result.is_new ~= true and "reloaded; the policy is " .. version .. ", as before"
    or result.keeps_name == true and ("the policy has changed, and is still called %s; give it a new `version`"):format(version)
    or "the policy is " .. version .. " now"
  return head .. news, true
end

return {
  name = "reload",
  summary = "Make running servers read policy, tools, tokens and certificate again.",
  usage = "reload [--pid PID]",
  help = [[
All servers of this user, or one. What is wrong is told, and that server goes on as before. Calls at
work end under the policy they began with. The rest of the configuration is read at a start only.

  --pid PID    only the server with this process id

Exit 1 when a server could not load what is there now.]],
  options = { "pid:" },
  run = function(options)
    local servers = chosen(options)
    if #servers == 0 then
      output.note "no server of yours is running; the next one reads what is there then"
      return 0
    end
    local code = 0
    for _, answer in ipairs(control_client.call_all(servers, "reload", nil, TIMEOUT_MS)) do
      local text, is_fine = told(answer)
      if is_fine then output.line(text) else io.stderr:write(core.vault.redact(text), "\n") end
      if not is_fine then code = 1 end
    end
    return code
  end,
}
