--- cli/ls.lua - `demilune ls`: the sandboxes of all configured providers.
local core = require "demilune.core"
local duration = require "demilune.cli.duration"
local grid = require "demilune.cli.grid"
local output = require "demilune.cli.output"
local session = require "demilune.cli.session"
local style = require "demilune.cli.style"

local json = core.json

local PAGE = 100
local PAGES_MAX = 100

--- All sandboxes of one provider.
local function add_all(self, provider, list)
  for page = 0, PAGES_MAX - 1 do
    local result = self:must("list_sandboxes", { provider = provider, limit = PAGE, offset = page * PAGE })
    table.move(result.sandboxes, 1, #result.sandboxes, #list + 1, list)
    if #result.sandboxes < PAGE then return end
  end
end

local function word(value, unit)
  if value == nil or value == json.null then return "-" end
  return style.short(tostring(value), 60) .. (unit or "")
end

local function ends_in(sandbox)
  local seconds = type(sandbox.end_at) == "string" and duration.until_iso(sandbox.end_at)
  return seconds and duration.words(seconds) or "-"
end

local function rendered(list)
  if #list == 0 then return "No sandboxes.\n" end
  local rows = { { "ID", "TEMPLATE", "STATUS", "ENDS IN", "CPU", "MEMORY" } }
  for _, sandbox in ipairs(list) do
    rows[#rows + 1] = {
      sandbox.sandbox_id, word(sandbox.template), word(sandbox.status), ends_in(sandbox), word(sandbox.cpu_count),
      word(sandbox.memory_mb, " MB"),
    }
  end
  return grid.render(rows, { header = true })
end

return {
  name = "ls",
  summary = "List the sandboxes.",
  usage = "ls [--json]",
  help = [[
Newest first, those of running servers too. CPU and MEMORY are the limits that hold;
- where none does (demilune doctor says why).

  --json    print an array of what get_sandbox says of each

Starts nothing: without an engine there are no local sandboxes.]],
  options = { "json" },
  run = function(options)
    return session.run(options, function(self)
      local list = json.array {}
      for _, id in ipairs(self.app.environment.provider_ids) do add_all(self, id, list) end
      output.write(options.json and json.encode(list) .. "\n" or rendered(list))
      return 0
    end)
  end,
}
