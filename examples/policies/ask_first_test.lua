return {
  policy = "ask_first.lua",
  { call = { tool = "kill_sandbox", sandbox = "owned" }, expect = "ask", rule = "kill" },
  { call = { tool = "create_sandbox" }, expect = "allow" },
  { call = { tool = "create_sandbox", args = { cpu = 4, memory = 8192 } }, expect = "allow" },
  { call = { tool = "create_sandbox", args = { cpu = 5 } }, expect = "ask" },
  {
    call = { tool = "create_sandbox", args = { memory = 16384 } },
    expect = "ask",
    reason = "Make a sandbox with 1 cores and 16384 MB?",
  },
}
