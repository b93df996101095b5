--- cli/init.lua - the command line: finds the command, reads its options, says what is wrong in one line.
--
-- A command is a file in this folder that returns { name, summary, usage, options, run(options, rest) -> exit code }.
-- `options` names long options; those that end in ":" take a value; `short` maps letters to them, { ["-e"] = "--eval" };
-- `takes_arguments` lets others stand beside them. Exit codes: 0 done, 1 failed, 2 misused.
local core = require "demilune.core"
local errors = require "demilune.errors"
local keys = require "demilune.config.keys"

--- In the order of --help.
local NAMES = {
  "serve", "call", "tools", "ls", "exec", "kill", "engine", "reload", "approve", "refuse", "check", "explain", "policy-test",
  "audit", "repl", "doctor", "demo",
}
--- Not in --help: a server starts it.
local KNOWN = { reap = true }
for _, name in ipairs(NAMES) do KNOWN[name] = true end

local COMMON = { "config:", "log-level:" }

local function say(line)
  io.stderr:write("demilune: ", core.vault.redact(line), "\n")
end

--- A command's table; policy-test is in policy_test.lua.
local function command_of(name) return require("demilune.cli." .. name:gsub("-", "_")) end

local function help()
  local lines = {
    "demilune " .. core.sys.version .. ": gives agents sandboxes over MCP, on this machine with nothing to sign up for.",
    "", "Usage: demilune COMMAND [OPTIONS]", "",
  }
  for _, name in ipairs(NAMES) do
    lines[#lines + 1] = ("  %-11s  %s"):format(name, command_of(name).summary)
  end
  lines[#lines + 1] = ""
  lines[#lines + 1] = "demilune COMMAND --help tells more. Point an MCP client at `demilune serve`."
  io.stdout:write(table.concat(lines, "\n"), "\n")
  return 0
end

local function command_help(command)
  io.stdout:write("Usage: demilune ", command.usage, "\n\n", command.summary, "\n")
  if command.help then io.stdout:write("\n", command.help, "\n") end
  io.stdout:write("\nOptions of every command: --config FILE, --log-level ", table.concat(keys.log_levels, "|"),
    ", --help\n")
  return 0
end

local function all_options(command)
  local list = table.move(COMMON, 1, #COMMON, 1, {})
  return table.move(command.options or {}, 1, #(command.options or {}), #list + 1, list)
end

local function set_log_level(level)
  if not level then return true end
  for _, known in ipairs(keys.log_levels) do
    if level == known then
      core.log.set_level(level)
      return true
    end
  end
  say("there is no log level " .. level .. "; use one of " .. table.concat(keys.log_levels, ", "))
  return false
end

--- The arguments with a command's own letters written out; what follows "--" stays.
local function written_out(command, args)
  for i, arg in ipairs(args) do
    if arg == "--" then break end
    args[i] = command.short and command.short[arg] or arg
  end
  return args
end

--- Runs the command and turns what it raised into one line.
local function run(command, args)
  local options, rest = core.sys.options(written_out(command, args), all_options(command))
  if not options then
    say(rest .. "; see demilune " .. command.name .. " --help")
    return 2
  end
  if options.help then return command_help(command) end
  if not set_log_level(options["log-level"]) then return 2 end
  if #rest > 0 and not command.takes_arguments then
    say(command.name .. " takes no arguments; see demilune " .. command.name .. " --help")
    return 2
  end
  local ok, code = xpcall(command.run, errors.with_trace, options, rest)
  if ok then return code or 0 end
  local err = errors.is(code) and code or errors.public(code)
  say((errors.detail(err) or err.message) .. (err.suggestion and " " .. err.suggestion or ""))
  return err.is_usage and 2 or 1
end

--- Runs the program.
---@param args string[]
---@return integer exit_code
return function(args)
  local name = table.remove(args, 1)
  if name == nil or name == "--help" or name == "-h" or name == "help" then
    help()
    return name == nil and 2 or 0
  end
  if name == "--version" then
    io.stdout:write("demilune ", core.sys.version, "\n")
    return 0
  end
  if not KNOWN[name] then
    local near = require("demilune.nearest").of(name, NAMES)
    say(("there is no command %s%s; see demilune --help"):format(name, near and (", perhaps " .. near) or ""))
    return 2
  end
  return run(command_of(name), args)
end
