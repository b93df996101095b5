return {
  policy = "small_machines.lua",
  { name = "memory is filled in", call = { tool = "create_sandbox" }, expect = "allow", args = { memory = 1024 } },
  { call = { tool = "create_sandbox", args = { memory = 2048, cpu = 2 } }, expect = "allow" },
  { name = "a third one", call = { tool = "create_sandbox" }, expect = "deny", rule = "few" },
  { call = { tool = "create_sandbox", args = { memory = 4096 } }, expect = "deny", rule = "small" },
  { call = { tool = "create_sandbox", args = { cpu = 8 } }, expect = "deny", rule = "small" },
  { call = { tool = "set_sandbox_timeout", args = { timeout = 7201 }, sandbox = "owned" }, expect = "deny", rule = "short" },
  { call = { tool = "run_command", args = { command = "make" }, sandbox = "owned" }, expect = "allow" },
}
