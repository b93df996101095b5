-- Each principal works in the sandboxes that it made, and sees no others.
return {
  default = "allow",
  rules = {
    {
      name = "own-only",
      match = { "@execute", "@read", "@write", "@destroy", "set_sandbox_timeout", "get_sandbox" },
      when = { owned = false },
      deny = "that sandbox is not yours",
    },
    { name = "own-list", match = "list_sandboxes", list = "own" },
  },
}
