--- Paths: made plain, and judged as they are given and as they really are.

local paths = require "demilune.policy.paths"
local support = require "spec.policy.support"

local PLAIN = {
  { "/", "/" }, { "//", "/" }, { "/a/b", "/a/b" }, { "/a//b/", "/a/b" }, { "/a/./b/.", "/a/b" }, { "/a/../b", "/b" },
  { "/../../a", "/a" }, { "/a/b/../../..", "/" }, { "a", "/home/user/a" }, { "../x", "/home/x" }, { ".", "/home/user" },
  { "", "/home/user" }, { "./a/../b", "/home/user/b" }, { "/a/...", "/a/..." }, { "/a/..b", "/a/..b" }, { "~/a",
    "/home/user/~/a" },
  { "/a\n/b", "/a\n/b" }, { "..", "/home" },
}

--- Rules of `path`, and for each path whether it passes.
local JUDGED = {
  { { deny = "/secret/**" }, pass = { "/", "/secrets", "/a/secret/b", "/Secret/a" },
    fail = { "/secret", "/secret/", "/secret/a", "/secret/a/b", "/x/../secret/a", "//secret//a", "/secret/./" } },
  { { deny = "**/*.pem" }, pass = { "/a.pem.txt", "/pem", "x.PEM" }, fail = { "/x.pem", "x.pem", "/a/b/c.pem", "/.pem" } },
  { { deny = "/home/*/.ssh/**" }, pass = { "/home/.ssh/a", "/home/a/b/.ssh/c", "/home/a/.sshd" },
    fail = { "/home/a/.ssh/id", "/home/user/.ssh", ".ssh/id_rsa", "./.ssh/../.ssh/x/y" } },
  { { deny = "/etc/*" }, pass = { "/etc", "/etc/a/b" }, fail = { "/etc/passwd", "/etc/./passwd" } },
  { { deny = "/**" }, pass = {}, fail = { "/", "/a", "a/b", "." } },
  { { deny = { "/a", "/b" } }, pass = { "/a/x", "/c" }, fail = { "/a", "/b", "/b/" } },
  { { allow = "/work/**" }, pass = { "/work/a", "/work/a/b", "/work/./x" },
    fail = { "/", "/etc/passwd", "/work/../etc/passwd", "/workshop/a", "a", "/work" } },
  { { allow = { "/work", "/work/**" }, deny = "/work/private/**" }, pass = { "/work", "/work/a" },
    fail = { "/work/private", "/work/private/a", "/tmp" } },
  { { allow = "/data/[a-c]?/{x,y}.txt" }, pass = { "/data/a1/x.txt", "/data/cc/y.txt" },
    fail = { "/data/d1/x.txt", "/data/a/x.txt", "/data/a1/z.txt", "/data/a1/x.txt/y" } },
  { { allow = "/a\\*b" }, pass = { "/a*b" }, fail = { "/axb", "/ab" } },
}

describe("a path", function()
  for _, row in ipairs(PLAIN) do
    it(("%q becomes %q"):format(row[1], row[2]), function() assert.are.equal(row[2], paths.normalize(row[1])) end)
  end

  it("starts in the working directory that the sandbox has", function()
    assert.are.equal("/work/a", paths.normalize("a", "/work"))
    assert.are.equal("/a", paths.normalize("../../a", "/work"))
  end)
end)

describe("a rule of paths", function()
  for _, row in ipairs(JUDGED) do
    it(support.json.encode(row[1]), function()
      local compiled = support.rules { { match = { "@read", "@write" }, path = row[1] } }
      for _, path in ipairs(row.pass) do
        assert.are.equal("allow", support.words(support.decide(compiled, "read_file", { path = path })), path)
      end
      for _, path in ipairs(row.fail) do
        local decision = support.decide(compiled, "read_file", { path = path })
        assert.are.equal("deny by r1", support.words(decision), path)
        assert.are.equal("path", decision.field)
      end
    end)
  end

  it("is about every tool with a path, and takes the working directory for none", function()
    local compiled = support.rules { { match = "@all", path = { deny = "/home/user/**" } } }
    for _, tool in ipairs { "read_file", "list_files", "download_file", "write_file", "upload_file" } do
      assert.are.equal("deny by r1", support.words(support.decide(compiled, tool)), tool)
    end
    for _, tool in ipairs { "run_command", "create_sandbox", "kill_sandbox" } do
      assert.are.equal("allow", support.words(support.decide(compiled, tool)), tool)
    end
    local elsewhere = support.decide(compiled, "list_files", nil, { workdir = "/workspace" })
    assert.are.equal("allow", support.words(elsewhere))
  end)

  it("judges where the path really leads", function()
    local compiled = support.rules { { match = "@read", path = { deny = "/secret/**" } }, { match = "@read",
      path = { allow = "/**" } } }
    local asked = {}
    local function leading(to)
      return { real_path = function(_, path)
        asked[#asked + 1] = path
        return to
      end }
    end
    assert.are.equal("deny by r1", support.words(support.decide(compiled, "read_file", { path = "link" }, nil,
      leading "/secret/a")))
    assert.are.equal("allow", support.words(support.decide(compiled, "read_file", { path = "link" }, nil,
      leading "/home/user/b")))
    -- Once a call, for both rules, as the path was given; and not at all where the text of the path is refused already.
    assert.are.same({ "link", "link" }, asked)
    support.decide(compiled, "read_file", { path = "/secret/a" }, nil, leading "/x")
    assert.are.equal(2, #asked)
  end)

  it("denies what cannot be told", function()
    local compiled = support.rules { { match = "@read", path = { deny = "/secret/**" } } }
    for _, real in ipairs { function() end, false, function() return 7 end, function() error "gone" end } do
      local decision = support.decide(compiled, "read_file", { path = "a" }, nil, { real_path = real })
      assert.are.equal("deny", decision.verdict)
    end
  end)

  it("denies what a glob at its limit leaves open", function()
    local env = support.env { glob = function() return { matches = function() return nil, "limit" end } end }
    for _, path in ipairs { { deny = "/a/*" }, { allow = "/**" } } do
      local compiled = support.rules({ { match = "read_file", path = path } }, "allow", env)
      assert.are.equal("deny by r1", support.words(support.decide(compiled, "read_file", { path = "/b" })))
    end
  end)

  it("has no links to follow in a sandbox that is yet to be made", function()
    local compiled = support.rules { { match = "@read", path = { deny = "/secret/**" } } }
    local function never() error "asked" end
    for _, sandbox in ipairs { { owned = true }, false } do
      local decision = support.decide(compiled, "read_file", { path = "a" }, { sandbox = sandbox }, { real_path = never })
      assert.are.equal("allow", support.words(decision))
    end
  end)
end)
