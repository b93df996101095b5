--- One request in a process of its own, whose environment a spec chose: `fetch.lua URL [NAME=VALUE...]`, run in the checkout.
-- Prints the status or the category of the error, and the body.

package.path = "./?.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
package.cpath = os.getenv("DML_BUILD_DIR") .. "/spec/?.so;" .. package.cpath
local core = require "demilune.core"

core.task.run(function()
  local opts = { url = arg[1], timeout_ms = 5000, max_body_bytes = 65536 }
  for i = 2, #arg do
    local name, value = arg[i]:match("^([%w_]+)=(.*)$")
    opts[name] = value
  end
  local res, err = core.http.request(opts)
  print(res and res.status or err.category)
  if res then print(res.body) end
end)
