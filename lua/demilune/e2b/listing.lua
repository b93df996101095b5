--- e2b/listing.lua - the sandboxes of an account, page by page.
local connect = require "demilune.connect"
local control = require "demilune.e2b.control"
local core = require "demilune.core"
local errors = require "demilune.errors"
local text = require "demilune.text"

local listing = {}

local PAGE = 100
local PAGES_MAX = 1000
--- For all pages together.
local TIME_MS = 45000

--- The query of a listing. A metadata filter is decoded three times by the service, so it is encoded three times.
local function list_query(opts, cursor)
  local query = "/v2/sandboxes?limit=" .. PAGE .. "&state=" .. (opts.status or "running%2Cpaused")
  if opts.owner then query = query .. "&metadata=" .. text.escape("demilune_principal=" .. text.escape(text.escape(opts.owner))) end
  if opts.stamp then query = query .. "&metadata=" .. text.escape("demilune_stamp=" .. text.escape(text.escape(opts.stamp))) end
  if cursor then query = query .. "&nextToken=" .. text.escape(cursor) end
  return query
end

--- Calls `fn(info, metadata)` for each listed sandbox, newest first, until it returns true.
---@param self demilune.E2b
---@param place? demilune.e2b.Place
---@param opts {status?: string, owner?: string, stamp?: string}
---@param fn fun(info: table, metadata: table): boolean?
function listing.each(self, place, opts, fn)
  local manner = {
    is_safe = true, place = place, tokens = place and place:listed_tokens(), deadline_ms = core.task.now_ms() + TIME_MS,
  }
  local cursor
  for _ = 1, PAGES_MAX do
    local entries, headers = control.send(self, "GET", list_query(opts, cursor), nil, { [200] = true }, manner)
    if not connect.is_array(entries) then errors.raise "invalid_response" end
    for _, entry in ipairs(entries) do
      if fn(self:info_of(entry, place)) then return end
    end
    local next_cursor = headers["x-next-token"]
    if not next_cursor or next_cursor == "" then return end
    if next_cursor == cursor then errors.raise "invalid_response" end
    cursor = next_cursor
  end
  errors.raise "invalid_response"
end

return listing
