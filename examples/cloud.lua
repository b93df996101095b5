-- This machine and three accounts of clouds. docs/configuration.md has every key; no key of a service stands here, only where it
-- comes from. `demilune doctor --config examples/cloud.lua` says which of them can be read.
return {
  default_provider = "local",
  providers = {
    { id = "local", type = "local" },
    {
      id = "cloud", type = "e2b", credential = "e2b",
      lifetime = 300, max_lifetime = 3600, -- seconds; the service has a limit of its own
      auto_resume = true, -- use of a paused sandbox resumes it
      templates = { "base", "code-interpreter-v1" }, -- what the tools name; `base` has no kernel for run_code
    },
    {
      id = "own", type = "e2b", preset = "engine", -- `demilune engine --listen 127.0.0.1:7049 --key-file engine.key`
      api_url = "http://127.0.0.1:7049", credential = "engine", max_requests = 64,
    },
    { id = "vf", type = "veryfront", api_url = "https://api.veryfront.com", project = "my-project", credential = "vf" },
  },
  credentials = {
    e2b = { source = "env:E2B_API_KEY" }, -- read at the start, then wiped from the environment
    engine = { source = "file:engine.key" }, -- beside this file; nobody else may read it
    vf = { source = "cmd:/usr/bin/secret-tool lookup service veryfront" }, -- its first line; no shell
  },
  vault = { require_lock = false }, -- true: rather fail than let keys be swapped to disk
}
