--- paths.lua - paths of a sandbox as rules judge them: absolute, without `.`, `..` and doubled slashes.
--
-- This is about the text of a path alone. Where links lead is not known here; a rule judges that path too, as a second one.

local paths = {}

--- Where relative paths start while nobody says otherwise.
paths.WORKDIR = "/home/user"

--- A path made absolute and plain. `..` at the root stays there.
---@param path string
---@param workdir? string  absolute
---@return string
function paths.normalize(path, workdir)
  if path:sub(1, 1) ~= "/" then path = (workdir or paths.WORKDIR) .. "/" .. path end
  local parts, count = {}, 0
  for part in path:gmatch "[^/]+" do
    if part == ".." then
      if count > 0 then parts[count], count = nil, count - 1 end
    elseif part ~= "." then
      count = count + 1
      parts[count] = part
    end
  end
  return "/" .. table.concat(parts, "/")
end

local SPECIAL = "[%*%?%[%]{}\\]"

--- A matcher of one glob: a function of a text that says true, false, or nil where that cannot be decided.
---@param pattern string
---@param glob fun(pattern: string, options?: table): table?, string?  as core.regex.glob
---@param is_path boolean
---@return (fun(text: string): boolean?)?
---@return string? why
function paths.matcher(pattern, glob, is_path)
  local regex, why = glob(pattern, is_path and { path = true } or nil)
  if not regex then return nil, why end
  if pattern:find(SPECIAL) then return function(text) return (regex:matches(text)) end end
  return function(text) return text == pattern end
end

--- A pattern of a rule as it is matched: a glob is one of a whole absolute path.
local function globs_of(patterns, glob, covers_folder)
  local list = {}
  for _, pattern in ipairs(patterns or {}) do
    local matches = paths.matcher(pattern, glob, true)
    if matches then list[#list + 1] = matches end
    local folder = covers_folder and pattern:match "^(.+)/%*%*$"
    local of_folder = folder and paths.matcher(folder, glob, true)
    if of_folder then list[#list + 1] = of_folder end
  end
  return list
end

--- The globs of a rule's `path`, ready to judge. Those that are none are left out; `rules.compile` has refused them before.
---@param spec { allow?: string[], deny?: string[] }
---@param glob fun(pattern: string, options?: table): table?, string?
---@return { allow?: function[], deny: function[] }
function paths.compile(spec, glob)
  return { allow = spec.allow and globs_of(spec.allow, glob, false), deny = globs_of(spec.deny, glob, true) }
end

local function first_hit(list, path)
  local is_undecided = false
  for _, matches in ipairs(list) do
    local hit = matches(path)
    if hit then return true end
    if hit == nil then is_undecided = true end
  end
  if is_undecided then return nil end
  return false
end

--- Judges one absolute path. What cannot be decided is refused.
---@param compiled { allow?: function[], deny: function[] }
---@param path string  of `normalize`
---@return boolean is_allowed
---@return string? why
function paths.judge(compiled, path)
  if first_hit(compiled.deny, path) ~= false then return false, "lies where the rule denies paths" end
  if compiled.allow and not first_hit(compiled.allow, path) then return false, "lies outside of what the rule allows" end
  return true
end

return paths
