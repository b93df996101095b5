local function creation() return { call = { tool = "create_sandbox" }, expect = "allow" } end

local cases = { policy = "spending_cap.lua" }
for i = 1, 20 do cases[i] = creation() end
cases[21] = { name = "the twenty-first in an hour", call = { tool = "create_sandbox" }, expect = "deny", rule = "paced" }
cases[22] = { call = { tool = "run_command", args = { command = "ls" }, sandbox = "owned" }, expect = "allow" }
return cases
