---@meta _

--- isolation.lua - core.isolation: sandboxes on this machine with bubblewrap (src/script/bind_isolation.c).
--
-- Fails closed: what cannot be isolated is not started. A box that nobody releases is killed and released when it is
-- collected or its <close> variable ends.
error "lua/demilune/meta/isolation.lua is for editors and cannot be required"

---@class demilune.core.isolation
local isolation = {}

--- What all sandboxes of an engine share: the sealed agent program, the filter, the limits, the uids.
---@class demilune.core.isolation.Iso
local Iso = {}

--- One sandbox.
---@class demilune.core.isolation.Box
---@field pid integer        of the bubblewrap process
---@field fd? integer        our end of the channel to the agent, borrowed; nil once taken or released
---@field memory_mb? number  the limit; nil where none holds
---@field cpu? number        cores; nil where no limit holds
local Box = {}

---@class demilune.core.isolation.Options
---@field agent_path? string  the agent's program; the one in `sys.library_dir()` without it

---@class demilune.core.isolation.Limits
---@field kind "cgroup2"|"cgroup1"|"none"
---@field memory boolean  whether such a limit holds
---@field cpu boolean
---@field pids boolean
---@field pause? "freezer"|"signals"  how a sandbox is paused; of `Iso.limits` alone

---@class demilune.core.isolation.Usage
---@field cpu_ms integer             since the start
---@field memory_bytes integer       without files
---@field cache_bytes integer        files in memory, the sandbox's own too; 0 without a group
---@field processes integer          bubblewrap and the agent among them
---@field source "group"|"processes" where memory comes from: the group, or what each process has resident
---@field disk_used_bytes? integer   of the home folder; nil where it cannot be seen
---@field disk_total_bytes? integer
---@field host_cpu_count integer
---@field host_memory_bytes integer

---@class demilune.core.isolation.Check
---@field name "bubblewrap"|"agent"|"user_namespaces"|"apparmor"|"seccomp"|"root_directory"|"proc"|"identity"|"trial"
---@field ok boolean
---@field cause? string  one sentence, when not ok
---@field fix? string    the command or setting that mends it, when not ok

---@class demilune.core.isolation.Report
---@field ok boolean
---@field checks demilune.core.isolation.Check[]  all of them, in the order to show
---@field limits demilune.core.isolation.Limits
---@field identity "range"|"caller"               whether each sandbox has a host uid of its own, or the caller's

---@class demilune.core.isolation.BoxOptions
---@field name string        the sandbox id: [a-z0-9], 1 to 64 characters
---@field disk_mb number     [1, 1048576] MiB: the size of the home folder, and of /tmp
---@field memory_mb? number  [16, 16777216] MiB; no limit without it
---@field cpu? number        [0.01, 4096] cores; no limit without it
---@field pids? number       [1, 4000000]; no limit without it

--- Finds out whether this machine can isolate a sandbox, by trying; takes up to 10 s. Errors: internal.
---@async
---@param options? demilune.core.isolation.Options
---@return demilune.core.isolation.Report?
---@return demilune.Error? err
function isolation.preflight(options) end

--- Sets up what sandboxes need and reaps what dead engines left. Once an engine. Blocks for some milliseconds.
--- Errors: local_isolation_unavailable (`preflight` says why), no_capacity.
---@param options demilune.core.isolation.Options
---@return demilune.core.isolation.Iso?
---@return demilune.Error? err
function isolation.open(options) end

--- Starts a sandbox; its agent speaks on the channel once it is up. Limits that do not hold here are ignored: see
--- `limits`. Errors: invalid_argument (the name), no_capacity (uids, descriptors, processes, memory), conflict (the
--- name is in use), local_isolation_unavailable, internal; then nothing is left of it. Raises for numbers out of
--- range.
---@param options demilune.core.isolation.BoxOptions
---@return demilune.core.isolation.Box?
---@return demilune.Error? err
function Iso:start(options) end

--- Which limits hold for sandboxes of this engine.
---@return demilune.core.isolation.Limits
function Iso:limits() end

--- Takes our end of the channel out of the box, for `agent.attach`. Raises when it was taken or the box is released.
---@return integer fd  the caller's to close
function Box:take_fd() end

--- Ends the whole sandbox; `wait` tells when. Fine to repeat.
function Box:kill() end

--- Waits until all processes of the sandbox have ended; at once when they have or the box is released.
---@async
---@param timeout_ms? number
---@return true?
---@return "timeout"|demilune.Error|nil why  the error is internal: no memory
function Box:wait(timeout_ms) end

--- One step towards standing still. Call it again, some milliseconds later, until it is true, or give up with
--- `resume`. Errors: conflict (it has ended), no_capacity, internal.
---@return boolean? is_paused
---@return demilune.Error? err
function Box:pause() end

--- Goes on where it was stopped. Fine when it runs. Errors: as those of `pause`.
---@return true?
---@return demilune.Error? err
function Box:resume() end

--- What it uses now. Errors: as those of `pause`.
---@return demilune.core.isolation.Usage?
---@return demilune.Error? err
function Box:usage() end

--- Gives back the group and the uid. A box that still runs is killed and waited for first, which blocks for some
--- milliseconds, 2 s at most. Fine to repeat.
---@return true
function Box:release() end

return isolation
