return {
  policy = "offline_templates.lua",
  { call = { tool = "create_sandbox" }, expect = "allow", args = { template = "base", provider = "local" } },
  { call = { tool = "create_sandbox", args = { template = "offline-python" } }, expect = "allow" },
  { call = { tool = "create_sandbox", args = { template = "browser" } }, expect = "deny", rule = "offline" },
}
