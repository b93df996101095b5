--- Groups of tools, and which of a policy's rules are about which tool.

local groups = require "demilune.policy.groups"
local support = require "spec.policy.support"

local function names_of(set)
  local names = {}
  for name in pairs(set) do names[#names + 1] = name end
  table.sort(names)
  return table.concat(names, " ")
end

--- Each tool and the groups that the contract puts it in.
local OF = {
  run_code = "@all @execute", run_command = "@all @execute", start_background_task = "@all @execute",
  read_file = "@all @read", list_files = "@all @read", download_file = "@all @read",
  write_file = "@all @write", upload_file = "@all @write",
  create_sandbox = "@all @create @lifetime", veryfront__create_sandbox = "@all @create",
  set_sandbox_timeout = "@all @lifetime", veryfront__update_sandbox_lifetime = "@all @lifetime",
  kill_sandbox = "@all @destroy", list_sandboxes = "@all @inspect", get_sandbox = "@all @inspect",
  get_background_task = "@all @inspect", cancel_background_task = "@all", mine = "@all",
}

--- Patterns of `match`, and the tools that they are.
local MATCH = {
  { "run_command", "run_command" },
  { "run_*", "run_code run_command" },
  { "*_file", "download_file read_file upload_file write_file" },
  { "{read,write}_file", "read_file write_file" },
  { "veryfront__*", "veryfront__create_sandbox veryfront__update_sandbox_lifetime" },
  { "?ist_files", "list_files" },
  { "[kl]i*", "kill_sandbox list_files list_sandboxes" },
  { "@execute", "run_code run_command start_background_task" },
  { "@create", "create_sandbox veryfront__create_sandbox" },
  { "@lifetime", "create_sandbox set_sandbox_timeout veryfront__update_sandbox_lifetime" },
  { { "@destroy", "run_code" }, "kill_sandbox run_code" },
  { { "run_code", "run_*", "@execute" }, "run_code run_command start_background_task" },
}

describe("groups", function()
  it("are those of the contract", function()
    for tool, expected in pairs(OF) do assert.are.equal(expected, names_of(groups.of(tool)), tool) end
  end)

  it("name every tool that there is, and no other", function()
    local names = {}
    for i, tool in ipairs(support.tools()) do names[i] = tool.name end
    table.sort(names)
    assert.are.same(names, groups.TOOLS)
  end)

  it("take in the tools of an operator that name them", function()
    assert.are.equal("@all @execute @read", names_of(groups.of("mine", { "@read", "@execute", "@nothing", 7 })))
    assert.are.equal("@all @write", names_of(groups.of_entry { name = "mine", tool = { groups = { "@write" } } }))
    local own = { ["@all"] = true }
    assert.are.equal(own, groups.of_entry { name = "mine", groups = own })
  end)

  it("are known by name", function()
    assert.is_true(groups.is_group "@all")
    for _, name in ipairs { "all", "@", "@every", 3, {} } do assert.is_false(groups.is_group(name)) end
  end)
end)

describe("match", function()
  for _, row in ipairs(MATCH) do
    it(("%s"):format(support.json.encode(row[1])), function()
      local compiled = support.rules { { match = row[1], deny = "no" } }
      local denied = {}
      for _, tool in ipairs(support.tools()) do
        if support.decide(compiled, tool.name).verdict == "deny" then denied[tool.name] = true end
      end
      assert.are.equal(row[2], names_of(denied))
    end)
  end

  it("@all and * are every tool", function()
    for _, pattern in ipairs { "@all", "*", "**" } do
      local compiled = support.rules { { match = pattern, deny = "no" } }
      for _, tool in ipairs(support.tools()) do
        assert.are.equal("deny by r1", support.words(support.decide(compiled, tool.name)), tool.name)
      end
    end
  end)

  it("finds the tools of an operator by group and by name", function()
    local list = table.move(support.tools(), 1, #support.tools(), 1, {})
    list[#list + 1] = { name = "disk_usage", tool = { groups = { "@read" } }, input = { properties = {} } }
    local env = support.env { tools = list }
    local compiled = support.rules({ { match = "@read", deny = "a" }, { match = "disk_*", ask = "b?" } }, "allow", env)
    local view = support.view("disk_usage", {}, { group = groups.of_entry(list[#list]) })
    assert.are.equal("deny by r1", support.words(require("demilune.policy.rules").decide(compiled, view, support.world())))
  end)
end)
