-- Only templates that have no network. Names and globs stand for what the configuration calls them.
return {
  default = "allow",
  rules = {
    { name = "offline", match = "create_sandbox", set = { template = "base" }, only = { template = { "base", "offline-*" } } },
    { name = "here", match = "create_sandbox", set = { provider = "local" }, only = { provider = "local" } },
  },
}
