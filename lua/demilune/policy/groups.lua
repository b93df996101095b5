--- groups.lua - names for tools that belong together, as rules and functions use them.
--
-- A tool of ours is in the groups that this table says. A tool of an operator's is in those that its file names, and like
-- every tool in @all.

local groups = {}

--- Members by group, `@all` aside.
---@type table<string, string[]>
groups.MEMBERS = {
  ["@execute"] = { "run_code", "run_command", "start_background_task" },
  ["@read"] = { "read_file", "list_files", "download_file" },
  ["@write"] = { "write_file", "upload_file" },
  ["@create"] = { "create_sandbox", "veryfront__create_sandbox" },
  ["@lifetime"] = { "create_sandbox", "set_sandbox_timeout", "veryfront__update_sandbox_lifetime" },
  ["@destroy"] = { "kill_sandbox" },
  ["@inspect"] = { "list_sandboxes", "get_sandbox", "get_background_task" },
}

--- The group of every tool.
groups.ALL = "@all"

--- The groups in the order in which people are told of them.
---@type string[]
groups.NAMES = { "@execute", "@read", "@write", "@create", "@lifetime", "@destroy", "@inspect", "@all" }

local IN_NO_GROUP = { "cancel_background_task" }

local by_tool = {}
for _, group in ipairs(groups.NAMES) do
  for _, tool in ipairs(groups.MEMBERS[group] or {}) do
    by_tool[tool] = by_tool[tool] or {}
    by_tool[tool][group] = true
  end
end

--- Every tool of ours, whether it is configured or not.
---@type string[]
groups.TOOLS = table.move(IN_NO_GROUP, 1, #IN_NO_GROUP, 1, {})
for tool in pairs(by_tool) do groups.TOOLS[#groups.TOOLS + 1] = tool end
table.sort(groups.TOOLS)

--- Whether a text is the name of a group.
---@param name any
---@return boolean
function groups.is_group(name)
  return name == groups.ALL or groups.MEMBERS[name] ~= nil
end

--- The groups of a tool, as a set that always has `@all`. A fresh table.
---@param tool string  its name
---@param own? string[]  the groups that an operator's tool names; what is no group is passed over
---@return table<string, true>
function groups.of(tool, own)
  local set = { [groups.ALL] = true }
  for group in pairs(by_tool[tool] or {}) do set[group] = true end
  for _, group in ipairs(own or {}) do
    if groups.is_group(group) then set[group] = true end
  end
  return set
end

--- The groups of an entry of tools.build.
---@param entry { name: string, groups?: table<string, true>, tool?: { groups?: string[] } }
---@return table<string, true>
function groups.of_entry(entry)
  if entry.groups and entry.groups[groups.ALL] then return entry.groups end
  return groups.of(entry.name, entry.tool and entry.tool.groups)
end

return groups
