--- Public names are documented: C declarations, Lua functions, and what C shows to Lua.

local sources = require "spec.support.sources"

local function listed(found) return table.concat(found, "\n") end

--- The lines of a C header with what each is: comment, code or blank.
local function classify(text)
  local kinds, lines, in_comment = {}, {}, false
  for line in (text .. "\n"):gmatch("(.-)\n") do
    lines[#lines + 1] = line
    if in_comment then
      kinds[#lines] = "comment"
      in_comment = not line:find("*/", 1, true)
    elseif line:match("^%s*$") then
      kinds[#lines] = "blank"
    elseif line:match("^%s*/%*") then
      kinds[#lines] = "comment"
      in_comment = not line:find("*/", 1, true)
    else
      kinds[#lines] = "code"
    end
  end
  return lines, kinds
end

--- Declarations of functions in a header without a comment right above them, or above the run of declarations (no blank
--- line between) that they stand in.
local function undocumented_declarations(text)
  local lines, kinds = classify(text)
  local bad, is_covered = {}, false
  local declaration
  for number, line in ipairs(lines) do
    if declaration then
      declaration = not line:find(";%s*$") and not line:find(";%s*/%*") or nil
    elseif kinds[number] == "blank" then
      is_covered = false
    elseif kinds[number] == "comment" then
      is_covered = true
    elseif line:match("^[%a_][%w_ *]*[ *]dml_[%w_]+%s*%(") and not line:match("^typedef") then
      if not is_covered and not line:find("/%*") then
        bad[#bad + 1] = { line = number, name = line:match("(dml_[%w_]+)%s*%(") }
      end
      declaration = not line:find(";") or nil
    end
  end
  return bad
end

--- The comment block right above line `number`.
local function doc_above(lines, number)
  local doc = {}
  number = number - 1
  while number >= 1 and lines[number]:match("^%s*%-%-") do
    table.insert(doc, 1, lines[number])
    number = number - 1
  end
  return doc
end

local function parameters_of(list)
  local names = {}
  for name in list:gmatch("[%a_][%w_]*") do names[#names + 1] = name end
  return names
end

--- What is wrong with the doc comment of one public Lua function; nil when nothing.
local function doc_fault(doc, parameters)
  local has_text, documented = false, {}
  for _, line in ipairs(doc) do
    local name = line:match("^%s*%-%-%-@param%s+([%w_.]+)%??")
    if name and name ~= "..." then documented[#documented + 1] = name end
    if line:match("^%s*%-%-%-?%s*[%w`\"]") then has_text = true end
  end
  if not has_text then return "has no doc line" end
  if table.concat(documented, ", ") ~= table.concat(parameters, ", ") then
    return ("has parameters (%s) and documents (%s)"):format(
      table.concat(parameters, ", "), table.concat(documented, ", "))
  end
  return nil
end

--- Which tables of a Lua file are public: the one it returns, and those with a `---@class` line.
local function public_tables(lines)
  local is_public = {}
  for number, line in ipairs(lines) do
    local returned = line:match("^return ([%w_]+)$")
    if returned then is_public[returned] = true end
    local class = line:match("^local ([%w_]+) = ")
    for _, doc in ipairs(class and doc_above(lines, number) or {}) do
      if doc:match("^%-%-%-@class") then is_public[class] = true end
    end
  end
  return is_public
end

--- Faults of public functions: `function mod.name(`, `function mod:name(` and `mod.name = function(` in column 0. A name
--- with a leading underscore is private.
local function lua_faults(path, faults)
  local lines = {}
  for line in (sources.read(path) .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
  local is_public = public_tables(lines)
  for number, line in ipairs(lines) do
    local name, list = line:match("^function ([%w_]+[.:][%w_]+)%s*%((.-)%)")
    if not name then name, list = line:match("^([%w_]+%.[%w_]+)%s*=%s*function%s*%((.-)%)") end
    if name and is_public[name:match("^[%w_]+")] and not name:match("[.:]_") then
      local fault = doc_fault(doc_above(lines, number), parameters_of(list))
      if fault then faults[#faults + 1] = ("%s:%d %s %s"):format(path, number, name, fault) end
    end
  end
end

--- Names that C registers for Lua: { name = "read", path = "src/script/bind_fs.c" }, metamethods aside.
local function registered_names()
  local found = {}
  for _, path in ipairs(sources.files("^src/script/.*%.c$")) do
    for body in sources.read(path):gmatch("luaL_Reg%s+[%w_]+%[%]%s*=%s*{(.-)};") do
      for name in body:gmatch('{%s*"([%w_]+)"') do
        if not name:match("^__") then found[#found + 1] = { name = name, path = path } end
      end
    end
  end
  return found
end

describe("the docs of C", function()
  it("say something about every public function", function()
    local bad = {}
    for _, path in ipairs(sources.files("^[si][rn]c.*%.h$")) do
      for _, fn in ipairs(undocumented_declarations(sources.read(path))) do
        bad[#bad + 1] = ("%s:%d %s has no comment"):format(path, fn.line, fn.name)
      end
    end
    assert.are.equal("", listed(bad))
  end)

  it("cover a run of declarations with one comment, and end at a blank line", function()
    assert.are.same({}, undocumented_declarations("/* Both. */\nvoid dml_a(void);\nvoid dml_b(int a,\n  int b);\n"))
    assert.are.equal("dml_b", undocumented_declarations("/* A. */\nvoid dml_a(void);\n\nvoid dml_b(void);\n")[1].name)
    assert.are.equal("dml_a", undocumented_declarations("const char *dml_a(void);\n")[1].name)
  end)
end)

describe("the docs of Lua", function()
  it("name what every public function takes", function()
    local faults = {}
    for _, path in ipairs(sources.files("^lua/.*%.lua$")) do lua_faults(path, faults) end
    assert.are.equal("", listed(faults))
  end)

  it("notice a parameter that is not there", function()
    assert.is_nil(doc_fault({ "--- Adds.", "---@param a integer", "---@param b? integer" }, { "a", "b" }))
    assert.is_truthy(doc_fault({ "--- Adds.", "---@param a integer" }, { "a", "b" }))
    assert.is_truthy(doc_fault({ "---@param a integer" }, { "a" }))
  end)

  it("know every function that C registers", function()
    local meta = sources.files("^lua/demilune/meta/.*%.lua$")
    if #meta == 0 then return pending("lua/demilune/meta does not exist yet") end
    local text = {}
    for _, path in ipairs(meta) do text[#text + 1] = sources.read(path) end
    local all, missing = table.concat(text, "\n"), {}
    for _, fn in ipairs(registered_names()) do
      if not all:find("[.:]" .. fn.name .. "%s*%(") and not all:find("[.:]" .. fn.name .. "%s*=") then
        missing[#missing + 1] = fn.path .. ": " .. fn.name
      end
    end
    assert.are.equal("", listed(missing))
  end)
end)
