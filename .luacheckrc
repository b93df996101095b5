std = "lua54"
max_line_length = false -- spec/style_spec.lua
codes = true
exclude_files = { "build*", "spec/peers/node_modules" }
-- Callbacks keep their full parameter lists; a value not wanted is called _.
unused_args = false
files["spec"] = { std = "+busted" }
files["spec/run.lua"] = { globals = { "arg", "os.getenv" } }
files["lua/demilune/meta"] = { ignore = { "211", "212", "241" } }
