--- The official JSON-Schema-Test-Suite, drafts 2020-12 and 07, as Debian's libtest-json-schema-acceptance-perl has it.
--
-- Not a case may fail. Groups whose schema is refused when it is compiled are told apart and stand in REFUSED with the
-- reason, so that a new one shows. The suite has unknown keywords, which annotate, so nothing here is strict.
-- $DML_SCHEMA_SUITE names another copy of the suite's folder `tests`.

local json_schema = require "demilune.json_schema"
local json = require("demilune.core").json
local sources = require "spec.support.sources"

local FOLDER = os.getenv "DML_SCHEMA_SUITE"
local PACKAGED = "/usr/share/perl5/auto/share/dist/Test-JSON-Schema-Acceptance/tests"

local OUTSIDE = "it leads out of the schema, and nothing is fetched; put the definition into `$defs`"
local DIALECT = "only drafts 2020-12 and 07 are held; write one of their URLs, or leave it out"

-- Files with groups that are refused: why, and how many cases they have in the packaged suite.
local REFUSED = {
  ["2020-12"] = {
    -- References to the metaschema, which is not within the schema.
    ["anchor.json"] = { OUTSIDE, 3 }, ["defs.json"] = { OUTSIDE, 2 }, ["id.json"] = { OUTSIDE, 13 },
    ["ref.json"] = { OUTSIDE, 3 },
    -- References to documents that the suite serves beside its schemas.
    ["dynamicRef.json"] = { OUTSIDE, 11 }, ["refRemote.json"] = { OUTSIDE, 29 },
    -- A `$schema` with vocabularies of its own.
    ["vocabulary.json"] = { DIALECT, 5 },
  },
  ["draft-07"] = { ["definitions.json"] = { OUTSIDE, 2 }, ["ref.json"] = { OUTSIDE, 2 }, ["refRemote.json"] = { OUTSIDE, 21 } },
}

-- Of the optional files: formats beyond ours are annotations, as are `content…` and what 2020-12 took out; numbers
-- beyond int64 and double are no JSON to us.
local OPTIONAL = {
  ["2020-12"] = {
    "ecmascript-regex.json", "float-overflow.json", "no-schema.json", "non-bmp-regex.json", "refOfUnknownKeyword.json",
  },
  ["draft-07"] = { "ecmascript-regex.json", "float-overflow.json", "non-bmp-regex.json" },
}

local function is_there(path)
  local file = io.open(path)
  return file ~= nil and file:close()
end

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read "a"
end

--- 1110 as "1,110".
local function grouped(number)
  local text = ("%d"):format(number)
  return #text > 3 and text:sub(1, -4) .. "," .. text:sub(-3) or text
end

local function files_of(folder)
  local pipe = assert(io.popen(("ls '%s'"):format(folder)))
  local names = {}
  for name in pipe:lines() do
    if name:find "%.json$" then names[#names + 1] = name end
  end
  pipe:close()
  return names
end

--- Runs a file: its cases that passed, those of refused groups by the reason, and what failed.
local function run(path, dialect)
  local passed, refused, failed = 0, {}, {}
  for _, group in ipairs(assert(json.decode(read(path)))) do
    local validator, faults = json_schema.compile(group.schema, { dialect = dialect })
    for _, case in ipairs(group.tests) do
      if not validator then
        refused[faults[1].text] = (refused[faults[1].text] or 0) + 1
      elseif (validator:check(case.data) == true) == case.valid then
        passed = passed + 1
      else
        failed[#failed + 1] = group.description .. ": " .. case.description
      end
    end
  end
  return passed, refused, failed
end

describe("the JSON Schema Test Suite", function()
  local folder = FOLDER or PACKAGED
  if not is_there(folder .. "/draft2020-12/ref.json") then
    it("is passed", function()
      pending "it is not here: install libtest-json-schema-acceptance-perl, or set DML_SCHEMA_SUITE"
    end)
    return
  end
  for dialect, name in pairs { ["2020-12"] = "draft2020-12", ["draft-07"] = "draft7" } do
    local passed_all, refused_all = 0, 0
    local place = folder .. "/" .. name .. "/"

    for _, file in ipairs(files_of(place)) do
      it(("passes in %s of %s, or is refused for a known reason"):format(file, dialect), function()
        local passed, refused, failed = run(place .. file, dialect)
        local reason, count = next(refused)
        passed_all, refused_all = passed_all + passed, refused_all + (count or 0)
        assert.are.same({}, failed)
        assert.is_nil(next(refused, reason), "a second reason")
        local expected = REFUSED[dialect][file] or {}
        -- Another copy may have other groups in a file.
        if not FOLDER then assert.are.equal(expected[2], count) end
        if reason then assert.are.equal(expected[1], reason) end
        assert.is_true(passed > 0 or count ~= nil)
      end)
    end

    for _, file in ipairs(OPTIONAL[dialect]) do
      it(("passes in the optional %s of %s"):format(file, dialect), function()
        local path = place .. "optional/" .. file
        if not is_there(path) then return pending("this copy of the suite has no " .. file) end
        local passed, _, failed = run(path, dialect)
        assert.are.same({}, failed)
        assert.is_true(passed > 0)
      end)
    end

    it("of " .. dialect .. " passes as often as the README says", function()
      print(("note: JSON Schema %s: %d of %d cases, %d refused"):format(dialect, passed_all, passed_all + refused_all,
        refused_all))
      local readme = sources.read "README.md"
      local words = ("%s %s of %s"):format(dialect, grouped(passed_all), grouped(passed_all + refused_all))
      assert.is_true(passed_all > 0)
      if not FOLDER then assert.truthy(readme:find(words, 1, true), "README.md lacks: " .. words) end
    end)
  end
end)
