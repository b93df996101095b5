--- What the specs of the fence share: a policy in a worker, for as long as one function runs.

local core = require "demilune.core"

local fences = {}

local function no_module() return nil end

--- Runs `fn(fence, data)` in a task with a policy of that text loaded, and stops the fence. What loading did wrong fails the
--- case.
---@param source string
---@param fn async fun(fence: table, data: table)
---@param options? { find?: function, limits?: table }
function fences.with(source, fn, options)
  options = options or {}
  core.task.run(function()
    local fence = assert(core.fence.start { limits = options.limits })
    local data, fault = fence:load(source, "policy.lua", options.find or no_module)
    if not data then
      fence:stop()
      error(("%s:%s: %s"):format(fault.file, fault.line, fault.text))
    end
    local ok, err = pcall(fn, fence, data)
    fence:stop()
    if not ok then error(err, 0) end
  end)
end

--- The fault of a text that does not load.
---@param source string
---@param options? { find?: function, limits?: table }
---@return table
function fences.load_fault(source, options)
  options = options or {}
  return core.task.run(function()
    local fence = assert(core.fence.start { limits = options.limits })
    local data, fault = fence:load(source, "policy.lua", options.find or no_module)
    fence:stop()
    assert(data == nil, "it was loaded")
    return fault
  end)
end

--- A policy whose function `f(call)` has this body.
---@param body string
---@return string
function fences.policy(body) return "local policy = {}\nfunction policy.f(call)\n" .. body .. "\nend\nreturn policy\n" end

--- What `f` with this body returns for `argument`: the outcome, or nil and the fault.
---@param body string
---@param argument? any
---@return table? outcome
---@return table? fault
function fences.run(body, argument)
  local outcome, fault
  fences.with(fences.policy(body), function(fence)
    if argument == nil then
      outcome, fault = fence:call "f"
    else
      outcome, fault = fence:call("f", argument)
    end
  end)
  return outcome, fault
end

--- The value that `f` with this body returns; a fault fails the case.
---@param body string
---@param argument? any
---@return any
function fences.value(body, argument)
  local outcome, fault = fences.run(body, argument)
  assert(outcome, fault and fault.text)
  return outcome.value
end

return fences
