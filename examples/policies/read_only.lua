-- Agents look, and change nothing. What they may not call they do not even see.
return {
  default = "deny",
  rules = {
    { name = "look", match = { "@read", "@inspect" }, allow = true },
    {
      name = "nothing-else",
      match = { "@execute", "@write", "@create", "@lifetime", "@destroy", "cancel_background_task" },
      hide = true,
    },
  },
}
