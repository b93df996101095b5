--- cli/check.lua - `demilune check`: everything that is wrong with the configuration, the operator's tools and the policy.
--
-- It says what a server would say at its start, and more: a server stops at the first mistake, and never tries `before`.
local advice = require "demilune.policy.advice"
local core = require "demilune.core"
local dry = require "demilune.cli.dry"
local health = require "demilune.cli.health"
local hooks = require "demilune.policy.hooks"
local output = require "demilune.cli.output"
local rehearsal = require "demilune.policy.rehearsal"
local schema = require "demilune.schema"

local WARNING, NOTE = "warning: ", "note: "
local TOOLS_NAMED_MAX = 3
local NIL_UUID = "00000000-0000-0000-0000-000000000000"

---@class demilune.cli.Findings
---@field faults integer
---@field warnings integer
local Findings = {}
Findings.__index = Findings

--- Prints mistakes and counts them.
---@param list demilune.policy.Fault[]
function Findings:add_faults(list)
  dry.print(list)
  self.faults = self.faults + #list
end

--- Prints warnings and counts them; notes do not count.
---@param list demilune.policy.Fault[]
function Findings:add_warnings(list)
  for _, one in ipairs(list) do
    dry.print({ one }, one.is_note and NOTE or WARNING)
    if not one.is_note then self.warnings = self.warnings + 1 end
  end
end

--- Prints a mistake that is a line already.
---@param line string
function Findings:add_line(line)
  output.line(line)
  self.faults = self.faults + 1
end

-- ---- the smallest call of a tool ----

local SMALLEST = {
  integer = function(property) return property.exclusiveMinimum and property.exclusiveMinimum + 1 or property.minimum or 0 end,
  number = function(property) return property.minimum or 0 end,
  string = function(property)
    if property.format == "uuid" then return NIL_UUID end
    return (property.is_filled or (property.minLength or 0) > 0) and "x" or ""
  end,
  boolean = function() return false end,
  array = function() return core.json.array {} end,
  object = function() return {} end,
}

--- Arguments with what must be there, as small as it may be.
local function smallest_arguments(tool)
  local args = {}
  for _, name in ipairs(tool.input.required or {}) do
    local property = tool.input.properties[name]
    local smallest = SMALLEST[property.type]
    args[name] = property.enum and property.enum[1] or smallest and smallest(property)
  end
  return pcall(schema.check, tool.input, args) and args or nil
end

--- What is wrong with the arguments that `before` leaves, or nil.
local function misfit(tool, args)
  local ok, raised = pcall(schema.check, tool.input, args)
  if ok then return nil end
  local field = type(raised) == "table" and raised.field
  return field and ("it leaves `%s` as what the tool does not take; write what its schema says"):format(field)
    or "it leaves arguments that the tool does not take; write what its schema says"
end

