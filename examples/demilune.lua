-- A configuration of this machine with most of what can be said; cloud.lua beside it has providers of other kinds, and
-- docs/configuration.md every key. Use it with `demilune serve --config examples/demilune.lua`.
return {
  default_provider = "local",
  providers = {
    {
      id = "local", type = "local",
      lifetime = 1800, -- seconds that a use grants a sandbox; the rest of its life is between half of that and all of it
      max_lifetime = 8 * 3600, -- seconds from creation that nobody gets past
      templates = {
        base = { disk = 1024, memory = 1024, cpu = 2, pids = 256 }, -- MB, MB, cores, processes
        small = { disk = 64, memory = 256, cpu = 1, env = { LANG = "C.UTF-8", TZ = "Europe/Berlin" } },
      },
    },
  },
  output = { stdout = 16384, stderr = 8192 }, -- bytes of an output that a model is shown
  limits = { message = 16, tasks = 16 }, -- MB of one message, background tasks at a time
  log = { level = "info" },
}
