return {
  policy = "read_only.lua",
  { call = { tool = "read_file", args = { path = "notes.txt" }, sandbox = "owned" }, expect = "allow", rule = "look" },
  { call = { tool = "list_sandboxes" }, expect = "allow" },
  { call = { tool = "run_command", args = { command = "ls" } }, expect = "deny", rule = "nothing-else" },
  { call = { tool = "write_file", args = { path = "a", content = "b" }, sandbox = "owned" }, expect = "deny" },
  { call = { tool = "kill_sandbox", sandbox = "owned" }, expect = "deny" },
}
