---@meta demilune.core

--- core.lua - what `require "demilune.core"` gives: one table with all modules that are written in C.
--
-- For editors and readers: nothing here runs. Misuse (a wrong type, a number out of range) raises; what the world
-- does wrong is returned as `nil, err`, with err a demilune.Error (lua/demilune/errors.lua; rows in
-- src/base/status.h) or, from core.agent, a demilune.core.AgentError. Functions marked async wait: only a task may
-- call them (see task.lua), and a task that is cancelled gets `task.CANCELLED` raised there. Times are milliseconds,
-- a timeout below 0 or nil means none.
error "lua/demilune/meta/core.lua is for editors and cannot be required"

---@class demilune.core
---@field json demilune.core.json            text <-> values
---@field task demilune.core.task            coroutines that wait, events, clocks
---@field text demilune.core.text            UTF-8
---@field crypto demilune.core.crypto        hashes, base64, random, sealing
---@field fs demilune.core.fs                small private files on the host
---@field log demilune.core.log              the log
---@field sys demilune.core.sys              the process: options, descriptors, signals
---@field process demilune.core.process      children on the host
---@field stdio demilune.core.stdio          MCP over a pair of descriptors
---@field status demilune.core.status        the table of failures
---@field http demilune.core.http            HTTP client
---@field httpd demilune.core.httpd          HTTP server
---@field agent demilune.core.agent          channel to the agent in a sandbox
---@field isolation demilune.core.isolation  local sandboxes
---@field jwt demilune.core.jwt              signed tokens
---@field fence demilune.core.fence          the process in which policy code runs
---@field vault demilune.core.vault          credentials, and the redaction of what leaves
---@field regex demilune.core.regex          regular expressions and globs
local core = {}

return core
