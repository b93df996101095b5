--- reap.lua - what a scope could not end in time is ended by a process of its own, which outlives the server.
--
-- Both halves are here. The scope's half starts `demilune reap` and writes to a pipe, never to arguments or the
-- environment: first the credential, from vault to vault, then the job, {entry, ids, stamps}. The entry is
-- a provider of the settled configuration, so that no file is read again. A stamp finds a sandbox whose creation was
-- answered after nobody listened any more.
local connect = require "demilune.connect"
local core = require "demilune.core"
local gate = require "demilune.gate"
local providers = require "demilune.providers"

local task = core.task
local reap = {}

--- How long the whole may take.
reap.TIME_MS = 30000
--- The descriptor of the pipe in the child.
reap.FD = 3

local RETRY_MS = 1000
--- One try, so that a service which hangs once is asked again.
local TRY_MS = 8000
--- A pipe holds 64 KiB (pipe(7)), so that the job is written without waiting for its reader: a process takes so many ids
--- and stamps of one provider.
local JOB_BYTES_MAX = 60 * 1024
local ENTRIES_MAX = 256
local START_MS = 1000
local READ_MS = 5000
local CREDENTIALS_MAX = 1
--- Requests at a time.
local PLACES = 32

--- What the child may know of our environment: homes, and how to get out.
local ENVIRONMENT = {
  "HOME", "PATH", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "http_proxy",
  "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE", "CURL_CA_BUNDLE",
}

local function environment()
  local env = {}
  for _, name in ipairs(ENVIRONMENT) do env[name] = core.sys.env(name) end
  return env
end

local function write_all(fd, job, text)
  local ok, err = core.vault.hand_over(fd, { job.entry.credential })
  if ok then ok, err = core.sys.write(fd, text) end
  return ok, err
end

--- Without its key nothing was ever asked of a service, so that nothing can be left there.
local function has_key(job)
  for _, credential in ipairs(core.vault.status().credentials) do
    if credential.name == job.entry.credential then return credential.state == "loaded" end
  end
  return false
end

local function start_one(job)
  local text = core.json.encode(job)
  if #text > JOB_BYTES_MAX then return false end
  local read_fd, write_fd = core.sys.pipe()
  if not read_fd then return false end
  local child = core.process.start {
    argv = { core.sys.executable(), "reap", "--detach" }, env = environment(), fds = { [reap.FD] = read_fd },
  }
  core.sys.close(read_fd)
  local ok = child and write_all(write_fd, job, text)
  core.sys.close(write_fd)
  if child then child:wait(START_MS) end
  return ok == true
end

--- A job in pieces that fit into a pipe.
local function pieces_of(job)
  local pieces, count = {}, 0
  for _, kind in ipairs { "ids", "stamps" } do
    for _, value in ipairs(job[kind]) do
      if count % ENTRIES_MAX == 0 then
        pieces[#pieces + 1] = { entry = job.entry, ids = core.json.array {}, stamps = core.json.array {} }
      end
      count = count + 1
      table.insert(pieces[#pieces][kind], value)
    end
  end
  return pieces
end

--- Starts processes that end these sandboxes. Returns whether all were told.
---@param jobs {entry: table, ids: string[], stamps: string[]}[]  one a provider
---@return boolean
function reap.start(jobs)
  local ok = true
  for _, job in ipairs(jobs) do
    for _, piece in ipairs(has_key(job) and pieces_of(job) or {}) do ok = start_one(piece) and ok end
  end
  return ok
end

-- ---- the child ----

--- Tries until it works or the time is over. Returns whether it did.
local function insist(deadline_ms, fn, ...)
  while true do
    local try = task.spawn(fn, ...)
    if try:wait(math.min(TRY_MS, math.max(0, deadline_ms - task.now_ms()))) then return true end
    try:cancel()
    if task.now_ms() + RETRY_MS >= deadline_ms then return false end
    task.sleep(RETRY_MS)
  end
end

local function is_list_of_strings(value)
  if not connect.is_array(value) then return false end
  for _, item in ipairs(value) do
    if type(item) ~= "string" then return false end
  end
  return true
end

local function spawn_kills(job, deadline_ms, kills)
  local provider = providers.new(job.entry, {}, gate.new(PLACES, reap.TIME_MS))
  for _, id in ipairs(job.ids) do
    if provider:is_id(id) then kills[#kills + 1] = task.spawn(insist, deadline_ms, provider.kill, provider, id) end
  end
  -- That one goes on looking by itself.
  for _, stamp in ipairs(job.stamps) do
    kills[#kills + 1] = task.spawn(provider.kill_by_stamp, provider, stamp, deadline_ms)
  end
end

--- Does a job. Returns how many sandboxes or stamps there were, and how many are done with.
---@param text string
---@return integer asked
---@return integer done
function reap.work(text)
  local deadline_ms = task.now_ms() + reap.TIME_MS
  local job, kills, done = connect.object(text), {}, 0
  local is_job = job and connect.is_object(job.entry) and is_list_of_strings(job.ids) and is_list_of_strings(job.stamps)
  if not is_job then return 0, 0 end
  spawn_kills(job, deadline_ms, kills)
  for _, kill in ipairs(kills) do
    local ok, value = kill:wait(math.max(0, deadline_ms - task.now_ms()))
    if ok and value ~= false then done = done + 1 end
    kill:cancel()
  end
  return #kills, done
end

--- Takes credentials and job from the pipe. Nil when it is not what `start` writes.
---@return string?
function reap.receive()
  if not core.vault.take_over(reap.FD, CREDENTIALS_MAX) then return nil end
  local reader = core.sys.reader(reap.FD)
  if not reader then return nil end
  local parts, size = {}, 0
  repeat
    local chunk = reader:read(READ_MS)
    parts[#parts + 1], size = chunk, size + #(chunk or "")
  until not chunk or size > JOB_BYTES_MAX
  reader:close()
  return size <= JOB_BYTES_MAX and table.concat(parts) or nil
end

return reap
