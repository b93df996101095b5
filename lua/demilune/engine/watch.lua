--- watch.lua - file watchers of filesystem.Filesystem: WatchDir, and the polled form of
--- CreateWatcher, GetWatcherEvents and RemoveWatcher.
--
-- Nothing is collected here between polls: events wait with the agent and in its channel, which
-- both have limits. Connect has no event for events that were lost, so a watcher that lost some
-- ends with an error and has to be made anew.
local connect = require "demilune.connect"
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local filesystem = require "demilune.engine.filesystem"
local input = require "demilune.engine.input"
local path = require "demilune.engine.path"

local watch = {}

--- Watchers of one sandbox at a time, of both forms.
local WATCHERS_MAX = 32
local ID_CHARACTERS = 20
local ID_MAX_BYTES = 64
--- Events of one GetWatcherEvents; the rest comes with the next.
local POLL_MAX_EVENTS = 5000
local TIMEOUT_MAX_MS = 2147483647
local PING_DEFAULT_S, PING_MAX_S = 90, 3600

local TYPES = {
  create = "EVENT_TYPE_CREATE", write = "EVENT_TYPE_WRITE", remove = "EVENT_TYPE_REMOVE",
  rename = "EVENT_TYPE_RENAME", chmod = "EVENT_TYPE_CHMOD",
}
--- Events after which there is something to show an entry of.
local HAS_ENTRY = { create = true, write = true, chmod = true }

local KEEPALIVE = connect.message { keepalive = {} }
local START = connect.message { start = {} }

local LOST = "Events came faster than they were taken, or folders are too many; make a new watcher."

---@class demilune.engine.Watcher
---@field sandbox demilune.engine.Sandbox
---@field root string
---@field has_entries boolean
---@field source table        core.agent
---@field is_busy? boolean    somebody polls it
---@field fault? demilune.engine.Fault  what every later poll is answered with

---@class demilune.engine.Watchers
---@field count integer  those of WatchDir as well
---@field by_id table<string, demilune.engine.Watcher>

--- What a sandbox has, as long as it is there.
---@type table<demilune.engine.Sandbox, demilune.engine.Watchers>
local of_sandbox = setmetatable({}, { __mode = "k" })

local function watchers_of(sandbox)
  local all = of_sandbox[sandbox]
  if not all then
    all = { count = 0, by_id = {} }
    of_sandbox[sandbox] = all
  end
  return all
end

local function too_many()
  faults.raise("exhausted", { message = "The sandbox has as many watchers as it takes." })
end

--- What an error of the agent's watcher means.
local function fault_of(err)
  if err.code == "exhausted" then return faults.new("exhausted", { message = LOST }) end
  local _, fault = pcall(faults.raise_agent, err)
  return fault
end

local function open(sandbox, message)
  local root = path.need(message, "path")
  local is_recursive = input.flag(message, "recursive")
  local has_entries = input.flag(message, "includeEntry")
  local all = watchers_of(sandbox)
  if all.count >= WATCHERS_MAX then too_many() end
  all.count = all.count + 1
  local ok, source, err = pcall(sandbox.channel.watch, sandbox.channel, root, { recursive = is_recursive })
  if ok and source then
    return { sandbox = sandbox, root = root, has_entries = has_entries or false, source = source }
  end
  all.count = all.count - 1
  if not ok then error(source, 0) end
  if err.code == "exhausted" then
    faults.raise("exhausted", { message = "The folders or watchers are too many." })
  end
  faults.raise_agent(err)
end

local function close(watcher)
  local all = of_sandbox[watcher.sandbox]
  all.count = all.count - 1
  watcher.source:close()
end

--- The entry that an event is about; nil where it has gone since.
local function entry_of(watcher, event)
  if not watcher.has_entries or not HAS_ENTRY[event.type] then return nil end
  local root = watcher.root == "/" and "" or watcher.root
  local entry = watcher.sandbox.channel:stat(event.name == "." and watcher.root or root .. "/" .. event.name)
  return entry and filesystem.show(entry)
end

local function show(watcher, event)
  return { name = event.name, type = TYPES[event.type], entry = entry_of(watcher, event) }
end

--- WatchDir's frames for what `source:next` gave; with true when they are the last.
local function frames_of(watcher, events, why)
  if events then
    local frames = {}
    for i, event in ipairs(events) do
      frames[i] = connect.message { filesystem = show(watcher, event) }
    end
    return table.concat(frames), false
  end
  if not why then return connect.ending(), true end
  return connect.ending(faults.connect_body(fault_of(why))), true
