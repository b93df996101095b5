--- busted's output handler of this project: silent about what passes, complete about what fails.
--
-- Prints what spec/run.lua reads: `skip: …` for each pending case and one closing line
-- `N passed, N failed`. Before that it looks for what the file left behind; see leftovers.lua.

local leftovers = require "spec.support.leftovers"

local function text_of(message)
  if type(message) == "string" then return message end
  if type(message) == "table" and message.message then return tostring(message.message) end
  return message == nil and "no message" or tostring(message)
end

local function print_failure(failure)
  local trace = failure.trace or {}
  local where = ("%s:%s"):format(trace.short_src or "?", trace.currentline or "?")
  print(("FAILED %s\n  %s\n  %s"):format(failure.name, where, text_of(failure.message):gsub("\n", "\n  ")))
  if failure.isError and trace.traceback then print("  " .. trace.traceback:gsub("^%s+", ""):gsub("\n", "\n  ")) end
end

--- Counts uses of luassert, by tail calls so that the places it names in messages stay right.
local function watch_assertions()
  local luassert = require "luassert"
  local meta, uses = getmetatable(luassert), 0
  local call, state = meta.__call, luassert.state
  function meta.__call(...)
    uses = uses + 1
    return call(...)
  end
  function luassert.state(...)
    uses = uses + 1
    return state(...)
  end
  return function() return uses end
end

return function()
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()
  local before = leftovers.snapshot()
  local assertions, assertions_before = watch_assertions(), 0
  local empty = {}

  function handler.suiteEnd()
    local failed = handler.failuresCount + handler.errorsCount
    for _, failure in ipairs(handler.failures) do print_failure(failure) end
    for _, failure in ipairs(handler.errors) do print_failure(failure) end
    for _, skipped in ipairs(handler.pendings) do
      local reason = type(skipped.message) == "string" and skipped.message:gsub("^[^:]+:%d+: ", ": ") or ""
      print("skip: " .. skipped.name .. reason)
    end
    for _, name in ipairs(empty) do print("FAILED " .. name .. "\n  it asserts nothing") end
    failed = failed + #empty
    for _, left in ipairs(leftovers.since(before)) do
      print("FAILED the file leaves nothing behind\n  " .. left)
      failed = failed + 1
    end
    if handler.successesCount + failed + handler.pendingsCount == 0 then
      print("FAILED the file has a case")
      failed = 1
    end
    print(("%d passed, %d failed"):format(handler.successesCount - #empty, failed))
    io.stdout:flush()
    return nil, true
  end

  local function start_case()
    assertions_before = assertions()
    return nil, true
  end

  local function end_case(element, _, status)
    if status == "success" and assertions() == assertions_before then
      empty[#empty + 1] = handler.getFullName(element)
    end
    return nil, true
  end

  busted.subscribe({ "test", "start" }, start_case)
  busted.subscribe({ "test", "end" }, end_case)
  busted.subscribe({ "suite", "end" }, handler.suiteEnd)
  return handler
end
