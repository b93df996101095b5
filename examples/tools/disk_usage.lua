--- disk_usage.lua - a tool of an operator's: what takes the room in a sandbox. Shows a command run, its output read, and a
--- result with a schema.
--
-- In the configuration: tools = { "tools/*.lua" }. docs/extending.md says more.

--- One line of `du -k`: kilobytes, a tab, the path.
local function entry_of(line)
  local kilobytes, path = line:match "^(%d+)\t(.+)$"
  if kilobytes then return { path = path, bytes = math.tointeger(tonumber(kilobytes)) * 1024 } end
end

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

return {
  name = "disk_usage",
  description = "Show which folders under a path take the most room in the sandbox, largest first.",
  effect = "read",
  groups = { "@execute" }, -- it runs a command: rules for commands hold for it too
  input = {
    properties = {
      path = { type = "string", minLength = 1, maxLength = 4096, default = ".", description = "Where to look." },
      count = { type = "integer", minimum = 1, maximum = 100, default = 10 },
      sandbox_id = { type = "string", minLength = 1, maxLength = 256 },
    },
  },
  output = {
    properties = {
      sandbox_id = { type = "string" },
      folders = {
        type = "array",
        items = { type = "object", properties = { path = { type = "string" }, bytes = { type = "integer" } } },
      },
    },
    required = { "sandbox_id", "folders" },
  },
  handler = function(call, args)
    local sandbox = call:sandbox(args.sandbox_id)
    call:progress("looking at " .. args.path)
    local found = sandbox:run(("du -k -- %s 2>/dev/null | sort -rn | head -n %d"):format(quoted(args.path), args.count))
    local folders = call.json.array {}
    for line in found.stdout:gmatch "[^\n]+" do folders[#folders + 1] = entry_of(line) end
    if #folders == 0 then
      call:fail { category = "file_not_found", field = "path", message = "There is nothing to measure at that path." }
    end
    return { sandbox_id = sandbox.id, folders = folders }
  end,
}
