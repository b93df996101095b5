-- 2026-11-30 is a Monday; Berlin is an hour ahead of UTC in winter and two in summer.
return {
  policy = "office_hours.lua",
  { call = { tool = "create_sandbox", time = "2026-11-30T08:00:00Z" }, expect = "allow" },
  { call = { tool = "create_sandbox", time = "2026-11-30T06:59:00Z" }, expect = "deny", rule = "office" },
  { call = { tool = "create_sandbox", time = "2026-11-30T17:30:00Z" }, expect = "deny", rule = "office" },
  { name = "summer time", call = { tool = "create_sandbox", time = "2026-07-01T06:30:00Z" }, expect = "allow" },
  { name = "a Saturday", call = { tool = "create_sandbox", time = "2026-12-05T10:00:00Z" }, expect = "deny", rule = "office" },
  { call = { tool = "read_file", args = { path = "a" }, sandbox = "owned", time = "2026-12-05T10:00:00Z" }, expect = "allow" },
}
