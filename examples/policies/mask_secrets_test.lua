return {
  policy = "mask_secrets.lua",
  { call = { tool = "read_file", args = { path = "src/main.c" }, sandbox = "owned" }, expect = "allow" },
  { call = { tool = "read_file", args = { path = ".env" }, sandbox = "owned" }, expect = "deny", rule = "no-keys" },
  { call = { tool = "read_file", args = { path = "a/./x/../.env.local" }, sandbox = "owned" }, expect = "deny", rule = "no-keys" },
  { call = { tool = "write_file", args = { path = "/home/user/.ssh/config", content = "" }, sandbox = "owned" }, expect = "deny" },
  { call = { tool = "list_files", args = { path = "/home/user/.ssh" }, sandbox = "owned" }, expect = "deny" },
}
