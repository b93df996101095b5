return {
  policy = "own_only.lua",
  { call = { tool = "run_command", args = { command = "ls" }, sandbox = "owned" }, expect = "allow" },
  { name = "one that is yet to be made", call = { tool = "run_command", args = { command = "ls" } }, expect = "allow" },
  { call = { tool = "run_command", args = { command = "ls" }, sandbox = "foreign" }, expect = "deny", rule = "own-only" },
  { call = { tool = "read_file", args = { path = "a" }, sandbox = "foreign" }, expect = "deny", rule = "own-only" },
  { call = { tool = "kill_sandbox", sandbox = "foreign" }, expect = "deny", reason = "that sandbox is not yours" },
  { call = { tool = "list_sandboxes" }, expect = "allow" },
}