--- Faults of the policy's functions on the smallest call of every tool: lists of tools by the text of the fault.
local function trials(app, state)
  local bench = rehearsal.new(app, state)
  local by_text, texts = {}, {}
  local function failed(fault, name)
    if not by_text[fault] then
      by_text[fault] = {}
      texts[#texts + 1] = fault
    end
    table.insert(by_text[fault], name)
  end
  for _, tool in ipairs(app.tools) do
    local args = smallest_arguments(tool)
    if args and state.data.before then
      local view = bench:view { tool = tool.name, args = args }
      view.counts = bench.book:counts(view)
      local said = hooks.before(state, view)
      local fault = said.fault or said.args and misfit(tool, said.args)
      if fault then failed("before: " .. fault, tool.name) end
    end
    if state.data.list then
      local _, fault = hooks.list(state, tool.definition, { principal = "local:me", scopes = {} })
      if fault then failed("list: " .. fault, tool.name) end
    end
  end
  return texts, by_text
end

local function tools_words(names)
  if #names <= TOOLS_NAMED_MAX then return table.concat(names, ", ") end
  return ("%s and %d more"):format(table.concat(names, ", ", 1, TOOLS_NAMED_MAX), #names - TOOLS_NAMED_MAX)
end

--- "before: policy.lua:3: what" as a fault with its place.
local function fault_of(state, text, names)
  local name, place = text:match "^(%l+): (.*)$"
  local file, line, words = place:match "^([^:]+):(%d+): (.*)$"
  local path = state.path
  if file then
    for _, known in ipairs(state.files) do
      if known:sub(-#file) == file then path = known end
    end
  end
  words = words or place
  local known = advice.of_call(words)
  if known then words = words:gsub("; .*$", "") .. "; " .. known end
  if not words:find("; ", 1, true) then words = words .. "; look whether a field is there before you use it" end
  return {
    file = path, line = math.tointeger(tonumber(line)),
    text = ("`%s` fails on the smallest call of %s: %s"):format(name, tools_words(names), words),
  }
end

-- ---- the parts ----

local function file_name(path) return path:match "([^/]+)$" or path end

local function policy_words(state)
  local count = #(state.data.rules or {})
  local words = { ("%d %s"):format(count, count == 1 and "rule" or "rules") }
  for _, name in ipairs { "before", "after", "list" } do
    if state.data[name] then words[#words + 1] = name end
  end
  return table.concat(words, ", ")
end

--- Loads and tries a policy; returns the sentence that says it is fine.
local function check_policy(findings, config, app, path)
  local state, faults = dry.load(config, app, path)
  if not state then return findings:add_faults(faults) end
  findings:add_warnings(state.warnings)
  local ok, texts, by_text = pcall(trials, app, state)
  state:close()
  if not ok then error(texts, 0) end
  local found = {}
  for i, text in ipairs(texts) do found[i] = fault_of(state, text, by_text[text]) end
  findings:add_faults(found)
  return ("%s is fine: %s"):format(file_name(path), policy_words(state))
end

--- The operator's own tools, with every mistake of theirs; a server names them at its start as well.
local function check_tools(findings, config)
  local tools = require "demilune.tools"
  if not tools.check or #(config.tools or {}) == 0 then return true end
  local faults = tools.check(config.tools)
  findings:add_faults(faults)
  return #faults == 0
end

--- An audit that cannot be written denies every call, so it is a mistake before the server runs.
local function check_audit(findings, config)
  local report = health.audit(config)
  if not report or report.ok then return end
  findings:add_line(("%s: audit: %s"):format(config.path or "the default configuration", report.cause))
end

local function config_words(config)
  local count = #config.providers
  local words = ("%d %s"):format(count, count == 1 and "provider" or "providers")
  return ("%s is fine: %s"):format(config.path and file_name(config.path) or "the default configuration", words)
end

--- The whole configuration; returns it and the server that it describes.
local function check_config(findings, options)
  local config, message, lines = require("demilune.config").load(options.config)
  if not config then
    for _, line in ipairs(lines or { message }) do findings:add_line(line) end
    return nil
  end
  check_audit(findings, config)
  if not check_tools(findings, config) then return config end
  local ok, app = pcall(dry.app, config)
  if ok then return config, app end
  findings:add_line(("%s: %s"):format(config.path or "the default configuration", dry.words(app)))
  return config
end

local function close(findings, options, sentences)
  local fails = findings.faults > 0 or (options.strict and findings.warnings > 0)
  if findings.faults == 0 then
    for _, sentence in ipairs(sentences) do output.line(sentence) end
  end
  if fails then
    output.line(("%d %s, %d %s"):format(findings.faults, findings.faults == 1 and "mistake" or "mistakes",
      findings.warnings, findings.warnings == 1 and "warning" or "warnings"))
  end
  return fails and 1 or 0
end

local function run(options, rest)
  if #rest > 1 then require("demilune.cli.session").misuse "check takes one policy; see demilune check --help" end
  local findings = setmetatable({ faults = 0, warnings = 0 }, Findings)
  local sentences = {}
  local config, app = check_config(findings, options)
  if config and not rest[1] then sentences[#sentences + 1] = config_words(config) end
  local path = config and dry.policy_path(config, rest[1])
  if app and path then
    sentences[#sentences + 1] = check_policy(findings, config, app, path)
  elseif app then
    sentences[#sentences + 1] = "no policy is configured, so every call is allowed"
  end
  return close(findings, options, sentences)
end

return {
  name = "check",
  summary = "Say everything that is wrong with the configuration and the policy.",
  usage = "check [POLICY] [--strict]",
  help = [[
Without POLICY: the whole configuration, the policy that it names and your own
tools. With POLICY: that policy, for the tools and providers that are configured.
Each mistake is a line, FILE:LINE: what is wrong; the way out. Nothing is started
but the process that reads the policy, and no provider is asked.

  --strict    warnings fail too

Exit: 0 it would do, 1 it would not.]],
  options = { "strict" },
  takes_arguments = true,
  run = run,
}
