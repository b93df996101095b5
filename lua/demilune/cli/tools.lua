--- cli/tools.lua - `demilune tools`: what an MCP client is offered.
local core = require "demilune.core"
local grid = require "demilune.cli.grid"
local output = require "demilune.cli.output"
local session = require "demilune.cli.session"
local style = require "demilune.cli.style"

local function first_sentence(text)
  return text:match "^(.-[.])%s" or text
end

return {
  name = "tools",
  summary = "List the tools that a client is offered.",
  usage = "tools [--json]",
  help = [[
  --json    print the tools as the newest protocol revision lists them: schemas,
            annotations and all

Starts nothing.]],
  options = { "json" },
  run = function(options)
    local app = require("demilune.app").new(session.config(options))
    local list, rows = core.json.array {}, {}
    for i, tool in ipairs(app.tools) do
      list[i] = tool.definition
      rows[i] = { tool.name, first_sentence(tool.definition.description) }
    end
    output.write(options.json and core.json.encode(list) .. "\n" or grid.render(rows, { wraps = style.is_terminal() }))
    return 0
  end,
}
