--- mcp/input.lua - questions to a client of 2026-07-28, which is never sent a request: its call is answered with what is
--- missing, and comes again with the answers (MCP 2026-07-28, "Multi Round-Trip Requests").
--
-- What must be known when it comes again travels as `requestState`: which questions were asked and what was answered before,
-- sealed, bound to principal, tool and arguments, and good once. Only questions of that state are taken for answered.
local connect = require "demilune.connect"
local core = require "demilune.core"
local errors = require "demilune.errors"
local state = require "demilune.state"

local json = core.json
local input = {}

local INVALID_PARAMS = -32602
--- How long a client may take over its questions.
local TTL_MS = 60 * 60 * 1000
local STATE_BYTES_MAX = 4096
--- States that were used and are not over yet. Where there are more, the oldest states lose their right to come.
local SPENT_MAX = 4096
local KEY_HEX = 24
--- How often the client of a task is asked for an answer that is one.
local TASK_TRIES_MAX = 8

--- States of another process mean nothing here: it is the one that knows which of them were used.
local PROCESS = core.crypto.id(16)

---@class demilune.mcp.Spent
---@field by_nonce table<string, integer>  when the state was made
---@field count integer
---@field floor_ms integer  states made until then are refused
local spent_of = setmetatable({}, { __mode = "k" })

local function fail(message)
  error({ rpc_code = INVALID_PARAMS, message = message }, 0)
end

local function spent_book(app)
  local book = spent_of[app]
  if not book then
    book = { by_nonce = {}, count = 0, floor_ms = 0 }
    spent_of[app] = book
  end
  return book
end

--- Drops what is over; where that is not enough, all that is older than half of the rest.
local function shrink(book, now_ms)
  local times = {}
  for nonce, made_ms in pairs(book.by_nonce) do
    if now_ms >= made_ms + TTL_MS then book.by_nonce[nonce] = nil else times[#times + 1] = made_ms end
  end
  if #times >= SPENT_MAX then
    table.sort(times)
    book.floor_ms = times[#times // 2]
    for nonce, made_ms in pairs(book.by_nonce) do
      if made_ms <= book.floor_ms then book.by_nonce[nonce] = nil end
    end
  end
  book.count = 0
  for _ in pairs(book.by_nonce) do book.count = book.count + 1 end
end

--- Uses a state up; false when it was used before.
local function spend(app, sealed, now_ms)
  local book = spent_book(app)
  if sealed.made_ms <= book.floor_ms or book.by_nonce[sealed.nonce] then return false end
  if book.count >= SPENT_MAX then shrink(book, now_ms) end
  book.by_nonce[sealed.nonce] = sealed.made_ms
  book.count = book.count + 1
  return true
end

--- What a state belongs to.
local function binding_of(request)
  local params = request.params
  return core.crypto.sha256(json.encode { request.conversation.principal, params.name, params.arguments or json.null })
end

--- Reads a state that a client sent back. Nil where it is of a process that is no more: then everything is asked again.
local function unseal(request, text)
  if type(text) ~= "string" then fail "requestState must be a string" end
  local bytes = #text <= 2 * STATE_BYTES_MAX and core.crypto.open(state.key(), text)
  local sealed = bytes and json.decode(bytes)
  -- The same key seals other things.
  if not connect.is_object(sealed) or sealed.kind ~= "input" or sealed.binding ~= binding_of(request) then
    fail "requestState is not one that this server gave for this call"
  end
  if sealed.process ~= PROCESS then return nil end
  local now_ms = core.task.now_ms()
  if now_ms >= sealed.made_ms + TTL_MS then fail "requestState has expired; make the call without it" end
  if not spend(request.conversation.app, sealed, now_ms) then fail "requestState was used before; make the call without it" end
  return sealed
end

--- Takes what a call brings along. Raises JSON-RPC's invalid params for a state that is changed, foreign, used or expired.
---@param request table  params and conversation; gets `input`
function input.open(request)
  local params = request.params
  local given = params.inputResponses
  if given ~= nil and not connect.is_object(given) then fail "inputResponses must be an object" end
  local sealed = params.requestState ~= nil and unseal(request, params.requestState) or nil
  local answers, seen = {}, {}
  if sealed then
    for key, answer in pairs(sealed.answers or {}) do answers[key] = answer end
    for _, key in ipairs(sealed.asked) do answers[key] = given and given[key] or nil end
  end
  request.input = { answers = answers, used = {}, wanted = {}, has_wanted = false, seen = seen }
end

--- The name of a question in this call: the same whenever the call comes again and asks the same.
local function key_for(book, method, params, about)
  local key = "q_" .. core.crypto.sha256(json.encode { method, params, about or json.null }):sub(1, KEY_HEX)
  local times = (book.seen[key] or 0) + 1
  book.seen[key] = times
  return times == 1 and key or key .. "_" .. times
end

--- Asks through the record of a task, whose client answers with tasks/update. An answer that is none is asked for again under
--- another key, since a key is used once.
local function ask_in_task(request, key, method, params, is_answer)
  local tries = 0
  repeat
    tries = tries + 1
    local answer = request.deferred:ask(tries == 1 and key or key .. "_t" .. tries, { method = method, params = params })
    if is_answer(answer) then return answer end
  until tries == TASK_TRIES_MAX
  errors.raise "approval_required"
end

--- What the client answered to a question; where it has not, the question is noted and the call ended.
---@param request table   that `open` has seen
---@param method string   "elicitation/create", …
---@param params table
---@param about? any      what the answer is about, beside what is shown
---@param is_answer fun(answer: any): boolean  others are asked for again
---@return table answer  hostile but for `is_answer`
function input.answer(request, method, params, about, is_answer)
  local book = request.input
  local key = key_for(book, method, params, about)
  if request.deferred then return ask_in_task(request, key, method, params, is_answer) end
  local answer = book.answers[key]
  if answer ~= nil and is_answer(answer) then
    book.used[key] = answer
    return answer
  end
  book.wanted[key] = { method = method, params = params }
  book.has_wanted = true
  errors.raise "approval_required"
end

--- Whether the call must come again with answers.
---@param request table
---@return boolean
function input.is_wanted(request)
  return request.input ~= nil and request.input.has_wanted
end

local function seal(request)
  local book, asked = request.input, json.array()
  for key in pairs(book.wanted) do asked[#asked + 1] = key end
  local bytes = json.encode {
    kind = "input", binding = binding_of(request), process = PROCESS, made_ms = core.task.now_ms(),
    nonce = core.crypto.id(16), asked = asked, answers = next(book.used) and book.used or nil,
  }
  if #bytes > STATE_BYTES_MAX then return nil end
  return core.crypto.seal(state.key(), bytes)
end

--- What the client is to answer: `inputRequests` and `requestState` of an input_required result. Raises JSON-RPC's invalid
--- params where the answers so far are too long to be kept.
---@param request table
---@return {inputRequests: table, requestState: string}
function input.result(request)
  local sealed = seal(request)
  if not sealed then fail "the answers of this call are too long to be kept until it is complete" end
  return { inputRequests = request.input.wanted, requestState = sealed }
end

return input
