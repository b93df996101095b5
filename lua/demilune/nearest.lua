--- nearest.lua - the name that somebody probably meant: for unknown keys, commands, options.
--
-- Distance counts an insertion, a deletion, a change and a swap of neighbours as one each (optimal
-- string alignment). A guess that is far off helps nobody, so at most a third may differ.

local nearest = {}

local WORD_BYTES_MAX = 64

--- Small letters, and one sign between words.
local function folded(name) return (name:lower():gsub("[-. ]", "_")) end

--- How many single edits make `a` into `b`, in bytes.
---@param a string
---@param b string
---@return integer
function nearest.distance(a, b)
  local before, last = {}, {}
  for j = 0, #b do last[j] = j end
  for i = 1, #a do
    local row = { [0] = i }
    for j = 1, #b do
      local is_same = a:byte(i) == b:byte(j)
      local best = math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (is_same and 0 or 1))
      local is_swap = i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j)
      row[j] = is_swap and math.min(best, before[j - 2] + 1) or best
    end
    before, last = last, row
  end
  return last[#b]
end

--- Lower is nearer; nil is too far. Words that begin alike (`mem`, `memory`) are near too.
local function cost(word, name)
  local distance = nearest.distance(word, name)
  local shorter = math.min(#word, #name)
  if distance <= math.max(1, shorter // 3) and distance < shorter then return distance end
  if shorter >= 3 and word:sub(1, shorter) == name:sub(1, shorter) then return WORD_BYTES_MAX end
  return nil
end

--- The one of `names` that is nearest to `word`; among equals the first in byte order.
---@param word string
---@param names string[]
---@return string? name  nil when none is near
function nearest.of(word, names)
  if #word > WORD_BYTES_MAX then return nil end
  local wanted = folded(word)
  local best, best_cost
  for _, name in ipairs(names) do
    local is_tried = type(name) == "string" and #name <= WORD_BYTES_MAX
    local now = is_tried and cost(wanted, folded(name))
    if now and (not best or now < best_cost or (now == best_cost and name < best)) then
      best, best_cost = name, now
    end
  end
  return best
end

return nearest