end

--- The next bytes of WatchDir. A deadline counts from the request on.
local function next_frames(watcher, deadline_ms, ping_ms)
  local wait_ms = ping_ms
  if deadline_ms then
    local left_ms = deadline_ms - core.task.now_ms()
    if left_ms <= 0 then
      return connect.ending(faults.connect_body(faults.new "deadline_exceeded")), true
    end
    wait_ms = math.min(ping_ms, left_ms)
  end
  local events, why = watcher.source:next(wait_ms)
  if why == "timeout" then return wait_ms < ping_ms and "" or KEEPALIVE, false end
  return frames_of(watcher, events, why)
end

local function write(req, watcher, deadline_ms, ping_ms)
  req:start(200, { ["Content-Type"] = connect.STREAM_TYPE })
  local frames, is_last = START, false
  while true do
    if frames ~= "" and not req:write(frames) then return end
    if is_last then break end
    frames, is_last = next_frames(watcher, deadline_ms, ping_ms)
  end
  req:finish()
end

--- WatchDir.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@param req table
---@return fun() write  writes the stream
local function watch_dir(sandbox, message, req)
  local timeout_ms = input.digits(req.headers, "connect-timeout-ms", 0, 9999999999)
  local ping_s = input.digits(req.headers, "keepalive-ping-interval", 1, PING_MAX_S)
  local deadline_ms = timeout_ms and core.task.now_ms() + math.min(timeout_ms, TIMEOUT_MAX_MS)
  local watcher = open(sandbox, message)
  return function()
    local ok, raised = pcall(write, req, watcher, deadline_ms, (ping_s or PING_DEFAULT_S) * 1000)
    close(watcher)
    if not ok then error(raised, 0) end
  end
end

--- CreateWatcher.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
local function create_watcher(sandbox, message)
  local watcher = open(sandbox, message)
  local id = core.crypto.id(ID_CHARACTERS)
  of_sandbox[sandbox].by_id[id] = watcher
  return { watcherId = id }
end

local function find(sandbox, message)
  local id = input.text(message, "watcherId", ID_MAX_BYTES) or faults.bad("watcherId", "It is missing.")
  local watcher = watchers_of(sandbox).by_id[id]
  if not watcher then faults.raise("not_found", { message = "There is no such watcher." }) end
  return watcher, id
end

--- What has come, up to the limit. An error waits for the next poll when there is something before
--- it.
local function take(watcher)
  local shown = core.json.array {}
  while #shown < POLL_MAX_EVENTS do
    local events, why = watcher.source:next(0)
    if not events then
      if why and why ~= "timeout" then watcher.fault = fault_of(why) end
      break
    end
    for _, event in ipairs(events) do shown[#shown + 1] = show(watcher, event) end
  end
  if #shown == 0 and watcher.fault then error(watcher.fault, 0) end
  return { events = shown }
end

--- GetWatcherEvents: what came since the last one.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
local function get_watcher_events(sandbox, message)
  local watcher = find(sandbox, message)
  if watcher.fault then error(watcher.fault, 0) end
  if watcher.is_busy then
    faults.raise("conflict", { message = "Another call polls this watcher." })
  end
  watcher.is_busy = true
  local ok, result = pcall(take, watcher)
  watcher.is_busy = false
  if not ok then error(result, 0) end
  return result
end

--- RemoveWatcher.
---@param sandbox demilune.engine.Sandbox
---@param message table
---@return table
local function remove_watcher(sandbox, message)
  local watcher, id = find(sandbox, message)
  of_sandbox[sandbox].by_id[id] = nil
  close(watcher)
  return {}
end

--- Unary calls: path -> handler(sandbox, message, req) -> result.
watch.UNARY = {
  ["/filesystem.Filesystem/CreateWatcher"] = create_watcher,
  ["/filesystem.Filesystem/GetWatcherEvents"] = get_watcher_events,
  ["/filesystem.Filesystem/RemoveWatcher"] = remove_watcher,
}

--- Server streams: path -> handler(sandbox, message, req) -> function that writes the stream.
watch.STREAM = { ["/filesystem.Filesystem/WatchDir"] = watch_dir }

return watch
