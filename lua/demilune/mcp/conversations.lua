--- mcp/conversations.lua - the clients of one server: one on stdio, many over HTTP. What has changed is told to those whom
--- it concerns.
local conversations = {}

---@class demilune.mcp.Conversations
---@field set table<demilune.Conversation, true>
local Conversations = {}
Conversations.__index = Conversations

--- Makes an empty one.
---@return demilune.mcp.Conversations
function conversations.new()
  return setmetatable({ set = {} }, Conversations)
end

--- Takes a conversation in, until it is removed.
---@param conversation demilune.Conversation
function Conversations:add(conversation)
  self.set[conversation] = true
end

--- Forgets one. Twice is fine.
---@param conversation demilune.Conversation
function Conversations:remove(conversation)
  self.set[conversation] = nil
end

--- What each sees of the tools: a list varies by principal alone, so it is made once for each.
---@async
---@return table<demilune.Conversation, string>
function Conversations:tools_seen()
  local by_principal, seen = {}, {}
  for conversation in pairs(self.set) do seen[conversation] = "" end
  for conversation in pairs(seen) do
    local who = conversation.principal
    by_principal[who] = by_principal[who] or conversation:tools_digest()
    seen[conversation] = by_principal[who]
  end
  return seen
end

--- Tells those that see other tools than they did.
---@async
---@param before table<demilune.Conversation, string>  of tools_seen
function Conversations:tell_changes(before)
  for conversation, digest in pairs(self:tools_seen()) do
    if self.set[conversation] and before[conversation] ~= nil and before[conversation] ~= digest then
      conversation:tools_changed()
    end
  end
end

return conversations
