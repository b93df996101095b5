std = "lua54"
max_line_length = false -- spec/style_spec.lua
codes = true
exclude_files = { "build*", "spec/peers/node_modules" }
-- Callbacks keep their full parameter lists; a value not wanted is called _.
unused_args = false
files["spec"] = { std = "+busted" }
files["spec/run.lua"] = { globals = { "arg", "os.getenv" } }
-- What the fence gives to a policy.
files["examples/policies"] = { globals = { "allow", "ask", "deny", "glob", "log", "path" } }
files["lua/demilune/meta"] = { ignore = { "211", "212", "241" } }
