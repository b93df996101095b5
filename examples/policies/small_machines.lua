-- Two sandboxes at a time, none of them large, none older than two hours.
return {
  default = "allow",
  rules = {
    { name = "small", match = "create_sandbox", limit = { cpu = 2, memory = { max = 2048, default = 1024 }, timeout = 3600 } },
    { name = "few", match = "@create", quota = { sandboxes = 2 } },
    { name = "short", match = { "create_sandbox", "set_sandbox_timeout" }, quota = { lifetime = 7200 } },
  },
}
