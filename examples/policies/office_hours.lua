-- New sandboxes in office hours only; what runs goes on.
return {
  default = "allow",
  rules = {
    {
      name = "office",
      match = "@create",
      when = { outside = "mon-fri 08:00-18:00", tz = "Europe/Berlin" },
      deny = "office hours only",
    },
  },
}
