--- kernel_context.lua - contexts: a kernel each, its place to work in, and whose turn it is.
--
-- One execution at a time; others wait in order. The turn covers starting and interrupting a kernel
-- too, and passes on when the kernel can be used again or is gone. A kernel that has ended is
-- replaced when the next turn begins.
local core = require "demilune.core"
local faults = require "demilune.engine.faults"
local kernel_process = require "demilune.engine.kernel_process"

local kernel_context = {}

--- Contexts of one sandbox at a time.
local CONTEXTS_MAX = 16
--- Executions that wait for their turn in one context.
local WAITING_MAX = 32
local ID_CHARACTERS = 20

---@class demilune.engine.Context
---@field id string
---@field sandbox demilune.engine.Sandbox
---@field language string
---@field cwd string
---@field kernel? demilune.engine.Kernel
---@field is_taken boolean
---@field waiting table[]       events, in order
---@field is_deleted boolean
---@field is_fresh boolean      nobody has to be told that a kernel was lost
local Context = {}
Context.__index = Context

---@class demilune.engine.Contexts
---@field list demilune.engine.Context[]
---@field by_id table<string, demilune.engine.Context>
---@field default? demilune.engine.Context

--- What a sandbox has, as long as it is there.
---@type table<demilune.engine.Sandbox, demilune.engine.Contexts>
local of_sandbox = setmetatable({}, { __mode = "k" })

--- The contexts of a sandbox.
---@param sandbox demilune.engine.Sandbox
---@return demilune.engine.Contexts
function kernel_context.all(sandbox)
  local all = of_sandbox[sandbox]
  if not all then
    all = { list = {}, by_id = {} }
    of_sandbox[sandbox] = all
  end
  return all
end

--- Makes a context; its kernel comes with its first turn.
---@param sandbox demilune.engine.Sandbox
---@param cwd string
---@return demilune.engine.Context
function kernel_context.new(sandbox, cwd)
  local all = kernel_context.all(sandbox)
  if #all.list >= CONTEXTS_MAX then
    faults.raise("exhausted", { message = "The sandbox has as many contexts as it takes." })
  end
  local self = setmetatable({
    id = core.crypto.id(ID_CHARACTERS), sandbox = sandbox, language = "python", cwd = cwd,
    is_taken = false, waiting = {}, is_deleted = false, is_fresh = true,
  }, Context)
  all.list[#all.list + 1] = self
  all.by_id[self.id] = self
  return self
end

--- Forgets the context and ends its kernel; who waits for a turn is told.
function Context:delete()
  local all = kernel_context.all(self.sandbox)
  for i, other in ipairs(all.list) do
    if other == self then table.remove(all.list, i) break end
  end
  all.by_id[self.id] = nil
  if all.default == self then all.default = nil end
  self.is_deleted = true
  if self.kernel then self.kernel:kill() end
end

--- Takes the turn if nobody has it.
---@return boolean
function Context:try_enter()
  if self.is_taken then return false end
  self.is_taken = true
  return true
end

--- Raises a fault when nobody else may wait for a turn.
function Context:check_room()
  if #self.waiting < WAITING_MAX then return end
  faults.raise("exhausted", { message = "Too many executions wait for this context." })
end

--- Waits for the turn; calls `on_idle` each `idle_ms` meanwhile. Raises what that raises.
---@param idle_ms integer
---@param on_idle fun()
function Context:enter(idle_ms, on_idle)
  if self:try_enter() then return end
  local turn = core.task.event()
  self.waiting[#self.waiting + 1] = turn
  local ok, raised = pcall(function()
    while not turn:wait(idle_ms) do on_idle() end
  end)
  if ok then return end
  for i, other in ipairs(self.waiting) do
    if other == turn then table.remove(self.waiting, i) break end
  end
  if turn:is_set() then self:leave() end
  error(raised, 0)
end

--- Passes the turn on.
function Context:leave()
  local turn = table.remove(self.waiting, 1)
  if turn then turn:set() else self.is_taken = false end
end

--- Makes sure of a kernel; needs the turn. Raises a fault when there can be none.
---@return boolean was_lost  one ended since the last execution, and nobody was told
function Context:prepare()
  if self.is_deleted then faults.raise("not_found", { message = "The context was deleted." }) end
  if self.kernel and self.kernel:settle() then return false end
  local was_lost = not self.is_fresh
  self.kernel, self.is_fresh = nil, true
  local kernel = kernel_process.start(self.sandbox, self.cwd)
  if self.is_deleted then
    kernel:kill()
    faults.raise("not_found", { message = "The context was deleted." })
  end
  self.kernel = kernel
  return was_lost
end

return kernel_context
