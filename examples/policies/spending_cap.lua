-- Ten sandbox-hours a day for each principal, thirty for all of them together.
local HOUR_S = 3600

return {
  default = "allow",
  rules = {
    { name = "cap", match = "@create", quota = { sandbox_seconds = 10 * HOUR_S, per = "day" } },
    { name = "cap-of-all", match = "@create", quota = { sandbox_seconds = 30 * HOUR_S, per = "day" }, scope = "server" },
    { name = "paced", match = "@create", rate = { calls = 20, per = 3600 } },
  },
}
